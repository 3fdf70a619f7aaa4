"""Print what the environments of others are, solved exactly: states, shortest lengths, ties, and MEG of known policies.

    python benchmarks/environments.py

Each environment is enumerated by its own simulator or table, solved, and played back: optimal, random and mixed
policies act in a fresh one, and everything must be as it was enumerated (a mismatch ends the script). MEG is exact,
towards the goal: of the policy that is uniform over optimal actions (which must be the bound), of one that acts at
random with chance 0.3, and of the uniformly random one (which must be 0). The horizon n is `int(1.5 shortest) + 1`, for
toy text as printed. Where a package is missing its part is left out, with a sentence.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from goalscope._ground.extras import how_to_install
from goalscope.environments import believe
from goalscope.meg import RationalityCurve, meg_known
from goalscope.worlds.environments.environment import build

EPSILON = 0.3
LEVELS = (
    *("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-6x6-v0", "MiniGrid-DoorKey-8x8-v0", "MiniGrid-LavaCrossingS9N1-v0"),
    *("MiniGrid-FourRooms-v0", "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-MultiRoom-N4-S5-v0", "MiniGrid-Unlock-v0"),
    *("MiniGrid-UnlockPickup-v0", "BabyAI-GoToObj-v0"),
)
TOY: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("Taxi-v4", {}, 40),
    ("Taxi-v4", {"is_rainy": True}, 60),
    ("FrozenLake-v1", {"is_slippery": False}, 20),
    ("FrozenLake-v1", {}, 100),
    ("FrozenLake-v1", {"map_name": "8x8"}, 200),
    ("CliffWalking-v1", {}, 40),
)
GAMES = (
    {"seed": 3, "rooms": 2, "objects": 3, "quest_length": 2},
    {"seed": 1, "rooms": 3, "objects": 4, "quest_length": 3},
    {"seed": 2, "rooms": 4, "objects": 5, "quest_length": 4},
)


def entries() -> Iterator[tuple[str, str, dict[str, Any], int | None]]:
    """Yield name, source, parameters and horizon of each environment; say which packages are missing."""
    for package in ("gymnasium", "minigrid", "textworld"):
        if find_spec(package) is None:
            print(f"left out: {package} is not installed ({how_to_install(package)})")
        elif package == "gymnasium":
            for name, options, horizon in TOY:
                words = " ".join(f"{key}={one}" for key, one in options.items())
                yield f"{name} {words}".strip(), package, {"name": name, "options": options}, horizon
        elif package == "minigrid":
            for level in LEVELS:
                yield level, package, {"level": level, "seed": 1}, None
        else:
            for shape in GAMES:
                words = ", ".join(str(one) for one in shape.values())
                yield f"TextWorld ({words})", package, dict(shape), None


def line(name: str, source: str, parameters: dict[str, Any], horizon: int | None) -> str:
    """Return the line of one environment.

    Raises:
        AssertionError: the optimal policy is not at the bound, or the random one not at 0.
    """
    begin = time.perf_counter()
    found = believe(lambda: build(source, parameters))
    seconds = time.perf_counter() - begin
    solved, table, played = found.solved, found.table, found.played
    decisions = horizon or int(1.5 * solved.length) + 1
    curve = RationalityCurve(table.mdp(horizon=decisions))
    optimal, noisy = (meg_known(curve, solved.policy(decisions, epsilon)).value for epsilon in (0.0, EPSILON))
    random = meg_known(curve, table.uniform).value
    assert abs(optimal - curve.bound) < 1e-6 and random < 1e-6, (name, optimal, curve.bound, random)
    ties = "-"
    if solved.optimal is not None:
        sizes = solved.optimal.sum(axis=1)
        ties = f"{sizes[sizes > 0].mean():.2f}"
    cells = (
        *(
            name,
            len(table.states),
            "no" if table.deterministic else "yes",
            solved.length if solved.length >= 0 else "-",
        ),
        *(ties, decisions, f"{curve.bound:.2f}", f"{optimal:.2f}", f"{noisy:.2f}", f"{random:.2f}"),
        *(f"{played.arrived} / {played.episodes}", f"{seconds:.1f}"),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.filterwarnings("ignore", message=".*out of date.*")  # a later version of a level draws other layouts
    headings = (
        *("environment", "states", "chance", "shortest", "ties a state", "n", "bound", "MEG optimal"),
        *(f"epsilon {EPSILON:g}", "random", "arrived in play-back", "seconds"),
    )
    print("| " + " | ".join(headings) + " |\n|" + " --- |" * len(headings))
    for entry in entries():
        print(line(*entry), flush=True)


if __name__ == "__main__":
    main()
