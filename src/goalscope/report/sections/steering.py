"""Steering, ablation, and edits of the written reasoning, each with its controls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from goalscope.inside.interventions import ablation, reasoning, steering
from goalscope.inside.interventions.directions import MEAN as DIFFERENCE
from goalscope.inside.interventions.directions import OWN, PROBE, RANDOM, SHUFFLED
from goalscope.inside.interventions.reading import ELSEWHERE, FOLLOWS, PAIR, STAYS
from goalscope.inside.probing.scores import chosen, pairs
from goalscope.report.ledger import Estimates, Key, RunData
from goalscope.report.sections.patching import by_thing, pair_facts, site_name
from goalscope.report.specs import (
    BANDS,
    MEAN,
    Column,
    Curve,
    CurveSpec,
    Declared,
    FoldSpec,
    Line,
    RivalsSentence,
    TableSpec,
    section,
)
from goalscope.report.verdicts import NEEDED_BY_ACTION, NEEDED_RULE, TURNS, TURNS_RULE, Word
from goalscope.stats import Grouped, estimate_rows
from goalscope.stats.rows import Rows

_STEERED: Final = (
    "A direction for another cell of goal or agent is added to the run on one grid of a pair, after one layer. Doses "
    "are lengths in units of the site's own difference, that of the two grids of the pair. Shown is the share of pairs "
    "whose action is then an optimal one of the edited grid, where no optimal action is shared.",
    "Whether the probe itself sees the edited grid in what was added is shown beside it. The pair's own difference at "
    "dose 1 is a patch: the most that a change there can do. Damage: in control pairs the action must stay.",
)
_ABLATED: Final = (
    "All that a linear probe of goal or agent reads is projected out at a site after one layer, until the refitted "
    "probe has fallen to chance on held-back grids. Shown is the share of pairs whose first action, optimal before, "
    "stays optimal.",
)
_EDITED: Final = (
    "The written reasoning of one grid of a pair is edited, and the model writes on: after the whole edited text its "
    "answer, after `prefill` the rest of the reasoning, too. Swap: the reasoning of the other grid; plan: its moves "
    "alone; coordinates: its cell of what was moved alone; corrupt: other moves. Truncate, empty and paraphrase are no "
    "edits towards an action: it should stay.",
    "Beside them activations: the embeddings of the other grid at the cells that differ, with free reasoning and with "
    "the own reasoning replayed. Edits need no weights; they show what the answer follows once the text is there, not "
    "what activations hold.",
)


@section("steering", worlds="grids")
def content(run: RunData) -> Iterator[Declared]:
    """Yield a section for each experiment, agent, and thing moved."""
    for kind in _MAKERS:
        for thing, rows, title_suffix, facts in by_thing(run, kind):
            yield replace(declared(kind, rows, title_suffix), facts=pair_facts(facts, thing))


def declared(kind: str, rows: Rows, title_suffix: str = "") -> Declared:
    """Return the section of one experiment.

    Args:
        kind: steering, ablation, or reasoning-edits.
        rows: its rows, of one agent and one thing moved.
        title_suffix: text after its title.
    """
    return _MAKERS[kind](rows, title_suffix)


def _paired_differences(rows: Rows, key: Key, rivals: Mapping[str, Key], by: Sequence[str]) -> Iterator[Grouped]:
    """Yield the paired differences between some rows and those of each rival."""
    for name, rival in rivals.items():
        paired = pairs(chosen(rows, **key), chosen(rows, **rival), name=name, by=(*by, PAIR))
        labels = {"less": name, "measure": str(rows.measure[0])} if len(paired) else {}
        for grouped in estimate_rows(paired, by=by) if len(paired) else ():
            yield Grouped(key={**key, **grouped.key, **labels}, estimate=grouped.estimate)


def _claim(
    differences: Estimates, title: str, key: Key, by: Sequence[str], rivals: Iterable[str], word: Word, label: Any
) -> RivalsSentence:
    parts = [(label(part), {**key, **part}) for part in differences.keys(*by, **key)]
    return RivalsSentence(title, differences, parts, {name: name for name in rivals}, word)


def _steering(rows: Rows, title_suffix: str) -> Declared:
    by = ("site", "layer", "dose")
    counterfactual = chosen(rows, pairs="counterfactual")
    follows = chosen(counterfactual, measure=FOLLOWS)
    estimates = Estimates(estimate_rows(counterfactual, by=("direction", *by)))
    control = Estimates(estimate_rows(chosen(rows, pairs="control"), by=("direction", *by)))
    rivals = {"random directions": {"direction": RANDOM}, "shuffled probe": {"direction": SHUFFLED}}
    differences = Estimates(
        grouped
        for kind in (PROBE, DIFFERENCE)
        for grouped in _paired_differences(follows, {"direction": kind}, rivals, by)
    )
    kinds = [kind for kind in (PROBE, DIFFERENCE, SHUFFLED, RANDOM, OWN) if kind in estimates.values("direction")]
    positions = estimates.keys("site", "layer")
    lines = [Line(_where(key), key) for key in estimates.keys(*by)]

    def table(caption: str, measure: str, shown_estimates: Estimates) -> TableSpec:
        columns = [Column(kind, "share", {"measure": measure, "direction": kind}) for kind in kinds]
        return TableSpec(f"{caption}: {MEAN}", "site, layer, dose", shown_estimates, columns, lines)

    return Declared(
        anchor="steering",
        title=f"Steering{title_suffix}",
        explained=_STEERED,
        sentences=[
            _claim(
                differences,
                f"{kind}, {_where(position)}",
                {"direction": kind, "measure": FOLLOWS, **position},
                ("dose",),
                rivals,
                TURNS,
                lambda key: f"dose {key['dose']:g}",
            )
            for kind in (PROBE, DIFFERENCE)
            for position in positions
        ],
        rule=TURNS_RULE,
        tables=(
            table("Action follows the edited grid", FOLLOWS, estimates),
            table("Its own probe flips", steering.FLIPPED, estimates),
        ),
        figures=[
            CurveSpec(
                f"{_where(position)[0].upper()}{_where(position)[1:]}",
                "action follows the edited grid (share)",
                "dose",
                estimates,
                [Curve(kind, {"measure": FOLLOWS, "direction": kind, **position}) for kind in kinds],
                x_label="dose (own differences)",
            )
            for position in positions
        ],
        legend=BANDS,
        folds=[
            FoldSpec(
                "Damage",
                [
                    table("Control pairs: the action stays optimal", STAYS, control),
                    table("The action is optimal in neither grid", ELSEWHERE, estimates),
                    table("The position of what did not move is still stated", steering.STATED, estimates),
                ],
            )
        ],
        counted=[*estimates, *control, *differences],
    )


def _ablation(rows: Rows, title_suffix: str) -> Declared:
    by = ("thing", "site", "layer", ablation.RANK, ablation.READABLE, "fallen")
    estimates = Estimates(estimate_rows(rows, by=(*by, "subspace")))
    sizes = Estimates(estimate_rows(chosen(rows, fallen=True), by=("thing", "site", "layer", "subspace", "size")))
    rivals = {"random subspaces": {"subspace": ablation.RANDOM}}
    differences = Estimates(
        _paired_differences(rows, {"subspace": ablation.AMNESIC}, rivals, ("thing", "site", "layer", "fallen"))
    )
    columns = [
        Column(name, "share", {"measure": STAYS, "subspace": name}) for name in (ablation.AMNESIC, ablation.RANDOM)
    ]

    def label(key: Key) -> str:
        fallen = "at chance after" if key["fallen"] else "still readable after"
        return f"{key['thing']}, {_where(key)}: r = {key[ablation.READABLE]}, {fallen} {key[ablation.RANK]}"

    fallen: Key = {"fallen": True, "measure": STAYS, "subspace": ablation.AMNESIC}
    return Declared(
        anchor="ablation",
        title=f"Ablation of what probes read{title_suffix}",
        explained=_ABLATED,
        sentences=[
            _claim(
                differences,
                f"Cell of the {thing}",
                {"thing": thing, **fallen},
                ("site", "layer"),
                rivals,
                NEEDED_BY_ACTION,
                _where,
            )
            for thing in estimates.values("thing")
        ],
        rule=NEEDED_RULE,
        tables=(
            TableSpec(
                f"Action stays optimal: {MEAN}",
                "probe, correlation on held-back grids, directions removed",
                estimates,
                columns,
                [Line(label(key), key) for key in estimates.keys(*by)],
            ),
        ),
        folds=[
            FoldSpec(
                "By size, where the probe has fallen to chance",
                [
                    TableSpec(
                        f"Action stays optimal, by size: {MEAN}",
                        "probe, size",
                        sizes,
                        columns,
                        [
                            Line(f"{key['thing']}, {_where(key)}, size {key['size']}", key)
                            for key in sizes.keys("thing", "site", "layer", "size")
                        ],
                    )
                ],
            )
        ],
        counted=[*estimates, *sizes, *differences],
    )


def _reasoning(rows: Rows, title_suffix: str) -> Declared:
    estimates = Estimates(estimate_rows(rows, by=("edit",)))
    columns = [Column(name, "share", {"measure": name}) for name in (FOLLOWS, STAYS, ELSEWHERE, reasoning.UNSTATED)]
    order = [*reasoning.EDITS, *reasoning.PATCHES]
    lines = [Line(name, {"edit": name}) for name in order if name in estimates.values("edit")]
    return Declared(
        anchor="reasoning-edits",
        title=f"Edits of the written reasoning{title_suffix}",
        explained=_EDITED,
        tables=(TableSpec(f"The answer after an edit: {MEAN}", "edit", estimates, columns, lines),),
        counted=[*estimates],
    )


def _where(key: Key) -> str:
    parts = [site_name(key["site"]), f"layer {key['layer']}"]
    return ", ".join([*parts, *([f"dose {key['dose']:g}"] if "dose" in key else [])])


_MAKERS: Final[Mapping[str, Callable[[Rows, str], Declared]]] = {
    steering.KIND: _steering,
    ablation.KIND: _ablation,
    reasoning.KIND: _reasoning,
}
