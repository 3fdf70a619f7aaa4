"""Policies that other libraries trained, used as agents."""
