"""Statistics: rows in, estimates with intervals out."""
