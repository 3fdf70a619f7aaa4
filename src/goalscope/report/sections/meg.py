"""The section on goals: MEG of each agent towards each hypothesis, where `goalscope meg RUN` has measured it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from goalscope.measures.goals import GoalContrast, GoalEstimate, HeldOut
from goalscope.report.blocks import Table, TextColumns, counted, plain_table
from goalscope.report.charts import Difference, Forest
from goalscope.report.figures import short
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.specs import Declared, Figure, FoldSpec, section
from goalscope.report.verdicts import NETWORKS
from goalscope.rows import Tag
from goalscope.runs.walks import count_episodes
from goalscope.stats import Estimate

_Record = TypeVar("_Record", GoalEstimate, GoalContrast, HeldOut)

_NAMED = 3  # lines that a note names; the others are counted

_TEXT = (
    'Maximum-entropy goal-directedness: how much better than uniformly random actions does "it seeks this, more or '
    'less rationally" predict what the agent did, in nats an episode. A hypothesis pays 1 for every step that begins '
    "at its place (key held: with the key in hand), the true goal ends the episode, and one rationality beta holds for "
    "all worlds of a line. Signed: below 0 the agent gets less than a random one. The bound is what an optimal agent "
    "shows in these worlds (of a restricted class, what its own most rational member shows); null is what simulated "
    "random agents with the same counts show, mean and 95 % quantile; "
    "cross-fitted is the score of one half of the worlds at the beta of the other. Where the interval holds 0 the "
    "agent cannot be told from chance, and neither share nor beta is given."
)


@section("meg", source="MacDermott et al. (2024)", worlds="grids")
def goals(run: RunData) -> Iterator[Declared]:
    """MEG of each agent towards each hypothesis, where the run was measured so.

    Raises:
        ValueError: what is stored about goals cannot be ours.
    """
    store, stored = run.store, run.store.info().get("meg")
    if stored is None or not any(str(name).startswith("MEG towards") for name in run.measured.measures):
        return
    try:
        estimates = [_restored(GoalEstimate, entry) for entry in stored["estimates"]]
        contrasts = [_restored(GoalContrast, entry) for entry in stored["contrasts"]]
        held_out = [_restored(HeldOut, entry) for entry in stored["held_out"]]
        count, by = int(stored["episodes"]), [str(name) for name in stored["settings"]["by"]]
        believed = belief_words(stored["beliefs"]) if "beliefs" in stored else ()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{store.path} must hold sound figures of goals, but: {error}; goalscope meg RUN") from error
    cells: list[Mapping[str, Tag]] = []
    for entry in estimates:
        if entry.cell not in cells:
            cells.append(entry.cell)
    figures, plain, parts = [], [], []
    for cell in cells:
        mine = [entry for entry in estimates if entry.cell == cell]
        table = replace(estimates_table(mine), notes=tuple(note_lines(mine)))
        if len({line[-1] for line in table.rows}) == 1:  # a method that all share is said once
            table = replace(
                table,
                caption=f"{table.caption}; intervals: {table.rows[0][-1]}",
                headings=table.headings[:-1],
                rows=tuple(line[:-1] for line in table.rows),
            )
        if set(cell) & set(by):
            parts.append(table)
        else:
            plain.append(table)
            figures.append(_figure(mine, run.ledger.agents))
    plain += [contrasts_table(contrasts)] if contrasts else []
    plain += [held_out_table(held_out)] if held_out else []
    now = count_episodes(store)
    stale = f"These figures are of {count} episodes, the run holds {now}: goalscope meg RUN." if count != now else ""
    yield Declared(
        anchor="goals",
        title="What the agents are after",
        paragraphs=[text for text in (_TEXT, " ".join(believed), stale) if text],
        tables=plain,
        figures=figures,
        legend="Bars are intervals over grids.",
        folds=[FoldSpec(f"By {', '.join(by)} ({counted(len(parts), 'cell')})", parts)],
    )


def estimates_table(estimates: Sequence[GoalEstimate]) -> Table:
    """Return the table of the hypotheses of a cell."""
    columns: TextColumns[GoalEstimate] = [
        ("agent", lambda one: one.agent),
        ("hypothesis", lambda one: one.hypothesis),
        ("MEG", lambda one: _nats(one.signed)),
        ("interval", lambda one: _between(one.low, one.high)),
        ("bound", lambda one: _nats(one.bound_lowest if one.signed < 0 else one.bound)),
        ("share", lambda one: "–" if math.isnan(one.share) else short(one.share, "share")),
        ("beta", lambda one: "–" if math.isnan(one.beta) else short(one.beta, "nats")),
        ("cross-fitted", lambda one: _nats(one.cross_fitted)),
        ("null", lambda one: _nats(one.null)),
        ("null 95 %", lambda one: _nats(one.null_high)),
        ("n", lambda one: str(one.n)),
        ("worlds", lambda one: str(one.worlds)),
        ("grids", lambda one: str(one.grids)),
        ("method", lambda one: one.method),
    ]
    return plain_table(estimates, columns, range(2, 13), caption=f"MEG in nats, {where(estimates[0].cell)}")


def note_lines(estimates: Sequence[GoalEstimate]) -> list[str]:
    """Return what a reader must know beside some estimates, each note once with the lines that it belongs to."""
    several = any(entry.cell != estimates[0].cell for entry in estimates)
    found: dict[str, list[str]] = {}
    for entry in estimates:
        for note in filter(None, entry.note.split("; ")):
            name = f"{entry.agent}, {entry.hypothesis}"
            found.setdefault(note, []).append(f"{name}, {where(entry.cell)}" if several else name)
    return [
        f"{note} ({counted(len(names), 'line')}: {'; '.join(names[:_NAMED])}{'; ...' if len(names) > _NAMED else ''})"
        for note, names in found.items()
    ]


def contrasts_table(contrasts: Sequence[GoalContrast]) -> Table:
    """Return the table of comparisons of hypotheses."""
    caption = f"Hypotheses compared, paired by world; p (Holm) corrected for all {len(contrasts)} tests"
    columns: TextColumns[GoalContrast] = [
        ("agent", lambda one: one.agent),
        ("worlds", lambda one: where(one.cell)),
        ("hypotheses", lambda one: f"{one.first} − {one.second}"),
        ("difference (nats)", lambda one: _nats(one.difference)),
        ("interval", lambda one: _between(one.low, one.high)),
        ("p", lambda one: _p(one.p_value)),
        ("p (Holm)", lambda one: _p(one.adjusted)),
        ("grids", lambda one: str(one.grids)),
    ]
    return plain_table(contrasts, columns, range(3, 8), caption=caption)


def held_out_table(entries: Sequence[HeldOut]) -> Table:
    """Return the table of agents and cells with unknown utilities."""
    columns: TextColumns[HeldOut] = [
        ("agent", lambda one: one.agent),
        ("worlds", lambda one: where(one.cell)),
        ("held-out", lambda one: _nats(one.value)),
        ("interval", lambda one: _between(one.low, one.high)),
        ("random agent", lambda one: _nats(one.null)),
        ("interval", lambda one: _between(one.null_low, one.null_high)),
        ("ridge", lambda one: f"{one.ridge:g}"),
        ("n", lambda one: str(one.n)),
        ("grids", lambda one: str(one.grids)),
        ("method", lambda one: one.method),
    ]
    caption = "Unknown utility of states: log-probability of held-out halves of the episodes, nats"
    return plain_table(entries, columns, range(2, 9), caption=caption)


def belief_words(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what lines relative to beliefs rest on: probes, worlds, controls, and which control is missing.

    Raises:
        KeyError, TypeError, ValueError: it is not what `goalscope meg RUN --beliefs` stores.
    """
    worlds, settings, decoded = int(told["worlds"]), told["settings"], told["decoded"]
    right = f"{int(decoded['none']['goal at its cell'])} of {worlds} worlds"
    kind = next((name for name in ("untrained", *NETWORKS) if name in decoded), "")
    network = (
        NETWORKS["default-init" if kind == "untrained" else kind] if kind else ""
    )  # as runs of earlier versions say
    if kind:
        right += f" (from one network with random weights, {network}: {int(decoded[kind]['goal at its cell'])})"
    grids = counted(int(settings["training grids"]), "grid")
    found = (
        f"Beliefs are decoded at {told['site']}, layer {int(told['layer'])}, from {told['agent']} before its first "
        f"action, by a probe ({told['head']}) that was fitted on {grids} and is read on "
        f"{int(settings['test grids'])} others; the goal is decoded at its cell in {right}.",
        "Shuffled: what is decoded in another world of the same shape, mean of "
        f"{counted(int(told['draws']), 'draw')}; what it yields a belief yields by chance.",
    )
    if told["missing"]:
        text = str(told["missing"])
        return (*found, f"{text[:1].upper()}{text[1:]}")
    name = f"{kind[:1].upper()}{kind[1:]}"
    text = f"{name}: what a probe of the same form decodes from one network with random weights ({network})."
    return (*found, f"{text} A difference to one network is no difference to training: other seeds and kinds differ.")


