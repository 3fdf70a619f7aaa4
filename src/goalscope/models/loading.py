"""Models and tokenizers read from folders of unknown origin: what the files say is checked before a library obeys it.

A library that reads a folder may follow it further than its owner knows: an index of weights can name files outside of
it (and pickled ones), a configuration can name attention code on a hub, an adapter another model. All of this is
refused, and so are weights that are missing: a library draws them at random.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from goalscope.extras import lacking
from goalscope.models._fast import use_grouped_attention
from goalscope.untrusted import UntrustedError, decode_object, read_octets

_MOST_JSON: Final = 1 << 26  # bytes
_SMALL: Final = 1 << 30  # bytes
_LONGEST: Final = 300  # characters of another library's message
_COUNTS: Final = re.compile(r"(num|n)_\w*(layers?|experts?|heads?)|n_layer|n_head")
_MOST_COUNT: Final = 4096
_PARAMETERS_PER_BYTE: Final = 4  # weights of two bits
_INDEX: Final = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model's folder.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a large file, no JSON, or no object.
    """
    try:
        # Configurations hold Infinity, and whole numbers that stand for it.
        return decode_object(read_octets(path, _MOST_JSON), strict=False, finite=False)
    except UntrustedError as error:
        raise ValueError(f"{path} must be sound JSON, but {brief(error)}: {_ADVICE}") from error


def check_folder(folder: Path) -> None:
    """Refuse a model's folder that leads elsewhere, names code to run, or has sizes of no model.

    Raises:
        FileNotFoundError: no config.json.
        ValueError: says which file must be mended and how.
    """
    configuration = read_json(folder / "config.json")
    for name, value in _entries(configuration):
        if name.endswith("_implementation") and "/" in json.dumps(value):
            raise ValueError(
                f"{name} in {folder / 'config.json'} must name attention that transformers brings along, got "
                f"{str(value)[:80]!r}, code on a hub: remove the entry"
            )
        whole = isinstance(value, int) and not isinstance(value, bool)
        if _COUNTS.fullmatch(name) and whole and not 0 <= value <= _MOST_COUNT:
            raise ValueError(
                f"{name} in {folder / 'config.json'} must be from 0 to {_MOST_COUNT}, got {str(value)[:40]}: {_ADVICE}"
            )
    named = configuration.get("transformers_weights")
    if named is not None:
        _check_weights(folder, folder / "config.json", [named])
    if (folder / "adapter_config.json").exists():
        raise ValueError(
            f"a model's folder must hold a whole model, {folder} holds an adapter (adapter_config.json): merge it with "
            "its model (merge_and_unload in peft) and save that one, or remove the file"
        )
    if (folder / _INDEX).is_file():
        weights = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise ValueError(f"{folder / _INDEX} must hold weight_map, the file of each weight: {_ADVICE}")
        _check_weights(folder, folder / _INDEX, list(weights.values()))


def load_tokenizer(source: str, where: Mapping[str, Any], *, folder: Path | None) -> Any:
    """Return the tokenizer of a folder or of the hub.

    Args:
        source: the folder or the name on the hub.
        where: further arguments of ``from_pretrained``.
        folder: the folder, None for the hub.

    Raises:
        ValueError: the folder cannot be read.
    """
    told = folder / "tokenizer_config.json" if folder is not None else None
    configuration = read_json(told) if told is not None and told.is_file() else {}
    if "fast_tokenizer_files" in configuration:
        raise ValueError(
            f"{told} must leave the tokenizer's file to tokenizer.json, it holds fast_tokenizer_files: remove the entry"
        )
    with explained(folder):
        if configuration.get("tokenizer_class") == "PreTrainedTokenizerFast":
            # The very class that AutoTokenizer would choose, without torch, which the choice takes seconds to import.
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(source, **where)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(source, **where)


