"""Random networks as controls: the library's initialisation, a bundled model's own, and permuted weights."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from goalscope.agents.models import LocalModel
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.agents.models.local import permute


def weights(model: LocalModel) -> dict[str, torch.Tensor]:
    return dict(model.model.named_parameters())


@pytest.fixture(scope="module")
def theseus() -> dict[str, torch.Tensor]:
    return weights(LocalModel("theseus", device="cpu"))


def test_permuted_weights_are_the_entries_of_each_tensor_in_another_order(theseus: dict[str, torch.Tensor]) -> None:
    first, again, other = (
        weights(LocalModel("theseus", device="cpu", untrained=seed, random_weights="permuted")) for seed in (0, 0, 1)
    )
    for name, tensor in theseus.items():
        assert torch.equal(first[name].flatten().sort().values, tensor.flatten().sort().values), name
        assert torch.equal(first[name], again[name]), name
    matrices = [name for name, tensor in theseus.items() if tensor.ndim > 1]
    assert matrices
    assert not any(torch.equal(first[name], theseus[name]) for name in matrices)
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


def test_tied_tensors_stay_tied() -> None:
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    make: Any = LlamaForCausalLM
    model = make(config)
    before = model.lm_head.weight.clone()
    permute(model, seed=0)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(model.lm_head.weight.flatten().sort().values, before.flatten().sort().values)
    assert not torch.equal(model.lm_head.weight, before)


def test_initial_weights_have_the_scale_that_training_begins_with(theseus: dict[str, torch.Tensor]) -> None:
    own = weights(LocalModel("theseus", device="cpu", untrained=1, random_weights="initial"))
    default = weights(LocalModel("theseus", device="cpu", untrained=1))
    assert {name: tensor.shape for name, tensor in own.items()} == {name: t.shape for name, t in theseus.items()}
    assert own["model.embed_tokens.weight"].std().item() == pytest.approx(0.5, rel=0.05)
    assert default["model.embed_tokens.weight"].std().item() == pytest.approx(0.02, rel=0.05)


def test_each_kind_and_seed_is_a_model_of_its_own_and_the_default_keeps_its_id() -> None:
    kinds = [LocalModel("theseus", untrained=seed, random_weights=kind) for kind in RANDOM_WEIGHTS for seed in (0, 1)]
    described = [model.describe() for model in kinds]
    assert all(described[i] != described[j] for i in range(6) for j in range(i))
    assert LocalModel("theseus", untrained=0).describe() == described[0]
    assert "random_weights" not in described[0]
    assert [model.name for model in kinds[::2]] == ["theseus-untrained-0", "theseus-initial-0", "theseus-permuted-0"]
    permuted = described[-1]["files"]
    assert "model.safetensors" in permuted and "model.safetensors" not in described[0]["files"]
    assert not any(model.tags for model in kinds), "no random network has a planted goal"


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"untrained": 0, "random_weights": "shuffled"}, "default-init, initial, permuted"),
        ({"random_weights": "permuted"}, "set untrained"),
    ],
)
def test_what_is_no_random_network_is_refused(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        LocalModel("theseus", **given)


def test_a_model_that_does_not_say_how_it_began_has_no_initial_weights() -> None:
    with pytest.raises(ValueError, match="bundled model"):
        LocalModel("some/model", untrained=0, random_weights="initial")
