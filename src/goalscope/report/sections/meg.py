"""The section on goals: the MEG of each agent towards each hypothesis, if `goalscope meg RUN` measured it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from goalscope._ground.words import counted, short
from goalscope.goals import GoalContrast, GoalEstimate, HeldOut
from goalscope.report.blocks import Declared, Figure, FoldSpec, Table, TextColumns, plain_table, section
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.definitions import NETWORKS
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.texts import TEXTS
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.store import Store
from goalscope.stats import Estimate
from goalscope.stats.rows import Tag

_Record = TypeVar("_Record", GoalEstimate, GoalContrast, HeldOut)

_NAMED = 3  # maximum lines that a note names; further lines are counted


@section("meg", source="MacDermott et al. (2024)", worlds="grids")
def goals(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on the goal-directedness (MEG) of each agent towards each hypothesis (possible goal).

    There is none if it was not measured.

    Raises:
        ValueError: if the stored estimates of goals are invalid.
    """
    store, noun, stored = run.store, run.ledger.noun, run.store.info().get("meg")
    if stored is None or not run.measured.goals:
        return
    with _sound(store):
        estimates = [_restored(GoalEstimate, entry) for entry in stored["estimates"]]
        contrasts = [_restored(GoalContrast, entry) for entry in stored["contrasts"]]
        held_out = [_restored(HeldOut, entry) for entry in stored["held_out"]]
        episode_count, split_tags = int(stored["episodes"]), [str(name) for name in stored["settings"]["by"]]
        believed = belief_words(stored["beliefs"]) if "beliefs" in stored else ()
    cells = {tuple(entry.cell.items()): entry.cell for entry in estimates}.values()
    figures, tables, parts = [], [], []
    for cell in cells:
        of_cell = [entry for entry in estimates if entry.cell == cell]
        table = replace(estimates_table(of_cell, noun), notes=tuple(note_lines(of_cell, noun)))
        if len({line[-1] for line in table.rows}) == 1:  # a shared method is given once, in the caption
            table = replace(
                table,
                caption=f"{table.caption}; intervals: {table.rows[0][-1]}",
                headings=table.headings[:-1],
                rows=tuple(line[:-1] for line in table.rows),
            )
        if set(cell) & set(split_tags):
            parts.append(table)
        else:
            tables.append(table)
            figures.append(_figure(of_cell, run.ledger.agents))
    tables += [contrasts_table(contrasts, noun)] if contrasts else []
    tables += [held_out_table(held_out, noun)] if held_out else []
    now = count_episodes(store)
    stale = TEXTS("meg/stale", measured=episode_count, stored=now)
    yield Declared(
        anchor="goals",
        title="What the agents are after",
        paragraphs=[*([" ".join(believed)] if believed else []), *([stale] if episode_count != now else [])],
        explained=(TEXTS("meg/how"),),
        figures_first=True,
        tables=tables,
        figures=figures,
        legend=TEXTS("meg/legend", noun=noun),
        folds=[FoldSpec(f"By {', '.join(split_tags)} ({counted(len(parts), 'cell')})", parts)],
    )


def estimates_table(estimates: Sequence[GoalEstimate], noun: str = "grid") -> Table:
    """Return a table of goal-directedness (MEG, in nats) with one line per agent and hypothesis (possible goal).

    ``estimates`` are those for one group of worlds; ``noun`` is the word for the groups over which their intervals are
    computed.
    """
    columns: TextColumns[GoalEstimate] = [
        ("agent", lambda entry: entry.agent),
        ("hypothesis", lambda entry: entry.hypothesis),
        ("MEG", lambda entry: _nats(entry.signed)),
        ("interval", lambda entry: _between(entry.low, entry.high)),
        ("bound", lambda entry: _nats(entry.bound_lowest if entry.signed < 0 else entry.bound)),
        ("share", lambda entry: "–" if math.isnan(entry.share) else short(entry.share, "share")),
        ("beta", lambda entry: "–" if math.isnan(entry.beta) else short(entry.beta, "nats")),
        ("cross-fitted", lambda entry: _nats(entry.cross_fitted)),
        ("null", lambda entry: _nats(entry.null)),
        ("null 95 %", lambda entry: _nats(entry.null_high)),
        ("n", lambda entry: str(entry.n)),
        *([("worlds", lambda entry: str(entry.worlds))] if noun != "world" else []),
        (f"{noun}s", lambda entry: str(entry.grids)),
        ("method", lambda entry: entry.method.replace("grid", noun)),
    ]
    return plain_table(estimates, columns, range(2, 13), caption=f"MEG in nats, {where(estimates[0].cell)}")


