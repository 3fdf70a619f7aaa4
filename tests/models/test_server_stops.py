"""A server that stops answering in the middle of a run is noticed, and one that is only slow is not taken for it."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from http_studies import study, template
from server import Loopback, speaker
from tiny_models import request

from contents import hash_of
from families import long_after
from goalscope._ground.progress import TALLY, ModelsAtWork
from goalscope.agents.models import HttpModel, LocalModel, Sampling, Server
from goalscope.runs import Store, run

SILENCE = 0.8
MODELS: Mapping[str, Any] = {"/v1/models": {"data": [{"id": "speaker"}]}}
GREEDY = Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


def never(handler: BaseHTTPRequestHandler) -> None:
    """Accept a request and say nothing."""
    handler.server.owner.stopping.wait(60)  # type: ignore[attr-defined]


def half(handler: BaseHTTPRequestHandler) -> None:
    """Send half of a body and nothing more."""
    handler.send_response(200)
    handler.send_header("Content-Length", "400")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')
    handler.wfile.flush()
    never(handler)


def close(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a byte, as a proxy whose server is gone may."""
    handler.close_connection = True


def stopped_after(server: Loopback, answers: int, stop: Callable[[], None]) -> None:
    """Call a function once a server has given so many answers."""
    say, lock, count = server.say, threading.Lock(), [0]

    def counted(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with lock:
            count[0] += 1
            if count[0] == answers:
                stop()
        return say(path, body)

    server.say = counted  # type: ignore[method-assign]


def waiting(**changes: Any) -> dict[str, Any]:
    return {"timeout": 60.0, "patience": 600, "retries": 1000, "backoff": 0.05, "silence": SILENCE, **changes}


@pytest.mark.parametrize("how", long_after(2, [never, half, close]), ids=["hangs", "half a body", "closes"])
@pytest.mark.parametrize("page", long_after(1, ["answers", "hangs"]))
def test_a_server_that_stops_in_the_middle_ends_the_run_which_then_goes_on(
    how: Callable[..., None], page: str, model: LocalModel, tmp_path: Path
) -> None:
    lines: list[str] = []
    with Loopback(model, pages=MODELS) as server:
        asked = study(server.url, template(tmp_path), server=waiting(), concurrency=3)

        def stop() -> None:
            server.behaviour.raw = how
            server.behaviour.silent_pages = page == "hangs"

        stopped_after(server, 8, stop)
        began = time.monotonic()
        with (
            TALLY.heard_by(lines.append),
            pytest.raises(ConnectionError, match=r"(?s)server\.silence: 0\.8 s.*same directory") as ended,
        ):
            run(asked, tmp_path / "run")
        assert SILENCE <= time.monotonic() - began < 50
        assert any("stopped answering" in line for line in lines), "it is said on the progress line"
        assert (
            "does not answer at /models either" in str(ended.value)
            if page == "hangs"
            else "does answer at /models" in str(ended.value)
        )
        server.behaviour.raw, server.behaviour.silent_pages = None, False
        with Store(tmp_path / "run") as store:
            ((kept,),) = store.query("SELECT count(*) FROM calls WHERE state = 'done'")
        summary = run(asked, tmp_path / "run")
        assert kept >= 7 and summary.replayed + summary.calls >= 20 and summary.calls <= 20 - kept
        run(asked, tmp_path / "clean")
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "clean")


def test_a_server_that_no_longer_accepts_or_is_gone_is_noticed(model: LocalModel) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        fillers = [socket.socket() for _ in range(4)]  # fill the queue of connections that nobody accepts
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        for url in (address, "http://127.0.0.1:1/v1"):
            asked = HttpModel("speaker", server=Server(base_url=url, **waiting()))
            began = time.monotonic()
            with pytest.raises(ConnectionError, match="/models"):
                asked.complete([request("#_")], GREEDY)
            assert SILENCE <= time.monotonic() - began < 50
        for filler in fillers:
            filler.close()


@pytest.mark.full
def test_a_slow_server_is_waited_for_while_its_page_answers(model: LocalModel) -> None:
    """No answer has come yet, or answers of so many tokens take that long."""
    lines: list[str] = []
    with Loopback(model, pages=MODELS, delay=3 * SILENCE) as server, TALLY.heard_by(lines.append):
        asked = HttpModel("speaker", server=Server(base_url=server.url, **waiting()))
        for _ in range(2):
            (answer,) = asked.complete([request("#_")], GREEDY)
            assert answer.usage["requests"] == 1
    assert sum("answers at /models" in line for line in lines) >= 2


@pytest.mark.full
def test_other_answers_that_arrive_show_that_a_server_lives(model: LocalModel, tmp_path: Path) -> None:
    """One answer takes much longer than the silence that is allowed, but the others come."""
    first = threading.Event()
    with Loopback(model, delay=0.05) as server:
        say = server.say

        def slow(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            if not first.is_set():
                first.set()
                time.sleep(2 * SILENCE)
            return say(path, body)

        server.say = slow  # type: ignore[method-assign]
        server.behaviour.silent_pages = True
        longer = study(server.url, template(tmp_path), trajectories=8, server=waiting(), concurrency=2)
        summary = run(longer, tmp_path / "run")
        assert summary.lost == 0 and set(server.answered().values()) == {1}


def test_waiting_at_the_servers_request_is_no_silence(model: LocalModel) -> None:
    seen: list[int] = []

    def busy(handler: BaseHTTPRequestHandler) -> None:
        seen.append(1)
        body = b"{}"
        handler.send_response(429)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Retry-After", str(2 * SILENCE))
        handler.end_headers()
        handler.wfile.write(body)
        server.behaviour.raw = None

    with Loopback(model, raw=busy) as server:
        server.behaviour.silent_pages = True
        asked = HttpModel("speaker", server=Server(base_url=server.url, **waiting()))
        (answer,) = asked.complete([request("#_")], GREEDY)
        assert answer.usage["requests"] == 2 and len(seen) == 1


@pytest.mark.full
def test_the_progress_line_shows_since_when_nothing_has_come(model: LocalModel) -> None:
    began = ModelsAtWork(time.monotonic())
    shown: list[str] = []
    with Loopback(model, delay=1.5) as server:
        asked = HttpModel("speaker", server=Server(base_url=server.url, timeout=60.0, silence=4.0))
        TALLY.add(begun=1, under_way=1)
        thread = threading.Thread(target=asked.complete, args=([request("#_")], GREEDY))
        thread.start()
        while thread.is_alive():
            shown += began.words(time.monotonic())
            time.sleep(0.1)
        TALLY.add(under_way=-1)
        assert any(f"nothing from {server.url} for" in words for words in shown)
        time.sleep(0.5)
        assert server.url not in TALLY.silent
