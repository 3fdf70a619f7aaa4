"""Twenty-five kinds of faults of a server, each in place of one answer; all of them pass if the request is made again.

A kind is a function that is given the handler of the request and the answer that should have gone out. It writes what
it likes. `Mixed` draws among them with a probability, by the number of the request.
"""

import gzip
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from goalscope._ground.rng import uniform

Fault = Callable[[BaseHTTPRequestHandler, bytes], None]
LATE: Final = 5.0
"""Seconds after which what is late arrives; clients wait for less."""


def _send(
    handler: BaseHTTPRequestHandler,
    body: bytes,
    status: int = 200,
    *,
    missing: int = 0,
    headers: Mapping[str, str] | None = None,
) -> None:
    handler.send_response(status)
    named = dict(headers or {})
    if "Transfer-Encoding" not in named:
        handler.send_header("Content-Length", str(len(body) + missing))
    for name, value in named.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()
    handler.close_connection = True


def _status(number: int, wait: str = "") -> Fault:
    body = json.dumps({"error": {"message": "not now"}}).encode()
    headers = {"Retry-After": wait} if wait else {}
    return lambda handler, answer: _send(handler, body, number, headers=headers)


def _encoded(body: Callable[[bytes], bytes], encoding: str) -> Fault:
    return lambda handler, answer: _send(handler, body(answer), headers={"Content-Encoding": encoding})


def _said(change: Callable[[dict[str, Any]], Any]) -> Fault:
    """An answer whose JSON is changed: what the function returns goes out in its place."""

    def fault(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
        _send(handler, json.dumps(change(json.loads(answer))).encode())

    return fault


def _reset(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def _closed(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    handler.close_connection = True


def _late(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    time.sleep(LATE)
    _send(handler, answer)


def _drip(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    """Each byte comes in time, all of them do not."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(answer)))
    handler.end_headers()
    for place in range(len(answer)):
        handler.wfile.write(answer[place : place + 1])
        handler.wfile.flush()
        time.sleep(LATE / 20)


def _chunks_cut(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    half = answer[: len(answer) // 2]
    _send(handler, b"%x\r\n%s\r\n" % (len(half), half), headers={"Transfer-Encoding": "chunked"})


def _no_status(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n\r\n")
    handler.close_connection = True


def _headers_cut(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: appl")
    handler.close_connection = True


def _date(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    _send(handler, b"{}", 429, headers={"Retry-After": format_datetime(datetime.now(UTC), usegmt=True)})


FAULTS: Final[Mapping[str, Fault]] = {
    "status 500": _status(500),
    "status 502, a page of a proxy": lambda handler, answer: _send(handler, b"<html>Bad Gateway</html>", 502),
    "status 503 with Retry-After": _status(503, "0.02"),
    "status 504": _status(504),
    "status 408": _status(408),
    "status 409": _status(409),
    "status 425": _status(425),
    "status 429": _status(429),
    "status 429, Retry-After in seconds": _status(429, "0.02"),
    "status 429, Retry-After as a date": _date,
    "connection reset": _reset,
    "connection closed without a byte": _closed,
    "answer after the deadline": _late,
    "answer byte by byte past the deadline": _drip,
    "body shorter than its length": lambda handler, answer: _send(handler, answer[:-9], missing=9),
    "chunked body without its end": _chunks_cut,
    "header lines cut": _headers_cut,
    "no HTTP at all": _no_status,
    "gzip that is cut": _encoded(lambda answer: gzip.compress(answer)[:-9], "gzip"),
    "gzip that is none": _encoded(lambda answer: answer, "gzip"),
    "an encoding that was not asked for": _encoded(lambda answer: answer, "br"),
    "status 200, a page": lambda handler, answer: _send(handler, b"<html>\x00 busy</html>"),
    "status 200, no body": lambda handler, answer: _send(handler, b""),
    "JSON without choices": _said(lambda body: {"id": body["id"], "choices": []}),
    "a choice without text": _said(lambda body: {**body, "choices": [{"index": 0, "finish_reason": "stop"}]}),
}
CHARGED: Final = frozenset(name for name in FAULTS if not name.startswith("status") or "200" in name)
"""Those after which the server may have charged for an answer: it was sent, or lost on its way."""


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Faults of all kinds, drawn by the number of a request.

    Attributes:
        share: probability of one.
        seed: which draw.
        kinds: which of `FAULTS`; all of them by default.
    """

    share: float = 0.2
    seed: int = 0
    kinds: tuple[str, ...] = tuple(FAULTS)

    def draw(self, number: int) -> str | None:
        """Return the kind of fault of a request, None for an answer."""
        if uniform(self.seed, "mixed", number) >= self.share:
            return None
        return self.kinds[int(uniform(self.seed, "kind", number) * len(self.kinds))]
