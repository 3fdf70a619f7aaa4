"""How much and how long a study is expected to take: as in a run that is stored, or as measured with a local model.

A stored run says what an episode took: calls, tokens and seconds, each a mean over grids with its interval. Its seconds
are those of the wall clock while calls were under way, so that calls side by side count once.
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
from goalscope.runs.walks import read_heads
from goalscope.stats import Estimate, estimate_mean

SPENT: Final[Mapping[str, str]] = {
    "calls": "calls",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "seconds": "s",
}
"""What an episode takes, and its unit."""

_PROMPTS: Final = 32  # measured together
_TOKENS: Final = 32  # written to each, at most
_REPEATS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the episodes of an agent took in a stored run.

    Attributes:
        agent: name of the agent in the study that is planned.
        exact: whether the run has this very agent; else it is one of the same name.
        episodes: number of finished episodes behind it.
        spent: means per episode over grids, by the names of `SPENT`; tokens are missing where the server told none.
    """

    agent: str
    exact: bool
    episodes: int
    spent: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a local model was here.

    Attributes:
        agent: name of the agent.
        prompts: number of first prompts that were read together.
        tokens: most tokens that were written to each.
        reading: seconds for each prompt, of each repetition.
        writing: seconds for each token of an output, of each repetition.
    """

    agent: str
    prompts: int
    tokens: int
    reading: tuple[float, ...]
    writing: tuple[float, ...]

    def seconds(self, cost: Cost) -> tuple[float, float, float]:
        """Return what a study takes at most at this speed: the median of the repetitions, their least and greatest."""
        pairs = zip(self.reading, self.writing, strict=True)
        found = [cost.turns * (reading + writing * cost.written) for reading, writing in pairs]
        return median(found), min(found), max(found)


def stored_pace(run: str | Path, study: Study) -> list[Pace]:
    """Return what each agent of a study took in a stored run that has it, or one of its name.

    Args:
        run: the run directory.
        study: what is planned.

    Raises:
        FileNotFoundError: no run there.
        ValueError: a damaged run.
    """
    with Store(run) as store:
        known = {identity: name for identity, (name, _) in store.agents().items()}
        found = []
        for agent in study.agents():
            same = [identity for identity in known if identity == agent_id(agent)]
            named = [identity for identity, name in known.items() if name == agent.name]
            if agent.journalled and (chosen := same or named):
                found.append(_pace(store, chosen[0], agent, exact=bool(same)))
    return [pace for pace in found if pace is not None]


def _pace(store: Store, identity: str, agent: Agent, *, exact: bool) -> Pace | None:
    grids = {one.id: store.world(one.world_id).grid_id for one in read_heads(store)}
    totals: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    under_way: list[tuple[float, float]] = []
    answered = "WHERE calls.agent_id = ? AND state = 'done' ORDER BY calls.id"
    for _, _, _, episode, _, _, _, _, sent, done, *_, usage, _ in store.entries("call", answered, (identity,)):
        if episode not in grids:  # its episode goes on
            continue
        cost: Mapping[str, Any] = decode_json(usage, "the usage of a call") if usage else {}
        under_way.append((float(sent), float(done)))
        mine = totals.setdefault(episode, dict.fromkeys(SPENT, 0.0))
        clusters[episode] = grids[episode]
        mine["calls"] += 1
        mine["seconds"] += float(cost.get("seconds", done - sent))
        for name in ("prompt_tokens", "output_tokens"):
            mine[name] += float(cost.get(name, float("nan")))
    if not totals:
        return None
    added = sum(one["seconds"] for one in totals.values())
    factor = _covered(under_way) / added if added else 0.0
    spent = {}
    for name, unit in SPENT.items():
        values = [one[name] * (factor if name == "seconds" else 1) for one in totals.values()]
        if all(value == value for value in values):
            spent[name] = estimate_mean(values, list(clusters.values()), unit=unit, bounds=(0, float("inf")))
    return Pace(agent=agent.name, exact=exact, episodes=len(totals), spent=spent)


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return how long at least one of some spans of time lasted."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def measure_speed(
    study: Study,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Return how fast the local models of a study are here, on some of its first prompts.

    Args:
        study: what is planned.
        progress: told (measurements done, in all).
        clock: tells the time, seconds.

    Raises:
        FileNotFoundError, ValueError, ImportError: a model that cannot be loaded.
    """
    worlds = study.worlds()
    worlds = worlds[:: -(-len(worlds) // _PROMPTS)]
    agents = [one for one in study.agents() if isinstance(one, ChatAgent) and not isinstance(one.model, HttpModel)]
    total, found = len(agents) * (_REPEATS + 1), []
    for number, agent in enumerate(agents):
        kind = study.history_of(agent)
        specs = [planned(study, world, study.horizon.of(world)) for world in worlds]
        seen = [LiveEpisode(spec, world, study, kind).observe() for spec, world in zip(specs, worlds, strict=True)]
        few = min(_TOKENS, agent.sampling.max_tokens)
        pairs = []
        for repeat in range(_REPEATS + 1):  # the first one loads the model
            pairs.append(_timed(agent, seen, few, clock))
            progress(number * (_REPEATS + 1) + repeat + 1, total)
        reading, writing = zip(*pairs[1:], strict=True)
        found.append(Speed(agent=agent.name, prompts=len(seen), tokens=few, reading=reading, writing=writing))
    return found


def _timed(agent: ChatAgent, seen: Sequence[Observation], few: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return seconds for each prompt, and for each further token of an output."""

    def act(tokens: int) -> tuple[float, int]:
        # A copy is made with other settings of sampling alone; it shares the model.
        short = replace(agent, sampling=replace(agent.sampling, max_tokens=tokens))
        began = clock()
        turns = short.act(seen)
        return clock() - began, sum(len(turn.output_tokens or ()) for turn in turns)

    read, first = act(1)
    if agent.choice is not None and agent.choice.after != "reasoning":
        return read / len(seen), 0.0
    wrote, tokens = act(few)
    return read / len(seen), max(0.0, wrote - read) / max(1, tokens - first)