def where(cell: Mapping[str, Tag]) -> str:
    """Return the worlds of a cell in words."""
    return describe_key(cell) or "all worlds"


def _figure(entries: Sequence[GoalEstimate], agents: Sequence[str]) -> Figure:
    style = {agent: index for index, agent in enumerate(agents)}
    differences = []
    for entry in entries:
        drawn = entry.low < entry.high  # false for NaN, too
        estimate = Estimate(
            value=entry.signed,
            low=entry.low if drawn else math.nan,
            high=entry.high if drawn else math.nan,
            n=entry.n,
            clusters=entry.grids,
            method=entry.method,
            unit="nats",
            confidence=entry.confidence,
        )
        differences.append(Difference(entry.agent, style.get(entry.agent, len(style)), entry.hypothesis, estimate))
    differences.sort(key=lambda one: one.style)
    title = f"MEG by hypothesis, {where(entries[0].cell)}"
    return Figure(Forest(differences, title=title, x_label="signed MEG (nats an episode)"), title)


def _restored(kind: type[_Record], plain: Any) -> _Record:
    """Return a record from the plain values that a store holds; a value of another type is refused."""
    values: dict[str, Any] = {}
    for name, wanted in kind.__annotations__.items():
        value = plain[name]
        if wanted is float:
            value = math.nan if value is None else float(value)
        elif wanted is int and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        elif wanted is str and not isinstance(value, str):
            raise ValueError(f"{name} must be text, got {value!r}")
        elif name == "cell" and not (
            isinstance(value, dict) and not any(isinstance(part, list | dict) for part in value.values())
        ):
            raise ValueError(f"cell must name tags, got {value!r}")
        values[name] = value
    return kind(**values)


def _nats(value: float) -> str:
    """Write nats with three decimals, very small ones with one digit that counts."""
    if math.isnan(value):
        return "–"
    if 0 < abs(value) < 5e-4:
        return f"{value:.0e}".replace("-", "−")
    return short(value, "nats")


def _between(low: float, high: float) -> str:
    return "undefined" if math.isnan(low) else f"[{_nats(low)}, {_nats(high)}]"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.0001" if value < 1e-4 else f"{value:.2g}"
