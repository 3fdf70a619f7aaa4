"""Print what measuring a stored run costs: read as columns, beside the same run read as one record a step.

    python benchmarks/measures.py [--trajectories 40] [--directory DIR]

Both ways give the same rows, which is checked. Seconds are processor seconds of one core; memory is the most that is
taken at a time.
"""

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from goalscope.agents.scripted import EpsilonGreedy
from goalscope.measures import measure_episodes, measure_store
from goalscope.measures.testing import roll_out
from goalscope.runs import Episode, Store, Study, content_hash
from goalscope.runs.episode_columns import read_episode_columns

TEXT = '{"action": "UP"}'
PROMPT, ANSWER = tuple(range(200)), tuple(range(20))
WAYS: dict[str, Callable[[Store], Any]] = {
    "records": lambda store: measure_episodes(list(store.episodes())),
    "columns": measure_store,
}


def episodes(trajectories: int) -> Iterator[Episode]:
    """Yield episodes of a scripted agent, each step with a short text and the token ids of a prompt and an answer."""
    entry = {"kind": "grid", "sizes": [7, 11, 15], "densities": [0.0, 0.4, 0.8], "count": 10, "minimum_distance": 4}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "optimal"}]})
    for world in study.worlds():
        for episode in roll_out(EpsilonGreedy(0.3), world, seed=0, trajectories=trajectories):
            said = tuple(replace(step, text=TEXT, prompt_tokens=PROMPT, output_tokens=ANSWER) for step in episode.steps)
            yield replace(episode, steps=said)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the processor seconds that it took."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def peak(work: Callable[[], Any]) -> float:
    """Return the most memory, in MB, that a piece of work takes."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def show(what: str, records: float, columns: float, unit: str = "s") -> None:
    """Print one line of the table."""
    print(f"{what:<42} {records:>7.2f} {unit:<2} {columns:>7.2f} {unit:<2} {records / columns:>6.1f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=40)
    parser.add_argument("--directory", type=Path, default=None, help="where the stores are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        sizes = {"a quarter of the run": max(1, arguments.trajectories // 4), "the run": arguments.trajectories}
        for size, trajectories in sizes.items():
            with Store(Path(name) / size, "w") as store:
                store.put_episodes(episodes(trajectories))
        with Store(Path(name) / "the run", "w") as store:
            ((count, steps),) = store.query("SELECT count(*), sum(length) FROM episodes")
            print(f"{count:,} episodes, {steps:,} steps\n{'':<42} {'records':>10} {'columns':>10} {'ratio':>6}")

            _, slow = timed(lambda: list(store.episodes()))
            _, fast = timed(lambda: read_episode_columns(store))
            show("read and checked", slow, fast)
            wanted, slow = timed(lambda: WAYS["records"](store))
            rows, fast = timed(lambda: WAYS["columns"](store))
            if any(repr(wanted[column].tolist()) != repr(rows[column].tolist()) for column in wanted.columns()):
                raise ValueError("both ways must give the same rows, got different ones")
            show("read and measured", slow, fast)
            for what, work in (
                ("rows stored", lambda: store.put_rows(rows, "behaviour")),
                ("rows stored in place of others", lambda: store.put_rows(rows, "behaviour")),
                ("rows read back", store.rows),
                ("content_hash", lambda: content_hash(store)),
            ):
                _, seconds = timed(work)
                print(f"{what:<42} {'':>10} {seconds:>7.2f} s  ({len(rows) / seconds:,.0f} rows/s)")
        for size in sizes:
            with Store(Path(name) / size) as store:
                most = {which: peak(partial(way, store)) for which, way in WAYS.items()}
            show(f"memory, {size}", most["records"], most["columns"], "MB")


if __name__ == "__main__":
    main()
