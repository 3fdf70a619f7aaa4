"""A study's settings for a model behind a server: address, prices and caps, and the budget that keeps to the caps."""

import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Annotated, Any, Final, Literal, Protocol, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from goalscope._ground.untrusted import faults
from goalscope.agents.models.base import MOST_NUMBER, CallKey, Message, NotSentError

DECISIVE: Final = ("mode", "tokenizer", "body", "constrained")
"""Settings of a server that can change answers; all other settings may change during a study."""

NotNegative = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=MOST_NUMBER)]

_NAMED: Final = {"json_schema": "response_format"}  # other settings have the same name in a request as in a study
Constraint = Literal["json_schema", "structured_outputs", "guided_choice"]
CONSTRAINTS: Final = ("response_format", "structured_outputs", "guided_choice")
"""Names of the request parameters that constrain an answer."""
RECORDING: Final = "set server: {unsupported: record} (evaluate: --set server.unsupported=record)"
"""How to continue with a server that lacks something which steps can record, in a study and as an option."""
_HOSTED: Final = "https://api.openai.com/v1"
_RESERVED = ("model", "messages", "prompt", "n", "stream", "max_tokens", "max_completion_tokens")


class Settings(BaseModel):
    """Base class of a study's settings for a model behind a server; each value is checked once.

    Errors do not show a wrong value, because it may be an API key.

    Raises:
        ValueError: a setting is unknown or missing, or has the wrong type or is out of range; the message names the
            setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            name = type(self).__name__.lower()
            problems = faults(error, {"": list(type(self).model_fields)})
            sentences = [f"{name}.{path}{' ' if must.startswith('must') else ': '}{must}" for path, must, _ in problems]
            raise ValueError("; ".join(sentences)) from None

    @classmethod
    def of(cls, settings: Self | Mapping[Any, Any]) -> Self:
        """Make the settings from a mapping, as a study file gives them; settings of this class are returned
        unchanged.
        """
        return (
            settings if isinstance(settings, cls) else cls(**{str(key): value for key, value in dict(settings).items()})
        )


class Server(Settings):
    """A server that speaks the OpenAI protocol, and how to use it.

    Attributes:
        base_url: its address, up to and including ``/v1``.
        mode: "chat" sends messages; "completions" renders prompts in this process and sends token ids.
        tokenizer: folder or hub name of the model's tokenizer (completions only); by default the model's own name.
        key_env: environment variable that contains the API key. By default, a key is sent only to api.openai.com: the
            one in OPENAI_API_KEY.
        timeout: seconds within which a response must be complete.
        silence: seconds for which the server may send nothing at all while requests are waiting. After that, the server
            is asked whether it is still running. The run ends unless the server is running and an answer can take that
            long; see `agents.models.http_client`. Raise it for a slow server that answers one request at a time.
        retries: maximum number of retries after a temporary failure.
        patience: seconds after the first request during which retries are made.
        backoff: longest wait before the first retry, in seconds; it doubles with each retry, up to a minute.
        constrained: how to make the server constrain answers to the JSON object of an action (chat only): "json_schema"
            (OpenAI's ``response_format``), "structured_outputs" or "guided_choice" (the newer and the older parameter
            of vLLM); None for no constraint.
        unsupported: "refuse" stops if the server rejects or ignores a parameter; "record" continues without the
            parameter and records this in each step.
        preflight: whether to test before the first call that the server supports what the study needs, see
            `goalscope.agents.models.abilities`.
        token_ids: whether to request token ids from the server.
        body: further parameters for each request, e.g. ``{"top_k": -1}``.
    """

    base_url: str = _HOSTED
    mode: Literal["chat", "completions"] = "chat"
    tokenizer: str | None = None
    key_env: str | None = None
    timeout: Seconds = 600.0
    silence: Seconds = 100.0
    retries: Annotated[int, Field(ge=0, le=1000)] = 8
    patience: Seconds = 1800.0
    backoff: Seconds = 1.0
    constrained: Constraint | None = None
    unsupported: Literal["refuse", "record"] = "refuse"
    preflight: bool = True
    token_ids: bool = True
    body: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            private = "@" in parts.netloc or bool(parts.query)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid, private = False, "@" in url
        if private:
            raise ValueError(
                "must not contain a user, password or query (the value is not shown, as it may contain a key): put the "
                "key into an environment variable and name the variable as server.key_env"
            )
        if not valid:
            raise ValueError(f"must be an address such as http://127.0.0.1:8000/v1, got {url!r}")
        return url

    @field_validator("tokenizer")
    @classmethod
    def _is_used(cls, tokenizer: str | None, info: ValidationInfo) -> str | None:
        if tokenizer is not None and info.data.get("mode") == "chat":
            raise ValueError("must be left out in mode chat, since it works only in mode completions")
        return tokenizer

    @field_validator("constrained")
    @classmethod
    def _is_chat(cls, constrained: str | None, info: ValidationInfo) -> str | None:
        if constrained is not None and info.data.get("mode") == "completions":
            raise ValueError(
                "must be left out in mode completions, where it would also constrain the reasoning: use mode chat, or "
                "answer: likelihood"
            )
        return constrained

    @field_validator("key_env")
    @classmethod
    def _is_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "must be the name of an environment variable that holds the key, not the key: letters, digits and _ "
                "only"
            )
        return name

    @field_validator("body")
    @classmethod
    def _is_free(cls, body: Mapping[str, Any]) -> Mapping[str, Any]:
        reserved = sorted(set(body) & set(_RESERVED))
        if reserved:
            raise ValueError(f"must not contain {', '.join(reserved)}, which other settings of the study determine")
        return body

    @property
    def key_variable(self) -> str | None:
        """Name of the environment variable that contains the API key; None if no key is sent."""
        if self.key_env is not None:
            return self.key_env
        return "OPENAI_API_KEY" if urlsplit(self.base_url).hostname == urlsplit(_HOSTED).hostname else None


class Prices(Settings):
    """Prices of a model's tokens, from which the cost of calls is computed.

    Attributes:
        input: USD per million prompt tokens.
        output: USD per million output tokens, including reasoning.
        date: date on which these prices were valid, ``YYYY-MM-DD``.
    """

    input: NotNegative
    output: NotNegative
    date: str

    @field_validator("date")
    @classmethod
    def _is_date(cls, text: str) -> str:
        try:
            date.fromisoformat(text)
        except ValueError:
            raise ValueError("must be a date such as 2025-08-05") from None
        return text

    def usd(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return the price in USD of so many prompt and output tokens."""
        return (prompt_tokens * self.input + output_tokens * self.output) / 1e6


