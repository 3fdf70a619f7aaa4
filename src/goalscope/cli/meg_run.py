"""`goalscope meg RUN`: what the agents of a run are after."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from goalscope.cli.console import duration, progress, say, table
from goalscope.cli.overrides import split
from goalscope.measures.goals import (
    DRAWS,
    GoalFindings,
    GoalSettings,
    held_out_goals,
    joined,
    measure_decoded_beliefs,
    measure_goals,
)
from goalscope.measures.table import StepTable
from goalscope.report.blocks import counted
from goalscope.report.sections.meg import (
    belief_words,
    contrasts_table,
    estimates_table,
    held_out_table,
    note_lines,
    where,
)
from goalscope.rows import Tag
from goalscope.runs import Store

SOURCE = "meg"
"""The source under which a store keeps the rows, and the name under which it keeps the figures of the cells."""


def meg_run(
    path: Path,
    settings: GoalSettings,
    *,
    unknown: bool,
    ridge: float,
    as_json: bool,
    beliefs: str = "",
    draws: int | None = None,
) -> None:
    """Measure the goals of the agents of a run, store rows and figures, and print them.

    Args:
        path: the run.
        settings: what is asked.
        unknown: also fit unknown utilities to one half of the episodes and score them on the other.
        ridge: the penalty of that fit.
        as_json: print JSON in place of tables.
        beliefs: site and layer of captured activations, e.g. "pre:3": also relative to what is decoded there.
        draws: of the shuffled control of beliefs, None for the default.

    Raises:
        ValueError: no episodes; whatever `measure_goals` refuses; activations that were not captured.
    """
    if draws is not None and not beliefs:
        raise ValueError("--draws must come with --beliefs SITE:LAYER, whose shuffles it counts, got it alone")
    began = time.monotonic()
    with Store(path) as reader:
        episodes = list(reader.episodes())
    if not episodes:
        raise ValueError(f"a run must hold episodes to be measured, but {path} holds none")
    relative = []
    if beliefs:  # first: a site that was not captured is to be told at once
        relative = [_relative_to_beliefs(path, beliefs, settings, DRAWS if draws is None else draws)]
    steps = StepTable.from_episodes(episodes)
    with progress("curves of worlds") as show:
        found = measure_goals(steps, settings, progress=show)
    if unknown:
        with progress("unknown utilities") as show:
            found = replace(found, held_out=held_out_goals(steps, settings, ridge=ridge, progress=show))
    if relative:
        found = joined([found, *relative])
    with Store(path, "w") as store:
        store.put_rows(found.rows, source=SOURCE)
        store.put_info(SOURCE, found.to_plain())
    say(f"{counted(len(episodes), 'episode')} measured in {duration(time.monotonic() - began)}", error=True)
    if as_json:
        say(json.dumps(found.to_plain(), indent=2, allow_nan=False))
        return
    show_findings(found)
    say(f"{counted(len(found.rows), 'row')} stored in {path}")


def _relative_to_beliefs(path: Path, where: str, settings: GoalSettings, draws: int) -> GoalFindings:
    """Return MEG relative to what is decoded at a site and layer, e.g. "pre:3", and say which probes decoded it."""
    site, separator, layer = where.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must name a site and a layer that were captured, e.g. pre:3, got {where!r}")
    found, first = measure_decoded_beliefs(path, settings, site=site, layer=int(layer), draws=draws, stage=progress)
    models = {"none": "the agent's model", "untrained": "the untrained one"}
    kept = (f"{models[name]} {'fitted' if name in first.fitted else 'used again'}" for name in first.probes)
    say(f"probes at {site}, layer {layer}: {', '.join(kept)}", error=True)
    return found


def show_findings(found: GoalFindings) -> None:
    """Print the tables of findings."""
    cells: list[Mapping[str, Tag]] = []
    for estimate in found.estimates:
        if estimate.cell not in cells:
            cells.append(estimate.cell)
    for cell in cells:
        shown = estimates_table([entry for entry in found.estimates if entry.cell == cell])
        title = f"MEG in nats (signed), one beta per line – {where(cell)}"
        table(shown.headings, shown.rows, title=title, numbers=shown.numbers)
    for note in note_lines(found.estimates):
        say(f"note: {note}")
    if found.contrasts:
        shown = contrasts_table(found.contrasts)
        table(shown.headings, shown.rows, title=shown.caption, numbers=shown.numbers)
    if found.held_out:
        shown = held_out_table(found.held_out)
        title = "Unknown utility: log-probability of held-out halves, nats"
        table(shown.headings, shown.rows, title=title, numbers=shown.numbers)
    for words in belief_words(found.beliefs) if found.beliefs else ():
        say(words)
    if found.left_out:
        say(f"{counted(found.left_out, 'episode')} left out: the record stops before the end of the episode")
    if found.failed:
        say(f"{counted(found.failed, 'episode')} ended by a turn without an action: it stands still from there")


def settings_of(by: str, hypotheses: str, utility: str, invalid: str, confidence: float) -> GoalSettings:
    """Return what is asked from the texts of the command line, "" for a default.

    Raises:
        ValueError: an unknown hypothesis, utility or treatment of turns without an action.
    """
    given: dict[str, Any] = {"utility": utility, "invalid": invalid}
    if hypotheses:
        given["hypotheses"] = tuple(split(hypotheses))
    return GoalSettings(
        by=tuple(split(by)), confidence=confidence, **{name: text for name, text in given.items() if text}
    )


def check_options(path: Path, **given: object) -> None:
    """Refuse options that speak of runs where a file is given.

    Raises:
        ValueError: names the option.
    """
    names = [f"--{name}" for name, value in given.items() if value not in ("", None)]
    if names:
        raise ValueError(f"{', '.join(names)} must come with a run directory, got the file {path}: leave it out")
