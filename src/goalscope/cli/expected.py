"""The command `estimate`, and the first moves before a run, from which time and cost are expected."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.folder import temporary_folder
from goalscope._ground.progress import TALLY, duration
from goalscope._ground.words import counted, short
from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.generator import Between, Positive, Reads, Writes, lists
from goalscope.cli.measuring import measured_rows
from goalscope.cli.overrides import StudyOptions, load_study, study_entries
from goalscope.runs import Store, Study
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import check_new_run, unmade
from goalscope.runs.tables import DATABASE
from goalscope.stats import Estimate
from goalscope.verdict.preflight.cost import Cost, beyond_reach, costs
from goalscope.verdict.preflight.first_turns import (
    Limits,
    announced,
    ask_first_turns,
    found,
    most_turns,
    stored_first_turns,
)
from goalscope.verdict.preflight.forecast import SPENT, amounts, forecast, span, stored_pace, whole
from goalscope.verdict.preflight.power import CHANCE, DIFFICULTY, Assumptions, PowerLine, study_power

_RANGES = ("turns", "seconds", "prompt_tokens", "output_tokens", "usd")
"""Quantities predicted for an agent, each as a range."""


def size_of(study: Study) -> str:
    """Describe the size of a study in one line: numbers of agents, worlds and episodes, and the maximum number of
    steps.
    """
    size = study.size()
    return (
        f"{study.name}: {counted(size.agents, 'agent')} on {counted(size.worlds, 'world')}, "
        f"{counted(size.episodes, 'episode')}, at most {counted(size.steps, 'step')}"
    )


def measure_and_say(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    patient: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Ask each agent whose answers cost something for a few first moves, and report the expected time and cost.

    Nothing is asked if the study has fewer than ten turns per agent, because at most a tenth of them is spent on first
    moves, or if all episodes are stored already.

    Args:
        study: the study.
        out: the run directory that keeps the answers.
        workers: maximum number of simultaneous calls.
        patient: whether to wait for a server as long as its settings allow.
        arguments: the user's arguments, for the record.

    Returns:
        One record per agent asked: the number of first moves, and the least, expected and greatest time and cost (None
        if it gave no answer; USD is None without prices).
    """
    check_new_run(out)
    records, most, limits = list[dict[str, Any]](), most_turns(study), Limits()
    if not most or _complete(study, out):
        return records
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        if not agent.journalled:
            continue
        if stored_first_turns(out, agent) is None:
            TALLY.tell(announced(agent.name, most, limits, patient))
        first = ask_first_turns(
            study,
            agent,
            entry.parameters,
            out,
            limits,
            workers=workers,
            most=most,
            patient=patient,
            arguments={"command": "run", "passed": dict(arguments or {})},
        )
        for line in found(agent.name, first, limits):
            TALLY.tell(line)
        if first.silent:
            TALLY.tell(f"{agent.name}: time and cost are unknown: {first.silent}")
            records.append({"agent": agent.name, "asked": 0, **dict.fromkeys(_RANGES)})
            continue
        took = forecast(study, agent, entry.parameters, first, workers=workers)
        expectations = [f"{span(took.seconds, duration)}", f"turns {span(took.turns, whole)}", *amounts(took)]
        TALLY.tell(f"{agent.name}: expected {'; '.join(expectations)}")
        ranges = {name: getattr(took, name).tolist() for name in _RANGES if name != "usd" or took.priced}
        records.append({"agent": agent.name, "asked": first.asked, **dict.fromkeys(_RANGES), **ranges})
    return records


def _complete(study: Study, out: Path) -> bool:
    """Return whether a run directory contains all episodes of a study."""
    if unmade(out / DATABASE):
        return False
    with Store(out) as store:
        return count_episodes(store) >= study.size().episodes


_QUIET = 2.0  # seconds before progress is shown
_WIDTH = 24  # maximum width of a cell, so that a row of a table fits on one line

