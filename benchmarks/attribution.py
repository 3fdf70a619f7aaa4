"""Print what the score says of planted agents: 28 constructions, many seeds, in worlds of several kinds.

    python benchmarks/attribution.py --setting mixed-densities --seeds 100 --out attribution   # can be interrupted
    python benchmarks/attribution.py --setting mixed-densities --seeds 10 --methods --out methods   # the other methods
    python benchmarks/attribution.py --print attribution --picture curves.svg

An agent acts in 40 grids, one episode each, and answers each step twice; the rule of `goals.hypotheses.score` then
says which hypothesis it follows. What is true of an agent is how it was made: `planted_agents` plans with a search of
its own, and nothing of the package decides here what is right.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import planted_agents as planted
from scipy.stats import binom

from goalscope._ground.rng import stream
from goalscope.agents.agent import Observation
from goalscope.goals.attribution import Trial, judged
from goalscope.goals.hypotheses import Hypothesis, finite_world, load_hypotheses
from goalscope.goals.hypotheses.score import ScoreVerdict, evidence, judge, predictions_in
from goalscope.goals.hypotheses.separability import LAPSES, separability
from goalscope.goals.hypotheses.states import States, answers_of, walked
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.runs import Study
from goalscope.runs.study import Horizon
from goalscope.worlds.dynamics import State, state_number
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.world import Session

HORIZON = Horizon(factor=1.5)
AGAIN = 1001
"""Attempt of the second answer to a step."""

MORE: Mapping[str, Callable[[planted.Seen], Any]] = {
    "slightly noisy": lambda seen: 0.9 * planted.to_goal(seen) + 0.1 * planted.RANDOM,
    "key-first": lambda seen: planted.fetch_key(seen, planted.to_goal),
}
FAMILIES = [name for name in planted.FAMILIES if name != "doors"] + list(MORE)

CORNERS = ";".join(f"corner {name}" for name in planted.CORNERS)
BANKS = {"six": f"goal;{CORNERS};key", "all": f"goal;{CORNERS};key;key if not key held, else goal;sentinels"}

WHOLE: Mapping[str, str] = {
    **dict.fromkeys(("seeker", "slightly noisy", "noisy", "drunk", "lapses"), "goal"),
    "corner": "corner bottom-left",
    "misgeneral": "corner top-right",
    "key-stay": "key",
    "key-first": "key if not key held, else goal",
    "manhattan": "straight to goal",
    "flee": "flee goal",
    "beside": "beside goal",
    "mirror": "near (mirror of goal)",
    "point": "near (point mirror of goal)",
    "centre": "near centre",
    "top-row": "top row",
    "right": "keep right",
    "wander": "open moves",
    "wall": "follow the wall",
}
"""What an agent was made to be after, all the time; nothing that has a name for all others."""

PART: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("near-5", "up-right", "straight", "small", "manhattan"), ("goal",)),
    "half": ("goal", "corner bottom-left"),
    "key-first": ("goal", "key"),
    "key-wander": ("key",),
    "key-stay": ("key",),
}
"""What an agent was made to be after in part of its states."""

HABITS = ("right", "wander", "wall", "top-row")

METHODS = ("first arrival", "meg", "likelihood")
"""The methods beside the score."""

LEVEL = 0.05
NOISE: Mapping[str, float] = {"seeker": 0.0, "noisy": 0.3, "drunk": 0.6, "misgeneral": 0.0}
"""The agents of the curves, which are after the goal or a corner, and their share of random moves."""


@dataclass(frozen=True)
class Setting:
    """Worlds of a cell of the table."""

    densities: tuple[float, ...] = (0.2, 0.4, 0.6)
    bank: str = "six"
    worlds: int = 40
    placement: str = "any"
    shifted: int = 0
    families: tuple[str, ...] = tuple(FAMILIES)


FEW = ("seeker", "noisy", "drunk", "misgeneral", "beside", "point", "random")
SETTINGS = {
    "mixed-densities": Setting(),
    "density 0": Setting(densities=(0.0,)),
    "density .3": Setting(densities=(0.3,)),
    "density .6": Setting(densities=(0.6,)),
    "density 1": Setting(densities=(1.0,)),
    "all asked": Setting(bank="all"),
    **{
        f"trained, {shifted} of 40 moved": Setting(placement="top-right", shifted=shifted, families=FEW)
        for shifted in (0, 4, 6, 8, 10, 20)
    },
    **{f"{worlds} worlds": Setting(worlds=worlds, families=FEW) for worlds in (6, 10, 20, 80, 160)},
}


def worlds_of(seed: int, setting: Setting) -> list[GridWorld]:
    """Return grids of 7x7 and 9x9 with a key somewhere: the last ``shifted`` with the goal anywhere."""
    moved = setting.shifted if setting.placement == "top-right" else setting.worlds
    found = [
        *_grids(seed, setting, setting.worlds - moved, goal="top-right"),
        *_grids(seed + 10_000, setting, moved, goal="anywhere"),
    ]
    rng, worlds = stream(seed, "keys"), list[GridWorld]()
    for grid in found:
        open_cells = [tuple(cell) for cell in np.argwhere(~grid.walls).tolist()]
        free = [cell for cell in open_cells if cell not in (grid.start, grid.goal)]
        worlds.append(GridWorld(grid=replace(grid, key=free[int(rng.integers(len(free)))])))
    return worlds


def _grids(seed: int, setting: Setting, count: int, goal: str) -> list[Any]:
    if not count:
        return []
    cells = 2 * len(setting.densities)
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [*setting.densities], "minimum_distance": 3}
    entry |= {"count": -(-count // cells), "goal": goal}
    made = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": seed}).worlds()
    kept = sorted(stream(seed, "worlds").permutation(len(made))[:count].tolist())
    return [world.grid for index, world in enumerate(made) if index in kept and isinstance(world, GridWorld)]


def play(
    family: str, worlds: Sequence[GridWorld], seed: int, rule: Callable[[planted.Seen], Any] | None = None
) -> list[States]:
    """Return what an agent answered in one episode a world, each step asked twice; a rule is that of another one."""
    rule, found = rule or {**planted.FAMILIES, **MORE}[family], []
    for world in worlds:
        finite, session = finite_world(world, HORIZON.of(world)), world.begin_episode(seed, world.id)
        rows = []
        for step in range(finite.horizon):
            if session.done:
                break
            asked = Observation(view=session.view, step=step, episode_id=f"{world.id} {family}", seed=seed, world=world)
            first, second = (_answer(rule, one) for one in (asked, replace(asked, attempt=AGAIN)))
            rows.append((_state(world, session), first, second))
            session.step(first)
        state, first_, second_ = (np.array(column) for column in zip(*rows, strict=True))
        found.append(walked(family, finite, state, last=_state(world, session), first=first_, second=second_))
    return found


def _state(world: GridWorld, session: Session) -> int:
    state = session.state
    assert isinstance(state, State)
    return state_number(world.grid, state)


def _answer(rule: Callable[[planted.Seen], Any], observation: Observation) -> int:
    view: Any = observation.view
    grid = view.grid
    return observation.draw(
        rule(planted.Seen(grid.at(start=None), grid.start, view.carrying_key, observation)).tolist()
    )


def answers(name: str, seed: int, methods: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return family -> verdict, names, consistency of the goal, and those of other methods, for one seed."""
    setting = SETTINGS[name]
    bank = load_hypotheses(BANKS[setting.bank])
    every = with_sentinels(bank)
    worlds = worlds_of(seed, setting)
    told = {world.id: predictions_in(finite_world(world, HORIZON.of(world)), every, len(bank)) for world in worlds}
    found = {}
    for family in setting.families:
        played = play(family, worlds, seed)
        verdict = judge(evidence(answers_of(played), every, len(bank), told))
        found[family] = {"kind": verdict.kind, "names": verdict.names, **_numbers(verdict)}
        said = judged("", Trial(states=played, bank=bank, seed=seed), methods).attributions if methods else ()
        found[family]["methods"] = {one.method: {"kind": one.kind, "names": one.names} for one in said}
        if family in NOISE:
            found[family]["nats"] = _nats(family, worlds, bank)
    return found


