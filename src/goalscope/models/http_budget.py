"""Caps on calls, tokens and USD that hold: what a call may cost at most is set aside before it is made."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from goalscope.models.base import NotSentError
from goalscope.models.http_settings import Caps, Prices
from goalscope.models.http_transport import ExchangeError

_GO_ON = "what was answered is stored; raise the cap and run the same study on the same directory to go on"


CallKey = tuple[int, str, int, int]
"""(root seed, episode id, step, attempt) of a call."""


class Requests(Protocol):
    """What remembers requests over all sessions of a run; safe to use from several threads."""

    def again(self, key: CallKey) -> None:
        """Commit that a further request of a call is about to be made, after one that failed."""
        ...

    def failed(self, key: CallKey) -> None:
        """Commit that a request of a call was made and brought no answer."""
        ...


class Reservation:
    """What is set aside for one call.

    Attributes:
        requests: number of requests made for it.
        cost: what it turned out to cost, by name; None while nothing is known.
    """

    def __init__(self, budget: "Budget", tokens: int, usd: float, key: CallKey | None) -> None:
        self.requests = 0
        self.cost: Mapping[str, float] | None = None
        self._budget, self.tokens, self.usd, self._key = budget, tokens, usd, key
        self._answered = False

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one request, which is made inside; one of which nothing was sent does not count.

        Raises:
            NotSentError: the cap on calls is reached, and none was made for this call.
            ValueError: it is reached after requests that failed.
        """
        self._budget._count(first=self.requests == 0)
        journal = self._budget.journal
        if self.requests and journal is not None and self._key is not None:
            journal.again(self._key)
        self.requests += 1
        self._answered = False
        try:
            yield
            self._answered = True
        except Exception as error:
            if isinstance(error, ExchangeError) and not error.sent:
                self.requests -= 1
                self._budget._uncount()
            else:
                self._lose()
            raise

    def give_up(self) -> None:
        """Count a request that was answered, where its answer is of no use after all."""
        if self._answered:
            self._lose()

    def _lose(self) -> None:
        if self._budget.journal is not None and self._key is not None:
            self._budget.journal.failed(self._key)


class Budget:
    """What has been spent and what may be; safe to use from several threads.

    What a server charges for requests whose answer was lost on the way is not known: they count as calls alone.

    Args:
        caps: the limits.
        prices: what tokens cost; None where USD are not counted.
    """

    def __init__(self, caps: Caps, prices: Prices | None) -> None:
        self._caps, self._prices = caps, prices
        self._changed = threading.Condition()
        self._held_tokens, self._held_usd = 0, 0.0
        self.calls, self.tokens, self.usd = 0, 0, 0.0
        self.journal: Requests | None = None

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
        """Set aside the most that a call can cost; wait while calls under way may still leave room for it.

        Args:
            prompt_tokens, output_tokens: most tokens of the call.
            key: what names the call in the journal of its requests.

        Raises:
            NotSentError: it does not fit under a cap.
        """
        usd = self._prices.usd(prompt_tokens, output_tokens) if self._prices else 0.0
        reservation = Reservation(self, prompt_tokens + output_tokens, usd, key)
        with self._changed:
            while problem := self._problem(reservation):
                if not self._held_tokens:
                    raise NotSentError(problem)
                self._changed.wait()
            self._held_tokens += reservation.tokens
            self._held_usd += reservation.usd
        try:
            yield reservation
        except Exception:
            reservation.give_up()
            raise
        finally:
            with self._changed:
                self._held_tokens -= reservation.tokens
                self._held_usd -= reservation.usd
                if reservation.cost is not None:
                    self.tokens += _tokens(reservation.cost)
                    self.usd += reservation.cost.get("usd", 0.0)
                self._changed.notify_all()

    def cost(self, reservation: Reservation, prompt: int | None, output: int | None) -> dict[str, float]:
        """Return what a call cost; where the server does not say, the most that it can have cost.

        Args:
            reservation: what was set aside for it.
            prompt, output: reported tokens, None where they are not.
        """
        if prompt is None or output is None:
            found: dict[str, float] = {"tokens_at_most": reservation.tokens}
            usd = reservation.usd
        else:
            found = {"prompt_tokens": prompt, "output_tokens": output}
            usd = self._prices.usd(prompt, output) if self._prices else 0.0
        return {**found, "usd": usd} if self._prices else found

    def _problem(self, wanted: Reservation) -> str | None:
        caps = self._caps
        if caps.tokens is not None and self.tokens + self._held_tokens + wanted.tokens > caps.tokens:
            return (
                f"caps.tokens must leave room for the next call: {self.tokens} of {caps.tokens} tokens are spent, and "
                f"it may take {wanted.tokens} (max_tokens, and the most that its prompt can have); {_GO_ON}"
            )
        if caps.usd is not None and self.usd + self._held_usd + wanted.usd > caps.usd:
            return (
                f"caps.usd must leave room for the next call: {self.usd:.6f} of {caps.usd:g} USD are spent, and it may "
                f"take {wanted.usd:.6f}; {_GO_ON}"
            )
        if caps.calls is not None and self.calls >= caps.calls:
            return _no_calls(self.calls, caps.calls)
        return None

    def _count(self, *, first: bool) -> None:
        with self._changed:
            if self._caps.calls is not None and self.calls >= self._caps.calls:
                problem = _no_calls(self.calls, self._caps.calls)
                raise NotSentError(problem) if first else ValueError(problem)
            self.calls += 1

    def _uncount(self) -> None:
        with self._changed:
            self.calls -= 1


def _no_calls(made: int, cap: int) -> str:
    return f"caps.calls must leave room for the next call: {made} of {cap} requests are made; {_GO_ON}"


def _tokens(cost: Mapping[str, float]) -> int:
    return int(sum(cost.get(name, 0) for name in ("prompt_tokens", "output_tokens", "tokens_at_most")))
