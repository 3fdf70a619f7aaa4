"""A run that is interrupted again and again, in a process of its own, and what its model said meanwhile."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from http_studies import study, template
from server import Faults, Loopback, speaker

from goalscope.agents import ChatAgent
from goalscope.agents.chat import Choice
from goalscope.agents.models import HttpModel, LocalModel, Request
from goalscope.runs import Store, Study, content_hash, run

Key = tuple[str, int, int]
MODES = ("generated", "likelihood", "server")


def hash_of(directory: Path) -> str:
    """As in `contents`, which a script in this folder cannot import."""
    with Store(directory) as store:
        return content_hash(store)


class Said:
    """Writes down each answer at the moment at which its model has it."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def of_local(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def logged(
            requests: Sequence[Request], sampling: Any, *, arrived: Any = lambda new: None, **options: Any
        ) -> Any:
            def take(new: Sequence[tuple[int, Any]]) -> None:
                self.keys += [requests[index].key[1:] for index, _ in new]
                arrived(new)

            return method(requests, sampling, arrived=take, **options)

        return logged

    def of_server(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def logged(requests: Sequence[Request], sampling: Any, **options: Any) -> Any:
            answers = method(requests, sampling, **options)
            self.keys += [request.key[1:] for request in requests]
            return answers

        return logged


def kept(directory: Path) -> set[Key]:
    """The calls whose answers are in the journal."""
    if not (directory / "run.db").exists():
        return set()
    with Store(directory) as store:
        return set(store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'"))


def answers(directory: Path) -> tuple[list[Any], list[float]]:
    """What was answered at each step of a run, and each number of its likelihoods, in nats."""
    said, numbers = list[Any](), list[float]()
    with Store(directory) as store:
        for episode in sorted(store.episodes(), key=lambda episode: episode.id):
            for step in episode.steps:
                said.append((episode.id, step.action, step.failure, step.text, step.prompt_tokens))
                found = (step.extra or {}).get("likelihood", {})
                numbers += [*found.get("logprobs", ()), found.get("beginning", 0.0)]
    return said, numbers


def slow(model: LocalModel, seconds: float) -> None:
    """Have each pass of a model take some time."""
    model.model.register_forward_hook(lambda *_: time.sleep(seconds))


def local_agent(mode: str, like: Study) -> ChatAgent:
    """The model that the server asks, here."""
    (served,) = like.agents()
    assert isinstance(served, ChatAgent)
    model, sampling = speaker(), replace(served.sampling, temperature=0.7)
    slow(model, 0.01)
    model._slots = 2  # so that its answers arrive in several groups
    choice = Choice() if mode == "likelihood" else None
    return ChatAgent(model=model, task=served.task, sampling=sampling, choice=choice)


def interrupted(mode: str, folder: Path, moments: int) -> dict[str, Any]:
    """Interrupt a run at some moments, go on each time, and count what was said, kept and said twice."""
    said, directory, rng = Said(), folder / "run", np.random.default_rng(moments)
    lost, stops = list[Key](), 0
    with Loopback(speaker(), delay=0.05, spread=0.1) as server:
        asked = study(server.url, template(folder), count=2, trajectories=moments, server={"timeout": 60.0})
        (agent,) = asked.agents() if mode == "server" else [local_agent(mode, asked)]
        assert isinstance(agent, ChatAgent)
        name = "likelihoods" if mode == "likelihood" else "complete"
        wrap = said.of_server if mode == "server" else said.of_local
        setattr(agent.model, name, wrap(getattr(agent.model, name)))
        ended = threading.Event()

        def interrupt_after(more: int, seconds: float) -> None:
            wanted = len(said.keys) + more
            while len(said.keys) < wanted and not ended.wait(0.001):
                pass
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGINT)

        for _ in range(moments):
            # Before the first answer of this session, or near the moment at which one arrives.
            moment = int(rng.integers(5)), float(rng.random()) * 0.05
            thread = threading.Thread(target=interrupt_after, args=moment)
            thread.start()
            try:
                run(asked, directory, agents=[agent])
                ended.set()
                thread.join()
                raise AssertionError("the run was over before it was interrupted: make it longer")
            except KeyboardInterrupt:
                stops += 1
            thread.join()
            lost += sorted(set(said.keys) - kept(directory))
        summary = run(asked, directory, agents=[agent])
    stored = kept(directory)
    run(asked, folder / "clean", agents=[local_agent(mode, asked)]) if mode != "server" else None
    (said_here, numbers), (said_clean, clean) = (
        answers(folder / name) if mode != "server" else ([], []) for name in ("run", "clean")
    )
    apart = np.abs(np.array(numbers) - np.array(clean))
    return {
        "mode": mode,
        "stops": stops,
        "lost": lost,
        "said": len(said.keys),
        "twice": len(said.keys) - len(set(said.keys)),
        "kept": len(stored),
        "replayed": summary.replayed,
        "equal": mode == "server" or hash_of(directory) == hash_of(folder / "clean"),
        "same answers": said_here == said_clean,
        "numbers": len(apart),
        "numbers apart": int((apart > 0).sum()),
        "furthest": float(apart.max(initial=0.0)),
    }


def server_stops(kind: str, folder: Path) -> dict[str, Any]:
    """Interrupt a run while its server is gone or silent, and go on when it answers again."""
    said, directory = Said(), folder / "run"
    with Loopback(speaker()) as server:
        asked = study(
            server.url,
            template(folder),
            trajectories=6,
            server={"timeout": 600.0, "backoff": 20.0, "patience": 600.0},
            concurrency=4,
        )
        (agent,) = asked.agents()
        assert isinstance(agent, ChatAgent)
        agent.model.complete = said.of_server(agent.model.complete)  # type: ignore[method-assign]
        pressed = list[float]()

        def press() -> None:
            time.sleep(0.5)
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        def interrupt() -> None:
            while len(said.keys) < 6:
                time.sleep(0.001)
            if kind == "gone":
                server.stop()
            else:
                server.behaviour.faults = Faults(hang=1.0, hang_seconds=600.0)
                press()  # it is waited for answers that will not come
            press()

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            run(asked, directory, agents=[agent])
            raise AssertionError("the run was over before it was interrupted: make it longer")
        except KeyboardInterrupt as stop:
            waited, message = time.monotonic() - pressed[-1], str(stop)
        thread.join()
        lost = sorted(set(said.keys) - kept(directory))
        if kind == "gone":
            server.start()
        server.behaviour.faults = Faults()
        agent.model.complete = HttpModel.complete.__get__(agent.model)  # type: ignore[method-assign]
        before = len(kept(directory))
        summary = run(asked, directory, agents=[agent])
    return {
        "lost": lost,
        "said": len(said.keys),
        "waited": waited,
        "message": message,
        "replayed": summary.replayed,
        "before": before,
        "kept": len(kept(directory)),
    }


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process has it ignored
    with tempfile.TemporaryDirectory() as name:
        mode, moments = sys.argv[1:]
        found = interrupted(mode, Path(name), int(moments)) if mode in MODES else server_stops(mode, Path(name))
        sys.stdout.write(json.dumps(found) + "\n")
