"""Print how often the sentences on probes say "more" or "less" where there is nothing to be said.

Run ``python benchmarks/nulls.py`` (about an hour on one core), or ``--nulls 20`` for a quick look; with ``--out FILE``
each null is kept as soon as it is done, and a second run goes on where the first one stopped. Every null draws a model
and random networks of three kinds, five seeds each, from one law:

* noise: all numbers are independent;
* grid-constant noise: those of a grid are the same at all its steps;
* permuted grids: the activations encode the map of another grid;
* twins: the activations are random features of the true map, the model is one more network of that law.

They go through the probes and the sections of the report as the activations of a run do; what is counted is what the
sentences would say.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr

from goalscope._ground.rng import stream
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.probing import (
    AGENT,
    GOAL,
    WALL,
    Cells,
    Decisions,
    FitSettings,
    Plans,
    PlanSettings,
    ProbeInputs,
    from_arrays,
    probe_cells,
    probe_distances,
    probe_plans,
    split_by_grid,
)
from goalscope.inside.probing.beliefs import compare_beliefs
from goalscope.report.blocks import Declared, RivalsSentence, Sentence
from goalscope.report.definitions import READABLE, verdict
from goalscope.report.sections import cognitive_map
from goalscope.report.sections.decoded import beliefs_section, distance_section, plans_section
from goalscope.stats.rows import Rows
from goalscope.worlds import ACTIONS, Grid
from goalscope.worlds.planning.shortest import distances_to

KINDS = ("noise", "grid-constant noise", "permuted grids", "twins")
SEEDS, GRIDS, STEPS, SIDE, WIDTH = 5, 80, 2, 5, 24
SECTIONS = {
    "cognitive map": cognitive_map.declared,
    "beliefs": beliefs_section,
    "plans": plans_section,
    "distance": distance_section,
}
EQUAL = (*RANDOM_WEIGHTS, "shuffled")
"""Rivals that are of the same law as the probe: both directions are wrong. Of floors only "above" is."""
NOT_SAID = ("percell", "position alone", "number of walls", "prompt's cells")
"""Rivals of which nothing is said alone: one head against another, and single floors, of which all must be exceeded."""
LEVEL = 0.05
Line = tuple[str, str, int, int, float, float, float, str, int, int]
FITS = FitSettings(epochs=8, rate=1e-2, hidden=16)
PLANS = PlanSettings(epochs=3, rate=1e-2, width=8, feedforward=8, heads=2)


@dataclass(frozen=True)
class Said:
    """What a rule says of one difference.

    Attributes:
        rule: section, probe and measure.
        rival: what is compared with, "readable" or "by training" for the words that several rivals decide.
        outcome: "above", "below", "none" or "unknown", in the direction of a better score.
    """

    rule: str
    rival: str
    outcome: str


def rooms(rng: np.random.Generator) -> tuple[list[Grid], list[tuple[int, int]]]:
    """Return a grid for each step, with a third of its cells walls, and the agent's cell there."""
    worlds: list[Grid] = []
    cells: list[tuple[int, int]] = []
    while len(worlds) < GRIDS * STEPS:
        walls = rng.random((SIDE, SIDE)) < 1 / 3
        free = [(int(row), int(col)) for row, col in rng.permutation(np.argwhere(~walls))]
        if len(free) < STEPS + 1:
            continue
        reach = distances_to(walls, free[-1:])
        starts = [cell for cell in free[:-1] if reach[cell] > 0][:STEPS]
        if len(starts) == STEPS:
            worlds += [Grid(walls=walls, start=starts[0], goal=free[-1])] * STEPS
            cells += starts
    return worlds, cells