class Caps(Settings):
    """Spending limits for an agent, over all sessions of a study; None for no limit.

    Attributes:
        calls: number of requests, including retries and lost requests.
        tokens: prompt and output tokens together.
        usd: USD; needs prices.
    """

    calls: Count | None = None
    tokens: Count | None = None
    usd: NotNegative | None = None


def constraint_name(how: str | None) -> str:
    """Return the name of the request parameter that constrains answers in the given way.

    The result is "" if answers are not constrained.

    Args:
        how: value of the setting `Server.constrained`.
    """
    return _NAMED.get(how or "", how or "")


def constraint(how: str | None, answers: Sequence[str]) -> dict[str, Any]:
    """Return the request parameter, name -> value, that makes a server constrain answers to the JSON object of one
    action.

    Args:
        how: as in `goalscope.agents.models.Server.constrained`; None for no parameter.
        answers: the complete answers, JSON objects with the key ``action``; empty for no parameter.
    """
    if how is None or not answers:
        return {}
    if how == "guided_choice":
        return {"guided_choice": list(answers)}
    if how == "structured_outputs":
        return {"structured_outputs": {"choice": list(answers)}}
    schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": [json.loads(answer)["action"] for answer in answers]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    named_schema = {"name": "action", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named_schema}}


def kept_to(text: str, answers: Sequence[str]) -> bool:
    """Return whether a text equals one of the given JSON objects, apart from blanks.

    It tests whether a server has constrained an answer to the valid actions.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return any(document == json.loads(answer) for answer in answers)


# Failures of requests that are made again; each kind has another cost.


class GarbledError(ValueError):
    """Error for a server's response whose body is malformed; the request is then retried."""


class PassingError(ConnectionError):
    """Error for a temporary failure of a server, after which the request is retried.

    Attributes:
        seconds: the wait that the server requests, 0 for none.
        drawn: whether the server may have generated a reply, which is lost.
    """

    def __init__(self, text: str, seconds: float, *, drawn: bool) -> None:
        super().__init__(text)
        self.seconds, self.drawn = seconds, drawn


class ExchangeError(ConnectionError):
    """Error for a request to which no complete response arrived.

    Attributes:
        sent: whether any part of the request may have reached the server.
        connected: whether there was a connection to the server.
    """

    def __init__(self, text: str, *, sent: bool = True, connected: bool = True) -> None:
        super().__init__(text)
        self.sent, self.connected = sent, connected


