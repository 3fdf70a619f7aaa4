"""What `import goalscope` offers beside evaluations: a command is one call of a function, and prints its result."""
