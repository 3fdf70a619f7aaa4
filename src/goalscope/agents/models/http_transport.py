"""Requests to an OpenAI-compatible server: paced, retried with jitter, and with explained errors without keys.

A response must arrive completely before its deadline, has a limited size, and comes from the exact address that was
requested.
"""

import json
import os
import socket
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

from goalscope._ground.extras import lacking
from goalscope._ground.progress import StoppedError
from goalscope._ground.rng import uniform
from goalscope._ground.version import __version__
from goalscope.agents.models.http_budget import CallKey, ExchangeError
from goalscope.agents.models.http_errors import (
    LONGEST_TEXT,
    GarbledError,
    PassingError,
    Response,
    check_body,
    explain,
    read_json_body,
    scrub,
)
from goalscope.agents.models.http_keys import hide, hide_in
from goalscope.agents.models.http_settings import Server
from goalscope.agents.models.http_watch import ServerWatch

Answer = TypeVar("Answer")

_CHUNK: Final = 65_536
_LONGEST: Final = 1e8  # seconds; longest timeout that system clocks accept
_LONGEST_WAIT: Final = 60.0  # seconds; longest backoff
_GZIP: Final = 31  # zlib's name for a gzip stream
_LOOK: Final = 10.0  # seconds; timeout of an information page
_LARGEST_PAGE: Final = 2**20  # bytes of an information page


