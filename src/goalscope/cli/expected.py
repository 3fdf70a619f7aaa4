"""What is expected before a run, in words: a value and the range that it may lie in."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from goalscope.cli.console import say
from goalscope.evaluation.measured import announced, found
from goalscope.preflight.first_turns import Limits, ask_first_turns, most_turns, stored_first_turns
from goalscope.preflight.forecast import Forecast, Range, forecast
from goalscope.progress import duration
from goalscope.runs import Store, Study
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE


def span(amount: Range, form: Callable[[float], str]) -> str:
    """Write the expected value of a range and its ends: ``about 12 min (8 min to 19 min)``."""
    low, middle, high = (form(float(value)) for value in amount)
    return f"about {middle}" if low == middle == high else f"about {middle} ({low} to {high})"


def whole(value: float) -> str:
    """Write a number of tokens with two or three significant figures."""
    return f"{float(f'{value:.3g}'):,.0f}"


def amounts(total: Forecast, *, most_tokens: float | None = None, most_usd: float | None = None) -> list[str]:
    """Return what is expected of tokens, USD and memory, in words; nothing of what is not spent."""
    parts = []
    if total.tokens[2]:
        bound = f", at most {whole(most_tokens)}" if most_tokens else ""
        prompt = f"{100 * total.prompt_tokens[1] / total.tokens[1]:.0f} %"
        parts.append(f"tokens {span(total.tokens, whole)}{bound}, {prompt} of them read")
    if total.priced:
        bound = f", at most {most_usd:,.2f}" if most_usd else ""
        parts.append(f"USD {span(total.usd, '{:,.2f}'.format)}{bound}")
    if total.memory[1]:
        now, most = (value / 1e9 for value in total.memory)
        parts.append(f"memory {now:.2g} GB at its first turns, at most about {most:.2g} GB")
    return parts


def measure_and_say(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    patient: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> int:
    """Ask first turns of each agent whose answers cost something, and say what the study is expected to take.

    Nothing is asked of a study with so few turns that one of them were more than a tenth, or that is stored already.

    Args:
        study: the study.
        out: the run directory that keeps the answers.
        workers: maximum number of simultaneous calls.
        patient: whether a server is waited for as long as its settings say.
        arguments: the user's arguments, for the record.

    Returns:
        The number of first turns that the run directory keeps.
    """
    asked, most, limits = 0, most_turns(study), Limits()
    if not most or _complete(study, out):
        return 0
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        if not agent.journalled:
            continue
        if stored_first_turns(out, agent) is None:
            say(announced(agent.name, most, limits, patient), error=True)
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
            say(line, error=True)
        if first.silent:
            say(f"{agent.name}: nothing is known of what it takes, it gave no answer: {first.silent}", error=True)
            continue
        asked += first.asked
        took = forecast(study, agent, entry.parameters, first, workers=workers)
        said = [f"{span(took.seconds, duration)}", f"turns {span(took.turns, whole)}", *amounts(took)]
        say(f"{agent.name}: expected {'; '.join(said)}", error=True)
    return asked


def _complete(study: Study, out: Path) -> bool:
    """Return whether a run directory holds as many episodes as a study has."""
    if unmade(out / DATABASE):
        return False
    with Store(out) as store:
        return count_episodes(store) >= study.size().episodes
