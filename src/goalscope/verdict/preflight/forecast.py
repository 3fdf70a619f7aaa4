"""Predict the time and cost of a study from first moves or from a stored run.

The run gives the calls, tokens and seconds per episode, each as a mean over grids with its interval. Seconds are
wall-clock time during which calls were in progress, so that simultaneous calls count once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import spread
from goalscope.agents.agent import Agent, Turn, agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import common_prefix
from goalscope.runs import Store, Study
from goalscope.runs.codec import decode_json
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.episode_columns import read_heads
from goalscope.stats import Estimate, estimate_mean
from goalscope.verdict.preflight.cost import counter, inside_memory, more_memory, planned, prompts_of
from goalscope.verdict.preflight.first_turns import FirstTurns, Portion
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import TimedOracle, World

SPENT: Final[Mapping[str, str]] = {
    "calls": "calls",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "seconds": "s",
}
"""Quantities per episode, and their units."""

_WAIT: Final = 600.0  # seconds that a call may wait for its turn and for the next attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPace:
    """What an episode of an agent cost in a stored run, which shows what it will cost in a planned study.

    Attributes:
        agent: name of the agent in the planned study.
        exact: whether the run has exactly this agent; otherwise one of the same name.
        episodes: number of finished episodes.
        spent: means per episode over grids, by the names of `SPENT`; tokens are missing where the server reported none.
    """

    agent: str
    exact: bool
    episodes: int
    spent: Mapping[str, Estimate]


def stored_pace(run: str | Path, study: Study) -> list[StoredPace]:
    """Measure from a stored run what an episode of each agent of a planned study costs.

    Args:
        run: the run directory.
        study: the planned study.

    Returns:
        One entry for each agent of which the run has episodes, of the same agent or of one with the same name.

    Raises:
        FileNotFoundError: there is no run in this directory.
        ValueError: the run is damaged.
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


