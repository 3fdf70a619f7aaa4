"""A tree of the beginnings of prompts with their keys and values, so that a beginning is computed once.

Each node holds the tokens between two branches and one row of numbers per token: keys and values of all layers. Nodes
that no prompt has needed for longest are removed first when the tree exceeds its memory.
"""

import os
import threading
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]

_SHARE: Final = 32  # a tree may occupy one part in so many of the memory of the device
_MOST: Final = 1 << 30  # maximum bytes of a tree in the memory of the processor


def device_memory(device: Any) -> int:
    """Return the bytes of memory of a device. They depend on the machine alone, so that runs can be repeated."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit(device: Any) -> int:
    """Return the maximum bytes of a tree on a device."""
    share = device_memory(device) // _SHARE
    return share if device.type == "cuda" else min(_MOST, share)


class _Node:
    """Some tokens after those of the parent, and their columns ``[tokens, numbers]``."""

    __slots__ = ("children", "columns", "parent", "tokens", "used")

    def __init__(self, tokens: Tokens, columns: Any, parent: "_Node | None") -> None:
        self.tokens, self.columns, self.parent = tokens, columns, parent
        self.children: dict[int, _Node] = {}
        self.used = 0

    @property
    def n_bytes(self) -> int:
        return int(self.columns.numel() * self.columns.element_size())


class Prefixes:
    """A tree of beginnings of prompts, which several threads may use.

    Args:
        limit: maximum bytes of the stored columns.

    Attributes:
        shapes: shape of the parts of a column, see `goalscope.agents.models.cache.columns_of`.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self._bytes, self._lock, self._clock = limit, 0, threading.Lock(), count(1)
        self._root, self._stamp = _Node(np.zeros(0, np.int64), None, None), 0
        self.shapes: Sequence[tuple[Any, ...]] = ()

    def keep_for(self, stamp: int) -> None:
        """Forget everything unless the stamp is that of the previous call, i.e. the weights are the same."""
        with self._lock:
            if stamp != self._stamp:
                self._stamp, self._bytes, self._root = stamp, 0, _Node(np.zeros(0, np.int64), None, None)

    def find(self, tokens: Sequence[int]) -> tuple[int, list[Any]]:
        """Return how many tokens of a beginning are stored, and their columns in pieces."""
        sought, begin, pieces = np.asarray(tokens, dtype=np.int64), 0, []
        with self._lock:
            node, now = self._root, next(self._clock)
            while begin < len(sought) and (child := node.children.get(int(sought[begin]))) is not None:
                equal = _equal(child.tokens, sought[begin:])
                pieces.append(child.columns[:equal])
                child.used, begin = now, begin + equal
                if equal < len(child.tokens):
                    break
                node = child
        return begin, pieces

    def put(self, tokens: Sequence[int], begin: int, columns: Any) -> None:
        """Store the columns of ``tokens[begin:]``; what is stored already, or has no stored beginning, is left out."""
        added, at = np.asarray(tokens, dtype=np.int64), 0
        with self._lock:
            node, now = self._root, next(self._clock)
            while at < len(added) and (child := node.children.get(int(added[at]))) is not None:
                equal = _equal(child.tokens, added[at:])
                at, child.used = at + equal, now
                if equal < len(child.tokens):
                    child = self._split(child, equal) if at < len(added) else child
                node = child
            if begin <= at < len(added):
                leaf = _Node(added[at:].copy(), columns[at - begin :].clone(), node)
                leaf.used = now
                node.children[int(added[at])] = leaf
                self._bytes += leaf.n_bytes
                if self._bytes > self.limit:
                    self._shrink()

    def _split(self, node: _Node, length: int) -> _Node:
        """Divide a node after some tokens; return the first part."""
        assert node.parent is not None
        first = _Node(node.tokens[:length], node.columns[:length].clone(), node.parent)
        first.used, first.children[int(node.tokens[length])] = node.used, node
        node.parent.children[int(node.tokens[0])] = first
        node.tokens, node.columns, node.parent = node.tokens[length:], node.columns[length:].clone(), first
        return first

    def _shrink(self) -> None:
        """Remove the leaves that have gone unused for longest, until a quarter of the memory is free."""
        while self._bytes > self.limit * 3 // 4:
            leaves, branches = list[_Node](), [self._root]
            while branches:
                for child in branches.pop().children.values():
                    (branches if child.children else leaves).append(child)
            for leaf in sorted(leaves, key=lambda leaf: leaf.used):
                assert leaf.parent is not None
                del leaf.parent.children[int(leaf.tokens[0])]
                self._bytes -= leaf.n_bytes
                if self._bytes <= self.limit * 3 // 4:
                    break


def _equal(first: Tokens, second: Tokens) -> int:
    """Return the length of the common beginning of two texts."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length
