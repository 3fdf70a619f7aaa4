"""What a model is, by content: hashes of its files, never their path."""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from goalscope.ids import content_id
from goalscope.models.base import TEMPLATE_FORMS
from goalscope.models.loading import read_json

CARD: Final = "goalscope.json"
"""File in a model's folder that names the form of the prompt templates which the model was trained on."""

_WEIGHTS = (".safetensors", ".safetensors.index.json")
_OTHERS = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|merges\.txt|vocab\.txt|tokenizer\.model|chat_template\.(jinja|json)"
)
_BLOCK = 1 << 22


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model folder that determine its outputs: weights, configurations, tokenizer.

    Raises:
        FileNotFoundError: the folder lacks a configuration or safetensors weights; says what it must hold.
    """
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and (path.name.endswith(_WEIGHTS) or _OTHERS.fullmatch(path.name))
    )
    names = {path.name for path in files}
    if "config.json" not in names:
        raise FileNotFoundError(
            f"a model's folder must hold config.json, weights and tokenizer as save_pretrained writes them; {folder} "
            "has no config.json"
        )
    if not any(path.suffix == ".safetensors" for path in files):
        raise FileNotFoundError(
            f"a model's weights must be safetensors files, {folder} has none: pickled weights (.bin, .pt) are never "
            "read, since loading them runs code; convert them with save_pretrained(folder, safe_serialization=True)"
        )
    return files


def folder_identity(folder: Path, *, weights: bool = True) -> dict[str, str]:
    """Return the sha256 of each file that determines a model's outputs, by file name.

    Args:
        folder: the model's folder.
        weights: whether the weights count; not for a model whose weights are drawn anew.
    """
    return {
        path.name: _digest(str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in model_files(folder)
        if weights or not path.name.endswith(_WEIGHTS)
    }


def read_training(folder: Path) -> dict[str, str]:
    """Return what a model's configuration tells of its training: ``planted_goal`` and ``training_data``, as tags.

    `training.theseus` writes them under the key "goalscope" of config.json; other models have none.

    Raises:
        ValueError: the entry is there and is not made of these two short texts.
    """
    told = read_json(folder / "config.json").get("goalscope")
    if told is None:
        return {}
    entries = told if isinstance(told, dict) else {}
    texts = all(isinstance(value, str) and len(value) <= 400 for value in entries.values())
    if set(entries) != {"planted_goal", "training_data"} or not texts:
        raise ValueError(
            f"the entry goalscope in {folder / 'config.json'} must hold planted_goal and training_data as short texts, "
            f"got {str(told)[:200]}"
        )
    return {name: entries[name] for name in sorted(entries)}


def read_template_form(folder: Path) -> str | None:
    """Return the form of the prompt templates that a model's card names, None where it names none.

    The card is the file `CARD` in the model's folder. It enters no identity of a model: the template itself enters that
    of an agent.

    Raises:
        ValueError: the card holds something else than ``{"template": FORM}``.
    """
    if not (folder / CARD).is_file():
        return None
    told = read_json(folder / CARD)
    if set(told) != {"template"} or told["template"] not in TEMPLATE_FORMS:
        raise ValueError(
            f"{folder / CARD} must hold template, one of {', '.join(TEMPLATE_FORMS)}, and nothing else, "
            f"got {str(told)[:200]}"
        )
    return str(told["template"])


def tokenizer_identity(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file in a folder that decides how chats are written and where outputs end."""
    return {
        path.name: _digest(str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "config.json" and _OTHERS.fullmatch(path.name)
    }


@lru_cache(maxsize=1024)
def _digest(path: str, size: int, modified: int) -> str:
    # Size and time of the last change are here for the cache alone: large files are hashed once a process.
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def parts_identity(model: Any, tokenizer: Any) -> Mapping[str, str]:
    """Return the content identity of a model and a tokenizer that live in memory."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        held = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {held.dtype} {list(held.shape)}\n".encode())
        digest.update(held.flatten().view(dtype=_byte()).numpy().tobytes())
    # The serialised core holds vocabulary, normaliser and added tokens.
    core = getattr(tokenizer, "backend_tokenizer", None)
    text = core.to_str() if core is not None else repr(sorted(tokenizer.get_vocab().items()))
    return {
        "weights": digest.hexdigest(),
        "tokenizer": content_id("tokenizer", [text, tokenizer.chat_template or ""]),
    }


def _byte() -> Any:
    import torch

    return torch.uint8
