"""How many threads a model is given on a processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SMALL = 30_000_000
"""Parameters below which one thread computes a model."""


@contextmanager
def fitting_threads(model: Any) -> Iterator[None]:
    """Compute a small model on a processor with one thread for as long as the context lasts.

    Its operations take microseconds: a second thread gains little, and where another process holds its core it waits at
    every one of them (20 times fewer answers a second were seen). Others keep the threads that PyTorch was given.
    """
    import torch

    before = torch.get_num_threads()
    few = model.device.type == "cpu" and sum(value.numel() for value in model.parameters()) < SMALL
    if few:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if few:
            torch.set_num_threads(before)
