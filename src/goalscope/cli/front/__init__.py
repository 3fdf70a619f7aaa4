"""What `import goalscope` offers beside evaluations: each command is one call of a function of these modules."""
