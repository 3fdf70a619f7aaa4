"""Behaviour in grids by size, density and distance; checks of imports; uncertainty; keys.

Source: behavioural and representational evaluation, Fig. 4 and Fig. 12 (its upper half of Fig. 4 is the section by
distance).
"""

from collections.abc import Iterator, Mapping
from itertools import product

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.performance import with_distance_bands
from goalscope.report.blocks import Plain, counted, number
from goalscope.report.definitions import CURVES, MAPS, SIZE_FIGURES, UNCERTAINTY, UNCERTAINTY_FIGURES, title_of
from goalscope.report.estimates import Estimates, Key, describe_key
from goalscope.report.layouts import BANDS, CURVED, by_agent, conditions_of, of_two_tags, over_tag
from goalscope.report.ledger import STEPWISE
from goalscope.report.run_data import RunData
from goalscope.report.sections.instrumental_goals import has_goal_tables
from goalscope.report.specs import SHARE, Declared, FoldSpec, MapSpec, section
from goalscope.rows import Rows
from goalscope.stats import estimate_rows

KEY_MEASURES = (
    "accuracy on the way to the key",
    "accuracy on the way to the door",
    "accuracy on the way to the goal",
    "key pickup",
    "key attraction bias",
)
FIGURE_12 = ("success", "policy entropy", "JSD from optimal", "calibration error")
EXCESS = ("policy entropy, excess, per visit", "JSD from optimal, excess, per visit", "calibration error, excess")
_CELLS = "agent, size, density"
_BANDS = 11  # of distances, the most that a map shows
_SIZE, _DENSITY = ("size", "size n"), ("density", "wall density d")
_BAND = ("distance_band", "distance to the goal")


@section("import", worlds="grids")
def import_checks(run: RunData) -> Iterator[Declared]:
    """What was compared with the recorded values when the run is an import."""
    found = run.store.info().get("import")
    if not isinstance(found, Mapping) or not found:
        return
    counts = found.get("counts")
    counts = {str(name): count for name, count in counts.items()} if isinstance(counts, Mapping) else {}
    checked = [name.removesuffix(" checked") for name in counts if name.endswith(" checked")]
    both = [(name, int(counts[f"{name} checked"]), int(counts.get(f"{name} agreeing", 0))) for name in checked]
    table = Plain(
        caption="Every recorded value was computed again and compared.",
        headings=("recorded value", "checked", "agree", "disagree"),
        rows=tuple((name, str(of), str(agree), str(of - agree)) for name, of, agree in both),
        numbers=(1, 2, 3),
    )
    compared = {f"{name} {end}" for name in checked for end in ("checked", "agreeing")}
    problems = int(found.get("problems", 0) or 0)
    state = f"{counted(problems, 'problem')} found" if problems else "No problem was found"
    yield Declared(
        anchor="import",
        title="Checks of the imported data",
        paragraphs=(f"{state} in the imported files ({found.get('source', '')}).",),
        tables=[table] if both else [],
        facts=[(name, str(count)) for name, count in counts.items() if name not in compared],
    )


@section("size and density", worlds="grids")
def by_size_and_density(run: RunData) -> Iterator[Declared]:
    """Curves over size and density; nothing where a run has neither tag."""
    ledger = run.originals
    if not len(ledger.tables["agent, size"]) or not len(ledger.tables["agent, density"]):
        return
    yield Declared(
        anchor="size-and-density",
        title="By size and density",
        figures=[
            over_tag(ledger, name, tag, group, bounds=SHARE)
            for group in ledger.groups(_CELLS)
            for name in SIZE_FIGURES
            for tag in ("size", "density")
        ],
        legend=f"{BANDS} A curve over size averages over all densities, a curve over density over all sizes.",
    )


