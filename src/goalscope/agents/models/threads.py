"""Use of the processor's cores: one thread for a small model, and several batches of it in parallel.

The requests of all callers of a model are decoded together, in one lane, or several of a small model.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeVar

from goalscope._ground.progress import Arrived, StoppedError
from goalscope.agents.models._fast import SMALL, all_experts
from goalscope.agents.models.decode import (
    Decoded,
    Decoding,
    Job,
    Lane,
    LaneRequest,
    Streams,
    check_prompts,
    new_prefixes,
    score,
)
from goalscope.agents.models.reading import Prefixes, Prompts, token_octets

ROWS: Final = 256
"""Maximum number of requests per batch for a small model on a CPU, or for a model on a GPU with enough memory."""

_PASS: Final = 3e11
"""Approximate number of floating-point operations in one pass of prompts through a larger model on a CPU.

Such a pass takes a few seconds. The amount of work is fixed, since a measured time would change the shapes of batches
and thus the last bits of results.
"""

SLOTS: Final = 64
"""Maximum number of requests that a larger model decodes at once if memory does not determine it."""

_GRADUAL: Final = 8_000_000  # models with more parameters take long to read all prompts of a batch on a CPU

_FEWEST: Final = 12  # minimum requests per batch; two smaller batches would take longer than one batch

_CHANGING: Final = ("dynamic", "longrope")  # kinds of rotary positions that a forward pass rewrites in the model

_SHARE: Final = "GOALSCOPE_CORES"
"""Environment variable that limits the cores of a process that shares a machine with other workers of its run."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[int]:
    """While this context lasts, compute with one thread; yield the previous number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


@contextmanager
def fitting_threads(model: Any) -> Iterator[bool]:
    """Compute a small model on a CPU with one thread inside the context; yield whether the model is small.

    The operations of a small model take microseconds, so a second thread gains little. If another process occupies the
    second thread's core, the model waits at every operation (we measured 20 times fewer answers per second). Larger
    models keep PyTorch's number of threads.
    """
    small = is_small(model)
    with one_thread() if small else nullcontext():
        yield small


def is_small(model: Any) -> bool:
    """Return whether a model runs on a CPU and is small enough for one thread."""
    return bool(model.device.type == "cpu" and sum(value.numel() for value in model.parameters()) < SMALL)


def own_cores() -> int:
    """Return how many cores this process may use; a worker of a run uses only its share."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get(_SHARE, "")
    return min(available, int(limit)) if limit.isdecimal() and int(limit) else available


