"""Decode the requests of several runs that use the same local weights together, in common batches.

A batch begins when each participating run has either submitted requests or left. It contains the requests of all runs,
in the order of the runs. Which requests share a batch, and thus the last bits of a result, therefore does not depend on
timing.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from goalscope._ground.progress import Arrived, StoppedError
from goalscope.agents.models.decode import Decoded, Decoding, Prompts, Streams

Decode = Callable[[Decoding, Prompts, Streams, Arrived[Decoded]], object]
"""Function that decodes requests with certain weights; requests with equal functions are decoded in one call."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Asked:
    """The requests of one run, and their outcome."""

    number: int
    decode: Decode
    settings: Decoding
    prompts: Prompts
    rngs: Streams
    arrived: Arrived[Decoded]
    problem: BaseException | None = None
    done: bool = False

    def take(self, outputs: Sequence[tuple[int, Decoded]]) -> None:
        """Pass outputs to the run; an error that this raises affects only this run."""
        if self.problem is None:
            try:
                self.arrived(outputs)
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the run
                self.problem = error


@dataclass(slots=True)
class Gathering:
    """A group of ``count`` runs, numbered from 0, each in a thread of its own; a run leaves when it ends."""

    count: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _asked: dict[int, _Asked] = field(default_factory=dict)
    _left: set[int] = field(default_factory=set)
    _busy: bool = False

    def leave(self, number: int) -> None:
        """Leave the group, so that later batches do not wait for this run."""
        with self._changed:
            self._left.add(number)
            self._changed.notify_all()

    def ask(
        self,
        number: int,
        decode: Decode,
        settings: Decoding,
        prompts: Prompts,
        rngs: Streams,
        arrived: Arrived[Decoded],
    ) -> None:
        """Decode a run's requests together with those of all other runs, and pass the outputs to ``arrived``.

        Args:
            number: number of the run.
            decode: the function that generates the outputs with the model of this run.
            settings: decoding settings; requests with other settings are decoded separately.
            prompts: ``[N]`` token ids of each request.
            rngs: ``[N]`` random stream of each request.
            arrived: called from the threads that decode.
        """
        mine = _Asked(number=number, decode=decode, settings=settings, prompts=prompts, rngs=rngs, arrived=arrived)
        with self._changed:
            self._asked[number] = mine
            self._changed.notify_all()
            while not mine.done and not self._is_complete(number):
                self._changed.wait()
            if not mine.done:
                batch = [self._asked.pop(request) for request in sorted(self._asked)]
                self._busy = True
        if not mine.done:
            try:
                _decode(batch)
            finally:
                with self._changed:
                    self._busy = False
                    for request in batch:
                        request.done = True
                    self._changed.notify_all()
        if mine.problem is not None:
            raise mine.problem

    def _is_complete(self, number: int) -> bool:
        """Return whether a batch can begin now and this run is the one that decodes it."""
        everybody = len(self._asked) + len(self._left) == self.count
        return not self._busy and everybody and number == min(self._asked)


def _decode(batch: Sequence[_Asked]) -> None:
    """Decode the requests of a batch; requests with the same weights and settings are decoded in one call."""
    groups: list[list[_Asked]] = []
    for request in batch:
        group = next(
            (
                group_so_far
                for group_so_far in groups
                if (group_so_far[0].decode, group_so_far[0].settings) == (request.decode, request.settings)
            ),
            None,
        )
        groups.append([request]) if group is None else group.append(request)
    for group in groups:
        places = [(request, place) for request in group for place in range(len(request.prompts))]

        def hand_out(outputs: Sequence[tuple[int, Decoded]], group: Any = group, places: Any = places) -> None:
            for request in group:
                request.take([(places[index][1], output) for index, output in outputs if places[index][0] is request])
            if all(request.problem is not None for request in group):
                raise StoppedError

        prompts = [prompt for request in group for prompt in request.prompts]
        rngs = [rng for request in group for rng in request.rngs]
        try:
            group[0].decode(group[0].settings, prompts, rngs, hand_out)
        except BaseException as error:  # noqa: BLE001 - raised in the threads of all runs
            for request in group:
                request.problem = request.problem or error
