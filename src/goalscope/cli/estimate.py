"""`goalscope estimate`: cost and power of a study, before anything is spent."""

import math
from pathlib import Path

from goalscope.cli.commands import say_size
from goalscope.cli.console import say, table
from goalscope.cli.measuring import measured_rows
from goalscope.preflight import beyond_reach
from goalscope.preflight.cost import costs
from goalscope.preflight.power import CHANCE, DIFFICULTY, Assumptions, PowerLine, study_power
from goalscope.report.blocks import counted
from goalscope.report.figures import short
from goalscope.runs import Study

_WIDTH = 24  # rows of a table stay on a line

_COST = (
    ("agent", "name", "{}"),
    ("episodes", "episodes", "{:,}"),
    ("most calls", "calls", "{:,}"),
    ("prompt a call", "prompt", "about {:,.0f}"),
    ("most prompt", "most_prompt", "{:,.0f}"),
    ("most output", "output", "{:,}"),
    ("most tokens", "tokens", "{:,}"),
    ("most USD", "usd", "{:,.2f}"),
)
"""Columns of the costs: heading, attribute of `Cost`, how its numbers are written."""

_POWER = (
    *("measure", "grids", "trajectories", "mean", "SD between grids of the difference", "SD within", "effect seen"),
    *("closed form", "margin shown", "closed form", "declared margin", "its power"),
)


def print_cost(study: Study, output_tokens: int | None = None) -> None:
    """Print what a study costs at most."""
    found = costs(study, output_tokens)
    say_size(study)
    columns = [*_COST]
    if output_tokens is not None:
        columns.append((f"USD at {output_tokens} output", "expected_usd", "{:,.2f}"))
    rows = [[_cell(getattr(cost, name), form) for _, name, form in columns] for cost in found]
    table([heading for heading, *_ in columns], rows, title="Before anything is spent", numbers=range(1, len(columns)))
    if any(cost.how for cost in found):
        say(
            "prompt a call: tokens, as expected. most prompt: the mean of counts that no prompt exceeds, one token for "
            "each byte of its text. Caps reserve by the same count, or by the tokens themselves where they are known"
        )
    for cost in found:
        if cost.how:
            say(f"{cost.name}: prompts counted {cost.how}")
        if cost.prices is not None:
            say(
                f"{cost.name}: {cost.prices.input:g} USD a million prompt tokens, {cost.prices.output:g} output, "
                f"prices of {cost.prices.date}"
            )
        elif cost.tokens is not None:
            say(f"{cost.name}: no prices in the study, so no USD")
    for line in beyond_reach(study):
        say(line, error=True)


def print_power(study: Study, pilot: Path | None, assumed: Assumptions) -> None:
    """Print what a study can show, with the variances of a pilot run where one is given."""
    plan = study_power(study, None if pilot is None else measured_rows(pilot), assumed)
    for agent, name in plan.left_out:
        say(f"pilot: {agent} has fewer than two grids with two values of {name}: left out", error=True)
    columns = [*(["agent"] if pilot else []), *_POWER]
    rows = [([line.agent] if pilot else []) + _cells(line) for line in plan.lines]
    title = f"What {CHANCE:.0%} power shows, at level {plan.hardest:.2g}: {plan.level:g} by Holm's hardest step"
    table(columns, rows, title=title, numbers=range(2 if pilot else 1, len(columns)))
    say(f"Compared: {plan.conditions}; {counted(plan.family, 'test')} in the family of an agent.")
    say(
        f"Effect seen: the smallest mean difference that the signed-rank test sees; margin shown: the smallest within "
        f"which equivalence (TOST) is shown where the mean difference is 0. Counted over {plan.lines[0].found.repeats} "
        f"simulated studies each (a chance of {CHANCE:g} to ± 0.025), beside the closed form for normal differences."
    )
    if pilot is None:
        say(
            f"Assumed, without a pilot (--pilot RUN): mean {assumed.mean:g}; {DIFFICULTY:.0%} of the greatest possible "
            f"variance between grids; true differences with a standard deviation of {assumed.between:g} over grids; "
            "steps of an episode err independently of each other."
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
        *(text(value) for value in (line.found.effect, line.effect, line.found.margin, line.smallest, line.margin)),
        "–" if math.isnan(line.found.at_margin) else f"{line.found.at_margin:.2f}",
    ]


def _cell(value: float | str | None, form: str) -> str:
    if isinstance(value, str):
        return value if len(value) <= _WIDTH else f"{value[: _WIDTH - 1]}…"
    return "–" if value is None else form.format(value)
