"""The journal of calls: each answer that costs money or minutes is committed before it is used.

A call is first sent, then done. A killed process loses only the calls in flight: on resuming, these are counted as lost
and sent again. A call that is done is never sent again. Requests without an answer, including retries, are counted with
their call, as is their maximum cost, which is committed before each request.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from goalscope._ground.ids import content_id
from goalscope.agents.agent import Agent, Observation, Turn, check_usage
from goalscope.agents.models.base import CallKey
from goalscope.runs import tables
from goalscope.runs.codec import TURN_COLUMNS, Cell, decode_json, decode_turn, encode_json, encode_turn
from goalscope.runs.store import Store
from goalscope.runs.tables import marks

_STATE, _LOST, _SENT, _TURN, _USAGE = 6, 7, 8, 10, -2  # `lost`: unanswered requests; a turn's columns are last
_PLAIN = {int, float, str, bytes, type(None)}  # types that SQLite returns unchanged
_CHANGING = f"state, lost, sent, done, {TURN_COLUMNS}"
_COLUMNS = f"id, agent_id, prompt, episode_id, step, attempt, {_CHANGING}"
_INSERT = f"INSERT OR IGNORE INTO calls ({_COLUMNS}) VALUES ({marks(_COLUMNS)})"
# columns that are not part of an index
_UPDATE = f"UPDATE calls SET ({_CHANGING}) = ({marks(_CHANGING)}) WHERE id = ?"


@dataclass(slots=True)
class _OpenCall:
    """The state of a call in progress.

    Attributes:
        id: id of the call.
        lost: maximum cost of the requests without an answer, by name, including earlier sessions.
        answered_cost: maximum cost of the answered requests, while the call is not done.
        pending: maximum cost of the pending request, or None.
        failed: number of requests of this session without an answer.
        answered: number of requests of this session with an answer.
        row: the call as stored, None if that is unknown.
    """

    id: str
    lost: dict[str, float]
    answered_cost: dict[str, float] = field(default_factory=dict)
    pending: Mapping[str, float] | None = None
    failed: int = 0
    answered: int = 0
    row: tuple[Cell, ...] | None = None

    def usage(self) -> str | None:
        """Return the maximum cost of the call so far, as it is stored; None if it cost nothing."""
        total = _sum(self.lost, self.answered_cost, self.pending or {})
        return encode_json(total) if total else None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One question to a model, as the journal of a run identifies it; calls with equal attributes share one answer.

    Attributes:
        agent_id: content id of the agent's description: model, revision, sampling parameters.
        prompt: content id of the exact prompt.
        episode_id: content id of the episode.
        step: number of the step, counted from 0.
        attempt: 0, or the number of the retry.
    """

    agent_id: str
    prompt: str
    episode_id: str
    step: int
    attempt: int

    @cached_property
    def id(self) -> str:
        """Content id of the call, a hash of its five attributes, under which the journal stores it."""
        return content_id("call", [self.agent_id, self.prompt, self.episode_id, self.step, self.attempt])


