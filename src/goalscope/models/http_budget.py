"""Caps on calls, tokens and USD that hold, and the most tokens that a prompt can have.

The most that a call may cost is set aside before it is made. A token of a byte-level, byte-fallback, character or word
vocabulary stands for at least one byte of the text that its model reads. That text may be a normal form of the one that
was sent, so that the longest of them is counted, and some vocabularies put a blank before it. What a chat template adds
is not known: an allowance is declared for the chat and for each message.
"""

import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol

from goalscope.models.base import Message, NotSentError
from goalscope.models.http_errors import GarbledError
from goalscope.models.http_settings import Caps, Prices

CHAT_ALLOWANCE: Final = 512
"""Tokens that a chat template may add to a chat: the beginning, a system prompt of its own, the start of the answer."""

MESSAGE_ALLOWANCE: Final = 16
"""Tokens that a chat template may add to a message: its role, its markers, line breaks."""

CallKey = tuple[int, str, int, int]
"""(root seed, episode id, step, attempt) of a call."""

_FORMS: Final[tuple[Literal["NFC", "NFKC", "NFD", "NFKD"], ...]] = ("NFC", "NFKC", "NFD", "NFKD")
_BLANK: Final = 2  # reasoning and answer are set apart by an empty line
_GO_ON = "what was answered is stored; raise the cap and run the same study on the same directory to go on"


class ExchangeError(ConnectionError):
    """A request without an answer; ``sent`` tells whether anything of it can have reached the server."""

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class Requests(Protocol):
    """What remembers requests over all sessions of a run; safe to use from several threads."""

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Commit that a request of a call is about to be made, and the most that it can cost."""
        ...

    def unsent(self, key: CallKey) -> None:
        """Commit that a request of a call was not made after all."""
        ...

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Commit that a request of a call was made and brought no answer, and the most that it can have cost."""
        ...


class Reservation:
    """What is set aside for one call.

    Attributes:
        requests: number of requests made for it.
        cost: what it turned out to cost, by name; empty while nothing is known.
        key: the call, None where it belongs to no run.
    """

    def __init__(self, budget: "Budget", prompt_tokens: int, output_tokens: int, key: CallKey | None) -> None:
        self.requests = 0
        self.cost: Mapping[str, float] = {}
        self.tokens = prompt_tokens + output_tokens
        self.usd = budget.usd_of(prompt_tokens, output_tokens)
        self._budget, self.key = budget, key
        self._answered = False

    @property
    def most(self) -> Mapping[str, float]:
        """The most that one request of the call can cost, by name."""
        return {"tokens_at_most": self.tokens, **({"usd": self.usd} if self._budget.priced else {})}

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request, which is made inside; one of which nothing was sent does not count.

        Where a request was sent and its answer was lost on the way, or is none, it may have cost the most that it can;
        one that the server refuses costs nothing.
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
                self._lose(self.most)
            else:
                self.requests -= 1
                self._budget.count_call(-1)
                if journal is not None and self.key is not None:
                    journal.unsent(self.key)
            raise
        except GarbledError:
            self._lose(self.most)
            raise
        except (OSError, ValueError):
            self._lose({})
            raise

    def settle(self, prompt: int | None, output: int | None) -> Mapping[str, float]:
        """Return what the call cost; where the server does not say, the most that it can have cost."""
        if prompt is None or output is None:
            usd = self.usd
            self.cost = {"tokens_at_most": self.tokens}
        else:
            usd = self._budget.usd_of(prompt, output)
            self.cost = {"prompt_tokens": prompt, "output_tokens": output}
        if self._budget.priced:
            self.cost = {**self.cost, "usd": usd}
        return self.cost

    def give_up(self) -> None:
        """Count a request that was answered, where its answer is of no use after all."""
        if self._answered:
            self._lose(self.cost or self.most)
            self.cost = {}

    def _lose(self, cost: Mapping[str, float]) -> None:
        self._budget.spend(cost)
        if self._budget.journal is not None and self.key is not None:
            self._budget.journal.failed(self.key, cost)