def load_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any) -> Any:
    """Return the model with the weights of a folder that `check_folder` has seen, or of the hub.

    Args:
        source, where, folder: see `load_tokenizer`.
        dtype: number format.

    Raises:
        ValueError: the folder cannot be read, or weights are missing.
    """
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained
    with explained(folder):
        model, told = read(source, dtype=dtype, use_safetensors=True, output_loading_info=True, **where)
    missing = sorted(told["missing_keys"])
    if missing:
        raise ValueError(
            f"the weights of {source} must be complete, {len(missing)} are missing ({', '.join(missing)[:120]}): "
            f"{_ADVICE}"
        )
    use_grouped_attention(model)
    return model


def draw_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any, seed: int) -> Any:
    """Return a model of the same architecture with weights drawn anew.

    Args:
        source, where, folder, dtype: see `load_weights`.
        seed: one seed, one model.

    Raises:
        ValueError: the folder cannot be read, or its weights are not those of so large a model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config
    with explained(folder):
        config = AutoConfig.from_pretrained(source, **where)
        if folder is not None:
            with torch.device("meta"):  # has shapes and no memory
                bare = make(config, trust_remote_code=False)
            count = sum(parameter.numel() for parameter in bare.parameters())
            held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
            if count > _PARAMETERS_PER_BYTE * held:
                raise ValueError(f"config.json names a model of {count} weights, its files hold {held} bytes")
        with torch.random.fork_rng(devices=[]):  # weights are drawn on the processor: one seed, one model
            torch.manual_seed(seed)
            model = make(config, dtype=dtype, trust_remote_code=False)
    use_grouped_attention(model)
    return model


@contextmanager
def explained(folder: Path | None, what: str = "a model that transformers can load") -> Iterator[None]:
    """Turn what a library raises for the files of a folder into one error that names the folder; nothing for the hub.

    Args:
        folder: the folder, None for the hub.
        what: what the folder must hold.

    Raises:
        ValueError: says what the library says.
    """
    if folder is None:
        yield
        return
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # for a damaged file a library raises whatever happens to fail
        torch = sys.modules.get("torch")  # a tokenizer alone needs none of it
        if torch is not None and isinstance(error, torch.OutOfMemoryError):
            raise
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"{folder} must hold a model whose code transformers brings along, got one with code of its own, which "
                "is never run (trust_remote_code stays off): save it as a known architecture, or serve it with another "
                "program and ask that one"
            ) from error
        raise ValueError(f"{folder} must hold {what}, but {type(error).__name__}: {brief(error)}: {_ADVICE}") from error


def brief(error: Exception) -> str:
    """Return a message that may quote a file of unknown origin: printable characters, one line, not at any length."""
    text = " ".join(str(error).split())[:_LONGEST]
    return "".join(sign if sign.isprintable() else "?" for sign in text)


_ADVICE: Final = "get the files again from where they come from, and check their digests"


def _entries(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return all entries, those of nested objects too."""
    waiting = [configuration]
    while waiting:
        for name, value in waiting.pop().items():
            yield name, value
            if isinstance(value, dict):
                waiting.append(value)


def _check_weights(folder: Path, where: Path, names: list[Any]) -> None:
    for name in names:
        plain = isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name
        if not plain or not (folder / name).is_file():
            raise ValueError(
                f"{where} must name safetensors files of its own folder, got {str(name)[:80]!r}: {_ADVICE}"
            )


@contextmanager
def quiet(folder: Path | None) -> Iterator[None]:
    """Keep transformers from drawing progress bars over ours while it reads a model that takes a moment only."""
    bars: Any = import_module("transformers.utils.logging")
    small = folder is not None and sum(path.stat().st_size for path in folder.glob("*.safetensors")) < _SMALL
    if not small or not bars.is_progress_bar_enabled():
        yield
        return
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()


def needed(name: str) -> Any:
    """Return a library that local models need.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise lacking("local models need torch and transformers", "lm", error) from error
