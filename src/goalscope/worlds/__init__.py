"""Worlds whose optimal policies are known exactly."""

from goalscope.worlds.generate import GridBatch, generate, generate_batch
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position

__all__ = ["ACTIONS", "Action", "Grid", "GridBatch", "Position", "generate", "generate_batch"]