def _pace(store: Store, identity: str, agent: Agent, *, exact: bool) -> StoredPace | None:
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
    return StoredPace(agent=agent.name, exact=exact, episodes=len(totals), spent=spent)


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of some intervals of time."""
    total, covered_until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, covered_until))
        covered_until = max(covered_until, end)
    return total


# Forecast what a study takes, as ranges of turns, seconds, tokens and USD, from the measured batch of first turns.
#
# Turns per episode: let ``o`` be the share of optimal turns and ``i`` the share of turns without an action. Assuming
# that half of the other moves lead away from the goal, an agent approaches the goal by ``v = o - (1 - o - i) / 2``
# steps per turn. An episode whose shortest path has ``d`` steps then takes ``min(d / v, horizon)`` turns, or the
# whole horizon if ``v <= 0``. The range uses the ends of the 80 % interval of ``o``.
#
# Seconds per round with ``n`` live episodes: ``F l + m n``. ``l`` is the length of the longest answer, in mean answers:
# the answers of a round are written together, a token of each at a time. ``F`` is the time in which an answer of mean
# length is written so (mostly for loading weights), and ``m`` the time of each further episode. For an agent that
# answers one prompt at a time, ``F = 0``.
#
# A local model reads the common beginning of prompts once. The measured first turns come from different worlds; the
# later turns of an episode have more in common with each other. A second episode in the same world has the same first
# prompt, and a second answer the same prompt. So ``m`` is less in a run, by the share of it that is reading.

Range = npt.NDArray[np.float64]
"""``[3]``: minimum, expected value and maximum of a quantity."""

_Z: Final = 1.28  # of a normal interval of 80 %
_LIVE: Final = 256  # episodes that are played at the same time
_ROWS: Final = 64  # requests that a local model decodes at once
_PROMPTS: Final = 12  # worlds whose prompts are counted
_SPEED: Final = (0.75, 1.0, 1.33)  # how much faster or slower a machine is later than it was
_ALONE: Final = (0.9, 0.5, 0.0)  # share of ``F`` in the time of an answer that was written alone: not measured
_WRITTEN: Final = 8  # tokens that are read in the time of one that is written beside others, as measured on a processor
_STEPS: Final = 3  # turns of an episode whose prompts are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What some episodes of an agent are expected to cost.

    A range is an array of the minimum, the expected value and the maximum.

    Attributes:
        turns, seconds, prompt_tokens, output_tokens, usd: ranges; USD are 0 without prices.
        priced: whether prices are known.
        memory: bytes in use when the first turns were asked, and the expected maximum; 0 if unknown.
    """

    turns: Range
    seconds: Range
    prompt_tokens: Range
    output_tokens: Range
    usd: Range = field(default_factory=lambda: np.zeros(3))
    priced: bool = False
    memory: tuple[float, float] = (0.0, 0.0)

    @property
    def tokens(self) -> Range:
        """Prompt and output tokens together, as an array of minimum, expected value and maximum."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: "Forecast") -> "Forecast":
        """Return the cost of both, one after the other."""
        return Forecast(
            turns=self.turns + other.turns,
            seconds=self.seconds + other.seconds,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            usd=self.usd + other.usd,
            priced=self.priced or other.priced,
            memory=max(self.memory, other.memory, key=lambda pair: pair[1]),
        )


def nothing() -> Forecast:
    """Return the forecast for a study without episodes: no time, no tokens, no cost."""
    zeros = np.zeros(3)
    return Forecast(turns=zeros, seconds=zeros, prompt_tokens=zeros, output_tokens=zeros)


def forecast(
    study: Study,
    agent: Agent,
    parameters: Mapping[str, Any],
    first: FirstTurns,
    *,
    times: float = 1.0,
    workers: int = 1,
) -> Forecast:
    """Forecast time, tokens and money that the episodes of an agent take, from its first turns.

    Args:
        study: the study.
        agent: one of its agents.
        parameters: its parameters as the study gives them.
        first: its timed first turns, in this study or another one.
        times: factor by which the number of episodes is multiplied.
        workers: maximum number of simultaneous calls.

    Returns:
        Turns, seconds, tokens and USD, each as minimum, expected value and maximum; and the expected memory.

    Raises:
        ValueError: no first turn was asked.
    """
    if not first.portions:
        raise ValueError("a forecast needs a measured batch with at least one turn, got none")
    lengths = _lengths(study, first) * 1.0
    turns = lengths.sum(axis=1) * study.trajectories * study.answers * times
    retries = study.failure_of(agent).retries
    turns = turns * (1 + retries * first.invalid)
    longest, grown = _prompts(study, agent, parameters, first)
    scale = {name: value / first.asked for name, value in first.usage.items()}
    at_most = scale.get("tokens_at_most", 0.0)
    prompt = (scale.get("prompt_tokens", 0.0) + at_most) * grown * turns
    output = scale.get("output_tokens", 0.0) * turns
    prices = agent.model.prices if isinstance(agent, ChatAgent) and isinstance(agent.model, HttpModel) else None
    inside = study.analysis is not None and study.analysis.inside is not None
    more = max(more_memory(agent, longest), inside_memory(agent, longest) if inside else 0.0)
    usd = np.zeros(3)
    if prices is not None:
        usd = np.array([prices.usd(*pair) for pair in zip(prompt, output, strict=True)])
    rounds = lengths.max(axis=1) * study.answers * (1 + retries * first.invalid)
    anew = _read_anew(study, agent, first, lengths.mean(axis=1))
    return Forecast(
        turns=turns,
        seconds=_seconds(agent, first, turns, rounds, grown, anew, workers),
        prompt_tokens=prompt,
        output_tokens=output,
        usd=usd,
        priced=prices is not None,
        memory=(first.memory, first.memory + more) if more else (0.0, 0.0),
    )


def _lengths(study: Study, first: FirstTurns) -> npt.NDArray[np.float64]:
    """Return the minimum, expected and maximum turns of an episode in each world, ``[3, W]``."""
    ways, horizons = list[float](), list[float]()
    for world in study.worlds():
        plan = oracle(world)
        ways.append(float(plan.length) if plan is not None and plan.length >= 0 else math.nan)
        horizons.append(float(study.horizon.of(world)))
    horizon, invalid = np.array(horizons), first.invalid
    # Without a known shortest way, and without a turn that could be judged, anything up to the horizon may come.
    way = np.where(np.isnan(ways), horizon / 3, np.maximum(ways, 1))
    valid = first.asked - sum(first.failures.values())
    judged = first.scored + (first.asked - valid)
    if not judged:
        return np.stack([np.minimum(way, horizon), np.minimum(1.5 * way, horizon), horizon])
    centre = (first.optimal + 1) / (judged + 2)
    half = _Z * math.sqrt(centre * (1 - centre) / (judged + 3))
    rows = []
    for optimal in (min(1.0 - invalid, centre + half), min(1.0 - invalid, centre), max(0.0, centre - half)):
        nearer = optimal - max(0.0, 1 - optimal - invalid) / 2
        rows.append(np.minimum(way / nearer, horizon) if nearer > 0 else horizon)
    return np.stack(rows)


def _prompts(study: Study, agent: Agent, parameters: Mapping[str, Any], first: FirstTurns) -> tuple[float, float]:
    """Return the tokens of the longest prompt, and the ratio of the mean prompt length to that of the measured
    batch.
    """
    if not isinstance(agent, ChatAgent) or not first.counted:
        return 0.0, 1.0
    count = counter(agent, parameters)[0]
    worlds = study.worlds()
    chosen = [worlds[-1], *list(spread(worlds[:-1]))[: _PROMPTS - 1]] if len(worlds) > 1 else worlds
    horizons = [study.horizon.of(world) for world in chosen]
    prompts = [prompts_of(study, agent, world, horizon, count) for world, horizon in zip(chosen, horizons, strict=True)]
    mean = sum(prompt.total for prompt in prompts) / sum(horizons)
    return float(max(prompt.last for prompt in prompts)), mean / first.counted


def _read_anew(study: Study, agent: Agent, first: FirstTurns, length: Range) -> Range:
    """Return how much of the time of a measured turn a mean turn of the study takes, as far as reading goes.

    1 for all but local models: whether a server reads common beginnings once is not known.

    Args:
        study: the study.
        agent: one of its agents.
        first: its measured batch.
        length: mean number of turns of an episode.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel) or first.shared >= 1:
        return np.ones(3)
    worlds = study.worlds()
    same = [_same_beginning(study, agent, world) for world in list(spread(worlds))[:_PROMPTS]]
    later = max(first.shared, float(np.mean([share for shares in same for share in shares] or [0.0])))
    measured, beginning = 1 - first.shared, (1 - first.shared) / study.trajectories
    read = (beginning + (length - 1) * (1 - later)) / (length * measured * study.answers)
    written = first.usage.get("output_tokens", 0.0) / first.asked
    reading = first.counted * measured
    share = reading / (reading + _WRITTEN * written) if reading else 0.0
    # How much of the time of a turn is reading was not measured: all of it, the expected share, or half of that.
    return np.sort(1 - np.array([1.0, share, share / 2]) * (1 - np.minimum(read, 1.0)))


