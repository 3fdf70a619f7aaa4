"""Requests to an OpenAI-compatible server: connections that are kept open, retries, and a watch on the server."""

import json
import os
import socket
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from goalscope._ground.extras import lacking
from goalscope._ground.progress import TALLY, StoppedError, duration
from goalscope._ground.rng import uniform
from goalscope._ground.version import __version__
from goalscope.agents.models.base import CallKey
from goalscope.agents.models.http_errors import (
    LONGEST_TEXT,
    Response,
    SilentServerError,
    check_body,
    explain,
    hide,
    hide_in,
    read_json_body,
    scrub,
)
from goalscope.agents.models.http_settings import ExchangeError, GarbledError, PassingError, Server

# Detect a server that has stopped: requests are waiting, but it sends nothing.
#
# Each request has its own deadline (`server.timeout`), which must be long because a single answer can take long. A
# stopped server can be detected much earlier, since it sends nothing on any connection. The watch of a client
# measures how long a server has sent nothing while at least one request was waiting. After `server.silence` seconds,
# it requests the page of models, which costs nothing and which a working server returns at once:
#
# * No answer: the server has stopped.
# * An answer: the server is running, but its model may hang. The watch then waits only as long as an answer can take.
#   Before the first answer this is `server.timeout`, since the weights may still be loading. Later it is the maximum
#   number of tokens of an answer times the mean time per token so far, but at most `server.timeout`.

_BEAT: Final = 1.0  # maximum seconds between two checks; less if `server.silence` is short
_LOOKS: Final = 20  # minimum number of checks within the allowed silence
_SHOWN_AFTER: Final = 0.1  # share of the allowed silence after which the progress line shows the silence


class ServerWatch:
    """Notices that a server has stopped, by the time for which it sends nothing, and ends all requests to it.

    It is safe to use from several threads.

    Args:
        server: the settings of the server.
        probe: function that requests the server's page of models, and returns whether the server answers.

    Attributes:
        stops: how often the server was found to have stopped.
        reason: why the server was last found to have stopped, as one clause.
    """

    def __init__(self, server: Server, probe: Callable[[], bool]) -> None:
        self._server, self._probe = server, probe
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._requests: set[_Connection] = set()
        self._exchanges = 0  # number of current calls; a call includes its retries and the waits in between
        self._silent_since: float | None = None
        self._heard = False  # whether anything has arrived since the last request began
        self._next_probe = 0.0
        self._watching = False
        self._tokens = self._seconds = 0.0  # totals over all answers
        self._longest_answer: float | None = None  # the longest time that an answer can take, in seconds
        self.stops = 0
        self.reason = ""

    @property
    def silence(self) -> float:
        """How many seconds the server may send nothing while requests are waiting before it is probed (the setting
        ``silence``).
        """
        return self._server.silence

    @contextmanager
    def exchange(self) -> Iterator[int]:
        """Context for one call with all its retries: while it lasts, silence of the server counts.

        Yields:
            How often the server was found to have stopped so far (`stops`), to notice if this happens during the call.
        """
        with self._lock:
            self._exchanges += 1
            stops = self.stops
        try:
            yield stops
        finally:
            with self._lock:
                self._exchanges -= 1
                if not self._exchanges:
                    self._silent_since = None  # no request is waiting for the server any more

    @contextmanager
    def request(self, request: "_Connection") -> Iterator[None]:
        """Context for one HTTP request: while it lasts, the request is ended if the server is found to have stopped."""
        with self._lock:
            self._heard = False
            if self._silent_since is None:
                self._silent_since = time.monotonic()
                self._next_probe = self._silent_since + self._server.silence
            self._requests.add(request)
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._requests.discard(request)
                # After a request that failed without receiving a byte, the server counts as silent while the client
                # waits.
                if self._heard and not self._requests:
                    self._silent_since = None

    def hear(self) -> None:
        """Record that data have just arrived from the server, so that its silence begins anew."""
        now = time.monotonic()
        with self._lock:
            self._silent_since, self._heard = now, True
            self._next_probe = now + self._server.silence

    def learn(self, tokens: float, seconds: float, most_tokens: int) -> None:
        """Record how long one answer took, to estimate how long the server may be silent while it works on the next.

        Args:
            tokens: number of tokens of the answer.
            seconds: how long it took.
            most_tokens: number of tokens that the next answer may have at most.
        """
        with self._lock:
            self._tokens += float(min(max(1.0, tokens), most_tokens))  # a server may report any number
            self._seconds += seconds
            self._longest_answer = self._seconds / self._tokens * most_tokens

    @property
    def silence_left(self) -> float:
        """Seconds until the allowed silence is over if nothing arrives; 0 once it is over."""
        with self._lock:
            since = self._silent_since
        return max(0.0, self._server.silence - (0.0 if since is None else time.monotonic() - since))

    def check(self) -> bool:
        """Test whether the server has stopped; if so, end all current requests and return True.

        The server is probed only if it has been silent for longer than allowed.
        """
        with self._checking:  # one probe at a time
            with self._lock:
                since, next_probe, longest = self._silent_since, self._next_probe, self._longest_answer
            now = time.monotonic()
            if since is None or now - since < self._server.silence:
                return False
            timeout = self._server.timeout
            may_take = max(self._server.silence, timeout if longest is None else min(timeout, longest))
            if now < next_probe and now - since < may_take:
                return False  # the server answered a probe shortly before
            answers = self._probe()
            silent = time.monotonic() - since
            with self._lock:
                if self._silent_since != since:
                    return False  # data have arrived in the meantime
                waits = answers and silent < may_take
                if waits:
                    self._next_probe = time.monotonic() + self._server.silence
                else:
                    self.stops += 1
                    self.reason = self._reason(silent, may_take if answers else None)
                    self._silent_since = None
                requests = [] if waits else list(self._requests)
            if waits:
                TALLY.tell(
                    f"{self._server.base_url} has sent nothing for {duration(silent)}, but it answers at /models: the "
                    f"run waits up to {duration(may_take)}, since an answer may take that long"
                )
                return False
            TALLY.tell(self.reason)
            for request in requests:
                request.expire(self.reason)
            return True

    def _reason(self, silent: float, may_take: float | None) -> str:
        """Return what is wrong with the server; ``may_take``: longest time of an answer, None if the server is dead."""
        page = (
            "it does not answer at /models either"
            if may_take is None
            else f"an answer can take at most {duration(may_take)} (the server does answer at /models)"
        )
        return (
            f"{self._server.base_url} has stopped answering: it has sent nothing for {duration(silent)} while requests "
            f"were waiting (server.silence: {self._server.silence:g} s), and {page}"
        )

    def _watch(self) -> None:
        """Check the server's silence repeatedly while requests are running."""
        silence, address = self._server.silence, self._server.base_url
        while True:
            time.sleep(min(_BEAT, silence / _LOOKS))
            with self._lock:
                self._watching = bool(self._requests)
                since = self._silent_since
                if not self._watching:
                    break
            is_silent = since is not None and time.monotonic() - since >= _SHOWN_AFTER * silence
            TALLY.show_silence(address, since if is_silent else None)
            self.check()
        TALLY.show_silence(address, None)


