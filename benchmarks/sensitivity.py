"""Print how findings on planted agents change with each threshold of the decision, one at a time.

    python benchmarks/sensitivity.py --seeds 4 --first 300

Agents of 28 constructions act in 40 grids each, as in ``attribution.py``; what is right about each of them is how it
was made. With second answers the score decides, without them MEG. The sums over the steps, and MEG, are computed once
for each agent; the decision is then made again with one threshold at two other values. Right is the name, a set with
it, or what else is true; false is what is not so; the rest is weaker or undecided.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any
from unittest.mock import patch

from attribution import BANKS, HORIZON, SETTINGS, outcome, play, worlds_of
from goalscope.goals import decision, directedness
from goalscope.goals.attribution.definition import kind_of
from goalscope.goals.hypotheses import finite_world, load_hypotheses, score
from goalscope.goals.hypotheses.score import evidence, predictions_in
from goalscope.goals.hypotheses.states import answers_of
from goalscope.goals.hypotheses.written import with_sentinels

SCORE: Mapping[str, tuple[float, float, float]] = {
    "STRONG": (0.1, 0.2, 0.3),
    "EXPLAINED": (0.6, 0.7, 0.8),
    "HALF": (0.4, 0.5, 0.6),
    "PARTLY": (0.2, 0.3, 0.4),
    "MARGIN": (0.15, 0.25, 0.35),
    "APART": (0.01, 0.02, 0.04),
    "NOISE": (0.05, 0.1, 0.15),
    "RANDOM": (0.01, 0.02, 0.04),
    "REGION": (0.01, 0.05, 0.1),
}
"""Threshold of `goalscope.goals.hypotheses.score` -> a lower value, its own, a higher one."""

MEG: Mapping[str, tuple[float, float, float]] = {
    "EXPLAINS": (0.05, 0.1, 0.15),
    "MARGIN": (0.15, 0.25, 0.35),
    "STRONG_SHARE": (0.4, 0.5, 0.6),
}
"""Threshold of `goalscope.goals.decision` -> the same."""

OUTCOMES = ("right", "weaker", "undecided", "false")


def cases(seeds: Sequence[int]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield for each agent and seed its construction, its states, its sums of the score, and its MEG."""
    setting = SETTINGS["mixed-densities"]
    bank = load_hypotheses(BANKS[setting.bank])
    every = with_sentinels(bank)
    for seed in seeds:
        worlds = worlds_of(seed, setting)
        told = {world.id: predictions_in(finite_world(world, HORIZON.of(world)), every, len(bank)) for world in worlds}
        for family in setting.families:
            states = play(family, worlds, seed)
            sums = evidence(answers_of(states), every, len(bank), told)
            measured = directedness(states, bank, confidence=0.95, pairs="all", state_blind=True)
            yield family, states, sums, measured


def decided(module: ModuleType, name: str, value: float, case: Any) -> dict[str, Any]:
    """Return kind and names of a verdict with one threshold at another value."""
    _, states, sums, measured = case
    bank = load_hypotheses(BANKS["six"])
    with patch.object(module, name, value):
        if module is score:
            found = score.judge(sums)
            return {"kind": found.kind, "names": found.names}
        one = decision.by_single_answers(states, bank, measured)
        # Of a part the names are those of a part; "weakly or partly" leaves open which of both it is.
        kind = "partly" if one.reason == "weakly or partly" else kind_of(one)
        return {"kind": kind, "names": one.names}


def outcome_of(family: str, said: Mapping[str, Any], bank: Sequence[str]) -> str:
    """Return what a verdict is about an agent; the name of a whole that is said weakly is right, too."""
    return outcome(family, {**said, "names": list(said["names"])}, bank)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each threshold and value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=300)
    chosen = parser.parse_args(arguments)
    bank = [one.text for one in load_hypotheses(BANKS["six"]).values()]
    counts: dict[tuple[str, str, float], Counter[str]] = {}
    number = 0
    for case in cases(range(chosen.first, chosen.first + chosen.seeds)):
        number += 1
        for rule, module, thresholds in (("score", score, SCORE), ("MEG", decision, MEG)):
            for name, values in thresholds.items():
                for value in values:
                    said = decided(module, name, value, case)
                    counts.setdefault((rule, name, value), Counter())[outcome_of(case[0], said, bank)] += 1
    print(f"{number} agents and seeds")
    print("| rule | threshold | value | " + " | ".join(OUTCOMES) + " |")
    print("| --- | --- | --- |" + " --- |" * len(OUTCOMES))
    for (rule, name, value), found in counts.items():
        own = {"score": SCORE, "MEG": MEG}[rule][name][1]
        shown = f"**{value:g}**" if value == own else f"{value:g}"
        print(f"| {rule} | {name} | {shown} | " + " | ".join(str(found[each]) for each in OUTCOMES) + " |")


if __name__ == "__main__":
    main()
