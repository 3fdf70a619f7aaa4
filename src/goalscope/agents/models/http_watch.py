"""Notice a server that has stopped: it owes answers and sends nothing any more.

Each request has a deadline of its own (`server.timeout`), which must be long because a single answer may take long. A
server that has stopped can be noticed much earlier, since it sends nothing on any connection. The watch of a client
measures how long a server has sent nothing while at least one request was waiting for it. After `server.silence`
seconds it asks for the page of models, which costs nothing and which a working server returns at once:

* No answer: the server has stopped.
* An answer: the server runs, but its model may hang. The watch then waits only as long as an answer can take. Before
  the first answer that is `server.timeout`, since the weights may still be loading. Later it is the greatest number of
  tokens of an answer times the mean time per token so far, and at most `server.timeout`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from goalscope._ground.progress import TALLY, duration
from goalscope.agents.models.http_settings import Server

_BEAT: Final = 1.0  # seconds between two looks at the silence of a server, or less where little silence is allowed
_LOOKS: Final = 20  # fewest looks in the allowed silence
_SHOWN_AFTER: Final = 0.1  # share of the allowed silence after which the progress line shows it


class Expiring(Protocol):
    """A request that can be ended from another thread."""

    def expire(self, reason: str) -> None:
        """End the request now; the error of the request gives the reason."""
        ...


class ServerWatch:
    """Ends all requests to a server that has stopped; safe to use from several threads.

    Args:
        server: the settings of the server.
        probe: asks the server for its page of models; returns whether it answers.

    Attributes:
        stops: how often the server was found to have stopped.
        reason: what was found the last time, as one clause.
    """

    def __init__(self, server: Server, probe: Callable[[], bool]) -> None:
        self._server, self._probe = server, probe
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._requests: set[Expiring] = set()
        self._exchanges = 0  # calls that are made, with all their retries and the waits between them
        self._silent_since: float | None = None
        self._heard = False  # whether something has arrived since the last request began
        self._next_probe = 0.0
        self._watching = False
        self._tokens = self._seconds = 0.0  # of all answers
        self._longest_answer: float | None = None  # seconds
        self.stops = 0
        self.reason = ""

    @property
    def silence(self) -> float:
        """Seconds for which the server may send nothing."""
        return self._server.silence

    @contextmanager
    def exchange(self) -> Iterator[int]:
        """Watch a call with all its retries; yields `stops` as it was at the beginning."""
        with self._lock:
            self._exchanges += 1
            stops = self.stops
        try:
            yield stops
        finally:
            with self._lock:
                self._exchanges -= 1
                if not self._exchanges:
                    self._silent_since = None  # the server owes nothing any more

    @contextmanager
    def request(self, request: Expiring) -> Iterator[None]:
        """Watch one request, which is under way in this context."""
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
                # A request that failed without a byte leaves the server silent, while the client waits to try again.
                if self._heard and not self._requests:
                    self._silent_since = None

    def hear(self) -> None:
        """Record that something has arrived from the server."""
        now = time.monotonic()
        with self._lock:
            self._silent_since, self._heard = now, True
            self._next_probe = now + self._server.silence

    def learn(self, tokens: float, seconds: float, most_tokens: int) -> None:
        """Record the tokens of an answer and the seconds that it took; the next may have up to ``most_tokens``."""
        with self._lock:
            self._tokens += float(min(max(1.0, tokens), most_tokens))  # a server may report anything
            self._seconds += seconds
            self._longest_answer = self._seconds / self._tokens * most_tokens

    @property
    def silence_left(self) -> float:
        """Seconds until the allowed silence is over if nothing arrives; 0 once it is over."""
        with self._lock:
            since = self._silent_since
        return max(0.0, self._server.silence - (0.0 if since is None else time.monotonic() - since))

    def check(self) -> bool:
        """Return whether the server is now found to have stopped; all requests under way are then ended."""
        with self._checking:  # one probe at a time
            with self._lock:
                since, next_probe, longest = self._silent_since, self._next_probe, self._longest_answer
            now = time.monotonic()
            if since is None or now - since < self._server.silence:
                return False
            timeout = self._server.timeout
            may_take = max(self._server.silence, timeout if longest is None else min(timeout, longest))
            if now < next_probe and now - since < may_take:
                return False  # it answered the probe a moment ago
            answers = self._probe()
            silent = time.monotonic() - since
            with self._lock:
                if self._silent_since != since:
                    return False  # something has arrived meanwhile
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
        """Return what is wrong with the server; ``may_take``: the longest time of an answer, None where it is dead."""
        page = (
            "it does not answer at /models either"
            if may_take is None
            else f"an answer can take {duration(may_take)} at most (it does answer at /models)"
        )
        return (
            f"{self._server.base_url} has stopped answering: it has sent nothing for {duration(silent)} while requests "
            f"were waiting (server.silence: {self._server.silence:g} s), and {page}"
        )

    def _watch(self) -> None:
        """Look at the silence of the server again and again while requests are under way."""
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
