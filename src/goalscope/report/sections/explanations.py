"""What explains the moves: the things that they depend on, and the hypotheses that they follow.

To find what moves depend on, one thing is changed, everything else stays the same, and one move is requested.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from goalscope.goals.counterfactual.dependence import (
    ENOUGH,
    LEAST,
    NOISE,
    Dependence,
    asked_of,
    dependences,
    noun_of,
    sentence,
)
from goalscope.goals.counterfactual.worlds import ChangedEnvironments, ChangedWorlds
from goalscope.goals.decision import findings
from goalscope.goals.finding import ALL, Finding, say_all, where_text
from goalscope.goals.hypotheses import Undefined
from goalscope.goals.reading import hypotheses_of, phases_in, read_states
from goalscope.report.blocks import Declared, Footnotes, Table, TextColumns, plain_table, section, value_text
from goalscope.report.ledger import RunData
from goalscope.report.texts import TEXTS
from goalscope.runs.store import Store


@section("dependence")
def dependence(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on what each agent's moves depend on, such as the place of the goal.

    Only runs have it whose study contains worlds with one thing changed.
    """
    if dependences := found_in(run.store):
        agents = dict.fromkeys(dependence.agent for dependence in dependences)
        yield Declared(
            anchor="dependence",
            title="What the moves depend on",
            paragraphs=[sentence([entry for entry in dependences if entry.agent == agent]) for agent in agents],
            explained=(TEXTS("dependence/how"),),
            tables=[dependence_table(dependences)],
            closing=TEXTS("dependence/rule", enough=f"{ENOUGH:g}", least=f"{LEAST:g}", noise=f"{NOISE:g}"),
        )


def found_in(store: Store) -> list[Dependence]:
    """Measure what the moves of each agent of a run depend on: one result per agent and thing that was changed in its
    worlds.

    The list is empty for runs without changed worlds.
    """
    study = store.study()
    if study is None or not any(isinstance(entry, ChangedWorlds | ChangedEnvironments) for entry in study.worlds_):
        return []
    return dependences(asked_of(store.episodes()))


def dependence_table(dependences: Sequence[Dependence]) -> Table:
    """Return a table of what agents' moves depend on, with one line per agent and changed thing."""
    notes = Footnotes()

    def note(dependence: Dependence) -> str:
        invalid = TEXTS("dependence/invalid", percent=f"{dependence.invalid:.1%}") if dependence.invalid else ""
        return notes.mark(invalid, dependence.share.note)

    columns: TextColumns[Dependence] = [
        ("agent", lambda dependence: dependence.agent),
        ("changed", lambda dependence: noun_of(dependence.moved)),
        ("depends", lambda dependence: dependence.answer),
        ("share", lambda dependence: value_text(dependence.share)),
        ("change", lambda dependence: value_text(dependence.change)),
        *(
            [("total variation", lambda dependence: value_text(dependence.variation))]
            if any(dependence.variation for dependence in dependences)
            else []
        ),
        ("predictable", lambda dependence: value_text(dependence.predictable)),
        ("p / Holm", lambda dependence: f"{dependence.p:.2g} / {dependence.adjusted:.2g}"),
        ("worlds", lambda dependence: str(dependence.worlds)),
        ("versions", lambda dependence: str(dependence.versions)),
        ("notes", note),
    ]
    caption = "Change of the moves when one thing is changed, as a share of their predictable part"
    return plain_table(dependences, columns, range(3, len(columns) - 1), caption=caption, footnotes=notes)


@section("attribution", worlds="grids")
def attribution(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on the hypotheses (possible goals) that explain each agent's moves.

    Only runs have it whose study asks for two answers per step.
    """
    findings = judged_in(run.store)
    if findings:
        yield Declared(
            anchor="attribution",
            title="Which hypothesis explains the moves",
            paragraphs=[say_all(groups) for groups in findings.values()],
            explained=(TEXTS("attribution/how"),),
            tables=[_table(findings), _hypotheses_table(findings)],
            closing=TEXTS("attribution/rule"),
        )


def judged_in(store: Store) -> dict[str, list[Finding]]:
    """Decide which hypotheses (possible goals) explain the moves of each agent of a run, by the agent's name.

    Empty for runs without two answers per step. Agents in worlds without a known decision process are left out.
    """
    study, findings_by_agent = store.study(), dict[str, list[Finding]]()
    if study is None or study.answers < 2:
        return findings_by_agent
    bank = hypotheses_of(study)
    for name in store.agent_names():
        with suppress(Undefined):  # for worlds without a known decision process
            states, _ = read_states(store, name)
            findings_by_agent[name] = findings(states, bank, phases=phases_in(study))
    return findings_by_agent


def _table(findings: Mapping[str, Sequence[Finding]]) -> Table:
    lines = [(agent, group) for agent, groups in findings.items() for group in groups]

    def values(group: Finding, quantity: str) -> str:
        texts = {name: _text(group, quantity, name) for name in group.names or (group.subject,)}
        return "; ".join(f"{name} {text}" for name, text in texts.items() if text) or "–"

    columns: TextColumns[tuple[str, Finding]] = [
        ("agent", lambda line: line[0]),
        ("worlds of", lambda line: where_text(line[1].where) or ALL),
        ("answer", lambda line: line[1].answer),
        ("reason", lambda line: line[1].reason),
        ("hypotheses", lambda line: ", ".join(line[1].names) or "–"),
        ("strength", lambda line: values(line[1], "strength")),
        ("consistency", lambda line: values(line[1], "consistency")),
        ("MEG, nats", lambda line: values(line[1], "meg")),
        ("threshold", lambda line: "–" if line[1].threshold is None else f"{line[1].threshold:g}"),
        ("worlds", lambda line: str(line[1].worlds)),
    ]
    return plain_table(lines, columns, range(5, len(columns)), caption="What each agent is after, by group of worlds")


def _text(group: Finding, quantity: str, name: str) -> str:
    figure = group.figure(quantity, name)
    return "" if figure is None else figure.text


def _hypotheses_table(findings: Mapping[str, Sequence[Finding]]) -> Table:
    """Return a table of how well each hypothesis explains each agent in each group of worlds."""
    lines = [
        (agent, group, name, worlds_apart)
        for agent, groups in findings.items()
        for group in groups
        for name, worlds_apart in group.apart_in.items()
    ]

    columns: TextColumns[tuple[str, Finding, str, int]] = [
        ("agent", lambda line: line[0]),
        ("worlds of", lambda line: where_text(line[1].where) or ALL),
        ("hypothesis", lambda line: line[2]),
        ("strength", lambda line: _text(line[1], "strength", line[2]) or "–"),
        ("consistency", lambda line: _text(line[1], "consistency", line[2]) or "–"),
        ("told apart in", lambda line: f"{line[3]} of {line[1].worlds} worlds"),
    ]
    return plain_table(lines, columns, range(3, len(columns)), caption=TEXTS("attribution/told apart"))
