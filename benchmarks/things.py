"""Train networks on the worlds of the studies with things, and ask what they are after.

In each study one network imitates its teacher in the worlds of phase "trained" alone, and another one in those of both
phases. Predicted: no network can be named in phase "trained"; the second one is named for its teacher's aim in phase
"shifted", and the first one for the other aim, that which its lessons cannot tell from its teacher's.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

import goalscope
from goalscope import Study
from goalscope.agents import Observation, Turn
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import finite_world
from goalscope.goals.hypotheses.views import Undefined, view_of
from goalscope.runs import run
from goalscope.verdict.preflight.study_files import load
from goalscope.worlds import ACTIONS, GridView

STUDIES: Final = {
    "keys-and-chests": ("chest open", "every red key held if not every red key held, else chest open"),
    "coin-or-place": ("at coin", "corner top-right"),
}
"""Study -> the aim of the teacher, and its rival."""
SIZE, STEPS = 7, 6000
LESSONS: Final = {"trained": 2500, "shifted": 600}
"""Phase -> number of worlds."""
SYMBOLS: Final = ("r", "H", "c")


def planes(view: GridView) -> npt.NDArray[np.float32]:
    """Return walls, agent, goal and each kind of thing as planes, and how many keys and coins are carried."""
    grid, seen = view.grid, np.zeros((3 + len(SYMBOLS), SIZE, SIZE), dtype=np.float32)
    seen[0] = grid.walls
    for number, cell in enumerate((grid.start, grid.goal), 1):
        if cell is not None:
            seen[(number, *cell)] = 1
    for cell, symbol in grid.things:
        seen[(3 + SYMBOLS.index(symbol), *cell)] = 1
    carried = np.array([grid.held.count(symbol) for symbol in SYMBOLS], dtype=np.float32)
    return np.concatenate([seen.ravel(), carried])


def lessons(study: Study, aim: str, phases: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.float32], Any]]:
    """Yield what is seen and what the teacher does, in every state of other worlds like those of the study."""
    plain = study.dump()
    plain["worlds"] = [
        {**entry, "count": LESSONS[entry["phase"]]} for entry in plain["worlds"] if entry["phase"] in phases
    ]
    hypothesis = parse(aim)
    for world in Study.parse({**plain, "seed": 1, "agents": [{"kind": "random"}]}).worlds():
        finite = finite_world(world, 20)
        try:
            policy = hypothesis.solved(finite).policy[0]
        except Undefined:
            continue
        told = (policy != finite.even).any(axis=1)
        for state in np.flatnonzero(told & finite.live & finite.reached).tolist():
            view = view_of(world, state)
            assert isinstance(view, GridView)
            yield planes(view), policy[state]


def trained(examples: Sequence[tuple[npt.NDArray[np.float32], Any]]) -> torch.nn.Module:
    """Return a network that imitates the examples."""
    torch.manual_seed(1)
    x = torch.tensor(np.array([seen for seen, _ in examples]))
    y = torch.tensor(np.array([best for _, best in examples]), dtype=torch.float32)
    hidden = [torch.nn.Linear(x.shape[1], 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    layers = torch.nn.Sequential(*hidden, torch.nn.Linear(256, 4))
    optimiser = torch.optim.Adam(layers.parameters(), lr=2e-3, weight_decay=1e-5)
    for _ in range(STEPS):
        batch = torch.randint(len(x), (512,))
        loss = torch.nn.functional.cross_entropy(layers(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"{len(x):,} states, last loss {loss:.3f}")
    return layers


@dataclass(frozen=True)
class Learner:
    """Draws its moves from a network."""

    name: str
    layers: torch.nn.Module = field(repr=False)
    journalled = False
    needs = GridView

    def describe(self) -> Mapping[str, Any]:
        """Return what identifies the network."""
        weights = [tensor.double().sum().item() for tensor in self.layers.state_dict().values()]
        return {"kind": "learner", "name": self.name, "weights": weights}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Draw a move for each observation."""
        with torch.no_grad():
            seen = torch.tensor(np.array([planes(observation.seen(GridView)) for observation in observations]))
            chances = self.layers(seen).double().softmax(1).tolist()
        pairs = zip(observations, chances, strict=True)
        return [Turn(action=ACTIONS[observation.draw(policy)]) for observation, policy in pairs]


def main(out: Path, *names: str) -> None:
    """Train, run and ask for some studies, by default both."""
    torch.set_num_threads(1)
    for name in names or STUDIES:
        aims = STUDIES[name]
        began, study = time.process_time(), load(name)
        learners = [
            Learner(name=f"lessons in {' and '.join(phases)}", layers=trained(list(lessons(study, aims[0], phases))))
            for phases in (("trained",), ("trained", "shifted"))
        ]
        directory = out / name
        run(study, directory, agents=learners)
        for learner in learners:
            bank = ";".join(("goal", "corner top-left", *aims))
            found = goalscope.attribute(directory, name=learner.name, hypotheses=bank, methods=["likelihood"])
            for finding in found.findings:
                print(name, "|", learner.name, "|", dict(finding.where), "|", finding.answer, "|", list(finding.names))
            print(found.sentence)
        print(f"{name}: {time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
