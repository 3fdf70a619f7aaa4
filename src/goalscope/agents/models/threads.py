"""Use of the processor's cores: one thread for a small model, and several batches of it in parallel."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeVar

from goalscope._ground.progress import Arrived, StoppedError
from goalscope.agents.models._direct import SMALL
from goalscope.agents.models._fast import all_experts
from goalscope.agents.models.decode import Decoded, Decoding, Prompts, Streams, check_prompts, decode, score

ROWS: Final = 256
"""Maximum average number of requests per batch for a small model on a CPU."""

_PASS: Final = 3e11
"""Approximate number of floating-point operations in one pass of prompts through a larger model on a CPU.

Such a pass takes a few seconds. The amount of work is fixed, since a measured time would change the shapes of batches
and thus the last bits of results.
"""

_GRADUAL: Final = 8_000_000  # models with more parameters take long to read all prompts of a batch on a CPU

_FEWEST: Final = 12  # minimum requests per batch; two smaller batches would take longer than one batch

_CHANGING: Final = ("dynamic", "longrope")  # kinds of rotary positions that a forward pass rewrites in the model

_SHARE: Final = "GOALSCOPE_CORES"
"""Environment variable that limits the cores of a process that shares a machine with other workers of its run."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[int]:
    """Compute with one thread inside the context; yield the previous number of threads."""
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
    small = model.device.type == "cpu" and sum(value.numel() for value in model.parameters()) < SMALL
    with one_thread() if small else nullcontext():
        yield small


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
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    if min(cores, len(items)) < 2 or any(kind in repr(rope) for kind in _CHANGING):
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
    """Return the result of a model function for each item; a small model computes one item per core."""
    with fitting_threads(model) as small, all_experts(model):
        return side_by_side(model, work, items) if small else [work(item) for item in items]


def decode_on_cores(
    model: Any,
    settings: Decoding,
    prompts: Prompts,
    rngs: Streams,
    *,
    slots: int | None = None,
    arrived: Arrived[Decoded] = lambda outputs: None,
) -> list[Decoded]:
    """Return the output of each prompt, in order, with as many threads as suit the model.

    A small model on a CPU decodes batches of prompts of similar lengths, one batch per core. ``arrived`` is called from
    the threads that decode.
    """
    paced = _in_passes(model, settings)

    def work(indices: Sequence[int], max_rows: int | None, arrived: Arrived[Decoded]) -> list[Decoded]:
        part_prompts = [prompts[index] for index in indices]
        part_settings = replace(paced, slots=max_rows or len(prompts) or 1)
        return decode(model, part_settings, part_prompts, [rngs[index] for index in indices], arrived)

    return _on_cores(model, prompts, work, slots, settings.slots, arrived)


def score_on_cores(
    model: Any,
    prompts: Prompts,
    answers: Sequence[Prompts],
    *,
    slots: int | None = None,
    arrived: Arrived[list[list[float]]] = lambda scores: None,
) -> list[list[list[float]]]:
    """Return the log-probability of each token of some answers to each prompt, in order.

    Args:
        model: a transformers model.
        prompts: ``[N]`` ids of each prompt, at least one.
        answers: ``[N, A]`` ids of each answer, at least one.
        slots: maximum number of rows to compute at once.
        arrived: called with the scores of prompts as soon as they are computed.

    Returns:
        ``[N, A]`` lists with one number per token, in nats, before temperature is applied.
    """

    def work(
        indices: Sequence[int], max_rows: int | None, arrived: Arrived[list[list[float]]]
    ) -> list[list[list[float]]]:
        part_answers = [answers[index] for index in indices]
        rows = max_rows or sum(map(len, part_answers)) or 1
        part_prompts = [prompts[index] for index in indices]
        return score(model, replace(paced, slots=rows), part_prompts, part_answers, arrived)

    if not prompts:
        return []
    longest_answers = [max(map(len, prompt_answers), default=1) - 1 for prompt_answers in answers]
    check_prompts(model, [[*prompt, *[0] * added] for prompt, added in zip(prompts, longest_answers, strict=True)])
    paced = _in_passes(model, Decoding())
    return _on_cores(model, prompts, work, slots, paced.slots, arrived)


def _in_passes(model: Any, settings: Decoding) -> Decoding:
    """Return settings with which a larger model on a CPU returns its first outputs after seconds instead of minutes."""
    parameters = sum(value.numel() for value in model.parameters())
    if model.device.type != "cpu" or parameters < _GRADUAL:
        return settings
    return replace(settings, prefill_tokens=min(settings.prefill_tokens, int(_PASS / 2 / parameters)), gradual=True)


def _on_cores(
    model: Any,
    prompts: Prompts,
    work: Callable[[Sequence[int], int | None, Arrived[Result]], list[Result]],
    slots: int | None,
    default_slots: int,
    arrived: Arrived[Result],
) -> list[Result]:
    """Apply ``work`` to prompt indices and a maximum of live rows, with as many threads as suit the model.

    The maximum is None if all rows can be live, which holds for the batches of a small model.
    """
    with fitting_threads(model) as small, all_experts(model):
        if not small:
            return work(range(len(prompts)), slots or default_slots, arrived)
        check_prompts(model, prompts)  # before batching, so that errors name a prompt's index among all
        parts = batches([len(prompt) for prompt in prompts], slots or ROWS)
        outputs: dict[int, Result] = {}
        failed = threading.Event()

        def in_part(part: Sequence[int]) -> list[Result]:
            def of_part(results: Sequence[tuple[int, Result]]) -> None:
                arrived([(part[index], result) for index, result in results])
                if failed.is_set():
                    raise StoppedError

            try:
                return work(part, None, of_part)
            except BaseException:
                failed.set()  # the other parts stop after their next pass
                raise

        part_results = side_by_side(model, in_part, parts)
        for part, results in zip(parts, part_results, strict=True):
            outputs.update(zip(part, results, strict=True))
    return [outputs[index] for index in range(len(prompts))]
