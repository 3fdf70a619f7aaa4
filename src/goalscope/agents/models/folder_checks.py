"""The one check of a model's files, before a library reads them.

A library that reads a folder may follow it further than its owner knows: an index of weights can name files outside of
it (and pickled ones), a configuration can name attention code on a hub, an adapter another model. All of this is
refused.
"""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.untrusted import UntrustedError, decode_object
from goalscope.agents.models.gguf_files import check_packages, gguf_in, read_header

ADVICE: Final = "get the files again from where they come from, and check their digests"

_INDEX: Final = "model.safetensors.index.json"
TEMPLATES: Final = "additional_chat_templates"
"""Folder in a model's folder with chat templates that are chosen by the names of their files."""
TEMPLATE_FILES: Final = ("chat_template.jinja", "chat_template.json", TEMPLATES)
_MOST_JSON: Final = 1 << 26  # bytes
_MOST_TEMPLATES: Final = 1 << 24  # bytes
_LONGEST: Final = 300  # characters of another library's message
_COUNTS: Final = re.compile(r"(num|n)_\w*(layers?|experts?|heads?)|n_layer|n_head")
_HEADER_COUNTS: Final = re.compile(r"[\w-]+\.(block_count|expert_count|attention\.head_count(_kv)?)")
_MOST_COUNT: Final = 4096


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model's folder.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a large file, no JSON, or no object.
    """
    try:
        # Configurations hold Infinity, and whole numbers that stand for it.
        return decode_object(NamedFile(path).load_bytes(_MOST_JSON), strict=False, finite=False)
    except UntrustedError as error:
        raise ValueError(f"{path} must be sound JSON, but {brief(error)}: {ADVICE}") from error


def brief(error: BaseException) -> str:
    """Return a message that may quote a file of unknown origin: printable characters, one line, not at any length."""
    text = " ".join(str(error).split())[:_LONGEST]
    return "".join(character if character.isprintable() else "?" for character in text)


def regular_files(folder: Path) -> list[str]:
    """Return the names of the regular files in a model's folder, sorted; links to such files are among them."""
    return [name for name, status in Folder(folder, links=True).entries() if stat.S_ISREG(status.st_mode)]


def named_template_files(folder: Path) -> list[str]:
    """Return the paths of the chat templates that have names, relative to a model's folder."""
    place = Folder(folder, links=True)
    entries = place.entries(TEMPLATES) if place.has_folder(TEMPLATES) else []
    regular = [entry.name for entry in entries if stat.S_ISREG(entry.status.st_mode)]
    return [f"{TEMPLATES}/{name}" for name in regular if name.endswith(".jinja")]


def _holds(folder: Path, name: str) -> bool:
    return Folder(folder, links=True).has_file(name)


def holds_model(path: Path) -> bool:
    """Return whether a path is that of a model: a folder with a configuration, or a GGUF file or a folder with one."""
    return _holds(path, "config.json") or gguf_in(path) is not None


def check_complete(folder: Path) -> set[str]:
    """Return the names of the files in a model's folder; a FileNotFoundError says what it lacks."""
    names = set(regular_files(folder))
    if "config.json" not in names:
        raise FileNotFoundError(
            f"a model's folder must hold config.json, weights and tokenizer as save_pretrained writes them; {folder} "
            "has no config.json"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise FileNotFoundError(
            f"a model's weights must be safetensors files, {folder} has none: pickled weights (.bin, .pt) are never "
            "read, since loading them runs code; convert them with save_pretrained(folder, safe_serialization=True)"
        )
    return names


def check_folder(folder: Path) -> None:
    """Refuse a folder or GGUF file that is no whole model, leads elsewhere, names code to run, or has odd sizes.

    Raises:
        FileNotFoundError: no configuration, or no safetensors weights.
        ValueError: what must not be read, and how to mend it.
    """
    if NamedFile(folder).is_there():
        for name, value in read_header(folder).values.items():
            if _HEADER_COUNTS.fullmatch(name) and isinstance(value, int) and not 0 <= value <= _MOST_COUNT:
                raise ValueError(f"{name} in {folder} must be from 0 to {_MOST_COUNT}, got {value}: {ADVICE}")
        return
    check_complete(folder)
    path = folder / "config.json"
    configuration = read_json(path)
    for name, value in _entries(configuration):
        if name.endswith("_implementation") and "/" in json.dumps(value):
            raise ValueError(
                f"{name} in {path} must name attention that transformers brings along, got {str(value)[:80]!r}, code "
                "on a hub: remove the entry"
            )
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if _COUNTS.fullmatch(name) and is_integer and not 0 <= value <= _MOST_COUNT:
            raise ValueError(f"{name} in {path} must be from 0 to {_MOST_COUNT}, got {str(value)[:40]}: {ADVICE}")
    weights_file = configuration.get("transformers_weights")
    if weights_file is not None:
        _check_weights(folder, path, [weights_file])
    if _holds(folder, "adapter_config.json"):
        raise ValueError(
            f"a model's folder must hold a whole model, {folder} holds an adapter (adapter_config.json): merge it with "
            "its model (merge_and_unload in peft) and save that one, or remove the file"
        )
    if _holds(folder, _INDEX):
        weights = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise ValueError(f"{folder / _INDEX} must hold weight_map, the file of each weight: {ADVICE}")
        _check_weights(folder, folder / _INDEX, list(weights.values()))


def check_tokenizer(folder: Path) -> dict[str, Any]:
    """Return the tokenizer's configuration in a model's folder, {} without one; refuse what must not be read of it."""
    _check_template_files(folder)
    if NamedFile(folder).is_there():
        read_header(folder)  # a damaged file is refused before packages are asked for that could not read it either
        check_packages(folder)
    file = folder / "tokenizer_config.json"
    configuration = read_json(file) if NamedFile(file).is_there() else {}
    if "fast_tokenizer_files" in configuration:
        raise ValueError(
            f"{file} must leave the tokenizer's file to tokenizer.json, it holds fast_tokenizer_files: remove the entry"
        )
    return configuration


def _entries(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all entries, those of nested objects too."""
    waiting = [configuration]
    while waiting:
        for name, value in waiting.pop().items():
            yield name, value
            if isinstance(value, dict):
                waiting.append(value)


def _check_weights(folder: Path, source: Path, names: list[Any]) -> None:
    for name in names:
        is_local_file = isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name
        if not is_local_file or not _holds(folder, name):
            raise ValueError(
                f"{source} must name safetensors files of its own folder, got {str(name)[:80]!r}: {ADVICE}"
            )


def _check_template_files(folder: Path) -> None:
    """Refuse template files that are none, or long: a library reads them whole."""
    if NamedFile(folder).is_there():
        return  # a GGUF file
    place = Folder(folder, links=True)
    files = [entry for entry in place.entries() if entry.name in TEMPLATE_FILES[:-1]]
    if place.has_folder(TEMPLATE_FILES[-1]):
        files += place.entries(TEMPLATE_FILES[-1])
    # Links that lead nowhere are left out, as a library does not find them either.
    present = [entry for entry in files if not stat.S_ISLNK(entry.status.st_mode)]
    odd = [entry.name for entry in present if not stat.S_ISREG(entry.status.st_mode)]
    size = sum(entry.status.st_size for entry in present)
    if odd or size > _MOST_TEMPLATES:
        given = f"{odd[0]}, which is no file" if odd else f"{size} bytes"
        raise ValueError(
            f"the chat templates of {folder} must be files with at most {_MOST_TEMPLATES} bytes together, got {given}: "
            f"{ADVICE}"
        )
