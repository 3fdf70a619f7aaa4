"""Activations: the vectors of one site and layer, with what is needed to join them to the steps that they come from."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze

Site = Literal["pre", "post", "grid", "action"]
"""Where in a sequence vectors are taken: before the reasoning, between reasoning and answer, at the cells of the grid,
before the word that names the action."""

SITES: Final[tuple[Site, ...]] = get_args(Site)
TRIPLE: Final = 3
"""Positions of the sites `pre` and `post`."""


def check_site(site: str) -> Site:
    """Return the site of that name.

    Raises:
        ValueError: there is none.
    """
    if site not in SITES:
        raise ValueError(f"a site must be one of {', '.join(SITES)}, got {site!r}")
    return site


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activations:
    """The residual stream after one decoder block, at the P positions of one site, for N steps.

    Attributes:
        site: where in the sequence.
        layer: number of the decoder block whose output this is, 0-based.
        model: content id of the model whose activations these are.
        vectors: ``[N, P, D]`` float32. P is 3 for ``pre`` and ``post``, 1 for ``action``, H * W for ``grid`` (by row).
        episode_id: ``[N]`` text (object array), content id of the episode.
        step: ``[N]`` int64, number of the step in its episode.
        world_id: ``[N]`` text, content id of the world.
        grid_id: ``[N]`` text, the cluster that the world belongs to: splits and intervals go by it.
        shape: ``[N, 2]`` int64, height H and width W of the grid.
        positions: ``[N, P]`` int64, where in prompt and output together each vector was taken, 0-based.
        tokens: ``[N, P]`` int64, ids of the tokens there.
        reconstructed: ``[N]`` bool, whether the step's ids were made again from its text.

    Raises:
        ValueError: an unknown site, steps without a vector, arrays whose shapes do not fit, or a vector that is not
            finite; names the step.
    """

    site: Site
    layer: int
    model: str
    vectors: npt.NDArray[np.float32]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    world_id: npt.NDArray[np.object_]
    grid_id: npt.NDArray[np.object_]
    shape: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    reconstructed: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        check_site(self.site)
        if self.layer < 0:
            raise ValueError(f"a layer's number must be >= 0, got {self.layer}")
        if self.vectors.dtype != np.float32:
            raise ValueError(f"vectors must be float32, got {self.vectors.dtype}")
        sizes: dict[str, int] = {}
        for name, shape in _SHAPES.items():
            sizes = check_shape(name, getattr(self, name), shape, sizes)
        if sizes["N"] and not (sizes["P"] and sizes["D"]):
            raise ValueError(f"a step must have vectors of one number or more, got {list(self.vectors.shape)}")
        # The sum is not finite where an entry is not; no array of N * P * D truth values is made for it.
        with np.errstate(over="ignore", invalid="ignore"):
            sums = self.vectors.sum(axis=(1, 2), dtype=np.float64)
        if not np.isfinite(sums).all():
            bad = int(np.argmin(np.isfinite(sums)))
            raise ValueError(
                f"activations must be finite, got some that are not at {self.episode_id[bad]} step {self.step[bad]}, "
                f"site {self.site}, layer {self.layer}"
            )
        for name in _SHAPES:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.step)

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the steps, by a mask ``[N]`` bool or by indices ``[M]`` int in that order."""
        kept = {name: getattr(self, name)[mask] for name in _SHAPES}
        for array in kept.values():
            array.flags.writeable = False  # a new array that nobody else holds: it need not be copied to be frozen
        return type(self)(site=self.site, layer=self.layer, model=self.model, **kept)


_SHAPES: Final = {
    "vectors": "N P D",
    **dict.fromkeys(("episode_id", "step", "world_id", "grid_id", "reconstructed"), "N"),
    "shape": "N 2",
    "positions": "N P",
    "tokens": "N P",
}
