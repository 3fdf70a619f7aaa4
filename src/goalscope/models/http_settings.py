"""What a study says about a model behind a server: where it is, what it costs, how much may be spent."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

MODES: Final = ("chat", "completions")
POLICIES: Final = ("refuse", "record")
HOSTED: Final = "https://api.openai.com/v1"
HOSTED_KEY: Final = "OPENAI_API_KEY"

DECISIVE: Final = ("mode", "tokenizer", "body")
"""Settings of a server that change answers; all others may change while a study goes on."""

MOST_NUMBER: Final = 2**63 - 1
"""The largest whole number that a study may hold, in size."""

_RESERVED = ("model", "messages", "prompt", "n", "stream", "max_tokens", "max_completion_tokens")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that speaks the OpenAI protocol, and how it is treated.

    Attributes:
        base_url: where it is, up to and including ``/v1``.
        mode: "chat" sends messages; "completions" renders them here and sends token ids.
        tokenizer: folder or hub name of the model's tokenizer (completions only); the model's own name by default.
        key_env: environment variable that holds the key. By default a key is sent to api.openai.com alone, the one
            in OPENAI_API_KEY.
        organization, project: what hosted keys of several organisations or projects are charged to, sent as
            OpenAI-Organization and OpenAI-Project; by default neither is sent, whatever the environment holds.
        timeout: seconds in which a response must be complete.
        requests_per_minute: most requests a minute, retries included; None for no limit.
        retries: most further requests after one that failed for the moment.
        patience: seconds from the first request after which no further one is made.
        backoff: longest wait before the first retry, in seconds; it doubles with each, up to a minute.
        unsupported: "refuse" stops at a parameter that the server rejects; "record" leaves it out and says so in
            each step.
        body: further parameters of each request, e.g. ``{"top_k": -1}``.

    Raises:
        ValueError: a setting out of its range; names the key.
    """

    base_url: str = HOSTED
    mode: str = "chat"
    tokenizer: str | None = None
    key_env: str | None = None
    organization: str | None = None
    project: str | None = None
    timeout: float = 600.0
    requests_per_minute: float | None = None
    retries: int = 8
    patience: float = 1800.0
    backoff: float = 1.0
    unsupported: str = "refuse"
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("server.mode", self.mode, MODES)
        _one_of("server.unsupported", self.unsupported, POLICIES)
        for name in ("timeout", "patience", "backoff", "requests_per_minute"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"server.{name} must be a finite number > 0, got {value!r}")
        if not 0 <= self.retries <= 1000:
            raise ValueError(f"server.retries must lie in 0..1000, got {self.retries!r}")
        if self.tokenizer is not None and self.mode != "completions":
            raise ValueError("server.tokenizer belongs to mode completions, got it with mode chat: leave it out")
        if self.key_env is not None and not _VARIABLE.fullmatch(self.key_env):
            # What was given is not shown: it may be the key itself.
            raise ValueError(
                "server.key_env must be the name of an environment variable that holds the key, not the key: letters, "
                "digits and _ only"
            )
        for name in ("organization", "project"):
            value = getattr(self, name)
            if value is not None and not (value and value.isascii() and value.isprintable()):
                raise ValueError(
                    f"server.{name} must be printable ASCII as a header holds it: leave it out to send none"
                )
        held = sorted(set(self.body) & set(_RESERVED))
        if held:
            raise ValueError(f"server.body must not hold {', '.join(held)}: the study sets them elsewhere")
        try:
            parts = urlsplit(self.base_url)
            private = "@" in parts.netloc or bool(parts.query)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid, private = False, "@" in self.base_url
        if private:
            raise ValueError(
                "server.base_url must hold no user, password or query, got one that does (not shown): put the key "
                "into an environment variable and name it as server.key_env"
            )
        if not valid:
            raise ValueError(
                f"server.base_url must be an address such as http://127.0.0.1:8000/v1, got {self.base_url!r}"
            )

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key, None where no key is sent."""
        if self.key_env is not None:
            return self.key_env
        return HOSTED_KEY if urlsplit(self.base_url).hostname == urlsplit(HOSTED).hostname else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What tokens cost.

    Attributes:
        input: USD per million prompt tokens.
        output: USD per million output tokens, reasoning included.
        date: when these prices held, ``YYYY-MM-DD``.

    Raises:
        ValueError: a negative price, or no date.
    """

    input: float
    output: float
    date: str

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"prices.{name} must be a finite number >= 0 (USD per million tokens), got {value!r}")
        try:
            date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"prices.date must be a date such as 2025-08-05, got {self.date!r}") from None

    def usd(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return what so many tokens cost, in USD."""
        return (prompt_tokens * self.input + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much may be spent on an agent by a study, all of its sessions together; None for no limit.

    Attributes:
        calls: requests, retries and lost ones included.
        tokens: prompt and output tokens together.
        usd: USD; needs prices.

    Raises:
        ValueError: a cap below 0.
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"caps.{entry.name} must be a finite number >= 0, got {value!r}")


def read(name: str, record: Callable[..., Record], given: Any) -> Record:
    """Build one of the records of this module from the plain values of a study.

    Args:
        name: the key in the study, for the errors: "server", "prices", "caps".
        record: `Server`, `Prices` or `Caps`.
        given: a mapping with the record's fields.

    Raises:
        ValueError: unknown or missing keys, or values of the wrong type; names the key.
    """
    known = {entry.name: entry for entry in fields(record)}  # type: ignore[arg-type]
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a mapping with the keys {', '.join(known)}, got {type(given).__name__}")
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise ValueError(f"{name} takes {', '.join(known)}, got {', '.join(unknown)}")
    for key, value in given.items():
        wanted = str(known[key].type)
        if not _fits(value, known[key].type):
            # A wrong value is not shown: keys and passwords get into wrong places.
            raise ValueError(f"{name}.{key} must be {_words(wanted)}, got {type(value).__name__}")
    missing = [key for key in known if key not in given and record is Prices]
    if missing:
        raise ValueError(f"{name} must be given {', '.join(known)}, missing: {', '.join(missing)}")
    return record(**given)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) > MOST_NUMBER):
        return False
    kinds: dict[Any, tuple[type, ...]] = {
        str: (str,),
        int: (int,),
        float: (int, float),
        str | None: (str, type(None)),
        int | None: (int, type(None)),
        float | None: (int, float, type(None)),
    }
    return isinstance(value, kinds.get(wanted, (Mapping,)))


def _words(wanted: str) -> str:
    for sign, words in (("str", "a text"), ("int", "a whole number below 2**63"), ("float", "a number below 2**63")):
        if sign in wanted:
            return words + (" or nothing" if "None" in wanted else "")
    return "a mapping"


def _one_of(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name} must be one of {', '.join(valid)}, got {value!r}")
