"""Gymnasium, MiniGrid, BabyAI and TextWorld environments as worlds, and an oracle wrapper for live environments."""
