"""Shards of a study, which divide its episodes into n parts that different machines can run.

The parts depend only on the study, not on the state of a run. All trajectories of one agent in one world form a unit;
units are numbered in the order of the study (agent by agent, world by world), and shard k of n has the units k - 1,
k - 1 + n, k - 1 + 2 n, ... So all shards have about the same number of worlds of each size.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from goalscope._ground.untrusted import DamagedError
from goalscope.runs.store import Store

Item = TypeVar("Item")

_INFO = "shard"
_MAX_SHARDS = 100_000


@dataclass(frozen=True, slots=True, order=True)
class StudyShard:
    """Shard of a study: a part that can be run separately, e.g. on another machine. ``3/16`` is the third of 16 parts.

    Attributes:
        number: number of the part, counted from 1.
        of: number of parts.

    Raises:
        ValueError: if a number is out of range.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= _MAX_SHARDS:
            raise ValueError(
                f"a shard must be K/N with 1 <= K <= N <= {_MAX_SHARDS:,}, got {self}: the first of 16 parts is 1/16"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as ``3/16``; raise a ValueError if it has another form."""
        if not re.fullmatch(r"[0-9]{1,6}/[0-9]{1,6}", text):
            raise ValueError(f"a shard must be K/N, e.g. 3/16 for the third of 16 parts, got {text!r}")
        number, of = map(int, text.split("/"))
        return cls(number, of)

    def part(self, specified: Iterable[Item], trajectories: int) -> Iterator[Item]:
        """Yield the episodes of a study that belong to this shard; the episodes are given in the order of
        `Study.specs`.
        """
        for index, item in enumerate(specified):
            if (index // trajectories) % self.of == self.number - 1:
                yield item


def shard_of(store: Store) -> StudyShard | None:
    """Return the shard of its study that a run directory contains, None if it is for the whole study."""
    cells = store.query("SELECT value FROM info WHERE name = ?", (_INFO,))
    value: Any = store.info().get(_INFO) if cells else None
    if value is None:
        return None
    if not isinstance(value, str):
        raise DamagedError(f"{store.path} must name its shard as text, got {type(value).__name__}: the file is damaged")
    return StudyShard.parse(value)


def keep_to_shard(store: Store, shard: StudyShard | None) -> None:
    """Store the shard of a new run directory; raise a ValueError if an existing one has another part of its study."""
    if not store.query("SELECT EXISTS (SELECT 1 FROM sessions)")[0][0]:
        store.put_info(_INFO, None if shard is None else str(shard))
        return
    stored = shard_of(store)
    if stored != shard:
        stored_part, requested = (f"shard {part}" if part else "the whole study" for part in (stored, shard))
        advice = f"give --shard {stored}" if stored else "leave --shard out"
        raise ValueError(
            f"{store.path} was begun with {stored_part}, got {requested}: {advice}, or choose another directory"
        )


def listed_units(store: Store) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the agents of a run as (id, name), and the ids of its worlds, both in the order of its study."""
    agents = store.query("SELECT id, name FROM agents ORDER BY rowid")
    worlds = store.query("SELECT id FROM worlds ORDER BY rowid")
    return [(identity, name) for identity, name in agents], [identity for (identity,) in worlds]


def episodes_of(
    shard: StudyShard, agents: Sequence[tuple[str, str]], worlds: Sequence[str], trajectories: int
) -> set[tuple[str, str, int]]:
    """Return (agent id, world id, trajectory) of each episode of a shard."""
    units = (
        (agent, world, trajectory) for agent, _ in agents for world in worlds for trajectory in range(trajectories)
    )
    return set(shard.part(units, trajectories))
