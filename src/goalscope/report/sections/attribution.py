"""The section on which hypotheses explain the moves, for runs whose steps were answered twice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from goalscope.goals.decision import findings
from goalscope.goals.finding import ALL, Finding, say_all, where_text
from goalscope.goals.hypotheses import Undefined
from goalscope.goals.reading import hypotheses_of, phases_in, read_states
from goalscope.report.blocks import Table, TextColumns, plain_table
from goalscope.report.ledger import RunData
from goalscope.report.specs import Declared, section
from goalscope.report.texts import TEXTS
from goalscope.runs.store import Store

_TEXT = TEXTS("attribution/how")
_RULE = TEXTS("attribution/rule")


@section("attribution", worlds="grids")
def attribution(run: RunData) -> Iterator[Declared]:
    """Yield the section on the hypotheses that explain each agent's moves; only for runs with two answers per step."""
    findings = judged_in(run.store)
    if findings:
        yield Declared(
            anchor="attribution",
            title="Which hypothesis explains the moves",
            paragraphs=[say_all(groups) for groups in findings.values()],
            explained=(_TEXT,),
            tables=[_table(findings), _hypotheses_table(findings)],
            closing=_RULE,
        )


def judged_in(store: Store) -> dict[str, list[Finding]]:
    """Map each agent with two answers per step to its findings; empty for other runs."""
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
