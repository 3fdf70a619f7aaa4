"""Requests to an OpenAI-compatible server: connections, errors without keys, and a watch on the server."""

import json
import math
import os
import re
import socket
import sys
import threading
import time
import weakref
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import escape
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

from goalscope._ground.extras import lacking
from goalscope._ground.progress import TALLY, StoppedError, duration
from goalscope._ground.rng import uniform
from goalscope._ground.untrusted import UntrustedError, decode_json, printable
from goalscope._ground.version import __version__
from goalscope.agents.models.base import CallKey
from goalscope.agents.models.http_settings import ExchangeError, GarbledError, PassingError, Server

# Remove API keys from texts that are stored or printed, in all forms in which a server may echo them.
#
# A key is hidden if it appears plain, reversed, percent-encoded, escaped for JSON or HTML, in hexadecimal digits, or
# inside base64 of any alignment (``user:key``, ``Bearer key``). In messages, the visible rest of a masked key is hidden
# as well: ``sk-...wxyz``, ``abcd****``, or its last characters alone. A key that is a short or ordinary word ("test",
# "EMPTY") is not a secret, and hiding it would destroy ordinary text, so it is left unchanged.

HIDDEN: Final = "***"
LEAST: Final = 8
"""Minimum number of characters of a key that is hidden."""

_LONGEST_WORD: Final = 20  # a key of up to so many letters, all of one case, counts as a word
_LEAST_TAIL: Final = 4  # minimum characters from the end of a key that are hidden if they stand alone
_LEAST_MASKED: Final = 2  # minimum characters from the end of a key that are hidden next to a mask
_BASE64: Final = "[A-Za-z0-9+/_-]{0,2}"  # base64 characters that mix bits of the key and of its neighbours
_MASK: Final = r"(?:[*•…]+|\.{2,}|x{3,}|X{3,}|#{2,}|[\[(<](?i:redacted|hidden|masked)[\])>])"


def is_secret(key: str) -> bool:
    """Return whether a key can be recognised in a text: it is long enough, and not an ordinary word."""
    word = key.isalpha() and (key[1:].islower() or key.isupper()) and len(key) <= _LONGEST_WORD
    return len(key) >= LEAST and not word


def hide(text: str, key: str) -> str:
    """Remove a key in all its forms from a text."""
    if not is_secret(key):
        return text
    literals, pattern = _forms(key)
    lower = text.lower()
    return pattern.sub(HIDDEN, text) if any(literal in lower for literal in literals) else text


def hide_in(document: Any, key: str) -> None:
    """Remove a key from all values of a JSON document, in place."""
    waiting = [document] if is_secret(key) and isinstance(document, dict | list) else []
    while waiting:
        item = waiting.pop()
        for place, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, str):
                item[place] = hide(value, key)
            elif isinstance(value, dict | list):
                waiting.append(value)


def hide_in_message(text: str, key: str) -> str:
    """Remove a key in all its forms from a server's message, including the visible rest of a masked key."""
    return _remains(key).sub(HIDDEN, hide(text, key)) if is_secret(key) else text


