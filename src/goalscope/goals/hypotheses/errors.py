"""The errors of an agent that follows a hypothesis: the likelihood of its answers, and whether they have a pattern.

**Likelihood.** All inference uses this one. The agent makes two kinds of errors: in a share *fixed* of the states it
always makes the same wrong move, and elsewhere a share *random* of its answers is drawn from all m offered actions.
With the counts n of the answers in a state, the policy p and r = random there, the likelihood is

    (1 - fixed) prod ((1 - r) p(a) + r / m)^n(a) + fixed mean over wrong b of prod ((1 - r) 1[a = b] + r / m)^n(a)

Wrong is each action that the policy prefers less than chance does.

**Patterns.** Do the errors fall on states by chance, or is there another aim in them? At temperature 0 an agent that
errs in a state makes the same wrong move whenever it returns. Such errors repeat, as the moves towards another aim do;
what tells them apart is whether they can be foreseen in *new* states. We therefore look at each state once, when an
episode of the world first comes to it, and separate two kinds of errors from the two answers given there:

    q1  = mean share of answers that follow the hypothesis       (1 - fixed) (1 - random)
    q2  = mean of the product of both answers' shares            (1 - fixed) (1 - random)^2

so that ``random = 1 - q2 / q1``, the error rate within a state, and ``fixed = 1 - q1^2 / q2``, the share of states in
which the agent always errs. Then we ask whether anything foresees where the errors occur and what they are:

- places: the distance and the direction of the hypothesis's place, walls ahead, the number of ways, the best action,
  the size of the grid, the time, and the world itself (in some worlds another aim);
- moves: whether the wrong moves are those of another hypothesis.

Each is one standardised statistic. The largest is compared with its distribution over simulated agents that follow the
hypothesis with the same two error rates in the same worlds, their errors independent from state to state (a parametric
bootstrap). The agents are simulated to the end of their episodes, because a fixed error ends what an agent sees of a
world: it keeps bumping, or turns back again and again. If the p value lies below `PATTERN`, the errors have a pattern;
in many states, where the test finds other aims at a stricter level as well, below `PATTERN_IN_MANY`.

Source of the bootstrap test: Davison and Hinkley (1997), Bootstrap Methods and their Application, section 4.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.hypotheses.definition import Array, Hypothesis, Mask, Numbers, Undefined, place_of
from goalscope.goals.hypotheses.score import SIDES, Predictions
from goalscope.goals.hypotheses.states import Answers
from goalscope.worlds.grid import DELTAS

_LEAST: Final = 1e-300  # least probability whose logarithm is taken


PATTERN: Final = 0.1
"""Level of the test for a pattern in the errors: a greater p value is needed for errors to count as independent. One in
ten agents that pursue a hypothesis, with independent errors, are left open by it."""
PATTERN_IN_MANY: Final = 0.02
"""The same level in at least `MANY` states."""
MANY: Final = 250
SIMULATED: Final = 400
"""Number of simulated agents for each test."""
DISTANCES: Final = {f"at most {count} steps away": count for count in (1, 2, 3, 4, 5, 6, 8)}
"""Label -> distance of the place, in steps, at which the errors of an agent may begin or end."""
TURNS: Final = {f"the first {count} turns": count for count in (1, 2, 3, 4, 5, 6, 8, 10)}
"""Label -> number of turns after which the errors of an agent may begin or end."""
SMALL_GRIDS: Final = "small grids"
SMALL: Final = 7
"""Largest number of rows of a small grid."""
_EXACTLY: Final = {f"exactly {count} steps away": count for count in (2, 3, 4, 5, 6, 8)}
_WORLDS: Final = "worlds"
_FEWEST: Final = 3  # states on either side of a division
_MOST_ACTIONS: Final = 8
_NONE: Final = 1e-12


def wrong_moves(policies: Array, even: Array) -> Mask:
    """Return the wrong moves in each state: offered actions to which a policy gives less than the uniform probability.

    Args:
        policies: ``[..., U, A]`` probabilities of actions in U states.
        even: ``[U, A]`` the uniform policy over the offered actions.

    Returns:
        ``[..., U, A]`` bool; False for all actions of a state where the policy is uniform.
    """
    return np.asarray((policies < even - 1e-9) & (even > 0))


def with_errors(policies: Array, even: Array, random: Array, fixed: Array | float = 0.0) -> Array:
    """Return the action probabilities of agents that follow policies but make errors, at their first visit to U states.

    Args:
        policies: ``[..., U, A]`` probabilities of actions without errors.
        even: ``[U, A]`` the uniform policy over the offered actions.
        random: ``[..., U]`` share of the answers that are drawn at random from the offered actions.
        fixed: ``[..., 1, 1]`` share of the states in which the agent always makes the same wrong move.

    Returns:
        ``[..., U, A]`` probabilities of actions.
    """
    if np.any(fixed):
        wrong = wrong_moves(policies, even)
        number = wrong.sum(axis=-1, keepdims=True)
        errs = np.where(number > 0, wrong / np.maximum(number, 1), policies)
        policies = (1 - fixed) * policies + fixed * errs
    rate = random[..., None]
    return np.asarray((1 - rate) * policies + rate * even)


def log_likelihood(
    policies: Array, even: Array, counts: Array, random: Array, fixed: Sequence[float] = (0.0,)
) -> Array:
    """Return the log likelihood of an agent's answers in U states if it follows a policy with errors.

    The agent makes two kinds of errors: a share of its answers is random, and in a share of the states (the fixed
    share) it always makes the same wrong move.

    Args:
        policies, even, random: as in `with_errors`.
        counts: ``[U, A]`` number of answers with each action.
        fixed: the F fixed shares to compare.

    Returns:
        ``[..., F]`` log likelihood of all answers together for each fixed share, in nats.
    """
    follows = np.einsum("...ua,ua->...u", np.log(np.maximum(with_errors(policies, even, random), _LEAST)), counts)
    if not any(fixed):
        return np.asarray(np.repeat(follows.sum(axis=-1)[..., None], len(fixed), axis=-1))
    background = random[..., None] * even
    low = np.log(np.maximum(background, _LEAST))
    always = counts * (np.log(1 - random[..., None] + background) - low) + (counts * low).sum(axis=-1, keepdims=True)
    wrong = wrong_moves(policies, even)
    number = wrong.sum(axis=-1)
    masked = np.where(wrong, always, -np.inf)
    top = np.where(number > 0, masked.max(axis=-1), 0.0)
    sums = np.exp(masked - top[..., None]).sum(axis=-1)
    errs = top + np.log(np.maximum(sums, _LEAST)) - np.log(np.maximum(number, 1))
    errs = np.where(number > 0, errs, follows)  # without a wrong move there is no error
    shares = [
        follows if share == 0 else np.logaddexp(np.log(1 - share) + follows, np.log(share) + errs) for share in fixed
    ]
    return np.asarray(np.stack(shares, axis=-1).sum(axis=-2))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPattern:
    """How an agent deviates from one hypothesis at its first visits to N states, and whether its errors have a pattern.

    Attributes:
        states: number of states N in which the hypothesis makes a prediction.
        followed: share of the answers there that follow it.
        fixed: share of the states in which the agent always errs.
        random: share of the answers in the other states that err.
        p: p value of the test that the errors are independent from state to state.
        label: description of the states or moves in which errors deviate most from chance, such as "at most 3 steps
            away"; "" if there are no errors.
        fewer: whether the agent errs less often in the states or turns that the label describes (e.g. at most 3 steps
            away) than in the others. False if the label describes no such set: "worlds", "moves" or "".
    """

    states: int
    followed: float
    fixed: float
    random: float
    p: float
    label: str
    fewer: bool = False

    @property
    def unforeseen(self) -> bool:
        """Whether no pattern was found in the errors, so that the two error rates describe them."""
        return self.p >= (PATTERN if self.states < MANY else PATTERN_IN_MANY) and self.followed > 0


def first_visits(all_answers: Sequence[Answers]) -> list[Answers]:
    """Reduce the answers in each world to the agent's first answer in each state, in the order of the visits."""
    return [answers.only(np.sort(np.unique(answers.state, return_index=True)[1])) for answers in all_answers]