def drawn(kind: str, cells: Cells, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the activations of one network under a null, ``[N, WIDTH]``."""
    count = len(cells)
    if kind == "noise":
        return rng.standard_normal((count, WIDTH))
    if kind == "grid-constant noise":
        return np.repeat(rng.standard_normal((GRIDS, WIDTH)), STEPS, axis=0)
    shown = np.eye(5)[cells.labels].reshape(count, -1)
    if kind == "permuted grids":
        order = np.roll(rng.permutation(GRIDS), 1)
        shown = shown.reshape(GRIDS, STEPS, -1)[order].reshape(count, -1)
    hidden = np.tanh(shown @ rng.standard_normal((shown.shape[1], 64)) / 4)
    return np.asarray(hidden @ rng.standard_normal((64, WIDTH)) + 0.5 * rng.standard_normal((count, WIDTH)))


def inputs(kind: str, seed: int) -> ProbeInputs:
    """Return a model and its random networks under a null."""
    rng = stream(seed, "nulls", kind)
    worlds, places = rooms(rng)
    names = [f"grid {at // STEPS}" for at in range(len(worlds))]
    shown = from_arrays(rng.standard_normal((len(worlds), 1)), worlds, places, grids=names, episodes=names)
    networks = {(random, at): drawn(kind, shown.cells, rng) for random in RANDOM_WEIGHTS for at in range(SEEDS)}
    data = from_arrays(
        drawn(kind, shown.cells, rng), worlds, places, random=networks, grids=names, episodes=names, layer=1
    )
    return replace(data, split=split_by_grid(data.cells, test=0.5, seed=seed))


def moves(cells: Cells) -> tuple[Plans, Decisions, npt.NDArray[np.float64]]:
    """Return shortest plans, what they begin with, and their lengths."""
    steps: dict[str, Any] = {name: getattr(cells, name) for name in ("episode_id", "step", "cluster")}
    count = len(cells)
    tokens, length = np.full((count, 5), len(ACTIONS), dtype=np.int8), np.zeros(count)
    optimal = np.zeros((count, len(ACTIONS)), dtype=bool)
    place, goal = np.zeros((2, count, 2), dtype=np.int64)
    for row, labels in enumerate(cells.labels.reshape(-1, SIDE, SIDE)):
        place[row], goal[row] = (np.argwhere(labels == label)[0] for label in (AGENT, GOAL))
        away = distances_to(labels == WALL, [tuple(goal[row])])
        at = tuple(int(one) for one in place[row])
        length[row] = away[at]
        for number in range(min(int(length[row]), tokens.shape[1])):
            there = [(at[0] + action.delta[0], at[1] + action.delta[1]) for action in ACTIONS]
            closer = [0 <= one[0] < SIDE and 0 <= one[1] < SIDE and 0 <= away[one] < away[at] for one in there]
            if number == 0:
                optimal[row] = closer
            tokens[row, number] = closer.index(True)
            at = there[closer.index(True)]
    same: dict[str, Any] = {"shape": cells.shape, "density": cells.density}
    decisions = Decisions(
        action=tokens[:, 0].astype(np.int64),
        optimal=optimal,
        place=place,
        goal=goal,
        agent=np.full(count, "a", dtype=object),
        **same,
        **steps,
    )
    return Plans(tokens=tokens, **steps), decisions, length


def rows_of(kind: str, seed: int, sections: Sequence[str]) -> dict[str, Rows]:
    """Return the rows of some readings of one null."""
    data = inputs(kind, seed)
    controls = ("none", "shuffled", *RANDOM_WEIGHTS)
    fits, planned = replace(FITS, seed=seed), replace(PLANS, seed=seed)
    executed, decisions, length = moves(data.cells)
    rows: dict[str, Rows] = {}
    if "cognitive map" in sections:
        suite = [(head, control) for head in ("percell", "mlp") for control in (*controls, "wall-count", "input")]
        found = probe_cells(data, suite=[("position", "none"), *suite], settings=fits)
        maps = [("mlp", control) for control in ("none", *RANDOM_WEIGHTS)]
        rows["cognitive map"] = found.rows
        rows["beliefs"] = compare_beliefs(data, decisions, found, suite=[*maps, ("position", "none")])[0]
    if "plans" in sections:
        rows["plans"] = probe_plans(data, executed, layers=(1,), controls=controls, settings=planned).rows
    if "distance" in sections:
        rows["distance"] = probe_distances(data, length, controls=controls, settings=fits).rows
    return rows


def said_of(one: Declared, section: str) -> Iterator[Said]:
    """Yield what the sentences of a section say, and the interval of every difference behind them."""
    for sentence in one.sentences:
        if isinstance(sentence, RivalsSentence):
            for part, rivals in sentence.differences:
                word = "readable" if sentence.word is READABLE else "by training"
                rule = f"{section}: {sentence.title.removesuffix(': readable')}: {part}"
                yield Said(rule, word, verdict(rivals, higher=sentence.higher))
                for name, estimate in rivals.items():
                    yield Said(rule, name, verdict({name: estimate}, higher=sentence.higher))
        elif isinstance(sentence, Sentence):
            for part, key in sentence.parts:
                rival = str(key.get("less", "shuffled beliefs"))
                better = not section.startswith("distance")
                estimate = sentence.estimates.get(key)
                yield Said(f"{section}: {sentence.title}: {part}", rival, verdict({"": estimate}, higher=better))


def one_null(kind: str, seed: int, sections: Sequence[str] = tuple(SECTIONS)) -> list[Said]:
    """Return all that is said of one null in some sections; those on beliefs come with the cognitive map."""
    rows = rows_of(kind, seed, sections)
    return [said for name in rows for one in SECTIONS[name](rows[name]) for said in said_of(one, name)]


def wrong(kind: str, said: Said) -> bool | None:
    """Return whether something was said that should not have been; None where it may be true."""
    if said.rival in (*EQUAL[:-1], "by training"):
        return said.outcome in ("above", "below")
    if said.rival in NOT_SAID or kind == "twins":  # twins do hold the map
        return None
    return said.outcome in ("above", "below") if said.rival in EQUAL else said.outcome == "above"


def level(said: Said) -> float:
    """Return the nominal chance of a wrong word: half of it where one direction alone is wrong."""
    return LEVEL if said.rival in (*EQUAL, "by training") else LEVEL / 2


def limit(count: int, chance: float) -> int:
    """Return the 99.9 % point of the binomial law."""
    return next(number for number in range(count + 1) if bdtr(number, count, chance) >= 0.999)


def table(
    kept: dict[tuple[str, int], list[Said]],
) -> list[tuple[str, str, int, int, float, float, float, str, int, int]]:
    """Return for each kind of null and rival: nulls, decisions, share wrong, nominal, two clustered standard errors,
    the rule that is wrong most often, how often, and the limit for it.
    """
    found = []
    for kind in KINDS:
        nulls = {seed: said for (one, seed), said in kept.items() if one == kind}
        by_rival: dict[str, dict[int, list[tuple[str, bool, float]]]] = {}
        for seed, listed in nulls.items():
            for said in listed:
                judged = wrong(kind, said)
                if judged is not None and said.outcome != "unknown":
                    group = by_rival.setdefault(said.rival, {}).setdefault(seed, [])
                    group.append((said.rule, judged, level(said)))
        for rival, seeds in by_rival.items():
            counts = Counter(rule for listed in seeds.values() for rule, judged, _ in listed if judged)
            sums = np.array([(sum(judged for _, judged, _ in listed), len(listed)) for listed in seeds.values()])
            share, nominal = float(sums[:, 0].sum() / sums[:, 1].sum()), next(iter(seeds.values()))[0][2]
            error = np.sqrt(((sums[:, 0] - share * sums[:, 1]) ** 2).sum()) / sums[:, 1].sum()
            rule, most = counts.most_common(1)[0] if counts else ("-", 0)
            found.append(
                (kind, rival, len(seeds), int(sums[:, 1].sum()), share, nominal, 2 * float(error), rule, most,
                 limit(len(seeds), nominal))
            )  # fmt: skip
    return found


def read(path: Path | None) -> dict[tuple[str, int], list[Said]]:
    """Return the nulls that are kept in a file; a line that was cut off is left out."""
    kept = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else ():
        try:
            kind, seed, listed = json.loads(line)
        except ValueError:
            continue
        kept[kind, seed] = [Said(*one) for one in listed]
    return kept


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nulls", type=int, default=200, help="of each kind")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--out", type=Path, help="keep each null here, and go on with what is missing")
    given = parser.parse_args()
    kept = read(given.out)
    for seed in range(given.nulls):
        for kind in given.kinds:
            if (kind, seed) not in kept:
                kept[kind, seed] = one_null(kind, seed)
                if given.out is not None:
                    listed = [[one.rule, one.rival, one.outcome] for one in kept[kind, seed]]
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([kind, seed, listed]) + "\n")
    print("| null | compared with | nulls | decisions | wrong | nominal | 2 SE | most often wrong | count | limit |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind, rival, nulls, count, share, nominal, error, rule, most, most_allowed in table(kept):
        print(
            f"| {kind} | {rival} | {nulls} | {count} | {share:.3f} | {nominal:.3f} | {error:.3f} | {rule} | {most} "
            f"| {most_allowed} |"
        )


if __name__ == "__main__":
    main()