@lru_cache(maxsize=64)
def _forms(key: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return lower-case texts and the pattern of all forms of a key; every match contains one of the texts."""
    octets = key.encode("utf-8", "surrogatepass")
    plain = {key, key[::-1], json.dumps(key)[1:-1], json.dumps(json.dumps(key))[3:-3], escape(key), repr(key)[1:-1]}
    either_case = {quote(octets, safe=""), quote(octets), octets.hex(), octets[::-1].hex()} - plain
    cores = set[str]()
    for encode in (b64encode, urlsafe_b64encode):
        for offset in range(3):
            # Only characters whose bits all belong to the key, since the bytes before and after it are unknown.
            begin, end = -(-8 * offset // 6), 8 * (offset + len(octets)) // 6
            cores.add(encode(bytes(offset) + octets + bytes(2))[begin:end].decode())
    alternatives = [re.escape(form) for form in sorted(plain, key=len, reverse=True)]
    alternatives += [f"(?i:{re.escape(form)})" for form in sorted(either_case)]
    alternatives += [f"{_BASE64}{re.escape(core)}{_BASE64}=*" for core in sorted(cores)]
    literals = tuple(sorted({form.lower() for form in (*plain, *either_case, *cores)}))
    return literals, re.compile("|".join(alternatives))


@lru_cache(maxsize=64)
def _remains(key: str) -> re.Pattern[str]:
    """Return the pattern of a key's ends next to a mask, of its beginning next to a mask, and of its end alone."""
    ends = [key[-size:] for size in range(len(key) - 1, _LEAST_MASKED - 1, -1)]
    heads, tails = (_any_of(texts) for texts in ([key[: len(end)] for end in ends], ends))
    alternatives = [
        rf"(?:{heads})?{_MASK}\s?(?:{tails})(?!\w)",
        rf"(?<!\w)(?:{heads}){_MASK}[\w-]*",
        rf"(?i:\bend(?:s|ing)? (?:in|with)\W{{1,3}})(?:{tails})(?!\w)",
    ]
    if len(key) > 2 * LEAST:
        alternatives.append(rf"{re.escape(key[:LEAST])}[\w-]*")
    if telling := [end for end in ends if len(end) >= _LEAST_TAIL and _is_telling(end)]:
        alternatives.append(rf"(?<!\w)(?:{_any_of(telling)})(?!\w)")
    return re.compile("|".join(alternatives))


def _is_telling(end: str) -> bool:
    """Return whether the end of a key is neither a word nor a number, so that it can be recognised."""
    letters = "".join(filter(str.isalpha, end))
    mixed = not (letters[1:].islower() or letters.isupper() or len(letters) < 2)
    return mixed or (bool(letters) and any(map(str.isdigit, end)))


def _any_of(texts: Sequence[str]) -> str:
    return "|".join(map(re.escape, dict.fromkeys(texts)))


# Errors of requests to a server, each one sentence with advice and without secrets.

LONGEST_TEXT: Final = 600
_MOST_READ: Final = 4  # a message is read up to this multiple of the longest text that an error may show
_PASSING = frozenset({408, 409, 425, 429})
_TURNED_AWAY = _PASSING | {503}
"""Statuses of requests that the server turned away before it generated anything."""
_FILTERED = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
"""Codes (in lower case) of requests that a content filter stopped."""
_ENDINGS: Final[Mapping[Literal["withheld", "length", "failed"], re.Pattern[str]]] = {
    "withheld": re.compile(
        r"filter|safety|sensitive|refus|recitation|prohibited|blocklist|spii|guardrail|toxic|moderation|policy"
    ),
    "length": re.compile(r"length|max\w*_tokens|(token|context|error)_limit|context_window"),
    "failed": re.compile(r"error|abort|cancel|fail|insufficient|time_?d?_?out|overload|interrupt"),
}
"""How a reply ended -> what stands in the finish reasons (in lower case) of servers that say so, in order.

Each server has words of its own (``content_filter``, ``RECITATION``, ``ERROR_TOXIC``; ``model_length``, ``MAX_TOKENS``;
``insufficient_system_resource``, ``network_error``, ``USER_CANCEL``), and new ones are built from the same parts.
"""
_LONGEST_REASON: Final = 80
_SECRETS = re.compile(r"(?<=//)[^/@\s]+@|(?i:\bbearer\s+\S+)|\bsk-[\w*.…•-]{6,}")


class RejectedError(ValueError):
    """The server rejects a request as it stands; ``parameter`` is the parameter that the server names, or ""."""

    def __init__(self, text: str, parameter: str) -> None:
        super().__init__(text)
        self.parameter = parameter

    def named(self, sent: Iterable[str]) -> str | None:
        """Return the parameter, among those sent, that the server rejects; None if its message names none of them."""
        sent = list(sent)
        if self.parameter in sent:
            return self.parameter
        names = [name for name in sent if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(self))]
        return max(names, key=len) if names else None


class WithheldError(ValueError):
    """The server withholds an answer, by a failure status or an error object; the error quotes its words."""


class MissingError(ValueError):
    """The server does not have the requested model or address."""


class SilentServerError(ConnectionError):
    """A server gave no answer, however often it was asked.

    Attributes:
        problem: what happened to the last request.
        advice: what helps, as an instruction.
    """

    def __init__(self, text: str, *, problem: str = "", advice: str = "") -> None:
        super().__init__(text)
        self.problem, self.advice = problem, advice