@section("maps", worlds="grids")
def maps(run: RunData) -> Iterator[Declared]:
    """Maps and tables of size x density."""
    ledger = run.originals
    cells = ledger.tables[_CELLS]
    figures, folds = [], []
    for (group, where), agent in product(conditions_of(ledger, _CELLS), ledger.agents):
        what = f"{agent}, {where}" if where else agent
        keys = {name: {**group, "agent": agent, "measure": name} for name in MAPS}
        figures.append(
            _map(cells, keys[MAPS[0]], what, f"{title_of(MAPS[0])} of {what} by size and density", among=group)
        )
        units = {name: ledger.measures.get(name, "") for name in MAPS}
        tables = [
            of_two_tags(
                cells,
                key,
                ("size", "size"),
                ("density", "d ="),
                f"{title_of(name)} ({units[name]}) of {what}",
                group,
            )
            for name, key in keys.items()
        ]
        folds.append(FoldSpec(title=f"Tables: {what}", tables=tables))
    yield Declared(
        anchor="maps",
        title="Size × density",
        figures=figures,
        figures_only=True,
        legend=f"{title_of(MAPS[0])} by size and density; below each value its 95 % interval over the grids of the "
        "cell.",
        folds=folds,
    )


@section("figures 4 and 12", source="behavioural and representational evaluation, Fig. 4 and Fig. 12", worlds="grids")
def difficulty(run: RunData) -> Iterator[Declared]:
    """The maps of both figures for each condition with several sizes and densities."""
    ledger = run.originals
    groups = ledger.groups(_CELLS)
    known = [group for group, _ in run.settings() if group in groups]
    for group in known:
        if all(len(ledger.tables[_CELLS].values(tag, **group)) > 1 for tag in ("size", "density")):
            mine, where = run.rows.select(**group), f", {describe_key(group)}" if len(known) > 1 else ""
            yield from _by_distance(run, mine, where)
            yield _by_size_and_density(run, mine, where)


