"""Runs: what is recorded, and how it is made, stored and resumed."""
