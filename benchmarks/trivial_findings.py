"""Which sentences of the papers also hold for trivial agents: all of them, at the published size.

python benchmarks/trivial_findings.py --markdown docs/trivial-findings.md --results runs/all

Sentences about behaviour are tested on an optimal agent (a greedy one in task worlds), on one that errs in 30 % of its
moves at random, and on a random one; each plays the worlds of the item as often as the model would. Sentences about
activations are tested on networks with random weights, and those about patches on noise: the answers are read from the
results of `goalscope reproduce --all`, at whatever scale it ran.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from goalscope._ground.folder import NamedFile
from goalscope.papers import ReadAgents, items
from goalscope.papers.claims import (
    OF_ALL,
    SCRIPTED,
    NullAgent,
    Planned,
    Verdict,
    decide,
    fits,
    null_agents,
    null_of,
    play_planned,
    word_of,
)
from goalscope.papers.item import Item
from goalscope.papers.page import read_result
from goalscope.papers.working import published_study
from goalscope.report.blocks import Table
from goalscope.report.exports import as_markdown
from goalscope.runs.record import Episode

_MARKS = (
    "<!-- trivial findings: written by benchmarks/trivial_findings.py -->\n",
    "<!-- end of trivial findings -->\n",
)
Answers = list[tuple[str, Verdict]]
"""Name of each trivial agent and its answer."""


def played(item: Item, scale: float) -> list[NullAgent]:
    """Play the trivial agents in the worlds of an item, once for each language model of its study, and its own ones."""
    study = published_study(item, scale)
    agents = study.agents()
    models = [agent for agent in agents if agent.describe().get("kind") in ("chat", "task-chat")]
    planned: dict[str, list[Planned]] = {}
    for spec, world, agent in study.specs(models or agents[:1]):
        planned.setdefault(agent.name, []).append((spec, world, getattr(agent, "tags", None) or {}))
    episodes: dict[str, list[Episode]] = {}
    for at, plans in enumerate(planned.values()):
        for name, agent in null_agents(plans[0][1]):
            episodes.setdefault(name, []).extend(play_planned(plans, agent, f"{name}, {at}", at))
        if at == 0 and any(claim.test in OF_ALL for claim in item.claims):
            # An oracle is told the whole map, which nobody else is.
            scripted = [agent for agent in agents if agent not in models and not getattr(agent, "knows_world", False)]
            episodes[SCRIPTED] = [one for agent in scripted for one in play_planned(plans, agent, agent.name, 0)]
    return [null_of(name, own_episodes) for name, own_episodes in episodes.items()]


def answers_of(item: Item, scale: float, results: Path | None) -> Iterator[tuple[str, str, Answers]]:
    """Yield place, tested statement and answers for each sentence of an item that has some."""
    if item.needs == "weights":
        stored = read_result(results / "items" / item.name.replace(" ", "-")) if results else None
        for claim in stored.claims if stored else ():
            yield claim.place, claim.said, [(null.said, null.answer) for null in claim.nulls]
        return
    nulls = played(item, scale)
    tested = [decide(item, null.rows, ReadAgents(agents=null.agents), null.agents) for null in nulls]
    for at, claim in enumerate(item.claims):
        pairs = zip(nulls, tested, strict=True)
        yield claim.place, claim.said, [(null.name, answers[at].answer) for null, answers in pairs if fits(claim, null)]


def main() -> None:
    """Test all sentences, print how many also hold for a trivial agent, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", type=Path, help="page whose table between two marks is replaced")
    parser.add_argument("--results", type=Path, help="directory of goalscope reproduce --all")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the published size")
    given = parser.parse_args()
    rows, tested = [], 0
    for item in items().values():
        if not item.claims or not item.study:
            continue
        for place, statement, answers in answers_of(item, given.scale, given.results):
            tested += any(answer in ("yes", "no", "undecided") for _, answer in answers)
            holding = [name for name, answer in answers if answer == "yes"]
            if holding:
                rest = "; ".join(f"{name}: {word_of(answer)}" for name, answer in answers if answer != "yes")
                rows.append((item.name, place or "ours", statement, ", ".join(holding), rest))
    table = as_markdown(Table(headings=("item", "printed in", "tested", "also holds for", "others"), rows=tuple(rows)))
    summary = f"{len(rows)} of {tested} tested sentences also hold for a trivial agent."
    print(summary)
    if given.markdown is None:
        print(table)
        return
    page = NamedFile(given.markdown)
    before, _, rest = page.load_text().partition(_MARKS[0])
    page.save_text(f"{before}{_MARKS[0]}\n{summary}\n\n{table}\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}")


if __name__ == "__main__":
    main()