class RequestPace:
    """Release requests one by one at even intervals; safe to use from several threads."""

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._space = 60.0 / per_minute if per_minute else 0.0
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = clock()

    def wait(self) -> None:
        """Wait until this request may be sent."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._space
        if turn > now:
            self._sleep(turn - now)

    def hold(self, seconds: float) -> None:
        """Release no request for some seconds, because the server asked for it."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Client:
    """Send requests to one server over connections that are kept open; safe to use from several threads.

    Args:
        server: the settings of the server.
        stopped: an event after which nothing is requested, or None.
    """

    def __init__(self, server: Server, stopped: threading.Event | None = None) -> None:
        self._server, self._stopped = server, stopped or threading.Event()
        self._pace = RequestPace(server.requests_per_minute)
        self._lock = threading.Lock()
        self._connect: Callable[[], _Connection] | None = None
        self._free: list[_Connection] = []
        self._key = ""
        probe = weakref.WeakMethod(self._answers_at_all)  # so that the watch does not keep its client alive
        self.watch = ServerWatch(server, lambda: (method := probe()) is not None and method())
        # Connections are closed together with their owner, not by the garbage collector.
        weakref.finalize(self, _close_all, self._free)

    def ask(
        self,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], Answer],
        *,
        request: Callable[[], AbstractContextManager[None]],
        call: CallKey,
        most: int,
    ) -> Answer:
        """Repeat a request until it is answered.

        Args:
            body: the whole request, including ``messages`` or ``prompt``.
            read: parses a response, and raises a `GarbledError` if it is malformed.
            request: context manager around each request; an error on entering it ends the retries.
            call: (root seed, episode id, step, attempt), which determines the random waits and, for the server, the
                request.
            most: maximum bytes of a response.

        Raises:
            RejectedError: the server does not accept the request.
            PermissionError: the key is missing or not accepted, or its quota is used up.
            ValueError: the model or address does not exist, the server redirects, or its response is too large.
            ConnectionError: there is no answer within the retries or the patience of the study, or the server has
                stopped.
            StoppedError: the event `stopped` was set before the request.
        """
        with self.watch.exchange() as stops:
            return self._ask(body, read, request, call, most, stops)

    def _ask(
        self,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], Answer],
        request: Callable[[], AbstractContextManager[None]],
        call: CallKey,
        most: int,
        stops: int,
    ) -> Answer:
        """Repeat a request until it is answered; for ``stops`` see `ServerWatch.exchange`."""
        connect = self._prepared()
        began = time.monotonic()
        failed = 0
        while True:
            self._pace.wait()
            if self._stopped.is_set():
                raise StoppedError
            try:
                with request():
                    return read(self._exchange(connect, body, call, most))
            except (PassingError, ExchangeError, GarbledError) as error:
                problem, requested_wait = str(error), getattr(error, "seconds", 0.0)
            # The wait is uniform between 0 and a limit that doubles with each failure (full jitter).
            if self.watch.stops > stops or self.watch.check():
                raise ConnectionError(
                    scrub(
                        f"{self.watch.reason}. All answers so far are stored: check the server, or raise "
                        "server.silence if its answers take longer; then run the same command again to continue",
                        self._key,
                        2 * LONGEST_TEXT,
                    )
                ) from None
            limit = min(_LONGEST_WAIT, self._server.backoff * 2.0 ** min(failed, 30))
            wait = requested_wait + limit * uniform(call[0], "retry", *call[1:], failed)
            failed += 1
            spent = time.monotonic() - began
            if failed > self._server.retries or spent + wait > self._server.patience:
                raise ConnectionError(
                    scrub(
                        f"{self._server.base_url} did not answer within server.retries ({self._server.retries}) and "
                        f"server.patience ({self._server.patience:g} s): {failed} requests failed in {spent:.0f} s, "
                        f"the last one: {problem}. All answers so far are stored: check that the server runs "
                        "at this address, or raise these two settings; then run the same command again to continue",
                        self._key,
                        2 * LONGEST_TEXT,
                    )
                ) from None
            if requested_wait:
                self._pace.hold(requested_wait)
            else:
                wait = min(wait, self.watch.silence_left or wait)  # so that a stopped server is noticed in time
            self._stopped.wait(wait)

    def _prepared(self) -> Callable[[], "_Connection"]:
        """Return the function that opens a connection; the key is read from the environment only once."""
        with self._lock:
            if self._connect is None:
                variable = self._server.key_variable
                if variable is not None:
                    self._key = os.environ.get(variable, "").strip()
                    if not self._key:
                        raise PermissionError(
                            f"the key for {self._server.base_url} must be in the environment variable {variable}, "
                            "which is empty or not set: export it, or name another variable as server.key_env"
                        )
                try:
                    from openai import DefaultHttpxClient
                except ImportError as error:
                    raise lacking("HTTP models need openai", "api", error) from error
                kind = next(kind for kind in DefaultHttpxClient.__mro__ if kind.__name__ == "Client")
                web = sys.modules[kind.__module__.partition(".")[0]]  # httpx, or the library that replaced it
                certificates = _certificates(web)
                self._connect = lambda: _Connection(
                    DefaultHttpxClient(follow_redirects=False, verify=certificates), web
                )
            return self._connect

    def _exchange(
        self, connect: Callable[[], "_Connection"], body: Mapping[str, Any], call: CallKey, most: int
    ) -> Mapping[str, Any]:
        url = f"{self._server.base_url.rstrip('/')}/{'completions' if 'prompt' in body else 'chat/completions'}"
        headers = self._headers("-".join(str(part) for part in call[1:]))
        timeout = min(self._server.timeout, _LONGEST)
        reply = self._send(connect, "POST", url, json.dumps(body).encode(), headers, most, timeout, self.watch)
        if not 200 <= reply.status < 300:
            explain(reply, self._server, self._key)
        document = read_json_body(reply.content)
        if not isinstance(document, dict):
            raise GarbledError("the body of a response is not a JSON object")
        hide_in(document, self._key)
        check_body(document, self._server, self._key)
        return document

    def look(self, path: str) -> tuple[Mapping[str, Any], str] | None:
        """Return an information page of the server and its header ``Server``; None if the page cannot be reached.

        The page is requested once and does not count as a call, since nothing is generated. A missing page is returned
        as empty.

        Args:
            path: path of the page, relative to the server's root if it begins with ``/``, else relative to ``/v1``.

        Raises:
            PermissionError: the key is missing.
        """
        connect = self._prepared()
        base = self._server.base_url.rstrip("/")
        url = f"{base.removesuffix('/v1')}{path}" if path.startswith("/") else f"{base}/{path}"
        try:
            reply = self._send(connect, "GET", url, None, self._headers("look"), _LARGEST_PAGE, self._look)
        except ExchangeError:
            return None
        except ValueError:
            return {}, ""  # larger than any real information page
        try:
            document = read_json_body(reply.content) if reply.status == 200 else {}
        except GarbledError:
            document = {}
        hide_in(document, self._key)
        return document if isinstance(document, dict) else {}, hide(reply.headers.get("server", ""), self._key)

    @property
    def _look(self) -> float:
        """Seconds within which an information page must be complete."""
        return min(self._server.timeout, self._server.silence, _LOOK)

    def _answers_at_all(self) -> bool:
        """Return whether the server returns anything but a server error for its page of models."""
        url = f"{self._server.base_url.rstrip('/')}/models"
        connection = self._prepared()()  # a separate connection, which the watch does not close
        try:
            reply = connection.send("GET", url, None, self._headers("look"), _LARGEST_PAGE, self._look)
            return reply.status < 500
        except ExchangeError:
            return False
        except ValueError:
            return True  # the page is too large, but the server does answer
        finally:
            connection.close()

    def _headers(self, request: str) -> dict[str, str]:
        """Return the complete headers of a request, which do not depend on the environment."""
        optional = {"OpenAI-Organization": self._server.organization, "OpenAI-Project": self._server.project}
        return {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {self._key or 'none'}",
            "Content-Type": "application/json",
            "User-Agent": f"goalscope/{__version__}",
            "X-Client-Request-Id": request,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _send(self, connect: Callable[[], "_Connection"], *request: Any) -> Response:
        """Send a request over a free or a new connection; see `_Connection.send`."""
        with self._lock:
            connection = self._free.pop() if self._free else None
        connection = connection or connect()
        try:
            reply = connection.send(*request)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._free.append(connection)
        return reply


@lru_cache(maxsize=1)
def _certificates(web: Any) -> Any:
    """Return the certificates that this machine trusts, read only once because reading is slower than a request."""
    return web.create_ssl_context()


class _Connection:
    """A client with a single connection whose socket is known, so that another thread can end a waiting read."""

    def __init__(self, client: Any, web: Any) -> None:
        self._client, self._web = client, web
        self._client.headers.clear()  # send only headers that the caller names
        self._socket: Any = None
        self._sent = False
        self._ended = ""  # why another thread ended the current request

    def close(self) -> None:
        self._client.close()

    def expire(self, reason: str) -> None:
        """End the current request; only the first reason is kept."""
        self._ended = self._ended or reason
        if self._socket is not None:
            with suppress(OSError):  # closed already
                # Shut down the socket below TLS, which wakes its reader whatever has arrived.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        most: int,
        timeout: float,
        watch: ServerWatch | None = None,
    ) -> Response:
        """Send a request and return the whole response.

        Args:
            method: HTTP method.
            url: address of the request.
            body: body of the request, or None.
            headers: headers of the request.
            most: maximum bytes of the response.
            timeout: seconds within which the response must be complete.
            watch: informed of everything that arrives; it may end the request.

        Raises:
            ExchangeError: the response is not complete.
            ValueError: the response is too large.
        """
        late = f"no complete response within {timeout:g} seconds (server.timeout)"
        self._sent, self._ended = False, ""
        self._client.cookies.clear()  # no request depends on an earlier one
        timer = threading.Timer(timeout, self.expire, [late])
        timer.daemon = True
        timer.start()
        hear = watch.hear if watch is not None else lambda: None
        try:
            # A connection that is still being opened has no socket yet that could be shut down.
            limits = self._web.Timeout(timeout, connect=min(timeout, _LONGEST if watch is None else watch.silence))
            with (
                watch.request(self) if watch is not None else nullcontext(),
                self._client.stream(
                    method, url, content=body, headers=headers, timeout=limits, extensions={"trace": self._trace}
                ) as response,
            ):
                hear()
                content = b"".join(_bounded(response, most, hear))
            reply = Response(response.status_code, dict(response.headers), content)
        except (self._web.HTTPError, OSError) as error:
            if isinstance(error, self._web.TimeoutException):
                self._ended = self._ended or late
            if not self._ended:
                text = f"{type(error).__name__}: {error}"
                raise error if isinstance(error, ExchangeError) else ExchangeError(text, sent=self._sent) from None
        finally:
            timer.cancel()
            timer.join()  # so that a late deadline cannot end the next request of this connection
        if self._ended:
            raise ExchangeError(self._ended, sent=self._sent)
        return reply

    def _trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Record the socket of a new connection, and whether anything has been sent."""
        if event.endswith("send_request_headers.started"):
            self._sent = True
        opened = details.get("return_value")
        if opened is not None and hasattr(opened, "get_extra_info"):
            self._socket = opened.get_extra_info("socket") or self._socket


def _close_all(connections: list[_Connection]) -> None:
    while connections:
        connections.pop().close()


def _bounded(response: Any, most: int, hear: Callable[[], None]) -> Iterator[bytes]:
    """Yield the decoded body of a response piece by piece, and raise an error if it grows too large.

    ``hear`` is called whenever data arrive.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise ExchangeError(f"the body of a response has the encoding {encoding[:40]!r}, which was not requested")
    decoder = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
    total = 0
    try:
        for chunk in response.iter_raw():  # undecoded data as they arrive
            hear()
            for piece in _decoded(decoder, chunk) if decoder else (chunk,):
                total += len(piece)
                if total > most:
                    raise ValueError(
                        f"the body of a response exceeds {most:,} bytes, more than any answer within max_tokens and "
                        "top_logprobs can have: check the server"
                    )
                yield piece
    except zlib.error as error:
        raise ExchangeError(f"the body of a response is not valid gzip: {error}") from None
    if decoder is not None and not decoder.eof:
        raise ExchangeError("the gzip body of a response is cut off")


def _decoded(decoder: Any, chunk: bytes) -> Iterator[bytes]:
    while chunk and not decoder.eof:
        yield decoder.decompress(chunk, _CHUNK)
        chunk = decoder.unconsumed_tail