class Budget:
    """What has been spent and what may be; safe to use from several threads.

    What a server charges for requests whose answer was lost on the way is not known: the most that it can be counts.

    Args:
        caps: the limits.
        prices: what tokens cost; None where USD are not counted.
    """

    def __init__(self, caps: Caps, prices: Prices | None) -> None:
        self._caps, self._prices = caps, prices
        self._changed = threading.Condition()
        self._held: list[Reservation] = []
        self.calls, self.tokens, self.usd = 0, 0, 0.0
        self.journal: Requests | None = None

    @property
    def priced(self) -> bool:
        """Whether USD are counted."""
        return self._prices is not None

    def usd_of(self, prompt_tokens: int, output_tokens: int) -> float:
        """Return what so many tokens cost in USD, 0 where USD are not counted."""
        return self._prices.usd(prompt_tokens, output_tokens) if self._prices else 0.0

    def begin(self, spent: Mapping[str, float], journal: Requests | None = None) -> None:
        """Start from what earlier sessions spent.

        Args:
            spent: sums of `Completion.usage` by name over all journalled answers, and ``lost``, the requests that
                brought none.
            journal: what remembers the requests of this session for later ones; None where there are none.
        """
        with self._changed:
            self.journal = journal
            self.calls = int(spent.get("requests", 0) + spent.get("lost", 0))
            self.tokens = _tokens(spent)
            self.usd = float(spent.get("usd", 0.0))

    def end(self) -> None:
        """Forget the journal: what is asked from now on belongs to no run."""
        self.journal = None

    @contextmanager
    def reserve(self, prompt_tokens: int, output_tokens: int, key: CallKey | None = None) -> Iterator[Reservation]:
        """Set aside the most that a call can cost; wait while calls under way may still leave room for it."""
        reservation = Reservation(self, prompt_tokens, output_tokens, key)
        with self._changed:
            while problem := self._problem(reservation):
                if not self._held:
                    raise NotSentError(problem)
                self._changed.wait()
            self._held.append(reservation)
        try:
            yield reservation
        except (OSError, ValueError):
            reservation.give_up()
            raise
        finally:
            with self._changed:
                self._held.remove(reservation)
                self._spend(reservation.cost)

    def spend(self, cost: Mapping[str, float]) -> None:
        """Count what a request that brought no answer can have cost."""
        with self._changed:
            self._spend(cost)

    def _spend(self, cost: Mapping[str, float]) -> None:
        self.tokens += _tokens(cost)
        self.usd += cost.get("usd", 0.0)
        self._changed.notify_all()

    def count_call(self, change: int = 1, *, room: bool = False) -> str | None:
        """Count a request that is about to be made, or was not made after all; return why it must not be made.

        With ``room``, what was set aside must still fit: an earlier request of the same call may have been charged.
        """
        with self._changed:
            problem = self._too_many_calls() if change > 0 else None
            problem = problem or (self._problem(None) if room else None)
            self.calls += 0 if problem else change
            return problem

    def _problem(self, wanted: Reservation | None) -> str | None:
        """Return why a further call, or another request of those under way, would not fit; None where it does."""
        caps = self._caps
        held = [*self._held, *([] if wanted is None else [wanted])]
        tokens, usd = sum(one.tokens for one in held), sum(one.usd for one in held)
        if caps.tokens is not None and self.tokens + tokens > caps.tokens:
            return (
                f"caps.tokens must leave room for the next call: {self.tokens} of {caps.tokens} tokens are spent, and "
                f"those under way may take {tokens} (max_tokens, and the most that a prompt can have); {_GO_ON}"
            )
        if caps.usd is not None and self.usd + usd > caps.usd:
            return (
                f"caps.usd must leave room for the next call: {self.usd:.6f} of {caps.usd:g} USD are spent, and those "
                f"under way may take {usd:.6f}; {_GO_ON}"
            )
        return self._too_many_calls()

    def _too_many_calls(self) -> str | None:
        most = self._caps.calls
        if most is None or self.calls < most:
            return None
        return f"caps.calls must leave room for the next call: {self.calls} of {most} requests are made; {_GO_ON}"


def _tokens(cost: Mapping[str, float]) -> int:
    return int(sum(cost.get(name, 0) for name in ("prompt_tokens", "output_tokens", "tokens_at_most")))


def most_text_tokens(text: str) -> int:
    """Return the most tokens that a text can have: the bytes of its longest normal form, and a blank before it."""
    if text.isascii():
        return len(text) + 1
    forms = (text, *(unicodedata.normalize(form, text) for form in _FORMS))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1


def most_answer_tokens(max_tokens: int) -> int:
    """Return the most tokens of an earlier answer in a prompt; the model wrote it within its limit."""
    return max_tokens + _BLANK


def most_prompt_tokens(messages: Sequence[Message], max_tokens: int) -> int:
    """Return the most tokens that a chat can have on a server that renders it."""
    total = CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * len(messages)
    for message in messages:
        most = most_text_tokens(message.content)
        total += min(most, most_answer_tokens(max_tokens)) if message.role == "assistant" else most
    return total
