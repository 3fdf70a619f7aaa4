"""Inspect: our worlds as its tasks, our models as its provider, our runs as its logs (extra ``inspect``).

`record` says what a log of ours holds and needs no Inspect; everything else is imported by Inspect itself, or by the
commands ``import`` and ``export``.
"""