def note_lines(estimates: Sequence[GoalEstimate], noun: str = "grid") -> list[str]:
    """Return each note on estimates of goal-directedness once, with the agents and hypotheses to which it applies.

    ``noun`` is the word for the groups over which intervals are computed, such as "grid".
    """
    several = any(entry.cell != estimates[0].cell for entry in estimates)
    names_by_note: dict[str, list[str]] = {}
    for entry in estimates:
        for note in filter(None, entry.note.replace("grid", noun).split("; ")):
            name = f"{entry.agent}, {entry.hypothesis}"
            names_by_note.setdefault(note, []).append(f"{name}, {where(entry.cell)}" if several else name)
    return [
        f"{note} ({counted(len(names), 'line')}: {'; '.join(names[:_NAMED])}{'; ...' if len(names) > _NAMED else ''})"
        for note, names in names_by_note.items()
    ]


def contrasts_table(contrasts: Sequence[GoalContrast], noun: str = "grid") -> Table:
    """Return a table that compares an agent's goal-directedness towards two hypotheses (possible goals), one pair per
    line.

    ``noun`` is the word for the groups over which intervals are computed, such as "grid".
    """
    caption = TEXTS("meg/compared", tests=len(contrasts))
    columns: TextColumns[GoalContrast] = [
        ("agent", lambda contrast: contrast.agent),
        ("worlds", lambda contrast: where(contrast.cell)),
        ("hypotheses", lambda contrast: f"{contrast.first} − {contrast.second}"),
        ("difference (nats)", lambda contrast: _nats(contrast.difference)),
        ("interval", lambda contrast: _between(contrast.low, contrast.high)),
        ("p", lambda contrast: _p(contrast.p_value)),
        ("p (Holm)", lambda contrast: _p(contrast.adjusted)),
        (f"{noun}s that tell them apart", lambda contrast: f"{contrast.grids} of {contrast.common}"),
    ]
    table = plain_table(contrasts, columns, range(3, 8), caption=caption)
    return replace(table, notes=tuple(untold(contrasts)))


def untold(contrasts: Sequence[GoalContrast]) -> list[str]:
    """Return a sentence for each pair of hypotheses (possible goals) that an agent's worlds cannot tell apart, with the
    reason.
    """
    untold_ones = [contrast for contrast in contrasts if contrast.why_not]
    reasons = (f"{untold.why_not} ({where(untold.cell)})" if untold.cell else untold.why_not for untold in untold_ones)
    return [TEXTS("meg/untold", reason=reason) for reason in dict.fromkeys(reasons)]


def untold_in(store: Store) -> list[str]:
    """Return a sentence for each pair of hypotheses that the worlds of a run cannot tell apart, from its stored
    results.

    Empty if goal-directedness was not measured.

    Raises:
        ValueError: the stored results are invalid.
    """
    stored = store.info().get("meg")
    with _sound(store):
        return [] if stored is None else untold([_restored(GoalContrast, entry) for entry in stored["contrasts"]])