def _same_beginning(study: Study, agent: ChatAgent, world: World) -> list[float]:
    """Return, for some turns of an optimal episode, the share of a prompt that is the beginning of the one before."""
    episode = LiveEpisode(planned(study, world, _STEPS), world, study, study.history_of(agent))
    plan, prompts = oracle(world), list[bytes]()
    for step in range(_STEPS):
        observation = episode.observe()
        prompts.append(agent.prompt(observation).encode())
        action = step % len(observation.view.actions)
        if plan is not None and not isinstance(plan, TimedOracle) and plan.length >= 0:
            action = int(plan.look_up(np.array([episode.state], dtype=np.int64))[0][0].argmax())
        episode.apply(Turn(action=action, text=f'{{"action": "{observation.view.actions[action]}"}}'))
        if episode.outcome is not None:
            break
    return [common_prefix(pair) / len(pair[1]) for pair in pairwise(prompts)]


def _seconds(
    agent: Agent, first: FirstTurns, turns: Range, rounds: Range, grown: float, anew: Range, workers: int
) -> Range:
    """Return the range of seconds for some turns.

    Args:
        agent: the agent.
        first: its measured batch.
        turns: all turns.
        rounds: number of turns of the longest episode.
        grown: mean prompt tokens divided by those of the measured batch.
        anew: see `_read_anew`.
        workers: maximum number of simultaneous calls.
    """
    if getattr(agent, "largest_batch", _LIVE) == 1:
        at_once = getattr(agent, "concurrency", None) or workers
        portions = _lasting(first.portions)
        waves = sum(math.ceil(portion.turns / at_once) for portion in portions)
        live = np.maximum(1.0, np.minimum(at_once, turns / rounds))
        seconds_per_wave = sum(portion.seconds for portion in portions) / waves
        return np.array(_SPEED) * np.sqrt([1.0, grown, grown**2]) * seconds_per_wave * turns / live
    reads_only = isinstance(agent, ChatAgent) and not first.usage.get("output_tokens")
    fixed, another = _rates(first, reads_only)
    rounds = np.maximum(rounds, turns / _LIVE)
    fixed = fixed * rounds * np.maximum(1.0, turns / rounds / _ROWS)
    # Where nothing is written, a turn takes the time of its prompt; else reading has an unknown share of it.
    longer = np.full(3, grown) if reads_only else np.sort([1.0, math.sqrt(grown), grown])
    seconds: Range = np.array(_SPEED) * (fixed + another * longer * anew * turns)
    return seconds