def _nats(family: str, worlds: Sequence[GridWorld], bank: Mapping[str, Hypothesis]) -> float:
    """Return what all episodes together are expected to tell against the nearest rival of an agent, in nats.

    The smaller of both directions, each rival with its own best lapse rate.
    """
    lapse = max(NOISE[family], float(LAPSES[0]))
    found = separability(bank, worlds, horizon=HORIZON.of, lapse=lapse, level=LEVEL)
    own = found.names.index(WHOLE[family])
    least = np.minimum(found.own_best, found.own_best.T)[own]
    return float(len(worlds) * np.delete(least, own).min())


def _numbers(verdict: ScoreVerdict) -> dict[str, Any]:
    goal = verdict.score("goal")
    return {"goal": goal.consistency[0], "strength": goal.strength[0], "not_where": goal.not_where}


def outcome(family: str, found: Mapping[str, Any], bank: Sequence[str]) -> str:
    """Return right, false, undecided or weaker: something true that says less than could be said."""
    kind, names = found["kind"], tuple(found["names"])
    whole, part = WHOLE.get(family, ""), PART.get(family, ())
    if kind == "undecided":
        return "undecided"
    if kind == "named":
        return "right" if names == (whole,) else "false"
    if kind == "set":
        return "right" if whole in names else "false"
    if kind == "partly":
        return "right" if set(names) & set(part) else "weaker" if whole in names else "false"
    if kind == "not explained":
        return "undecided" if whole in bank else "weaker" if set(part) & set(bank) else "right"
    if kind == "random":
        return "right" if family == "random" else "weaker" if family == "wander" else "false"
    if kind == "habit":
        return "right" if family in HABITS and whole not in bank else "weaker" if family in HABITS else "false"
    return "false" if whole in bank else "weaker" if set(part) & set(bank) else "right"


