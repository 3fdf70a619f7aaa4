"""Train networks on the worlds of the studies with things, and ask what they are after.

In each study one network imitates a teacher in the worlds of phase "trained" alone, where two aims call for the same
moves, and another one in those of both phases. Predicted: no network can be named in phase "trained"; in phase
"shifted" the second one is named for its teacher's aim, and the first one for the other aim.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

import goalscope
from goalscope import Study
from goalscope.agents import Observation, Turn
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import Undefined, finite_world, view_of
from goalscope.runs import run
from goalscope.verdict.preflight.study_files import load
from goalscope.worlds import ACTIONS, Grid, GridView
from goalscope.worlds.grid import DELTAS

AIMS: Final = {
    "keys-and-chests": ("chest open", "every red key held if not every red key held, else chest open"),
    "coin-or-place": ("coin collected", "corner top-right"),
}
"""Study -> two aims that call for the same moves in phase "trained"."""
SIZE, HIDDEN, BATCH = 7, 32, 64
SYMBOLS: Final = ("r", "H", "c")


def planes(grid: Grid) -> npt.NDArray[np.float32]:
    """Return ``[P, H, W]``: walls, goal, each kind of thing, row and column, and whether each kind is carried."""
    seen = np.zeros((4 + 2 * len(SYMBOLS), SIZE, SIZE), dtype=np.float32)
    seen[0] = grid.walls
    if grid.goal is not None:
        seen[(1, *grid.goal)] = 1
    seen[2:4] = np.indices((SIZE, SIZE)) / (SIZE - 1)
    for cell, symbol in grid.things:
        seen[(4 + SYMBOLS.index(symbol), *cell)] = 1
    for number, symbol in enumerate(SYMBOLS):
        seen[4 + len(SYMBOLS) + number] = symbol in grid.held
    return seen


def lessons(
    study: Study, aim: str, phases: Sequence[str], count: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return pictures ``[N, P, H, W]`` of other worlds like those of the study, and what the teacher does in each cell.

    The latter is ``[N, 4, H, W]``, 0 where nothing is taught. There are as many worlds of each phase as ``count`` says.
    """
    plain = study.dump()
    plain["worlds"] = [{**entry, "count": count} for entry in plain["worlds"] if entry["phase"] in phases]
    hypothesis, pictures, taught = parse(aim), list[npt.NDArray[np.float32]](), list[npt.NDArray[np.float32]]()
    for world in Study.parse({**plain, "seed": seed, "agents": [{"kind": "random"}]}).worlds():
        finite = finite_world(world, 20)
        try:
            policy = hypothesis.solved(finite).policy[0]
        except Undefined:
            continue
        numbers: dict[Grid, int] = {}
        purposeful = (policy != finite.even).any(axis=1)
        for state in np.flatnonzero(purposeful & finite.live & finite.reached).tolist():
            view = view_of(world, state)
            assert isinstance(view, GridView)
            grid = view.grid
            picture = grid.at(start=None)
            if picture not in numbers:
                numbers[picture] = len(pictures)
                pictures.append(planes(picture))
                taught.append(np.zeros((4, SIZE, SIZE), dtype=np.float32))
            row, col = grid.start or (0, 0)
            taught[numbers[picture]][:, row, col] = policy[state]
    return np.array(pictures), np.array(taught)


class Planner(torch.nn.Module):
    """A network that plans: it learns what each cell is worth, and goes to where most worth is near."""

    worlds, rounds, steps, rate, discount = 500, 20, 400, 0.1, 0.9

    def __init__(self, planes: int) -> None:
        super().__init__()
        layers = [torch.nn.Conv2d(planes, HIDDEN, 1), torch.nn.Tanh(), torch.nn.Conv2d(HIDDEN, 1, 1)]
        self.worth, self.plain = torch.nn.Sequential(*layers), torch.nn.Conv2d(planes, 1, 1)
        for parameter in (*layers[-1].parameters(), *self.plain.parameters()):
            torch.nn.init.zeros_(parameter)
        self.sharpness = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Return ``[N, 4, H, W]`` logits."""
        worth, walls = (self.worth(seen) + self.plain(seen))[:, 0], seen[:, 0] > 0
        # No way leads through a chest.
        on = self.discount * (1 - seen[:, 4 + SYMBOLS.index("H")])
        value = worth
        for _ in range(self.rounds):
            value = worth + on * after(value, walls).amax(1)
        return self.sharpness.exp() * after(value, walls)


def after(value: torch.Tensor, walls: torch.Tensor) -> torch.Tensor:
    """Return ``[N, 4, H, W]``: the value of the cell to which each move leads; the border of a grid is walls."""
    moved = [torch.roll(value, (-down, -right), (1, 2)) for down, right in DELTAS.tolist()]
    blocked = [torch.roll(walls, (-down, -right), (1, 2)) for down, right in DELTAS.tolist()]
    return torch.where(torch.stack(blocked, 1), value[:, None], torch.stack(moved, 1))


class Convolutions(torch.nn.Module):
    """A network that passes what it sees from cell to cell, and gives a policy for every cell."""

    worlds, rounds, steps, rate = 1000, 12, 1500, 0.003

    def __init__(self, planes: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(planes, HIDDEN, 3, padding=1)
        self.spread = torch.nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.last = torch.nn.Conv2d(HIDDEN, 4, 1)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Return ``[N, 4, H, W]`` logits."""
        first = self.first(seen)
        hidden = torch.relu(first)
        for _ in range(self.rounds):
            hidden = torch.relu(first + self.spread(hidden))
        logits: torch.Tensor = self.last(hidden)
        return logits


