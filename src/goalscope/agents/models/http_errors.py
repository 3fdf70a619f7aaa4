"""Errors of requests to a server: each is one sentence with advice, and contains no key."""

import json
import math
import re
from base64 import b64encode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import escape
from typing import Any, Final, Literal, NamedTuple, NoReturn
from urllib.parse import quote, urlsplit

from goalscope._ground.untrusted import UntrustedError, decode_json, printable, shorten
from goalscope.agents.models.http_settings import GarbledError, PassingError, Server

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
    """Error for a request that the server does not accept as it stands.

    Attributes:
        parameter: the parameter that the server names as the problem, "" if it names none.
    """

    def __init__(self, text: str, parameter: str) -> None:
        super().__init__(text)
        self.parameter = parameter

    def named(self, sent: Iterable[str]) -> str | None:
        """Return which of the parameters that were sent the server rejects; None if its message names none of them."""
        sent = list(sent)
        if self.parameter in sent:
            return self.parameter
        names = [name for name in sent if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(self))]
        return max(names, key=len) if names else None


class WithheldError(ValueError):
    """Error for an answer that the server refuses to give, for example because of a content filter; it quotes the
    server.
    """


class MissingError(ValueError):
    """Error for a model or address that the server does not have."""


class SilentServerError(ConnectionError):
    """Error for a server that gave no answer within the allowed retries.

    Attributes:
        problem: what happened to the last request.
        advice: what helps, as an instruction.
    """

    def __init__(self, text: str, *, problem: str = "", advice: str = "") -> None:
        super().__init__(text)
        self.problem, self.advice = problem, advice


class Response(NamedTuple):
    """An HTTP response as it was received: status, headers (names in lower case) and decoded content."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes  # decoded


def explain(response: Response, server: Server, key: str) -> NoReturn:
    """Raise the error for a response with a failure status (300 and above), with advice on what to change.

    Args:
        response: the response.
        server: the settings of the server.
        key: the API key, which must not appear in an error.

    Raises:
        PassingError: the failure is temporary, so the request can be retried.
        RejectedError, WithheldError, MissingError, PermissionError, ValueError: the failure is final.
    """
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
    """Raise the error for a failure that a server reports: a temporary failure, or an error that says what to change.

    Args:
        status: the HTTP status, or the code that replaces it inside a response of status 200.
        fields: fields of the server's error object.
        raw: the server's text, used if the error object has no message.
        server: the settings of the server.
        key: the API key, which must not appear in an error.
        seconds: the wait that the server requests.
        within: whether the error is inside a response of status 200.

    Raises:
        PassingError: the failure is temporary, so the request can be retried.
        RejectedError, WithheldError, MissingError, PermissionError: the failure is final.
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
    """Check that a response of status 200 contains an answer and no error, either next to its choices or inside the
    first.

    Codes 4xx are final, except for codes of requests that come too soon. Every other error counts as temporary, also
    one without a code. If the error comes with choices, part of an answer was generated and may have been charged.

    Args:
        document: the response, decoded from JSON.
        server: the settings of the server.
        key: the API key, which must not appear in an error.

    Raises:
        PassingError, GarbledError: the error is temporary, so the request can be retried.
        RejectedError, WithheldError, MissingError, PermissionError: the error is final.
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
    """Interpret the finish reason in a server's response, for which servers have many words.

    Returns:
        "withheld" (such as by a content filter), "length" (the token limit was reached) or "failed"; None for an
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
    """Remove keys and credentials from a text, and cut the text to a length, so that an error may quote it.

    Args:
        text: the text, such as a server's message.
        key: the API key in use; other texts that look like credentials are removed, too.
        most: maximum number of characters of the result.
    """
    text = _SECRETS.sub(HIDDEN, hide_in_message(text[: _MOST_READ * most], key))
    return text if len(text) <= most else f"{text[:most]}..."


def read_json_body(content: bytes) -> Any:
    """Decode the body of a response from JSON.

    Raises:
        GarbledError: the body is malformed.
    """
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
    """Return how many seconds the server asks the client to wait (header ``retry-after``); 0 if it does not ask."""
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
    """Make the error, without raising it, for a rejected request in which no parameter can be left out.

    Args:
        served: the model's name on the server.
        server: the settings of the server.
        reply: what the server reports.
        as_ids: whether the prompt was sent as token ids.
    """
    body = " and server.body" if server.body else ""
    ids = ", and that the server accepts prompts as token ids (otherwise use mode chat)" if as_ids else ""
    return ValueError(
        f"the server rejects the request to {served} and reports: {reply}. Check max_tokens, the length of the prompt, "
        f"the model's name{body}{ids}"
    )


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
    """Return whether an API key is long enough, and unlike a word, so that it can be hidden without destroying other
    text.
    """
    word = key.isalpha() and (key[1:].islower() or key.isupper()) and len(key) <= _LONGEST_WORD
    return len(key) >= LEAST and not word


def hide(text: str, key: str) -> str:
    """Replace an API key in a text by ``***``, in all forms in which a server may echo it, such as base64 or
    hexadecimal.

    A key that is an ordinary word is left unchanged.
    """
    if not is_secret(key):
        return text
    literals, pattern = _forms(key)
    lower = text.lower()
    return pattern.sub(HIDDEN, text) if any(literal in lower for literal in literals) else text


def hide_in(document: Any, key: str) -> None:
    """Replace an API key by ``***`` in all texts of a decoded JSON document, in place."""
    waiting = [document] if is_secret(key) and isinstance(document, dict | list) else []
    while waiting:
        item = waiting.pop()
        for place, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, str):
                item[place] = hide(value, key)
            elif isinstance(value, dict | list):
                waiting.append(value)


def hide_in_message(text: str, key: str) -> str:
    """Replace an API key in a server's message by ``***``, including the visible rest of a masked key such as
    ``sk-...wxyz``.
    """
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


_MOST_LISTED: Final = 5  # maximum number of model names in a sentence


def other_names(served: str, names: Mapping[str, int]) -> str:
    """Describe the names other than the requested one that a server gives the model in its answers.

    The result is "" if there are none.

    Another name may mean that the server answers with another model.

    Args:
        served: the requested name.
        names: name -> number of answers with it, "" for answers without a name.
    """
    others = Counter({name: count for name, count in names.items() if name not in ("", printable(served))})
    if not others:
        return ""
    listed = ", ".join(f"{shorten(name)} ({count})" for name, count in others.most_common(_MOST_LISTED))
    more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
    share = f"{others.total()} of {sum(names.values())} answers"
    return f"{share} give the model a name other than {shorten(served)}: {listed}{more}"
