"""The command `meg`: measure, store and print the maximum-entropy goal-directedness (MEG) of the agents of a run."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.folder import Folder
from goalscope._ground.own import consent
from goalscope._ground.progress import TALLY, Stage, aloud, duration, lines
from goalscope._ground.words import counted
from goalscope.cli.console import progress, say, show, table
from goalscope.cli.generator import Between, Reads, Separated
from goalscope.goals import RunDirectedness, directedness, held_out_goals
from goalscope.goals.decision import findings
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.definition import Hypothesis
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.meg.file import FileMEG, meg_of_file
from goalscope.goals.reading import asked_hypotheses, phases_in, remembers
from goalscope.inside.beliefs import DRAWS, joined, measure_decoded_beliefs
from goalscope.measures.table import StepTable
from goalscope.report.ledger import MeasuredRows, Run
from goalscope.report.sections.meg import (
    belief_words,
    contrasts_table,
    estimates_table,
    held_out_table,
    note_lines,
    where,
)
from goalscope.runs import Store
from goalscope.runs.codec import HAS_EXTRA
from goalscope.runs.episode_columns import count_episodes, episode_column_parts, parts_of
from goalscope.worlds.planning.soft import passes_reported_to
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
    """Measure how goal-directed the agents of a run are (maximum-entropy goal-directedness, MEG, in nats).

    MEG is measured towards each hypothesis about the goal, and the results are stored in the run.

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
        beliefs: "SITE:LAYER" of captured activations, e.g. "pre:7" for block 7 before the reasoning, to also
            measure MEG towards the goal that is decoded from them; "" for none.
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
        with Store(path) as store:
            total, worlds = count_episodes(store), _worlds(store)
            if not total:
                raise ValueError(f"{path} contains no episodes to measure: run its study first")
            tasks, grids = (all(offer in world.offers for world in worlds) for offer in ("tasks", "cells"))
            if beliefs and (tasks or not grids):
                raise ValueError(
                    f"--beliefs works only in grids, but {path} has other worlds (e.g. task worlds): leave it out"
                )
            tested_hypotheses = asked_hypotheses(tuple(hypotheses), worlds)
            relative = None
            if beliefs:  # first, to report a site that was not captured at once
                relative = _relative_to_beliefs(path, beliefs, options, DRAWS if draws is None else draws, stage)
            if not grids and any("cells" in world.offers for world in worlds):
                raise ValueError(
                    f"MEG cannot be measured in grids and other worlds together, but {path} has both: run them "
                    "separately"
                )
            del worlds  # many of them are large
            parts = _parts(store, grids=grids, tasks=tasks)
            states = [entry for part in parts for entry in states_of(part, by=tuple(by))]
        with stage("curves of worlds") as show:
            measured = directedness(states, tested_hypotheses, by=tuple(by), progress=show, **options)
        if unknown:
            with stage("unknown utilities") as show:
                without = {name: value for name, value in options.items() if name != "utility"}
                held_out = held_out_goals(states, total=total, ridge=ridge, progress=show, **without)
            measured = replace(measured, held_out=held_out)
        measured = measured if relative is None else joined([measured, relative])
        with stage("what each agent is after"):
            measured = replace(measured, findings=tuple(_findings(path, states, tested_hypotheses)))
        with Store(path, "w") as store:
            store.put_rows(measured.rows, source=SOURCE)
            store.put_info(SOURCE, measured.to_plain())
        TALLY.tell(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}")
    return measured


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


_QUIET = 5.0  # seconds between two progress messages of a long computation