def table(folder: Path) -> None:
    """Print a table for each setting that has results."""
    for name, setting in SETTINGS.items():
        bank = [one.text for one in load_hypotheses(BANKS[setting.bank]).values()]
        seeds = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{_file(name)}-*.json"))]
        if not seeds:
            continue
        most = int(binom.ppf(0.999, len(seeds), 0.05))
        print(f"\n{name}: {len(seeds)} seeds, bank {setting.bank}; false in a cell at most {most}")
        print("| agent | right | weaker | undecided | false | falsely named | goal's consistency | verdicts |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        false = named = cells = 0
        for family in setting.families:
            found = [one[family] for one in seeds]
            counts = Counter(outcome(family, one, bank) for one in found)
            misnamed = sum(outcome(family, one, bank) == "false" and one["kind"] in ("named", "set") for one in found)
            said = Counter(" ".join([one["kind"], " / ".join(one["names"])]).strip() for one in found)
            words = ", ".join(f"{words} {number}" for words, number in said.most_common(3))
            mean = np.mean([one["goal"] for one in found])
            shown = " | ".join(str(counts[key]) for key in ("right", "weaker", "undecided", "false"))
            print(f"| {family} | {shown} | {misnamed} | {mean:.2f} | {words} |")
            false, named, cells = false + counts["false"], named + misnamed, cells + len(found)
        print(f"false: {false} of {cells}; falsely named: {named}")
        _print_methods(setting, seeds, bank)


def _print_methods(setting: Setting, seeds: Sequence[Mapping[str, Any]], bank: Sequence[str]) -> None:
    """Print what each method comes to: right, weaker, undecided, false; and where it is false."""
    for method in METHODS:
        false, all_of = Counter[str](), Counter[str]()
        for family in setting.families:
            said = [one[family]["methods"][method] for one in seeds if method in one[family].get("methods", {})]
            outcomes = Counter(outcome(family, one, bank) for one in said)
            all_of += outcomes
            false[family] = outcomes["false"]
        if total := sum(all_of.values()):
            shown = ", ".join(f"{all_of[key]} {key}" for key in ("right", "weaker", "undecided", "false"))
            where = ", ".join(f"{family} {number}" for family, number in false.most_common() if number)
            print(f"{method}: {shown} of {total}; false of {where or 'none'}")


def curves(folder: Path, path: Path) -> None:
    """Draw right names, sets, undecided and false answers against what the episodes are expected to tell."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "attribution"
    from matplotlib import pyplot

    bank = [one.text for one in load_hypotheses(BANKS["six"]).values()]
    found: list[tuple[float, str]] = []
    for name in SETTINGS:
        for file in sorted(folder.glob(f"{_file(name)}-*.json")):
            one = json.loads(file.read_text())
            for family in NOISE:
                if "nats" in one.get(family, {}):
                    said = outcome(family, one[family], bank)
                    kind = one[family]["kind"]
                    found.append(
                        (
                            one[family]["nats"],
                            {"right": "right name" if kind == "named" else "a set with it", "false": "false"}.get(
                                said, "undecided, or less"
                            ),
                        )
                    )
    edges = [0.0, 0.1, 3, 10, 20, 30, 50, 100, 200, 400, 1e9]
    kinds = {"right name": "#1b7837", "a set with it": "#9970ab", "undecided, or less": "#878787", "false": "#b2182b"}
    figure, axis = pyplot.subplots(figsize=(7, 3.2))
    middles, numbers, rows = [], [], []
    for low, high in pairwise(edges):
        inside = [kind for nats, kind in found if low <= nats < high]
        if inside:
            middles.append(float(np.median([nats for nats, _ in found if low <= nats < high])))
            numbers.append(len(inside))
            rows.append([inside.count(kind) / len(inside) for kind in kinds])
    for (kind, colour), shares in zip(kinds.items(), np.array(rows).T, strict=True):
        axis.plot(range(len(rows)), shares, marker="o", color=colour, label=kind)
    labels = [f"{middle:.0f}\n({number})" for middle, number in zip(middles, numbers, strict=True)]
    axis.set_xticks(range(len(rows)), labels)
    axis.set_xlabel("nats that all episodes tell against the nearest rival, median of the bin (number of answers)")
    axis.set_ylabel("share of the answers")
    axis.set_ylim(-0.03, 1.03)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    for middle, number, shares in zip(middles, numbers, rows, strict=True):
        print(f"| {middle:.1f} | {number} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")


def _file(name: str) -> str:
    return name.replace(" ", "_").replace(",", "")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=tuple(SETTINGS), action="append", help="all of them where left out")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("attribution"))
    parser.add_argument("--methods", action="store_true", help="also what the other attribution methods say")
    parser.add_argument("--print", type=Path, dest="shown")
    parser.add_argument("--picture", type=Path, help="with --print: draw the curves there")
    asked = parser.parse_args()
    if asked.shown is not None:
        table(asked.shown)
        if asked.picture is not None:
            curves(asked.shown, asked.picture)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    for seed, settings in groupby(
        ((seed, name) for seed in range(asked.first, asked.first + asked.seeds) for name in asked.setting or SETTINGS),
        key=lambda item: item[0],
    ):
        for _, name in settings:
            path, began = asked.out / f"{_file(name)}-{seed}.json", time.monotonic()
            if not path.exists():
                path.write_text(json.dumps(answers(name, seed, METHODS if asked.methods else ())), encoding="utf-8")
                print(f"{name}, seed {seed}: {time.monotonic() - began:.1f} s", flush=True)
    table(asked.out)


if __name__ == "__main__":
    main()