def call_for(agent: Agent, identity: str, observation: Observation) -> Call:
    """Return the call (the question to a model) that belongs to an observation, so that its answer can be found in the
    journal.

    The call is identified by the exact text that the agent would send, including all messages and templates, which the
    agent's method ``prompt`` returns. For an agent without this method, the whole observation identifies the call.

    Args:
        agent: the agent.
        identity: the agent's content id.
        observation: the observation.
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
    """The journal of a run: which calls to its models were sent, and their answers.

    An interrupted run can thus resume without asking again. The store must be open for writing. Opening the journal
    counts the calls that were sent but not answered when an earlier process died.

    Attributes:
        lost: number of these calls.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open_calls: dict[tuple[str, int, int], _OpenCall] = {}  # calls that are being made
        with store.transaction() as database:
            sent = [key for (key,) in database.execute("SELECT id FROM calls WHERE state = 'sent'")]
            self.lost = len(sent)
            database.execute("UPDATE calls SET state = 'lost', lost = lost + 1 WHERE state = 'sent'")
            tables.seal(database, "call", sent)
            # Answers that a new call may find already stored.
            self._unanswered = {key for (key,) in database.execute("SELECT id FROM calls WHERE state != 'done'")}

    def find(self, call: Call) -> Turn | None:
        """Return the stored answer to a call; None if the call was never answered."""
        rows = self._store.entries("call", "WHERE calls.id = ? AND calls.state = 'done'", (call.id,))
        return decode_turn(rows[0][_TURN:]) if rows else None

    def send(self, calls: Sequence[Call]) -> None:
        """Record that calls are about to be sent, in one transaction, so that an interruption leaves a trace of
        them.
        """
        now = time.time()
        opened = {call.id: _OpenCall(call.id, self._lost_cost(call)) for call in calls}
        with self._lock:
            self._open_calls |= {_key(call): opened[call.id] for call in calls}
        with self._changing(*opened.values()) as database:
            for call in calls:
                call_columns = (call.id, call.agent_id, call.prompt, call.episode_id, call.step, call.attempt)
                row: tuple[Cell, ...] = (
                    *call_columns,
                    "sent",
                    0,
                    now,
                    None,
                    *[None] * (_COLUMNS.count(",") + 1 - _TURN),
                )
                if database.execute(_INSERT, row).rowcount:
                    opened[call.id].row = _sealed(database, row)
                else:
                    self._write(database, opened[call.id], state="sent", sent=now)

    def _lost_cost(self, call: Call) -> dict[str, float]:
        """Return the maximum cost of those requests of earlier sessions that were never answered."""
        if call.id not in self._unanswered:
            return {}
        rows = self._store.entries("call", "WHERE calls.id = ? AND calls.state != 'done'", (call.id,))
        cost = decode_json(rows[0][_USAGE], "the usage of a call") if rows and rows[0][_USAGE] else {}
        check_usage(cost)
        return {name: float(value) for name, value in cost.items()}

    def withdraw(self, calls: Sequence[Call]) -> None:
        """Record that nothing more will be sent for some calls, because the run stops or a cap is reached.

        A call without any request is removed from the journal. Requests that were sent without an answer still count as
        lost.
        """
        with self._lock:
            open_calls = [self._open_calls[_key(call)] for call in calls]
            for open_call in open_calls:
                open_call.pending = None
        with self._changing(*open_calls) as database:
            for open_call in open_calls:
                row = self._stored(database, open_call)
                if row[_STATE] != "done" and (lost := int(row[_LOST]) + open_call.answered):
                    self._unanswered.add(open_call.id)
                    self._write(database, open_call, state="lost", lost=lost, usage=open_call.usage())
                elif row[_STATE] != "done":
                    database.execute("DELETE FROM calls WHERE id = ?", (open_call.id,))
                    tables.seal(database, "call", [open_call.id])
        self._forget(calls)

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Record that a request of a call is about to be sent; any thread may call this.

        Args:
            key: the call: (root seed, episode id, step, attempt).
            most: maximum cost of the request, name -> tokens or USD.
        """
        with self._lock:
            open_call = self._open_calls[key[1:]]
            if open_call.pending is not None:  # another request of the same call, after an answered request
                open_call.answered += 1
                open_call.answered_cost = _sum(open_call.answered_cost, open_call.pending)
            open_call.pending = dict(most)
        with self._changing(open_call) as database:
            self._write(database, open_call, state="sent", usage=open_call.usage())

    def unsent(self, key: CallKey) -> None:
        """Take back the record that `asking` made of a request, because it was never sent; any thread may call this.

        Args:
            key: the call: (root seed, episode id, step, attempt).
        """
        with self._lock:
            open_call = self._open_calls[key[1:]]
            open_call.pending = None
        with self._changing(open_call) as database:
            self._write(database, open_call, state="sent", usage=open_call.usage())

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Record that a request was sent but got no usable answer; any thread may call this.

        Args:
            key: the call: (root seed, episode id, step, attempt).
            cost: maximum cost of the request, name -> tokens or USD.
        """
        with self._lock:
            open_call = self._open_calls[key[1:]]
            open_call.pending = None
            open_call.failed += 1
            open_call.lost = _sum(open_call.lost, cost)
        with self._changing(open_call) as database:
            lost = int(self._stored(database, open_call)[_LOST]) + 1
            self._write(database, open_call, state="lost", lost=lost, usage=open_call.usage())

    @contextmanager
    def _changing(self, *open_calls: _OpenCall) -> Iterator[sqlite3.Connection]:
        """Commit changes of calls; if the commit fails, what is stored about these calls is treated as unknown."""
        try:
            with self._store.transaction() as database:
                yield database
        except BaseException:
            for open_call in open_calls:
                open_call.row = None
            raise

    def _stored(self, database: sqlite3.Connection, open_call: _OpenCall) -> tuple[Any, ...]:
        if open_call.row is None:
            select = f"SELECT {_COLUMNS} FROM calls WHERE id = ?"
            open_call.row = tuple(database.execute(select, (open_call.id,)).fetchone())
        return open_call.row

    def _write(self, database: sqlite3.Connection, open_call: _OpenCall, **changes: Cell) -> None:
        """Change columns of a call, unless the call is done."""
        row = self._stored(database, open_call)
        if row[_STATE] != "done":
            changed = tuple(changes.get(name, cell) for name, cell in zip(_COLUMNS.split(", "), row, strict=True))
            self._replace(database, open_call, changed)

    def _replace(self, database: sqlite3.Connection, open_call: _OpenCall, row: tuple[Cell, ...]) -> None:
        database.execute(_UPDATE, (*row[_STATE:], open_call.id))
        open_call.row = _sealed(database, row)

    def spent(self, identity: str) -> dict[str, float]:
        """Return what an agent has cost so far, over all sessions of the run: name of the cost -> tokens, seconds or
        USD.

        The entry ``lost`` is the number of requests without an answer. Of a call that was answered in the end, only the
        lost requests of earlier sessions count; those of the session with the answer are part of its costs.

        Args:
            identity: the agent's content id.
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
        """Commit answers to the store and return them as they are stored; only then may they be used.

        A call can take several requests. The stored cost of its answer also includes the maximum cost of each of its
        requests that got no answer, in this session or an earlier one. An interrupt may come at any point: calling this
        again with the same answers does no harm.
        """
        now = time.time()
        with self._lock:
            open_calls = [self._open_calls.get(_key(call)) for call, _ in answered]
        completed = [
            (_with_lost(turn, open_call), open_call)
            for (_, turn), open_call in zip(answered, open_calls, strict=True)
            if open_call is not None
        ]
        with self._changing(*(open_call for _, open_call in completed)) as database:
            for turn, open_call in completed:
                # The usage of an answer includes all requests of this session.
                row = self._stored(database, open_call)
                if row[_STATE] != "done":
                    changed = (
                        *row[:_STATE],
                        "done",
                        row[_LOST] - open_call.failed,
                        row[_SENT],
                        now,
                        *encode_turn(turn),
                    )
                    self._replace(database, open_call, changed)
        stored = {open_call.id: turn for turn, open_call in completed}
        turns = [stored.get(call.id) or self.find(call) for call, _ in answered]
        self._forget([call for call, _ in answered])
        return [turn for turn in turns if turn is not None]

    def _forget(self, calls: Sequence[Call]) -> None:
        with self._lock:
            for call in calls:
                self._open_calls.pop(_key(call), None)


def _sealed(database: sqlite3.Connection, row: tuple[Cell, ...]) -> tuple[Cell, ...] | None:
    """Store the checksum of a call that was just written.

    Return the call as it is stored, or None if that is unknown.
    """
    if _PLAIN.issuperset(map(type, row)):
        tables.seal_row(database, "call", row)
        return row
    tables.seal(database, "call", row[:1])
    return None


def _key(call: Call) -> tuple[str, int, int]:
    return call.episode_id, call.step, call.attempt


def _with_lost(turn: Turn, call: _OpenCall) -> Turn:
    return replace(turn, usage=_sum(turn.usage, call.lost)) if call.lost else turn


def _sum(*costs: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(cost.get(name, 0) for cost in costs) for name in dict.fromkeys(chain.from_iterable(costs))}
