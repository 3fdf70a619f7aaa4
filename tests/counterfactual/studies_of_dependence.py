"""Simulated studies of what moves depend on: populations of worlds whose policies are known; families of agents."""

from typing import Any

import numpy as np

from goalscope.goals.counterfactual.dependence import Asked, WorldTurns, exact

MOVES, VERSIONS = 4, 2

SEEKERS = ("seeker", "noisy", "flee", "beside", "mirror", "point", "exchanged", "manhattan")
"""Families whose every action depends on the goal's place, be it towards it or away from it."""
BLIND = ("wander", "wall", "right")
"""Families whose actions do not."""
AVOIDING = ("top-row", "centre", "corner", "misgeneral")
"""Families that go elsewhere; all but the last go round the goal's cell, which would end the episode."""


def optimal(rng: np.random.Generator) -> Any:
    best = rng.choice(MOVES, rng.choice([1, 2], p=[0.6, 0.4]), replace=False)
    return np.isin(np.arange(MOVES), best) / len(best)


def population(rng: np.random.Generator, noise: float, changed: float, worlds: int = 4000) -> Any:
    """Return ``[worlds, 1 + VERSIONS, MOVES]`` policies; a version has another optimal set with a probability."""
    policies = np.empty((worlds, 1 + VERSIONS, MOVES))
    for world in policies:
        world[:] = optimal(rng)
        for version in world[1:]:
            if rng.random() < changed:
                version[:] = optimal(rng)
    return (1 - noise) * policies + noise / MOVES


def truth(policies: Any) -> tuple[float, float]:
    """Return the mean change and rho of a population."""
    found = np.array([[exact(world[0], version)[:2] for version in world[1:]] for world in policies]).reshape(-1, 2)
    change, predictable = found.mean(axis=0)
    return float(change), float(change / predictable) if predictable > 1e-9 else np.nan


def drawn(rng: np.random.Generator, policies: Any, worlds: int, answers: int = 2) -> list[Asked]:
    """Return a study of some worlds of a population, drawn with replacement."""
    asked = []
    for number, world in enumerate(policies[rng.integers(len(policies), size=worlds)]):
        sides = [WorldTurns(counts=counts.astype(float)) for counts in rng.multinomial(answers, world)]
        asked.append(Asked(cluster=str(number), tags={}, side=sides[0], changed={"goal": sides[1:]}))
    return asked
