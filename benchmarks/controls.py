"""Read walls, goal and agent from Theseus and from random networks with penalised linear probes of one size.

    python benchmarks/controls.py [--train 900] [--test 300] [--size 9] [--layer 7] [--seeds 5] [--work DIR]

Worlds of one size, no two with the same walls; the first state of each; the residual stream after one block at the site
`pre`, three tokens side by side. A ridge probe for each cell says whether it is a wall, the goal or the agent; its
inputs are standardised, its penalty is the best one for a fifth of the training grids, then it is fitted to all of
them. The networks:

* Theseus;
* permuted: Theseus with the entries of each tensor of its weights permuted;
* initial: what Theseus's training begins with (embedding 0.5, linear maps 0.5 / sqrt(inputs)); its last training had
  seed 1;
* default-init: what the library draws (standard deviation 0.02), the control "untrained" of the studies.

There are two sets of tables. In the first no penalty is below 1, scikit-learn's default. In the second the least one is
1e-9: such a probe reads directions in which a network varies by a thousandth of its vectors' length. What the two
differ by is there, but no more than a faint trace of it.

Floors that read no network: the position alone, the count of walls, and the bag of the prompt's cells.

Walls are scored on the undetermined cells, which are a wall in some training grids and none in others: the area under
the curve (the share of pairs of a wall and another cell of one grid in which the wall has the higher score, ties count
half), mean over the tested grids. Goal and agent: the share of the tested grids in which the cell of highest score is
the right one. Intervals of single networks are over tested grids, of random ones after the mean over seeds, with the
least and the greatest seed beside them. Those of differences are over grids and over seeds of the random network
(`goalscope.stats.crossed_difference`). All are conditional on the training grids and on Theseus.

With `--work DIR` the recorded states and the vectors are kept, and a second call goes on where the first one stopped.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from goalscope.activations import Activations, capture, load_activations
from goalscope.agents import Observation
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.models.initialisation import RANDOM_WEIGHTS
from goalscope.models.local import LocalModel
from goalscope.probing.inputs import input_features
from goalscope.probing.labels import AGENT, GOAL, WALL, Cells, label_cells
from goalscope.rng import stream
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store
from goalscope.stats import Estimate, crossed_difference, estimate_mean, paired_difference
from goalscope.worlds import ACTIONS, Grid, generate
from goalscope.worlds.dynamics import State
from goalscope.worlds.gridworld import GridView

Array = npt.NDArray[np.float64]
DENSITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEAST = (1.0, 1e-9)  # least penalties, in units of one standardised input
MOST_EXPONENT = 7
RANDOM = tuple(reversed(RANDOM_WEIGHTS))
TARGETS = {"walls, area under the curve": WALL, "goal's cell": GOAL, "agent's cell": AGENT}
CHECKED = 8  # prompts whose vectors are compared with a plain forward pass
RUN = "run"


def worlds(size: int, train: int, test: int, seed: int) -> Iterator[GridWorld]:
    """Yield the tested worlds, then those for training; no two have the same walls."""
    seen: set[bytes] = set()
    for part, count in (("test", test), ("train", train)):
        for number in range(count):
            density = DENSITIES[number % len(DENSITIES)]
            rng = stream(seed, "controls", part, size, number)
            grid: Grid = generate(size=size, density=density, rng=rng)
            while grid.walls.tobytes() in seen:
                grid = generate(size=size, density=density, rng=rng)
            seen.add(grid.walls.tobytes())
            yield GridWorld(grid=grid, tags={"density": density, "part": part})


def record(directory: Path, model: LocalModel, drawn: Iterator[GridWorld]) -> None:
    """Write a run that holds the prompt of each world's first state; nothing is answered."""
    agent = ChatAgent(model=model)
    identity = agent_id(agent)

    def episodes() -> Iterator[Episode]:
        for world in drawn:
            state = State(world.grid.start or (0, 0))
            asked = agent.messages(Observation(view=GridView(grid=world.grid)))
            prompt = tuple(model.encode(model.render(asked, agent.sampling)))
            step = Step(index=0, state=state, action=ACTIONS[0], prompt_tokens=prompt)
            spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=0, seed=0, horizon=1)
            yield Episode(spec=spec, world=world, agent=agent.name, steps=(step,), final=state, outcome="horizon")

    with Store(directory, "w") as store:
        store.put_agents([(identity, agent.name, agent.describe())])
        store.put_episodes(episodes())


def vectors(directory: Path, model: LocalModel, layer: int) -> Activations:
    """Return what `goalscope capture` reads, after comparing some of it with a plain forward pass."""
    done = capture(directory, model, sites=["pre"], layers=[layer], scope="first", other_weights=True)
    found = load_activations(directory, site="pre", layer=layer, capture=done.id)
    apart = compared(directory, model, found)
    if not apart <= 1e-5:
        raise ValueError(f"captured vectors must be those of a plain forward pass, {model.name} differs by {apart:.2g}")
    return found


