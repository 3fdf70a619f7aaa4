"""Right names at the declared need: planted agents after hypotheses of every kind, at three shares of random moves.

    python benchmarks/needs.py --seeds 100 --out needs       # can be interrupted
    python benchmarks/needs.py --print needs

`goals.hypotheses.design` says from the tables how many worlds it takes to name what an agent follows. Here agents of
`planted_agents`, which plan with a search of their own, act in as many worlds, in half and in twice as many. What is
true of an agent is how it was made; a name is right, or it is false; a set that holds it says less.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import planted_agents as planted

from attribution import HORIZON, Setting, play, worlds_of
from goalscope._ground.rng import stream
from goalscope.goals.hypotheses import finite_world, load_hypotheses
from goalscope.goals.hypotheses.design import Need, needed
from goalscope.goals.hypotheses.score import evidence, judge, predictions_in
from goalscope.goals.hypotheses.states import answers_of
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.stats.intervals import exact_binomial
from goalscope.worlds.gridworld import GridWorld

AGENTS: Mapping[str, Callable[[planted.Seen], Any]] = {
    "goal": planted.to_goal,
    "corner bottom-left": planted.FAMILIES["corner"],
    "near centre": planted.FAMILIES["centre"],
    "key held": lambda seen: planted.fetch_key(seen, lambda _: planted.RANDOM),
    "follow the wall": planted.follow_wall,
    "flee goal": planted.flee,
    "goal if it lies up or right, else random": planted.FAMILIES["up-right"],
    "goal within 5 steps": planted.FAMILIES["near-5"],
}
"""What an agent is after -> how it acts: places by rule, an event, habits, a condition."""

BANK = load_hypotheses(";".join([*AGENTS, "corner top-left", "corner top-right", "corner bottom-right"]))
EVERY = with_sentinels(BANK)
DENSITIES: Mapping[str, tuple[float, ...]] = {"mixed": (0.2, 0.4, 0.6), "0": (0.0,), "0.6": (0.6,)}
SHARES = (0.5, 1.0, 2.0)
"""Numbers of worlds, as shares of the need."""
SAMPLE, SAMPLED = 60, 77
"""Worlds that the needs are computed from, and their seed."""
MOST = 200
"""Worlds up to which cells are played."""


def drawn(seed: int, density: str, count: int) -> list[GridWorld]:
    """Return worlds in random order, so that the first ones are a sample, too."""
    worlds = worlds_of(seed, Setting(densities=DENSITIES[density], worlds=count))
    return [worlds[index] for index in stream(seed, "order").permutation(len(worlds)).tolist()]


@cache
def needs(density: str, names: tuple[str, ...] = tuple(AGENTS)) -> dict[tuple[str, float], Need]:
    """Return (hypothesis, share of random moves) -> its need, from worlds that no agent of a cell acts in."""
    found = needed(BANK, drawn(SAMPLED, density, SAMPLE), horizon=HORIZON.of, of=names)
    return {(one.name, one.lapse): one for one in found}


def answers(
    seed: int, density: str, shares: Sequence[float] = SHARES, names: tuple[str, ...] = tuple(AGENTS)
) -> dict[str, str]:
    """Return "hypothesis|noise|share" -> right, set, undecided (or less) or false, for one seed."""
    cells = {
        (name, noise, share): round(share * one.worlds)
        for (name, noise), one in needs(density, names).items()
        for share in shares
        if isfinite(one.worlds) and share * one.worlds <= MOST
    }
    worlds = drawn(seed, density, max(cells.values()))
    told = {world.id: predictions_in(finite_world(world, HORIZON.of(world)), EVERY, len(BANK)) for world in worlds}
    found = {}
    for name, noise in dict.fromkeys((name, noise) for name, noise, _ in cells):
        counts = {share: count for (*of, share), count in cells.items() if of == [name, noise]}
        played = play(f"{name} {noise}", worlds[: max(counts.values())], seed, planted.noisy(noise, AGENTS[name]))
        for share, count in counts.items():
            said = judge(evidence(answers_of(played[:count]), EVERY, len(BANK), told))
            found[f"{name}|{noise}|{share}"] = outcome(name, said.kind, said.names)
    return found


def outcome(name: str, kind: str, names: Sequence[str]) -> str:
    """Return what a verdict is about an agent after a hypothesis; partly and none are less than could be said."""
    if kind in ("named", "set"):
        return ("right" if kind == "named" else "set") if name in names else "false"
    return "undecided"


def table(folder: Path) -> None:
    """Print the answers of all cells, and those of all together by share of the need."""
    for density in DENSITIES:
        seeds = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{density}-*.json"))]
        if not seeds:
            continue
        print(f"\ndensity {density}: {len(seeds)} seeds")
        print("| hypothesis | noise | need | hardest | worlds | right [95 %] | set | undecided | false |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        pooled: dict[float, Counter[str]] = {}
        for (name, noise), one in needs(density).items():
            for share in SHARES:
                counts = Counter(each[key] for each in seeds if (key := f"{name}|{noise}|{share}") in each)
                pooled.setdefault(share, Counter()).update(counts)
                if counts:
                    print(f"| {name} | {noise} | {one.worlds:.0f} | {one.hardest} | {share} | {_shown(counts)} |")
        for share, counts in pooled.items():
            if counts:
                print(f"| all | | | | {share} | {_shown(counts)} |")


def _shown(counts: Counter[str]) -> str:
    right, total = counts["right"], counts.total()
    low, high = exact_binomial(right, total)
    rest = " | ".join(str(counts[kind]) for kind in ("set", "undecided", "false"))
    return f"{right} of {total} [{low:.2f}, {high:.2f}] | {rest}"


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", choices=tuple(DENSITIES), action="append", help="all of them where left out")
    parser.add_argument("--share", type=float, action="append", help="of the need; .5, 1 and 2 where left out")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("needs"))
    parser.add_argument("--print", type=Path, dest="shown")
    asked = parser.parse_args()
    if asked.shown is not None:
        table(asked.shown)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.first, asked.first + asked.seeds):
        for density in asked.density or DENSITIES:
            path, began = asked.out / f"{density}-{seed}.json", time.process_time()
            if not path.exists():
                path.write_text(json.dumps(answers(seed, density, asked.share or SHARES)), encoding="utf-8")
                print(f"density {density}, seed {seed}: {time.process_time() - began:.1f} s", flush=True)
    table(asked.out)


if __name__ == "__main__":
    main()
