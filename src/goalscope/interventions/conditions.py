"""What is patched into a prompt: sites, layers, components and controls, as edits of the rows of one pass."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.interventions.edits import EMBEDDING, Component, Edit

Places = npt.NDArray[np.int64]
Patch = Literal["source", "identity", "isotropic", "covariance", "wrong"]
"""What is written: the source's vectors; the target's own; noise as far from the target's as the source's are, in
directions that are uniform or have the covariance of the activations; the vectors of another pair's source."""
PATCHES: Final[tuple[Patch, ...]] = get_args(Patch)

TARGET, SOURCE, WRONG = 0, 1, 2
"""Rows of a pass that are not changed, and that others read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One patch.

    Attributes:
        site: name of the site.
        layers: the layers, a contiguous run of them.
        component: residual, attention or mlp.
        patch: what is written.
        everywhere: whether these are all layers, the embedding included.
        structural: whether nothing can read it: the last layer at a site without the last token.
    """

    site: str
    layers: tuple[int, ...]
    component: Component = "residual"
    patch: Patch = "source"
    everywhere: bool = False
    structural: bool = False

    @property
    def label(self) -> str:
        """The layers as tables write them: ``3``, ``2 to 4``, ``all``."""
        if self.everywhere:
            return "all"
        first, last = self.layers[0], self.layers[-1]
        return str(first) if first == last else f"{first} to {last}"

    @property
    def tags(self) -> dict[str, Any]:
        """What its rows carry; ``layer`` for a single one."""
        return {
            "site": self.site,
            "layers": self.label,
            "layer": self.layers[0] if len(self.layers) == 1 else None,
            "component": self.component,
            "patch": self.patch,
            "structural": True if self.structural else None,
        }


def conditions(
    site: str,
    layers: Sequence[int],
    *,
    last: int,
    reaches_end: bool,
    windows: Sequence[int] = (),
    components: Sequence[Component] = ("residual",),
    controls: Sequence[Patch] = ("isotropic", "covariance", "wrong"),
) -> Iterator[Condition]:
    """Yield all patches at a site.

    Each layer and all of them have every control; windows and components have isotropic noise alone, which stands
    beside every effect. Identity is patched at all layers.

    Args:
        site: its name.
        layers: the layers, rising; all of the model where `all layers` is to be among them.
        last: the model's last layer.
        reaches_end: whether the site holds the last token of the pass.
        windows: widths of contiguous runs of layers.
        components: residual and parts of it.
        controls: patches beside those of the source.
    """
    noise: list[Patch] = [patch for patch in controls if patch == "isotropic"]
    own: tuple[Patch, ...] = ("source",)
    if "residual" in components:
        complete = tuple(range(EMBEDDING, last + 1))
        for layer in layers:
            structural = layer == last and not reaches_end
            for patch in own if structural else (*own, *controls):
                yield Condition(site=site, layers=(layer,), patch=patch, structural=structural)
        whole: tuple[Patch, ...] = ("source", "identity", *controls)
        for patch in whole:
            yield Condition(site=site, layers=complete, patch=patch, everywhere=True)
        for width in windows:
            for begin in range(len(layers) - width + 1):
                run = tuple(layers[begin : begin + width])
                if run[-1] - run[0] == width - 1 and width > 1 and run != complete:
                    for patch in (*own, *noise):
                        yield Condition(site=site, layers=run, patch=patch)
    for component in components:
        for layer in layers if component != "residual" else ():
            if layer != EMBEDDING and not (layer == last and not reaches_end):
                for patch in (*own, *noise):
                    yield Condition(site=site, layers=(layer,), component=component, patch=patch)


def edits_of(
    condition: Condition,
    row: int,
    places: Mapping[int, Mapping[str, Places]],
    bank: Sequence[tuple[int, Places]],
    width: int,
    rng: np.random.Generator,
) -> list[Edit]:
    """Return the edits of one patch.

    Args:
        condition: the patch.
        row: the row that is changed, a copy of the target's.
        places: places of each site in the rows `TARGET`, `SOURCE` and `WRONG`; equally many of a site.
        bank: rows and places whose activations have the covariance of noise.
        width: D of the model.
        rng: directions of noise.
    """
    at = places[TARGET][condition.site]
    common: dict[str, Any] = {"row": row, "positions": at, "component": condition.component}
    if condition.patch == "identity":
        common |= {"source": TARGET}
    elif condition.patch == "wrong":
        common |= {"source": WRONG, "source_positions": places[WRONG][condition.site]}
    else:
        common |= {"source": SOURCE, "source_positions": places[SOURCE][condition.site]}
    found = []
    for layer in condition.layers:
        more: dict[str, Any] = {}
        if condition.patch in ("isotropic", "covariance"):
            spanned = condition.patch == "covariance"
            size = sum(len(there) for _, there in bank) if spanned else width
            more = {"vectors": _noise(rng, (len(at), size), unit=not spanned), "how": "noise", "clean": TARGET}
            more |= {"bank": tuple(bank)} if spanned else {}
        found.append(Edit(layer=layer, **common, **more))
    return found


def _noise(rng: np.random.Generator, shape: tuple[int, int], *, unit: bool) -> Any:
    import torch

    drawn = rng.standard_normal(shape)
    return torch.from_numpy(
        (drawn / np.linalg.norm(drawn, axis=1, keepdims=True) if unit else drawn).astype(np.float32)
    )