def compared(directory: Path, model: LocalModel, found: Activations) -> float:
    """Return the largest difference to a plain forward pass, relative to the largest entry."""
    import torch

    wanted = {name: row for row, name in enumerate(found.episode_id[:CHECKED].tolist())}
    network, most = model.model, 0.0
    with Store(directory) as store, torch.inference_mode():
        for episode in store.episodes():
            if episode.id in wanted:
                row = wanted[episode.id]
                ids = torch.tensor([episode.steps[0].prompt_tokens])
                states = network(ids, output_hidden_states=True, use_cache=False).hidden_states
                plain = states[found.layer + 1][0, -3:]
                own = torch.tensor(found.vectors[row])
                if found.layer + 1 == network.config.num_hidden_layers:
                    own = network.base_model.norm(own)  # the library's last state comes after this norm
                most = max(most, float((own - plain).abs().max() / plain.abs().max()))
    return most


class Ridge:
    """Ridge regression of many targets with all penalties from one decomposition; the mean is not penalised."""

    def __init__(self, inputs: Array, targets: Array) -> None:
        self._centre, self._spread = inputs.mean(axis=0), inputs.std(axis=0)
        self._spread[self._spread < 1e-9] = 1.0
        given = (inputs - self._centre) / self._spread
        self._mean = targets.mean(axis=0)
        self._values, self._basis = np.linalg.eigh(given.T @ given)
        self._along = self._basis.T @ (given.T @ (targets - self._mean))

    def predict(self, inputs: Array, penalty: float) -> Array:
        """Return scores ``[N, targets]``."""
        weights = self._basis @ (self._along / (np.maximum(self._values, 0.0) + penalty)[:, None])
        found: Array = ((inputs - self._centre) / self._spread) @ weights + self._mean
        return found


def area(scores: Array, positive: npt.NDArray[np.bool_]) -> float:
    """Return the share of pairs in which the positive one has the higher score; ties count half, NaN without pairs."""
    one, other = scores[positive], scores[~positive]
    if not len(one) or not len(other):
        return float("nan")
    above = np.sign(one[:, None] - other[None, :])
    return float((above.mean() + 1) / 2)


def score(given: Array, labels: npt.NDArray[np.int8], label: int, undetermined: npt.NDArray[np.bool_]) -> Array:
    """Return the score of each grid ``[N]`` from the scores of its cells ``[N, C]``."""
    truth = labels == label
    if label == WALL:
        return np.array([area(*pair) for pair in zip(given[:, undetermined], truth[:, undetermined], strict=True)])
    found: Array = truth[np.arange(len(truth)), given.argmax(axis=1)].astype(np.float64)
    return found