def _by_distance(run: RunData, rows: Rows, where: str) -> Iterator[Declared]:
    steps = rows.where(rows.measure == STEPWISE)
    steps = steps.where(steps.known("distance"))
    if not len(steps):
        return
    subjects, others = run.groups.subjects, run.groups.others
    steps = with_distance_bands(steps, -(-max(int(distance) for distance in steps["distance"]) // _BANDS))
    found = {
        by: Estimates(estimate_rows(steps, by=("agent", *by, "distance_band"), bounds=measure_bounds()))
        for by in (("size",), ("density",), ("size", "density"))
    }
    names = {"size": ("size", "size"), "density": ("density", "d")}
    yield Declared(
        anchor="figure-4",
        title=f"Figure 4: accuracy by size, density and distance{where}",
        paragraphs=(
            "Accuracy of single actions, by the distance to the goal at which they were taken. Within a row of the "
            "maps size or density is held fixed, so that what distance adds can be read across.",
        ),
        figures=[
            _map(found[tag,], {"agent": agent}, f"{agent}: accuracy by {tag} and distance", rows=axis, columns=_BAND)
            for tag, axis in (("size", _SIZE), ("density", _DENSITY))
            for agent in subjects
        ],
        legend="Distances in steps. Below each value its 95 % interval over the grids that have such steps.",
        folds=[
            *(
                FoldSpec(
                    title=f"{agent}, by {tag}",
                    tables=[
                        of_two_tags(
                            found[tag,],
                            {"agent": agent, "measure": STEPWISE},
                            names[tag],
                            ("distance_band", ""),
                            f"Accuracy (share) of {agent} by {tag} and distance to the goal in steps",
                        )
                    ],
                )
                for tag in names
                for agent in others
            ),
            *(
                FoldSpec(
                    title=f"Size × density × distance: {agent}",
                    tables=[
                        of_two_tags(
                            found["size", "density"],
                            {"agent": agent, "size": size, "measure": STEPWISE},
                            names["density"],
                            ("distance_band", ""),
                            f"Accuracy (share) of {agent}, size {number(size)}: density × distance in steps",
                        )
                        for size in found["size", "density"].values("size", agent=agent)
                    ],
                )
                for agent in (*subjects, *others)
            ),
        ],
    )


def _by_size_and_density(run: RunData, rows: Rows, where: str) -> Declared:
    listed = [name for name in (*FIGURE_12, *EXCESS) if name in run.ledger.measures]
    kept = rows.where(rows.among("measure", listed))
    found = Estimates(estimate_rows(kept, by=("agent", "size", "density"), bounds=measure_bounds()))
    agents = (*run.groups.subjects, *run.groups.others)
    return Declared(
        anchor="figure-12",
        title=f"Figure 12: performance by size and density{where}",
        paragraphs=(
            "Entropy, divergence and calibration error are as the paper defines them, over all visited states. They "
            "depend on the number of visits, whoever acts, and visits fall with difficulty: part of every trend in "
            "them is no behaviour at all. The tables hold the excess over an optimal agent with the same visits beside "
            "them.",
        ),
        figures=[
            _map(
                found,
                {"agent": agent, "measure": name},
                f"{title_of(name)}: {agent}",
                bounds=SHARE if name == "success" else None,
            )
            for agent in run.groups.subjects
            for name in FIGURE_12
            if name in listed
        ],
        legend="Below each value its 95 % interval over the grids of the cell; colours run from 0 to the greatest one.",
        folds=[
            FoldSpec(
                title=f"Tables: {agent}",
                tables=[
                    of_two_tags(
                        found,
                        {"agent": agent, "measure": name},
                        ("size", "size"),
                        ("density", "d ="),
                        f"{title_of(name)} ({run.ledger.measures[name]}) of {agent}",
                    )
                    for name in listed
                ],
            )
            for agent in agents
        ],
    )


@section("distance to the goal", worlds="grids")
def by_distance(run: RunData) -> Iterator[Declared]:
    """Curves over the distance to the goal, for generated grids where a run has other worlds too."""
    ledger = run.originals
    table = _CELLS if len(ledger.tables[_CELLS]) else "agent, distance"
    yield Declared(
        anchor="distance",
        title="By distance to the goal",
        figures=[
            over_tag(
                ledger,
                name,
                "distance",
                group,
                bounds=SHARE if ledger.measures.get(name) == "share" else None,
                counts=True,
            )
            for group in ledger.groups(table)
            for name in CURVES
        ],
        figures_only=True,
        legend=f"{BANDS} The lower panel counts the grids behind each point; distances that fewer than {CURVED} grids "
        "reach are not drawn (they are in the JSON).",
    )


@section("uncertainty", worlds="grids")
def uncertainty(run: RunData) -> Iterator[Declared]:
    """Entropy, divergence and calibration with their baselines, and the excess by size."""
    ledger = run.originals
    if not set(UNCERTAINTY) & {one.key["measure"] for one in ledger.tables["agent"].listed}:
        return
    yield Declared(
        anchor="uncertainty",
        title="Uncertainty and divergence from the optimal policy",
        paragraphs=(
            "Empirical entropies and divergences are biased by the number of visits to a state: a state seen once "
            "has entropy 0, and a perfect agent at a two-way tie a divergence of 0.311 bits. The excess is the "
            "value minus that of a simulated optimal agent with the same visits; 0 means “as a perfect agent would "
            "look”.",
        ),
        tables=[by_agent(ledger, UNCERTAINTY, group, "Uncertainty") for group in ledger.groups("agent")],
        figures=[
            over_tag(ledger, name, "size", group)
            for group in ledger.groups("agent, size")
            for name in UNCERTAINTY_FIGURES
        ],
        legend=BANDS,
    )


@section("keys", worlds="grids")
def key_worlds(run: RunData) -> Iterator[Declared]:
    """The measures of worlds with a key that are none of the paper's environments."""
    if has_goal_tables(run):
        return
    ledger, tables = run.ledger, []
    for group in ledger.groups("agent"):
        found = {
            name: [ledger.find("agent", name, agent=agent, **group) for agent in ledger.agents] for name in KEY_MEASURES
        }
        measures = [name for name, listed in found.items() if any(one is not None and one.n > 0 for one in listed)]
        if measures:
            tables.append(by_agent(ledger, [*MAPS, *measures], group, "Stages and key"))
    if tables:
        yield Declared(anchor="keys", title="Instrumental and implicit goals", tables=tables)


def _map(
    cells: Estimates,
    key: Key,
    title: str,
    label: str = "",
    *,
    rows: tuple[str, str] = _SIZE,
    columns: tuple[str, str] = _DENSITY,
    bounds: tuple[float, float] | None = SHARE,
    among: Key | None = None,
) -> MapSpec:
    return MapSpec(
        title=title,
        label=label,
        estimates=cells,
        key={"measure": STEPWISE, **key},
        among=among,
        rows=rows[0],
        columns=columns[0],
        row_label=rows[1],
        column_label=columns[1],
        bounds=bounds,
    )
