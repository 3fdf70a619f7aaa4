"""Predict what an agent does in kinds of worlds where nobody has seen it, and how far to trust the prediction."""
