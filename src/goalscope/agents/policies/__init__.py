"""Policies that other libraries trained, as agents."""
