"""Environments of Gymnasium, MiniGrid, BabyAI and TextWorld as worlds, and the oracle around a live environment."""
