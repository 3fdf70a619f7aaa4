"""What agents that follow a rule have in common, in grids and in task worlds: kind, name, version and description."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Scripted(ABC):
    """An agent that follows a rule; its fields are the parameters of the rule, and its name.

    Attributes:
        name: short name, as tables show it; made from the kind and its parameters where none is given.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str] = ""
    """With what the kind begins in descriptions, so that agents of different worlds never share an id."""
    version: ClassVar[int] = 1
    """Number of the behaviour: raised whenever the same parameters come to mean other actions."""
    journalled: ClassVar[bool] = False

    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not self.name:
            given = ", ".join(str(value) for value in self._parameters().values())
            object.__setattr__(self, "name", f"{self.kind}({given})" if given else self.kind)

    def describe(self) -> Mapping[str, Any]:
        """Return kind, version and parameters; the name does not enter, since it changes no action."""
        return {"kind": f"{self.prefix}{self.kind}", "version": self.version, **self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "name"}
