"""Requests to an OpenAI-compatible server: paced, retried with jitter, counted, their errors explained and scrubbed."""

import json
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from goalscope.agents.models.http_settings import Server
from goalscope.extras import lacking
from goalscope.rng import uniform

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
        self._client: Any = None
        self._key = ""

    def ask(
        self,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], Answer],
        *,
        before: Callable[[], None],
        call: tuple[int, str, int, int],
    ) -> Answer:
        """Make a request until it is answered.

        Args:
            body: the whole request, ``messages`` or ``prompt`` included.
            read: makes the answer of a response; raises `GarbledError` where it is none.
            before: called before each request; what it raises ends the asking.
            call: (root seed, episode id, step, attempt); it names the waits and, for its server, the request.

        Raises:
            RejectedError: the server does not accept the request.
            PermissionError: the key is missing or not accepted, or its quota is used up.
            ValueError: there is no such model or address.
            ConnectionError: no answer within the retries or the patience of the study.
        """
        openai = library()
        client = self._connected(openai)
        began = time.monotonic()
        failed = 0
        while True:
            self._pace.wait()
            before()
            wanted = 0.0
            try:
                return read(self._send(client, body, call))
            except openai.APIStatusError as error:
                problem = self._explained(error)
                wanted = _retry_after(error.response.headers)
            except openai.APITimeoutError:
                problem = f"no response within {self._server.timeout:g} seconds (server.timeout)"
            except openai.APIConnectionError as error:
                problem = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"
            except GarbledError as error:
                problem = str(error)
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

    def _send(self, client: Any, body: Mapping[str, Any], call: tuple[int, str, int, int]) -> Mapping[str, Any]:
        rest = dict(body)
        named = {name: rest.pop(name) for name in ("model", "messages", "prompt") if name in rest}
        headers = {"X-Client-Request-Id": "-".join(str(part) for part in call[1:])}
        endpoint = client.completions if "prompt" in named else client.chat.completions
        response = endpoint.with_raw_response.create(**named, extra_body=rest, extra_headers=headers)
        try:
            found = json.loads(response.http_response.content)
        except (ValueError, RecursionError):
            raise GarbledError("the body of a response is no JSON") from None
        if not isinstance(found, dict):
            raise GarbledError("the body of a response is no JSON object")
        return found

    def _connected(self, openai: Any) -> Any:
        with self._lock:
            if self._client is None:
                variable = self._server.key_variable
                if variable is not None:
                    self._key = os.environ.get(variable, "").strip()
                    if not self._key:
                        raise PermissionError(
                            f"the key of {self._server.base_url} must stand in the environment variable {variable}, "
                            "which is empty or not set: export it, or name another one as server.key_env"
                        )
                self._client = openai.OpenAI(
                    api_key=self._key or "none",
                    base_url=self._server.base_url,
                    timeout=self._server.timeout,
                    max_retries=0,  # ours are counted
                )
                # Connections end with their owner, not whenever the garbage collector comes by.
                weakref.finalize(self, self._client.close)
            return self._client

    def _explained(self, error: Any) -> str:
        """Return what passes; raise what does not, with what to do about it."""
        status, said = int(error.status_code), self._said(error)
        where = self.scrub(self._server.base_url)
        document = error.body if isinstance(error.body, dict) else {}
        if status == 429 and document.get("code") == "insufficient_quota":
            raise PermissionError(f"the key must have quota left at {where}, the server says: {said}") from None
        if status in _PASSING or status >= 500:
            return f"status {status}: {said}"
        if status in (401, 403):
            variable = self._server.key_variable
            held = f"the one in {variable} is not" if variable else "none was sent: name its variable as server.key_env"
            raise PermissionError(
                f"{where} must accept the key, {held} (status {status}); check the key and what it may use. The server "
                f"says: {said}"
            ) from None
        if status == 404:
            raise ValueError(
                f"model and server.base_url must exist, {where} says: {said} (status 404). Check the model's name with "
                "the list at /models, and that base_url ends where the server wants it, mostly in /v1"
                + ("; a server without a completions endpoint needs mode chat" * (self._server.mode == "completions"))
            ) from None
        raise RejectedError(f"{said} (status {status})", str(document.get("param") or "")) from None

    def _said(self, error: Any) -> str:
        document = error.body if isinstance(error.body, dict) else {}
        said = document.get("message") or document.get("detail") or getattr(error, "message", "") or error
        text = self.scrub(str(said))
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."

    def _jitter(self, call: tuple[int, str, int, int], failed: int) -> float:
        """Return a wait drawn evenly from 0 to a limit that doubles (full jitter)."""
        most = min(_LONGEST_WAIT, self._server.backoff * 2.0 ** min(failed, 30))
        return most * uniform(call[0], "retry", *call[1:], failed)


def library() -> Any:
    """Return the openai package.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        import openai
    except ImportError as error:
        raise lacking("HTTP models need openai", "api", error) from error
    return openai


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
