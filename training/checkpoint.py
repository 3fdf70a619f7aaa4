"""Checkpoints of a training run: weights, optimizer state and progress in one safetensors file, written atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_KEEP = 2


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> Path:
    """Write a checkpoint and remove all but the last two.

    Args:
        folder: where checkpoints are kept.
        step: steps made so far.
        tensors: what to keep, by name.
        progress: plain values to keep with it.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}.safetensors"
    part = final.with_suffix(".part")
    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    save_file(plain, str(part), metadata={"progress": json.dumps({**progress, "step": step})})
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(final)
    for old in sorted(folder.glob("step-*.safetensors"))[:-_KEEP]:
        old.unlink()
    return final


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint in a folder, None where there is none."""
    found = sorted(folder.glob("step-*.safetensors"))
    return found[-1] if found else None


def load(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a checkpoint and its progress, with the number of steps as ``step``."""
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as opened:
        progress = json.loads(opened.metadata()["progress"])
        return {name: opened.get_tensor(name) for name in opened.keys()}, progress  # noqa: SIM118 - no mapping
