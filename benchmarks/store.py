"""Print the speed of the store and of a run.

    python benchmarks/store.py [--steps 200000] [--directory DIR]

"Committed" figures are wall-clock times up to the last commit, on the file system of the directory: rows are then safe
from a killed process ("process") or a power failure ("power"). The machine's other work shows in them, so processor
seconds stand beside.
"""

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from goalscope.agents import Observation, Turn
from goalscope.runs import Episode, EpisodeSpec, Step, Store, Study, content_hash, run
from goalscope.runs.journal import Call, Journal
from goalscope.worlds import ACTIONS, Action
from goalscope.worlds.dynamics import State

LENGTH = 25
TEXT = '{"action": "UP"}'


@dataclass(frozen=True)
class Cheap:
    """Walks in circles: what is left is the cost of the runner itself."""

    name: str = "cheap"
    journalled: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the one thing that it is."""
        return {"kind": "cheap"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Answer with the number of the step."""
        return [Turn(action=ACTIONS[observation.step % 4]) for observation in observations]


def episodes(study: Study, count: int, tokens: int) -> Iterator[Episode]:
    """Yield episodes of `LENGTH` steps with a short text and some token ids each."""
    worlds = study.worlds()
    output = tuple(range(tokens)) if tokens else None
    for number in range(count):
        world = worlds[number % len(worlds)]
        state = State(world.grid.start or (1, 1))
        steps = tuple(
            Step(index=index, state=state, action=Action.UP, text=TEXT, output_tokens=output) for index in range(LENGTH)
        )
        spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=number, seed=0, horizon=LENGTH)
        yield Episode(spec=spec, world=world, agent="agent", steps=steps, final=state, outcome="horizon")


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return a result, the wall-clock seconds and the processor seconds that it took."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def show(what: str, count: int, wall: float, processor: float, unit: str = "steps") -> None:
    """Print one line of the table."""
    print(f"{what:<58} {count / wall:>12,.0f} {count / processor:>12,.0f} {unit}/s  ({wall:.2f} s)")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the stores are written")
    arguments = parser.parse_args()
    study = Study.parse(
        {
            "worlds": [
                {"kind": "grid", "sizes": [7, 11, 15], "densities": [0.0, 0.4, 0.8], "count": 10, "minimum_distance": 4}
            ],
            "agents": [{"kind": "optimal"}],
        }
    )
    count = max(1, arguments.steps // LENGTH)
    steps = count * LENGTH
    print(f"{steps:,} steps in {count:,} episodes\n{'':<58} {'wall clock':>12} {'processor':>12}")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        levels: tuple[Literal["process", "power"], ...] = ("process", "power")
        for level in levels:
            for tokens in (0, 100):
                made = list(episodes(study, count, tokens))
                with Store(folder / f"{level} {tokens}", "w", durability=level) as store:
                    _, wall, processor = timed(partial(store.put_episodes, made))
                show(f"written and committed ({level}, {tokens} token ids a step)", steps, wall, processor)
        with Store(folder / "process 0") as store:
            _, wall, processor = timed(lambda: sum(1 for _ in store.episodes()))
            show("read back and checked", steps, wall, processor)
            _, wall, processor = timed(lambda: content_hash(store))
            show("content_hash", steps, wall, processor)
        with Store(folder / "journal", "w") as store:
            journal = Journal(store)
            turn = Turn(action=Action.UP, text=TEXT, output_tokens=tuple(range(100)))
            calls = [Call(agent_id="a", prompt="p", episode_id=str(index), step=0, attempt=0) for index in range(5000)]

            def answer_each() -> None:
                for call in calls:
                    journal.send([call])
                    journal.done([(call, turn)])

            _, wall, processor = timed(answer_each)
            show("journalled one by one (sent, done: two commits each)", len(calls), wall, processor, "calls")
        varied = Study.parse({**study.dump(), "trajectories": 40, "horizon": {"steps": LENGTH}})
        for what, agents in (("an agent that costs nothing", [Cheap()]), ("the optimal agent", None)):
            work = partial(run, varied, folder / what, agents=agents)
            summary, wall, processor = timed(work)
            show(f"run, {what}", summary.steps, wall, processor)
        tracemalloc.start()
        with Store(folder / "streamed", "w") as store:
            store.put_episodes(episodes(study, count, 0))
            written = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            for _ in store.episodes():
                pass
        print(f"most memory of a streamed import: {written / 1e6:.0f} MB, of reading: ", end="")
        print(f"{tracemalloc.get_traced_memory()[1] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
