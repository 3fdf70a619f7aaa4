"""Measure, store and return the maximum-entropy goal-directedness (MEG) of the agents of a run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goalscope._ground.own import consent
from goalscope._ground.progress import TALLY, Stage, aloud, duration, lines
from goalscope._ground.words import counted
from goalscope.goals import RunDirectedness, directedness, held_out_goals
from goalscope.goals.asked import asked_hypotheses
from goalscope.goals.decision import findings
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.definition import Hypothesis
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.reading import phases_in, remembers
from goalscope.inside.beliefs import DRAWS, joined, measure_decoded_beliefs
from goalscope.measures.table import StepTable
from goalscope.report.reading import Run
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes, episode_column_parts, parts_of
from goalscope.runs.packed_steps import HAS_EXTRA
from goalscope.worlds.world import World

SOURCE = "meg"
"""Source of the rows in a store, and key of the stored estimates."""


def towards(
    run: str | Path | Run,
    *,
    by: Sequence[str] = (),
    hypotheses: Sequence[str] = (),
    utility: str = "",
    invalid: str = "",
    confidence: float = 0.95,
    unknown: bool = False,
    ridge: float = 1.0,
    beliefs: str = "",
    draws: int | None = None,
    stage: Stage = lines,
) -> RunDirectedness:
    """Measure how goal-directed the agents of a run are, in nats, and towards which goal; store rows and figures.

    Args:
        run: the run directory.
        by: also group by these tags, e.g. ``("size",)``.
        hypotheses: written forms, e.g. ``("goal", "corner top-left", "beside goal")``, or names of goals that the
            worlds define; empty for the default goals of these worlds.
        utility: "steps" (each step that starts in a goal state is rewarded, the default) or "arrival" (only the last
            state is).
        invalid: how to count a turn without a valid move: "no-op" (the default) or "action".
        confidence: confidence level of the intervals.
        unknown: whether to also find the utility over states that best predicts the agent, on held-out episodes.
        ridge: penalty of the unknown utility.
        beliefs: "SITE:LAYER" of captured activations, to also measure MEG towards the decoded goal; "" for none.
        draws: number of shuffled controls for ``beliefs``; None for the default number.
        stage: shows the progress of a task.

    Raises:
        ValueError: if the run contains no episodes, or an option does not apply to its worlds.
    """
    if draws is not None and not beliefs:
        raise ValueError("--draws is the number of shuffles of --beliefs: add --beliefs SITE:LAYER")
    consent(list(hypotheses))
    path = run.path if isinstance(run, Run) else Path(run)
    choices = {"utility": utility, "invalid": invalid}
    options: dict[str, Any] = {name: value for name, value in choices.items() if value} | {"confidence": confidence}
    with aloud():
        began = time.monotonic()
        measured, total = _measured(
            path,
            options,
            by=tuple(by),
            hypotheses=tuple(hypotheses),
            unknown=unknown,
            ridge=ridge,
            beliefs=beliefs,
            draws=draws,
            stage=stage,
        )
        with Store(path, "w") as store:
            store.put_rows(measured.rows, source=SOURCE)
            store.put_info(SOURCE, measured.to_plain())
        TALLY.tell(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}")
    return measured


def _measured(
    path: Path,
    options: dict[str, Any],
    *,
    by: tuple[str, ...],
    hypotheses: tuple[str, ...],
    unknown: bool,
    ridge: float,
    beliefs: str,
    draws: int | None,
    stage: Stage,
) -> tuple[RunDirectedness, int]:
    """Return the directedness of the agents of a run, and the number of its episodes."""
    with Store(path) as store:
        total, worlds = count_episodes(store), _worlds(store)
        if not total:
            raise ValueError(f"{path} contains no episodes to measure: run its study first")
        tasks, grids = (all(offer in world.offers for world in worlds) for offer in ("tasks", "cells"))
        if beliefs and (tasks or not grids):
            raise ValueError(
                f"--beliefs works only in grids, but {path} has other worlds (e.g. task worlds): leave it out"
            )
        tested_hypotheses = asked_hypotheses(hypotheses, worlds)
        relative = None
        if beliefs:  # first, to report a site that was not captured at once
            relative = _relative_to_beliefs(path, beliefs, options, DRAWS if draws is None else draws, stage)
        if not grids and any("cells" in world.offers for world in worlds):
            raise ValueError(
                f"MEG cannot be measured in grids and other worlds together, but {path} has both: run them separately"
            )
        del worlds  # many of them are large
        states = [entry for part in _parts(store, grids=grids, tasks=tasks) for entry in states_of(part, by=by)]
    with stage("curves of worlds") as show:
        measured = directedness(states, tested_hypotheses, by=by, progress=show, **options)
    if unknown:
        with stage("unknown utilities") as show:
            without = {name: value for name, value in options.items() if name != "utility"}
            held_out = held_out_goals(states, total=total, ridge=ridge, progress=show, **without)
        measured = replace(measured, held_out=held_out)
    measured = measured if relative is None else joined([measured, relative])
    with stage("what each agent is after"):
        return replace(measured, findings=tuple(_findings(path, states, tested_hypotheses))), total


def _findings(path: Path, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> list[Finding]:
    """Return the goal of each agent. The store says whether agents see their earlier steps, which states may lack."""
    with Store(path) as store:
        phases = phases_in(store.study())
        remembers_by_agent = {
            agent: remembers(store, agent) for agent in dict.fromkeys(state.agent for state in states)
        }
    states_with_memory = [
        replace(state, remembers=state.remembers or remembers_by_agent[state.agent]) for state in states
    ]
    return findings(states_with_memory, hypotheses, phases=phases)


def _parts(store: Store, *, grids: bool, tasks: bool) -> Iterator[StepTable]:
    """Yield the episodes of a run in parts of whole worlds; on grids without texts if no step has extra values."""
    # Exact policies are stored as extra values of steps; without them, actions and states suffice.
    ((extra,),) = store.query(f"SELECT EXISTS (SELECT 1 FROM steps WHERE {HAS_EXTRA})")
    if grids and not tasks and not extra:
        yield from (StepTable.from_columns(columns) for columns, _ in episode_column_parts(store))
        return
    for worlds in parts_of(store):
        yield StepTable.from_episodes(store.episodes(worlds=worlds), tasks=tasks)


def _worlds(store: Store) -> list[World]:
    """Return the worlds of the episodes of a run, in the order of their ids."""
    return [
        store.world(str(identity))
        for (identity,) in store.query("SELECT DISTINCT world_id FROM episodes ORDER BY world_id")
    ]


def _relative_to_beliefs(
    path: Path, place: str, options: Mapping[str, Any], draws: int, stage: Stage
) -> RunDirectedness:
    """Return the MEG relative to beliefs decoded at a site and layer, e.g. "pre:3", and report the probes used."""
    site, separator, layer = place.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must be SITE:LAYER of captured activations, e.g. pre:3, got {place!r}")
    findings, probing = measure_decoded_beliefs(path, site=site, layer=int(layer), draws=draws, stage=stage, **options)
    models = {name: "the agent's model" if name == "none" else f"{name} weights" for name in probing.probes}
    states = (f"{models[name]} {'fitted' if name in probing.fitted else 'used again'}" for name in probing.probes)
    TALLY.tell(f"probes at {site}, layer {layer}: {', '.join(states)}")
    return findings
