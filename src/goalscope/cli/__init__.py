"""The command line."""

from goalscope.cli.app import app, main

__all__ = ["app", "main"]