def rates(followed: Array, repeated: Array, states: Array) -> tuple[Array, Array]:
    """Estimate from two answers per state how often an agent errs always, and how often it errs at random.

    Args:
        followed: sum over states of the share of answers that follow the hypothesis.
        repeated: sum over states of the product of the shares of both answers.
        states: number of states in each sum. All three arrays have the same shape.

    Returns:
        The share of states in which the agent always errs (fixed errors), and the share of the answers in the other
        states that err (random errors); both have the shape of the sums.
    """
    once, twice = followed / np.maximum(states, _NONE), repeated / np.maximum(states, _NONE)
    random = np.clip(1 - twice / np.maximum(once, _NONE), 0.0, 1.0)
    return np.clip(1 - once / np.maximum(1 - random, _NONE), 0.0, 1.0), random


def error_pattern(
    all_answers: Sequence[Answers],
    predictions: Mapping[str, Predictions],
    hypotheses: Sequence[Hypothesis],
    number: int,
    *,
    inside: Mapping[str, Mask] | None = None,
    seed: int = 0,
) -> ErrorPattern:
    """Measure how an agent deviates from a hypothesis, and test whether its errors have a pattern.

    Errors without a pattern are independent from state to state. A pattern, such as errors only far from the goal,
    shows that the agent follows the hypothesis only in part or pursues something else. The p value compares the agent
    with simulated agents that follow the hypothesis with the same rate of errors, independent from state to state.

    Args:
        all_answers: the agent's answers, world by world, each step answered twice. The second answers separate the
            states in which the agent always errs from errors that it makes at random.
        predictions: world id -> the policies of the hypotheses in this world.
        hypotheses: the hypotheses in the order of the predictions. All but the tested one are rivals: it is also tested
            whether the errors are moves that a rival calls for.
        number: index of the hypothesis to test.
        inside: world id -> ``[S]`` bool, the states to consider; None for all.
        seed: root seed of the simulated agents.

    Returns:
        The rates of both sorts of errors, the p value, and a label of the states or moves that stand out most.
    """
    worlds = [
        _WorldErrors(answers, predictions[answers.world.world.id], hypotheses, number, inside)
        for answers in all_answers
        if number in predictions[answers.world.world.id].policies
    ]
    worlds = [world for world in worlds if len(world.seen.state)]
    if not worlds:
        return ErrorPattern(states=0, followed=0.0, fixed=0.0, random=0.0, p=1.0, label="")
    seen = [world.seen for world in worlds]
    first, second = (np.concatenate([getattr(visits, name)[0] for visits in seen]) for name in ("first", "second"))
    fixed, random = rates((first + second).sum() / 2, (first * second).sum(), np.array(len(first)))
    p, label, fewer = 1.0, "", False
    if fixed + random > 1e-9:
        p, label, fewer = _test(worlds, float(fixed), float(random), len(hypotheses), seed)
    return ErrorPattern(
        states=len(first),
        followed=float((first + second).mean() / 2),
        fixed=float(fixed),
        random=float(random),
        p=p,
        label=label,
        fewer=fewer,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Visits:
    """First visits of B agents to states of one world, in L turns.

    Attributes:
        state, time: ``[B, L]`` state of each turn, and its time in the episode.
        counts: ``[B, L]`` whether this is the first visit to a state in which the hypothesis prefers some actions.
        first, second: ``[B, L]`` share of each answer that follows the hypothesis.
        wrong: ``[B, L, A]`` mean mass of both answers on actions that do not follow it.
    """

    state: Numbers
    time: Numbers
    counts: Mask
    first: Array
    second: Array
    wrong: Array


class _WorldErrors:
    """What an agent did at its first visits to the states of one world, and what may predict its errors."""

    def __init__(
        self,
        answers: Answers,
        predictions: Predictions,
        hypotheses: Sequence[Hypothesis],
        number: int,
        inside: Mapping[str, Mask] | None,
    ) -> None:
        self.world = answers.world
        self.offered = self.world.even > 0
        policy = predictions.policies[number]
        self.optimal = (policy > _NONE) & self.offered  # [n, S, A]
        self.prefers: Mask = np.asarray((self.optimal != self.offered).any(axis=2) & self.optimal.any(axis=2))
        if inside is not None:
            self.prefers = np.asarray(self.prefers & inside[self.world.world.id])
        begins = np.flatnonzero(np.diff(answers.episode, prepend=-1))
        self.begins = list(zip(answers.state[begins].tolist(), answers.time[begins].tolist(), strict=True))
        visits = first_visits([answers])[0]
        decision = np.minimum(visits.time, len(policy) - 1)
        says = self.prefers[decision, visits.state]
        chosen = self.optimal[decision, visits.state]
        second = visits.first if visits.second is None else visits.second
        self.seen = _Visits(
            visits.state[says][None],
            visits.time[says][None],
            np.ones((1, int(says.sum())), dtype=bool),
            (visits.first * chosen).sum(axis=1)[says][None],
            (second * chosen).sum(axis=1)[says][None],
            ((visits.first + second) / 2 * ~chosen)[says][None],
        )
        self.divisions = self._divisions(hypotheses[number])
        self._rivals(predictions, len(hypotheses), number)

    @cached_property
    def changing(self) -> Mask:
        """``[S, A]`` actions that change the state; all offered ones where actions have several outcomes."""
        return self.offered if self.world.process.chance else np.asarray(self.world.changing & self.offered)

    def _divisions(self, hypothesis: Hypothesis) -> dict[str, Mask]:
        """Return masks over the S states, ``[S]`` each, by the name of the property that the marked states have."""
        divisions, optimal, aim = dict[str, Mask](), self.optimal[0], place_of(hypothesis)
        if aim is not None:
            try:
                steps = self.world.steps_to(aim.where(self.world))
                divisions |= {label: steps <= count for label, count in DISTANCES.items()}
                divisions |= {label: steps == count for label, count in _EXACTLY.items()}
                if aim.kind == "place":
                    offset: Array = self.world.further(aim.cell(self.world))
                    divisions |= {name: side(*offset.T) for name, side in SIDES.items()}
                    if optimal.shape[1] == len(DELTAS):
                        ahead: Mask = np.asarray(offset @ DELTAS.T > 0)
                        divisions |= {
                            "no way straight ahead": ~np.asarray((ahead & optimal).any(axis=1)),
                            "a wall straight ahead": np.asarray((ahead & ~self.changing).any(axis=1)),
                            "a detour": np.asarray((ahead & ~optimal).any(axis=1)),
                            "a wrong open way": np.asarray((ahead & ~optimal & self.changing).any(axis=1)),
                        }
            except Undefined:  # stochastic, or not a grid
                pass
        ways = self.changing.sum(axis=1)
        divisions |= {"at most two ways": ways <= 2, "at least four ways": ways >= 4}
        for action in range(optimal.shape[1]) if optimal.shape[1] <= _MOST_ACTIONS else ():
            divisions[f"action {action} is best"] = optimal[:, action]
            divisions[f"action {action} is open and wrong"] = self.changing[:, action] & ~optimal[:, action]
        if "grid" in self.world.world.offers:
            divisions[SMALL_GRIDS] = np.full(len(ways), self.world.grid.height <= SMALL)
        return divisions

    def _rivals(self, predictions: Predictions, count: int, number: int) -> None:
        """Set which wrong actions follow each of K rivals.

        `rivals` ``[K, S * A]`` marks these actions; `expected` ``[K, S]`` is the chance that a wrong move is one.
        """
        optimal = self.optimal[0]
        wrong = self.offered & ~optimal
        rivals = np.zeros((count, *wrong.shape), dtype=bool)
        for rival, policy in predictions.policies.items():
            if rival != number and rival < count:
                rivals[rival] = (policy[0] > _NONE) & wrong
        rivals &= (rivals.any(axis=2) & (wrong & ~rivals).any(axis=2))[:, :, None]
        chance = _spread(np.where((wrong & self.changing).any(axis=1, keepdims=True), wrong & self.changing, wrong))
        bumping = _spread(wrong)
        # The less favourable of two chances: wrong moves among all actions, or among those that change the state.
        self.expected = np.maximum((rivals * chance).sum(axis=2), (rivals * bumping).sum(axis=2))
        self.rivals = rivals.reshape(count, -1)

    def simulate(self, fixed: float, random: float, bumps: float, rng: np.random.Generator) -> _Visits:
        """Simulate agents that follow the hypothesis with errors that are independent from state to state.

        Args:
            fixed: share of the states in which an agent always makes the same wrong move.
            random: error rate of each answer in the other states.
            bumps: share of the wrong moves that do not change the state, where both kinds exist.
            rng: source of the random numbers.
        """
        agents = np.arange(SIMULATED)
        shape = (SIMULATED, sum(max(self.world.horizon - start, 1) for _, start in self.begins))
        states, times = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
        counts, usual, errs = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
        first, second = np.zeros(shape), np.zeros(shape)
        wrong = np.zeros((*shape, self.offered.shape[1]))
        at = 0
        for begin, start in self.begins:
            state = np.full(SIMULATED, begin)
            for time in range(start, max(self.world.horizon, start + 1)):
                live = self.world.live[state]
                decision = min(time, len(self.optimal) - 1)
                before = states[:, :at] == state[:, None]
                seen = before.any(axis=1)
                earlier = before.argmax(axis=1) if at else np.zeros(SIMULATED, dtype=np.int64)
                says = self.prefers[decision, state]
                # What the agent always does in a state is drawn when it first comes there.
                good = _drawn(self.optimal[decision, state], rng)
                bad = self._wrong(state, decision, bumps, rng)
                errs[:, at] = np.where(seen, errs[agents, earlier], says & (rng.random(SIMULATED) < fixed))
                usual[:, at] = np.where(seen, usual[agents, earlier], np.where(errs[:, at], bad, good))
                moves = list[Numbers]()
                for share in (first, second):
                    slips = says & ~errs[:, at] & (rng.random(SIMULATED) < random)
                    move = np.where(slips, self._wrong(state, decision, bumps, rng), usual[:, at])
                    share[:, at] = self.optimal[decision, state, move]
                    wrong[agents, at, move] += 0.5 * (1 - share[:, at])
                    moves.append(move)
                counts[:, at] = live & says & ~seen
                states[:, at], times[:, at] = np.where(live, state, -1), time
                state = np.where(live, self._next(state, moves[0], rng), state)
                at += 1
        return _Visits(states, times, counts, first, second, wrong)

    def _wrong(self, state: Numbers, decision: int, bumps: float, rng: np.random.Generator) -> Numbers:
        wrong = self.offered[state] & ~self.optimal[decision, state]
        opens, shut = wrong & self.changing[state], wrong & ~self.changing[state]
        bumping = np.where(
            opens.any(axis=1) & shut.any(axis=1), rng.random(len(state)) < bumps, shut.any(axis=1) & ~opens.any(axis=1)
        )
        return _drawn(np.where(bumping[:, None], shut, opens), rng)

    def _next(self, state: Numbers, move: Numbers, rng: np.random.Generator) -> Numbers:
        table = self.world.process.transitions
        if not self.world.process.chance:
            return np.asarray(table[state, move])
        row = state * self.offered.shape[1] + move
        begins, ends = table.indptr[row], table.indptr[row + 1]
        total = np.concatenate([[0.0], np.cumsum(table.data)])
        reach = total[begins] + rng.random(len(row)) * (total[ends] - total[begins])
        place = np.clip(np.searchsorted(total, reach, side="right") - 1, begins, ends - 1)
        return np.asarray(table.indices[place], dtype=np.int64)


def _spread(mask: Mask) -> Array:
    return np.asarray(mask / np.maximum(mask.sum(axis=-1, keepdims=True), 1))


def _drawn(mask: Mask, rng: np.random.Generator) -> Numbers:
    """Draw one of the marked actions of each row, with equal probabilities; action 0 if none is marked."""
    return np.asarray((mask * rng.random(mask.shape)).argmax(axis=1))


def _test(
    worlds: Sequence[_WorldErrors], fixed: float, random: float, rivals: int, seed: int
) -> tuple[float, str, bool]:
    """Return the p value and label of the largest statistic, and whether errors are fewer in the states it marks."""
    names = list(dict.fromkeys(name for world in worlds for name in world.divisions))
    data = _Statistics([world.seen for world in worlds], worlds, names, rivals)
    rng = stream(seed, "errors", len(worlds), rivals)
    bumps = _bumps(worlds)
    null = _Statistics([world.simulate(fixed, random, bumps, rng) for world in worlds], worlds, names, rivals)
    usable = data.usable
    observed, simulated = data.values[0, usable], null.values[:, usable]
    centre, spread = simulated.mean(axis=0), np.maximum(simulated.std(axis=0), 1e-6)
    largest = ((simulated - centre) / spread).max(axis=1)
    deviations = (observed - centre) / spread
    exceeded = int((largest >= deviations.max() - 1e-9).sum())
    # What says where the agent errs is preferred to what follows from it, such as the best action there.
    labels = np.array(data.labels, dtype=object)[usable]
    telling = np.isin(labels.astype(str), [*DISTANCES, *_EXACTLY, *TURNS, *SIDES, SMALL_GRIDS, _WORLDS])
    plain = np.where(telling, deviations, -np.inf)
    at = int(plain.argmax() if (largest >= plain.max()).mean() < PATTERN else deviations.argmax())
    number = int(np.flatnonzero(usable)[at])
    fewer = number < data.above.shape[1] and bool(data.above[0, number] > 0)
    return (1 + exceeded) / (1 + SIMULATED), str(labels[at]), fewer


def _bumps(worlds: Sequence[_WorldErrors]) -> float:
    """Return the share of wrong moves that do not change the state, where there are wrong moves of both kinds."""
    bumps, total = 0.0, 0.0
    for world in worlds:
        state, wrong = world.seen.state[0], world.seen.wrong[0]
        possible = world.offered[state] & ~world.optimal[0][state]
        still = possible & ~world.changing[state]
        mixed = still.any(axis=1) & (possible & world.changing[state]).any(axis=1)
        bumps += float((wrong * still)[mixed].sum())
        total += float(wrong[mixed].sum())
    return bumps / total if total else 0.5


class _Statistics:
    """M statistics of each of B agents, ``values`` ``[B, M]``.

    The larger a statistic, the better it predicts the errors.
    """

    def __init__(
        self, all_visits: Sequence[_Visits], worlds: Sequence[_WorldErrors], names: Sequence[str], rivals: int
    ):
        agents, count = len(all_visits[0].state), len(names) + len(TURNS)
        self.labels = [*names, *TURNS, _WORLDS, *(["moves"] * rivals)]
        number, total, square = (np.zeros((2, agents)) for _ in range(3))  # by stratum: one best action, or several
        marked, product = np.zeros((2, agents, count)), np.zeros((2, agents, count))
        of_worlds, hits, expected, variance = (
            list[tuple[Array, Array]](),
            *(np.zeros((rivals, agents)) for _ in range(3)),
        )
        for visits, world in zip(all_visits, worlds, strict=True):
            state = np.maximum(visits.state, 0)
            several = world.optimal[0].sum(axis=1)[state] > 1
            follows = (visits.first + visits.second) / 2
            table = np.stack([world.divisions.get(name, np.zeros(len(world.offered), bool)) for name in names], axis=1)
            marks = np.concatenate(
                [table[state], visits.time[:, :, None] < np.array([*TURNS.values()])], axis=2
            ).astype(np.float64)
            size_here, sum_here = np.zeros((2, agents)), np.zeros((2, agents))
            for stratum, chosen in enumerate((visits.counts & ~several, visits.counts & several)):
                size_here[stratum], sum_here[stratum] = chosen.sum(axis=1), (chosen * follows).sum(axis=1)
                square[stratum] += (chosen * follows**2).sum(axis=1)
                marked[stratum] += np.einsum("bl,blm->bm", chosen, marks)
                product[stratum] += np.einsum("bl,blm->bm", chosen * follows, marks)
            number += size_here
            total += sum_here
            of_worlds.append((size_here, sum_here))
            wrong = visits.wrong * visits.counts[:, :, None]
            mass = wrong.sum(axis=2)
            for rival in range(rivals):
                if world.rivals[rival].any():
                    moves = world.rivals[rival].reshape(world.offered.shape)[state]
                    chance = world.expected[rival][state]
                    hits[rival] += np.einsum("bla,bla->b", wrong, moves)
                    expected[rival] += (mass * chance).sum(axis=1)
                    variance[rival] += (mass**2 * chance * (1 - chance)).sum(axis=1)
        few = np.maximum(number, 1)
        self.sides = np.minimum(marked.sum(axis=0), number.sum(axis=0)[:, None] - marked.sum(axis=0))
        self.variance = variance
        spread = np.maximum((square - total**2 / few).sum(axis=0) / np.maximum(number.sum(axis=0), 1), _NONE)
        self.above = (product - total[:, :, None] * marked / few[:, :, None]).sum(axis=0)
        width = np.maximum((marked - marked**2 / few[:, :, None]).sum(axis=0), _NONE)
        by_world = np.zeros(agents)
        for size_here, sum_here in of_worlds:
            rest = (sum_here - total / few * size_here).sum(axis=0)
            by_world += rest**2 / np.maximum(size_here.sum(axis=0), 1)
        self.values = np.concatenate(
            [
                np.abs(self.above) / np.sqrt(spread[:, None] * width),
                (by_world / spread)[:, None],
                ((hits - expected) / np.sqrt(np.maximum(variance, _NONE))).T * (variance.T > _NONE),
            ],
            axis=1,
        )

    @property
    def usable(self) -> Mask:
        """``[M]`` statistics with enough states on either side, for the first agent."""
        return np.concatenate([self.sides[0] >= _FEWEST, [True], self.variance[:, 0] >= 0.5])
