"""Wrapper behind `goalscope.environments.oracle`, which reads states and adds to ``info`` but changes nothing else."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from goalscope._ground.extras import lacking
from goalscope.goals.meg import meg_known
from goalscope.integrations.gymnasium.live import LaidOut, LayoutReader, SearchedLayout, StateOf
from goalscope.worlds.environments.environment import Environment

try:
    import gymnasium
except ImportError as _error:
    raise lacking("an oracle for environments of Gymnasium needs gymnasium", "gymnasium", _error) from _error


class OracleEnv(gymnasium.Wrapper):  # type: ignore[misc]
    """Gymnasium environment with the optimal actions in ``info["goalscope"]``.

    After the last step of an episode, whether terminated or truncated, the key "episode" summarises this episode. The
    summary has no intervals; see `goalscope.environments.TrainingCurve` for these. Its keys:

    * "success", "length"; "accuracy", the share of optimal steps among the steps in states that have an optimal
      action; "path_ratio", the number of steps divided by the length of a shortest path, NaN if the goal was not
      reached;
    * "regret", the sum of regrets over the steps;
    * "returns": goal -> number of decisions, among the first "horizon", that began in a goal state; NaN if the episode
      was truncated earlier;
    * "meg", "meg_bound": goal -> signed MEG of that return in nats, and the greatest MEG that the layout admits;
    * "world": id of layout, initial state and horizon.

    Args:
        env, environment, state, goals, horizon, limit, search: as in `goalscope.environments.oracle`.
    """

    _layout: LaidOut | SearchedLayout
    _path: list[int]
    _chosen: list[float]
    _regret: float

    def __init__(
        self,
        env: Any,
        *,
        environment: Environment[Any] | None,
        state: StateOf | None,
        goals: Sequence[str] | None,
        horizon: int | None,
        limit: int,
        search: bool = False,
    ) -> None:
        super().__init__(env)
        self._goals = goals
        self._reader = LayoutReader(env, environment, state, horizon, limit, search)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the arguments and results are those of Gymnasium, with the oracle's entry in ``info``."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._layout, number = self._reader.begin()
        self._path, self._chosen, self._regret = [number], [], 0.0
        return observation, {**info, "goalscope": self._now()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action; the results are those of Gymnasium, with the oracle's entry in ``info``."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        layout, before, steps = self._layout, self._path[-1], len(self._path) - 1
        number = int(action)
        optimal = layout.optimal(before, steps)
        following = self._reader.after(layout, before, number, bool(terminated))
        regret = layout.regret(before, number, following, steps)
        self._path.append(following)
        self._chosen.append(float(optimal[number]) if optimal.any() else math.nan)
        self._regret += 0.0 if math.isnan(regret) else regret
        step_info = {**self._now(), "was_optimal": bool(optimal[number]), "regret": regret}
        if terminated or truncated:
            step_info["episode"] = self._episode(bool(terminated))
        return observation, reward, terminated, truncated, {**info, "goalscope": step_info}

    def _now(self) -> dict[str, Any]:
        number, steps = self._path[-1], len(self._path) - 1
        return {"optimal": self._layout.optimal(number, steps), "distance": self._layout.distance(number)}

    def _episode(self, terminated: bool) -> dict[str, Any]:
        layout = self._layout
        success, length = layout.reached(self._path[-1]), len(self._path) - 1
        shortest = layout.distance(self._path[0])
        decided = [share for share in self._chosen if not math.isnan(share)]
        info: dict[str, Any] = {
            "success": success,
            "length": length,
            "accuracy": float(np.mean(decided)) if decided else math.nan,
            "path_ratio": length / shortest if success and shortest > 0 else math.nan,
            "regret": self._regret,
            "world": layout.id,
            "horizon": layout.horizon,
        }
        if isinstance(layout, SearchedLayout):
            return {**info, "returns": {}, "meg": {}, "meg_bound": {}}
        names = [name for name in (layout.goals if self._goals is None else self._goals) if name in layout.goals]
        returns = {name: self._return(layout.goals[name], terminated) for name in names}
        curves = {name: layout.curve(name) for name in names}
        meg = {
            name: math.nan if math.isnan(returns[name]) else meg_known(curve, returns=[returns[name]]).signed
            for name, curve in curves.items()
        }
        return {
            **info,
            "returns": returns,
            "meg": meg,
            "meg_bound": {name: share.bound for name, share in curves.items()},
        }

    def _return(self, where: Any, terminated: bool) -> float:
        """Count the decisions within the horizon that began in a state which fulfils the goal."""
        horizon = self._layout.horizon
        if len(self._path) - 1 < horizon and not terminated:
            return math.nan
        path = [*self._path, *[self._path[-1]] * horizon][:horizon]
        return float(np.count_nonzero(where[path]))