def held_out_table(entries: Sequence[HeldOut], noun: str = "grid") -> Table:
    """Return a table of goal-directedness (in nats) towards utilities that were fitted to agents, scored in held-out
    worlds.

    ``noun`` is the word for the groups over which intervals are computed, such as "grid".
    """
    columns: TextColumns[HeldOut] = [
        ("agent", lambda entry: entry.agent),
        ("worlds", lambda entry: where(entry.cell)),
        ("held-out", lambda entry: _nats(entry.value)),
        ("interval", lambda entry: _between(entry.low, entry.high)),
        ("random agent", lambda entry: _nats(entry.null)),
        ("interval", lambda entry: _between(entry.null_low, entry.null_high)),
        ("ridge", lambda entry: f"{entry.ridge:g}"),
        ("n", lambda entry: str(entry.n)),
        (f"{noun}s", lambda entry: str(entry.grids)),
        ("method", lambda entry: entry.method),
    ]
    return plain_table(entries, columns, range(2, 9), caption=TEXTS("meg/held out"))


def belief_words(beliefs: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe in sentences what goal-directedness relative to decoded beliefs rests on: probes, worlds and controls.

    ``beliefs`` is the description that `goalscope meg RUN --beliefs` stores.

    Raises:
        KeyError, TypeError, ValueError: it is not in this form.
    """
    worlds, settings, decoded = int(beliefs["worlds"]), beliefs["settings"], beliefs["decoded"]
    decoded_right = f"{int(decoded['none']['goal at its cell'])} of {worlds} worlds"
    kind = next((name for name in NETWORKS if name in decoded), "")
    network = NETWORKS[kind] if kind else ""
    if kind:
        count = int(decoded[kind]["goal at its cell"])
        decoded_right = TEXTS("meg/decoded also", right=decoded_right, network=network, count=count)
    grids = counted(int(settings["training grids"]), "grid")
    sentences = (
        TEXTS(
            "meg/decoded",
            agent=str(beliefs["agent"]),
            site=str(beliefs["site"]),
            layer=int(beliefs["layer"]),
            head=str(beliefs["head"]),
            grids=grids,
            others=int(settings["test grids"]),
            right=decoded_right,
        ),
        TEXTS("meg/shuffled", draws=counted(int(beliefs["draws"]), "draw")),
    )
    missing = str(beliefs["missing"] or "")
    last = missing or TEXTS("meg/one network", kind=f"{kind[:1].upper()}{kind[1:]}", network=network)
    return (*sentences, f"{last[:1].upper()}{last[1:]}")


def where(cell: Mapping[str, Tag]) -> str:
    """Describe in words the group of worlds to which an estimate belongs, given as tags with values; "all worlds"
    without any.
    """
    return describe_key(cell) or "all worlds"


def _figure(entries: Sequence[GoalEstimate], agents: Sequence[str]) -> Figure:
    style = {agent: index for index, agent in enumerate(agents)}
    differences = []
    for entry in entries:
        low, high = (entry.low, entry.high) if entry.low < entry.high else (math.nan, math.nan)
        details: dict[str, Any] = {"n": entry.n, "clusters": entry.grids, "method": entry.method, "unit": "nats"}
        estimate = Estimate(value=entry.signed, low=low, high=high, confidence=entry.confidence, **details)
        differences.append(ForestBar(entry.agent, style.get(entry.agent, len(style)), entry.hypothesis, estimate))
    differences.sort(key=lambda difference: difference.style)
    title = f"MEG by hypothesis, {where(entries[0].cell)}"
    return Figure(Forest(differences, title=title, x_label="signed MEG (nats per episode)"), title)


@contextmanager
def _sound(store: Store) -> Iterator[None]:
    """Raise a ValueError if stored results on goals cannot be read."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(TEXTS("meg/damaged", path=str(store.path), error=str(error))) from error


def _restored(kind: type[_Record], stored: Any) -> _Record:
    """Return a record from stored values, in which undefined numbers are None."""
    values = {name: math.nan if value is None else value for name, value in dict(stored).items()}
    return TypeAdapter(kind).validate_python(values)


def _nats(value: float) -> str:
    """Write nats with three decimals, very small ones with one significant digit."""
    if math.isnan(value):
        return "–"
    if 0 < abs(value) < 5e-4:
        return f"{value:.0e}".replace("-", "−")
    return short(value, "nats")


def _between(low: float, high: float) -> str:
    return "undefined" if math.isnan(low) else f"[{_nats(low)}, {_nats(high)}]"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.0001" if value < 1e-4 else f"{value:.2g}"
