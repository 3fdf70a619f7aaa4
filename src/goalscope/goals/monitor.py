"""Follow an agent step by step: are its moves optimal, what do the last ones aim at, and does it still pursue a goal?

The alarm "no longer after h" is an e-detector of the Shiryaev-Roberts kind. At a step in which h calls for a set S of
the offered actions, with share s of them, an agent that pursues h leaves S with probability at most

    delta = lapse (1 - s)        it takes a random offered action in at most the share `lapse` of its moves

That bound is all we assume: how the agent chooses within S, which wrong moves it makes, and how its errors depend on
the past are free. An alternative i (another hypothesis with the lapse rate `RIVAL_LAPSE`, or random moves) leaves S
with probability delta_i, and is counted only in steps with delta_i > delta. Its likelihood ratio against the least
favourable agent, that with the largest error rate, is

    e_i = delta_i / delta                    if the move leaves S
    e_i = (1 - delta_i) / (1 - delta)        if it stays inside

Since e_i rises with the error, its expected value is at most 1 for every agent with a smaller error rate. Then

    R_i(t) = (R_i(t-1) + 1) e_i(t),    R(t) = mean over i of R_i(t),    alarm when R reaches `run`

R(t) minus the number of counted steps is a supermartingale, so an agent that pursues h makes at least `run` counted
steps on average until the alarm (optional stopping), and the alarm comes within n steps with probability at most
n / run. Steps without a valid move, and those in which h makes no prediction, are not counted.

Source: Shin, Ramdas and Rinaldo (2024), E-detectors: a nonparametric framework for sequential change detection,
section 2; Roberts (1966), A comparison of some control chart procedures.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np

from goalscope._ground.checks import check_number, check_whole, near_miss
from goalscope._ground.words import listed
from goalscope.goals.finding import TEXTS
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Mask, Undefined
from goalscope.goals.hypotheses.score import predictions_in
from goalscope.goals.hypotheses.separability import LAPSES
from goalscope.goals.hypotheses.states import states_of_episodes
from goalscope.goals.reading import asked_hypotheses
from goalscope.measures.performance import decisions_lost
from goalscope.measures.table import StepTable
from goalscope.runs.record import Episode
from goalscope.worlds.world import World

RANDOM: Final = "random moves"
"""Name of the alternative that all offered actions are equally likely."""

LAPSE: Final = 0.5
RUN: Final = 1000
LAST: Final = 8
RIVAL_LAPSE: Final = 0.1
FACTOR: Final = 10.0
"""A hypothesis explains the last moves if its likelihood is at least this many times that of random moves, and at least
the same fraction of the greatest."""

_NONE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """What a `Monitor` says about one step of an agent: whether it was optimal, and what the last moves aim at.

    Attributes:
        step: number of the step in its episode.
        action: name of the action; None for a turn without a valid move.
        optimal: whether the move is optimal for the goal of the world; None if unknown, or without a move.
        regret: steps that the move lost (in worlds with chance: decisions at the goal, in expectation); None if
            unknown, without a move, or if the goal is out of reach before or after the move.
        follows: hypotheses that explain the last moves, the best first; empty if they look random.
        evidence: evidence so far that the agent no longer pursues the expected goal, from the likelihood ratios of its
            moves; the alarm is raised when it reaches `Monitor.run`.
        instead: the alternative (another hypothesis, or random moves) for which there is most evidence; "" before the
            alarm.
        alarm: whether the alarm was raised at this step or before.
    """

    step: int
    action: str | None
    optimal: bool | None
    regret: float | None
    follows: tuple[str, ...]
    evidence: float
    instead: str
    alarm: bool

    def plain(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return {**asdict(self), "follows": list(self.follows)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Monitor:
    """Follows agents step by step, and raises an alarm when one no longer pursues the expected goal.

    Attributes:
        hypotheses: name -> hypothesis; all but the expected one are its rivals.
        expected: name of the hypothesis that the agent is expected to pursue.
        lapse: greatest share of random moves, in (0, 1], with which an agent still counts as pursuing the expected
            goal.
        run: limit of false alarms: an agent that pursues the expected goal makes at least this many steps on average
            before one. Steps without a valid move, or in which this goal calls for no particular move, do not count.
        last: number of the last moves that `StepReading.follows` explains.
    """

    hypotheses: Mapping[str, Hypothesis]
    expected: str = "goal"
    lapse: float = LAPSE
    run: int = RUN
    last: int = LAST
    _solved: dict[tuple[str, int], Mapping[int, Array]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.expected not in self.hypotheses:
            names = list(self.hypotheses)
            raise ValueError(
                f"expected must be one of the hypotheses ({', '.join(names)}), got {self.expected!r}"
                f"{near_miss(self.expected, names)}"
            )
        check_number("lapse", self.lapse, 0.001, 1.0)
        check_whole("run", self.run, 2, "steps")
        check_whole("last", self.last, 1, "moves")

    @classmethod
    def of_worlds(cls, worlds: Sequence[World], expected: str, written: Sequence[str] = (), **settings: Any) -> Self:
        """Create a monitor from hypotheses in written form, such as "goal" or "corner top-right".

        Args:
            worlds: the worlds in which agents are followed.
            expected: written form of the hypothesis that agents are expected to pursue.
            written: written forms of its rivals; if empty, the default hypotheses of the worlds.
            settings: `lapse`, `run` and `last`, see the class.

        Raises:
            ValueError: a text is not a written form, or a setting is out of bounds.
        """
        rivals = asked_hypotheses(list(dict.fromkeys(written)), worlds, anywhere=True)
        return cls(
            hypotheses={**asked_hypotheses([expected], worlds, anywhere=True), **rivals}, expected=expected, **settings
        )

    def policies(self, world: FiniteWorld) -> Mapping[int, Array]:
        """Return the policies of the hypotheses that are defined in a world.

        Returns:
            Number of a hypothesis in the order of `hypotheses` -> ``[n, S, A]`` action probabilities, by decision and
            state.

        Raises:
            Undefined: the expected hypothesis is undefined in the world.
        """
        key = world.world.id, world.horizon
        if key not in self._solved:
            self.hypotheses[self.expected].solved(world)  # raises the reason if it is undefined
            self._solved[key] = predictions_in(world, self.hypotheses, 0).policies
        return self._solved[key]

    def readings(self, episode: Episode) -> list[StepReading]:
        """Follow the agent through an episode, and return for each step what is known about the agent by then.

        Raises:
            Undefined: the states or the rules of the episode's world are not known, or the expected hypothesis is
                undefined.
        """
        members, left_out = states_of_episodes([episode])
        if not members:
            raise Undefined(f"the states of a transcript must be known to judge its moves: {'; '.join(left_out)}")
        [states] = members
        table = StepTable.from_episodes([episode], tasks="tasks" in episode.world.offers)
        names = episode.world.begin_episode(episode.spec.seed, episode.spec.id).view.actions
        optimal = table.is_optimal if "oracle" in table.offers else None
        lost = np.where(table.distance >= 0, 1.0 + table.after - table.distance, np.nan)
        lost = np.where(table.after >= 0, lost, np.nan) if "distance" in table.offers else decisions_lost(table)
        detector, readings = Detector(self), list[StepReading]()
        detector.begin(states.world)
        for number, (step, state, action) in enumerate(
            zip(episode.steps, states.state.tolist(), states.action.tolist(), strict=True)
        ):
            detector.update(state, number, action)
            moved = action >= 0
            readings.append(
                StepReading(
                    step=step.index,
                    action=names[action] if moved else None,
                    optimal=bool(optimal[number]) if moved and optimal is not None else None,
                    regret=float(lost[number]) if moved and np.isfinite(lost[number]) else None,
                    follows=detector.follows(),
                    evidence=detector.evidence,
                    instead=detector.instead,
                    alarm=bool(detector.instead),
                )
            )
        return readings

    def summary(self, readings: Sequence[StepReading]) -> dict[str, Any]:
        """Summarise the readings of one episode as a dictionary of JSON values.

        Returns:
            "moves": number of valid moves; "optimal": share of the moves with a known optimum that are optimal;
            "regret": sum of the known regrets; "follows": list of hypotheses that the last moves fit; "alarm": step of
            the alarm; "says": all of this in words. Values that are not known are None.
        """
        judged = [reading.optimal for reading in readings if reading.optimal is not None]
        lost = [reading.regret for reading in readings if reading.regret is not None]
        alarms = [reading for reading in readings if reading.alarm]
        follows = list(readings[-1].follows) if readings else []
        texts = list[str]()
        if judged:
            counts = {"optimal": sum(judged), "moves": len(judged)}
            texts.append(
                TEXTS("monitor/optimal", **counts, lost=f"{sum(lost):g}")
                if lost
                else TEXTS("monitor/optimal only", **counts)
            )
        texts.append(
            TEXTS("monitor/follows", names=listed([*map(self._phrase, follows)], "or"))
            if follows
            else TEXTS("monitor/random")
        )
        if alarms:
            first = alarms[0]
            fields = {"expected": self._phrase(self.expected), "instead": self._phrase(first.instead)}
            texts.append(TEXTS("monitor/alarm", step=first.step, **fields))
        else:
            texts.append(TEXTS("monitor/no alarm", expected=self._phrase(self.expected)))
        return {
            "moves": sum(reading.action is not None for reading in readings),
            "optimal": sum(judged) / len(judged) if judged else None,
            "regret": sum(lost) if lost else None,
            "follows": follows,
            "alarm": alarms[0].step if alarms else None,
            "says": "; ".join(texts),
        }

    def _phrase(self, name: str) -> str:
        return name if name == RANDOM else self.hypotheses[name].says


class Detector:
    """Follows one agent for a `Monitor`: it keeps the evidence for each alternative goal, and the agent's last moves.

    Call `begin` at the start of each episode and `update` after each step.

    Args:
        monitor: the expected goal, its rivals and the settings.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.names = [*monitor.hypotheses, RANDOM]
        self._expected = self.names.index(monitor.expected)
        self._rivals = np.array([number for number in range(len(self.names)) if number != self._expected])
        self.totals = np.zeros(len(self._rivals))
        self.instead = ""
        self._window: deque[Array] = deque(maxlen=monitor.last)

    @property
    def evidence(self) -> float:
        """Evidence that the agent no longer pursues the expected goal; the alarm is raised when it reaches
        `Monitor.run`.

        It is an e-detector, a statistic made of likelihood ratios of the agent's moves, which rarely becomes large as
        long as the agent pursues the expected goal.
        """
        return float(self.totals.mean())

    def begin(self, world: FiniteWorld) -> None:
        """Begin an episode in a world. The evidence from earlier episodes still counts."""
        self._world, policies = world, self.monitor.policies(world)
        self._policies = [policies.get(number) for number in range(len(self.monitor.hypotheses))]
        self._states = dict[tuple[int, int], tuple[Array, Mask, Array]]()
        self._decisions = max(len(policy) for policy in policies.values())

    def update(self, state: int, time: int, action: int) -> None:
        """Take one step of the agent into account: update the evidence, and raise the alarm if it suffices.

        Args:
            state: number of the state before the step.
            time: number of the step in its episode.
            action: number of the action, -1 for a turn without a valid move.
        """
        if action < 0:
            return
        key = state, min(time, self._decisions - 1)
        if key not in self._states:
            chances, even = self.chances(*key)
            mixed = (1 - LAPSES) * chances[:, :, None] + LAPSES * even[:, None]
            self._states[key] = np.log(np.maximum(mixed, 1e-300)), *self.ratios(chances, even)
        logs, inside, ratios = self._states[key]
        self._window.append(logs[:, action])
        counted = ratios[0] > 1 + _NONE
        self.totals = np.where(counted, (self.totals + 1) * ratios[int(inside[action])], self.totals)
        if not self.instead and self.evidence >= self.monitor.run:
            self.instead = self.names[self._rivals[int(self.totals.argmax())]]

    def chances(self, state: int, time: int) -> tuple[Array, Array]:
        """Return the probability of each action under each hypothesis and under random moves, in one state.

        Args:
            state: number of the state.
            time: number of the step in its episode.

        Returns:
            ``[K + 1, A]`` for the K hypotheses and, in the last row, random moves; and this last row alone, ``[A]``.
        """
        even = self._world.even[state]
        rows = [even if policy is None else policy[min(time, len(policy) - 1), state] for policy in self._policies]
        return np.stack([*rows, even]), even

    def ratios(self, chances: Array, even: Array) -> tuple[Mask, Array]:
        """Return how much a move in one state speaks for each alternative, against the expected hypothesis.

        An alternative is another hypothesis or random moves.

        Args:
            chances, even: the results of `chances`.

        Returns:
            ``[A]`` bool, the actions that the expected hypothesis calls for; and ``[2, I]`` likelihood ratios for I
            alternatives: first for a move that is none of these actions, then for one of them. Both are 1 for
            alternatives that are not counted.
        """
        inside = (chances[self._expected] > _NONE) & (even > 0)
        share = float(even[inside].sum())
        least = self.monitor.lapse * (1 - share)
        if least <= _NONE:  # it calls for any action
            return inside, np.ones((2, len(self._rivals)))
        rivals = chances[self._rivals]
        leave = (1 - RIVAL_LAPSE) * rivals[:, ~inside].sum(axis=1) + RIVAL_LAPSE * (1 - share)
        silent = np.abs(rivals - even).max(axis=1) < _NONE
        leave = np.where(silent, least, leave)
        leave[-1] = 1 - share  # random moves
        leave = np.maximum(leave, least)
        return inside, np.stack([leave / least, (1 - leave) / (1 - least)])

    def follows(self) -> tuple[str, ...]:
        """Return the names of the hypotheses that explain the agent's last moves, the best first; empty if they look
        random.
        """
        if not self._window:
            return ()
        best = np.sum(self._window, axis=0).max(axis=1)  # each at its own lapse rate
        *logs, random = best.tolist()
        bar = max(random + np.log(FACTOR), max(logs) - np.log(FACTOR)) - _NONE
        order = sorted(range(len(logs)), key=lambda number: -round(logs[number], 9))
        return tuple(self.names[number] for number in order if logs[number] >= bar)
