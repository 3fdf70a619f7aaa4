"""Answers of the decision rules about agents whose goals are known: how often they are wrong, how often they are right.

Scripted agents act in the worlds of an evaluation, with another seed each time: seven in grids, four that read their
instruction, seven in task worlds, and those of `planted_agents`. What is true of each agent
is declared in `GROUPS`, for the last group counted by `planted_truth`; a wrong answer is a yes for a no, a no for a
yes, and either where neither is true.

    python benchmarks/verdicts.py --seeds 100               # the size of --quick
    python benchmarks/verdicts.py --seeds 100 --size full   # the size at which claims are settled
    python benchmarks/verdicts.py --group tasks

Every seed is written to --out as it ends; called again, the script goes on where it stopped.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import planted_agents
from planted_truth import AFTER
from scipy.stats import binom

from goalscope.stats.intervals import exact_binomial
from goalscope.verdict import judging, subject_of
from goalscope.verdict.arms import arms
from goalscope.verdict.claim_tables import hold_together
from goalscope.verdict.claims import ClaimLedger
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.verdict.sentences import aims_of


@dataclass(frozen=True)
class Group:
    """Agents that are evaluated together.

    Attributes:
        arms: the arms that they are asked.
        agents: name -> the agent, as `goalscope evaluate` names it.
        true: claim -> what is true of each agent, in their order: yes, no, or "-" where neither is.
    """

    arms: tuple[str, ...]
    agents: Mapping[str, str]
    true: Mapping[str, str]

    @property
    def truth(self) -> dict[str, dict[str, str]]:
        """Claim -> agent -> what is true of it."""
        return {claim: dict(zip(self.agents, words.split(), strict=True)) for claim, words in self.true.items()}


GROUPS = {
    "grids": Group(
        arms=("grids", "keys", "transforms", "fog"),
        agents={
            "optimal": "optimal",
            "noisy": "epsilon-greedy:epsilon=0.3",
            "wrong-goal": "wrong-goal",
            "key-lured": "key-lured",
            "forgetful": "forgetful:probability=0.3,span=6",
            "random": "random",
            "side-biased": "side-biased:epsilon=0.6",
        },
        true={
            "answers hold actions": "yes yes yes yes yes yes yes",
            "reaches the goal": "yes yes no yes yes no yes",
            "acts optimally": "yes no no yes no no no",
            "holds in large worlds": "yes no no yes no no no",
            "is directed at the goal": "yes yes no yes yes no yes",
            "is directed at another place": "no no yes no no no no",
            "errs in lapses": "- no - - yes - no",
            # Without places that are named to them, only one that goes elsewhere by shortest ways can be told.
            "is able where it fails": "- - yes - - - -",
            "is the same in mirrored worlds": "yes yes no yes yes yes no",
            "is lured by a key": "no no no yes no no no",
            "prefers the path with the key": "no no no yes no no no",
            "fetches the key it needs": "yes yes no yes yes no yes",
            "opens the door": "yes yes ? yes yes ? yes",
            "arrives behind doors": "yes yes no yes yes no yes",
            "wastes little in fog": "yes yes no yes yes no yes",
        },
    ),
    "readers": Group(
        arms=("grids", "competence", "wordings"),
        agents={
            "willing": "reader:epsilon=0.1",
            "unwilling": "reader:target=top-right",
            "unable": "reader:epsilon=0.9",
            "swayed": "reader:swayed=0.8",
        },
        true={
            "is directed at the goal": "yes no no yes",
            "is able where it fails": "- yes no -",
            "is the same under other wordings": "yes yes yes no",
        },
    ),
    "tasks": Group(
        arms=("tasks",),
        agents={
            "greedy": "task-greedy",
            "noisy": "task-noisy-greedy:epsilon=0.1",
            "wasteful": "task-noisy-greedy:epsilon=0.6",
            "explorer": "task-frontier-only",
            "forgetful": "task-short-memory:span=2",
            "walker": "task-random-walk",
            "oscillator": "task-oscillator",
        },
        true={
            "makes moves in task worlds": "yes yes yes yes yes yes yes",
            "achieves the goals of tasks": "yes yes yes yes no no no",
            "wastes little exploring": "yes yes no yes no no no",
            "wastes little of what it knows": "yes yes no no no no -",
        },
    ),
    "dependence": Group(
        arms=("depends",),
        agents={
            family: f"planted:family={family},name={family}"
            for family in ("seeker", "noisy", "flee", "beside", "wall", "random")
        },
        true={
            "depends on the goal's place": "yes yes yes yes no -",
            "depends on the walls on its way": "yes yes yes yes ? -",
            "depends on where the corners are": "? ? ? ? ? -",
            "depends on where it stands": "yes yes yes yes yes -",
        },
    ),
}


UNASKED = "unasked"
"""The answer to a question whose arm is left out at this size."""
NAMED = "what the verdict names"
"""The first sentence of a verdict, beside the claims: which place it names, and whether weakly or partly."""
TOGETHER = "answers that hold together"
"""The claims whose answers remain after Holm's correction over the whole page, beside the claims."""