def probe(inputs: Array, cells: Cells, train: npt.NDArray[np.bool_], seed: int, least: float) -> dict[str, Array]:
    """Return the score of each tested grid by target, the penalty chosen on a fifth of the training grids."""
    penalties = 10.0 ** np.arange(np.log10(least), MOST_EXPONENT, 0.5)
    rows = stream(seed, "controls", "validation").permutation(np.flatnonzero(train))
    held, fitted = rows[: len(rows) // 5], rows[len(rows) // 5 :]
    found = {}
    for name, label in TARGETS.items():
        tried = [np.nanmean(values) for values in _tried(inputs, cells, label, (fitted, held), penalties)]
        # Of equally good penalties the strongest one.
        best = len(tried) - 1 - int(np.argmax(tried[::-1]))
        if best == 0 and least < 1 and inputs.std() > 0:
            print(f"{name}: the best penalty is the least one tried, {penalties[best]:g}", file=sys.stderr)
        (found[name],) = _tried(inputs, cells, label, (rows, np.flatnonzero(~train)), penalties[best : best + 1])
    return found


def _tried(
    inputs: Array,
    cells: Cells,
    label: int,
    parts: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    penalties: Array,
) -> list[Array]:
    """Fit one class on some grids and return the scores of the others for each penalty."""
    learned, tested = parts
    targets = (cells.labels[learned] == label).astype(np.float64)
    undetermined = (targets.min(axis=0) == 0) & (targets.max(axis=0) == 1)
    ridge, truth = Ridge(inputs[learned], targets), cells.labels[tested]
    return [score(ridge.predict(inputs[tested], penalty), truth, label, undetermined) for penalty in penalties]


def main() -> None:
    """Capture, fit and print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count, what in (
        ("train", 900, "training grids"),
        ("test", 300, "tested grids"),
        ("size", 9, "side of the grids"),
        ("layer", 7, "decoder block, 0-based"),
        ("seeds", 5, "seeds of each random network"),
        ("seed", 0, "root seed of worlds and validation part"),
    ):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what} ({count})")
    parser.add_argument("--work", type=Path, help="where states and vectors are kept (a temporary folder)")
    given = parser.parse_args()
    if given.work is None:
        with tempfile.TemporaryDirectory() as folder:
            report(given, Path(folder))
    else:
        report(given, given.work)


def report(given: argparse.Namespace, folder: Path) -> None:
    """Do everything in a folder and print the tables."""
    began = time.perf_counter()
    directory = folder / f"{given.size}-{given.train}-{given.test}-{given.seed}"
    if not directory.exists():
        part = directory.with_suffix(".part")  # a run that is not whole has another name
        drawn = worlds(given.size, given.train, given.test, given.seed)
        record(part, LocalModel("theseus"), drawn)
        part.rename(directory)
    networks: list[tuple[str, Callable[[], LocalModel]]] = [("Theseus", lambda: LocalModel("theseus"))]
    for name in RANDOM:
        networks += [
            (name, partial(LocalModel, "theseus", untrained=seed, random_weights=name)) for seed in range(given.seeds)
        ]
    scores: dict[float, dict[str, list[dict[str, Array]]]] = {least: {} for least in LEAST}
    for number, (name, build) in enumerate(networks, start=1):
        found = vectors(directory, build(), given.layer)
        if number == 1:
            cells, train = labels(directory, found, given.size)
            for floor, inputs in floors(cells).items():
                for least, found_by in scores.items():
                    found_by[floor] = [probe(inputs, cells, train, given.seed, least)]
        cells.check_aligned(found)
        inputs = found.vectors.reshape(len(found), -1).astype(np.float64)
        for least, found_by in scores.items():
            found_by.setdefault(name, []).append(probe(inputs, cells, train, given.seed, least))
        took = time.perf_counter() - began
        print(f"{number} of {len(networks)} networks, {took:.0f} s", file=sys.stderr, flush=True)
    what = f"{given.size}x{given.size}, densities {DENSITIES[0]} to {DENSITIES[-1]}, layer {given.layer}, `pre`"
    print(f"\n{what}, {int(train.sum())} training and {int((~train).sum())} tested grids\n")
    grids = cells.grid_id[~train]
    for least, found_by in scores.items():
        print(f"\nPenalties from {least:g}\n")
        order = ["Theseus", *RANDOM, *(name for name in found_by if name not in RANDOM and name != "Theseus")]
        table(order, found_by, grids)
        differences(order, found_by, grids)


def labels(directory: Path, found: Activations, frame: int) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """Return the cells of all grids and which grids are for training."""
    with Store(directory) as store:
        cells = label_cells(found, store.episodes(), frame=frame)
        part = {episode.id: episode.world.tags["part"] for episode in store.episodes()}
    return cells, np.array([part[name] == "train" for name in cells.episode_id.tolist()])


def floors(cells: Cells) -> dict[str, Array]:
    """Return what stands in place of activations: nothing, one number, the counts of all classes."""
    return {
        "position alone": np.zeros((len(cells), 1)),
        "count of walls": (cells.labels == WALL).sum(axis=1, keepdims=True).astype(np.float64),
        "bag of the prompt's cells": input_features(cells).vectors.astype(np.float64),
    }


def table(order: list[str], scores: dict[str, list[dict[str, Array]]], grids: npt.NDArray[np.object_]) -> None:
    """Print each network's scores: mean, interval over tested grids, and the seeds' least and greatest mean."""
    print("| read from | seeds |", " | ".join(TARGETS), "|")
    print("| --- " * (2 + len(TARGETS)) + "|")
    for name in order:
        row = []
        for target in TARGETS:
            by_seed = np.array([one[target] for one in scores[name]])
            text = shown(estimate_mean(by_seed.mean(axis=0), grids, unit="fraction", bounds=(0.0, 1.0)))
            means = np.nanmean(by_seed, axis=1)
            row.append(text + (f" ({means.min():.3f} to {means.max():.3f})" if len(means) > 1 else ""))
        print(f"| {name} | {len(scores[name]) if name in RANDOM else ''} | {' | '.join(row)} |")


def differences(order: list[str], scores: dict[str, list[dict[str, Array]]], grids: npt.NDArray[np.object_]) -> None:
    """Print Theseus less each of the others, paired by grid."""
    print("\n| Theseus less |", " | ".join(TARGETS), "|")
    print("| --- " * (1 + len(TARGETS)) + "|")
    for name in order[1:]:
        row = []
        for target in TARGETS:
            own = scores["Theseus"][0][target]
            others = [one[target] for one in scores[name]]
            row.append(shown(less(own, others, grids)))
        print(f"| {name} | {' | '.join(row)} |")


def less(own: Array, others: list[Array], grids: npt.NDArray[np.object_]) -> Estimate:
    """Return what one network's scores exceed those of another by; over seeds, too, where it has several."""
    if len(others) == 1:
        return paired_difference(own, grids, others[0], grids, unit="fraction", bounds=(0.0, 1.0)).difference
    seeds = np.repeat(np.arange(len(others)), len(grids))
    every = np.tile(grids, len(others))
    return crossed_difference(own, grids, np.concatenate(others), every, seeds, unit="fraction", bounds=(0.0, 1.0))


def shown(estimate: Estimate) -> str:
    """Write a value with its interval."""
    if not estimate.has_interval:
        return f"{estimate.value:.3f} ({estimate.note})"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


if __name__ == "__main__":
    main()