_COST = (
    ("agent", "name", "{}"),
    ("episodes", "episodes", "{:,}"),
    ("most calls", "calls", "{:,}"),
    ("prompt a call", "prompt", "about {:,.0f}"),
    ("most output", "output", "{:,}"),
    ("tokens", "tokens", "about {:,}"),
    ("USD", "usd", "about {:,.2f}"),
)
"""Columns of the costs: heading, attribute of `Cost`, format of its numbers."""

_POWER = (
    *("measure", "grids", "trajectories", "mean", "SD between grids of the difference", "SD within", "effect seen"),
    *("margin shown", "declared margin", "its power"),
)


@lists("Studies", study_entries)
def estimate(
    study: Annotated[str, Reads("study")],
    *,
    output_tokens: Annotated[int | None, Between(0)] = None,
    gpu_rate: Positive | None = None,
    power: bool = False,
    pilot: Annotated[Path | None, Reads("run")] = None,
    measure: bool = False,
    out: Annotated[Path | None, Writes("directory")] = None,
    assume_mean: float | None = None,
    assume_between: float | None = None,
    changes: StudyOptions,
    as_json: bool = False,
) -> None:
    """Estimate the cost of a study (calls, tokens and USD) before anything is spent.

    Without further options this is an upper bound, and needs neither network nor model weights. With --measure, each
    model is asked for a few first moves (at most 30 s after the first answer), from which hours, tokens, USD
    and memory are predicted as ranges.

    Args:
        study: a study file (YAML), or the name of one of the studies listed below.
        output_tokens: also print the cost if each call returns N output tokens.
        gpu_rate (TOKENS): also print GPU hours, for a GPU that generates so many tokens per second, all requests
            together. Measure it with a first batch through your server.
        power: also print the smallest effects and equivalence margins that the study can show.
        pilot (RUN): an earlier run from which to predict calls, tokens and hours, and to take the variances for
            --power.
        measure: ask for some first moves, at most 30 s after the first answer, and predict hours, tokens, USD and
            memory.
        out: with --measure: keep the answers in this directory, so that goalscope run can reuse them.
        assume_mean (SHARE): mean that --power assumes if there is no pilot. Default: 0.8.
        assume_between (SD): standard deviation, over grids, of the true difference that --power assumes. Default: 0.05.
        changes: changes to the study, see `StudyOptions`.
        as_json: print the costs, the predictions of --measure and the results of --power as JSON.

    Examples:
        goalscope estimate study.yaml --output-tokens 400
        goalscope estimate baseline --model GPT-OSS-20B --output-tokens 400 --gpu-rate 3000
        goalscope estimate baseline --agents Theseus --measure
        goalscope estimate iso-difficulty --power --pilot runs/pilot
    """
    assumed_values = {
        name: value for name, value in (("mean", assume_mean), ("between", assume_between)) if value is not None
    }
    if assumed_values and not power:
        raise ValueError("--assume-mean and --assume-between are assumptions of --power: add --power")
    if "mean" in assumed_values and pilot is not None:
        raise ValueError("--assume-mean replaces the means of a pilot: give --assume-mean or --pilot, not both")
    assumptions = Assumptions(**assumed_values)
    planned = load_study(study, changes.read())
    if out is not None and not measure:
        raise ValueError("--out keeps the answers of --measure: add --measure")
    if as_json:
        with progress("worlds", quiet=_QUIET) as show:
            all_costs = costs(planned, output_tokens, show)
        record: dict[str, Any] = {"study": planned.name, "costs": list(map(asdict, all_costs))}
        if power:
            plan = study_power(planned, None if pilot is None else measured_rows(pilot, progress), assumptions)
            record["power"] = [
                {
                    "agent": line.agent,
                    "measure": line.measure,
                    "unit": line.unit,
                    "effect": line.found.effect,
                    "margin": line.found.margin,
                    "declared_margin": line.margin,
                    "its_power": line.found.at_margin,
                }
                for line in plan.lines
            ]
        if measure:
            record["expected"] = _measured(planned, out)
        say(json_text(record))
        return
    print_cost(planned, output_tokens, gpu_rate, pilot=pilot, measure=measure, out=out)
    if power:
        print_power(planned, pilot, assumptions)