_COUNTED = json.loads((Path(__file__).parent / "planted_truth.json").read_text(encoding="utf-8"))
GROUPS["others"] = Group(
    arms=("grids", "keys", "transforms", "fog"),
    agents={family: f"planted:family={family},name={family}" for family in planted_agents.FAMILIES},
    true={claim: " ".join(of.values()) for claim, of in _COUNTED.items()},
)
GROUPS["followed"] = Group(
    arms=("hypotheses",),
    agents=GROUPS["others"].agents,
    # Of an agent that is after a place in part it is true that it does, and that no place explains half of its actions.
    true={
        "follows a hypothesis": " ".join(
            "?" if after in ("goal, in part", "mixed") else "yes" if after else "no"
            for after in (AFTER.get(one, "") for one in planted_agents.FAMILIES)
        )
    },
)
planted_agents.register()

LEVEL = 0.05
RIGHT = 0.8


@contextmanager
def quiet(label: str) -> Iterator[Any]:
    """Show no progress."""
    yield lambda *given: None


def answers(seed: int, *, size: str = "quick", group: str = "grids") -> dict[str, dict[str, str]]:
    """Return agent -> claim -> answer for one seed, at a size of the arms ("quick" or "full")."""
    asked = GROUPS[group]
    subjects = [subject_of(text) for text in asked.agents.values()]
    folder = Path(tempfile.mkdtemp())
    try:
        sizes = {one.name: count for one in arms() if one.name in asked.arms and (count := getattr(one, size))}
        run = prepare(folder, subjects, sizes, seed=seed)
        play(run, quiet)
        # No answer of a ledger stands on the differences of the agents, a fifth of the time.
        with judging.opened(run) as data, patch.object(judging, "differences", lambda *_: ()):
            found = judging.judge(run, data)
    finally:
        shutil.rmtree(folder)
    return {
        agent: {
            **{one.name: one.answer for one in ledger.claims},
            NAMED: named(ledger),
            TOGETHER: "; ".join(hold_together(ledger)),
        }
        for agent, ledger in zip(asked.agents, found.models, strict=True)
    }


def named(ledger: ClaimLedger) -> str:
    """Return what a verdict names, "" for nothing: "goal", "goal, in part", "the top-right corner", ..."""
    found = [each for part in aims_of(ledger).values() for each in part]
    if not found or found[0].answer != "yes":
        return ""
    one = found[0]  # these worlds are of one phase
    places = " or ".join("goal" if name == "goal" else one.nouns.get(name, name) for name in one.names)
    return f"{places}, in part" if one.reason in ("partly", "weakly or partly") else places


def false_pages(found: list[dict[str, dict[str, str]]], group: str) -> tuple[int, int, int]:
    """Return the number of pages with a wrong answer, of those with one that holds together, and of all pages."""
    truth, pages = GROUPS[group].truth, [(agent, page) for one in found for agent, page in one.items()]
    wrong_on = [
        {
            claim
            for claim, true in truth.items()
            if page.get(claim) in ("yes", "no") and true[agent] != "?" and page[claim] != true[agent]
        }
        for agent, page in pages
    ]
    kept = [names & set(page[TOGETHER].split("; ")) for names, (_, page) in zip(wrong_on, pages, strict=True)]
    return sum(map(bool, wrong_on)), sum(map(bool, kept)), len(pages)


def misnamed(found: list[dict[str, dict[str, str]]]) -> dict[str, int]:
    """Return family -> how often the verdict named a place that the agent is not after, or called a part the whole."""
    allowed: dict[str, set[str]] = {"goal": {"", "goal", "goal, in part"}, "goal, in part": {"", "goal, in part"}}
    allowed |= {"mixed": {"", "goal, in part", "the bottom-left corner, in part"}}
    result = {}
    for family in GROUPS["others"].agents:
        after = AFTER.get(family, "")
        right = allowed.get(after, {"", after, f"{after}, in part"} if after else {""})
        result[family] = sum(not right & _each(one[family][NAMED]) for one in found)
    return result


def _each(said: str) -> set[str]:
    """Return the places of a verdict that does not tell them apart, of which one must be right."""
    places, part, _ = said.partition(", in part")
    return {place + part for place in places.split(" or ")}


