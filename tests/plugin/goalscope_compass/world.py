"""A frozen lake that is crossed in leaps: longer ones are faster, and the ice may break."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from goalscope.runs import world_kind
from goalscope.worlds import Session, View, World

ACTIONS = ("stay", "back", "step", "leap", "dash")
MOVES = (0, -1, 1, 2, 3)


class IceView(View):
    """Where the agent stands."""

    shows = "a frozen lake"
    actions = ACTIONS

    def __init__(self, cell: int, width: int) -> None:
        self.cell, self.width = cell, width

    @property
    def text(self) -> str:
        return f"You stand at metre {self.cell} of a frozen lake of {self.width} metres. The far shore is the goal."

    @property
    def admissible(self) -> tuple[int, ...]:
        return (0, 2, 3, 4) if self.cell == 0 else (0, 1, 2, 3, 4)


class IceSession(Session):
    """One crossing."""

    def __init__(self, width: int, risk: float, rng: np.random.Generator) -> None:
        self.width, self.risk, self.rng = width, risk, rng
        self.cell, self.broken = 0, False
        self.last = 0.0

    @property
    def view(self) -> IceView:
        return IceView(self.cell, self.width)

    @property
    def state(self) -> tuple[int, ...]:
        return self.cell, int(self.broken)

    @property
    def solved(self) -> bool:
        return self.cell >= self.width and not self.broken

    @property
    def done(self) -> bool:
        return self.broken or self.solved

    @property
    def reward(self) -> float:
        return self.last

    def step(self, action: int | None) -> None:
        metres = 0 if action is None else MOVES[action]
        self.broken = bool(self.rng.random() < self.risk * max(0, metres - 1))
        self.cell = min(max(0, self.cell + metres), self.width)
        self.last = -10.0 if self.broken else 10.0 if self.solved else -1.0


@dataclass(frozen=True, kw_only=True)
class IceWorld(World):
    """A lake: how wide it is, and how probable it is that the ice breaks, for each metre of a leap after the first."""

    kind: ClassVar[str] = "ice"
    view: ClassVar[type[View]] = IceView
    width: int
    risk: float

    def begin(self, rng: np.random.Generator) -> IceSession:
        return IceSession(self.width, self.risk, rng)

    def to_plain(self) -> dict[str, Any]:
        return {"width": self.width, "risk": self.risk}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Any] | None = None) -> Self:
        return cls(width=int(plain["width"]), risk=float(plain["risk"]), cluster=cluster, tags=tags or {})


@world_kind("ice", world=IceWorld)
class IceWorlds(BaseModel):
    """Lakes of some widths."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ice"]
    widths: list[int] = Field(min_length=1)
    risk: float = Field(default=0.1, ge=0, le=0.5)

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[IceWorld]:
        """Yield one lake for each width."""
        for width in self.widths:
            yield IceWorld(width=width, risk=self.risk, tags={"kind": "ice", "width": width})