# Requests to an OpenAI-compatible server: retried with jitter, and with explained errors without keys.
#
# A response must arrive completely before its deadline, has a limited size, and comes from the exact address that
# was requested.

Answer = TypeVar("Answer")

_CHUNK: Final = 65_536
_LONGEST: Final = 1e8  # seconds; longest timeout that system clocks accept
_LONGEST_WAIT: Final = 60.0  # seconds; longest backoff
_GZIP: Final = 31  # zlib's name for a gzip stream
_LOOK: Final = 10.0  # seconds; timeout of an information page
_LARGEST_PAGE: Final = 2**20  # bytes of an information page


def check_installed() -> None:
    """Check that the package ``openai`` is installed, which requests to servers need.

    Raises:
        ImportError: it is missing; the message says how to install it.
    """
    if find_spec("openai") is None:
        raise _not_installed(ImportError("No module named 'openai'", name="openai"))


def _not_installed(error: ImportError) -> ImportError:
    return lacking("HTTP models need openai", "api", error)


class Client:
    """Sends requests to one server over connections that are kept open, with retries; safe to use from several threads.

    Args:
        server: the settings of the server.
        stopped: an event after which nothing is requested, or None.
    """

    def __init__(self, server: Server, stopped: threading.Event | None = None) -> None:
        self._server, self._stopped = server, stopped or threading.Event()
        self._held_until = 0.0  # when the next request may be made, because the server asked for a pause
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
        """Send a request, retry it until it is answered, and return the parsed response.

        Args:
            body: the whole request, including ``messages`` or ``prompt``.
            read: parses a response, and raises a `GarbledError` if it is malformed.
            request: returns a context manager around each attempt; an error on entering it ends the retries.
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
        connect, began, failed = self._prepared(), time.monotonic(), 0
        with self.watch.exchange() as stops:
            while True:
                if self._stopped.wait(max(0.0, self._held_until - time.monotonic())):
                    raise StoppedError
                try:
                    with request():
                        return read(self._exchange(connect, body, call, most))
                except (PassingError, ExchangeError, GarbledError) as error:
                    problem, requested_wait = str(error), getattr(error, "seconds", 0.0)
                    answered, readable = not isinstance(error, ExchangeError), not isinstance(error, GarbledError)
                    connected = getattr(error, "connected", True)
                if self.watch.stops > stops or self.watch.check():
                    raise self._given_up(
                        self.watch.reason, "check the server, or raise server.silence if its answers take longer"
                    )
                # The wait is uniform between 0 and a limit that doubles with each failure (full jitter).
                limit = min(_LONGEST_WAIT, self._server.backoff * 2.0 ** min(failed, 30))
                wait = requested_wait + limit * uniform(call[0], "retry", *call[1:], failed)
                failed += 1
                spent = time.monotonic() - began
                if failed > self._server.retries or spent + wait > self._server.patience:
                    if not connected:
                        raise self._unreachable(f"{problem} ({failed} requests failed in {spent:.0f} s)")
                    raise self._given_up(
                        f"{self._server.base_url} {'gave no usable answer' if answered else 'did not answer'} within "
                        f"server.retries ({self._server.retries}) and server.patience ({self._server.patience:g} s): "
                        f"{failed} requests failed in {spent:.0f} s, the last one: {problem}",
                        "check the server, or raise server.timeout, server.retries or server.patience with --set"
                        if readable
                        else "check that server.base_url is the address of an OpenAI-compatible server, and look at "
                        "what it sends",
                        problem,
                    )
                if requested_wait:
                    self._held_until = max(self._held_until, time.monotonic() + requested_wait)
                else:
                    wait = min(wait, self.watch.silence_left or wait)  # so that a stopped server is noticed in time
                self._stopped.wait(wait)

    def _given_up(self, text: str, advice: str, problem: str = "") -> SilentServerError:
        text, problem = (scrub(part, self._key, 2 * LONGEST_TEXT) for part in (text, problem or text))
        return SilentServerError(
            f"{text}. All answers so far are stored: {advice}; then run the same command again to continue",
            problem=problem,
            advice=advice,
        )

    def _unreachable(self, problem: str) -> SilentServerError:
        """Return the error for an address to which no connection can be opened."""
        text = f"{self._server.base_url} cannot be reached: {problem}"
        return self._given_up(text, "start the server, or correct its address")

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
                    raise _not_installed(error) from error
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
        """Send a request over a free or a new connection, and return the response of status 200."""
        url = f"{self._server.base_url.rstrip('/')}/{'completions' if 'prompt' in body else 'chat/completions'}"
        headers = self._headers("-".join(str(part) for part in call[1:]))
        timeout = min(self._server.timeout, _LONGEST)
        with self._lock:
            connection = self._free.pop() if self._free else None
        connection = connection or connect()
        try:
            reply = connection.send("POST", url, json.dumps(body).encode(), headers, most, timeout, self.watch)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._free.append(connection)
        if not 200 <= reply.status < 300:
            explain(reply, self._server, self._key)
        document = read_json_body(reply.content)
        if not isinstance(document, dict):
            raise GarbledError("the body of a response is not a JSON object")
        hide_in(document, self._key)
        check_body(document, self._server, self._key)
        return document

    def _page(self, path: str) -> Response | None:
        """Request an information page once; None if it is larger than any such page.

        The request does not count as a call, since nothing is generated.

        Args:
            path: path of the page, relative to the server's root if it begins with ``/``, else relative to ``/v1``.

        Raises:
            ExchangeError: there is no answer.
            PermissionError: the key is missing.
        """
        base = self._server.base_url.rstrip("/")
        url = f"{base.removesuffix('/v1')}{path}" if path.startswith("/") else f"{base}/{path}"
        connection = self._prepared()()  # a separate connection, which the watch does not close
        timeout = min(self._server.timeout, self._server.silence, _LOOK)
        try:
            return connection.send("GET", url, None, self._headers("look"), _LARGEST_PAGE, timeout)
        except ValueError:
            return None
        finally:
            connection.close()

    def look(self, path: str) -> tuple[Mapping[str, Any], str] | None:
        """Request an information page of the server, such as its list of models; this generates and costs nothing.

        Args:
            path: path of the page, relative to the server's root if it begins with ``/``, else relative to ``/v1``.

        Returns:
            The page, decoded from JSON, and the header ``Server``, which names the software; a missing page is returned
            as empty. None if the server does not answer.

        Raises:
            PermissionError: the key is missing.
        """
        try:
            page = self._page(path)
            document = read_json_body(page.content) if page is not None and page.status == 200 else {}
        except ExchangeError:
            return None
        except GarbledError:
            document = {}
        hide_in(document, self._key)
        software = "" if page is None else hide(page.headers.get("server", ""), self._key)
        return document if isinstance(document, dict) else {}, software

    def check_reachable(self) -> None:
        """Check that a connection to the server can be opened.

        Raises:
            SilentServerError: no connection can be opened.
            PermissionError: the key is missing.
        """
        try:
            self._page("models")
        except ExchangeError as error:
            if not error.connected:
                raise self._unreachable(str(error)) from None

    def _answers_at_all(self) -> bool:
        """Return whether the server returns anything but a server error for its page of models."""
        try:
            page = self._page("models")
        except ExchangeError:
            return False
        return page is None or page.status < 500

    def _headers(self, request: str) -> dict[str, str]:
        """Return the complete headers of a request, which do not depend on the environment."""
        return {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {self._key or 'none'}",
            "Content-Type": "application/json",
            "User-Agent": f"goalscope/{__version__}",
            "X-Client-Request-Id": request,
        }


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
                if isinstance(error, ExchangeError):
                    raise
                if isinstance(error, self._web.ConnectError):
                    raise ExchangeError(_why_not_connected(error), sent=False, connected=False) from None
                raise ExchangeError(f"{type(error).__name__}: {error}", sent=self._sent) from None
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


def _why_not_connected(error: BaseException) -> str:
    """Return why no connection could be opened, given the error of the HTTP library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused, since no server listens at this port"
        if isinstance(cause, socket.gaierror):
            return f"there is no such host ({cause.strerror})"
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}"


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