def print_cost(
    study: Study,
    output_tokens: int | None = None,
    gpu_rate: int | None = None,
    *,
    pilot: Path | None = None,
    measure: bool = False,
    out: Path | None = None,
) -> None:
    """Print the maximum cost of a study, and the expected cost if there is a pilot run or first moves are measured.

    Args:
        study: the study.
        output_tokens: expected output tokens per call; None prints no such column.
        gpu_rate: tokens that a GPU generates per second; None prints no GPU hours.
        pilot: an earlier run from which to predict the cost.
        measure: whether to ask for first moves, to predict the cost.
        out: the run directory that keeps their answers; None to discard them.
    """
    say(size_of(study))
    with progress("worlds", quiet=_QUIET) as show:
        all_costs = costs(study, output_tokens, show)
    columns = [*_COST]
    if output_tokens is not None:
        columns.append((f"USD at {output_tokens} output", "expected_usd", "{:,.2f}"))
    rows = [[_cell(getattr(cost, name), form) for _, name, form in columns] for cost in all_costs]
    title = "Maximum cost, before anything is spent"
    table([heading for heading, *_ in columns], rows, title=title, numbers=range(1, len(columns)))
    if any(cost.how for cost in all_costs):
        say(
            "tokens and USD assume estimated prompts and the longest possible output of every call. To set a hard "
            "limit, use caps.tokens or caps.usd: each request is counted at its maximum before it is sent"
        )
    for cost in all_costs:
        if cost.how:
            say(f"{cost.name}: prompts counted {cost.how}")
        if cost.requests is not None and cost.requests > cost.calls:
            say(
                f"{cost.name}: at most {cost.requests:,} requests, if each call fails as often as server.retries "
                "allows; whether failed requests are charged is unknown, and caps count them as calls"
            )
        if cost.prices is not None:
            say(
                f"{cost.name}: {cost.prices.input:g} USD per million prompt tokens, {cost.prices.output:g} USD per "
                f"million output tokens (prices of {cost.prices.date})"
            )
        elif cost.tokens is not None:
            say(f"{cost.name}: the study gives no prices, so the cost in USD is unknown")
        if gpu_rate is not None and (hours := cost.gpu_hours(gpu_rate)) is not None:
            likely = None if output_tokens is None else cost.gpu_hours(gpu_rate, output_tokens)
            at_length = "" if likely is None else f", {likely:,.3g} at {output_tokens} output tokens per call"
            say(f"{cost.name}: at most {hours:,.3g} GPU hours{at_length} ({gpu_rate:,} generated tokens per second)")
    for line in beyond_reach(study):
        say(line, error=True)
    _print_expected(study, [cost for cost in all_costs if cost.turns], pilot, measure)
    if measure:
        _measured(study, out)


def _measured(study: Study, out: Path | None) -> list[dict[str, Any]]:
    """Ask for first moves and return the predictions. The answers are kept only if ``out`` is given."""
    if out is not None:
        return measure_and_say(study, out)
    with temporary_folder() as folder:
        return measure_and_say(study, folder.path / "run")


def _print_expected(study: Study, asked_costs: Sequence[Cost], pilot: Path | None, measure: bool) -> None:
    if not asked_costs:
        if pilot is not None:
            say(f"{pilot}: no agent of the study makes calls that cost anything, so nothing is predicted", error=True)
        return
    paces = {} if pilot is None else {pace.agent: pace for pace in stored_pace(pilot, study)}
    rows = []
    for cost in asked_costs:
        if (pace := paces.get(cost.name)) is not None:
            spent = {name: [value * cost.episodes for value in ends(estimate)] for name, estimate in pace.spent.items()}
            hours = [value / 3600 for value in spent.pop("seconds")]
            usd = None
            if cost.prices is not None and "output_tokens" in spent:
                usd = [cost.prices.usd(*map(round, pair)) for pair in zip(*list(spent.values())[1:], strict=True)]
            cells = [_with_interval(spent.get(name), "{:,.0f}") for name in list(SPENT)[:-1]]
            grids = pace.spent["calls"].all_clusters
            rows.append(
                [
                    cost.name,
                    *cells,
                    _with_interval(usd, "{:,.2f}"),
                    _with_interval(hours, "{:,.2g}"),
                    str(pace.episodes),
                    str(grids),
                ]
            )
    if rows:
        columns = ("agent", "calls", "prompt tokens", "output tokens", "USD", "hours", "pilot episodes", "grids")
        table(columns, rows, title=f"Expected, from {pilot}: mean and 95 % interval over grids", numbers=range(1, 8))
    for cost in asked_costs:
        pace = paces.get(cost.name)
        if pace is not None and not pace.exact:
            say(f"{cost.name}: {pilot} has a different agent of this name; the prediction uses its times", error=True)
        if pace is None and not measure:
            unknown = "hours unknown" if pilot is None else f"hours unknown, since {pilot} recorded none for this agent"
            say(f"{cost.name}: {unknown}; measure them with --measure, or give a run of this agent with --pilot")


