"""The world kind of imported records: a store restores it by name, a study cannot run it."""

from collections.abc import Collection, Iterator
from typing import Literal

from goalscope.runs.kinds import Part, world_kind
from goalscope.worlds.recorded import RecordedWorld


@world_kind("recorded", world=RecordedWorld)
class RecordedWorlds(Part):
    """Recorded episodes of somebody else's environment, which `goalscope import` makes."""

    kind: Literal["recorded"]

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[RecordedWorld]:
        """Refuse: nothing can be run in a record."""
        raise ValueError(f"{path}: recorded worlds must come from goalscope import, a study cannot run them: remove it")