# Strict limits on calls, tokens and USD, with upper bounds on the number of tokens in a prompt.
#
# The maximum cost of a call is reserved before the call is made. A token of a byte-level, byte-fallback, character or
# word vocabulary stands for at least one byte of the text that the model reads. This text may be a Unicode normal form
# of the text that was sent, so the longest normal form is counted; some vocabularies also put a blank before it. The
# number of tokens that a chat template adds is unknown, so there is an allowance for each chat and each message.

CHAT_ALLOWANCE: Final = 512
"""Allowance for tokens that a chat template adds per chat: beginning, its own system prompt, start of the answer."""

MESSAGE_ALLOWANCE: Final = 16
"""Allowance for tokens that a chat template adds per message: role, markers and line breaks."""

BELIEVED: Final = 16
"""Largest factor by which the tokens that a server reports may exceed a request's maximum and still be believed. A
server may add its own prompt to a chat, or write past the limit. It then charges for more than was reserved, and all of
it counts."""

DOUBTED: Final = "usage_doubted"
"""Key in the usage of an answer whose reported token counts are impossible for its request."""


_FORMS: Final[tuple[Literal["NFC", "NFKC", "NFD", "NFKD"], ...]] = ("NFC", "NFKC", "NFD", "NFKD")
_BLANK: Final = 2  # an empty line between reasoning and answer
_GO_ON = "all answers so far are stored; raise the cap, then run the same study on the same directory to continue"


class Requests(Protocol):
    """Interface of the journal in which a run records its requests to a server, with their costs, across all sessions.

    It is safe to use from several threads.
    """

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Record that a request is about to be made.

        Args:
            key: the call to which it belongs: (root seed, episode id, step, attempt).
            most: its maximum cost, name -> tokens or USD.
        """
        ...

    def unsent(self, key: CallKey) -> None:
        """Record that a request recorded by `asking` was not made after all.

        Args:
            key: the call to which it belongs: (root seed, episode id, step, attempt).
        """
        ...

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Record that a request was made but gave no usable answer.

        Args:
            key: the call to which it belongs: (root seed, episode id, step, attempt).
            cost: what it may have cost at most, name -> tokens or USD.
        """
        ...


