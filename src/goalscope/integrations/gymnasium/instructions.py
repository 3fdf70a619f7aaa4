"""Memory of BabyAI's instruction verifiers, which is part of the state of a level.

A verifier remembers which of two instructions are done, what the agent carried in the previous step, and where the
objects of its instruction lay at the last drop. Which objects an instruction refers to is fixed at the beginning of an
episode.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Memory = tuple[Any, ...]
_NOTHING = -1


class VerifierMemory:
    """Access to the memory of a level's verifiers.

    Args:
        level: a level of BabyAI at the beginning of an episode.
        movable: its movable objects.
    """

    def __init__(self, level: Any, movable: Sequence[Any]) -> None:
        nodes = list(_nodes(level.instrs))
        self._movable = movable
        self._number: Mapping[int, int] = {id(item): number for number, item in enumerate(movable)}
        self._sequences = [node for node in nodes if hasattr(node, "a_done")]
        self._carriers = [node for node in nodes if hasattr(node, "preCarrying")]
        names = {"GoToInstr": "desc", "PutNextInstr": "desc_fixed"}  # verifiers that depend on object positions
        self._described = [getattr(node, names[type(node).__name__]) for node in nodes if type(node).__name__ in names]

    def read(self) -> Memory:
        """Return the memory as a hashable value."""
        return (
            tuple((node.a_done == "success", node.b_done == "success") for node in self._sequences),
            tuple(
                _NOTHING if node.preCarrying is None else self._number[id(node.preCarrying)] for node in self._carriers
            ),
            tuple(tuple((int(col), int(row)) for col, row in described.obj_poss) for described in self._described),
        )

    def write(self, memory: Memory) -> None:
        """Set the verifiers to a stored memory."""
        sequences, carried, positions = memory
        for node, (first, second) in zip(self._sequences, sequences, strict=True):
            node.a_done, node.b_done = "success" if first else False, "success" if second else False
        for node, number in zip(self._carriers, carried, strict=True):
            node.preCarrying = None if number == _NOTHING else self._movable[number]
        for described, places in zip(self._described, positions, strict=True):
            described.obj_poss = list(places)


def _nodes(instruction: Any) -> Iterator[Any]:
    """Yield an instruction and all instructions nested in it."""
    yield instruction
    for part in ("instr_a", "instr_b"):
        if hasattr(instruction, part):
            yield from _nodes(getattr(instruction, part))
