"""How busy a run keeps a server or an engine whose answers take very different times, measured there.

Usage: python benchmarks/busy_server.py [--slots 64 256] [--mean 3] [--episodes 8 3] [--steps 5] [--engine 512]

A loopback server in a process of its own answers each request after a Pareto-distributed time (shape 1.5, at most 20
times the mean; drawn by episode, step and seed). It does nothing else meanwhile, so one machine serves 256 requests at
once. The busy share is the sum of service times over slots times seconds. Its steady part begins with the first request
and ends when fewer episodes are unfinished than there are slots: after that no order of work can fill them. "In rounds"
is arithmetic on the same times: 256 episodes at once, each turn asked when the slowest of the turn before is there.

With ``--engine``, so many episodes are also played by the backend ``vllm``, with the stand-in of the tests in place of
vLLM: 256 rows, .02 s a step, answers of log-normal length (mean 150 tokens, sigma .8, at most 1,000). Its steady part
ends with the last step at which all rows were busy.
"""

import argparse
import asyncio
import heapq
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from goalscope._ground.rng import uniform
from goalscope.agents.models.engine import INTERPRETER
from goalscope.runs import Store, Study, content_hash, run

SHAPE, LONGEST, BATCH = 1.5, 20.0, 256
ACTIONS = ("UP", "DOWN", "LEFT", "RIGHT")
Served = tuple[str, float, float]  # tag of a request, its first and its last moment at the server


def service_time(seed: int, tag: str, mean: float) -> float:
    """Return the seconds that an answer takes."""
    return mean * min(LONGEST, (1 - 1 / SHAPE) * float((1 - uniform(seed, "service", tag)) ** (-1 / SHAPE)))