class Reservation:
    """The part of an agent's budget that is reserved for one call, with its actual cost once it is known.

    Attributes:
        prompt_tokens, output_tokens: the maximum numbers of tokens of the call, which are reserved.
        requests: number of requests made for the call.
        redraws: how many of these had to be repeated although the server may have generated a reply, because the reply
            was lost, broken off or unreadable. Requests that the server turned away (e.g. with status 429 or 503) do
            not count.
        cost: name -> actual cost; empty while unknown.
        key: the call; None if it belongs to no run.
    """

    def __init__(self, budget: "CallBudget", prompt_tokens: int, output_tokens: int, key: CallKey | None) -> None:
        self.requests = self.redraws = 0
        self.cost: Mapping[str, float] = {}
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        self.tokens = prompt_tokens + output_tokens
        self.usd = budget.usd_of(prompt_tokens, output_tokens)
        self._budget, self.key = budget, key
        self._answered = False

    @property
    def most(self) -> Mapping[str, float]:
        """Maximum cost of one request of this call: ``tokens_at_most``, and ``usd`` if prices are known."""
        return {"tokens_at_most": self.tokens, **({"usd": self.usd} if self._budget.priced else {})}

    @contextmanager
    def request(self) -> Iterator[None]:
        """Context around one request of the call, which counts the request and its cost.

        A request whose answer was lost or is malformed counts with its maximum cost. A request that the server rejects
        costs nothing, and a request of which nothing was sent does not count.

        Raises:
            NotSentError: the first request would exceed a cap.
            ValueError: a later request would exceed a cap.
        """
        problem = self._budget.count_call(room=self.requests > 0)
        if problem:
            raise ValueError(problem) if self.requests else NotSentError(problem)
        journal = self._budget.journal
        if journal is not None and self.key is not None:
            journal.asking(self.key, self.most)
        self.requests += 1
        self._answered = False
        try:
            yield
            self._answered = True
        except ExchangeError as error:
            if error.sent:
                self.redraws += 1
                self._lose(self.most)
            else:
                self.requests -= 1
                self._budget.count_call(-1)
                if journal is not None and self.key is not None:
                    journal.unsent(self.key)
            raise
        except GarbledError:
            self.redraws += 1
            self._lose(self.most)
            raise
        except (OSError, ValueError) as error:
            self.redraws += isinstance(error, PassingError) and error.drawn
            self._lose({})
            raise

    def settle(
        self, prompt: int | None, output: int | None, *, written: int = 0, ids: int | None = None
    ) -> Mapping[str, float]:
        """Compute the actual cost of a call from the numbers of tokens that the server reports, and store it in `cost`.

        A number that is missing or cannot be true is replaced by its maximum: the number of tokens reserved for the
        call. The report is doubted in three cases: 0 tokens for a prompt; 0 tokens for an output with text; and more
        tokens than the maximum. A number above the maximum counts as reported, but at most as `BELIEVED` times the
        maximum.

        Args:
            prompt: reported number of prompt tokens, or None.
            output: reported number of output tokens, or None.
            written: number of bytes of the answer and its reasoning. If it is above 0, the output cannot have had 0
                tokens. If it exceeds the reserved output tokens, it takes their place as the maximum above which a
                report is doubted.
            ids: number of token ids returned for the output, or None; counted if no output tokens are reported.

        Returns:
            Name -> amount: "prompt_tokens" and "output_tokens", or only their sum "tokens_at_most" if one of them was
            not reported credibly; "usd" if prices are known; and `DOUBTED` -> 1 if the report is doubted.
        """
        prompt_believed = prompt or None  # a prompt always has tokens, and so does a text
        output_believed = output or (None if written else output)
        most_output = max(self.output_tokens, written)
        prompt_count = min(prompt_believed or self.prompt_tokens, BELIEVED * self.prompt_tokens)
        output_count = ids or self.output_tokens if output_believed is None else output_believed
        output_count = min(output_count, BELIEVED * most_output)
        if prompt_believed is None or output_believed is None:
            self.cost = {"tokens_at_most": prompt_count + output_count}
        else:
            self.cost = {"prompt_tokens": prompt_count, "output_tokens": output_count}
        too_few = prompt_believed != prompt or output_believed != output
        if too_few or (prompt or 0) > self.prompt_tokens or (output or 0) > most_output:
            self.cost = {**self.cost, DOUBTED: 1}
        if self._budget.priced:
            self.cost = {**self.cost, "usd": self._budget.usd_of(prompt_count, output_count)}
        return self.cost

    def give_up(self) -> None:
        """Charge the last request of the call, whose answer arrived but turned out to be unusable.

        Its actual cost is charged if it is known, else its maximum cost.
        """
        if self._answered:
            self._lose(self.cost or self.most)
            self.cost = {}

    def discard(self) -> None:
        """Record in the journal that an answer was paid for but must not be used; called after the reservation has
        ended.
        """
        if self._budget.journal is not None and self.key is not None:
            self._budget.journal.failed(self.key, self.cost)

    def _lose(self, cost: Mapping[str, float]) -> None:
        self._budget.spend(cost)
        if self._budget.journal is not None and self.key is not None:
            self._budget.journal.failed(self.key, cost)


