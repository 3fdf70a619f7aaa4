"""Requests to an OpenAI-compatible server: paced, retried with jitter, counted, their errors explained and scrubbed."""

import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from goalscope import __version__
from goalscope.models.http_settings import Server
from goalscope.models.http_transport import ExchangeError, Lines, OversizedError, Reply
from goalscope.rng import uniform
from goalscope.untrusted import UntrustedError, decode_json

Answer = TypeVar("Answer")

_LONGEST_WAIT: Final = 60.0  # seconds, of the waits of our own choosing
_LONGEST_TEXT: Final = 600
_PASSING = frozenset({408, 409, 425, 429})
_SECRETS = re.compile(r"(?<=//)[^/@\s]+@|(?i:\bbearer\s+\S+)|\bsk-[A-Za-z0-9_*-]{6,}")


class GarbledError(ValueError):
    """A body that is no answer; the request is made again."""


class RejectedError(ValueError):
    """The server rejects a request as it is; ``parameter`` is the one that it names, "" where it names none."""

    def __init__(self, text: str, parameter: str) -> None:
        super().__init__(text)
        self.parameter = parameter


class _PassingError(Exception):
    """A failure that may pass; ``seconds`` is how long the server asks to wait, 0 where it does not."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.seconds = seconds


class Pace:
    """Lets requests through one by one, evenly spaced; safe to use from several threads.

    Args:
        per_minute: most requests a minute, None for no limit.
        clock, sleep: the time, in seconds.
    """

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
        """Wait for one's turn."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._space
        if turn > now:
            self._sleep(turn - now)

    def hold(self, seconds: float) -> None:
        """Let nothing through for some time: the server asked for it."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Client:
    """Makes requests to one server.

    Args:
        server: the server and how it is treated.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pace = Pace(server.requests_per_minute)
        self._lock = threading.Lock()
        self._lines: Lines | None = None
        self._key = ""

    def ask(
        self,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], Answer],
        *,
        request: Callable[[], AbstractContextManager[None]],
        call: tuple[int, str, int, int],
        most: int,
    ) -> Answer:
        """Make a request until it is answered.

        Args:
            body: the whole request, ``messages`` or ``prompt`` included.
            read: makes the answer of a response; raises `GarbledError` where it is none.
            request: encloses each request, and sees what it raises; what its own beginning raises ends the asking.
            call: (root seed, episode id, step, attempt); it names the waits and, for its server, the request.
            most: most bytes of a response.

        Raises:
            RejectedError: the server does not accept the request.
            PermissionError: the key is missing or not accepted, or its quota is used up.
            ValueError: there is no such model or address, the server redirects, or its response is too large.
            ConnectionError: no answer within the retries or the patience of the study.
        """
        lines = self._connected()
        began = time.monotonic()
        failed = 0
        while True:
            self._pace.wait()
            try:
                with request():
                    return read(self._send(lines, body, call, most))
            except _PassingError as error:
                problem, wanted = str(error), error.seconds
            except (ExchangeError, GarbledError) as error:
                problem, wanted = str(error), 0.0
            wait = wanted + self._jitter(call, failed)
            failed += 1
            spent = time.monotonic() - began
            if failed > self._server.retries or spent + wait > self._server.patience:
                raise ConnectionError(
                    self.scrub(
                        f"{self._server.base_url} must answer within server.retries ({self._server.retries}) and "
                        f"server.patience ({self._server.patience:g} s); {failed} requests failed in {spent:.0f} s, "
                        f"the last one: {problem}. What was answered is stored: see to the server, or raise them, and "
                        "run the same study on the same directory to go on"
                    )
                ) from None
            if wanted:
                self._pace.hold(wanted)
            time.sleep(wait)

    def scrub(self, text: str) -> str:
        """Return a text without keys and credentials, as it may stand in an error."""
        if self._key:
            text = text.replace(self._key, "***")
        text = _SECRETS.sub("***", text)
        return text if len(text) <= _LONGEST_TEXT * 2 else f"{text[: _LONGEST_TEXT * 2]}..."

    def _send(
        self, lines: Lines, body: Mapping[str, Any], call: tuple[int, str, int, int], most: int
    ) -> Mapping[str, Any]:
        url = f"{self._server.base_url.rstrip('/')}/{'completions' if 'prompt' in body else 'chat/completions'}"
        try:
            reply = lines.post(url, body, self._headers(call), most)
        except OversizedError as error:
            raise ValueError(
                f"a response must be no larger than any answer to its request can be, but {error} "
                f"(by max_tokens and top_logprobs), at {self.scrub(self._server.base_url)}: see to the server"
            ) from None
        if not 200 <= reply.status < 300:
            self._explain(reply)
        found = _json(reply.content)
        if not isinstance(found, dict):
            raise GarbledError("the body of a response is no JSON object")
        return found

    def _headers(self, call: tuple[int, str, int, int]) -> dict[str, str]:
        """Return the headers of a request: these and no others, whatever the environment holds."""
        named = {"OpenAI-Organization": self._server.organization, "OpenAI-Project": self._server.project}
        return {
            "Accept": "application/json",
            "Authorization": f"Bearer {self._key or 'none'}",
            "User-Agent": f"goalscope/{__version__}",
            "X-Client-Request-Id": "-".join(str(part) for part in call[1:]),
            **{name: value for name, value in named.items() if value is not None},
        }

    def _connected(self) -> Lines:
        with self._lock:
            if self._lines is None:
                variable = self._server.key_variable
                if variable is not None:
                    self._key = os.environ.get(variable, "").strip()
                    if not self._key:
                        raise PermissionError(
                            f"the key of {self._server.base_url} must stand in the environment variable {variable}, "
                            "which is empty or not set: export it, or name another one as server.key_env"
                        )
                self._lines = Lines(self._server.timeout)
                # Connections end with their owner, not whenever the garbage collector comes by.
                weakref.finalize(self, self._lines.close)
            return self._lines

    def _explain(self, reply: Reply) -> NoReturn:
        """Raise what a status that is no success means, with what to do about it."""
        status = reply.status
        where = self.scrub(self._server.base_url)
        if 300 <= status < 400:
            raise ValueError(
                f"server.base_url must be the address that answers, {where} redirects to "
                f"{self.scrub(_place(reply.headers.get('location', '')))} (status {status}), which is not followed: "
                "another server's answer must not become this one's. Name that address as server.base_url if it is "
                "the model's"
            )
        document = _error(reply.content)
        said = self._said(document, reply.content)
        if status == 429 and document.get("code") == "insufficient_quota":
            raise PermissionError(f"the key must have quota left at {where}, the server says: {said}")
        if status in _PASSING or status >= 500:
            raise _PassingError(f"status {status}: {said}", _retry_after(reply.headers))
        if status in (401, 403):
            variable = self._server.key_variable
            held = f"the one in {variable} is not" if variable else "none was sent: name its variable as server.key_env"
            raise PermissionError(
                f"{where} must accept the key, {held} (status {status}); check the key and what it may use. The server "
                f"says: {said}"
            )
        if status == 404:
            raise ValueError(
                f"model and server.base_url must exist, {where} says: {said} (status 404). Check the model's name with "
                "the list at /models, and that base_url ends where the server wants it, mostly in /v1"
                + ("; a server without a completions endpoint needs mode chat" * (self._server.mode == "completions"))
            )
        raise RejectedError(f"{said} (status {status})", str(document.get("param") or ""))

    def _said(self, document: Mapping[str, Any], content: bytes) -> str:
        said = (
            document.get("message") or document.get("detail") or content[: _LONGEST_TEXT * 4].decode("utf-8", "replace")
        )
        text = self.scrub(str(said))
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."

    def _jitter(self, call: tuple[int, str, int, int], failed: int) -> float:
        """Return a wait drawn evenly from 0 to a limit that doubles (full jitter)."""
        most = min(_LONGEST_WAIT, self._server.backoff * 2.0 ** min(failed, 30))
        return most * uniform(call[0], "retry", *call[1:], failed)


def _json(content: bytes) -> Any:
    try:
        return decode_json(content, strict=False, finite=False)  # of a paid answer only what is used is looked at
    except UntrustedError as error:
        raise GarbledError(f"the body of a response is no JSON: {error}") from None


def _error(content: bytes) -> Mapping[str, Any]:
    """Return what the body of a failure tells by name, nothing where it tells nothing so."""
    try:
        found = _json(content)
    except GarbledError:
        return {}
    inner = found.get("error", found) if isinstance(found, dict) else found
    return inner if isinstance(inner, dict) else {"message": inner} if isinstance(inner, str) else {}


def _place(location: str) -> str:
    """Return where a redirect leads, without what may be secret in it."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that cannot be read"
    shown = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    printable = "".join(sign if sign.isprintable() else "?" for sign in shown)
    return printable[:_LONGEST_TEXT] or "an address that it does not name"


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait for, 0 where it asks for none."""
    value = headers.get("retry-after")
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return seconds if 0 < seconds < math.inf else 0.0
