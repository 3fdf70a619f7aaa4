"""Requests to a server are ready by episode: an answer that takes long holds up no other episode."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from busy_server import measured
from http_studies import journalled, study, template
from server import Loopback, speaker

from contents import hash_of
from goalscope._ground.rng import uniform
from goalscope.agents.models import HttpModel, LocalModel
from goalscope.runs import run

EPISODES, STEPS = 6, 4


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


def held(server: Loopback, others: int) -> list[int]:
    """Have a server hold its first request until it has answered so many others; return their numbers then."""
    lock, enough, answered, first, say = threading.Lock(), threading.Event(), [0], list[int](), server.say

    def slow(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with lock:
            is_first = not first
            if is_first:
                first.append(-1)
        if is_first:
            enough.wait(20)
            first[0] = answered[0]
        said = say(path, body)
        with lock:
            answered[0] += not is_first
            if answered[0] >= others:
                enough.set()
        return said

    server.say = slow  # type: ignore[method-assign]
    return first


def test_the_slowest_answer_holds_up_its_own_episode_alone(model: LocalModel, tmp_path: Path) -> None:
    others = (EPISODES - 1) * STEPS
    with Loopback(model) as server:
        at_release = held(server, others)
        waiting = {"timeout": 60.0}
        asked = study(server.url, template(tmp_path), trajectories=EPISODES // 2, steps=STEPS, server=waiting)
        # Two live episodes: where one ends, the next one begins beside the one whose answer is held.
        summary = run(asked, tmp_path / "held", workers=2, batch=2)
        assert at_release == [others] and summary.calls == others + STEPS and summary.lost == 0
        assert set(server.answered().values()) == {1}


def test_rows_do_not_depend_on_the_schedule(model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback(model) as server:
        say = server.say
        asked = study(server.url, template(tmp_path), trajectories=EPISODES // 2, steps=STEPS, temperature=0.7)
        hashes, calls = set(), set()
        for number, (workers, batch, together) in enumerate([(1, 1, 1), (3, 256, 1), (6, 4, 1), (2, 256, 3)]):

            def delayed(path: str, body: Mapping[str, Any], number: int = number) -> dict[str, Any]:
                # Pareto times, shape 1.5, of another seed in each run: answers come in another order.
                draw = uniform(number, "service", str(body["messages"]), body.get("seed", 0))
                threading.Event().wait(min(0.1, 0.003 * (1 - draw) ** (-1 / 1.5)))
                return say(path, body)

            server.say = delayed  # type: ignore[method-assign]
            monkeypatch.setattr(HttpModel, "largest_batch", together)  # above 1 an agent is asked in rounds
            directory = tmp_path / str(number)
            assert run(asked, directory, workers=workers, batch=batch).calls == EPISODES * STEPS
            hashes.add(hash_of(directory))
            calls.add(tuple(sorted(journalled(directory))))
    assert len(hashes) == len(calls) == 1


@pytest.mark.full
@pytest.mark.parametrize(("slots", "each", "mean"), [(64, 4, 2.0), (256, 2, 8.0)])
def test_a_server_with_heavy_tailed_times_is_kept_busy(slots: int, each: int, mean: float) -> None:
    answers, steady, whole, rounds, _ = measured(slots, each * slots, 3, mean, seed=1)
    assert answers == each * slots * 3 and steady >= 0.9 and whole > rounds
