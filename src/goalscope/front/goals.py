"""Maximum-entropy goal-directedness of the agents of a run: measured, stored, returned."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from goalscope.checks import near_miss
from goalscope.hypotheses import Undefined, bind, finite_world, parse
from goalscope.measures.goals import (
    DRAWS,
    GoalFindings,
    GoalSettings,
    goal_settings,
    held_out_goals,
    joined,
    measure_decoded_beliefs,
    measure_goals_by_parts,
    measure_restricted,
)
from goalscope.measures.goals.settings import HYPOTHESES
from goalscope.measures.table import StepTable
from goalscope.meg.restricted import Unseen
from goalscope.own import consent
from goalscope.progress import TALLY, Stage, aloud, duration, lines
from goalscope.report.blocks import counted
from goalscope.report.reading import Run
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes, episode_column_parts, parts_of
from goalscope.runs.packed_steps import HAS_EXTRA
from goalscope.worlds.grid import Position
from goalscope.worlds.world import World

SOURCE = "meg"
"""Source of the rows in a store, and name of the setting with the estimates of the cells."""


def meg(
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
    seen: str = "",
    stage: Stage = lines,
) -> GoalFindings:
    """Say how goal-directed the agents of a run are, in nats, and towards what; rows and figures are stored.

    Args:
        run: the run directory.
        by: also by these tags, e.g. ``("size",)``.
        hypotheses: goals, e.g. ``("goal", "top-left")``, in grids also written places, e.g. ``"beside goal"``; empty
            for all that make sense there.
        utility: "steps" (spent there, the default) or "arrival" (being there last).
        invalid: what a turn without an action is: "no-op" (the default) or "action".
        confidence: coverage of the intervals.
        unknown: whether also the best of all utilities over states is found, held out.
        ridge: its penalty.
        beliefs: "SITE:LAYER" of captured activations: also towards the goal that they speak of; "" for none.
        draws: shuffles beside it; None for the usual number.
        seen: an additional restricted class of policies, see `goalscope.meg.restricted.Unseen`; "" for none.
        stage: shows the progress of a piece of work.

    Raises:
        ValueError: the run holds no episodes, or an option does not fit its worlds.
    """
    if draws is not None and not beliefs:
        raise ValueError("--draws must come with --beliefs SITE:LAYER, whose shuffles it counts, got it alone")
    consent(list(hypotheses))
    path = run.path if isinstance(run, Run) else Path(run)
    given = {"by": tuple(by), "hypotheses": tuple(hypotheses), "utility": utility, "invalid": invalid}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    with aloud():
        began = time.monotonic()
        findings, total = _measured(
            path,
            options,
            confidence,
            unknown=unknown,
            ridge=ridge,
            beliefs=beliefs,
            draws=draws,
            seen=seen,
            stage=stage,
        )
        with Store(path, "w") as store:
            store.put_rows(findings.rows, source=SOURCE)
            store.put_info(SOURCE, findings.to_plain())
        TALLY.tell(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}")
    return findings


def _measured(
    path: Path,
    options: dict[str, Any],
    confidence: float,
    *,
    unknown: bool,
    ridge: float,
    beliefs: str,
    draws: int | None,
    seen: str,
    stage: Stage,
) -> tuple[GoalFindings, int]:
    """Return what the goals of a run are found to be, and the number of its episodes."""
    with Store(path) as store:
        total, worlds = count_episodes(store), _worlds(store)
        if not total:
            raise ValueError(f"a run must hold episodes to be measured, but {path} holds none")
        tasks, grids = (all(offer in world.offers for world in worlds) for offer in ("tasks", "cells"))
        if beliefs and (tasks or not grids):
            raise ValueError(
                "--beliefs must name activations in grids, got a run in other ones (task worlds): leave it out"
            )
        settings = goal_settings(worlds, confidence=confidence, **options, **written_places(worlds, options))
        relative = []
        if beliefs:  # first, so that a site that was not captured is reported at once
            relative = [_relative_to_beliefs(path, beliefs, settings, DRAWS if draws is None else draws, stage)]
        if not grids and any("cells" in world.offers for world in worlds):
            raise ValueError(
                "MEG must be measured in grids or in other worlds, got a run with both: their episodes have other "
                "measures, run them apart"
            )
        del worlds  # many of them are large
        if seen:
            parts = _parts(store, grids=grids, tasks=tasks)
            with stage("episodes as their agents saw the worlds") as show:
                relative.append(
                    measure_restricted(parts, settings, unseen=cast(Unseen, seen), total=total, progress=show)
                )
        with stage("curves of worlds") as show:
            findings = measure_goals_by_parts(_parts(store, grids=grids, tasks=tasks), settings, progress=show)
        if unknown:
            with stage("unknown utilities") as show:
                held_out = held_out_goals(
                    _parts(store, grids=grids, tasks=tasks), settings, total=total, ridge=ridge, progress=show
                )
            findings = replace(findings, held_out=held_out)
    return joined([findings, *relative]) if relative else findings, total


def written_places(worlds: Sequence[World], options: Mapping[str, Any], *, anywhere: bool = False) -> dict[str, Any]:
    """Return the setting ``cells`` of `GoalSettings` for hypotheses that are written places, such as ``beside goal``.

    Args:
        worlds: in which they are looked for.
        options: those of the settings; ``hypotheses`` may hold names as well.
        anywhere: whether a place may have no cell in any of the worlds: others may have it.

    Raises:
        ValueError: neither a name nor a place, or a place that has no cell in any of the worlds.
    """
    named = set(goal_settings(worlds).named)
    cells: dict[str, dict[str, Position]] = {}
    for name in options.get("hypotheses", ()):
        if name in (known := (*HYPOTHESES, "wrong goal", *named)):
            continue
        asked = (
            f"MEG of a run must be asked towards names ({', '.join(known)}) or, in grids, written places, got {name!r}"
        )
        try:
            one = bind(parse(name), worlds)
        except ValueError as error:
            raise ValueError(f"{asked}{near_miss(name, known)}") from error
        if one.kind != "place" or not all("cells" in world.offers for world in worlds):
            raise ValueError(f"{asked}, a {one.kind}: goalscope attribute RUN --methods meg takes all with a utility")
        found, reasons = dict[str, Position](), dict[str, None]()
        for world in worlds:
            try:
                finite = finite_world(world, 1)
                one.solved(finite)  # undefined where no way leads there
                found[world.id] = one.cell(finite)
            except Undefined as error:
                reasons[str(error)] = None
        if not found and not anywhere:
            raise ValueError(f"{name} must have a cell in one of the worlds, it has none: {'; '.join(reasons)}")
        cells[name] = found
    return {"cells": cells} if cells else {}


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


def _relative_to_beliefs(path: Path, where: str, settings: GoalSettings, draws: int, stage: Stage) -> GoalFindings:
    """Return MEG relative to the beliefs decoded at a site and layer, e.g. "pre:3"; tell which probes decoded them."""
    site, separator, layer = where.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must name a site and a layer that were captured, e.g. pre:3, got {where!r}")
    findings, probing = measure_decoded_beliefs(path, settings, site=site, layer=int(layer), draws=draws, stage=stage)
    models = {name: "the agent's model" if name == "none" else f"{name} weights" for name in probing.probes}
    states = (f"{models[name]} {'fitted' if name in probing.fitted else 'used again'}" for name in probing.probes)
    TALLY.tell(f"probes at {site}, layer {layer}: {', '.join(states)}")
    return findings