def _with_interval(values: Sequence[float] | None, form: str) -> str:
    """Format a value with its interval; either may be unknown."""
    if values is None:
        return "–"
    value, *interval = (form.format(number) for number in values)
    return value if any(map(math.isnan, values)) else f"{value} [{interval[0]}, {interval[1]}]"


def ends(estimate: Estimate) -> tuple[float, float, float]:
    """Return the value of an estimate with the lower and the upper end of its interval."""
    return estimate.value, estimate.low, estimate.high


def print_power(study: Study, pilot: Path | None, assumed: Assumptions) -> None:
    """Print the smallest differences that a study can detect with the usual power.

    Variances come from a pilot run if there is one, else from the assumptions.
    """
    plan = study_power(study, None if pilot is None else measured_rows(pilot, progress), assumed)
    for agent, name in plan.left_out:
        say(f"pilot: left out {name} of {agent}, which has two values on fewer than two grids", error=True)
    columns = [*(["agent"] if pilot else []), *_POWER]
    rows = [([line.agent] if pilot else []) + _cells(line) for line in plan.lines]
    title = f"Detectable with {CHANCE:.0%} power, at level {plan.hardest:.2g} (Holm's strictest of {plan.level:g})"
    table(columns, rows, title=title, numbers=range(2 if pilot else 1, len(columns)))
    say(f"Compared: {plan.conditions}; {counted(plan.family, 'test')} per agent.")
    say(
        "Effect seen: the smallest mean difference whose interval excludes 0. Margin shown: the smallest margin within "
        f"which equivalence is shown if the true mean difference is 0. Based on {plan.lines[0].found.repeats} "
        f"simulated studies each (power {CHANCE:g} ± 0.025)."
    )
    if pilot is None:
        say(
            f"Assumptions, since there is no pilot (--pilot RUN): mean {assumed.mean:g}; variance between grids "
            f"{DIFFICULTY:.0%} of the greatest possible; true differences with a standard deviation of "
            f"{assumed.between:g} over grids; errors at different steps of an episode are independent."
        )
    else:
        say(
            f"Means and variances are those of {pilot}. If it has no transformed grids, the true differences are "
            f"assumed to have a standard deviation of {assumed.between:g} over grids (--assume-between)."
        )
    for note in dict.fromkeys(f"{line.measure}: {line.found.note}" for line in plan.lines if line.found.note):
        say(note)


def _cells(line: PowerLine) -> list[str]:
    def text(value: float) -> str:
        return "–" if math.isnan(value) else short(value, line.unit)

    design = line.design
    return [
        line.measure,
        str(design.grids),
        str(design.trajectories),
        *(text(value) for value in (design.mean, design.between, design.within)),
        *(text(value) for value in (line.found.effect, line.found.margin, line.margin)),
        "–" if math.isnan(line.found.at_margin) else f"{line.found.at_margin:.2f}",
    ]


def _cell(value: float | str | None, form: str) -> str:
    if isinstance(value, str):
        return value if len(value) <= _WIDTH else f"{value[: _WIDTH - 1]}…"
    return "–" if value is None else form.format(value)