class Response(NamedTuple):
    """An HTTP response as it was received."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes  # decoded


def explain(response: Response, server: Server, key: str) -> NoReturn:
    """Raise the error for a failure status, with advice."""
    status, address = response.status, server.base_url
    if 300 <= status < 400:
        raise ValueError(
            f"server.base_url must be the address of the model itself, but {address} redirects to "
            f"{scrub(_place(response.headers.get('location', '')), key)} (status {status}). Redirects are not followed "
            "because answers of another server could be taken for those of the model. If the model is at that address, "
            "set server.base_url to it"
        )
    fields = _error(response.content)
    raw = response.content[: _MOST_READ * LONGEST_TEXT].decode("utf-8", "replace")
    raise_failure(status, fields, raw, server, key, seconds=retry_after(response.headers))


def raise_failure(
    status: int,
    fields: Mapping[str, Any],
    raw: str,
    server: Server,
    key: str,
    *,
    seconds: float = 0.0,
    within: bool = False,
) -> NoReturn:
    """Raise the error for a server's failure: a temporary failure, or an error that says what to change.

    Args:
        status: the HTTP status, or the code that replaces it inside a response of status 200.
        fields: fields of the server's error object.
        raw: the server's text, used if the error object has no message.
        server: the settings of the server.
        key: the API key, which must not appear in an error.
        seconds: the wait that the server requests.
        within: whether the error is inside a response of status 200.
    """
    address, place = server.base_url, f"error {status} in a response of status 200" if within else f"status {status}"
    message = scrub(str(fields.get("message") or fields.get("detail") or raw), key, LONGEST_TEXT)
    if status == 429 and fields.get("code") == "insufficient_quota":
        raise PermissionError(
            f"the quota of the key at {address} is used up; the server reports: {message}. Raise the quota or use "
            "another key (server.key_env)"
        )
    if status in (400, 403) and str(fields.get("code")).lower() in _FILTERED:
        raise WithheldError(message)
    if status in _PASSING or status >= 500:
        raise PassingError(f"{place}: {message}", seconds, drawn=status not in _TURNED_AWAY)
    if status in (401, 403):
        variable = server.key_variable
        problem = (
            f"it refuses the key in the environment variable {variable}"
            if variable
            else "no key was sent: name the environment variable with your key as server.key_env"
        )
        raise PermissionError(
            f"{address} must accept the key, but {problem} ({place}). Check the key and its permissions. The server "
            f"reports: {message}"
        )
    if status == 402:
        raise PermissionError(
            f"the account of the key has no credit left at {address}; the server reports: {message} ({place}). Add "
            "credit or use another key (server.key_env)"
        )
    if status == 404:
        raise MissingError(
            f"the model or the address server.base_url does not exist: {address} reports: {message} ({place}). Check "
            "the model's name against the list at /models, and that base_url ends as the server requires, mostly in /v1"
            + ("; if the server has no completions endpoint, use mode chat" * (server.mode == "completions"))
        )
    raise RejectedError(f"{message} ({place})", str(fields.get("param") or ""))


def check_body(document: Mapping[str, Any], server: Server, key: str) -> None:
    """Raise the error that a response of status 200 contains, either next to its choices or inside the first choice.

    Codes 4xx are final, except for codes of requests that come too soon. Every other error counts as temporary, also
    one without a code. If the error comes with choices, part of an answer was generated and may have been charged.
    """
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    error = document.get("error") or choice.get("error")
    if not error and document.get("object") == "error":
        error = document
    if not error and not choice:
        error = _stated(document)
    reason = str(choice.get("finish_reason")).lower()
    if not error and ending(reason) != "failed":
        return
    fields = error if isinstance(error, Mapping) else {"message": error} if isinstance(error, str) else {}
    sentence = fields.get("message") or f"the server broke off the reply (finish_reason: {reason})"
    if str(fields.get("code")).lower() in _FILTERED:
        raise WithheldError(scrub(str(sentence), key, LONGEST_TEXT))
    code = _code(fields)
    if code is None or code >= 500:
        number = "" if code is None else f" {code}"
        text = f"error{number} in a response of status 200: {scrub(str(sentence), key, LONGEST_TEXT)}"
        raise GarbledError(text) if choice else PassingError(text, 0.0, drawn=code not in _TURNED_AWAY)
    raise_failure(code, {**fields, "message": sentence}, "", server, key, within=True)


def ending(reason: object) -> Literal["withheld", "length", "failed"] | None:
    """Return what a finish reason says beyond that the reply ended: "withheld", "length" or "failed"; None for an
    ordinary end.
    """
    name = reason[:_LONGEST_REASON].lower().replace("-", "_") if isinstance(reason, str) else ""
    return next((kind for kind, pattern in _ENDINGS.items() if pattern.search(name)), None)


def _stated(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the error that a response without choices states elsewhere than in ``error``; {} if it states none."""
    inner = next((document[key] for key in ("errors", "detail") if document.get(key)), document)
    fields = inner[0] if isinstance(inner, list) else inner
    if isinstance(fields, str):
        return {**document, "message": fields}
    words = fields if isinstance(fields, Mapping) else document
    named = (words.get(key) for key in ("message", "msg", "detail", "title", "error_description"))
    sentence = next((text for text in named if isinstance(text, str) and text), None)
    return {} if sentence is None else {**document, **words, "message": sentence}


