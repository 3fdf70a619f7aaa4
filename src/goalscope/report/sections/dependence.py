"""The section on what moves depend on: one thing is changed, everything else stays the same, and one move is
requested.
"""

from collections.abc import Iterator, Sequence

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
from goalscope.report.blocks import Cell, Footnotes, Table, TextColumns, plain_table
from goalscope.report.ledger import RunData
from goalscope.report.specs import Declared, section
from goalscope.report.texts import TEXTS
from goalscope.runs.store import Store
from goalscope.stats import Estimate

_TEXT = TEXTS("dependence/how")
_RULE = TEXTS("dependence/rule", enough=f"{ENOUGH:g}", least=f"{LEAST:g}", noise=f"{NOISE:g}")


@section("dependence")
def dependence(run: RunData) -> Iterator[Declared]:
    """Yield the section on what the moves of each agent depend on; only for runs with changed worlds."""
    if dependences := found_in(run.store):
        agents = dict.fromkeys(dependence.agent for dependence in dependences)
        yield Declared(
            anchor="dependence",
            title="What the moves depend on",
            paragraphs=[
                sentence([dependence for dependence in dependences if dependence.agent == agent]) for agent in agents
            ],
            explained=(_TEXT,),
            tables=[dependence_table(dependences)],
            closing=_RULE,
        )


def found_in(store: Store) -> list[Dependence]:
    """Return the dependences of the agents of a run; empty for a run without changed worlds."""
    study = store.study()
    if study is None or not any(isinstance(entry, ChangedWorlds | ChangedEnvironments) for entry in study.worlds_):
        return []
    return dependences(asked_of(store.episodes()))


def dependence_table(dependences: Sequence[Dependence]) -> Table:
    """Return a table with one line per agent and thing."""
    notes = Footnotes()

    def note(dependence: Dependence) -> str:
        invalid = TEXTS("dependence/invalid", percent=f"{dependence.invalid:.1%}") if dependence.invalid else ""
        return notes.mark(invalid, dependence.share.note)

    columns: TextColumns[Dependence] = [
        ("agent", lambda dependence: dependence.agent),
        ("changed", lambda dependence: noun_of(dependence.moved)),
        ("depends", lambda dependence: dependence.answer),
        ("share", lambda dependence: _text(dependence.share)),
        ("change", lambda dependence: _text(dependence.change)),
        *(
            [("total variation", lambda dependence: _text(dependence.variation))]
            if any(dependence.variation for dependence in dependences)
            else []
        ),
        ("predictable", lambda dependence: _text(dependence.predictable)),
        ("p / Holm", lambda dependence: f"{dependence.p:.2g} / {dependence.adjusted:.2g}"),
        ("worlds", lambda dependence: str(dependence.worlds)),
        ("versions", lambda dependence: str(dependence.versions)),
        ("notes", note),
    ]
    caption = "Change of the moves when one thing is changed, as a share of their predictable part"
    return plain_table(dependences, columns, range(3, len(columns) - 1), caption=caption, footnotes=notes)


def _text(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    value = Cell.of(estimate, "world")
    return f"{value.value} {value.interval}".strip()
