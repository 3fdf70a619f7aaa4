"""How the processor's cores are used: one thread for a small model, and several batches of it side by side."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeVar

from goalscope.models._fast import all_experts
from goalscope.models.decode import Decoded, Prompts, Settings, Streams, check_prompts, decode, score

SMALL = 30_000_000
"""Parameters below which one thread computes a model."""

ROWS: Final = 256
"""Requests of a small model on a processor that are decoded together, on average over the batches, at most."""

_FEWEST: Final = 12  # requests of each of two batches; fewer take longer together than one batch

_CHANGING: Final = ("dynamic", "longrope")  # kinds of rotary positions that a forward pass rewrites in the model

_SHARE: Final = "GOALSCOPE_CORES"
"""Name of the variable that says how many cores a process has where it shares them with others of its run."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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


@contextmanager
def fitting_threads(model: Any) -> Iterator[bool]:
    """Compute a small model on a processor with one thread for as long as the context lasts.

    Its operations take microseconds: a second thread gains little, and where another process holds its core it waits at
    every one of them (20 times fewer answers a second were seen). Others keep the threads that PyTorch was given.
    The context says whether the model is such a small one.
    """
    few = model.device.type == "cpu" and sum(value.numel() for value in model.parameters()) < SMALL
    with one_thread() if few else nullcontext():
        yield few


def own_cores() -> int:
    """Return how many cores this process may use; a worker of a run has its share."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(_SHARE, "")
    return min(there, int(share)) if share.isdecimal() and int(share) else there


def share_cores(workers: int) -> int:
    """Leave this process one of so many equal shares of its cores, at least one core; return how many it has."""
    share = max(1, own_cores() // workers)
    os.environ[_SHARE] = str(share)
    return share


def batches(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Cut requests into batches of similar lengths and about equal work, the batch of the longest ones first.

    There are two of them or more where there is enough to do, of at most ``rows`` requests on average. They follow from
    the lengths ``[N]`` of the prompts alone, so that the number of cores changes no output; a worker of a run, whose
    requests are a part of a batch already, has no second core and cuts none in two. Returned are the indices of each
    batch; none is empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    alone = os.environ.get(_SHARE) == "1"
    count = max(-(-len(lengths) // rows), 1 if alone else min(2, len(lengths) // _FEWEST))
    found: list[list[int]] = [[] for _ in range(count)]
    total = sum(lengths)
    before = accumulate((lengths[index] for index in order), initial=0)
    for index, tokens in zip(order, before, strict=False):
        found[min(tokens * count // max(1, total), count - 1)].append(index)
    return [batch for batch in found if batch]


def side_by_side(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what a function gives for each item, computed in as many threads as there are cores.

    A model whose forward pass changes the model itself is computed by one thread.
    """
    cores = own_cores()
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    if min(cores, len(items)) < 2 or any(kind in repr(rope) for kind in _CHANGING):
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(min(cores, len(items)))
    try:
        return list(pool.map(work, items))
    finally:
        # After an interrupt nobody waits for the batches that are under way.
        pool.shutdown(wait=False, cancel_futures=True)


def work_on_cores(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what a function that runs a model gives for each item; a small model works on one a core at a time."""
    with fitting_threads(model) as small, all_experts(model):
        return side_by_side(model, work, items) if small else [work(item) for item in items]


def decode_on_cores(
    model: Any, settings: Settings, prompts: Prompts, rngs: Streams, *, slots: int | None = None
) -> list[Decoded]:
    """Return the output of each prompt, in order, with as many threads as fit the model.

    A small model on a processor decodes batches of prompts of similar lengths, one a core at a time.
    """

    def work(part: Sequence[int], most: int | None) -> list[Decoded]:
        asked = [prompts[index] for index in part]
        live = replace(settings, slots=most or len(prompts) or 1)
        return decode(model, live, asked, [rngs[index] for index in part])

    return _on_cores(model, prompts, work, slots, settings.slots)


def score_on_cores(
    model: Any, prompts: Prompts, answers: Sequence[Prompts], *, slots: int | None = None
) -> list[list[list[float]]]:
    """Return the log-probability of each token of some answers to each prompt, in order.

    Args:
        model: a transformers model.
        prompts: ``[N]`` ids of each prompt, at least one.
        answers: ``[N, A]`` ids of each answer, at least one.
        slots: most rows that are computed at once.

    Returns:
        ``[N, A]`` lists with one number a token, nats, without temperature.
    """

    def work(part: Sequence[int], most: int | None) -> list[list[list[float]]]:
        mine = [answers[index] for index in part]
        rows = most or sum(map(len, mine)) or 1
        return score(model, Settings(slots=rows), [prompts[index] for index in part], mine)

    if not prompts:
        return []
    longest = [max(map(len, each), default=1) - 1 for each in answers]
    check_prompts(model, [[*prompt, *[0] * more] for prompt, more in zip(prompts, longest, strict=True)])
    return _on_cores(model, prompts, work, slots, Settings().slots)


def _on_cores(
    model: Any,
    prompts: Prompts,
    work: Callable[[Sequence[int], int | None], list[Result]],
    slots: int | None,
    usual: int,
) -> list[Result]:
    """Return what a function of some prompts and of the most live rows gives, with as many threads as fit the model.

    No number of rows is given where all of them can be live: the batches of a small model are cut beforehand.
    """
    with fitting_threads(model) as small, all_experts(model):
        if not small:
            return work(range(len(prompts)), slots or usual)
        check_prompts(model, prompts)  # a prompt is named by its place among all of them
        parts = batches([len(prompt) for prompt in prompts], slots or ROWS)
        outputs: dict[int, Result] = {}
        done = side_by_side(model, lambda part: work(part, None), parts)
        for part, found in zip(parts, done, strict=True):
            outputs.update(zip(part, found, strict=True))
    return [outputs[index] for index in range(len(prompts))]
