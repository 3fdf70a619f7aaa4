"""The section on which hypotheses the actions follow, of runs whose steps were answered twice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from goalscope.attribution.strata import AgentAnswers, Followed, bank_of, sentence
from goalscope.hypotheses import Undefined
from goalscope.report.blocks import Table, TextColumns, plain_table
from goalscope.report.ledger import RunData
from goalscope.report.matrix import MatrixCell, matrix
from goalscope.report.specs import Declared, Figure, section
from goalscope.report.vector import Picture
from goalscope.runs.store import Store

_TEXT = (
    "Each step was answered twice, so that what an agent would repeat is known. Strength is the share of its answers "
    "that follow a hypothesis, the rest being random; consistency is 1 where it is followed alike in all states, "
    "however noisy the agent is. Rivals that nobody asked for stand in every comparison and are never named. Worlds of "
    "several phases are judged phase by phase."
)
_RULE = (
    "Named: the lower end of the strength is above .2, consistency at least .7 with lower end .5, and every rival is "
    "beaten. A set: not told apart here. Partly: a smaller consistency, or a region that fails. None: no hypothesis "
    "that was asked for can reach half of the consistency. Intervals are one-sided at 5 %, over worlds, and not "
    "corrected for the number of hypotheses. MEG is towards what the verdict names and towards the goal, in "
    "nats an episode, with its interval over worlds, and as a share of the greatest possible."
)


@section("attribution", worlds="grids")
def attribution(run: RunData) -> Iterator[Declared]:
    """Which hypotheses each agent's actions follow, of runs with two answers a step."""
    found = judged_in(run.store)
    if not found:
        return
    yield Declared(
        anchor="attribution",
        title="What the actions follow",
        paragraphs=[sentence(agent, groups) for agent, groups in found.items()],
        explained=(_TEXT,),
        figures_first=True,
        tables=[_table(found)],
        figures=[Figure(picture(agent, groups), name="") for agent, groups in found.items()],
        layout="pictures",
        legend=_RULE,
    )


def judged_in(store: Store) -> dict[str, list[Followed]]:
    """Return name of each agent whose steps were all answered twice -> what is said of it; of other runs nothing."""
    study, found = store.study(), dict[str, list[Followed]]()
    if study is None or study.answers < 2:
        return found
    bank = bank_of(store)
    for name in store.agent_names():
        with suppress(Undefined):  # in worlds without a known process
            given = AgentAnswers.read(store, name)
            if given.twice:
                found[name] = given.followed(given.bound(bank))
    return found


def picture(agent: str, groups: Sequence[Followed]) -> Picture:
    """Draw hypotheses against groups of worlds: strength and its interval, faint where few worlds tell rivals apart."""
    records = [
        {
            "agent": agent,
            "worlds of": group.where,
            "worlds": group.clusters,
            "verdict": group.said.kind,
            "hypothesis": one["name"],
            "spoken of": one["name"] in group.said.names,
            **{
                f"{key}{end}": value
                for key in ("strength", "consistency")
                for end, value in zip(("", " low", " high"), one[key], strict=True)
            },
            "told apart in": one["apart_in"],
        }
        for group in groups
        if group.said is not None
        for one in group.said.details["scores"]
        if one["asked"]
    ]
    return matrix(
        list(dict.fromkeys(str(record["hypothesis"]) for record in records)),
        records,
        row="hypothesis",
        column="worlds of",
        cell=_cell,
        label=f"{agent}: strength of each hypothesis, by group of worlds",
        notes=(
            "● what the verdict speaks of. Small: consistency, and the worlds in which every other hypothesis that was "
            "asked for acts differently; the fewer, the fainter.",
            *(f"{group.where}: {group.sentence}" for group in groups),
        ),
        columns=list(dict.fromkeys(str(record["worlds of"]) for record in records)),
    )


def _cell(record: Mapping[str, Any]) -> MatrixCell:
    mark = " ●" if record["spoken of"] else ""
    return MatrixCell(
        f"{record['strength']:.2f} [{record['strength low']:.2f}, {record['strength high']:.2f}]{mark}",
        f"consistency {record['consistency']:.2f}; apart in {record['told apart in']} of {record['worlds']}",
        max(0.0, record["strength"]),
        0.15 + 0.85 * record["told apart in"] / max(record["worlds"], 1),
    )


def _table(found: Mapping[str, Sequence[Followed]]) -> Table:
    lines = [(agent, group) for agent, groups in found.items() for group in groups]

    def named(group: Followed) -> list[str]:
        return [] if group.said is None else list(group.said.names)

    def values(group: Followed, key: str) -> str:
        scores = {} if group.said is None else {one["name"]: one[key] for one in group.said.details["scores"]}
        texts = ["{:.2f} [{:.2f}, {:.2f}]".format(*scores[name]) for name in named(group) if name in scores]
        return "; ".join(texts) or "–"

    def nats(group: Followed) -> str:
        texts = [f"{name} {one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for name, one in group.nats.items()]
        return "; ".join(texts) or "–"

    columns: TextColumns[tuple[str, Followed]] = [
        ("agent", lambda line: line[0]),
        ("worlds of", lambda line: line[1].where),
        ("verdict", lambda line: "–" if line[1].said is None else line[1].said.kind),
        ("hypotheses", lambda line: ", ".join(named(line[1])) or "–"),
        ("strength", lambda line: values(line[1], "strength")),
        ("consistency", lambda line: values(line[1], "consistency")),
        ("MEG, nats", lambda line: nats(line[1])),
        ("worlds", lambda line: str(line[1].clusters)),
    ]
    return plain_table(lines, columns, range(4, len(columns)), caption="Verdicts by group of worlds")
