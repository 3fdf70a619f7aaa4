"""Maximum-entropy goal-directedness of the agents of a run: measured, stored, returned."""

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
"""Source of the rows in a store, and name of the setting with the estimates of the cells."""


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
    """Measure how goal-directed the agents of a run are, in nats, and towards what; rows and figures are stored.

    Args:
        run: the run directory.
        by: also by these tags, e.g. ``("size",)``.
        hypotheses: written forms, e.g. ``("goal", "corner top-left", "beside goal")``, or names of goals that the
            worlds declare; empty for the usual ones of these worlds.
        utility: "steps" (each decision that begins in a state pays, the default) or "arrival" (the state at the end).
        invalid: what a turn without an action is: "no-op" (the default) or "action".
        confidence: coverage of the intervals.
        unknown: whether also the best of all utilities over states is found, held out.
        ridge: its penalty.
        beliefs: "SITE:LAYER" of captured activations: also towards the goal that they speak of; "" for none.
        draws: shuffles beside it; None for the usual number.
        stage: shows the progress of a piece of work.

    Raises:
        ValueError: the run holds no episodes, or an option does not fit its worlds.
    """
    if draws is not None and not beliefs:
        raise ValueError("--draws must come with --beliefs SITE:LAYER, whose shuffles it counts, got it alone")
    consent(list(hypotheses))
    path = run.path if isinstance(run, Run) else Path(run)
    given = {"utility": utility, "invalid": invalid}
    options: dict[str, Any] = {name: value for name, value in given.items() if value} | {"confidence": confidence}
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
            raise ValueError(f"a run must hold episodes to be measured, but {path} holds none")
        tasks, grids = (all(offer in world.offers for world in worlds) for offer in ("tasks", "cells"))
        if beliefs and (tasks or not grids):
            raise ValueError(
                "--beliefs must name activations in grids, got a run in other ones (task worlds): leave it out"
            )
        asked = asked_hypotheses(hypotheses, worlds)
        relative = None
        if beliefs:  # first, so that a site that was not captured is reported at once
            relative = _relative_to_beliefs(path, beliefs, options, DRAWS if draws is None else draws, stage)
        if not grids and any("cells" in world.offers for world in worlds):
            raise ValueError(
                "MEG must be measured in grids or in other worlds, got a run with both: their episodes have other "
                "measures, run them apart"
            )
        del worlds  # many of them are large
        states = [entry for part in _parts(store, grids=grids, tasks=tasks) for entry in states_of(part, by=by)]
    with stage("curves of worlds") as show:
        measured = directedness(states, asked, by=by, progress=show, **options)
    if unknown:
        with stage("unknown utilities") as show:
            without = {name: value for name, value in options.items() if name != "utility"}
            held_out = held_out_goals(states, total=total, ridge=ridge, progress=show, **without)
        measured = replace(measured, held_out=held_out)
    measured = measured if relative is None else joined([measured, relative])
    with stage("what each agent is after"):
        return replace(measured, findings=tuple(_findings(path, states, asked))), total


def _findings(path: Path, states: Sequence[States], asked: Mapping[str, Hypothesis]) -> list[Finding]:
    """Return what each agent is after; whether it is shown its earlier steps is read here, states may lack that."""
    with Store(path) as store:
        phases = phases_in(store.study())
        shown = {agent: remembers(store, agent) for agent in dict.fromkeys(one.agent for one in states)}
    known = [replace(one, remembers=one.remembers or shown[one.agent]) for one in states]
    return findings(known, asked, phases=phases)


def _parts(store: Store, *, grids: bool, tasks: bool) -> Iterator[StepTable]:
    """Yield the episodes of a run in parts of whole worlds; on grids without texts where steps have no extra values."""
    # Exact policies are extra values of steps; without any, actions and states suffice.
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
    path: Path, where: str, options: Mapping[str, Any], draws: int, stage: Stage
) -> RunDirectedness:
    """Return MEG relative to the beliefs decoded at a site and layer, e.g. "pre:3"; tell which probes decoded them."""
    site, separator, layer = where.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must name a site and a layer that were captured, e.g. pre:3, got {where!r}")
    findings, probing = measure_decoded_beliefs(path, site=site, layer=int(layer), draws=draws, stage=stage, **options)
    models = {name: "the agent's model" if name == "none" else f"{name} weights" for name in probing.probes}
    states = (f"{models[name]} {'fitted' if name in probing.fitted else 'used again'}" for name in probing.probes)
    TALLY.tell(f"probes at {site}, layer {layer}: {', '.join(states)}")
    return findings
