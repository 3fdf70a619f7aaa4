"""Errors of requests to a server, each one sentence with advice and without secrets."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

from goalscope._ground.untrusted import UntrustedError, decode_json
from goalscope.agents.models.http_keys import HIDDEN, hide_in_message
from goalscope.agents.models.http_settings import Server

LONGEST_TEXT: Final = 600
_MOST_READ: Final = 4  # a message is read up to this multiple of the longest text that an error may show
_PASSING = frozenset({408, 409, 425, 429})
_TURNED_AWAY = _PASSING | {503}
"""Statuses of requests that the server turned away before it generated anything."""
_FILTERED = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
"""Codes (in lower case) of requests that a content filter stopped."""
_BROKEN_OFF = frozenset(
    {"error", "abort", "aborted", "cancelled", "canceled", "failed", "insufficient_system_resource"}
)
"""Finish reasons (in lower case) of replies that the server did not complete."""
_SECRETS = re.compile(r"(?<=//)[^/@\s]+@|(?i:\bbearer\s+\S+)|\bsk-[\w*.…•-]{6,}")


class GarbledError(ValueError):
    """A malformed response body; the request is retried."""


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


class PassingError(ConnectionError):
    """A temporary failure.

    Attributes:
        seconds: the wait that the server requests, 0 for none.
        drawn: whether the server may have generated a reply, which is lost.
    """

    def __init__(self, text: str, seconds: float, *, drawn: bool) -> None:
        super().__init__(text)
        self.seconds, self.drawn = seconds, drawn


class Response(NamedTuple):
    """A response as received."""

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
    reason = str(choice.get("finish_reason")).lower()
    if not error and reason not in _BROKEN_OFF:
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


def _code(fields: Mapping[str, Any]) -> int | None:
    """Return the code of an error object as a failure status, or None if it has none."""
    for name in ("code", "status", "status_code"):
        value = fields.get(name)
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
            return number
    return None


def scrub(text: str, key: str, most: int = LONGEST_TEXT) -> str:
    """Return a text without keys and credentials, so that an error can show it."""
    text = _SECRETS.sub(HIDDEN, hide_in_message(text[: _MOST_READ * most], key))
    return text if len(text) <= most else f"{text[:most]}..."


def read_json_body(content: bytes) -> Any:
    """Return the JSON document of a body; raise a `GarbledError` if it is malformed."""
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
    printable = "".join(character if character.isprintable() else "?" for character in address)
    return printable[:LONGEST_TEXT] or "an unnamed address"


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
