"""Random decision processes, the cliff of the paper, and slow literal versions of what goalscope.meg computes."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds.planning import TabularMDP, occupancy

Array = npt.NDArray[np.float64]


def random_world(
    seed: int, states: int, actions: int, horizon: int, utility: str, terminal: bool, deterministic: bool
) -> dict[str, Any]:
    rng = stream(seed, "meg world")
    chances = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    if deterministic:
        chances = np.eye(states)[rng.integers(0, states, (states, actions))]
    shape = {"S": (states,), "S A": (states, actions), "S A S": (states, actions, states)}[utility]
    start = np.eye(states)[0] if deterministic else rng.dirichlet(np.ones(states))
    return {
        "transitions": chances,
        "utility": rng.normal(size=shape),
        "horizon": horizon,
        "start": start,
        "terminal_utility": rng.normal(size=states) if terminal else None,
    }


def worlds(deterministic: bool | None = None, actions: int = 1) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        random_world,
        st.integers(0, 10**6),
        st.integers(1, 4),
        st.integers(actions, 3),
        st.integers(1, 4),
        st.sampled_from(["S", "S A", "S A S"]),
        st.booleans(),
        st.booleans() if deterministic is None else st.just(deterministic),
    )


def random_policy(mdp: TabularMDP, seed: int, *, by_time: bool = True) -> Array:
    shape = (mdp.horizon, mdp.states) if by_time else (mdp.states,)
    return stream(seed, "meg policy").dirichlet(np.ones(mdp.actions), size=shape)


def cliff(goal: int = 1, horizon: int = 30, width: int = 10, height: int = 4) -> TabularMDP:
    """The settings that spec and docs/meg.md infer: diagonal moves, wind 0.3 upwards, goal squares in the corner."""
    reward = -np.ones((height, width))
    reward[0, 1 : width - 1] = -10
    for square in range(goal):
        reward[0, width - 1 - square] = reward[square, width - 1] = 10
    chances = np.zeros((height * width, 4, height * width))
    for row, col, (action, (down, right)), (chance, wind) in itertools.product(
        range(height), range(width), enumerate(((-1, -1), (-1, 1), (1, -1), (1, 1))), ((0.7, 0), (0.3, 1))
    ):
        to = min(max(row + down - wind, 0), height - 1), min(max(col + right, 0), width - 1)
        chances[row * width + col, action, to[0] * width + to[1]] += chance
    start = np.eye(height * width)[0]
    return TabularMDP(transitions=chances, utility=reward.reshape(-1), horizon=horizon, start=start)


def sequences(mdp: TabularMDP) -> tuple[Array, Array]:
    """Utility and state counts of every action sequence of a deterministic world with one start, by running each."""
    utilities, counts = [], []
    first = int(mdp.start.argmax())
    assert mdp.start[first] == 1.0
    after = np.asarray(mdp.transitions).argmax(axis=2)
    for taken in itertools.product(range(mdp.actions), repeat=mdp.horizon):
        state, gained, visited = first, 0.0, np.zeros(mdp.states)
        for action in taken:
            visited[state] += 1
            to = int(after[state, action])
            gained += float(mdp.utility[(state, action, to)[: mdp.utility.ndim]])
            state = to
        utilities.append(gained + float(mdp.final[state]))
        counts.append(visited)
    return np.array(utilities), np.array(counts)


def literal_score(mdp: TabularMDP, policy: Array, beta: float) -> float:
    """E_pi[sum of log pi_beta] + n log A over all histories; pi_beta by definition 5.2 of the paper, beta != 0."""
    n, states, actions = mdp.horizon, mdp.states, mdp.actions
    table = np.asarray(mdp.transitions)
    soft = np.zeros((n, states, actions))
    to_come = mdp.final
    for t in reversed(range(n)):
        q = np.array([[mdp.reward[s, a] + table[s, a] @ to_come for a in range(actions)] for s in range(states)])
        top = (beta * q).max(axis=1)
        to_come = (top + np.log(np.exp(beta * q - top[:, None]).sum(axis=1))) / beta
        soft[t] = np.exp(beta * (q - to_come[:, None]))
    policy = np.broadcast_to(policy, soft.shape)
    score = 0.0
    for visited in itertools.product(range(states), repeat=n):
        for taken in itertools.product(range(actions), repeat=n):
            chance, logs = mdp.start[visited[0]], 0.0
            for t, (s, a) in enumerate(zip(visited, taken, strict=True)):
                chance *= policy[t, s, a] * (table[s, a, visited[t + 1]] if t + 1 < n else 1.0)
                logs += np.log(soft[t, s, a] * actions) if chance > 0 else 0.0
            score += chance * logs if chance > 0 else 0.0
    return float(score)


def divergence(mdp: TabularMDP, policy: Array) -> float:
    """Expected sum over decisions of the divergence of a policy from the uniform one, nats."""
    by_time = np.broadcast_to(policy, (mdp.horizon, mdp.states, mdp.actions))
    logs = np.where(by_time > 0, np.log(np.where(by_time > 0, by_time, 1.0) * mdp.actions), 0.0)
    return float((occupancy(mdp, policy)[:-1, :, None] * by_time * logs).sum())
