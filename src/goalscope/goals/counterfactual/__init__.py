"""Test what an agent's moves depend on: change one thing, keep everything else, and ask for one move."""
