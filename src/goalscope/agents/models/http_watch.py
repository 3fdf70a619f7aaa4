"""Detect a server that has stopped: requests are waiting, but it sends nothing.

Each request has its own deadline (`server.timeout`), which must be long because a single answer can take long. A
stopped server can be detected much earlier, since it sends nothing on any connection. The watch of a client measures
how long a server has sent nothing while at least one request was waiting. After `server.silence` seconds, it requests
the page of models, which costs nothing and which a working server returns at once:

* No answer: the server has stopped.
* An answer: the server is running, but its model may hang. The watch then waits only as long as an answer can take.
  Before the first answer this is `server.timeout`, since the weights may still be loading. Later it is the maximum
  number of tokens of an answer times the mean time per token so far, but at most `server.timeout`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from goalscope._ground.progress import TALLY, duration
from goalscope.agents.models.http_settings import Server

_BEAT: Final = 1.0  # maximum seconds between two checks; less if `server.silence` is short
_LOOKS: Final = 20  # minimum number of checks within the allowed silence
_SHOWN_AFTER: Final = 0.1  # share of the allowed silence after which the progress line shows the silence


class Expiring(Protocol):
    """A request that another thread can end."""

    def expire(self, reason: str) -> None:
        """End the request now, with an error that states the reason."""
        ...


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
        self._requests: set[Expiring] = set()
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
    def request(self, request: Expiring) -> Iterator[None]:
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
        """Record an answer's tokens and duration in seconds; the next answer may have up to ``most_tokens``."""
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
