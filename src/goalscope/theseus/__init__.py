"""Theseus, the bundled agent: a small model of the GPT-OSS architecture class and the code that trains it."""