def meg(
    path: Annotated[Path, Reads("process", "run")],
    *,
    unknown: bool = False,
    confidence: float = 0.95,
    as_json: bool = False,
    by: Sequence[str] = (),
    hypotheses: Annotated[Sequence[str], Separated(";,")] = (),
    utility: str = "",
    invalid: str = "",
    ridge: Annotated[float | None, Between(0)] = None,
    beliefs: str = "",
    draws: Annotated[int | None, Between(1, 1000)] = None,
) -> None:
    """Measure how goal-directed agents are (maximum-entropy goal-directedness, in nats), and towards which goal.

    Give either a decision process of your own or a run. For a run, the results are stored and shown in its report.

    Args:
        path (FILE|RUN): a file with a decision process and an agent in it (.json, .npz), or a run directory.
        unknown: also find the utility over states that best predicts the agent; for runs, on held-out episodes.
        confidence (C): confidence level of the intervals.
        as_json: print JSON.
        by (TAGS): for runs: also group by these tags, e.g. size,density.
        hypotheses (NAMES): goals to test, separated by commas or ';'. For files: names of goals in the file, or
            rewards. For runs: goal, key, key held, corner top-left, corner top-right, corner bottom-left, corner
            bottom-right, 'cell ROW COL', 'beside goal', or names of goals that the environments define. Default: goal,
            key, key held and the four corners if the worlds have them, or the goals of the environments.
        utility (WHICH): for runs: what is rewarded: steps (each step spent at the goal, the default) or arrival (being
            there at the end).
        invalid (WHICH): for runs: count a turn without a valid move as a step in place (no-op, the default) or as an
            action (action).
        ridge (R): for runs: penalty of --unknown. Default: 1.
        beliefs (SITE:LAYER): for runs: also measure MEG towards the goal decoded from these activations, with a random
            network and shuffled beliefs as controls.
        draws: for runs: number of shuffles of --beliefs. Default: 20.

    Examples:
        goalscope meg world.json
        goalscope meg world.npz --unknown --json
        goalscope meg world.npz --hypotheses goal
        goalscope meg runs/demo --by size,density
        goalscope meg runs/demo --hypotheses 'goal,corner top-right'
        goalscope meg runs/inside --beliefs pre:7
    """
    if ridge is not None and not unknown:
        raise ValueError("--ridge is the penalty of --unknown: add --unknown, or leave out --ridge")
    only_runs: dict[str, Any] = {
        "by": by,
        "hypotheses": hypotheses,
        "utility": utility,
        "invalid": invalid,
        "ridge": ridge,
        "beliefs": beliefs,
        "draws": draws,
    }
    if Folder(path).is_there():
        only_runs["ridge"] = 1.0 if ridge is None else ridge
        measured = towards(path, unknown=unknown, confidence=confidence, stage=progress, **only_runs)
        if as_json:
            say(json.dumps(measured.to_plain(), indent=2, allow_nan=False))
            return
        _show_findings(measured)
        say(f"{counted(len(measured.rows), 'row')} stored in {path}")
        return
    del only_runs["hypotheses"]
    if names := [f"--{name}" for name, value in only_runs.items() if value not in ("", (), [], None)]:
        raise ValueError(f"{', '.join(names)} applies only to runs, but {path} is a file: leave it out")
    with passes_reported_to(_pass_reporter()):
        results = [
            meg_of_file(path, unknown=unknown, confidence=confidence, towards=goal) for goal in hypotheses or ("",)
        ]
    if as_json:
        goals = {result.towards: result.to_plain() for result in results}
        say(json.dumps({"goals": goals} if hypotheses else results[0].to_plain(), indent=2, allow_nan=False))
        return
    for result in results:
        _show_file(path, result)


def _show_file(path: Path, result: FileMEG) -> None:
    """Print the MEG of the agent that a `.json` or `.npz` file describes (see docs/meg.md)."""
    mdp, towards = result.mdp, f" towards {result.towards}" if result.towards else ""
    discount = f", discount {mdp.discount:g}" if mdp.discount < 1 else ""
    title = (
        f"MEG{towards} in {path.name}: {mdp.states} states, {mdp.actions} actions, {mdp.horizon} decisions{discount}"
    )
    _figures(title, _lines(result))
    for note in filter(None, (result.known.note, result.chance)):
        say(f"note: {note}")
    if (best := result.unknown) is not None:
        limit = "" if best.attained else ", approached as the utilities grow without bound"
        lines = [
            ("MEG", best.value, "nats", f"with the best utility over states{limit}"),
            ("upper bound", best.upper, "nats", "for any class of utilities over states"),
            ("reachable bound", best.bound, "nats", "log A per decision that has an effect"),
        ]
        _figures("Utility unknown", lines)


