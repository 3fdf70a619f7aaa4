"""Small models are computed with one thread, several batches side by side; the caller's setting comes back."""

import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import gpt_oss, llama, request, tokenizer

from families import long_after
from goalscope.agents.models import LocalModel, Sampling, decode
from goalscope.agents.models.decode import Decoded, Decoding


def test_a_small_model_gets_one_thread_and_a_large_one_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = type("Model", (torch.nn.Linear,), {"device": torch.device("cpu")})(4, 4)
        with decode.fitting_threads(model):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setattr("goalscope.agents.models.decode.SMALL", 10)
        with decode.fitting_threads(model):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 20))
def test_batches_hold_every_request_once_and_the_longest_come_first(lengths: list[int], rows: int) -> None:
    found = decode.batches(lengths, rows)
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    assert len(found) <= max(2, -(-len(lengths) // rows)) and all(found)
    for earlier, later in pairwise(found):
        assert min(lengths[index] for index in earlier) >= max(lengths[index] for index in later)


def test_batches_have_about_equal_work() -> None:
    lengths = [77, 100, 153, 200, 261] * 60
    for rows in (150, 500):  # enough for two even where one would hold them
        first, second = ([lengths[index] for index in batch] for batch in decode.batches(lengths, rows))
        assert abs(sum(first) - sum(second)) <= max(lengths)
    assert len(decode.batches(lengths[:20], 150)) == 1


def test_a_worker_with_one_core_cuts_its_part_of_a_batch_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, count in (("1", 1), ("2", 2)):
        monkeypatch.setenv("GOALSCOPE_CORES", share)
        assert len(decode.batches([100] * 60, 150)) == count
        assert len(decode.batches([100] * 400, 100)) == 4


@pytest.mark.parametrize("cores", long_after(1, [1, 2]))
def test_the_number_of_cores_changes_no_output(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr("goalscope.agents.models.decode.ROWS", 3)
    monkeypatch.setattr("goalscope.agents.models.decode._FEWEST", 2)
    seen = list[tuple[int, int]]()
    model = LocalModel.from_parts(gpt_oss(), tokenizer())
    asked = [request("#_A G" * count, episode=str(count)) for count in (9, 1, 4, 7, 2, 3, 8)]
    sampling = Sampling(temperature=0.7, max_tokens=6)
    alone = [model.complete([one], sampling)[0].output_tokens for one in asked]
    model.model.register_forward_pre_hook(lambda *given: seen.append((threading.get_ident(), torch.get_num_threads())))
    assert [answer.output_tokens for answer in model.complete(asked, sampling)] == alone
    assert {count for _, count in seen} == {1}
    assert (len({thread for thread, _ in seen}) > 1) == (cores > 1)


def test_a_prompt_that_does_not_fit_is_named_by_its_place_in_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.agents.models.decode.ROWS", 1)
    asked = [request("#_A G" * count, episode=str(count)) for count in (1, 2, 400)]
    with pytest.raises(ValueError, match="prompt 2 has"):
        LocalModel.from_parts(gpt_oss(), tokenizer()).complete(asked, Sampling(max_tokens=6))


def test_a_worker_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setenv("GOALSCOPE_CORES", "")
    assert decode.own_cores() == 6
    assert [decode.share_cores(2), decode.own_cores(), decode.share_cores(9)] == [3, 3, 1]


def test_where_one_batch_fails_the_others_stop_and_its_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "own_cores", lambda: 2)
    both, seen, handed = threading.Barrier(2), set[str](), list[int]()

    def arrived(outputs: Sequence[tuple[int, Decoded]]) -> None:
        handed.extend(index for index, _ in outputs)
        name = threading.current_thread().name
        if outputs and name not in seen:
            seen.add(name)
            if both.wait(60) == 0:
                raise ConnectionError("one of the two")

    prompts = [[5 + index, 6, 7] for index in range(24)]
    settings = Decoding(temperature=0.0, max_tokens=300, stop=frozenset(range(1, 128, 9)))
    rngs = [np.random.default_rng(0) for _ in prompts]
    with pytest.raises(ConnectionError, match="one of the two"):
        decode.Lanes(llama(), threading.Lock()).decode(settings, prompts, rngs, arrived)
    assert len(seen) == 2 and len(handed) < len(prompts)
    assert not [thread for thread in threading.enumerate() if thread.name in seen], "nothing goes on behind the error"
