"""Where probes and decoders train: on a processor, or a GPU that is there; stacks of them beside each other in threads
of this process, or in other processes.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from goalscope.models import loading
from goalscope.runs.executors import lost_worker

_ONE_THREAD: Final = 4_000_000  # weights of one probe below which one thread trains
_SIDE_BY_SIDE: Final = 4  # most stacks that hold memory at the same time

Stack = TypeVar("Stack")
Trained = TypeVar("Trained")
Passed = Callable[[int], None]
"""Told how many units of its stack are done."""
Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Begins a piece of work of that name; what it gives is called with (done, total)."""


@contextmanager
def silent(label: str) -> Iterator[Progress]:
    """Begin a piece of work that shows nothing."""
    yield lambda done, total: None


def check_device(device: str) -> None:
    """Raise a ValueError unless probes can compute there: "cpu", or a GPU ("cuda", "cuda:1") that PyTorch sees."""
    if device == "cpu":
        return
    if not isinstance(device, str) or device == "auto":
        raise ValueError(f"the device of probes must be cpu, or a GPU such as cuda or cuda:1, got {device!r}")
    loading.check_device_name(device)
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} must be there, PyTorch sees no GPU: fit with device='cpu'")
    loading.check_device(torch, device)


def trains_on(device: str) -> str:
    """Return where probes train beside a model on a device: at "auto" on a GPU where there is one.

    Raises:
        ValueError: see `check_device`.
    """
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device.partition(":")[0]


@contextmanager
def one_thread() -> Iterator[int]:
    """Compute with one thread for as long as the context lasts; yield how many there were."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Generic[Stack]):
    """A stack of probes that train as one problem: numbers in the weights of each, and units of progress in all."""

    stack: Stack
    weights: int
    units: int


def train_stacks(
    work: Sequence[Work[Stack]],
    train: Callable[[Stack, Passed], Trained],
    *,
    device: str,
    progress: Progress,
    elsewhere: Callable[[Stack], Future[Trained]] | None = None,
) -> Iterator[tuple[Stack, Trained]]:
    """Train stacks and yield what came out, large ones first, else in their order.

    The operations of small stacks take microseconds: a second thread within them gains little, and where another
    process holds its core it waits at every one of them (ten times as long a step was seen). On a processor they are
    therefore computed with one thread each, as many side by side as PyTorch has threads: who trains beside whom changes
    no byte. Large stacks, and all on a GPU, train one after another.

    With ``elsewhere``, which hands a stack to another process, small stacks train there, and all on a GPU.
    """
    import torch

    if elsewhere is None:  # another process may see a GPU that this one does not
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
    if elsewhere is not None:
        sent = small if device == "cpu" else list(range(len(work)))
        waiting = {at: elsewhere(work[at].stack) for at in sorted(sent, key=lambda at: -work[at].units)}
        try:
            for at in sorted(set(range(len(work))) - set(sent)):
                yield work[at].stack, job(at)
            for at in sent:
                made = waiting[at].result()
                done[at] = work[at].units
                progress(sum(done), total)
                yield work[at].stack, made
        except BrokenExecutor as error:
            raise lost_worker(error) or error from None
        finally:
            for future in waiting.values():
                future.cancel()
        return
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