def decided(counts: Mapping[tuple[str, str], Counter[str]], group: str) -> tuple[float, int]:
    """Return the share of right answers of those that can be right or wrong, and the number of wrong ones."""
    truth = GROUPS[group].truth
    asked = {cell: counted for cell, counted in counts.items() if truth[cell[0]][cell[1]] in ("yes", "no")}
    right = sum(counted[truth[claim][agent]] for (claim, agent), counted in asked.items())
    return right / sum(counted.total() for counted in asked.values()), sum(
        wrong(truth[claim][agent], counted) for (claim, agent), counted in counts.items()
    )


def tally(found: list[dict[str, dict[str, str]]], group: str = "grids") -> dict[tuple[str, str], Counter[str]]:
    """Return (claim, agent) -> how often each answer came out."""
    truth = GROUPS[group].truth
    return {
        (claim, agent): Counter(one[agent].get(claim, UNASKED) for one in found)
        for claim, agents in truth.items()
        for agent in agents
    }


def left_open(counts: Mapping[tuple[str, str], Counter[str]], group: str) -> tuple[int, int]:
    """Return the number of undecided answers, and of all; an unasked question counts unless it has no right answer."""
    truth = GROUPS[group].truth
    undecided = sum(
        counted["undecided"] + (counted[UNASKED] if truth[claim][agent] in ("yes", "no") else 0)
        for (claim, agent), counted in counts.items()
    )
    return undecided, sum(counted.total() for counted in counts.values())


def wrong(true: str, counted: Counter[str]) -> int:
    """Return how many answers were wrong; none is counted where the truth lies at the threshold ("?")."""
    return 0 if true == "?" else sum(counted[answer] for answer in ("yes", "no") if answer != true)


def too_often(counts: Mapping[tuple[str, str], Counter[str]], group: str) -> list[tuple[str, str]]:
    """Return the cells with more wrong answers than the 99.9 % point of the binomial law at `LEVEL`."""
    truth = GROUPS[group].truth
    return [
        (claim, agent)
        for (claim, agent), counted in counts.items()
        if wrong(truth[claim][agent], counted) > int(binom.ppf(0.999, counted.total(), LEVEL))
    ]


def too_seldom(counts: Mapping[tuple[str, str], Counter[str]], group: str) -> list[tuple[str, str]]:
    """Return the cells in which the right answer came out less often than `RIGHT`."""
    truth = GROUPS[group].truth
    return [
        (claim, agent)
        for (claim, agent), counted in counts.items()
        if (true := truth[claim][agent]) in ("yes", "no") and counted[true] < RIGHT * counted.total()
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", choices=("quick", "full"), default="quick")
    parser.add_argument("--group", choices=tuple(GROUPS), action="append", help="all of them where left out")
    parser.add_argument("--out", type=Path, default=Path("verdicts"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for group in asked.group or GROUPS:
        found = _found(group, asked)
        _report(group, tally(found, group), asked.size)
        if group in ("others", "followed"):
            print(f"misnamed: {({name: times for name, times in misnamed(found).items() if times}) or 'none'}")
        alone, together, pages = false_pages(found, group)
        bounds = [exact_binomial(count, pages, 0.90)[1] for count in (alone, together)]
        print(
            f"pages with a wrong answer: {alone} of {pages} (one-sided 95 % bound {bounds[0]:.4f}); "
            f"with one that holds together: {together} (bound {bounds[1]:.4f})"
        )


def _found(group: str, asked: argparse.Namespace) -> list[dict[str, dict[str, str]]]:
    found, began = [], time.monotonic()
    for seed in range(asked.first, asked.first + asked.seeds):
        path = asked.out / f"{group}-{asked.size}-{seed}.json"
        if not path.exists():
            path.write_text(json.dumps(answers(seed, size=asked.size, group=group)), encoding="utf-8")
            print(f"{group}, seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
        found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def _report(group: str, counts: Mapping[tuple[str, str], Counter[str]], size: str) -> None:
    truth = GROUPS[group].truth
    n = next(iter(counts.values())).total()
    most = int(binom.ppf(0.999, n, LEVEL))
    print(f"{group}: {n} seeds, size {size}; wrong answers of a cell at most {most} (99.9 % point of binomial {LEVEL})")
    print(f"{'claim':34}" + "".join(f"{agent:>14}" for agent in GROUPS[group].agents))
    for claim, agents in truth.items():
        cells = [f"{true} {counts[claim, one][true]}/{wrong(true, counts[claim, one])}" for one, true in agents.items()]
        print(f"{claim:34}" + "".join(f"{cell:>14}" for cell in cells))
    print("each cell: what is true, how often it came out / how often a wrong answer did")
    print(f"wrong too often: {too_often(counts, group) or 'none'}")
    print(f"right less often than {RIGHT:.0%}: {too_seldom(counts, group) or 'none'}")
    share, number = decided(counts, group)
    undecided, total = left_open(counts, group)
    print(f"right of all answers that can be right: {share:.3f}; wrong: {number}; undecided: {undecided} of {total}")


if __name__ == "__main__":
    main()
