"""Hooked blocks: they give what the library itself gives, stop where they may, and leave nothing behind."""

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from architectures import CONFIGS, LAYERS, VOCABULARY, WIDTH, tiny

from goalscope._ground.rng import stream
from goalscope.agents.models import parts_identity
from goalscope.inside.activations.hooks import (
    PLACES,
    DecoderBlocks,
    check_blocks,
    check_layers,
    shares_prefixes,
    thirds,
)

SOME = ("gpt_oss", "llama", "qwen3", "gpt2")


def sequence(length: int, *names: str | int) -> np.ndarray[Any, Any]:
    return stream(0, "sequence", length, *names).integers(5, VOCABULARY, size=length)


def all_positions(count: int, length: int) -> tuple[Any, Any]:
    rows, columns = np.divmod(np.arange(count * length), length)
    return rows, columns


def hooked(model: Any, layers: tuple[int, ...], ids: Any) -> list[Any]:
    """The outputs of some blocks at all positions, ``[B, T, D]`` each."""
    with DecoderBlocks(model, layers).recording() as recording:
        kept = recording.run(ids, *all_positions(*ids.shape))
    return [one.reshape(*ids.shape, -1) for one in kept]


def plain(model: Any, ids: Any) -> Any:
    with torch.inference_mode():
        return model(input_ids=torch.from_numpy(ids), output_hidden_states=True, use_cache=False).hidden_states


def cut(model: Any, layer: int) -> Any:
    """Another model that ends after a block, without a final norm: its last hidden state is that block's output."""
    other = copy.deepcopy(model)
    blocks, norm = PLACES[model.config.model_type]
    setattr(other.base_model, blocks, getattr(other.base_model, blocks)[: layer + 1])
    setattr(other.base_model, norm, torch.nn.Identity())
    other.config.num_hidden_layers = layer + 1
    return other


