"""Weights, tokenizers and chat templates of the bundled models: Theseus (for grids) and Ariadne (for task worlds)."""
