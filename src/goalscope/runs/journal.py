"""The journal of calls: each answer that is worth money or minutes is committed before it is used.

A call is sent, then done. A process killed in between loses the calls in flight, and no others: they are found still
sent when the run goes on, counted as lost, and sent again. A call that is done is never sent a second time. Requests
that brought no answer, retries too, are counted with their call, and so is the most that they can have cost: it is
committed before each request is made.
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
class _UnderWay:
    """What is known of a call that is being made.

    Attributes:
        id: of the call.
        lost: the most that requests without an answer can have cost by name, those of earlier sessions too.
        kept: the most that requests cost that were answered, while the whole call is not.
        asked: the most that the request under way can cost, None where there is none.
        failed, answered: requests of this session without and with an answer.
    """

    id: str
    lost: dict[str, float]
    kept: dict[str, float] = field(default_factory=dict)
    asked: Mapping[str, float] | None = None
    failed: int = 0
    answered: int = 0

    def usage(self) -> str | None:
        """Return the most that the call can have cost until now, as it is stored; None for nothing."""
        total = _sum(self.lost, self.kept, self.asked or {})
        return encode_json(total) if total else None


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one model response answers.

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
    """Return the call that an observation leads to; ``identity`` is the agent's content id.

    An agent with a method ``prompt`` tells the exact text that it would send, all messages and templates included;
    without it, a call is known by its whole observation.
    """
    told = getattr(agent, "prompt", None)
    sent = observation.view.journalled(observation.history) if told is None else told(observation)
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
        self._under_way: dict[tuple[str, int, int], _UnderWay] = {}  # calls that are being made, by their place
        with store.transaction() as database:
            sent = [key for (key,) in database.execute("SELECT id FROM calls WHERE state = 'sent'")]
            self.lost = len(sent)
            database.execute("UPDATE calls SET state = 'lost', lost = lost + 1 WHERE state = 'sent'")
            checksums.seal(database, "call", sent)

    def find(self, call: Call) -> Turn | None:
        """Return the answer to a call where it has arrived before."""
        found = self._store.entries("call", "WHERE calls.id = ? AND calls.state = 'done'", (call.id,))
        return decode_turn(found[0][_TURN:]) if found else None

    def send(self, calls: Sequence[Call]) -> None:
        """Commit that calls are about to be made."""
        now = time.time()
        with self._lock:
            self._under_way |= {_place(call): _UnderWay(call.id, self._lost_cost(call)) for call in calls}
        with self._store.transaction() as database:
            database.executemany(
                "INSERT INTO calls (id, agent_id, prompt, episode_id, step, attempt, state, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, 'sent', ?) "
                "ON CONFLICT (id) DO UPDATE SET state = 'sent', sent = excluded.sent WHERE state != 'done'",
                [(one.id, one.agent_id, one.prompt, one.episode_id, one.step, one.attempt, now) for one in calls],
            )
            checksums.seal(database, "call", [one.id for one in calls])

    def _lost_cost(self, call: Call) -> dict[str, float]:
        """Return what requests of earlier sessions can have cost that brought no answer."""
        found = self._store.entries("call", "WHERE calls.id = ? AND calls.state != 'done'", (call.id,))
        cost = decode_json(found[0][_USAGE], "the usage of a call") if found and found[0][_USAGE] else {}
        check_usage(cost)
        return {name: float(value) for name, value in cost.items()}

    def withdraw(self, calls: Sequence[Call]) -> None:
        """Commit that calls were not made after all, as far as they were not; what was lost before stays lost."""
        with self._lock:
            given_up = [self._under_way[_place(call)] for call in calls]
            for one in given_up:
                one.asked = None
        keys = [(one.id,) for one in given_up]
        with self._store.transaction() as database:
            database.executemany(
                "UPDATE calls SET state = 'lost', lost = lost + ?, usage = ? WHERE id = ? AND state != 'done'",
                [(one.answered, one.usage(), one.id) for one in given_up],
            )
            database.executemany("DELETE FROM calls WHERE id = ? AND state = 'lost' AND lost = 0", keys)
            checksums.seal(database, "call", [one.id for one in given_up])
        self._forget(calls)

    def asking(self, key: CallKey, most: Mapping[str, float]) -> None:
        """Commit that a request of a call is about to be made, and the most that it can cost; from any thread."""
        with self._lock:
            under_way = self._under_way[key[1:]]
            if under_way.asked is not None:  # another request of the call, after one that was answered
                under_way.answered += 1
                under_way.kept = _sum(under_way.kept, under_way.asked)
            under_way.asked = dict(most)
        self._note("state = 'sent'", under_way)

    def unsent(self, key: CallKey) -> None:
        """Commit that a request of a call was not made after all; from any thread."""
        with self._lock:
            under_way = self._under_way[key[1:]]
            under_way.asked = None
        self._note("state = 'sent'", under_way)

    def failed(self, key: CallKey, cost: Mapping[str, float]) -> None:
        """Commit that a request was made and brought no answer, and what it can have cost; from any thread."""
        with self._lock:
            under_way = self._under_way[key[1:]]
            under_way.asked = None
            under_way.failed += 1
            under_way.lost = _sum(under_way.lost, cost)
        self._note("state = 'lost', lost = lost + 1", under_way)

    def _note(self, change: str, under_way: "_UnderWay") -> None:
        with self._store.transaction() as database:
            database.execute(f"UPDATE calls SET {change}, usage = ? WHERE id = ?", (under_way.usage(), under_way.id))
            checksums.seal(database, "call", [under_way.id])

    def spent(self, identity: str) -> dict[str, float]:
        """Return what an agent cost so far: sums of the usage of its answers by name, and ``lost``.

        ``lost`` counts the requests that brought no answer: those of lost calls, and those that no later answer of
        the same session counts in its usage.
        """
        total: dict[str, float] = {"lost": 0}
        last, seen = "", 0
        while page := self._store.entries("call", "WHERE calls.id > ? ORDER BY calls.id LIMIT 1024", (last,)):
            last, seen = page[-1][0], seen + len(page)
            for row in page:
                if row[1] != identity:
                    continue
                total["lost"] += row[_LOST]
                cost = decode_json(row[_USAGE], "the usage of a call") if row[_USAGE] else {}
                check_usage(cost)
                for name, value in cost.items():
                    total[name] = total.get(name, 0.0) + value
        self._store.sums.check_keys("call", seen)
        return total

    def done(self, answered: Sequence[tuple[Call, Turn]]) -> list[Turn]:
        """Commit answers and return them as they are stored; only after this may they be used.

        What requests without an answer can have cost is part of an answer's usage. An interrupt may come at any point:
        a second call with the same answers does no harm.
        """
        now = time.time()
        marks = ", ".join(f"{column} = ?" for column in TURN_COLUMNS.split(", "))
        with self._lock:
            calls = [self._under_way.get(_place(call)) for call, _ in answered]
        due = [(_with_lost(turn, one), one) for (_, turn), one in zip(answered, calls, strict=True) if one is not None]
        with self._store.transaction() as database:
            # The usage of an answer counts all requests that it took now.
            database.executemany(
                f"UPDATE calls SET state = 'done', done = ?, lost = lost - ?, {marks} WHERE id = ? AND state <> 'done'",
                [(now, one.failed, *encode_turn(turn), one.id) for turn, one in due],
            )
            checksums.seal(database, "call", [one.id for _, one in due])
        stored = {one.id: turn for turn, one in due}
        turns = [stored.get(call.id) or self.find(call) for call, _ in answered]
        self._forget([call for call, _ in answered])
        return [turn for turn in turns if turn is not None]

    def _forget(self, calls: Sequence[Call]) -> None:
        with self._lock:
            for call in calls:
                self._under_way.pop(_place(call), None)


def _place(call: Call) -> tuple[str, int, int]:
    return call.episode_id, call.step, call.attempt


def _with_lost(turn: Turn, call: _UnderWay) -> Turn:
    return replace(turn, usage=_sum(turn.usage, call.lost)) if call.lost else turn


def _sum(*costs: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(cost.get(name, 0) for cost in costs) for name in dict.fromkeys(chain.from_iterable(costs))}
