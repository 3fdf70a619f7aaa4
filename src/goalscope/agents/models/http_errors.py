"""Errors of requests to a server: one sentence with advice and without secrets."""

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
_MOST_READ: Final = 4  # times the longest text: of a longer message, the beginning is read
_PASSING = frozenset({408, 409, 425, 429})
_TURNED_AWAY = _PASSING | {503}
"""Statuses of requests for which nothing was drawn."""
_FILTERED = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})
"""Codes, in lower case, of requests that a content filter stopped."""
_BROKEN_OFF = frozenset(
    {"error", "abort", "aborted", "cancelled", "canceled", "failed", "insufficient_system_resource"}
)
"""Finish reasons, in lower case, of replies that the server did not complete."""
_SECRETS = re.compile(r"(?<=//)[^/@\s]+@|(?i:\bbearer\s+\S+)|\bsk-[\w*.…•-]{6,}")


class GarbledError(ValueError):
    """A malformed response body; the request is retried."""


class RejectedError(ValueError):
    """The server rejects a request as it is; ``parameter`` is the one that it names, "" where it names none."""

    def __init__(self, text: str, parameter: str) -> None:
        super().__init__(text)
        self.parameter = parameter

    def named(self, sent: Iterable[str]) -> str | None:
        """Return the rejected one of the parameters that were sent, None where the message names none."""
        sent = list(sent)
        if self.parameter in sent:
            return self.parameter
        names = [name for name in sent if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(self))]
        return max(names, key=len) if names else None


class WithheldError(ValueError):
    """The server withholds an answer and says so by a failure status or an error object; holds its own words."""


class MissingError(ValueError):
    """The server has no such model or address."""


class PassingError(ConnectionError):
    """A temporary failure.

    Attributes:
        seconds: the wait that the server requests, 0 for none.
        drawn: whether the server may have drawn a reply, which is lost.
    """

    def __init__(self, text: str, seconds: float, *, drawn: bool) -> None:
        super().__init__(text)
        self.seconds, self.drawn = seconds, drawn


class Response(NamedTuple):
    """A response as it arrived."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes  # decoded


def explain(response: Response, server: Server, key: str) -> NoReturn:
    """Raise the error of a failure status, with advice."""
    status, address = response.status, server.base_url
    if 300 <= status < 400:
        raise ValueError(
            f"server.base_url must be the address that answers, {address} redirects to "
            f"{scrub(_place(response.headers.get('location', '')), key)} (status {status}), which is not followed: "
            "another server's answer must not become this one's. Name that address as server.base_url if it is "
            "the model's"
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
    """Raise the error of a server's failure: one that may pass, or one that names what to mend.

    Args:
        status: the status, or the code that stands in its place within a response of status 200.
        fields: of the server's error object.
        raw: what it said where the object holds no sentence.
        server: the settings of the server.
        key: the key, which must not stand in an error.
        seconds: the wait that the server requests.
        within: whether the error stands within a response of status 200.
    """
    address, place = server.base_url, f"error {status} in a response of status 200" if within else f"status {status}"
    message = scrub(str(fields.get("message") or fields.get("detail") or raw), key, LONGEST_TEXT)
    if status == 429 and fields.get("code") == "insufficient_quota":
        raise PermissionError(f"the key must have quota left at {address}, the server says: {message}")
    if status in (400, 403) and str(fields.get("code")).lower() in _FILTERED:
        raise WithheldError(message)
    if status in _PASSING or status >= 500:
        raise PassingError(f"{place}: {message}", seconds, drawn=status not in _TURNED_AWAY)
    if status in (401, 403):
        variable = server.key_variable
        problem = f"the one in {variable} is not" if variable else "none was sent: name its variable as server.key_env"
        raise PermissionError(
            f"{address} must accept the key, {problem} ({place}); check the key and what it may use. The server says: "
            f"{message}"
        )
    if status == 402:
        raise PermissionError(
            f"the account of the key must have credit left at {address}, it says: {message} ({place})"
        )
    if status == 404:
        raise MissingError(
            f"model and server.base_url must exist, {address} says: {message} ({place}). Check the model's name with "
            "the list at /models, and that base_url ends where the server wants it, mostly in /v1"
            + ("; a server without a completions endpoint needs mode chat" * (server.mode == "completions"))
        )
    raise RejectedError(f"{message} ({place})", str(fields.get("param") or ""))


def check_body(document: Mapping[str, Any], server: Server, key: str) -> None:
    """Raise the error that stands in a response of status 200: beside its choices, or within the first one.

    A code of 4xx is final, but for those of requests that come too soon; every other error is taken for one that may
    pass, and so is one without a code. After an error beside choices a part of an answer was written, which may have
    been charged for.
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
    sentence = fields.get("message") or f"the reply was broken off (finish_reason: {reason})"
    if str(fields.get("code")).lower() in _FILTERED:
        raise WithheldError(scrub(str(sentence), key, LONGEST_TEXT))
    code = _code(fields)
    if code is None or code >= 500:
        number = "" if code is None else f" {code}"
        text = f"error{number} in a response of status 200: {scrub(str(sentence), key, LONGEST_TEXT)}"
        raise GarbledError(text) if choice else PassingError(text, 0.0, drawn=code not in _TURNED_AWAY)
    raise_failure(code, {**fields, "message": sentence}, "", server, key, within=True)


def _code(fields: Mapping[str, Any]) -> int | None:
    """Return the code of an error object as a failure status, None where it has none."""
    for name in ("code", "status", "status_code"):
        value = fields.get(name)
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
            return number
    return None


def scrub(text: str, key: str, most: int = LONGEST_TEXT) -> str:
    """Return a text without keys and credentials, as it may stand in an error."""
    text = _SECRETS.sub(HIDDEN, hide_in_message(text[: _MOST_READ * most], key))
    return text if len(text) <= most else f"{text[:most]}..."


def read_json_body(content: bytes) -> Any:
    """Return the JSON document of a body; raises `GarbledError` where it is malformed."""
    try:
        return decode_json(content, strict=False, finite=False)  # only the fields that are used are checked
    except UntrustedError as error:
        raise GarbledError(f"the body of a response is no JSON: {error}") from None


def _error(content: bytes) -> Mapping[str, Any]:
    """Return the fields of an error body, empty where it has none."""
    try:
        document = read_json_body(content)
    except GarbledError:
        return {}
    detail = document.get("error", document) if isinstance(document, dict) else document
    return detail if isinstance(detail, dict) else {"message": detail} if isinstance(detail, str) else {}


def _place(location: str) -> str:
    """Return where a redirect leads, without what may be secret in it."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that cannot be read"
    address = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    printable = "".join(character if character.isprintable() else "?" for character in address)
    return printable[:LONGEST_TEXT] or "an address that it does not name"


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait for, 0 where it asks for none."""
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
    """Return the error of a request that is rejected for no parameter that could be left out."""
    body = " and server.body" if server.body else ""
    ids = ", and that the server takes prompts as token ids: where it does not, use mode chat" if as_ids else ""
    return ValueError(
        f"{served} must accept the request, the server says: {reply}. Check max_tokens, the length of the prompt, the "
        f"model's name{body}{ids}"
    )
