import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_studies import (
    MOST_TOKENS,
    check_nothing_twice,
    journalled,
    local_agent,
    study,
    template,
    tokens,
    trajectories,
)
from server import MANY, Faults, Loopback, speaker

from contents import hash_of
from families import long_after
from goalscope.agents.models import LocalModel
from goalscope.runs import Store, Study, run

COMPLETIONS = {"mode": "completions"}


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: LocalModel) -> Path:
    """A folder with the template of the studies and the tokenizer of the model."""
    path = tmp_path_factory.mktemp("files")
    template(path)
    model.tokenizer.save_pretrained(path / "tokenizer")
    return path


def completions(url: str, folder: Path, **changes: Any) -> Study:
    server = {**COMPLETIONS, "tokenizer": str(folder / "tokenizer"), **changes.pop("server", {})}
    return study(url, folder / "template.txt", server=server, reasoning="none", **changes)


def test_the_same_study_over_http_and_local_gives_the_same_trajectories(
    model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    waiting = {"timeout": 60.0}  # on a busy machine an answer may take seconds: none is asked for again
    with Loopback(model) as server:
        chat = study(server.url, folder / "template.txt", count=4, server=waiting)
        assert run(chat, tmp_path / "chat", workers=3).calls == len(server.log)
        run(completions(server.url, folder, count=4, server=waiting), tmp_path / "completions", workers=3)
        assert {entry.path for entry in server.log} == {"/v1/chat/completions", "/v1/completions"}
    run(chat, tmp_path / "local", agents=[local_agent(model, chat)])
    expected = trajectories(tmp_path / "local")
    assert trajectories(tmp_path / "chat") == trajectories(tmp_path / "completions") == expected
    assert len({step[1] for steps in expected.values() for step in steps}) > 1, "the model should do different things"
    assert tokens(tmp_path / "completions") == tokens(tmp_path / "local")
    assert all(pair == (None, None) for pairs in tokens(tmp_path / "chat").values() for pair in pairs)


@pytest.mark.parametrize("mode", [pytest.param("chat", marks=pytest.mark.full), "completions"])
def test_faults_change_no_result_and_no_answer_is_asked_for_again(
    mode: str, model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    make = completions if mode == "completions" else lambda url, path, **more: study(url, path / "template.txt", **more)
    with Loopback(model) as clean:
        run(make(clean.url, folder, count=4, trajectories=3), tmp_path / "clean", workers=4)
    with Loopback(model, faults=replace(MANY, seed=3)) as server:
        waiting = {"timeout": 10.0}  # a hang ends by it, an answer on a busy machine must not
        asked = make(server.url, folder, count=4, trajectories=3, server=waiting)
        summary = run(asked, tmp_path / "faults", workers=4)
        outcomes = server.outcomes()
        assert outcomes["error"] and outcomes["limited"] and sum(outcomes.values()) > summary.calls
        assert set(server.answered().values()) == {1}, "an answer that arrived was asked for again"
        assert outcomes["answered"] == summary.calls and summary.lost == 0
    assert hash_of(tmp_path / "faults") == hash_of(tmp_path / "clean")
    with Store(tmp_path / "faults") as store:
        (made,) = store.query("SELECT sum(json_extract(usage, '$.requests')) FROM calls")[0]
    assert made == sum(outcomes.values()), "every request is counted"


@pytest.mark.parametrize(
    "fault", long_after(2, [pytest.param("hang", marks=pytest.mark.full), "cut", "garbage", "reset"])
)
def test_each_fault_alone_is_outlived(fault: str, model: LocalModel, folder: Path, tmp_path: Path) -> None:
    only: dict[str, Any] = {fault: 0.3}
    faults = Faults(seed=4, **only)
    with Loopback(model, faults=faults) as server:
        few = study(server.url, folder / "template.txt", count=1, trajectories=1, steps=4, server={"timeout": 5.0})
        summary = run(few, tmp_path / "run")
        assert server.outcomes()[fault] >= 1
        assert server.outcomes()["answered"] == summary.calls == 4


def test_a_server_that_restarts_in_the_middle_is_waited_for(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    with Loopback(model, delay=0.01) as server:
        asked = study(server.url, folder / "template.txt", trajectories=3)

        def restart() -> None:
            while len(server.log) < 10:
                time.sleep(0.005)
            server.stop()
            time.sleep(0.3)
            server.start()

        thread = threading.Thread(target=restart)
        thread.start()
        summary = run(asked, tmp_path / "run", workers=2)
        thread.join()
        assert summary.calls == 30 and summary.lost == 0
        run(asked, tmp_path / "clean", workers=2)
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "clean")


def killed(path: Path, out: Path, server: Loopback, at: int, workers: int = 3) -> None:
    """Run a study in a process of its own and kill it once the server has seen so many more requests."""
    wanted = len(server.log) + at
    command = [sys.executable, "-c", "from goalscope.cli import main; main()", "run", str(path), "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--workers", str(workers)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300  # for a start on a busy machine
    while len(server.log) < wanted:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def kill_and_resume(
    server: Loopback, asked: Study, folder: Path, points: list[int], restarts: bool = False, workers: int = 3
) -> None:
    path, out = folder / "study.yaml", folder / "killed"
    path.write_text(yaml.safe_dump(asked.dump()), encoding="utf-8")
    lost = 0
    for at in points:
        before, since = journalled(out) if out.exists() else set(), len(server.log)
        killed(path, out, server, at, workers)
        check_nothing_twice(server, before, since)
        with Store(out) as store:
            lost += store.query("SELECT count(*) FROM calls WHERE state = 'sent'")[0][0]
    before, since = journalled(out), len(server.log)
    summary = run(asked, out, workers=workers)
    check_nothing_twice(server, before, since)
    with Store(out) as store:
        (counted,) = store.query("SELECT sum(lost) + sum(json_extract(usage, '$.requests')) FROM calls")[0]
    assert lost <= workers * len(points)
    # A call under way at a kill counts as sent; what a stopped server had not read yet was sent, too.
    assert len(server.log) <= counted and (restarts or counted <= len(server.log) + lost)
    assert summary.lost <= workers
    again = sum(count - 1 for count in server.answered().values())
    assert again <= lost, "only calls in flight at a kill may be answered twice"
    run(asked, folder / "clean", workers=workers)
    assert hash_of(out) == hash_of(folder / "clean")


def test_a_killed_client_resumes_to_the_same_store(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    with Loopback(model, delay=0.02, faults=replace(MANY, hang=0)) as server:
        asked = study(server.url, folder / "template.txt", trajectories=4)
        kill_and_resume(server, asked, tmp_path, [17])


MANY_AT_ONCE = 64


def most_at_once(server: Loopback, wanted: int) -> list[int]:
    """Return a list whose only number is the most requests that a server has worked on at the same time.

    The first ones wait for each other, so that the number does not depend on how fast anything is.
    """
    running, most, lock, reached, say = [0], [0], threading.Lock(), threading.Event(), server.say

    def counted(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if most[0] >= wanted:
                reached.set()
        reached.wait(30)
        time.sleep(0.02)
        try:
            return say(path, body)
        finally:
            with lock:
                running[0] -= 1

    server.say = counted  # type: ignore[method-assign]
    return most


@pytest.mark.parametrize(
    ("points", "count", "trajectories", "faults"),
    long_after(
        0,
        [
            pytest.param([40], 2, 17, replace(MANY, hang=0), id="one kill"),
            pytest.param(
                [70, 200, 10, 130, 65], 10, 20, replace(MANY, hang=0, seed=9), id="five", marks=pytest.mark.full
            ),
        ],
        names=4,
    ),
)
def test_64_requests_at_once_end_like_a_clean_run(
    points: list[int],
    count: int,
    trajectories: int,
    faults: Faults,
    model: LocalModel,
    folder: Path,
    tmp_path: Path,
) -> None:
    """Answers come out of order, after delays and among faults; the client is killed in the middle."""
    with Loopback(model, spread=0.2, faults=faults) as server:
        most = most_at_once(server, 17)
        waiting = {"timeout": 60.0, "patience": 300}
        asked = study(server.url, folder / "template.txt", count=count, trajectories=trajectories, server=waiting)
        kill_and_resume(server, asked, tmp_path, points, restarts=True, workers=MANY_AT_ONCE)
        assert most[0] > 16, "many requests were under way at the same time"


@pytest.mark.full
def test_kills_restarts_and_faults_together_end_like_a_clean_run(
    model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    with Loopback(model, delay=0.01, faults=replace(MANY, seed=5)) as server:

        def restarts() -> None:
            while not stop.wait(5.0):
                server.stop()
                time.sleep(0.3)
                server.start()

        thread = threading.Thread(target=restarts)
        thread.start()
        try:
            waiting = {"timeout": 4.0}  # each hang ends by it; requests that it ends too early are made again
            asked = study(server.url, folder / "template.txt", count=10, trajectories=10, steps=10, server=waiting)
            kill_and_resume(server, asked, tmp_path, [40, 90, 160, 25], restarts=True)
        finally:
            stop.set()
            thread.join()
        assert all(server.outcomes()[name] for name in ("error", "limited", "hang", "cut", "garbage", "reset"))


@pytest.mark.parametrize("mode", long_after(1, ["chat", "completions"]))
@pytest.mark.parametrize("cap", long_after(1, ["calls", "tokens", "usd"]))
def test_a_cap_stops_cleanly_and_a_higher_one_goes_on(
    cap: str, mode: str, model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    prices = {"input": 1e4, "output": 2e4, "date": "2025-08-05"}
    make = completions if mode == "completions" else lambda url, path, **more: study(url, path / "template.txt", **more)
    with Loopback(model) as server:
        low = {"calls": 7, "tokens": 1500, "usd": 15.0}[cap]
        capped = make(server.url, folder, caps={cap: low}, prices=prices)
        with pytest.raises(ValueError, match=f"caps.{cap} .*same directory"):
            run(capped, tmp_path / "run", workers=3)
        seen = len(server.log)
        assert 0 < seen < 20
        with Store(tmp_path / "run") as store:
            usages = [
                {"calls": made, "tokens": read + said, "usd": usd}
                for made, read, said, usd in store.query(
                    "SELECT sum(json_extract(usage, '$.requests')), sum(json_extract(usage, '$.prompt_tokens')), "
                    "sum(json_extract(usage, '$.output_tokens')), sum(json_extract(usage, '$.usd')) FROM calls"
                )
            ]
            assert store.query("SELECT count(*) FROM calls WHERE state != 'done'")[0][0] == 0
        assert usages[0][cap] <= low
        assert usages[0]["usd"] == pytest.approx(usages[0]["tokens"] * 1e-2, rel=0.2)
        with pytest.raises(ValueError, match=f"caps.{cap}"):
            run(capped, tmp_path / "run", workers=3)
        assert len(server.log) == seen, "what earlier sessions spent counts"
        higher = make(server.url, folder, caps={cap: 1000 * low}, prices={**prices, "date": "2026-01-01"})
        assert higher.id == capped.id
        summary = run(higher, tmp_path / "run", workers=3)
        assert summary.lost == 0 and summary.calls == 20 - seen
        assert set(server.answered().values()) == {1}
        run(higher, tmp_path / "clean")
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "clean")


def test_what_a_study_runs_at_once_is_its_concurrency(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    with Loopback(model, delay=0.05) as server:
        asked = study(server.url, folder / "template.txt", concurrency=4, steps=3)
        most = most_at_once(server, 2)
        run(asked, tmp_path / "run")
        assert 2 <= most[0] <= 4


def test_the_most_tokens_of_the_study_are_the_servers(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    with Loopback(model, rejects=("max_tokens",)) as server:
        asked = study(server.url, folder / "template.txt", count=1, trajectories=1, steps=2)
        run(asked, tmp_path / "run")
        assert [entry.body.get("max_completion_tokens") for entry in server.log] == [None, MOST_TOKENS, MOST_TOKENS]
