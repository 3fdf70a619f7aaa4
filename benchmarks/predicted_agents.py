"""Agents whose behaviour in unseen worlds is known exactly: scripted ones, in the bank and outside it, and learners.

Each is a function of a world (and of a random generator that belongs to agent and world), which returns probabilities
of moves by decision. Where its rule is undefined, an agent moves at random.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from planted_answers import Agent, beside_goal, erring, follow, from_turn, stopping, until_blocked, where

from goalscope.goals.hypotheses import FiniteWorld, Undefined, finite_world, parse
from goalscope.goals.hypotheses.definition import FAR
from goalscope.goals.prediction import expected, mixture, predictor
from goalscope.goals.prediction.mixture import PER_PART, length_of, usual_rules
from goalscope.runs import Study
from goalscope.runs.study import Horizon
from goalscope.worlds.grid import DELTAS

Table = np.ndarray
SIDE = 9
HIDDEN = 256
STEPS = 3000


@dataclass(frozen=True)
class Subject:
    """An agent with its class: "bank", "outside", "learned" or "sealed"; learners of one recipe are sisters."""

    name: str
    group: str
    act: Agent
    recipe: str = ""
    goal: bool = False

    def table(self, world: FiniteWorld, seed: int = 0) -> Table:
        """Return its probabilities of moves, ``[n, S, A]``; the same for the same world."""
        digest = sha256(f"{self.name} {world.world.id} {seed}".encode()).digest()
        try:
            table = self.act(world, np.random.default_rng(int.from_bytes(digest[:8])))
        except Undefined:
            table = world.even[None]
        return table if table.ndim == 3 else table[None]


def lapsing(text: str, rate: float) -> Agent:
    """Return an agent that follows a rule, and moves at random in a share of its answers."""
    return lambda world, rng: (1 - rate) * follow(text, world) + rate * world.even


def permuted(text: str, order: Sequence[int]) -> Agent:
    """Return an agent that takes another move for each move of a rule."""
    return lambda world, rng: follow(text, world)[:, list(order)]


def distances(text: str, world: FiniteWorld) -> np.ndarray:
    """Return the steps to a place, 40 where it is out of reach."""
    steps = world.steps_to(parse(text).where(world))
    return np.where(steps < FAR, steps, 40)


def soft(text: str, temperature: float) -> Agent:
    """Return an agent that prefers moves by how near they bring it."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        after = distances(text, world)[world.process.transitions]
        table = np.exp(-(after - after.min(axis=1, keepdims=True)) / temperature)
        return table / table.sum(axis=1, keepdims=True)

    return act


def by_world(first: str, second: str, share: float) -> Agent:
    """Return an agent that follows one rule in a share of the worlds, and another one in the others."""
    return lambda world, rng: follow(first if rng.random() < share else second, world)


def near(text: str, steps: int) -> Callable[[FiniteWorld], np.ndarray]:
    """Return the states within some steps of a place."""
    return lambda world: distances(text, world) <= steps


def parity(axis: int) -> Callable[[FiniteWorld], np.ndarray]:
    """Return the states in even rows or columns."""
    return lambda world: (
        np.arange(world.process.states) % world.grid.walls.size // (world.grid.width if axis == 0 else 1) % 2 == 0
    )


