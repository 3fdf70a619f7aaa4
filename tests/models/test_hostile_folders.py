"""Folders of models of unknown origin: each is one error of one line, and nothing outside of the folder is read."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import llama, request, tokenizer

from goalscope.agents.models import LocalModel, Sampling
from goalscope.agents.models.folders import check_folder

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders") / "sound"
    llama().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "model")


def entry(name: str = "config.json", **entries: Any) -> Change:
    """Change entries of a JSON file."""

    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return change


def tokens(name: str, key: str, count: int) -> Change:
    """Name many tokens in a file beside tokenizer.json, in an entry of it if a key is given."""

    def change(folder: Path) -> None:
        names = {f"<x{number}>": number for number in range(count)}
        old = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps({**old, key: names} if key else {**old, **names}))

    return change


def content(name: str, data: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(data)


def shard(header: Any, length: int | None = None) -> Change:
    text = json.dumps(header).encode()
    return content(WEIGHTS, struct.pack("<Q", len(text) if length is None else length) + text + b"1234")


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def index(target: str) -> Change:
    """Weights in a file that an index names; the file itself is sound and lies beside the folder."""

    def change(folder: Path) -> None:
        shutil.move(folder / WEIGHTS, folder.parent / "beside.safetensors")
        shutil.copy(folder.parent / "beside.safetensors", folder / "other.safetensors")
        torch.save(load_file(folder / "other.safetensors"), folder / "pickled.bin")
        names = list(load_file(folder / "other.safetensors"))
        told = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, target)}
        (folder / INDEX).write_text(json.dumps(told))

    return change


CASES: dict[str, tuple[Change, str]] = {
    "no JSON": (content("config.json", b"{"), "config.json must be valid JSON, but .*download the files again"),
    "a list": (content("config.json", b"[]"), r"config.json must be .*an object, got \[\]"),
    "deep": (content("config.json", b"[" * 100_000), "config.json must be .*nested at most"),
    "no text": (content("config.json", b"\xff\xfe{}"), "config.json must be .*UTF-8"),
    "no architecture": (content("config.json", b"{}"), "must hold a model that transformers can load.*model_type"),
    "many layers": (entry(num_hidden_layers=10**6), "num_hidden_layers in .* must be from 0 to 4096, got 1000000"),
    "layers below 0": (entry(num_hidden_layers=-1), "num_hidden_layers in .* must be from 0 to 4096, got -1"),
    "nested": (entry(text_config={"a": {"num_experts": 10**9}}), "num_experts in .* must be from 0 to 4096"),
    "more layers than weights": (entry(num_hidden_layers=3), r"must be complete, but 9 are missing \(model.layers.2"),
    "a large vocabulary": (entry(vocab_size=10**12), f"embedding has {10**12} rows"),
    "a vocabulary of -1": (entry(vocab_size=-1), "negative dimension -1"),
    "a vocabulary in words": (entry(vocab_size="many"), "must hold a model that .*'vocab_size' expected int"),
    "an overflow": (entry(hidden_size=2**62), "must hold a model that transformers can load, but .*verflow"),
    "no heads": (entry(num_attention_heads=0), "must hold a model that transformers can load, but ZeroDivisionError"),
    "code from a hub": (
        entry(_attn_implementation="evil/kernel"),
        "'evil/kernel', which is code on a hub: remove the entry",
    ),
    "code for a part": (entry(attn_implementation={"": "a/b:c"}), "code on a hub: remove the entry"),
    "an adapter": (content("adapter_config.json", b"{}"), "must hold a whole model, .* holds an adapter"),
    "pickled weights": (entry(transformers_weights="pickled.bin"), "safetensors files in its own folder"),
    "weights of -": (entry(transformers_weights=["x"]), "safetensors files in its own folder"),
    "another tokenizer": (
        entry("tokenizer_config.json", fast_tokenizer_files=["../tokenizer.4.0.0.json"]),
        "must not have fast_tokenizer_files",
    ),
    "a length in words": (
        entry("tokenizer_config.json", model_max_length="many"),
        "tokenizer_config.json: model_max_length must be a number of tokens",
    ),
    **{
        f"{count} entries in {name}{f' at {key}' if key else ''}": (
            tokens(name, key, count),
            f"{name} must name at most 10+ tokens beside",
        )
        for name, key, count in (
            ("added_tokens.json", "", 100_001),
            ("tokenizer_config.json", "added_tokens_decoder", 100_001),
            ("special_tokens_map.json", "", 10_001),
            ("special_tokens_map.json", "additional_special_tokens", 10_000),
            ("tokenizer_config.json", "extra_special_tokens", 9_999),
        )
    },
    "a pipe of special tokens": (
        lambda folder: os.mkfifo(folder / "special_tokens_map.json"),
        "special_tokens_map.json must be a file of its own, got a pipe",
    ),
    "a list as end token": (entry("tokenizer_config.json", eos_token=[1]), "tokenizer_config.json: eos_token must be"),
    **{
        f"a chat template of {wrong!r}": (
            entry("tokenizer_config.json", chat_template=wrong),
            "tokenizer_config.json: chat_template must be a text, or a list",
        )
        for wrong in (
            7,
            [],
            ["x"],
            [{"template": "x"}],
            [{"name": "a", "template": 7}],
            [{"name": "a", "template": "x"}, {"name": "a", "template": "y"}],
            {"a": ["x"]},
        )
    },
    "a chat template of 7 in a file of its own": (
        content("chat_template.json", b'{"chat_template": 7}'),
        "chat_template.json: chat_template must be a text, or a list",
    ),
    "no tokenizer": (
        content("tokenizer.json", b"{}"),
        "must hold a model that transformers can load, but its tokenizer.json cannot be read",
    ),
    "an index that leads out": (index("../beside.safetensors"), "safetensors files in its own folder, got"),
    "an index of a file of the system": (index("/etc/passwd"), "in its own folder, got '/etc/passwd'"),
    "an index of pickled weights": (index("pickled.bin"), "in its own folder, got 'pickled.bin'"),
    "an index of nothing": (index("gone.safetensors"), "in its own folder, got 'gone.safetensors'"),
    "an index without weights": (content(INDEX, b"{}"), "must have weight_map"),
    "a missing weight": (
        without_a_weight,
        r"must be complete, but 1 are missing \(model.layers.1.mlp.up_proj.weight\)",
    ),
    "no header": (content(WEIGHTS, b""), "model.safetensors must be an intact safetensors file, but its header"),
    "a header of 2^60 bytes": (shard({}, length=1 << 60), f"its header has {1 << 60} bytes"),
    "a product that overflows": (
        shard({"x": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}),
        "its tensor x has 4 bytes, which differs from its shape",
    ),
    "weights beyond the end": (
        shard({"x": {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 1 << 32]}}),
        f"its header describes {1 << 32} bytes of weights, and the file has 4",
    ),
    "weights of 100 GB that nobody wrote": (
        lambda folder: os.truncate(folder / WEIGHTS, 10**11),
        "model.safetensors must be an intact safetensors file, but .*sparse file with holes",
    ),
    "numbers that are none": (
        lambda folder: save_file(
            {name: torch.full_like(one, torch.nan) for name, one in load_file(folder / WEIGHTS).items()},
            folder / WEIGHTS,
            metadata={"format": "pt"},
        ),
        "the logits of a model must be finite numbers",
    ),
    "a template that looks around": (
        content("chat_template.jinja", b"{{ ''.__class__.__mro__ }}"),
        "must hold a chat template that writes these messages, but SecurityError",
    ),
    "a template that reads files": (content("chat_template.jinja", b"{% include '/etc/passwd' %}"), "chat template"),
    "a long loop": (content("chat_template.jinja", b"{% for i in range(10**12) %}x{% endfor %}"), "Range too big"),
    "half a template": (content("chat_template.jinja", b"{% for"), "must hold a chat template .* TemplateSyntaxError"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")  # of the library, before it fails
def test_a_hostile_folder_is_refused_in_one_line(name: str, folder: Path) -> None:
    change, says = CASES[name]
    change(folder)
    model = LocalModel(folder, device="cpu", reasoning="none")
    with pytest.raises(ValueError, match=says) as caught:
        _ = model.tags, model.complete([request("a")], Sampling(max_tokens=1))
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_a_sound_folder_is_read_whole_or_in_parts(folder: Path) -> None:
    check_folder(folder)
    whole = LocalModel(folder, device="cpu", reasoning="none").model.state_dict()
    index("other.safetensors")(folder)
    parts = LocalModel(folder, device="cpu", reasoning="none").model.state_dict()
    assert set(whole) == set(parts) and all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("change", [{"vocab_size": 10**10}, {"hidden_size": 1 << 20}, {"intermediate_size": 10**9}])
def test_an_untrained_control_is_not_drawn_larger_than_the_weights_that_there_are(
    folder: Path, change: dict[str, Any]
) -> None:
    assert LocalModel(folder, device="cpu", reasoning="none", untrained=0).model is not None
    entry(**change)(folder)
    with pytest.raises(ValueError, match=r"\d{9,} weights.* \d+ bytes|\d{9,} rows"):
        _ = LocalModel(folder, device="cpu", reasoning="none", untrained=0).model


def test_an_expression_that_the_tokenizer_gives_up_is_refused_in_one_line(folder: Path) -> None:
    """Its compiled library ends such a search by an error that is no Exception."""
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    described["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(?:.|.){26}(?<!.)"},
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"retry-limit.*tokenizer\.json"):
        LocalModel(folder).encode("a" * 40)
