"""Goal-directedness over training time, computed from the oracle's episode summaries in windows of training steps.

A window has the success, accuracy, path ratio and MEG towards each goal of its episodes (see
`goalscope.environments.oracle`). Intervals are over worlds (layouts with initial states) if there are several, and
over episodes otherwise. The policy changes within a window, so the numbers are averages over the window.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from goalscope._ground.checks import check_whole
from goalscope._ground.extras import lacking
from goalscope.goals.meg.known import SharedCurve
from goalscope.integrations.gymnasium.oracle import KNOWN, LaidOut
from goalscope.stats import Estimate, estimate_mean
from goalscope.stats.records import Records

MEASURES: Final = {
    "success": ("share", (0.0, 1.0)),
    "accuracy": ("share", (0.0, 1.0)),
    "path_ratio": ("ratio", (1.0, math.inf)),
}
"""Measure of an episode -> unit and bounds."""

_NO_LAYOUTS = "no MEG: the layouts are in other processes; keep the environments in this one"


@dataclass(eq=False)
class TrainingCurve(Records):
    """How success and goal-directedness (MEG) develop over the training of a policy, in windows of environment steps.

    Call `add` after each step with the ``info`` of environments that `oracle` wraps, or use `callback`.

    Attributes:
        every: number of environment steps per window.
        confidence: nominal coverage of the intervals.

    Raises:
        ValueError: a window without steps.
    """

    every: int = 10_000
    confidence: float = 0.95
    _windows: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list), repr=False)
    _layouts: dict[str, LaidOut] = field(default_factory=dict, repr=False)
    _done: dict[int, list[dict[str, Any]]] = field(default_factory=dict, repr=False)
    _told: int = field(default=-1, repr=False)

    def __post_init__(self) -> None:
        check_whole("every", self.every, 1, "steps")

    def add(self, infos: Any, step: int) -> dict[str, float]:
        """Add what the environments reported about one step, in their ``info``, to the curve.

        Args:
            infos: ``info`` of one environment, a list of infos (stable-baselines3), or the dict of arrays of a
                vectorised Gymnasium environment.
            step: number of environment steps of the training so far.

        Returns:
            At the first call after the end of a window, its values by name for a logger, e.g. "goalscope/accuracy" or
            "goalscope/meg/goal"; otherwise an empty dict.
        """
        window = max(0, step - 1) // self.every
        for episode in _episodes(infos):
            self._windows[window].append(episode)
            if episode["world"] in KNOWN:
                self._layouts[episode["world"]] = KNOWN[episode["world"]]
        if window <= self._told + 1:
            return {}
        self._told = window - 1
        return {
            "goalscope/" + "/".join(filter(None, (estimate["measure"], estimate["towards"]))): estimate["value"]
            for estimate in self._of(self._told)
            if not math.isnan(estimate["value"])
        }

    @property
    def records(self) -> list[dict[str, Any]]:
        """The curve as a list of dictionaries, one per window and measure.

        Each has steps, measure, towards (the goal), value, low, high, n, clusters and note.
        """
        return [record for window in sorted(self._windows) for record in self._of(window)]

    def callback(self) -> Any:
        """Create a stable-baselines3 callback for ``model.learn(..., callback=...)`` that updates and logs the curve.

        Raises:
            ImportError: stable-baselines3 is missing.
        """
        try:
            from stable_baselines3.common.callbacks import BaseCallback
        except ImportError as error:
            raise lacking("a callback for stable-baselines3 needs stable_baselines3", "sb3", error) from error
        curve = self

        class _Adds(BaseCallback):  # type: ignore[misc]
            def _on_step(self) -> bool:
                for name, value in curve.add(self.locals["infos"], self.num_timesteps).items():
                    self.logger.record(name, value)
                return True

        return _Adds()

    def _of(self, window: int) -> list[dict[str, Any]]:
        episodes = self._windows.get(window, [])
        window_estimates = self._done.get(window)
        if window_estimates is not None and window_estimates[0]["episodes"] == len(episodes):
            return window_estimates
        made = [
            {
                "steps": (window + 1) * self.every,
                "measure": measure,
                "towards": towards,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "n": estimate.n,
                "clusters": estimate.clusters,
                "unit": estimate.unit,
                "note": estimate.note,
                "episodes": len(episodes),
            }
            for measure, towards, estimate in self._estimates(episodes)
        ]
        if made:
            self._done[window] = made
        return made

    def _estimates(self, episodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Estimate]]:
        if not episodes:
            return
        worlds = [str(episode["world"]) for episode in episodes]
        clusters: Sequence[Any] = worlds if len(set(worlds)) > 1 else range(len(episodes))
        for measure, (unit, bounds) in MEASURES.items():
            values = np.array([episode[measure] for episode in episodes], dtype=np.float64)
            yield (
                measure,
                "",
                estimate_mean(values, clusters, unit=unit, bounds=bounds, confidence=self.confidence),
            )
        for goal in dict.fromkeys(name for episode in episodes for name in episode["returns"]):
            chosen = [
                index
                for index, episode in enumerate(episodes)
                if not math.isnan(episode["returns"].get(goal, math.nan))
            ]
            yield "meg", goal, self._meg(goal, [episodes[index] for index in chosen], [clusters[i] for i in chosen])

    def _meg(self, goal: str, episodes: Sequence[Mapping[str, Any]], clusters: Sequence[Any]) -> Estimate:
        """Estimate signed MEG with one rationality for all worlds.

        The interval is that of the mean return, mapped through the curve of MEG against return.
        """
        worlds = list(dict.fromkeys(episode["world"] for episode in episodes))
        lacks = "no episode was as long as the horizon" if not worlds else ""
        if lacks or any(world not in self._layouts for world in worlds):
            note = lacks or _NO_LAYOUTS
            return Estimate(
                value=math.nan, low=math.nan, high=math.nan, n=0, clusters=0, method="", unit="nats", note=note
            )
        curves = [self._layouts[world].curve(goal) for world in worlds]
        highest = {world: curve.highest for world, curve in zip(worlds, curves, strict=True)}
        returns = np.array([episode["returns"][goal] for episode in episodes])
        number = {world: index for index, world in enumerate(worlds)}
        codes = np.array([number[episode["world"]] for episode in episodes])
        means = np.bincount(codes, weights=returns) / np.bincount(codes)
        # The gap between a return and the highest return varies less over worlds than the return itself.
        lacking_of = returns - np.array([highest[episode["world"]] for episode in episodes])
        ranges = [curve.episode_range for curve in curves]
        bounds = (
            min(low - curve.highest for (low, _), curve in zip(ranges, curves, strict=True)),
            max(high - curve.highest for (_, high), curve in zip(ranges, curves, strict=True)),
        )
        mean = estimate_mean(lacking_of, clusters, unit="decisions", bounds=bounds, confidence=self.confidence)
        shared = SharedCurve(curves)
        low, high = (float(np.mean([getattr(curve, end) for curve in curves])) for end in ("lowest", "highest"))

        def meg(by: float) -> float:
            if math.isnan(by):
                return math.nan
            moved = min(max(float(means.mean()) + by, low), high) - float(means.mean())
            return shared.meg(means + moved).signed

        return Estimate.of_ends(
            meg(0.0),
            meg(mean.low - mean.value),
            meg(mean.high - mean.value),
            n=mean.n,
            clusters=mean.clusters,
            method="score interval of the mean return, through W*",
            unit="nats",
            confidence=self.confidence,
            note=mean.note,
        )


def _episodes(infos: Any) -> Iterator[dict[str, Any]]:
    """Yield the summaries of the episodes that ended."""
    if not isinstance(infos, Mapping):
        for info in infos:
            yield from _episodes(info)
        return
    for source in (infos, infos.get("final_info")):
        recorded = source.get("goalscope") if isinstance(source, Mapping) else None
        episode = recorded.get("episode") if isinstance(recorded, Mapping) else None
        if isinstance(episode, Mapping) and "_success" in episode:
            for index in np.flatnonzero(episode["_success"]).tolist():
                yield _one(episode, index)
        elif isinstance(episode, Mapping):
            yield dict(episode)


def _one(episode: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Extract the summary of one environment's episode from masked arrays."""
    figures: dict[str, Any] = {}
    for name, values in episode.items():
        if name.startswith("_") or not episode[f"_{name}"][index]:
            continue
        figures[name] = _one(values, index) if isinstance(values, Mapping) else values[index]
    return figures
