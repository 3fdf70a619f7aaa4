"""Which decoded maps a report shows as pictures: decided by a rule, kept with the run as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from goalscope.probing.beliefs import Beliefs
from goalscope.probing.decisions import Decisions, chosen
from goalscope.rows import Tag

VERDICTS: Final = ("optimal in truth", "wrong in truth, optimal on the decoded map", "wrong in truth and on the map")
"""Kinds of actions that are shown."""
RULE: Final = (
    "Of each kind of action one: among the states nearest to the middle size and the middle density the first by "
    "content id of the episode."
)
_SYMBOLS: Final = frozenset("#_ agAG")
_WIDEST: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMap:
    """One decoded map to be drawn beside the true grid.

    Attributes:
        episode_id, step: the state.
        verdict: what its action is, one of `VERDICTS`.
        lines: the map as `DecodedMaps.text` writes it.
        tags: whose map it is: head, site, layer, ...

    Raises:
        ValueError: an unknown verdict, or lines that are no map.
    """

    episode_id: str
    step: int
    verdict: str
    lines: tuple[str, ...]
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"the verdict of a shown map must be one of {'; '.join(VERDICTS)}, got {self.verdict!r}")
        widths = {len(line) for line in self.lines}
        sound = len(widths) == 1 and 1 <= min(widths) <= _WIDEST and len(self.lines) <= _WIDEST
        if not sound or not set("".join(self.lines)) <= _SYMBOLS:
            raise ValueError("a shown map must be lines of equal length of the symbols of decoded maps, got others")

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values, for ``store.put_info``."""
        return {
            "episode_id": self.episode_id,
            "step": self.step,
            "verdict": self.verdict,
            "lines": list(self.lines),
            "tags": dict(self.tags),
        }

    @classmethod
    def from_plain(cls, given: Any) -> Self:
        """Read what `to_plain` wrote.

        Raises:
            ValueError: anything else.
        """
        kinds = {"episode_id": str, "step": int, "verdict": str, "lines": list, "tags": dict}
        if not isinstance(given, dict) or set(given) != set(kinds):
            raise ValueError(f"a shown map must have {', '.join(kinds)}, got {type(given).__name__}")
        for name, kind in kinds.items():
            if not isinstance(given[name], kind):
                raise ValueError(f"{name} of a shown map must be of type {kind.__name__}")
        if not all(isinstance(line, str) for line in given["lines"]):
            raise ValueError("the lines of a shown map must be texts")
        return cls(**{**given, "lines": tuple(given["lines"])})


def choose_maps(beliefs: Beliefs, decisions: Decisions, tags: Mapping[str, Tag] | None = None) -> list[ShownMap]:
    """Return one state of each verdict that occurs, by `RULE`.

    Args:
        beliefs: of N states.
        decisions: what was done there.
        tags: kept with each.
    """
    taken, true = decisions.taken, decisions.is_optimal
    decoded = chosen(beliefs.optimal, decisions.action)
    found = []
    masks = (taken & true, taken & ~true & decoded, taken & ~true & ~decoded)
    size = decisions.shape.max(axis=1)
    centres = [_centre(size.tolist()), _centre(decisions.density[~np.isnan(decisions.density)].tolist())]

    def far(at: int) -> tuple[float, float, str, int]:
        density = float(decisions.density[at])
        gap = np.inf if np.isnan(density) else abs(density - centres[1])
        return abs(float(size[at]) - centres[0]), gap, str(decisions.episode_id[at]), int(decisions.step[at])

    for verdict, mask in zip(VERDICTS, masks, strict=True):
        rows = np.flatnonzero(mask).tolist()
        if not rows:
            continue
        at = min(rows, key=far)
        found.append(
            ShownMap(
                episode_id=str(decisions.episode_id[at]),
                step=int(decisions.step[at]),
                verdict=verdict,
                lines=beliefs.maps.text(at),
                tags=dict(tags or {}),
            )
        )
    return found


def _centre(values: Sequence[float]) -> float:
    return float(np.median(sorted(set(values)))) if values else 0.0
