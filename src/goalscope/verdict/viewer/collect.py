"""Records for the viewer: a table of all episodes, shards with their steps, and the claims of evaluations.

A shard stores each distinct line of text and each distinct picture once; steps refer to them by number.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope.inside.interventions.experiment import TAG
from goalscope.inside.interventions.patching import FOLLOWS, KIND, PAIRS
from goalscope.measures.exploration.score import score_recorded
from goalscope.measures.table import PROVENANCE
from goalscope.measures.transcript import TranscriptStep
from goalscope.report.ledger import Run
from goalscope.runs.record import Episode, Step
from goalscope.stats.rows import WHOLE_EPISODE, Rows
from goalscope.verdict.arms import arms as all_arms
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.opening import runs_by_arm
from goalscope.verdict.rules import Rule
from goalscope.verdict.viewer.inside import Readings, inside_of, token_texts
from goalscope.worlds.dynamics import phase_index, shown, transitions
from goalscope.worlds.grid import KEY
from goalscope.worlds.things import known_kind
from goalscope.worlds.world import Drawing, World

SHARD_EPISODES: Final = 100
SHARD_LETTERS: Final = 4_000_000
"""Number of characters (and of episodes) at which a shard ends."""

_MOST_VALUES: Final = 60
"""Maximum number of distinct values of a tag that becomes a filter."""

_ORIGIN: Final = PROVENANCE | {"index"}
"""Tags that identify a single episode or world, so that they are not filters."""

_COLUMNS: Final = (
    *("id", "run", "agent", "world", "outcome", "steps", "invalid", "wrong", "shortest", "shard", "tags"),
    *("state", "moved", "first", "belief", "follows"),
)

Record = dict[str, Any]


ViewedRun = tuple[str, Run]
"""A run to be shown in the viewer, under a name: that of its folder, or of the arm of an evaluation."""
_LINE: Final = ("moved", "site", "layers", "layer")
_PATCH: Final = "patch"
_CHOSEN: Final[Mapping[str, Any]] = {TAG: KIND, "reading": "free", "component": "residual", "pairs": PAIRS[False]}
MOST: Final = 4
"""Maximum number of episodes listed on each side of a claim."""
_FIELDS: Final = ("name", "question", "answer", "says", "quantity", "threshold", "unit", "clusters", "n")


class _Numbers(dict[str, int]):
    """Distinct texts, numbered in order of first appearance."""

    def number(self, text: str) -> int:
        return self.setdefault(text, len(self))


@dataclass(slots=True)
class EpisodeList:
    """The table of all episodes on a viewer page. The page always contains it completely; the steps of episodes are in
    separate files (shards).

    Attributes:
        columns: one list per column, with one value per episode.
        runs, agents, worlds, outcomes: names to which columns refer by number.
        tags: name of a tag (a named fact about an episode) -> its distinct values as text, for filters; the column
            "tags" holds their numbers.
        measures: names of measures of episodes and of steps, to which records refer by number.
        states: the states in which a move was also requested with one thing changed; "moved" says what was changed.
        left_out: measures with several values per episode or step, such as those of probes, which are not shown.
        notes: which parts of a run could not be read, and what its decoded maps are.
        repeats: how often each id of an episode occurred.
    """

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    runs: list[str] = field(default_factory=list)
    agents: _Numbers = field(default_factory=_Numbers)
    worlds: _Numbers = field(default_factory=_Numbers)
    outcomes: _Numbers = field(default_factory=_Numbers)
    tags: dict[str, _Numbers] = field(default_factory=dict)
    measures: _Numbers = field(default_factory=_Numbers)
    states: _Numbers = field(default_factory=_Numbers)
    moved: _Numbers = field(default_factory=_Numbers)
    left_out: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)

    def distinct(self, identity: str) -> str:
        """Return the id of the next episode on the page; if an earlier run has an episode with this id, a number is
        inserted.
        """
        number = self.repeats[identity] = self.repeats.get(identity, 0) + 1
        return identity if number == 1 else identity.replace("-", f"-{number}-", 1)

    def plain(self) -> Record:
        """Return the table as a dictionary of JSON values, without tags that are useless as filters."""
        useful = {name: tag for name, tag in self.tags.items() if 2 <= len(tag) <= _MOST_VALUES and name not in _ORIGIN}
        tags = {name: [row.get(name, -1) for row in self.columns["tags"]] for name in useful}
        return {
            "columns": {name: column for name, column in self.columns.items() if name != "tags"} | {"tags": tags},
            "runs": self.runs,
            **{name: list(getattr(self, name)) for name in ("agents", "worlds", "outcomes", "measures")},
            "tags": {name: list(tag) for name, tag in useful.items()},
            "moved": list(self.moved),
            "left_out": sorted(self.left_out),
            "notes": self.notes,
        }


@dataclass(slots=True)
class _Shard:
    """The records of some episodes; `letters` counts their characters."""

    episodes: list[Record] = field(default_factory=list)
    lines: _Numbers = field(default_factory=_Numbers)
    drawings: _Numbers = field(default_factory=_Numbers)
    worlds: dict[str, Record] = field(default_factory=dict)
    letters: int = 0

    def text(self, text: str | None) -> list[int] | None:
        """Return the numbers of the lines of a text."""
        if text is None:
            return None
        lines = text.split("\n")
        self.letters += 6 * len(lines)
        self.letters += sum(len(line) for line in dict.fromkeys(lines) if line not in self.lines)
        return [self.lines.number(line) for line in lines]

    def drawing(self, drawing: Drawing | None) -> list[Any] | None:
        """Return the number of a drawing and the cell of its agent."""
        if drawing is None:
            return None
        plain = {
            "rows": drawing.rows,
            "labels": drawing.labels,
            "nodes": list(drawing.nodes.items()),
            "edges": drawing.edges,
        }
        text = json.dumps({name: value for name, value in plain.items() if value})
        self.letters += len(text) if text not in self.drawings else 0
        return [self.drawings.number(text), *(drawing.agent or ())]

    def plain(self) -> Record:
        return {
            "episodes": self.episodes,
            "worlds": self.worlds,
            "lines": list(self.lines),
            "drawings": list(map(json.loads, self.drawings)),
        }


def collect(sources: Sequence[ViewedRun], table: EpisodeList) -> Iterator[Record]:
    """Yield the steps of all episodes of some runs for a viewer page, and fill the table of these episodes.

    Args:
        sources: name and run for each run.
        table: the table to fill, empty at first.

    Yields:
        Shards: dictionaries of JSON values, each with the steps of some episodes.
    """
    shard, number = _Shard(), 0
    for place, (name, run) in enumerate(sources):
        table.runs.append(name)
        rows = run.rows()
        values, exchanged = _values(rows, table), patched(rows)
        readings, note = inside_of(run)
        if note:
            table.notes[name] = note
        for episode, steps in run.transcripts():
            shard.episodes.append(_episode(episode, steps, shard, table, values.get(episode.id, {}), readings))
            shard.episodes[-1]["id"] = table.distinct(episode.id)
            if (places := exchanged.get(episode.world.cluster_id)) is not None:
                shard.worlds[episode.world.id]["patched"] = places
            _enter(table, place, number, episode, shard.episodes[-1])
            if len(shard.episodes) >= SHARD_EPISODES or shard.letters >= SHARD_LETTERS:
                yield shard.plain()
                shard, number = _Shard(), number + 1
    if shard.episodes:
        yield shard.plain()


def _enter(table: EpisodeList, run: int, shard: int, episode: Episode, record: Record) -> None:
    """Add an episode to the table."""
    best = [step["best"] for step in record["steps"]]
    has_optimum = any(optimal is not None for optimal in best)
    wrong = sum(step["a"] is not None and step["a"] not in (step["best"] or ()) for step in record["steps"])
    tags = {**episode.world.tags, **episode.tags}
    changed: Any = episode.world if "changed" in episode.world.offers else None
    beliefs = [(step["belief"], step) for step in record["steps"] if "belief" in step]
    entry = {
        "id": record["id"],
        "run": run,
        "agent": table.agents.number(episode.agent),
        "world": table.worlds.number(episode.world.id),
        "outcome": table.outcomes.number(episode.outcome),
        "steps": len(episode.steps),
        "invalid": sum(failure is not None for failure in episode.column("failure")),
        "wrong": wrong if has_optimum else None,
        "shortest": record["steps"][0]["from"] if record["steps"] else None,
        "shard": shard,
        "state": -1 if changed is None else table.states.number(changed.original),
        "moved": -1 if changed is None else table.moved.number(changed.moved),
        "first": record["steps"][0]["a"] if record["steps"] else None,
        "belief": round(sum(belief["wrong"][0] for belief, _ in beliefs) / len(beliefs), 4) if beliefs else None,
        # Turns that are wrong in truth and right on the decoded map.
        "follows": sum(
            step["a"] in belief["fits"] and step["a"] not in (step["best"] or ()) for belief, step in beliefs
        ),
        "tags": {
            name: table.tags.setdefault(name, _Numbers()).number(str(value)[:80])
            for name, value in tags.items()
            if value is not None
        },
    }
    for name, value in entry.items():
        table.columns[name].append(value)


def _episode(
    episode: Episode,
    steps: Iterable[TranscriptStep],
    shard: _Shard,
    table: EpisodeList,
    values: Mapping[int, Mapping[int, float]],
    readings: Readings,
) -> Record:
    """Return the record of an episode."""
    shard.worlds.setdefault(episode.world.id, _world(episode.world, shard))
    records, actions = list[Record](), tuple[str, ...]()
    for entry in steps:
        actions = entry.actions or actions
        records.append(_step(episode.world, entry, shard, values.get(entry.step.index, {})))
        records[-1].update(_read(episode.id, entry.step, shard, readings))
    for step, errors in zip(records, _errors(episode), strict=False):
        step["errors"] = errors
    return {
        "id": episode.id,
        "world": episode.world.id,
        "horizon": episode.spec.horizon,
        "trajectory": episode.spec.trajectory,
        "actions": actions,
        "tags": {name: str(value) for name, value in {**episode.world.tags, **episode.tags}.items()},
        "end": shard.drawing(_picture(episode.world, episode.final)),
        "phase": _counted(episode.world, episode.final).get("phase"),
        "measures": values.get(WHOLE_EPISODE, {}),
        "steps": records,
    }


def _read(episode: str, step: Step, shard: _Shard, readings: Readings) -> Record:
    """Return what probes decoded at a step, and from which tokens; empty if nothing was decoded."""
    key, record = (episode, step.index), Record()
    if (belief := readings.maps.get(key)) is not None:
        decoded, control = (shard.drawing(Drawing(rows=rows)) for rows in (belief.own, belief.control))
        record["belief"] = {"own": decoded, "control": control, "wrong": belief.wrong, "fits": belief.fits}
    if key in readings.plans:
        record["plan"] = readings.plans[key]
    if key in readings.sites:
        ids = [*(step.prompt_tokens or ()), *(step.output_tokens or ())]
        texts = token_texts(readings.tokenizer, ids)
        record["tokens"] = [shard.lines.number(text) for text in texts]
        shard.letters += 6 * len(ids)
        record["sites"] = readings.sites[key]
    return record


def _errors(episode: Episode) -> list[list[str]]:
    """Return the errors of each step in a task world; [] for every step in other worlds."""
    if "tasks" not in episode.world.offers:
        return []
    try:
        return [sorted(step.attribution) for step in score_recorded(episode).steps]
    except ValueError:  # of a log whose actions do not fit its map
        return []


def _world(world: World, shard: _Shard) -> Record:
    """Return what the page needs to know about a world.

    For a grid with a goal, also what the page needs to solve it. In a grid with things that is a table in which each
    state and action has the number of the next state, less that of the state. It holds for every place of the goal and
    of the agent.
    """
    record: Record = {"kind": world.kind, "cluster": world.cluster_id}
    if "grid" in world.offers and world.grid.goal is not None:
        grid = world.grid
        record["grid"] = {
            "rows": ["".join("#" if wall else "_" for wall in row) for row in grid.walls.tolist()],
            **{name: cell for name, cell in grid.objects.items() if cell is not None},
        }
        if grid.things:
            table = transitions(grid)
            record["grid"]["things"] = [cell for cell, _ in grid.things]
            record["grid"]["leaps"] = (table - np.arange(len(table))[:, None]).ravel().tolist()
            shard.letters += 3 * table.size
    return record


def _counted(world: World, state: Any) -> Record:
    """Return the number of a state's phase or configuration, and the names of the things that the agent carries there.

    The record is empty in worlds without a grid, and for a state that the grid does not have.
    """
    if "grid" not in world.offers:
        return {}
    try:
        held = shown(world.grid, state).held if world.grid.things else ()
        names = ["key" if symbol == KEY else known_kind(symbol).name for symbol in held]
        return {"phase": phase_index(world.grid, state), "held": names or None}
    except ValueError:
        return {}


def _picture(world: World, state: Any) -> Drawing | None:
    """Return a picture of a world.

    None if there is none or it cannot be drawn here, and the page shows text instead.
    """
    try:
        return world.drawing(state)
    except (ImportError, ValueError):
        return None


def _step(world: World, entry: TranscriptStep, shard: _Shard, values: Mapping[int, float]) -> Record:
    """Return the record of a step, without unknown values."""
    step, verdict = entry.step, entry.verdict
    truth = _picture(world, step.state)
    record = {
        "a": None if step.action is None else int(step.action),
        "failure": step.failure,
        "best": entry.optimal,
        "from": verdict.before,
        "to": verdict.after,
        **_counted(world, step.state),
        "policy": None if entry.policy is None else [round(chance, 4) for chance in entry.policy],
        "reward": step.reward,
        "draw": shard.drawing(truth),
        "saw": None if entry.picture is None or entry.picture == truth else shard.drawing(entry.picture),
        "text": shard.text(entry.prompt if entry.prompt is not None else entry.seen),
        "prompt": entry.prompt is not None or None,
        "reasoning": shard.text(step.reasoning),
        "answer": shard.text(step.text),
        "tries": [[shard.text(text), failure] for text, failure in entry.attempts] or None,
        "measures": dict(values) or None,
    }
    keys = ("a", "best", "from")
    return {name: value for name, value in record.items() if value is not None or name in keys}


def _values(rows: Rows, table: EpisodeList) -> dict[str, dict[int, dict[int, float]]]:
    """Return episode -> step (-1 for the whole episode) -> number of a measure -> value, for measures with a single
    value.
    """
    rows = rows.where(~rows.among("episode_id", [""]))
    (codes, names), (identities, ids) = rows.numbered("measure"), rows.numbered("episode_id")
    keys = np.stack([codes, identities, rows.step], axis=1)
    _, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    several = {names[code] for code in np.unique(codes[counts[inverse.reshape(-1)] > 1]).tolist()}
    table.left_out |= several
    result: dict[str, dict[int, dict[int, float]]] = {}
    for at in np.flatnonzero(np.isfinite(rows.value)).tolist():
        if names[codes[at]] not in several:
            by_step = result.setdefault(ids[identities[at]], {}).setdefault(int(rows.step[at]), {})
            by_step[table.measures.number(names[codes[at]])] = round(float(rows.value[at]), 6)
    return result


def patched(rows: Rows) -> dict[str, list[list[Any]]]:
    """Return what patching activations changed in each grid, as JSON values for the viewer.

    Pairs with the same optimal actions in both grids are left out, as in the report.

    Args:
        rows: results of the interventions of a run.

    Returns:
        Cluster of a grid -> one list per place in the network: [thing moved, site, layers, {kind of patch: [share of
        patched runs whose move follows the source, number of patched runs]}]. A site is a position in the prompt.
    """
    tags = rows.tags
    if not {*_CHOSEN, *_LINE, _PATCH} <= set(tags):
        return {}
    selected = rows.measure == FOLLOWS
    for name, value in _CHOSEN.items():
        selected &= rows.among(name, [value])
    if "structural" in tags:  # places that cannot move anything, whatever the model does
        selected &= ~rows.known("structural")
    chosen = rows.where(selected)
    columns = [chosen[name].tolist() for name in (*_LINE, _PATCH)]
    entries = zip(chosen.cluster.tolist(), chosen.value.tolist(), *columns, strict=True)
    found: dict[str, dict[tuple[str, ...], dict[str, list[float]]]] = {}
    for cluster, value, moved, site, layers, layer, patch in entries:
        if value == value:  # not undefined
            place = (str(moved), str(site), str(layers) if layer is None else f"layer {layer}")
            found.setdefault(cluster, {}).setdefault(place, {}).setdefault(str(patch), []).append(value)
    return {
        cluster: [
            [*place, {patch: [round(sum(values) / len(values), 3), len(values)] for patch, values in by.items()}]
            for place, by in sorted(places.items())
        ]
        for cluster, places in found.items()
    }


def claims_of(evaluation: Evaluation, places: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the claims of an evaluation as JSON values for the viewer, with links to the episodes behind them.

    If the rule of a claim names a measure, the ids of the episodes with its highest and lowest values are given,
    otherwise only the run.

    Args:
        evaluation: a judged evaluation.
        places: path of a run -> number of this run in the viewer.
    """
    arms = runs_by_arm(evaluation.directory)
    # An arm that looks inside has the run of another one.
    arms |= {arm.name: arms[arm.looks.at] for arm in all_arms() if arm.looks is not None and arm.looks.at in arms}
    rules: dict[str, Rule] = {name: registry.resolve("claim", name) for name in registry.names("claim")}
    claims = []
    for number, ledger in enumerate(evaluation.models):
        for claim in ledger.claims:
            run = _run_of(arms.get(claim.arm, ()), number, ledger.model)
            measure = rules[claim.name].measure if claim.name in rules else ""
            high, low = ([], []) if run is None or not measure else _extremes(run, measure, ledger.model)
            claims.append(
                {
                    "model": ledger.model,
                    **{name: getattr(claim, name) for name in _FIELDS},
                    "estimate": claim.attributed_estimate,
                    "run": None if run is None else places.get(str(run.path)),
                    "measure": measure,
                    "high": high,
                    "low": low,
                }
            )
    return claims


def _run_of(runs: Sequence[Run], number: int, model: str) -> Run | None:
    """Return the run of a model in an arm: the run that contains the model, otherwise the run at its position."""
    named = [run for run in runs if model in run.agents]
    return named[0] if named else runs[number] if number < len(runs) else None


def _extremes(run: Run, measure: str, model: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return [id, value] of a model's episodes with the highest and the lowest values; ties are ordered by id."""
    rows = run.rows()
    rows = rows.where((rows.measure == measure) & (rows.episode_id != "") & np.isfinite(rows.value))
    if "agent" in rows.tags and (rows.tags["agent"] == model).any():
        rows = rows.where(rows.tags["agent"] == model)
    values = dict(zip(rows.episode_id.tolist(), rows.value.tolist(), strict=True))
    if len(set(values.values())) < 2:  # none decides more than another one
        return [[identity, round(value, 4)] for identity, value in sorted(values.items())[:MOST]], []
    order = sorted(values, key=lambda identity: (values[identity], identity))
    half = min(MOST, len(order) // 2)
    low, high = order[:half], order[::-1][:half]
    return ([[identity, round(values[identity], 4)] for identity in part] for part in (high, low))  # type: ignore[return-value]
