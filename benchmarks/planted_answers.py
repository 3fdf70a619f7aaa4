"""Agents whose aims are known, as tables of probabilities by world, and the two answers that they give at each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from goalscope.goals.hypotheses import FiniteWorld, Undefined, bind, finite_world, load_hypotheses, parse
from goalscope.goals.hypotheses.naming import verdict_of
from goalscope.goals.hypotheses.score import Predictions, ScoreVerdict, predictions_in
from goalscope.goals.hypotheses.states import Answers
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.runs import Study

Table = np.ndarray
Agent = Callable[[FiniteWorld, np.random.Generator], Table]
"""World -> probabilities ``[n, S, A]`` by decision; the last ones hold from then on."""


def grids(seed: int, count: int) -> list[FiniteWorld]:
    """Return the worlds that an evaluation asks twice: ``count`` for each of two sizes and three densities."""
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.4, 0.6], "minimum_distance": 3, "count": count}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": seed, "horizon": {"factor": 1.5}})
    return [finite_world(world, study.horizon.of(world)) for world in study.worlds()]


def follow(text: str, world: FiniteWorld) -> Table:
    """Return the policy of a hypothesis, ``[S, A]``."""
    return parse(text).solved(world).policy[0]


def erring(text: str, fixed: float, random: float) -> Agent:
    """Return an agent that always errs in a share of the states, and elsewhere in a share of its answers."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        policy = follow(text, world)
        best = policy > 1e-9
        table = np.eye(4)[[rng.choice(4, p=row) for row in policy]]
        for state in np.flatnonzero(~best.all(axis=1)):
            wrong = np.flatnonzero(~best[state])
            if rng.random() < fixed:
                table[state] = np.eye(4)[rng.choice(wrong)]
            else:
                table[state] *= 1 - random
                table[state, wrong] += random / len(wrong)
        return table[None]

    return act


def from_turn(text: str, turn: int, before: str = "random") -> Agent:
    """Return an agent that follows one rule up to a turn (from 1), and then a hypothesis."""
    return lambda world, rng: np.stack([follow(before, world)] * (turn - 1) + [follow(text, world)])


def where(holds: Callable[[FiniteWorld], np.ndarray], text: str, otherwise: str = "random") -> Agent:
    """Return an agent that follows a hypothesis in some states, and another rule elsewhere."""
    return lambda world, rng: np.where(holds(world)[:, None], follow(text, world), follow(otherwise, world))[None]


def beside_goal(down: int, right: int) -> Agent:
    """Return an agent that goes to a cell beside the goal, or the open one nearest to it."""
    return lambda world, rng: follow(f"near (goal {down:+d},{right:+d})", world)[None]


def stopping(steps: int) -> Agent:
    """Return an agent that goes to the goal, and keeps bumping when it is some steps away."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        table = follow("goal", world).copy()
        stays = world.process.transitions == np.arange(world.process.states)[:, None]
        near = world.steps_to(parse("goal").where(world)) <= steps
        for state in np.flatnonzero(near & stays.any(axis=1)):
            table[state] = np.eye(4)[stays[state].argmax()]
        return table[None]

    return act


def until_blocked(order: Sequence[int]) -> Agent:
    """Return an agent that takes the first of its moves, in a fixed order, that changes the state."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        moves = world.process.transitions != np.arange(world.process.states)[:, None]
        return np.eye(4)[[next((a for a in order if row[a]), 0) for row in moves]][None]

    return act


def played(world: FiniteWorld, table: Table, rng: np.random.Generator) -> Answers:
    """Return the answers of one episode."""
    state, taken = int(rng.choice(world.process.states, p=world.process.start)), list[tuple[int, int, int]]()
    while len(taken) < world.horizon and world.live[state]:
        chances = table[min(len(taken), len(table) - 1), state]
        first, second = rng.choice(4, size=2, p=chances / chances.sum())
        taken.append((state, first, second))
        state = int(world.process.transitions[state, first])
    states, first, second = np.array(taken).T
    return Answers(
        world=world,
        state=states,
        time=np.arange(len(states)),
        episode=np.zeros(len(states), dtype=np.int64),
        last=np.array([state]),
        first=np.eye(4)[first],
        second=np.eye(4)[second],
    )


class Planted:
    """Worlds with their solved hypotheses, in which planted agents are judged."""

    def __init__(self, seed: int, count: int, bank: str = "grids", worlds: Sequence[FiniteWorld] = ()) -> None:
        self.seed, self.worlds = seed, worlds or grids(seed, count)
        asked = {name: bind(h, [w.world for w in self.worlds]) for name, h in load_hypotheses(bank).items()}
        self.count, self.hypotheses = len(asked), with_sentinels(asked, [world.world for world in self.worlds])
        self.predictions: dict[str, Predictions] = {
            world.world.id: predictions_in(world, self.hypotheses, self.count) for world in self.worlds
        }

    def answers(self, agent: Agent) -> list[Answers]:
        """Return the answers of an agent; worlds in which it is undefined are left out."""
        records = list[Answers]()
        for number, world in enumerate(self.worlds):
            rng = np.random.default_rng([self.seed, number])
            try:
                records.append(played(world, agent(world, rng), rng))
            except Undefined:
                continue
        return records

    def verdict(self, agent: Agent) -> ScoreVerdict:
        """Return the verdict on an agent."""
        return verdict_of(self.answers(agent), self.hypotheses, self.count, predictions=self.predictions)[0]


SPLITS = [(fixed / 10, random / 10) for fixed in range(5) for random in range(5 - fixed)]
"""Shares of fixed and of random errors, together at most .4."""


@dataclass(frozen=True)
class Construction:
    """An agent with what is true of it.

    Attributes:
        name: what it does.
        agent: the agent.
        whole: hypotheses of the bank that it pursues in all of its turns.
        parts: pairs of a hypothesis and a kind of part, of which at least one is true of it; see
            `goalscope.goals.finding.BehaviourPart`.
    """

    name: str
    agent: Agent
    whole: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()