def _lasting(portions: Sequence[Portion]) -> Sequence[Portion]:
    """Return the portions, without the first one if its time seems to include work that happens only once."""
    once = len(portions) > 2 or (len(portions) == 2 and portions[0].seconds >= portions[1].seconds)
    return portions[1:] if once else portions


def _rates(first: FirstTurns, reads_only: bool) -> tuple[Range, Range]:
    """Return the time ``F`` in which a portion writes answers of mean length, and the time ``m`` of each turn in it.

    Each is a triple: minimum, expected value and maximum.
    """
    portions = _lasting(first.portions)
    written = first.usage.get("output_tokens", 0.0) / first.asked
    long = np.array([portion.longest / written if portion.longest and written else 1.0 for portion in portions])
    mean = sum(portion.tokens for portion in portions) / sum(portion.turns for portion in portions)
    x = np.array([portion.tokens / mean if reads_only and mean else float(portion.turns) for portion in portions])
    t = np.array([max(portion.seconds, 1e-9) for portion in portions])
    last = float(t[-1] / x[-1])
    if x.max() < 2:
        # Turns that were asked alone do not tell how much of them others share: of reading, the common beginning.
        alone = np.array([first.shared, first.shared, 0.0]) if reads_only else np.array(_ALONE)
        slope = float(t.sum() / x.sum())
        return slope * alone, slope * (1 - alone)
    if len(t) == 1:
        return np.array([t[0] / 2, t[0] / 2, 0.0]) / long, np.array([last / 2, last / 2, last])
    # Least squares of relative errors.
    fixed, another = np.linalg.lstsq(np.stack([long / t, x / t], axis=1), np.ones(len(t)), rcond=None)[0]
    if fixed < 0 or another <= 0:
        fixed, another = (0.0, t.sum() / x.sum()) if fixed < 0 else (t.mean() / 2, last / 2)
    return np.array([fixed, fixed, 0.0]), np.array([another, another, max(last, another)])


def span(amount: Range, form: Callable[[float], str]) -> str:
    """Write an expected value with its minimum and maximum, as in ``about 12 min (8 min to 19 min)``.

    Args:
        amount: ``[3]`` minimum, expected value and maximum. If they are equal, only one is written.
        form: writes one value.
    """
    low, middle, high = (form(float(value)) for value in amount)
    return f"about {middle}" if low == middle == high else f"about {middle} ({low} to {high})"


def whole(value: float) -> str:
    """Write a number of tokens, rounded to three significant figures, as in "12,300"."""
    return f"{float(f'{value:.3g}'):,.0f}"


def amounts(total: Forecast) -> list[str]:
    """Describe the expected tokens, USD and memory of a forecast, one phrase each; what is 0 or unknown is left out."""
    parts = []
    if total.tokens[2]:
        prompt = f"{100 * total.prompt_tokens[1] / total.tokens[1]:.0f} %"
        parts.append(TEXTS("plan/tokens", tokens=span(total.tokens, whole), prompt=prompt))
    if total.priced:
        parts.append(TEXTS("plan/usd", usd=span(total.usd, "{:,.2f}".format)))
    if total.memory[1]:
        now, most = (value / 1e9 for value in total.memory)
        parts.append(TEXTS("plan/memory", now=f"{now:.2g}", most=f"{most:.2g}"))
    return parts