def close(ours: Any, theirs: Any) -> None:
    assert float((ours - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())


def test_every_type_of_the_table_has_a_model_here() -> None:
    assert set(PLACES) == set(CONFIGS)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_hooked_outputs_are_the_hidden_states_of_the_library_bit_by_bit(kind: str) -> None:
    model = tiny(kind)
    ids = np.stack([sequence(40, 0), sequence(40, 1)])
    states = plain(model, ids)
    ours = hooked(model, (0, 1, 2), ids)
    for layer in (0, 1):
        assert torch.equal(ours[layer], states[layer + 1])
    # The library's last entry comes after the final norm; a test that forgets it would fail here.
    with torch.inference_mode():
        assert torch.equal(DecoderBlocks(model).norm(ours[2]), states[3])
    assert not torch.allclose(ours[2], states[3], rtol=1e-2)
    assert check_blocks(model, (0, 1, 2), ids[0].tolist()) == {0: 0.0, 1: 0.0, 2: 0.0}


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_hooked_outputs_are_those_of_a_model_cut_after_the_block(kind: str, layer: int) -> None:
    model = tiny(kind)
    ids = np.stack([sequence(40, 2)])
    with torch.inference_mode():
        theirs = cut(model, layer).base_model(input_ids=torch.from_numpy(ids), use_cache=False).last_hidden_state
    assert torch.equal(hooked(model, (layer,), ids)[0], theirs)


@pytest.mark.parametrize("kind", SOME)
def test_nothing_is_computed_after_the_deepest_wanted_block(kind: str) -> None:
    model, seen = tiny(kind), []
    blocks = DecoderBlocks(model, (1,))
    for number, block in enumerate(blocks.list):
        block.register_forward_hook(lambda *_, number=number: seen.append(number))
    blocks.norm.register_forward_hook(lambda *_: seen.append(99))
    hooked(model, (1,), np.stack([sequence(8)]))
    assert seen == [0, 1]


@pytest.mark.parametrize("kind", SOME)
def test_a_batch_of_one_equals_a_batch(kind: str) -> None:
    model = tiny(kind)
    ids = np.stack([sequence(60, number) for number in range(7)])
    together = hooked(model, (0, 2), ids)
    for row in range(7):
        for one, many in zip(hooked(model, (0, 2), ids[row : row + 1]), together, strict=True):
            close(many[row], one[0])


@pytest.mark.parametrize("kind", ("gemma3_text", "mistral", "gpt_neo", *SOME))
@pytest.mark.parametrize("shared", [1, 40])  # shorter and longer than the sliding windows
def test_a_shared_beginning_changes_nothing(kind: str, shared: int) -> None:
    model = tiny(kind)
    assert shares_prefixes(model.config)
    ids = np.stack([np.concatenate([sequence(shared), sequence(30, number)]) for number in range(3)])
    rows, columns = all_positions(3, 30)
    for layers in ((0,), (1, 2)):
        with DecoderBlocks(model, layers).recording() as recording:
            prefix = recording.prefix(ids[0, :shared])
            for _ in range(2):  # the beginning itself is not changed by what follows it
                kept = recording.run(ids[:, shared:].copy(), rows, columns, prefix)
        for ours, theirs in zip(kept, hooked(model, layers, ids), strict=True):
            close(ours.reshape(3, 30, WIDTH), theirs[:, shared:])


def hooks(model: Any) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_the_model_is_left_as_it_was() -> None:
    model = tiny("gpt_oss")
    tokenizer: Any = type("None", (), {"get_vocab": lambda self: {}, "chat_template": ""})()
    ids = np.stack([sequence(20)])
    expected = plain(model, ids)  # the library adds hooks of its own when it is first asked for hidden states
    before, attached = parts_identity(model, tokenizer), hooks(model)
    hooked(model, (0, 1), ids)
    with pytest.raises(RuntimeError, match="on purpose"), DecoderBlocks(model).recording():
        assert hooks(model) == attached + LAYERS
        raise RuntimeError("on purpose")
    with pytest.raises(IndexError), DecoderBlocks(model).recording() as recording:
        recording.run(np.array([[VOCABULARY + 5]]), np.array([0]), np.array([0]))
    assert hooks(model) == attached
    assert parts_identity(model, tokenizer) == before
    assert all(torch.equal(one, other) for one, other in zip(expected, plain(model, ids), strict=True))
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_another_thread_that_uses_the_model_meanwhile_is_not_disturbed() -> None:
    model = tiny("llama")
    ids = np.stack([sequence(20)])
    expected, found = plain(model, ids)[-1], []
    with DecoderBlocks(model, (0,)).recording() as recording:
        recording._wanted = (torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        worker = threading.Thread(target=lambda: found.append(plain(model, ids)[-1]))
        worker.start()
        worker.join()
        assert not recording._kept
    assert torch.equal(found[0], expected)


def test_what_is_not_known_is_refused() -> None:
    model = tiny("llama")
    model.config.model_type = "brand_new"
    with pytest.raises(ValueError, match=r"'brand_new'.* llama"):
        DecoderBlocks(model)
    model.config.model_type = "gpt2"
    with pytest.raises(ValueError, match=r"'h'.*LlamaModel"):
        DecoderBlocks(model)
    for layers, message in (
        ((3,), r"in 0\.\.2"),
        ((-1,), "got -1"),
        ((), "at least one"),
        ((True,), "got True"),
        ((1.0,), "got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            check_layers(layers, 3)  # type: ignore[arg-type]
    assert check_layers([2, 0, 2], 3) == (0, 2)


def test_the_self_check_finds_a_wrong_block_and_a_wrong_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny("llama"), sequence(10).tolist()
    no_norm = property(lambda self: torch.nn.Identity(), lambda self, norm: None)
    monkeypatch.setattr(DecoderBlocks, "norm", no_norm, raising=False)
    with pytest.raises(ValueError, match="layer 2"):
        check_blocks(model, (0, 1, 2), ids)
    assert check_blocks(model, (0, 1), ids) == {0: 0.0, 1: 0.0}


def test_thirds_are_the_layers_of_the_paper() -> None:
    assert thirds(24) == (7, 15, 23)
    assert thirds(8) == (2, 4, 7)
    assert thirds(1) == (0,)
