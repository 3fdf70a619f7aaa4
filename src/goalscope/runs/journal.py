"""The journal of calls: each answer that costs money or minutes is committed before it is used.

A call is sent, then done. A killed process loses only the calls in flight: when the run goes on, they are counted as
lost and sent again. A call that is done is never sent a second time. Requests without an answer, retries included, are
counted with their call, and so is their maximum cost, which is committed before each request.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from goalscope.agents.agent import Agent, Observation, Turn, check_usage
from goalscope.ids import content_id
from goalscope.models.http_budget import CallKey
from goalscope.runs import checksums
from goalscope.runs.codec import TURN_COLUMNS, decode_json, decode_turn, encode_json, encode_turn
from goalscope.runs.store import Store

_LOST, _TURN, _USAGE = 7, 10, -2  # columns of a call: requests that brought nothing, the first of a turn, its usage


@dataclass(slots=True)
class _OpenCall:
    """The state of a call that is being made.

    Attributes:
        id: of the call.
        lost: maximum cost of the requests without an answer, by name, those of earlier sessions included.
        answered_cost: maximum cost of the answered requests, while the call is not done.
        pending: maximum cost of the request under way, None where there is none.
        failed, answered: requests of this session without and with an answer.
    """

    id: str
    lost: dict[str, float]
    answered_cost: dict[str, float] = field(default_factory=dict)
    pending: Mapping[str, float] | None = None
    failed: int = 0
    answered: int = 0

    def usage(self) -> str | None:
        """Return the maximum cost of the call until now, as it is stored; None for no cost."""
        total = _sum(self.lost, self.answered_cost, self.pending or {})
        return encode_json(total) if total else None


@dataclass(frozen=True, kw_only=True)
class Call:
    """The question that one model response answers.

    Attributes:
        agent_id: content id of the agent's description: model, revision, sampling parameters.
        prompt: content id of the exact prompt.
        episode_id: content id of the episode.
        step: number of the step, 0-based.
        attempt: 0, or the number of the retry.
    """

    agent_id: str
    prompt: str
    episode_id: str
    step: int
    attempt: int

    @cached_property
    def id(self) -> str:
        """Content id of the call."""
        return content_id("call", [self.agent_id, self.prompt, self.episode_id, self.step, self.attempt])


def call_for(agent: Agent, identity: str, observation: Observation) -> Call:
    """Return the call of an observation; ``identity`` is the agent's content id.

    An agent's method ``prompt`` returns the exact text that it would send, all messages and templates included.
    Without this method, the whole observation identifies the call.
    """
    exact_prompt = getattr(agent, "prompt", None)
    sent = observation.view.journalled(observation.history) if exact_prompt is None else exact_prompt(observation)
    return Call(
        agent_id=identity,
        prompt=content_id("prompt", sent),
        episode_id=observation.episode_id,
        step=observation.step,
        attempt=observation.attempt,
    )


class Journal:
    """The calls of a store that is open for writing.

    Opening it counts the calls that an earlier process had in flight when it died.

    Attributes:
        lost: number of calls that were found lost now.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open_calls: dict[tuple[str, int, int], _OpenCall] = {}  # calls that are being made
        with store.transaction() as database:
            sent = [key for (key,) in database.execute("SELECT id FROM calls WHERE state = 'sent'")]
            self.lost = len(sent)
            database.execute("UPDATE calls SET state = 'lost', lost = lost + 1 WHERE state = 'sent'")
            checksums.seal(database, "call", sent)

    def find(self, call: Call) -> Turn | None:
        """Return the stored answer to a call, None where there is none."""
        rows = self._store.entries("call", "WHERE calls.id = ? AND calls.state = 'done'", (call.id,))
        return decode_turn(rows[0][_TURN:]) if rows else None

    def send(self, calls: Sequence[Call]) -> None:
        """Commit that calls are about to be made."""
        now = time.time()
        with self._lock:
            self._open_calls |= {_key(call): _OpenCall(call.id, self._lost_cost(call)) for call in calls}
        with self._store.transaction() as database:
            database.executemany(
                "INSERT INTO calls (id, agent_id, prompt, episode_id, step, attempt, state, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, 'sent', ?) "
                "ON CONFLICT (id) DO UPDATE SET state = 'sent', sent = excluded.sent WHERE state != 'done'",
                [
                    (call.id, call.agent_id, call.prompt, call.episode_id, call.step, call.attempt, now)
                    for call in calls
                ],
            )
            checksums.seal(database, "call", [call.id for call in calls])

    def _lost_cost(self, call: Call) -> dict[str, float]:
        """Return the maximum cost of the requests of earlier sessions that had no answer."""
        rows = self._store.entries("call", "WHERE calls.id = ? AND calls.state != 'done'", (call.id,))
        cost = decode_json(rows[0][_USAGE], "the usage of a call") if rows and rows[0][_USAGE] else {}
        check_usage(cost)
        return {name: float(value) for name, value in cost.items()}

    def withdraw(self, calls: Sequence[Call]) -> None:
        """Commit that calls, or their remaining requests, were not made; requests lost before stay lost."""
        with self._lock:
            open_calls = [self._open_calls[_key(call)] for call in calls]
            for open_call in open_calls:
                open_call.pending = None
        keys = [(open_call.id,) for open_call in open_calls]
        with self._store.transaction() as database:
            database.executemany(
                "UPDATE calls SET state = 'lost', lost = lost + ?, usage = ? WHERE id = ? AND state != 'done'",
                [(open_call.answered, open_call.usage(), open_call.id) for open_call in open_calls],
            )
            database.executemany("DELETE FROM calls WHERE id = ? AND state = 'lost' AND lost = 0", keys)
            checksums.seal(database, "call", [open_call.id for open_call in open_calls])
        self._forget(calls)

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Commit that a request of a call is about to be made, and its maximum cost; from any thread."""
        with self._lock:
            open_call = self._open_calls[key[1:]]
            if open_call.pending is not None:  # another request of the call, after one that was answered
                open_call.answered += 1
                open_call.answered_cost = _sum(open_call.answered_cost, open_call.pending)
            open_call.pending = dict(most)
        self._update("state = 'sent'", open_call)

    def unsent(self, key: CallKey) -> None:
        """Commit that a request of a call was not made after all; from any thread."""
        with self._lock:
            open_call = self._open_calls[key[1:]]
            open_call.pending = None
        self._update("state = 'sent'", open_call)

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Commit that a request had no answer, and its maximum cost; from any thread."""
        with self._lock:
            open_call = self._open_calls[key[1:]]
            open_call.pending = None
            open_call.failed += 1
            open_call.lost = _sum(open_call.lost, cost)
        self._update("state = 'lost', lost = lost + 1", open_call)

    def _update(self, change: str, open_call: "_OpenCall") -> None:
        with self._store.transaction() as database:
            database.execute(f"UPDATE calls SET {change}, usage = ? WHERE id = ?", (open_call.usage(), open_call.id))
            checksums.seal(database, "call", [open_call.id])

    def spent(self, identity: str) -> dict[str, float]:
        """Return the cost of an agent so far: sums of the usage of its answers by name, and ``lost``.

        ``lost`` is the number of requests without an answer: those of lost calls, and those that no later answer of
        the same session counts in its usage.
        """
        total: dict[str, float] = {"lost": 0}
        last, count = "", 0
        while page := self._store.entries("call", "WHERE calls.id > ? ORDER BY calls.id LIMIT 1024", (last,)):
            last, count = page[-1][0], count + len(page)
            for row in page:
                if row[1] != identity:
                    continue
                total["lost"] += row[_LOST]
                cost = decode_json(row[_USAGE], "the usage of a call") if row[_USAGE] else {}
                check_usage(cost)
                for name, value in cost.items():
                    total[name] = total.get(name, 0.0) + value
        self._store.sums.check_keys("call", count)
        return total

    def done(self, answered: Sequence[tuple[Call, Turn]]) -> list[Turn]:
        """Commit answers and return them as they are stored; only after this may they be used.

        An answer's usage includes the maximum cost of its requests without an answer. An interrupt may come at any
        point: a second call with the same answers does no harm.
        """
        now = time.time()
        marks = ", ".join(f"{column} = ?" for column in TURN_COLUMNS.split(", "))
        with self._lock:
            open_calls = [self._open_calls.get(_key(call)) for call, _ in answered]
        completed = [
            (_with_lost(turn, open_call), open_call)
            for (_, turn), open_call in zip(answered, open_calls, strict=True)
            if open_call is not None
        ]
        with self._store.transaction() as database:
            # The usage of an answer counts all requests that it took now.
            database.executemany(
                f"UPDATE calls SET state = 'done', done = ?, lost = lost - ?, {marks} WHERE id = ? AND state <> 'done'",
                [(now, open_call.failed, *encode_turn(turn), open_call.id) for turn, open_call in completed],
            )
            checksums.seal(database, "call", [open_call.id for _, open_call in completed])
        stored = {open_call.id: turn for turn, open_call in completed}
        turns = [stored.get(call.id) or self.find(call) for call, _ in answered]
        self._forget([call for call, _ in answered])
        return [turn for turn in turns if turn is not None]

    def _forget(self, calls: Sequence[Call]) -> None:
        with self._lock:
            for call in calls:
                self._open_calls.pop(_key(call), None)


def _key(call: Call) -> tuple[str, int, int]:
    return call.episode_id, call.step, call.attempt


def _with_lost(turn: Turn, call: _OpenCall) -> Turn:
    return replace(turn, usage=_sum(turn.usage, call.lost)) if call.lost else turn


def _sum(*costs: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(cost.get(name, 0) for cost in costs) for name in dict.fromkeys(chain.from_iterable(costs))}