def serve(told: Connection, seed: int, mean: float) -> None:
    """Serve on loopback until the process is ended; GET returns the requests so far."""
    log: list[Served] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                document: Any = log
                if first.startswith("POST"):
                    began, tag = time.monotonic(), headers["x-client-request-id"]
                    await reader.readexactly(int(headers["content-length"]))
                    await asyncio.sleep(service_time(seed, tag, mean))
                    action = ACTIONS[int(4 * uniform(0, "action", tag))]
                    message = {"role": "assistant", "content": json.dumps({"action": action})}
                    document = {"id": "x", "object": "chat.completion", "model": "sleeper"}
                    document["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
                    document["usage"] = {"prompt_tokens": 50, "completion_tokens": 8}
                body = json.dumps(document).encode()
                begin = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(begin.encode() + body)
                await writer.drain()
                if first.startswith("POST"):
                    log.append((tag, began, time.monotonic()))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def forever() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


def study(port: int, slots: int, episodes: int, steps: int) -> Study:
    """Return a study of so many episodes behind the server."""
    server = {"base_url": f"http://127.0.0.1:{port}/v1", "preflight": False, "timeout": 1e5, "retries": 0}
    agent = {"kind": "chat", "model": "sleeper", "server": server, "concurrency": slots, "max_tokens": 32}
    worlds = {"kind": "grid", "sizes": [9], "densities": [0.4], "count": 16, "minimum_distance": steps + 1}
    return Study.parse(
        {"worlds": [worlds], "agents": [agent], "trajectories": -(-episodes // 16), "horizon": {"steps": steps}}
    )


def by_episode(log: list[Served]) -> dict[str, list[Served]]:
    """Return the requests of each episode, in order."""
    episodes: dict[str, list[Served]] = defaultdict(list)
    for each in sorted(log, key=lambda one: one[1]):
        episodes[each[0].rsplit("-", 2)[0]].append(each)
    return episodes


def busy(log: list[Served], slots: int) -> tuple[float, float]:
    """Return the busy shares of the steady part and of the whole run."""
    start, end = min(one[1] for one in log), max(one[2] for one in log)
    ends = sorted(requests[-1][2] for requests in by_episode(log).values())
    steady = ends[-slots]  # from here on fewer episodes than slots are unfinished
    within = sum(max(0.0, min(last, steady) - first) for _, first, last in log)
    return within / (slots * (steady - start)), sum(last - first for _, first, last in log) / (slots * (end - start))


def in_rounds(log: list[Served], slots: int, seed: int, mean: float) -> float:
    """Return the busy share of the whole run, were each turn asked when all answers to the turn before are there."""
    episodes = [[service_time(seed, tag, mean) for tag, _, _ in each] for each in by_episode(log).values()]
    total, makespan, live = sum(map(sum, episodes)), 0.0, list[list[float]]()
    while live or episodes:
        while episodes and len(live) < BATCH:
            live.append(episodes.pop(0))
        free = [0.0] * slots
        for one in live:
            heapq.heapreplace(free, free[0] + one.pop(0))
        makespan, live = makespan + max(free), [one for one in live if one]
    return total / (slots * makespan)


def measured(slots: int, episodes: int, steps: int, mean: float, seed: int) -> tuple[int, float, float, float, str]:
    """Return answers, three busy shares (steady, whole, in rounds) and the content hash of a run."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, seed, mean), daemon=True)
    process.start()
    port = ours.recv()
    try:
        with tempfile.TemporaryDirectory() as folder:
            answers = run(study(port, slots, episodes, steps), Path(folder) / "run", batch=BATCH).calls
            with Store(Path(folder) / "run") as store:
                digest = content_hash(store)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/log") as page:
            log = [(tag, first, last) for tag, first, last in json.load(page)]
    finally:
        process.terminate()
        process.join()
    return answers, *busy(log, slots), in_rounds(log, slots, seed, mean), digest


def engine_rows(episodes: int, steps: int) -> list[int]:
    """Return the number of rows at each step of an engine that plays so many episodes."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "path" / "vllm"
        package.mkdir(parents=True)
        stand_in = Path(__file__).parents[1] / "tests" / "models" / "stand_in_vllm.py"
        shutil.copy(stand_in, package / "__init__.py")
        log = Path(folder) / "rows"
        os.environ |= {"PYTHONPATH": str(package.parent), INTERPRETER: sys.executable}
        os.environ |= {"STAND_IN": "lengths", "STAND_IN_PACE": "0.02", "STAND_IN_LOG": str(log)}
        agent = {"kind": "chat", "model": "theseus", "backend": "vllm", "max_tokens": 1000}
        worlds = {"kind": "grid", "sizes": [9], "densities": [0.4], "count": 16, "minimum_distance": steps + 1}
        document = {"worlds": [worlds], "agents": [agent], "trajectories": -(-episodes // 16)}
        run(Study.parse(document | {"horizon": {"steps": steps}}), Path(folder) / "run", batch=BATCH)
        return [int(line) for line in log.read_text().split()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[64, 256], help="requests in flight")
    parser.add_argument("--mean", type=float, default=3.0, help="mean seconds of an answer at 64 slots; more at more")
    parser.add_argument("--episodes", type=int, nargs="+", default=[8, 3], help="episodes a slot, for each of these")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", type=int, default=0, help="episodes for the stand-in of vLLM's engine; 0 for none")
    given = parser.parse_args()
    if given.engine:
        rows = engine_rows(given.engine, given.steps)
        steady = rows[: max(step for step, count in enumerate(rows) if count == BATCH) + 1]
        shares = [sum(part) / (BATCH * len(part)) for part in (steady, rows)]
        print(
            f"engine of {BATCH} rows, {given.engine} episodes: busy {shares[0]:.1%} in the steady part ({len(steady)} "
            f"steps), {shares[1]:.1%} with the tail ({len(rows)} steps)",
            flush=True,
        )
    for slots, each in zip(given.slots, given.episodes, strict=True):
        mean = given.mean * slots / 64  # as many answers a second
        answers, steady, whole, rounds, digest = measured(slots, each * slots, given.steps, mean, given.seed)
        print(
            f"{slots} in flight, {answers} answers of {mean:g} s on average: busy {steady:.1%} in the steady part, "
            f"{whole:.1%} with the tail; in rounds {rounds:.1%}; content hash {digest[:23]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
