"""Worlds that tell hypotheses apart, chosen from many: greedy maximin over pairs, exact and seeded.

One world after the other is taken, the one after which the pair that is told apart least has the most nats; ties go to
the larger sum over pairs of log(1 + nats), then to the earlier candidate. A pair's nats in a world are the smaller of
both directions with the same lapse rate, 0 where one of the two is undefined. Pairs that no candidate tells apart are
left out of the minimum and named: no choice among these worlds can help them.

The rule is greedy, so it is no guarantee of the best choice; the gain over random choices is computed beside it.
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
"""Random choices of as many worlds that the chosen ones are compared with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Worlds that were chosen among candidates.

    Attributes:
        worlds: the N chosen ones, in the order of the choice.
        hypotheses: what they are to tell apart, by name; places of a phase know their cells.
        found: what the candidates can tell.
        chosen: indices of the chosen ones among the candidates.
        pair: the pair that is told apart least, hopeless ones aside.
        least: its nats, summed over one episode in each chosen world.
        random: ``[DRAWS]`` the least pair's nats in random choices of N candidates.
        hopeless: pairs that no candidate tells apart.
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
        """Return a twin of each hypothesis as an entry of a study, with the lapse rate of the design."""
        lapse = self.found.lapse
        return [twin(hypothesis.text, lapse=lapse, name=name[:80]) for name, hypothesis in self.hypotheses.items()]

    def study(self, horizon: Mapping[str, Any], *, seed: int, name: str = "design") -> dict[str, Any]:
        """Return a study of these worlds as plain values, with a twin of each hypothesis and a random agent.

        Args:
            horizon: of the study, as a study writes it.
            seed: its root seed.
            name: its name.

        Raises:
            ValueError: worlds that cannot be written out: only grids can.
        """
        if unwritable := [world.kind for world in self.worlds if not world.offers >= {"grid", "seen state"}]:
            raise ValueError(
                "a study of chosen worlds must be of grids, which can be written out, got one of kind "
                f"{unwritable[0]}: leave the file out"
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
    """Choose worlds that tell hypotheses apart.

    Args:
        hypotheses: name -> hypothesis.
        candidates: the worlds to choose from.
        count: number N of worlds to choose.
        horizon: decisions of an episode in a world.
        lapse: lapse rate of the agents.
        seed: root seed of the random choices that they are compared with; the choice itself needs none.

    Raises:
        ValueError: fewer candidates than are to be chosen, or what `separability` refuses.
    """
    count = check_whole("count", count, 1, "worlds", most=len(candidates))
    measured = separability(hypotheses, candidates, horizon=horizon, lapse=lapse)
    pairs = list(combinations(range(len(measured.names)), 2))
    nats = np.stack([measured.least[:, first, second] for first, second in pairs], axis=1)  # [W, P]
    hope = nats.max(axis=0) >= ENOUGH
    if not hope.any():
        raise ValueError(
            f"some pair must be told apart in one of the candidates, got {len(candidates)} in which all hypotheses are "
            "the same: take worlds with other places of their goals"
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
