"""Print the speed of the store and of a run.

    python benchmarks/store.py [--steps 200000] [--directory DIR] [--rounds 5]

First beside plain SQLite, in turns in one process: ``executemany`` of a row of JSON a step, read by ``json.loads``; as
journal one insert and one update a call, both committed; with the same durability and no checksums. A ratio is the
median of processor times over rounds, with the least and the greatest. Then each part alone: "committed" figures are
wall-clock times up to the last commit, on the file system of the directory: rows are then safe from a killed process
("process") or a power failure ("power"). The machine's other work shows in them, so processor seconds stand beside.
"""

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from goalscope.agents import Agent, Observation, Turn, build_agent
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
        cells = [State((row, col)) for row, col in np.argwhere(~world.grid.walls).tolist()]
        steps = tuple(
            Step(index=index, state=cells[index % len(cells)], action=Action.UP, text=TEXT, output_tokens=output)
            for index in range(LENGTH)
        )
        spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=number, seed=0, horizon=LENGTH)
        yield Episode(spec=spec, world=world, agent="agent", steps=steps, final=cells[0], outcome="horizon")


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return a result, the wall-clock seconds and the processor seconds that it took."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def show(what: str, count: int, wall: float, processor: float, unit: str = "steps") -> None:
    """Print one line of the table."""
    print(f"{what:<58} {count / wall:>12,.0f} {count / processor:>12,.0f} {unit}/s  ({wall:.2f} s)")


class Plain:
    """Plain SQLite: a row of JSON a step, no checksums, the durability of a store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self) -> sqlite3.Connection:
        """Open the file as a store of durability "process" does."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def write(self, made: Sequence[Episode]) -> None:
        """Write all steps in one transaction."""
        with closing(self.connect()) as connection:
            connection.execute(
                "CREATE TABLE steps (episode INTEGER, step INTEGER, document TEXT, PRIMARY KEY (episode, step)) "
                "WITHOUT ROWID"
            )
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO steps VALUES (?, ?, ?)",
                (
                    (number, step.index, json.dumps([step.state, step.action, step.text, step.output_tokens]))
                    for number, episode in enumerate(made)
                    for step in episode.steps
                ),
            )
            connection.execute("COMMIT")

    def read(self) -> int:
        """Read all steps back, in order."""
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT document FROM steps ORDER BY episode, step")
            return sum(1 for (document,) in rows if json.loads(document))

    def journal(self, calls: Sequence[Call], turn: Turn) -> None:
        """Note each call before it is made and its answer when it is there, committed both times."""
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE calls (id TEXT PRIMARY KEY, state TEXT, answer TEXT)")
            for call in calls:
                connection.execute("INSERT INTO calls VALUES (?, 'sent', NULL)", (call.id,))
                answer = json.dumps([turn.action, turn.text, turn.output_tokens])
                connection.execute("UPDATE calls SET state = 'done', answer = ? WHERE id = ?", (answer, call.id))


def journalled(store: Store, calls: Sequence[Call], turn: Turn) -> None:
    """Journal each call by itself."""
    journal = Journal(store)
    for call in calls:
        journal.send([call])
        journal.done([(call, turn)])


def new_calls(count: int) -> list[Call]:
    """Return calls whose ids are not computed yet."""
    return [Call(agent_id="a", prompt="p", episode_id=str(index), step=0, attempt=0) for index in range(count)]


def show_ratio(what: str, ratios: Sequence[float]) -> None:
    """Print the median of ratios, and their range."""
    print(
        f"{what + ', ratio to plain SQLite':<58} {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    )


def beside_plain(study: Study, count: int, rounds: int, folder: Path) -> None:
    """Print the ratios to plain SQLite."""
    print(f"processor time of plain SQLite / goalscope, medians of {rounds} rounds with the least and the greatest")
    turn = Turn(action=Action.UP, text=TEXT, output_tokens=tuple(range(100)))
    for tokens in (0, 100):
        made = list(episodes(study, count, tokens))
        ratios: dict[str, list[float]] = {"write": [], "read": []}
        for number in range(rounds):
            plain = Plain(folder / f"plain {tokens} {number}.db")
            with Store(folder / f"beside {tokens} {number}", "w") as store:
                ours = timed(partial(store.put_episodes, made))[2]
                ratios["write"].append(timed(partial(plain.write, made))[2] / ours)
                ours = timed(lambda store=store: sum(1 for _ in store.episodes()))[2]  # type: ignore[misc]
                ratios["read"].append(timed(plain.read)[2] / ours)
        for what, found in ratios.items():
            show_ratio(f"{what}, {tokens} token ids a step", found)
    found = []
    for number in range(rounds):
        with Store(folder / f"journal beside {number}", "w") as store:
            ours = timed(partial(journalled, store, new_calls(2000), turn))[2]
        plain = Plain(folder / f"plain journal {number}.db")
        found.append(timed(partial(plain.journal, new_calls(2000), turn))[2] / ours)
    show_ratio("journal", found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the stores are written")
    parser.add_argument("--rounds", type=int, default=5, help="times that each pair is measured")
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
    print(f"{steps:,} steps in {count:,} episodes")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        beside_plain(study, count, arguments.rounds, folder)
        print(f"{'':<58} {'wall clock':>12} {'processor':>12}")
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
            turn = Turn(action=Action.UP, text=TEXT, output_tokens=tuple(range(100)))
            _, wall, processor = timed(partial(journalled, store, new_calls(5000), turn))
            show("journalled one by one (sent, done: two commits each)", 5000, wall, processor, "calls")
        varied = Study.parse({**study.dump(), "trajectories": 40, "horizon": {"steps": LENGTH}})
        agents: Sequence[Agent] | None
        for what, agents in (
            ("an agent that costs nothing", [Cheap()]),
            ("the optimal agent", None),
            ("a random agent", [build_agent("random", {})]),
        ):
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
