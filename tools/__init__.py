"""Scripts that keep the repository: locks, rows of two versions side by side."""