def share_cores(workers: int) -> int:
    """Limit this process to 1 / workers of its cores, at least one; return the number of cores left."""
    cores = max(1, own_cores() // workers)
    os.environ[_SHARE] = str(cores)
    return cores


def batches(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Divide requests into batches of similar lengths and about equal work; return the indices in each, longest first.

    There are at least two batches if there are enough requests, with at most ``rows`` requests on average; no batch is
    empty. The division depends only on the lengths ``[N]`` of the prompts, so the number of cores changes no output. A
    worker of a run does not divide its requests, since they are already part of a batch and it has no second core.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    single_core = os.environ.get(_SHARE) == "1"
    count = max(-(-len(lengths) // rows), 1 if single_core else min(2, len(lengths) // _FEWEST))
    groups: list[list[int]] = [[] for _ in range(count)]
    total = sum(lengths)
    tokens_before = accumulate((lengths[index] for index in order), initial=0)
    for index, tokens in zip(order, tokens_before, strict=False):
        groups[min(tokens * count // max(1, total), count - 1)].append(index)
    return [batch for batch in groups if batch]


def side_by_side(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return a function's result for each item, computed in as many threads as there are cores.

    If a model's forward pass changes the model itself, one thread computes everything.
    """
    cores = own_cores()
    if min(cores, len(items)) < 2 or _changes_itself(model):
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(min(cores, len(items)))
    try:
        begun = [pool.submit(work, item) for item in items]
        ended = wait(begun, return_when=FIRST_EXCEPTION).done
        if any(future.exception() is not None for future in ended):
            pool.shutdown(wait=True, cancel_futures=True)  # the other threads may still report finished results
            problems = [future.exception() for future in begun if not future.cancelled()]
            # When one batch fails, the others are stopped; raise the error of the batch that failed.
            raise min(filter(None, problems), key=lambda problem: isinstance(problem, StoppedError))
        return [future.result() for future in begun]
    finally:
        # An interrupt does not wait for the running batches.
        pool.shutdown(wait=False, cancel_futures=True)


def work_on_cores(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the result of a function of the model for each item; with a small model, each core computes one item at a
    time.
    """
    with fitting_threads(model) as small, all_experts(model):
        return side_by_side(model, work, items) if small else [work(item) for item in items]


class Lanes:
    """The lanes of a model, in which the requests of all callers decode together; each caller may ask at any time.

    Args:
        model: a transformers model.
        lock: held while a lane is at work.
        slots: maximum number of requests per lane; None for what suits the model.
        share_prefix: see `Decoding`.
    """

    def __init__(self, model: Any, lock: threading.Lock, slots: int | None = None, share_prefix: bool = True) -> None:
        self._model, self._lock = model, lock
        self._settings = replace(_fitting(model, slots), share_prefix=share_prefix)
        # What such a model computes for a beginning may depend on the length of the prompt.
        self._prefixes = new_prefixes(model) if share_prefix and not _changes_itself(model) else None
        count = own_cores() if is_small(model) and not _changes_itself(model) else 1
        self._lanes = [Lane(model, self._settings, self._prefixes) for _ in range(count)]
        self._at_work, self._session = 0, ExitStack()
        self._choosing, self._changing = threading.Lock(), threading.Lock()

    def decode(
        self,
        settings: Decoding,
        prompts: Prompts,
        rngs: Streams,
        arrived: Arrived[Decoded] = lambda outputs: None,
    ) -> list[Decoded]:
        """Return the output of each prompt, in order; ``arrived`` is called from the threads that decode."""
        job = Job(self._model, settings, prompts, rngs, arrived)
        threads = list[threading.Thread]()
        try:
            with self._choosing:
                for number, requests in self._assign(job.requests).items():
                    lane = self._lanes[number]
                    if lane.submit(requests):
                        threads.append(threading.Thread(target=self._work, args=(lane,), daemon=True))
            for thread in threads:
                thread.start()
            job.done.wait()
        except BaseException as error:
            job.problem = job.problem or error  # the lanes give up its requests after their present pass
            raise
        with self._choosing:
            idle = not any(lane.load for lane in self._lanes)
        for thread in threads if idle else ():
            thread.join()
        return job.result()

    def _assign(self, requests: Sequence[LaneRequest]) -> dict[int, list[LaneRequest]]:
        """Return lane numbers with the requests that each shall decode.

        Few requests of all callers together are cheapest in one lane. Else each request has a lane with little to do,
        and of those the one whose prompts are most alike in length, since each row takes the time of the longest.
        """
        if len(self._lanes) == 1:
            return {0: list(requests)}
        lengths, assigned = [len(request.prompt) for request in requests], dict[int, list[LaneRequest]]()
        loads, tokens = ([getattr(lane, name) for lane in self._lanes] for name in ("load", "tokens"))
        few = sum(loads) + len(requests) < 2 * _FEWEST
        for part in (
            batches(lengths, ROWS) if len(requests) >= 2 * _FEWEST else [[index] for index in range(len(lengths))]
        ):
            if few:
                number = max(range(len(loads)), key=loads.__getitem__)
            else:
                mean = sum(lengths[index] for index in part) / len(part)
                able = [number for number, load in enumerate(loads) if load <= min(loads) + _FEWEST]
                distances = {
                    number: abs(tokens[number] / loads[number] - mean) if loads[number] else 0.0 for number in able
                }
                number = min(able, key=lambda number: (distances[number], loads[number]))
            assigned.setdefault(number, []).extend(requests[index] for index in part)
            loads[number] += len(part)
            tokens[number] += sum(lengths[index] for index in part)
        return assigned

    def _work(self, lane: Lane) -> None:
        try:
            with self._changing_model():
                lane.run()
        except BaseException as error:  # noqa: BLE001 - raised in the threads of the callers
            lane.fail(error)

    @contextmanager
    def _changing_model(self) -> Iterator[None]:
        """Hold the model's lock, and keep its settings, while at least one lane is decoding."""
        with self._changing:
            if not self._at_work:
                self._session.enter_context(self._lock)
                self._session.enter_context(fitting_threads(self._model))
                self._session.enter_context(all_experts(self._model))
            self._at_work += 1
        try:
            yield
        finally:
            with self._changing:
                self._at_work -= 1
                if not self._at_work:
                    self._session.close()


def score_on_cores(
    model: Any,
    prompts: Prompts,
    answers: Sequence[Prompts],
    *,
    slots: int | None = None,
    arrived: Arrived[list[list[float]]] = lambda scores: None,
    prefixes: dict[int, Prefixes] | None = None,
) -> list[list[list[float]]]:
    """Return the log-probability of each token of some answers to each prompt, in order.

    A small model on a CPU computes batches of prompts of similar lengths, one batch per core.

    Args:
        model: a transformers model.
        prompts: ``[N]`` ids of each prompt, at least one.
        answers: ``[N, A]`` ids of each answer, at least one.
        slots: maximum number of rows to compute at once.
        arrived: called with the scores of prompts as soon as they are computed.
        prefixes: the trees of beginnings by number of the batch, to be used and filled. Each batch has its own, since
            what is stored changes the last bits of likelihoods, which must not depend on which batch is faster.

    Returns:
        ``[N, A]`` lists with one number per token, in nats, before temperature is applied.
    """
    if not prompts:
        return []
    longest_answers = [max(map(len, prompt_answers), default=1) - 1 for prompt_answers in answers]
    check_prompts(model, [[*prompt, *[0] * added] for prompt, added in zip(prompts, longest_answers, strict=True)])
    small, trees, failed = is_small(model), {} if prefixes is None else prefixes, threading.Event()
    parts = batches([len(prompt) for prompt in prompts], slots or ROWS) if small else [list(range(len(prompts)))]
    for number in range(0 if _changes_itself(model) else len(parts)):
        if number not in trees:
            trees[number] = new_prefixes(model)
    outputs: dict[int, list[list[float]]] = {}

    def work(number: int) -> None:
        part = parts[number]
        part_prompts, part_answers = [prompts[index] for index in part], [answers[index] for index in part]
        settings = _fitting(model, slots)
        if small:
            settings = replace(settings, slots=sum(map(len, part_answers)) or 1)

        def of_part(scores: Sequence[tuple[int, list[list[float]]]]) -> None:
            arrived([(part[index], its_scores) for index, its_scores in scores])
            if failed.is_set():
                raise StoppedError

        try:
            scores = score(model, settings, part_prompts, part_answers, of_part, trees.get(number))
        except BaseException:
            failed.set()  # the other parts stop after their next pass
            raise
        outputs.update(zip(part, scores, strict=True))

    work_on_cores(model, work, range(len(parts)))
    return [outputs[index] for index in range(len(prompts))]


def _fitting(model: Any, slots: int | None) -> Decoding:
    """Return the settings of batches that suit a model and its device.

    A larger model on a CPU then returns its first outputs after seconds instead of minutes. On a GPU, half of the free
    memory determines how many rows decode at once.
    """
    if is_small(model):
        return Decoding(slots=slots or ROWS)
    parameters = sum(value.numel() for value in model.parameters())
    if model.device.type == "cpu" and parameters >= _GRADUAL:
        return Decoding(slots=slots or SLOTS, prefill_tokens=min(4096, int(_PASS / 2 / parameters)), gradual=True)
    if model.device.type == "cuda":
        import torch

        config, octets = model.config.get_text_config(decoder=True), next(model.parameters()).element_size()
        column = token_octets(config, octets)
        free = torch.cuda.mem_get_info(model.device)[0] // 2
        return Decoding(slots=slots or ROWS, most_columns=free // column) if column else Decoding(slots=slots or SLOTS)
    return Decoding(slots=slots or SLOTS)


def _changes_itself(model: Any) -> bool:
    """Return whether a forward pass changes the model, so that one thread must compute everything."""
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return any(kind in repr(rope) for kind in _CHANGING)
