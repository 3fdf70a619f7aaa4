"""Choose worlds that separate hypotheses from many candidates: greedy maximin over pairs, exact and seeded.

We add one world at a time: the one that maximises the nats of the worst separated pair. Ties go to the larger sum over
pairs of log(1 + nats), then to the earlier candidate. The nats of a pair in a world are the smaller of both directions
with the same lapse rate, and 0 if one hypothesis is undefined. Pairs that no candidate separates are left out of the
minimum and reported, since no choice among these worlds can help them.

The greedy rule does not guarantee the best choice; for comparison we report the nats of random choices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.goals.hypotheses.definition import Array, Hypothesis
from goalscope.goals.hypotheses.separability import ENOUGH, LAPSE, Separability, separability
from goalscope.goals.hypotheses.twins import twin
from goalscope.goals.hypotheses.written import bind
from goalscope.worlds.world import World

DRAWS: Final = 200
"""Number of random choices that the chosen worlds are compared with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Worlds chosen among candidates to separate hypotheses.

    Attributes:
        worlds: the N chosen worlds, in the order of choice.
        hypotheses: name -> hypothesis to separate; places of a phase are bound to their cells.
        found: separability in all candidates.
        chosen: indices of the chosen worlds among the candidates.
        pair: the worst separated pair, except hopeless pairs.
        least: nats of that pair, summed over one episode in each chosen world.
        random: ``[DRAWS]`` nats of the worst pair in random choices of N candidates.
        hopeless: pairs that no candidate separates.
    """

    worlds: tuple[World, ...]
    hypotheses: Mapping[str, Hypothesis]
    found: Separability
    chosen: tuple[int, ...]
    pair: tuple[str, str]
    least: float
    random: Array
    hopeless: tuple[tuple[str, str], ...]

    def twins(self) -> list[dict[str, Any]]:
        """Return the scripted twin of each hypothesis as an agent entry of a study, with the design's lapse rate."""
        lapse = self.found.lapse
        return [twin(hypothesis.text, lapse=lapse, name=name[:80]) for name, hypothesis in self.hypotheses.items()]

    def study(self, horizon: Mapping[str, Any], *, seed: int, name: str = "design") -> dict[str, Any]:
        """Return a study of these worlds as plain values, with a twin of each hypothesis and a random agent.

        Args:
            horizon: the study's key ``horizon``, such as ``{"steps": 40}``.
            seed: root seed of the study.
            name: name of the study.

        Raises:
            ValueError: a chosen world is not a grid, so it cannot be written to a study file.
        """
        if unwritable := [world.kind for world in self.worlds if not world.offers >= {"grid", "seen state"}]:
            raise ValueError(
                f"only grids can be written to a study file, but a chosen world is of kind {unwritable[0]}: leave the "
                "file out"
            )
        grids = [world.grid for world in self.worlds]
        return {
            "name": name,
            "seed": seed,
            "worlds": [{"kind": "text", "grids": [grid.render() for grid in grids]}],
            "agents": [*self.twins(), {"kind": "random"}],
            "trajectories": 1,
            "horizon": dict(horizon),
        }


def design(
    hypotheses: Mapping[str, Hypothesis],
    candidates: Sequence[World],
    count: int,
    *,
    horizon: Callable[[World], int],
    lapse: float = LAPSE,
    seed: int = 0,
) -> Design:
    """Choose worlds that separate hypotheses.

    Args:
        hypotheses: name -> hypothesis.
        candidates: worlds to choose from.
        count: number N of worlds to choose.
        horizon: function from a world to the number of decisions per episode.
        lapse: lapse rate of the agents: the probability of a random action.
        seed: root seed of the random choices used for comparison; the choice itself is deterministic.

    Raises:
        ValueError: there are fewer candidates than `count`, no candidate separates any pair, or `separability` refuses
            the arguments.
    """
    count = check_whole("count", count, 1, "worlds", most=len(candidates))
    measured = separability(hypotheses, candidates, horizon=horizon, lapse=lapse)
    pairs = list(combinations(range(len(measured.names)), 2))
    nats = np.stack([measured.least[:, first, second] for first, second in pairs], axis=1)  # [W, P]
    hope = nats.max(axis=0) >= ENOUGH
    if not hope.any():
        raise ValueError(
            f"none of the {len(candidates)} candidate worlds separates any pair of these hypotheses: use worlds whose "
            "goals lie in other places"
        )
    value = nats[:, hope]
    chosen, total = list[int](), np.zeros(value.shape[1])
    for _ in range(count):
        after = total + value
        least, balance = after.min(axis=1), np.log1p(after).sum(axis=1)
        least[chosen] = -1.0
        best = np.flatnonzero(least >= least.max() - 1e-12)
        chosen.append(int(best[np.argmax(balance[best])]))
        total = total + value[chosen[-1]]
    rng = stream(seed, "random designs")
    draws = [value[rng.choice(len(value), count, replace=False)].sum(axis=0).min() for _ in range(DRAWS)]
    open_pairs = [
        (measured.names[a], measured.names[b]) for (a, b), is_open in zip(pairs, hope.tolist(), strict=True) if is_open
    ]
    return Design(
        worlds=tuple(candidates[index] for index in chosen),
        hypotheses={name: bind(hypothesis, candidates) for name, hypothesis in hypotheses.items()},
        found=measured,
        chosen=tuple(chosen),
        pair=open_pairs[int(total.argmin())],
        least=float(total.min()),
        random=np.array(draws),
        hopeless=tuple(
            (measured.names[a], measured.names[b])
            for (a, b), is_open in zip(pairs, hope.tolist(), strict=True)
            if not is_open
        ),
    )