def _code(fields: Mapping[str, Any]) -> int | None:
    """Return the code of an error object as a failure status, or None if it has none."""
    for name in ("code", "status", "status_code"):
        value = fields.get(name)
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
            return number
    return None


def scrub(text: str, key: str, most: int = LONGEST_TEXT) -> str:
    """Return a text without keys and credentials, so that an error may quote it."""
    text = _SECRETS.sub(HIDDEN, hide_in_message(text[: _MOST_READ * most], key))
    return text if len(text) <= most else f"{text[:most]}..."


def read_json_body(content: bytes) -> Any:
    """Return the JSON document of a body; raise a `GarbledError` if it is malformed."""
    if content.lstrip().startswith(b"data:"):
        raise GarbledError("the server streams its answer (`data: ...`), which the request does not ask for")
    try:
        return decode_json(content, strict=False, finite=False)  # fields are checked where they are used
    except UntrustedError as error:
        raise GarbledError(f"the body of a response is not JSON: {error}") from None


def _error(content: bytes) -> Mapping[str, Any]:
    """Return the fields of an error body, empty if there are none."""
    try:
        document = read_json_body(content)
    except GarbledError:
        return {}
    detail = document.get("error", document) if isinstance(document, dict) else document
    return detail if isinstance(detail, dict) else {"message": detail} if isinstance(detail, str) else {}


def _place(location: str) -> str:
    """Return the target of a redirect, without anything in it that may be secret."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that cannot be read"
    address = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    return printable(address)[:LONGEST_TEXT] or "an unnamed address"


def retry_after(headers: Mapping[str, str]) -> float:
    """Return how many seconds the server asks the client to wait, 0 if it does not ask."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return seconds if 0 < seconds < math.inf else 0.0


def rejection(served: str, server: Server, reply: str, *, as_ids: bool) -> ValueError:
    """Return the error for a request that the server rejects without naming a parameter that could be left out."""
    body = " and server.body" if server.body else ""
    ids = ", and that the server accepts prompts as token ids (otherwise use mode chat)" if as_ids else ""
    return ValueError(
        f"the server rejects the request to {served} and reports: {reply}. Check max_tokens, the length of the prompt, "
        f"the model's name{body}{ids}"
    )


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
    """End all requests to a server that has stopped; safe to use from several threads.

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
        """Seconds for which the server has sent nothing while requests were waiting."""
        return self._server.silence

    @contextmanager
    def exchange(self) -> Iterator[int]:
        """Watch a call with all its retries; yield the value of `stops` at the beginning."""
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
        """Watch one request, which runs inside this context."""
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
        """Record that data have arrived from the server."""
        now = time.monotonic()
        with self._lock:
            self._silent_since, self._heard = now, True
            self._next_probe = now + self._server.silence

    def learn(self, tokens: float, seconds: float, most_tokens: int) -> None:
        """Learn from one answer how fast the server is.

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
        """Return whether the server is now found to have stopped; if so, all current requests are ended."""
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
    """Raise an ImportError with the command that mends it if the package that requests need is missing."""
    if find_spec("openai") is None:
        raise _not_installed(ImportError("No module named 'openai'", name="openai"))


def _not_installed(error: ImportError) -> ImportError:
    return lacking("HTTP models need openai", "api", error)


class Client:
    """Send requests to one server over connections that are kept open; safe to use from several threads.

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
        """Return an information page of the server and its header ``Server``; None if the page cannot be reached.

        A missing page is returned as empty. See `_page` for the path and errors.
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
        """Raise a `SilentServerError` if no connection to the server can be opened."""
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
