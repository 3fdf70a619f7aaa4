"""What a server may send back, and what is sent to it: a deadline, a size, no other address, no other header."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from typing import Any

import pytest
from server import Loopback, speaker
from tiny_models import request

from goalscope.agents.models import HttpModel, Sampling, Server

GREEDY = Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None)
ANSWER = json.dumps({"choices": [{"message": {"content": '{"action": "UP"}'}, "finish_reason": "stop"}]}).encode()
Raw = Callable[[BaseHTTPRequestHandler], None]


def ask(server: Loopback, **changes: Any) -> Any:
    settings = {"timeout": 5.0, "retries": 0, "backoff": 0.01, **changes}
    return HttpModel("speaker", server=Server(base_url=server.url, **settings)).complete([request("#_")], GREEDY)


def sender(body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Raw:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return write


def drip_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    body = ANSWER.ljust(400)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    drip(handler, body)


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    drip(handler, b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 400)


def drip_failure(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 400\r\n\r\n")
    drip(handler, b"x" * 400)


def drip(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    for place in range(len(data)):
        handler.wfile.write(data[place : place + 1])
        handler.wfile.flush()
        time.sleep(0.15)


@pytest.mark.parametrize("raw", [drip_body, drip_headers, drip_failure])
def test_a_response_must_be_complete_by_its_deadline(raw: Raw) -> None:
    import_module("openai")  # it takes a while
    with Loopback(speaker(), raw=raw) as server:
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=r"0\.4 seconds \(server\.timeout\)"):
            ask(server, timeout=0.4)
        assert time.monotonic() - began < 40, "each byte alone came in time, all of them would take a minute"


def test_a_connection_whose_deadline_is_over_serves_no_further_request() -> None:
    slow = iter([True, False, False])

    def raw(handler: BaseHTTPRequestHandler) -> None:
        drip_body(handler) if next(slow) else sender(ANSWER)(handler)

    with Loopback(speaker(), raw=raw) as server:
        model = HttpModel("speaker", server=Server(base_url=server.url, timeout=1, retries=1, backoff=0.01))
        found = [model.complete([request("#_")], GREEDY)[0] for _ in range(2)]
        assert [one.usage["requests"] for one in found] == [2, 1]


def test_connections_are_kept_and_a_lost_one_is_replaced() -> None:
    with Loopback(speaker()) as server:
        model = HttpModel("speaker", server=Server(base_url=server.url, timeout=5, retries=0))
        for _ in range(3):
            model.complete([request("#_")], GREEDY)
        assert server._server is not None and len(server._server.connections) == 1
        server.stop()
        server.start()
        assert model.complete([request("#_")], GREEDY)[0].usage["requests"] == 1


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [True, False])
def test_the_decoded_size_of_a_body_is_bounded(packed: bool, status: int) -> None:
    piece = gzip.compress(b" " * 2**26, 1) if packed else b" " * 2**26

    def raw(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if packed:
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(piece)

    with Loopback(speaker(), raw=raw) as server:
        ask_nothing = HttpModel("speaker", server=Server(base_url=server.url, retries=3, backoff=0.01))
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="4,203,520 bytes"):
                ask_nothing.complete([request("#_")], GREEDY)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 20 * 2**20, "64 MiB were sent"
        assert len(server.log) == 1, "a size that cannot be an answer's is no passing failure"


def test_gzip_is_read_and_any_other_encoding_or_a_cut_one_is_none() -> None:
    packed = gzip.compress(ANSWER)
    with Loopback(speaker(), raw=sender(packed, {"Content-Encoding": "gzip"})) as server:
        assert ask(server)[0].answer == '{"action": "UP"}'
        assert server.log[0].headers["accept-encoding"] == "gzip"
    for body, encoding, said in (
        (packed[:-9], "gzip", "cut off"),
        (ANSWER, "gzip", "not valid gzip"),
        (ANSWER, "br", "'br'"),
    ):
        with (
            Loopback(speaker(), raw=sender(body, {"Content-Encoding": encoding})) as server,
            pytest.raises(ConnectionError, match=said),
        ):
            ask(server)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    with Loopback(speaker()) as other:
        target = other.url.replace("http://", "http://me:hunter2@") + "/chat/completions?key=hunter2"
        with Loopback(speaker(), raw=sender(b"", {"Location": target}, status)) as server:
            with pytest.raises(ValueError, match=rf"{other.url}/chat/completions .*{status}") as caught:
                ask(server, retries=3)
            assert len(server.log) == 1
        assert "hunter2" not in str(caught.value)
        assert not other.log, "another server's answer must not become the model's"


def test_only_the_headers_of_the_study_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "of-somebody-else")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: of-somebody-else")
    sent = {"accept", "accept-encoding", "authorization", "content-length", "content-type", "host", "user-agent"}
    with Loopback(speaker()) as server:
        ask(server)
        assert set(server.log[-1].headers) - {"connection"} == sent | {"x-client-request-id"}
        assert "of-somebody-else" not in str(server.log[-1].headers)


def test_no_cookie_goes_from_one_answer_to_the_next_request() -> None:
    with Loopback(speaker(), raw=sender(ANSWER, {"Set-Cookie": "who=me"})) as server:
        model = HttpModel("speaker", server=Server(base_url=server.url, timeout=5, retries=0))
        for _ in range(2):
            model.complete([request("#_")], GREEDY)
        assert "cookie" not in server.log[-1].headers
