"""Beginnings of prompts are computed once, whoever asks; requests of all callers decode together."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import gpt_oss, llama

from goalscope._ground.progress import TALLY
from goalscope._ground.rng import stream
from goalscope.agents.models.decode import Decoding, Lanes, decode
from goalscope.agents.models.reading import Prefixes

GREEDY = Decoding(temperature=0.0, max_tokens=12, stop=frozenset(range(1, 128, 9)))


def columns(prompt: Sequence[int]) -> torch.Tensor:
    """Two numbers per token, which depend on all tokens before it."""
    return torch.tensor([[float(hash(tuple(prompt[: end + 1])) % 1000), float(end)] for end in range(len(prompt))])


def found_in(tree: Prefixes, prompt: Sequence[int]) -> int:
    length, pieces = tree.find(prompt)
    assert sum(map(len, pieces)) == length
    assert not length or torch.equal(torch.cat(pieces), columns(prompt[:length]))
    return length


PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12)


@given(PROMPTS, st.data())
def test_a_tree_gives_back_the_longest_beginning_that_was_stored(prompts: list[list[int]], data: Any) -> None:
    tree, stored = Prefixes(1 << 20), list[list[int]]()
    for prompt in prompts:
        begin = data.draw(st.integers(0, found_in(tree, prompt)))
        tree.put(prompt, begin, columns(prompt)[begin:])
        stored.append(prompt)
        for other in prompts:
            common = [
                next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None) for one in stored
            ]
            ends = [min(len(one), len(other)) if end is None else end for one, end in zip(stored, common, strict=True)]
            assert found_in(tree, other) == max(ends)
    tree.put([3, 3], 1, columns([3, 3])[1:])
    assert found_in(tree, [3, 3]) == 0, "columns without those before them are of no use"


@given(PROMPTS)
def test_a_tree_stays_within_its_memory_and_forgets_what_was_not_used_for_longest(prompts: list[list[int]]) -> None:
    limit = 12 * 8  # bytes of twelve tokens
    tree = Prefixes(limit)
    for prompt in prompts:
        tree.put(prompt, 0, columns(prompt))
        assert found_in(tree, prompt) in (0, len(prompt)) or len(prompt) > 3
        assert sum(node.n_bytes for node in nodes(tree)) <= limit
    tree.keep_for(5)
    assert not nodes(tree)


def nodes(tree: Prefixes) -> list[Any]:
    branches, every = [tree._root], list[Any]()
    while branches:
        children = list(branches.pop().children.values())
        every, branches = every + children, branches + children
    return every


def episodes(rng: np.random.Generator) -> list[list[list[int]]]:
    """Three rounds of prompts: a text that all share, one of eight grids, and a cell that changes in each turn."""
    system, grids = rng.integers(2, 100, 40).tolist(), rng.integers(2, 100, (8, 30)).tolist()
    ends = rng.integers(2, 100, (3, 32, 12)).tolist()
    return [[[*system, *grids[number % 8], *end] for number, end in enumerate(turn)] for turn in ends]


@pytest.mark.parametrize("model", [gpt_oss(), llama()])
def test_prompt_tokens_are_computed_once_over_rounds_and_callers(model: Any) -> None:
    rounds, lanes = episodes(np.random.default_rng(0)), Lanes(model, threading.Lock())
    rngs = [stream(0, "x")] * 32
    before = TALLY.read()["computed_prompt"]
    answers = [[output.tokens for output in lanes.decode(GREEDY, prompts, rngs)] for prompts in rounds]
    computed = TALLY.read()["computed_prompt"] - before
    tree = {tuple(prompt[:end]) for prompts in rounds for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert computed <= 1.3 * len(tree), "two lanes may begin with the same text"
    for prompts, outputs in zip(rounds, answers, strict=True):
        alone = [decode(model, GREEDY, [prompt], rngs[:1])[0].tokens for prompt in prompts[:4]]
        assert outputs[:4] == alone


def test_other_weights_or_a_hook_use_nothing_that_was_stored() -> None:
    model, prompt, rngs = llama(), [*range(2, 40)], [stream(0, "x")]
    lanes = Lanes(model, threading.Lock())

    def answer() -> list[int]:
        (output,) = lanes.decode(GREEDY, [prompt], rngs)
        assert output.tokens == decode(model, GREEDY, [prompt], rngs)[0].tokens
        return output.tokens

    first = answer()
    hook = model.model.layers[0].register_forward_hook(lambda module, inputs, output: -output)
    hooked = answer()
    hook.remove()
    assert answer() == first != hooked
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(-1)
    assert answer() != first


@pytest.mark.parametrize("fails", [False, True])
def test_requests_enter_while_others_decode_and_an_error_ends_them_all(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts = llama(), ([*range(2, 30)], [*range(3, 20)])
    settings, rngs = Decoding(temperature=0.0, max_tokens=60), [stream(0, "x")]
    alone = [decode(model, settings, [prompt], rngs)[0].tokens for prompt in prompts]
    lanes, forward, rows = Lanes(model, threading.Lock()), model.forward, list[int]()

    @wraps(forward)
    def spied(**arguments: Any) -> Any:
        rows.append(len(arguments["input_ids"]))
        while len(rows) == 20 and lanes._lanes[0].load < 2:  # until the other call begins
            time.sleep(0.001)
        if len(rows) == 20 and fails:
            raise ArithmeticError("no memory")
        return forward(**arguments)

    def ask(prompt: list[int]) -> Any:
        try:
            return lanes.decode(settings, [prompt], rngs)[0].tokens
        except ArithmeticError as error:
            return str(error)

    with monkeypatch.context() as patches, ThreadPoolExecutor(2) as pool:
        patches.setattr(model, "forward", spied)
        assert list(pool.map(ask, prompts)) == (["no memory"] * 2 if fails else alone)
    assert fails or 2 in rows
    assert ask(prompts[0]) == alone[0]
