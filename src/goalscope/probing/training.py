"""Training many small things: callbacks and one thread each side by side."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from goalscope.activations.devices import check_device, one_thread
from goalscope.probing.fitted import ProbeKey

_ONE_THREAD: Final = 4_000_000  # weights of one probe or decoder below which one thread trains
_SIDE_BY_SIDE: Final = 4  # most stacks that hold memory at the same time

Made = TypeVar("Made")
Stack = TypeVar("Stack")
Trained = TypeVar("Trained")
Passed = Callable[[int], None]
"""Told how many units of its stack are done."""


Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""


def _silent(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(Generic[Made]):
    """Where fitted things come from and go to, by their keys.

    Attributes:
        find: returns what was fitted before, None where it was not.
        keep: is called with each thing as soon as it is fitted, so that an interrupted fit can go on.
        progress: is called as the work goes on.
    """

    find: Callable[[ProbeKey], Made | None] = lambda key: None
    keep: Callable[[ProbeKey, Made], None] = lambda key, made: None
    progress: Progress = _silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Stack]):
    """A stack of probes or decoders that train as one problem.

    Attributes:
        stack: what trains.
        weights: numbers in the weights of one of its members.
        units: of progress, in all.
    """

    stack: Stack
    weights: int
    units: int


def train_stacks(
    work: Sequence[Work[Stack]], train: Callable[[Stack, Passed], Trained], *, device: str, progress: Progress
) -> Iterator[tuple[Stack, Trained]]:
    """Train stacks and yield what came out, large ones first, else in their order.

    The operations of small stacks take microseconds: a second thread within them gains little, and where another
    process holds its core it waits at every one of them (ten times as long a step was seen). On a processor they
    are therefore computed with one thread each, as many side by side as PyTorch has threads: who trains beside whom
    changes no byte. Large stacks, and all on a GPU, train one after another.

    Args:
        work: what is to be trained.
        train: trains one stack and tells of its units; is called from several threads.
        device: "cpu" or "cuda".
        progress: is told of units done and in all, by one thread at a time.

    Raises:
        ValueError: a device that is not there.
    """
    import torch

    check_device(device)
    total, lock, stop = sum(one.units for one in work), threading.Lock(), threading.Event()
    done = [0] * len(work)

    def job(at: int) -> Trained:
        def passed(units: int) -> None:
            if stop.is_set():
                raise CancelledError
            with lock:
                done[at] = units
                progress(sum(done), total)

        return train(work[at].stack, passed)

    small = [at for at, one in enumerate(work) if device == "cpu" and one.weights < _ONE_THREAD]
    for at in sorted(set(range(len(work))) - set(small)):
        yield work[at].stack, job(at)
    with one_thread() as threads:
        beside = min(threads, len(small), _SIDE_BY_SIDE)
        if beside < 2:
            for at in small:
                yield work[at].stack, job(at)
            return
        with ThreadPoolExecutor(beside, "goalscope-fit", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                # The longest begin first, so that none is left over at the end.
                told = {at: pool.submit(job, at) for at in sorted(small, key=lambda at: -work[at].units)}
                for at in small:
                    yield work[at].stack, told[at].result()
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
