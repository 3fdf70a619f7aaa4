"""Weights, tokenizers and chat templates of the bundled models: Theseus (grids) and Ariadne (task worlds)."""
