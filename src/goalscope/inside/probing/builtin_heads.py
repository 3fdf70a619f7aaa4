"""Built-in heads, registered when this module is imported. Only building a head imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from goalscope._ground import registry
from goalscope.inside.probing.heads import Head, HeadSizes, SettingsOf

if TYPE_CHECKING:
    from torch.nn import Module


def _register(name: str, *targets: str, settings_of: SettingsOf | None = None, **settings: Any) -> None:
    def build(sizes: HeadSizes, **arguments: Any) -> Module:
        from goalscope.inside.probing.modules import HEADS  # imports torch

        module: Module = HEADS[name](sizes, **arguments)
        return module

    head = Head(name=name, targets=targets, build=build, settings=settings, settings_of=settings_of)
    registry.register("head", name, made_of=build)(head)


def _width(weights: Mapping[str, npt.NDArray[Any]], name: str) -> int:
    array = weights.get(name)
    return int(array.shape[-1]) if array is not None and array.ndim else 0


def _decoder_settings(weights: Mapping[str, npt.NDArray[Any]]) -> dict[str, int]:
    return {"width": _width(weights, "in"), "feedforward": _width(weights, "0.up")}


_register("majority", "cells")
_register("position", "cells")
_register("additive", "cells")
_register("linear", "distance")
_register("percell", "cells")
_register("mlp", "cells", "distance", settings_of=lambda weights: {"hidden": _width(weights, "bias")}, hidden=1024)
for _name in ("decoder", "stepwise"):
    _register(_name, "plan", settings_of=_decoder_settings, layers=2, width=1024, feedforward=2048, heads=8)
