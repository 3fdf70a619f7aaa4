"""One exchange with a server: whole before its deadline, of a bounded size, from the very address that was asked."""

import json
import socket
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from goalscope.extras import lacking

_CHUNK: Final = 65_536
_LONGEST: Final = 1e8  # seconds; more than a system's clocks take is for ever
_GZIP: Final = 31  # zlib's name for a gzip stream


class ExchangeError(ConnectionError):
    """A request without an answer; ``sent`` tells whether anything of it can have reached the server."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class OversizedError(ValueError):
    """A body that is larger than any answer to the request can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server sent back.

    Attributes:
        status: the status of HTTP.
        headers: its headers, names in lower case.
        content: the decoded body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes


class Lines:
    """Connections to one server, each used by one request at a time; safe to use from several threads.

    No redirect is followed. Nothing is added to the headers that are given but what HTTP itself needs.

    Args:
        timeout: seconds in which a response must be complete, from the first attempt to connect.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = min(timeout, _LONGEST)
        self._client = library().DefaultHttpxClient
        kind = next(kind for kind in self._client.__mro__ if kind.__name__ == "Client")
        self._web = sys.modules[kind.__module__.partition(".")[0]]  # httpx, or what took its place
        self._certificates = self._web.create_ssl_context()  # read once: it takes longer than a request
        self._free: list[_Line] = []
        self._lock = threading.Lock()

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], most: int) -> Reply:
        """Send a body as JSON and return the whole response.

        Args:
            url: the address.
            body: plain values.
            headers: all headers but those of the body.
            most: most bytes of the decoded response.

        Raises:
            ExchangeError: no whole response before the deadline.
            OversizedError: the response is larger.
        """
        with self._lock:
            line = self._free.pop() if self._free else None
        if line is None:
            line = _Line(self._client(follow_redirects=False, verify=self._certificates), self._web)
        try:
            reply = line.post(url, json.dumps(body).encode(), headers, most, self._timeout)
        except BaseException:
            line.close()
            raise
        with self._lock:
            self._free.append(line)
        return reply

    def close(self) -> None:
        """Close the connections that no request uses."""
        with self._lock:
            lines, self._free = self._free, []
        for line in lines:
            line.close()


class _Line:
    """A client with a single connection, whose socket is known: whoever waits for it can be woken at the deadline."""

    def __init__(self, client: Any, web: Any) -> None:
        self._client, self._web = client, web
        self._client.headers.clear()  # nothing is sent that the caller does not name
        self._socket: Any = None
        self._sent = False

    def close(self) -> None:
        self._client.close()

    def post(self, url: str, body: bytes, headers: Mapping[str, str], most: int, timeout: float) -> Reply:
        late = threading.Event()

        def expire() -> None:
            late.set()
            held = self._socket
            if held is not None:
                try:
                    # Of the socket below TLS: whoever reads from it is woken, whatever has arrived.
                    socket.socket.shutdown(held, socket.SHUT_RDWR)
                except OSError:
                    return  # closed already

        self._sent = False
        self._client.cookies.clear()  # no request depends on an earlier one
        watch = threading.Timer(timeout, expire)
        watch.daemon = True
        watch.start()
        try:
            with self._client.stream(
                "POST",
                url,
                content=body,
                headers={**headers, "Content-Type": "application/json", "Accept-Encoding": "gzip"},
                timeout=timeout,
                extensions={"trace": self._trace},
            ) as response:
                content = b"".join(_bounded(response, most))
            reply = Reply(status=response.status_code, headers=dict(response.headers), content=content)
        except (self._web.HTTPError, OSError) as error:
            if late.is_set() or isinstance(error, self._web.TimeoutException):
                raise self._late(timeout) from None
            if isinstance(error, ExchangeError):
                raise
            raise ExchangeError(f"{type(error).__name__}: {error}", sent=self._sent) from None
        finally:
            watch.cancel()
            watch.join()  # a deadline that comes now must not meet the next request of this line
        if late.is_set():
            raise self._late(timeout)
        return reply

    def _late(self, timeout: float) -> ExchangeError:
        return ExchangeError(f"no complete response within {timeout:g} seconds (server.timeout)", sent=self._sent)

    def _trace(self, event: str, found: Mapping[str, Any]) -> None:
        """Take note of the socket of a new connection, and of when it is first written to."""
        if event.endswith("send_request_headers.started"):
            self._sent = True
        opened = found.get("return_value")
        if opened is not None and hasattr(opened, "get_extra_info"):
            self._socket = opened.get_extra_info("socket") or self._socket


def _bounded(response: Any, most: int) -> Iterator[bytes]:
    """Yield the decoded body of a response piece by piece, and stop where it grows too large."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise ExchangeError(
            f"the body of a response is encoded as {encoding[:40]!r}, which was not asked for", sent=True
        )
    decoder = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
    total = 0
    try:
        for chunk in response.iter_raw(_CHUNK):
            for piece in _decoded(decoder, chunk) if decoder else (chunk,):
                total += len(piece)
                if total > most:
                    raise OversizedError(f"the body of a response exceeds {most:,} bytes")
                yield piece
    except zlib.error as error:
        raise ExchangeError(f"the body of a response is no gzip: {error}", sent=True) from None
    if decoder is not None and not decoder.eof:
        raise ExchangeError("the gzip body of a response is cut off", sent=True)


def _decoded(decoder: Any, chunk: bytes) -> Iterator[bytes]:
    while chunk and not decoder.eof:
        yield decoder.decompress(chunk, _CHUNK)
        chunk = decoder.unconsumed_tail


def library() -> Any:
    """Return the openai package, whose HTTP client is used.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        import openai
    except ImportError as error:
        raise lacking("HTTP models need openai", "api", error) from error
    return openai