class CallBudget:
    """The spending of an agent so far and its limits; safe to use from several threads.

    The actual cost of a request whose answer was lost is unknown, so its maximum cost is counted.

    Args:
        caps: the limits.
        prices: prices of tokens; None if USD are not counted.

    Attributes:
        stopped: event after which no request is made until the next `begin`.
    """

    def __init__(self, caps: Caps, prices: Prices | None) -> None:
        self._caps, self._prices = caps, prices
        self._changed = threading.Condition()
        self._reservations: list[Reservation] = []
        self.calls, self.tokens, self.usd = 0, 0, 0.0
        self.journal: Requests | None = None
        self.stopped = threading.Event()

    @property
    def priced(self) -> bool:
        """Whether the cost in USD is counted, because prices are known."""
        return self._prices is not None

    def usd_of(self, prompt_tokens: int, output_tokens: int) -> float:
        """Return the price in USD of so many prompt and output tokens; 0 if no prices are known."""
        return self._prices.usd(prompt_tokens, output_tokens) if self._prices else 0.0

    def begin(self, spent: Mapping[str, float], journal: Requests | None = None) -> None:
        """Start a session of a run with the spending of its earlier sessions.

        Args:
            spent: sums of `Reply.usage` by name over all journalled answers, and ``lost``, the number of requests
                without an answer.
            journal: journal of this session's requests, or None.
        """
        with self._changed:
            self.journal = journal
            self.stopped.clear()
            self.calls = int(spent.get("requests", 0) + spent.get("lost", 0))
            self.tokens = _tokens(spent)
            self.usd = float(spent.get("usd", 0.0))

    def end(self) -> None:
        """End a session of a run: requests made after this call are not recorded in its journal."""
        self.journal = None

    @contextmanager
    def reserve(self, prompt_tokens: int, output_tokens: int, key: CallKey | None = None) -> Iterator[Reservation]:
        """Context that reserves the maximum cost of one call; its actual cost is charged at the end.

        If the budget is too small only because of other reservations, it waits until these calls have ended.

        Args:
            prompt_tokens: maximum number of prompt tokens.
            output_tokens: maximum number of output tokens.
            key: the call: (root seed, episode id, step, attempt); None if it belongs to no run.

        Raises:
            NotSentError: the call would exceed a cap.
        """
        reservation = Reservation(self, prompt_tokens, output_tokens, key)
        with self._changed:
            while problem := self._problem(reservation):
                if not self._reservations:
                    raise NotSentError(problem)
                self._changed.wait()
            self._reservations.append(reservation)
        try:
            yield reservation
        except (OSError, ValueError):
            reservation.give_up()
            raise
        finally:
            with self._changed:
                self._reservations.remove(reservation)
                self._spend(reservation.cost)

    def spend(self, cost: Mapping[str, float]) -> None:
        """Charge the cost of a request that gave no usable answer: name -> tokens or USD."""
        with self._changed:
            self._spend(cost)

    def _spend(self, cost: Mapping[str, float]) -> None:
        self.tokens += _tokens(cost)
        self.usd += cost.get("usd", 0.0)
        self._changed.notify_all()

    def count_call(self, change: int = 1, *, room: bool = False) -> str | None:
        """Count a request that is about to be made, or take back the count.

        Args:
            change: 1 to count the request, -1 to take back the count.
            room: whether to check again that the call's reservation fits, since an earlier request of the same call may
                have been charged.

        Returns:
            Why the request would exceed a cap and must not be made; None if it may be made.
        """
        with self._changed:
            problem = self._too_many_calls() if change > 0 else None
            problem = problem or (self._problem(None) if room else None)
            self.calls += 0 if problem else change
            return problem

    def _problem(self, candidate: Reservation | None) -> str | None:
        """Return why a new call, or another request of a current call, would exceed a limit; None if it fits."""
        caps = self._caps
        reservations = [*self._reservations, *([] if candidate is None else [candidate])]
        tokens = sum(reservation.tokens for reservation in reservations)
        usd = sum(reservation.usd for reservation in reservations)
        if caps.tokens is not None and self.tokens + tokens > caps.tokens:
            return (
                f"caps.tokens must leave room for the next call: {self.tokens} of {caps.tokens} tokens are spent, and "
                f"the current calls with the next one may take {tokens} (max_tokens and the longest prompt); {_GO_ON}"
            )
        if caps.usd is not None and self.usd + usd > caps.usd:
            return (
                f"caps.usd must leave room for the next call: {self.usd:.6f} of {caps.usd:g} USD are spent, and the "
                f"current calls with the next one may take {usd:.6f}; {_GO_ON}"
            )
        return self._too_many_calls()

    def _too_many_calls(self) -> str | None:
        limit = self._caps.calls
        if limit is None or self.calls < limit:
            return None
        return f"caps.calls must leave room for the next call: {self.calls} of {limit} requests are made; {_GO_ON}"


def _tokens(cost: Mapping[str, float]) -> int:
    return int(sum(cost.get(name, 0) for name in ("prompt_tokens", "output_tokens", "tokens_at_most")))


def most_text_tokens(text: str) -> int:
    """Return an upper bound on the number of tokens of a text: the bytes of its longest Unicode normal form, plus
    one.
    """
    if text.isascii():
        return len(text) + 1
    forms = (text, *(unicodedata.normalize(form, text) for form in _FORMS))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1


def most_prompt_tokens(messages: Sequence[Message], max_tokens: int) -> int:
    """Return an upper bound on the number of prompt tokens of a chat, including what the server's chat template adds.

    Args:
        messages: the chat.
        max_tokens: maximum output tokens; earlier answers of the model have at most so many.
    """
    total = CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * len(messages)
    for message in messages:
        text_tokens = most_text_tokens(message.content)
        # The model wrote its earlier answers within its limit.
        total += min(text_tokens, max_tokens + _BLANK) if message.role == "assistant" else text_tokens
    return total
