"""What the actions of an agent depend on: one thing is changed, everything else the same, and one turn is asked."""
