"""Environments whose real state can be read and written: a base class for adapters of one's own.

The rules stay those of the real environment: a state is written into it, one step is taken, and the state is read back.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from goalscope.environments.environment import Observed

OVER, LOST = ("over", True), ("over", False)
"""States behind the end of an episode: at the goal, or anywhere else."""


class StateCopy(ABC):
    """An environment without chance that is made anew, read, written and stepped.

    A derived class gives `actions`, `make`, `read`, `write`, `words` and `describe`; where success is not just a
    reward above 0 at the end, `success`, too. What `read` leaves out shows in the play-back, which acts in a
    fresh environment without writing anything.

    Attributes:
        actions: names of the actions; the index is what the real environment's `step` is given.
    """

    actions: ClassVar[tuple[str, ...]]

    @abstractmethod
    def make(self) -> Any:
        """Return the real environment, made anew, at the beginning of an episode; always the same beginning."""

    @abstractmethod
    def read(self, real: Any) -> Hashable:
        """Return all that decides what follows, as a value that can be hashed; the number of steps left out."""

    @abstractmethod
    def write(self, real: Any, state: Any) -> None:
        """Put the real environment into a state."""

    @abstractmethod
    def words(self, state: Any) -> str:
        """Return what is seen in a state, in words."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return all that decides what happens as plain values."""

    def success(self, reward: float) -> bool:
        """Return whether an episode that ended with this reward ended at the goal."""
        return reward > 0

    def act(self, real: Any, action: int) -> Hashable:
        """Take an action in the real environment, as Gymnasium's `step`, and return the state that it leads to."""
        _, reward, over, _, _ = real.step(action)
        return (OVER if self.success(float(reward)) else LOST) if over else self.read(real)

    @cached_property
    def _real(self) -> Any:
        return self.make()

    def initial(self) -> dict[Hashable, float]:
        """Return the first state."""
        return {self.read(self.make()): 1.0}

    def step(self, state: Any, action: int) -> dict[Hashable, float]:
        """Return the state after an action."""
        self.write(self._real, state)
        return {self.act(self._real, action): 1.0}

    def done(self, state: Any) -> bool:
        """Return whether the episode is over."""
        return state in (OVER, LOST)

    def goal(self, state: Any) -> bool:
        """Return whether it ended at the goal."""
        return bool(state == OVER)

    def observe(self, state: Any) -> Observed:
        """Return what is seen in a state."""
        return Observed(text="The episode is over." if self.done(state) else self.words(state))

    def play(self, seed: int) -> "_Player":
        """Return the real environment at the beginning of an episode."""
        return _Player(self)


class _Player:
    """An episode in the real environment, into which nothing is written."""

    def __init__(self, outer: StateCopy) -> None:
        self._outer, self._real = outer, outer.make()
        self.state: Hashable = outer.read(self._real)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._outer.done(self.state)

    @property
    def goal(self) -> bool:
        """Whether it ended at the goal."""
        return self._outer.goal(self.state)

    def act(self, action: int) -> None:
        """Take an action."""
        self.state = self._outer.act(self._real, action)
