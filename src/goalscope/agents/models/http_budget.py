"""Strict limits on calls, tokens and USD, with upper bounds on the number of tokens in a prompt.

The maximum cost of a call is reserved before the call is made. A token of a byte-level, byte-fallback, character or
word vocabulary stands for at least one byte of the text that the model reads. This text may be a Unicode normal form of
the text that was sent, so the longest normal form is counted; some vocabularies also put a blank before it. The number
of tokens that a chat template adds is unknown, so there is an allowance for each chat and each message.
"""

import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol

from goalscope.agents.models.base import CallKey, Message, NotSentError
from goalscope.agents.models.http_client import ExchangeError, GarbledError, PassingError
from goalscope.agents.models.http_settings import Caps, Prices

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
    """Journal of the requests of all sessions of a run; safe to use from several threads."""

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Record that a request of a call is about to be made, with its maximum cost."""
        ...

    def unsent(self, key: CallKey) -> None:
        """Record that an announced request of a call was not made after all."""
        ...

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Record that a request of a call was made but not answered, with its maximum cost."""
        ...


class Reservation:
    """The budget reserved for one call.

    Attributes:
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
        """Maximum cost of one request of this call, by the name of the cap (tokens_at_most, usd)."""
        return {"tokens_at_most": self.tokens, **({"usd": self.usd} if self._budget.priced else {})}

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request, which is made inside this context; a request of which nothing was sent does not count.

        A request whose answer was lost or is malformed counts with its maximum cost; a request that the server rejects
        costs nothing.
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
        """Return the cost of the call.

        Values that the server does not report count with their maximum. So does a report of 0 tokens for a prompt or
        for an output with text. A report that is too large to be believed counts as `BELIEVED` times the maximum.
        `DOUBTED` marks the last two cases, and all reports above the maximum.

        Args:
            prompt: reported prompt tokens, or None.
            output: reported output tokens, or None.
            written: number of bytes of the answer and its reasoning.
            ids: number of token ids returned for the output, or None; used if no output tokens are reported.
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
        """Count the maximum cost of a request whose answer turned out to be unusable."""
        if self._answered:
            self._lose(self.cost or self.most)
            self.cost = {}

    def discard(self) -> None:
        """After the reservation has ended, record in the journal an answer that was paid for but must not be used."""
        if self._budget.journal is not None and self.key is not None:
            self._budget.journal.failed(self.key, self.cost)

    def _lose(self, cost: Mapping[str, float]) -> None:
        self._budget.spend(cost)
        if self._budget.journal is not None and self.key is not None:
            self._budget.journal.failed(self.key, cost)


class CallBudget:
    """The spending so far and its limits; safe to use from several threads.

    The charge for a request whose answer was lost is unknown, so its maximum counts.

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
        """Whether USD are counted."""
        return self._prices is not None

    def usd_of(self, prompt_tokens: int, output_tokens: int) -> float:
        """Return the price of tokens in USD; 0 if USD are not counted."""
        return self._prices.usd(prompt_tokens, output_tokens) if self._prices else 0.0

    def begin(self, spent: Mapping[str, float], journal: Requests | None = None) -> None:
        """Start from the spending of earlier sessions.

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
        """Detach the journal of a run; later requests are not recorded in it."""
        self.journal = None

    @contextmanager
    def reserve(self, prompt_tokens: int, output_tokens: int, key: CallKey | None = None) -> Iterator[Reservation]:
        """Reserve the maximum cost of a call; wait while current calls may still leave enough budget for it."""
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
        """Count the maximum cost of a request that got no answer."""
        with self._changed:
            self._spend(cost)

    def _spend(self, cost: Mapping[str, float]) -> None:
        self.tokens += _tokens(cost)
        self.usd += cost.get("usd", 0.0)
        self._changed.notify_all()

    def count_call(self, change: int = 1, *, room: bool = False) -> str | None:
        """Count a request that is about to be made, or undo the count; return why it must not be made, or None.

        With ``room``, the reservation must still fit, since an earlier request of the same call may have been charged.
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
        tokens, usd = (
            sum(reservation.tokens for reservation in reservations),
            sum(reservation.usd for reservation in reservations),
        )
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
    """Return the maximum number of tokens of a text: the bytes of its longest normal form, plus a blank before it."""
    if text.isascii():
        return len(text) + 1
    forms = (text, *(unicodedata.normalize(form, text) for form in _FORMS))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1


def most_prompt_tokens(messages: Sequence[Message], max_tokens: int) -> int:
    """Return the maximum number of tokens of a chat that a server renders."""
    total = CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * len(messages)
    for message in messages:
        text_tokens = most_text_tokens(message.content)
        # The model wrote its earlier answers within its limit.
        total += min(text_tokens, max_tokens + _BLANK) if message.role == "assistant" else text_tokens
    return total
