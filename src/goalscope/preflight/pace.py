"""Expected effort and time of a study: from a stored run, or measured with a local model.

A stored run gives the calls, tokens and seconds of an episode, each a mean over grids with its interval. Seconds are
wall-clock time while calls were under way, so that simultaneous calls count once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from goalscope.agents.agent import Agent, Observation, agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.models.http import HttpModel
from goalscope.preflight.cost import Cost
from goalscope.preflight.prompts import planned
from goalscope.runs import Store, Study
from goalscope.runs.codec import decode_json
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.episode_columns import read_heads
from goalscope.stats import Estimate, estimate_mean

SPENT: Final[Mapping[str, str]] = {
    "calls": "calls",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "seconds": "s",
}
"""Quantities of an episode, and their units."""

_WAIT: Final = 600.0  # seconds that a call may wait for its turn and for the next attempt
_PROMPTS: Final = 32  # measured together
_TOKENS: Final = 32  # maximum output of each prompt
_REPEATS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Costs of an agent's episodes in a stored run.

    Attributes:
        agent: name of the agent in the planned study.
        exact: whether the run has exactly this agent; else it has one of the same name.
        episodes: number of finished episodes in the means.
        spent: means per episode over grids, by the names of `SPENT`; tokens are missing where the server reported none.
    """

    agent: str
    exact: bool
    episodes: int
    spent: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measured speed of a local model on this machine.

    Attributes:
        agent: name of the agent.
        prompts: number of first prompts that were read together.
        tokens: maximum number of output tokens for each prompt.
        reading: seconds per prompt, for each repetition.
        writing: seconds per output token, for each repetition.
    """

    agent: str
    prompts: int
    tokens: int
    reading: tuple[float, ...]
    writing: tuple[float, ...]

    def seconds(self, cost: Cost) -> tuple[float, float, float]:
        """Return the maximum seconds of a study at this speed: median, minimum and maximum of the repetitions."""
        pairs = zip(self.reading, self.writing, strict=True)
        seconds = [cost.turns * (reading + writing * cost.written) for reading, writing in pairs]
        return median(seconds), min(seconds), max(seconds)


def stored_pace(run: str | Path, study: Study) -> list[Pace]:
    """Return the costs of each agent of a study in a stored run that has it, or one of its name.

    Args:
        run: the run directory.
        study: the planned study.

    Raises:
        FileNotFoundError: no run in this directory.
        ValueError: a damaged run.
    """
    with Store(run) as store:
        names_by_id = {identity: name for identity, (name, _) in store.agents().items()}
        paces = []
        for agent in study.agents():
            exact_ids = [identity for identity in names_by_id if identity == agent_id(agent)]
            ids_of_name = [identity for identity, name in names_by_id.items() if name == agent.name]
            if agent.journalled and (chosen := exact_ids or ids_of_name):
                paces.append(_pace(store, chosen[0], agent, exact=bool(exact_ids)))
    return [pace for pace in paces if pace is not None]


def _pace(store: Store, identity: str, agent: Agent, *, exact: bool) -> Pace | None:
    grids = {head.id: store.world(head.world_id).cluster_id for head in read_heads(store)}
    totals: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    under_way: list[tuple[float, float]] = []
    answered = "WHERE calls.agent_id = ? AND state = 'done' ORDER BY calls.id"
    for _, _, _, episode, _, _, _, _, sent, done, *_, usage, _ in store.entries("call", answered, (identity,)):
        if episode not in grids:  # its episode goes on
            continue
        cost: Mapping[str, Any] = decode_json(usage, "the usage of a call") if usage else {}
        seconds = float(cost.get("seconds", max(0.0, done - sent)))
        # The journal holds the time of the day, which may be set anew while a call is under way; its seconds do not.
        jumped = not 0 <= done - sent <= 10 * seconds + _WAIT
        under_way.append((float(sent), float(sent + seconds if jumped else done)))
        episode_total = totals.setdefault(episode, dict.fromkeys(SPENT, 0.0))
        clusters[episode] = grids[episode]
        episode_total["calls"] += 1
        episode_total["seconds"] += seconds
        for name in ("prompt_tokens", "output_tokens"):
            episode_total[name] += float(cost.get(name, float("nan")))
    if not totals:
        return None
    total_seconds = sum(head["seconds"] for head in totals.values())
    factor = _covered(under_way) / total_seconds if total_seconds else 0.0
    spent = {}
    for name, unit in SPENT.items():
        values = [head[name] * (factor if name == "seconds" else 1) for head in totals.values()]
        if all(value == value for value in values):
            spent[name] = estimate_mean(values, list(clusters.values()), unit=unit, bounds=(0, float("inf")))
    return Pace(agent=agent.name, exact=exact, episodes=len(totals), spent=spent)


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of some spans of time."""
    total, covered_until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, covered_until))
        covered_until = max(covered_until, end)
    return total


def measure_speed(
    study: Study,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Return the speed of the local models of a study on this machine, on some of its first prompts.

    Args:
        study: the planned study.
        progress: called with (measurements done, all measurements).
        clock: returns the time, seconds.

    Raises:
        FileNotFoundError, ValueError, ImportError: a model that cannot be loaded.
    """
    worlds = study.worlds()
    worlds = worlds[:: -(-len(worlds) // _PROMPTS)]
    agents = [
        agent for agent in study.agents() if isinstance(agent, ChatAgent) and not isinstance(agent.model, HttpModel)
    ]
    total, speeds = len(agents) * (_REPEATS + 1), []
    for number, agent in enumerate(agents):
        history = study.history_of(agent)
        specs = [planned(study, world, study.horizon.of(world)) for world in worlds]
        observations = [
            LiveEpisode(spec, world, study, history).observe() for spec, world in zip(specs, worlds, strict=True)
        ]
        output_tokens = min(_TOKENS, agent.sampling.max_tokens)
        pairs = []
        for repeat in range(_REPEATS + 1):  # the first one loads the model
            pairs.append(_timed(agent, observations, output_tokens, clock))
            progress(number * (_REPEATS + 1) + repeat + 1, total)
        reading, writing = zip(*pairs[1:], strict=True)
        speeds.append(
            Speed(agent=agent.name, prompts=len(observations), tokens=output_tokens, reading=reading, writing=writing)
        )
    return speeds


def _timed(
    agent: ChatAgent, observations: Sequence[Observation], output_tokens: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Return seconds for each prompt, and for each further token of an output."""

    def act(tokens: int) -> tuple[float, int]:
        # A copy with other sampling settings; it shares the model.
        limited = replace(agent, sampling=replace(agent.sampling, max_tokens=tokens))
        start = clock()
        turns = limited.act(observations)
        return clock() - start, sum(len(turn.output_tokens or ()) for turn in turns)

    read, first = act(1)
    if agent.choice is not None and agent.choice.after != "reasoning":
        return read / len(observations), 0.0
    write, tokens = act(output_tokens)
    return read / len(observations), max(0.0, write - read) / max(1, tokens - first)
