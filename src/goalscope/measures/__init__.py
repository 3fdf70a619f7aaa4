"""Measures of behaviour: records in, rows out."""