def _pass_reporter() -> Callable[[int, int], None]:
    """Return a callback that prints the progress of the passes through the decisions of a process."""
    start = last = time.monotonic()
    number, last_done = 1, 0

    def report(done: int, total: int) -> None:
        nonlocal last, number, last_done
        number, last_done, now = number + (done <= last_done), done, time.monotonic()
        if now - last > _QUIET:
            last = now
            say(f"MEG: pass {number}, decision {done:,} of {total:,}, after {duration(now - start)}", error=True)

    return report


def _figures(title: str, lines: Sequence[tuple[str, float, str, str]]) -> None:
    rows = [(label, _number(value), unit, meaning) for label, value, unit, meaning in lines]
    table(("figure", "value", "unit", "meaning"), rows, title=title, numbers=(1,))


def _lines(result: FileMEG) -> list[tuple[str, float, str, str]]:
    directedness = result.known
    share, beta = (math.nan, math.nan) if result.chance else (directedness.share, directedness.beta)
    lines = [("MEG", directedness.value, "nats", "how much better than chance the utility predicts the agent")]
    if directedness.n:
        sampled = f"{100 * directedness.confidence:g} %, {directedness.method}, n = {directedness.n}"
        lines += [
            ("  from", directedness.low, "nats", sampled),
            ("  to", directedness.high, "nats", sampled),
            ("  bias", directedness.bias, "nats", "approximate upward bias of MEG from maximisation"),
        ]
    return [
        *lines,
        ("signed MEG", directedness.signed, "nats", "below 0: the agent does worse than the uniform policy"),
        ("share", share, "share", "of the tight bound on the same side of 0"),
        ("beta", beta, "nats/utility", "the rationality that best predicts the agent"),
        ("tight bound", directedness.bound, "nats", "of an optimal policy in this process"),
        ("tight bound below", directedness.bound_lowest, "nats", "of a policy that minimises the utility"),
        ("reachable bound", directedness.reachable_bound, "nats", "log A per decision that has an effect"),
        ("naive bound", directedness.naive_bound, "nats", "n log A"),
        ("naive plug-in", directedness.plug_in, "nats", "with rationality 1; depends on the scale of the utility"),
        ("utility", directedness.utility, "utility", "of the agent" + (", mean return" if directedness.n else "")),
        ("uniform utility", directedness.uniform_utility, "utility", "of the uniform policy"),
        ("lowest utility", directedness.lowest_utility, "utility", "lowest attainable"),
        ("highest utility", directedness.highest_utility, "utility", "highest attainable"),
    ]


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}" if math.isfinite(value) else f"{value}"


def _show_findings(measured: RunDirectedness) -> None:
    for sentence in measured.sentences:
        say(sentence)
    noun = MeasuredRows(measured.rows).noun
    # The estimates of a cell follow one another.
    for cell, estimates in groupby(measured.estimates, key=lambda estimate: estimate.cell):
        show(estimates_table(list(estimates), noun), f"MEG in nats (signed), one beta per line: {where(cell)}")
    for note in note_lines(measured.estimates, noun):
        say(f"note: {note}")
    if measured.contrasts:
        show(contrasts_table(measured.contrasts, noun))
    if measured.held_out:
        show(held_out_table(measured.held_out, noun), "Unknown utility: log-probability of held-out halves, in nats")
    for words in belief_words(measured.beliefs) if measured.beliefs else ():
        say(words)
    if measured.left_out:
        say(f"{counted(measured.left_out, 'episode')} left out, because the record stops before the end of the episode")
    if measured.failed:
        say(f"{counted(measured.failed, 'episode')} ended without a valid move; from there the agent stands still")