def averse(text: str, away: str, force: float) -> Agent:
    """Return an agent that goes to one place, and shuns another one."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        after = world.process.transitions
        score = -distances(text, world)[after] + force * np.minimum(distances(away, world)[after], 3)
        return np.where(score == score.max(axis=1, keepdims=True), 1.0, 1e-3) / 1.0

    return lambda world, rng: (table := act(world, rng)) / table.sum(axis=1, keepdims=True)


def shortsighted(text: str, memory: float) -> Agent:
    """Return an agent that mixes a way by the compass with shortest ways."""
    return lambda world, rng: memory * follow(f"straight to {text}", world) + (1 - memory) * follow(text, world)


def tired(text: str, turns: int) -> Agent:
    """Return an agent that follows a rule for some turns, and moves at random from then on."""
    return lambda world, rng: np.stack([follow(text, world)] * turns + [world.even])


GOALS = (
    "goal",
    "within",
    "fixed goal",
    "soft goal",
    "later goal",
    "far goal",
    "compass",
    "tired",
    "averse key",
    "stops",
    "half goal",
)
"""How the names of agents begin that are after the goal, at least in part; `ELSEWHERE` are exceptions."""
ELSEWHERE = ("compass corner", "tired key", "averse key, corner")


def scripted() -> list[Subject]:
    """Return the scripted agents."""
    bank = {
        **{f"goal {rate}": lapsing("goal", rate) for rate in (0.0, 0.1, 0.3, 0.6)},
        **{
            f"corner {side} {rate}": lapsing(f"corner {side}", rate)
            for side, rate in (
                ("top-right", 0.05),
                ("top-right", 0.3),
                ("bottom-left", 0.1),
                ("top-left", 0.2),
                ("bottom-right", 0.5),
            )
        },
        **{f"key first {rate}": lapsing("key if not key held, else goal", rate) for rate in (0.0, 0.1, 0.4)},
        "key": lapsing("key", 0.1),
        "key, corner": lapsing("key if not key held, else corner bottom-right", 0.1),
        "flee": lapsing("flee goal", 0.1),
        "beside": lapsing("beside goal", 0.1),
        "straight": lapsing("straight to goal", 0.1),
        "right": lapsing("keep right", 0.3),
        "wall": lapsing("follow the wall", 0.05),
        "open": lapsing("open moves", 0.0),
        "random": lapsing("random", 0.0),
        "within 5": lapsing("goal within 5 steps", 0.05),
        "up or right": lapsing("goal if it lies up or right, else random", 0.05),
        "mirror": lapsing("near (mirror of goal)", 0.1),
        "cue": lapsing("goal if there is a key, else corner top-right", 0.1),
    }
    outside = {
        "exchanged": permuted("goal", (0, 1, 3, 2)),
        "upside down": permuted("goal", (1, 0, 2, 3)),
        "turned corner": permuted("corner top-right", (3, 2, 1, 0)),
        "fixed goal .1": erring("goal", 0.1, 0.05),
        "fixed goal .25": erring("goal", 0.25, 0.05),
        "fixed corner .15": erring("corner top-left", 0.15, 0.1),
        "fixed key .15": erring("key", 0.15, 0.0),
        "soft goal": soft("goal", 0.7),
        "soft corner": soft("corner bottom-left", 0.5),
        "soft key": soft("key", 0.7),
        "half goal": by_world("goal", "corner bottom-left", 0.5),
        "third key": by_world("key", "goal", 0.3),
        "half corner": by_world("corner top-left", "corner bottom-right", 0.6),
        "later goal": from_turn("goal", 5, "open moves"),
        "later corner": from_turn("corner top-right", 4, "goal"),
        "stops": stopping(2),
        "blocked RULD": until_blocked((3, 0, 2, 1)),
        "blocked DL": until_blocked((1, 2, 0, 3)),
        "beside below": beside_goal(1, 0),
        "beside two right": beside_goal(0, 2),
        "beside corner": lapsing("near ((corner top-right) +1,-1)", 0.05),
        "below centre": lapsing("near (centre +2,-1)", 0.1),
        "near key else corner": where(near("key", 4), "key", "corner bottom-right"),
        "near goal else wall": where(near("goal", 4), "goal", "follow the wall"),
        "far goal": where(lambda world: ~near("goal", 3)(world), "goal", "random"),
        "rows": where(parity(0), "corner top-right", "corner bottom-left"),
        "columns": where(parity(1), "key", "open moves"),
        "point mirror": lapsing("near (point mirror of goal)", 0.2),
        "averse": averse("corner bottom-right", "goal", 3.0),
        "averse key": averse("goal", "key", 3.0),
        "compass": shortsighted("goal", 0.5),
        "compass corner": shortsighted("corner top-left", 0.4),
        "tired": tired("goal", 4),
        "tired key": tired("key", 6),
        "mirror key": lapsing("near (mirror of key)", 0.1),
        "top row fixed": erring("top row", 0.1, 0.05),
        "start": lapsing("start", 0.2),
        "bottom centre": lapsing("near (centre +3,+0)", 0.05),
        "flee key": lapsing("flee key", 0.1),
        "flee corner": lapsing("flee (corner top-left)", 0.2),
        "two corners": lapsing("nearest of corner top-right, corner bottom-left", 0.1),
        "key corner fixed": erring("key if not key held, else corner top-left", 0.1, 0.1),
        "averse corner": averse("corner top-right", "key", 2.0),
        "averse key, corner": averse("key", "corner top-left", 3.0),
        "wall after key": from_turn("key", 4, "follow the wall"),
        "wall after corner": from_turn("corner bottom-right", 5, "follow the wall"),
        "rows straight": where(parity(0), "goal", "straight to goal"),
        "columns corner": where(parity(1), "corner bottom-left", "straight to corner bottom-left"),
        "soft mirror": soft("near (mirror of goal)", 0.6),
        "soft centre": soft("near centre", 0.8),
    }
    return [
        Subject(name=name, group=group, act=act, goal=name.startswith(GOALS) and name not in ELSEWHERE)
        for group, agents in (("bank", bank), ("outside", outside))
        for name, act in agents.items()
    ]


def alternating(first: str, second: str, turns: int) -> Agent:
    """Return an agent that follows two rules by turns."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        tables = follow(first, world), follow(second, world)
        return np.stack([tables[time // turns % 2] for time in range(world.horizon)])

    return act


def drifting(text: str, move: str, share: float) -> Agent:
    """Return an agent that follows a rule, and is carried in one direction in a share of its answers."""
    return lambda world, rng: (1 - share) * follow(text, world) + share * follow(f"keep {move}", world)


def by_axis(text: str, axis: int) -> Agent:
    """Return an agent that goes to the row of a place first, or to its column, and where that is blocked anywhere."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        offset = world.further(parse(text).cell(world))
        order = np.where(offset[:, axis] != 0, axis, 1 - axis)
        ahead = np.sign(offset) * (np.arange(2) == order[:, None]) @ DELTAS.T > 0
        opens = world.process.transitions != np.arange(len(offset))[:, None]
        chosen = np.where((ahead & opens).any(axis=1, keepdims=True), ahead & opens, world.even > 0)
        return chosen / chosen.sum(axis=1, keepdims=True)

    return act


def by_ways(force: float) -> Agent:
    """Return an agent that prefers cells with many ways out, or with few if the force is negative."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        after = world.process.transitions
        ways = (after != np.arange(len(after))[:, None]).sum(axis=1)
        table = np.exp(force * ways[after]) * (world.even > 0)
        return table / table.sum(axis=1, keepdims=True)

    return act


def sealed() -> list[Subject]:
    """Return four families of scripted agents. No other agent is made in their way, and nothing was tuned on them."""
    agents = {
        "alternating goal": alternating("goal", "corner bottom-left", 3),
        "alternating key": alternating("corner top-right", "key", 4),
        "drifting corner": drifting("corner top-left", "right", 0.25),
        "drifting key": drifting("key", "down", 0.35),
        "rows first": by_axis("goal", 0),
        "columns first": by_axis("corner bottom-right", 1),
        "many ways": by_ways(1.5),
        "few ways": by_ways(-1.5),
    }
    goals = ("alternating goal", "rows first")
    return [Subject(f"sealed {name}", "sealed", act, goal=name in goals) for name, act in agents.items()]


SEALS = {
    "agents": "dd926f758123c66f4ab059158966ae3ffff5a8a008145d1f81dd380c4f67d41e",
    "rules": "e37f2daf8191773f28c1399371bfda5420cf4db6fcfdfedd359bcfe4e954db13",
}
"""Digests of the sealed families, and of the rules and constants that predict them, as `digests` makes them."""


def digests() -> dict[str, str]:
    """Return digests of what the sealed agents do in seven worlds, and of all that a prediction is made with."""
    worlds = [*worlds_of(ORDINARY, 1, 11), *worlds_of({"kind": "key-door"}, 1, 11)]
    acts = sha256()
    for subject in sealed():
        acts.update(subject.name.encode())
        for world in worlds:
            acts.update(subject.table(world).round(6).tobytes())
    rules = [f"{rule.text}, {length_of(rule)} parts" for rule in usual_rules()]
    priors = [mixture.setting_prior().round(6).tolist(), mixture.CONCENTRATION, mixture.MOST, PER_PART]
    errors = [values.tolist() for values in (mixture.RANDOM, mixture.SLOPES, mixture.FIXED)]
    search = [predictor.CHAINS, predictor.SWEEPS, predictor.HANDICAP, predictor.LEAST_WEIGHT]
    intervals = [expected.SLACK, expected.MISFIT, *map(str, expected.calibration())]
    made_with = json.dumps([rules, priors, errors, search, intervals, mixture.NAMES])
    return {"agents": acts.hexdigest(), "rules": sha256(made_with.encode()).hexdigest()}


def check_seals() -> None:
    """Refuse to evaluate sealed families that are not those that were sealed.

    Raises:
        ValueError: the agents or the rules changed; the message names which.
    """
    if changed := [name for name, digest in digests().items() if digest != SEALS[name]]:
        raise ValueError(
            f"the {' and the '.join(changed)} changed since the four families were sealed, so their figures would no "
            "longer be those of a prediction: restore what changed, or seal new families (SEALS in "
            "benchmarks/predicted_agents.py) and say so in docs/predict.md"
        )


def calibration() -> list[Subject]:
    """Return scripted agents that intervals and trust are calibrated on; none of them is evaluated."""
    agents = {
        **{f"goal {rate}": lapsing("goal", rate) for rate in (0.05, 0.2, 0.45)},
        "corner top-right .15": lapsing("corner top-right", 0.15),
        "corner bottom-left .4": lapsing("corner bottom-left", 0.4),
        "corner top-left .02": lapsing("corner top-left", 0.02),
        "key .3": lapsing("key", 0.3),
        "key first .2": lapsing("key if not key held, else goal", 0.2),
        "key, top-right": lapsing("key if not key held, else corner top-right", 0.1),
        "centre": lapsing("near centre", 0.15),
        "top row": lapsing("top row", 0.1),
        "left": lapsing("keep left", 0.2),
        "within 3": lapsing("goal within 3 steps", 0.1),
        "size": lapsing("goal if the grid has at most 7 rows, else corner top-left", 0.1),
        "fixed goal": erring("goal", 0.15, 0.1),
        "fixed corner": erring("corner bottom-right", 0.2, 0.02),
        "soft goal": soft("goal", 1.0),
        "soft corner": soft("corner top-right", 0.8),
        "half key": by_world("key", "corner top-right", 0.5),
        "later key": from_turn("key", 3, "open moves"),
        "stops": stopping(3),
        "blocked": until_blocked((0, 3, 1, 2)),
        "beside left": beside_goal(0, -1),
        "below key": lapsing("near (key +1,+0)", 0.1),
        "near goal else corner": where(near("goal", 3), "goal", "corner top-left"),
        "rows": where(parity(0), "key", "goal"),
        "averse": averse("goal", "corner top-left", 2.0),
        "compass": shortsighted("key", 0.5),
        "tired": tired("corner top-right", 5),
        "flipped": permuted("key", (0, 1, 3, 2)),
    }
    return [Subject(name=f"calibration {name}", group="calibration", act=act) for name, act in agents.items()]


ORDINARY = {
    "kind": "grid",
    "sizes": [7, 9],
    "densities": [0.2, 0.4, 0.6],
    "goal": "anywhere",
    "start": "anywhere",
    "apart": 3,
    "key": "anywhere",
}
CONFOUNDED = {**ORDINARY, "goal": "top-right"}


def worlds_of(entry: dict, count: int, seed: int, factor: float = 2.0) -> list[FiniteWorld]:
    """Return ``6 * count`` worlds of an entry, or those of its sizes and densities."""
    study = Study.assemble({"worlds": [{**entry, "count": count}], "agents": [{"kind": "random"}], "seed": seed})
    return [finite_world(world, Horizon(factor=factor).of(world)) for world in study.worlds()]


RECIPES = {
    "net goal": ("goal", ORDINARY, 300),
    "net goal, few": ("goal", ORDINARY, 60),
    "net trained top right": ("goal", CONFOUNDED, 300),
    "net corner": ("corner top-right", ORDINARY, 300),
    "net key first": ("key if not key held, else goal", ORDINARY, 300),
    "net key": ("key", ORDINARY, 150),
    "net beside": ("beside goal", ORDINARY, 200),
    "net flee": ("flee goal", ORDINARY, 200),
    "net nearest": ("nearest of goal, corner top-right", ORDINARY, 300),
    "net small": ("goal", {**ORDINARY, "sizes": [7]}, 300),
    "net centre": ("near centre", ORDINARY, 150),
}
"""Name -> the imitated rule, the worlds, and their number of each size and density."""
CALIBRATION_RECIPES = {
    "calibration net goal": ("goal", ORDINARY, 120),
    "calibration net corner": ("corner bottom-left", ORDINARY, 200),
    "calibration net trained bottom left": ("goal", {**ORDINARY, "goal": "bottom-left"}, 200),
    "calibration net key": ("key if not key held, else corner top-left", ORDINARY, 200),
    "calibration net straight": ("straight to goal", ORDINARY, 200),
    "calibration net top row": ("top row", ORDINARY, 150),
}
"""Recipes of the networks that intervals and trust are calibrated on."""


def planes(world: FiniteWorld, states: np.ndarray) -> np.ndarray:
    """Return what a network sees: planes of walls, goal, key and agent, walls around it, and offsets, ``[N, D]``."""
    grid = world.grid
    phase, cell = np.divmod(states, grid.walls.size)
    rows, cols = np.divmod(cell, grid.width)
    seen = np.zeros((len(states), 5, SIDE, SIDE))
    walls = np.ones((SIDE, SIDE))
    walls[: grid.height, : grid.width] = grid.walls
    seen[:, 0] = walls
    offsets = np.zeros((len(states), 2, 2))
    for number, place, shown in ((0, grid.goal, np.ones(len(states), bool)), (1, grid.key, phase == 0)):
        if place is not None:
            seen[shown, 1 + number, place[0], place[1]] = 1
            offsets[shown, number] = (np.array(place) - np.stack([rows, cols], axis=1)[shown]) / 3
    if grid.door is not None:
        seen[phase < 2, 4, grid.door[0], grid.door[1]] = 1
    seen[np.arange(len(states)), 3, rows, cols] = 1
    stays = world.process.transitions[states] == states[:, None]
    return np.concatenate(
        [seen.reshape(len(states), -1), offsets.reshape(len(states), -1), stays, phase[:, None] > 0], axis=1
    )


def network(recipe: str, seed: int, folder: Path) -> Agent:
    """Return a network that imitates a rule, trained or read from a folder."""
    path = folder / f"{recipe} {seed}.npz"
    if not path.exists():
        import torch

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        rule, entry, count = {**RECIPES, **CALIBRATION_RECIPES}[recipe]
        inputs, targets = [], []
        for world in worlds_of(entry, count, 1000 + seed):
            states = np.flatnonzero(world.live & world.reached)
            try:
                targets.append(follow(rule, world)[states])
            except Undefined:
                continue
            inputs.append(planes(world, states))
        x, y = (torch.tensor(np.concatenate(part), dtype=torch.float32) for part in (inputs, targets))
        layers = torch.nn.Sequential(torch.nn.Linear(x.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 4))
        optimiser = torch.optim.AdamW(layers.parameters(), lr=3e-3, weight_decay=1e-2)
        for step in range(STEPS):
            batch = torch.randint(len(x), (256,))
            loss = torch.nn.functional.cross_entropy(layers(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step == STEPS * 2 // 3:
                optimiser.param_groups[0]["lr"] = 5e-4
        weights = [part.detach().numpy() for part in layers.parameters()]
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, *weights)
    stored = np.load(path)
    first, bias, second, out = (stored[name] for name in stored.files)

    def act(world: FiniteWorld, rng: np.random.Generator) -> Table:
        states = np.flatnonzero(world.live & world.reached)
        scores = np.maximum(planes(world, states) @ first.T + bias, 0) @ second.T + out
        chances = np.exp(2 * (scores - scores.max(axis=1, keepdims=True)))
        table = world.even.copy()
        table[states] = chances / chances.sum(axis=1, keepdims=True)
        return table

    return act


def learned(folder: Path, recipes: Mapping[str, tuple[str, dict, int]], group: str, seeds: int) -> list[Subject]:
    """Return networks, some of each recipe."""
    return [
        Subject(
            name=f"{recipe} {seed}",
            group=group,
            act=network(recipe, seed, folder),
            recipe=recipe,
            goal=rule == "goal" and "trained" not in recipe,
        )
        for recipe, (rule, _, _) in recipes.items()
        for seed in range(seeds)
    ]