Network = Planner | Convolutions
LEARNERS: Final[Mapping[str, Mapping[str, tuple[type[Network], str, tuple[str, ...]]]]] = {
    "keys-and-chests": {
        "taught where keys are scarce": (Planner, "chest open", ("trained",)),
        "taught in both phases": (Planner, "chest open", ("trained", "shifted")),
    },
    "coin-or-place": {
        "taught where the coin is at one place": (Convolutions, "at coin", ("trained",)),
        "taught in both phases": (Planner, "coin collected", ("trained", "shifted")),
    },
}
"""Study -> learner -> its network, the aim of its teacher, and the phases of its lessons.

A teacher with the aim "at coin" goes back to the place of the coin when the coin is gone. The view does not show that
place then, so that only a learner whose coins all lie at one place can be taught by it.
"""


def trained(
    kind: type[Network], pictures: npt.NDArray[np.float32], taught: npt.NDArray[np.float32], seed: int
) -> Network:
    """Return a network that imitates the lessons."""
    torch.manual_seed(seed)
    x, y = torch.tensor(pictures), torch.tensor(taught)
    network = kind(x.shape[1])
    optimiser = torch.optim.Adam(network.parameters(), lr=kind.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, kind.rate, total_steps=kind.steps)
    for _ in range(kind.steps):
        batch = torch.randint(len(x), (BATCH,))
        loss = -(network(x[batch]).log_softmax(1) * y[batch]).sum() / y[batch].sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1)
        optimiser.step()
        schedule.step()
    print(f"{len(x):,} pictures, {int(taught.sum()):,} states, last loss {loss:.3f}")
    return network


@dataclass(frozen=True)
class Learner:
    """Draws its moves from a network."""

    name: str
    network: Network = field(repr=False)
    journalled = False
    needs = GridView

    def describe(self) -> Mapping[str, Any]:
        """Return what identifies the network."""
        weights = [tensor.double().sum().item() for tensor in self.network.state_dict().values()]
        return {"kind": "learner", "name": self.name, "weights": weights}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Draw a move for each observation."""
        grids = [observation.seen(GridView).grid for observation in observations]
        with torch.no_grad():
            chances = self.network(torch.tensor(np.array([planes(grid) for grid in grids]))).double().softmax(1)
        cells = [(0, 0) if grid.start is None else grid.start for grid in grids]
        policies = [chances[number, :, row, col].tolist() for number, (row, col) in enumerate(cells)]
        pairs = zip(observations, policies, strict=True)
        return [Turn(action=ACTIONS[observation.draw(policy)]) for observation, policy in pairs]


def main(out: Path, names: Sequence[str], seeds: Sequence[int]) -> None:
    """Train, run and ask, for each study and seed; the seed is that of the lessons and of the network."""
    torch.set_num_threads(1)
    for name, seed in product(names, seeds):
        began, study = time.process_time(), load(name)
        learners = [
            Learner(name=learner, network=trained(kind, *lessons(study, aim, phases, kind.worlds, seed), seed))
            for learner, (kind, aim, phases) in LEARNERS[name].items()
        ]
        print(f"{name}, seed {seed}: trained in {time.process_time() - began:.0f} s of processor time", flush=True)
        run(study, out / f"{name}-{seed}", agents=learners)
        bank = ";".join(("goal", "corner top-left", *AIMS[name]))
        for learner in learners:
            attributed = goalscope.attribute(
                out / f"{name}-{seed}", name=learner.name, hypotheses=bank, methods=["likelihood"]
            )
            for finding in attributed.findings:
                place, aims = finding.where["phase"], list(finding.names)
                print(f"{name} | seed {seed} | {learner.name} | {place} | {finding.answer} | {aims}")
            print(attributed.sentence, flush=True)
        print(f"{name}, seed {seed}: {time.process_time() - began:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", default=list(LEARNERS), help="names of the studies; by default both")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="seeds of lessons and networks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), options.studies, options.seeds)
