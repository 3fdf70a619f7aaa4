"""The journal of calls: each answer that is worth money or minutes is committed before it is used.

A call is sent, then done. A process killed in between loses the calls in flight, and no others: they are found still
sent when the run goes on, counted as lost, and sent again. A call that is done is never sent a second time. Requests
that brought no answer, retries too, are counted with their call.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from goalscope.agents.agent import Agent, Observation, Turn, check_usage
from goalscope.ids import content_id
from goalscope.runs.codec import TURN_COLUMNS, decode_json, decode_turn, encode_turn
from goalscope.runs.store import Store


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
        self._under_way: dict[tuple[str, int, int], str] = {}  # id of each call that is being made, by its place
        self._failed: Counter[str] = Counter()  # requests of those calls that failed in this session
        with store.transaction() as database:
            self.lost = database.execute(
                "UPDATE calls SET state = 'lost', lost = lost + 1 WHERE state = 'sent'"
            ).rowcount

    def find(self, call: Call) -> Turn | None:
        """Return the answer to a call where it has arrived before."""
        found = self._store.query(f"SELECT {TURN_COLUMNS} FROM calls WHERE id = ? AND state = 'done'", (call.id,))
        return decode_turn(found[0]) if found else None

    def send(self, calls: Sequence[Call]) -> None:
        """Commit that calls are about to be made."""
        now = time.time()
        with self._lock:
            self._under_way |= {(call.episode_id, call.step, call.attempt): call.id for call in calls}
        with self._store.transaction() as database:
            database.executemany(
                "INSERT INTO calls (id, agent_id, prompt, episode_id, step, attempt, state, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, 'sent', ?) "
                "ON CONFLICT (id) DO UPDATE SET state = 'sent', sent = excluded.sent WHERE state != 'done'",
                [(one.id, one.agent_id, one.prompt, one.episode_id, one.step, one.attempt, now) for one in calls],
            )

    def withdraw(self, calls: Sequence[Call]) -> None:
        """Commit that calls were not made after all; those that were lost before stay lost."""
        keys = [(call.id,) for call in calls]
        with self._store.transaction() as database:
            database.executemany("DELETE FROM calls WHERE id = ? AND state = 'sent' AND lost = 0", keys)
            database.executemany("UPDATE calls SET state = 'lost' WHERE id = ? AND state = 'sent'", keys)
        self._forget(calls)

    def again(self, key: tuple[int, str, int, int]) -> None:
        """Commit that a further request of a call is about to be made; from any thread."""
        self._note("UPDATE calls SET state = 'sent' WHERE id = ?", key)

    def failed(self, key: tuple[int, str, int, int]) -> None:
        """Commit that a request of a call was made and brought no answer; from any thread."""
        found = self._note("UPDATE calls SET state = 'lost', lost = lost + 1 WHERE id = ?", key)
        with self._lock:
            self._failed[found] += 1

    def _note(self, statement: str, key: tuple[int, str, int, int]) -> str:
        with self._lock:
            found = self._under_way[key[1:]]
        with self._store.transaction() as database:
            database.execute(statement, (found,))
        return found

    def spent(self, identity: str) -> dict[str, float]:
        """Return what an agent cost so far: sums of the usage of its answers by name, and ``lost``.

        ``lost`` counts the requests that brought no answer: those of lost calls, and those that no later answer of
        the same session counts in its usage.
        """
        total: dict[str, float] = {"lost": 0}
        for usage, lost in self._store.query("SELECT usage, lost FROM calls WHERE agent_id = ?", (identity,)):
            total["lost"] += lost
            cost = decode_json(usage, "the usage of a call") if usage else {}
            check_usage(cost)
            for name, value in cost.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def done(self, answered: Sequence[tuple[Call, Turn]]) -> None:
        """Commit answers; only after this may they be used."""
        now = time.time()
        marks = ", ".join(f"{column} = ?" for column in TURN_COLUMNS.split(", "))
        with self._lock:
            # The usage of an answer counts all requests that it took now.
            failed = [self._failed.pop(call.id, 0) for call, _ in answered]
        with self._store.transaction() as database:
            database.executemany(
                f"UPDATE calls SET state = 'done', done = ?, lost = lost - ?, {marks} WHERE id = ?",
                [
                    (now, count, *encode_turn(turn), call.id)
                    for (call, turn), count in zip(answered, failed, strict=True)
                ],
            )
        self._forget([call for call, _ in answered])

    def _forget(self, calls: Sequence[Call]) -> None:
        with self._lock:
            for call in calls:
                self._under_way.pop((call.episode_id, call.step, call.attempt), None)
