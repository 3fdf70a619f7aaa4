"""A section of the report: how often agents take back a move, in all and by size."""

from collections.abc import Iterator

from goalscope.report import Declared, RunData, by_agent, over_tag, section

MEASURES = ("moves taken back", "success")


@section("moves taken back", source="goalscope-compass")
def moves_taken_back(run: RunData) -> Iterator[Declared]:
    """A table of agents and curves over the size, for each condition that must not be averaged."""
    if MEASURES[0] not in run.ledger.measures:
        return
    yield Declared(
        anchor="moves-taken-back",
        title="Moves taken back",
        paragraphs=("An agent that remembers where it came from takes no move back.",),
        tables=[by_agent(run.ledger, MEASURES, group, "Moves taken back") for group in run.ledger.groups("agent")],
        figures=[
            over_tag(run.ledger, MEASURES[0], "size", group, bounds=(0, 1))
            for group in run.ledger.groups("agent, size")
        ],
        legend="Bands are 95 % intervals over grids.",
    )
