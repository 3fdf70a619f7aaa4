"""Folders of models: their location, their content identity, and one check of their files before a library reads them.

A library that reads a folder may follow references that the folder's owner did not expect. An index of weights can name
files outside the folder, including pickles. A configuration can name attention code on a hub, and an adapter can name
another model. All of this is refused.
"""

import hashlib
import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from goalscope._ground.checks import note_namesake
from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import UntrustedError, decode_object, printable, shorten
from goalscope.agents.models.base import COMPLETION, TEMPLATE_FORMS
from goalscope.agents.models.weight_files import SUFFIX, check_header, check_packages, digest_of, gguf_in, read_header

PACKAGED: Final = {
    "theseus": "agents/theseus/weights",
    "ariadne": "agents/theseus/ariadne",
    "organism-goal": "agents/theseus/organism-goal",
    "organism-corner": "agents/theseus/organism-corner",
}
"""Name of a bundled model -> its folder inside the package."""

CARD: Final = "goalscope.json"
"""Name of a file in a model's folder that names the form of the prompt templates the model was trained on."""

_WEIGHTS = (".safetensors", ".safetensors.index.json")
_OTHERS = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|merges\.txt|vocab\.txt|tokenizer\.model|chat_template\.(jinja|json)|additional_chat_templates/.+\.jinja"
)
_TOKENIZER = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|merges\.txt|vocab\.txt|tokenizer\.model"
)
ADVICE: Final = "download the files again, and check their digests"

_INDEX: Final = "model.safetensors.index.json"
TEMPLATES: Final = "additional_chat_templates"
"""Name of a subfolder with chat templates, which are chosen by the names of their files."""
TEMPLATE_FILES: Final = ("chat_template.jinja", "chat_template.json", TEMPLATES)
_MOST_JSON: Final = 1 << 26  # bytes
_MOST_TEMPLATES: Final = 1 << 24  # bytes
_LONGEST: Final = 300  # characters of another library's message that an error may quote
_COUNTS: Final = re.compile(r"(num|n)_\w*(layers?|experts?|heads?)|n_layer|n_head")
_HEADER_COUNTS: Final = re.compile(r"[\w-]+\.(block_count|expert_count|attention\.head_count(_kv)?)")
_MOST_COUNT: Final = 4096


def model_folder(path_or_name: str | Path) -> Path | None:
    """Return the folder or GGUF file of a model; None if the argument is a name on the Hugging Face hub.

    Args:
        path_or_name: a folder, a GGUF file, the name of a bundled model such as "theseus", or a name on the hub.

    Raises:
        FileNotFoundError: the path does not exist, or the bundled model is not installed.
        ValueError: the name is empty or nearly that of a bundled model, or the folder has several GGUF files.
    """
    text = str(path_or_name)
    if not text.strip():
        raise ValueError(
            "model must be a folder, a name on the Hugging Face hub, or one of the bundled models "
            f"{', '.join(PACKAGED)}, got an empty text"
        )
    if text in PACKAGED and not isinstance(path_or_name, Path):
        note_namesake(text, "model")
        folder = _packaged()[text]
        if not Folder(folder, links=True).has_file("config.json"):
            raise FileNotFoundError(
                f"the bundled model {text!r} is missing in this installation: install the released package"
            )
        return folder
    path = Path(path_or_name).expanduser()
    if Folder(path).is_there() or (NamedFile(path).is_there() and path.suffix.lower() == SUFFIX):
        return gguf_in(path) or path
    looks_like_path = isinstance(path_or_name, Path) or text.startswith((".", "/", "~", "\\")) or text.count("/") > 1
    if looks_like_path or "\\" in text or anything_at(path):
        raise FileNotFoundError(
            "a model's path must be a folder with config.json, weights and tokenizer, or a GGUF file; there is none at "
            f"{text}: give the folder that save_pretrained wrote, or a name on the hub such as openai/gpt-oss-20b"
        )
    close = get_close_matches(text.lower(), PACKAGED, n=1)
    if close:  # avoids a minute of searching the hub for a misspelled name
        raise ValueError(f"there is no folder {text!r}; the bundled model is called {close[0]}: correct the name")
    return None


def folder_identity(folder: Path, *, weights: bool = True) -> dict[str, str]:
    """Return the sha256 of each file that determines a model's outputs, by file name; this identifies the model.

    Weights may have gigabytes, so their headers are checked before their digests are computed.

    Args:
        folder: the model's folder.
        weights: whether to include the weights; False for a model whose weights are drawn at random.

    Raises:
        FileNotFoundError: the folder has no configuration or no safetensors weights; the message says what is missing.
        ValueError: the size of a file of weights differs from what its header describes.
    """
    if NamedFile(folder).is_there():
        return _gguf_identity(folder, weights=weights)
    present = check_complete(folder)
    check_weights(folder, present)
    names = [*present, *named_template_files(folder)]
    return _digests(
        folder, [name for name in names if _OTHERS.fullmatch(name) or (weights and name.endswith(_WEIGHTS))]
    )


def _gguf_identity(file: Path, *, weights: bool) -> dict[str, str]:
    """Return the identity of a GGUF file: digest and type of quantisation, or without weights only its tokenizer."""
    header = read_header(file)
    if not weights:
        shape = {name: value for name, value in header.values.items() if not name.startswith("tokenizer.")}
        return {"configuration": content_id("configuration", shape), "tokenizer": header.tokenizer}
    digest = digest_of(file)
    return {"gguf": digest, "quantisation": header.quantisation, "tokenizer": header.tokenizer}


def weight_octets(folder: Path) -> int:
    """Return the total size of a model's weight files in bytes.

    Args:
        folder: the model's folder, or its GGUF file.
    """
    if NamedFile(folder).is_there():
        return NamedFile(folder).status().st_size
    place = Folder(folder, links=True)
    return sum(place.size(path.name) for path in place.files("*.safetensors"))


def has_chat_template(folder: Path) -> bool:
    """Return whether a model has a chat template, by looking only at the files that may contain one.

    A model without a chat template is treated as a base model, which continues texts.
    """
    if NamedFile(folder).is_there():
        return bool(read_header(folder).chat_template)
    if any(anything_at(folder / name) for name in TEMPLATE_FILES):
        return True
    configuration_file = folder / "tokenizer_config.json"
    return NamedFile(configuration_file).is_there() and bool(read_json(configuration_file).get("chat_template"))


@cache
def _packaged() -> Mapping[str, Path]:
    """Return the folders of the bundled models by name."""
    return {name: Path(str(files("goalscope"))) / place for name, place in PACKAGED.items()}


@cache
def bundled_templates() -> frozenset[str]:
    """Return the sources of the chat templates that come with the package."""
    candidates = (folder / TEMPLATE_FILES[0] for folder in _packaged().values())
    return frozenset(NamedFile(file).load_text() for file in candidates if NamedFile(file).is_there())


@cache
def _bundled_tokenizers() -> frozenset[tuple[tuple[str, str], ...]]:
    """Return the digests of the tokenizer files of each bundled model."""
    return frozenset(_tokenizer_digests(folder) for folder in _packaged().values() if Folder(folder).is_there())


def _tokenizer_digests(folder: Path) -> tuple[tuple[str, str], ...]:
    names = [name for name in regular_files(folder) if _TOKENIZER.fullmatch(name)]
    return tuple(sorted(_digests(folder, names).items()))


def has_bundled_tokenizer(folder: Path) -> bool:
    """Return whether a folder's tokenizer files equal those of a model that comes with goalscope.

    Such a tokenizer is trusted and needs no further checks.
    """
    return not NamedFile(folder).is_there() and _tokenizer_digests(folder) in _bundled_tokenizers()


def tokenizer_identity(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file that decides how a model's chats are written and where outputs end, by file name.

    This identifies the chat format of a model without its weights.
    """
    if NamedFile(folder).is_there():
        return {"tokenizer": read_header(folder).tokenizer}
    names = [*regular_files(folder), *named_template_files(folder)]
    return _digests(folder, [name for name in names if name != "config.json" and _OTHERS.fullmatch(name)])


def parts_identity(model: Any, tokenizer: Any) -> Mapping[str, str]:
    """Return what identifies a model and a tokenizer that are already in memory: one digest for each of them."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        digest.update(values.flatten().view(dtype=torch.uint8).numpy().tobytes())
    # The serialised core contains vocabulary, normaliser and added tokens.
    core = getattr(tokenizer, "backend_tokenizer", None)
    text = core.to_str() if core is not None else repr(sorted(tokenizer.get_vocab().items()))
    return {"weights": digest.hexdigest(), "tokenizer": content_id("tokenizer", [text, tokenizer.chat_template or ""])}


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    digests = {}
    for path in (folder / name for name in sorted(names)):
        try:
            digests[str(path.relative_to(folder))] = digest_of(path)
        except UntrustedError as error:
            raise ValueError(f"{path}: {error}") from error
    return digests


def read_training(folder: Path) -> dict[str, str]:
    """Read from a model's configuration which goal was planted in training, and on which data it was trained.

    `training.theseus` writes the two entries, ``planted_goal`` and ``training_data``, under the key "goalscope" of
    config.json. They become tags of the model's episodes, named values by which results can be grouped.

    Returns:
        The two entries by name; empty for other models.

    Raises:
        ValueError: the entry exists but does not consist of these two short texts.
    """
    if NamedFile(folder).is_there():
        return {}
    stored = read_json(folder / "config.json").get("goalscope")
    if stored is None:
        return {}
    entries = stored if isinstance(stored, dict) else {}
    texts = all(isinstance(value, str) and len(value) <= 400 for value in entries.values())
    if set(entries) != {"planted_goal", "training_data"} or not texts:
        raise ValueError(
            f"the entry goalscope in {folder / 'config.json'} must have planted_goal and training_data as short texts, "
            f"got {str(stored)[:200]}"
        )
    return {name: entries[name] for name in sorted(entries)}


def read_template_form(folder: Path) -> str | None:
    """Return the form of the prompt templates that a model needs, such as "schema" or "completion".

    The result is None for the default.

    The form is read from the model's card, the file `CARD` in its folder. Without a card, a base model (a model without
    a chat template) needs `COMPLETION`, and other models have the default. The card is not part of a model's identity,
    because the template itself is part of the agent's identity.

    Raises:
        ValueError: the card contains anything but the name of a form.
    """
    if not Folder(folder, links=True).has_file(CARD):
        return None if has_chat_template(folder) else COMPLETION
    card = read_json(folder / CARD)
    if set(card) != {"template"} or card["template"] not in (*TEMPLATE_FORMS, COMPLETION):
        raise ValueError(
            f"{folder / CARD} must contain only the key template, one of {', '.join((*TEMPLATE_FORMS, COMPLETION))}, "
            f"got {str(card)[:200]}"
        )
    return str(card["template"])


def stamps(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, size in bytes and modification time of each file of a model, to notice when files have changed.

    Args:
        folder: the model's folder, or its GGUF file.
    """
    if NamedFile(folder).is_there():
        status = NamedFile(folder).status()
        return [(folder.name, status.st_size, status.st_mtime_ns)]
    place = Folder(folder, links=True)
    entries = [*place.entries(), *(place.entries(TEMPLATES) if place.has_folder(TEMPLATES) else [])]
    return [(name, own.st_size, own.st_mtime_ns) for name, own in entries if stat.S_ISREG(own.st_mode)]


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model's folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is too large, is not JSON, or does not contain an object.
    """
    try:
        # Configurations may contain Infinity, and huge whole numbers that stand for it.
        return decode_object(NamedFile(path).load_bytes(_MOST_JSON), strict=False, finite=False)
    except UntrustedError as error:
        raise ValueError(f"{path} must be valid JSON, but {brief(error)}: {ADVICE}") from error


def brief(error: BaseException) -> str:
    """Shorten an error's message to one line of printable characters, since it may quote an untrusted file."""
    return printable(" ".join(str(error).split())[:_LONGEST])


def regular_files(folder: Path) -> list[str]:
    """Return the sorted names of the files in a model's folder, including links to files but no folders or pipes."""
    return [name for name, status in Folder(folder, links=True).entries() if stat.S_ISREG(status.st_mode)]


def named_template_files(folder: Path) -> list[str]:
    """Return the paths of a model's additional chat templates, relative to its folder, from the subfolder
    `TEMPLATES`.
    """
    place = Folder(folder, links=True)
    entries = place.entries(TEMPLATES) if place.has_folder(TEMPLATES) else []
    regular = [entry.name for entry in entries if stat.S_ISREG(entry.status.st_mode)]
    return [f"{TEMPLATES}/{name}" for name in regular if name.endswith(".jinja")]


def _holds(folder: Path, name: str) -> bool:
    return Folder(folder, links=True).has_file(name)


def holds_model(path: Path) -> bool:
    """Return whether a path leads to a model: a folder with a configuration, a GGUF file, or a folder with one."""
    return _holds(path, "config.json") or gguf_in(path) is not None


def check_complete(folder: Path) -> set[str]:
    """Check that a model's folder has a configuration and safetensors weights, and return the names of its files.

    Raises:
        FileNotFoundError: one of them is missing; the message names it.
    """
    names = set(regular_files(folder))
    if "config.json" not in names:
        raise FileNotFoundError(
            f"a model's folder must contain config.json, weights and tokenizer as save_pretrained writes them, but "
            f"{folder} has no config.json"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise FileNotFoundError(
            f"a model's weights must be safetensors files, but {folder} has none. Pickled weights (.bin, .pt) are not "
            "read, since loading them runs code: convert them with save_pretrained(folder, safe_serialization=True)"
        )
    return names


def check_weights(folder: Path, names: Iterable[str]) -> None:
    """Check that each safetensors file of a model has the size that its header describes.

    Args:
        folder: the model's folder.
        names: names of files in it. Files that are not safetensors are passed over.

    Raises:
        ValueError: a file is damaged or incomplete.
    """
    for name in sorted(names):
        if name.endswith(_WEIGHTS[0]):
            try:
                check_header(folder / name)
            except ValueError as error:
                raise ValueError(
                    f"{folder / name} must be an intact safetensors file, but {brief(error)}: {ADVICE}"
                ) from error


def check_folder(folder: Path) -> None:
    """Check a model's folder or GGUF file before a library reads it.

    It is refused if it is incomplete, refers to files elsewhere, names code to run, or has impossible sizes.

    Raises:
        FileNotFoundError: there is no configuration, or there are no safetensors weights.
        ValueError: the folder contains something that must not be read; the message says how to correct it.
    """
    if NamedFile(folder).is_there():
        for name, value in read_header(folder).values.items():
            if _HEADER_COUNTS.fullmatch(name) and isinstance(value, int) and not 0 <= value <= _MOST_COUNT:
                raise ValueError(f"{name} in {folder} must be from 0 to {_MOST_COUNT}, got {value}: {ADVICE}")
        return
    check_weights(folder, check_complete(folder))
    path = folder / "config.json"
    configuration = read_json(path)
    for name, value in _entries(configuration):
        if name.endswith("_implementation") and "/" in json.dumps(value):
            raise ValueError(
                f"{name} in {path} must name an attention implementation of transformers, got {str(value)[:80]!r}, "
                "which is code on a hub: remove the entry"
            )
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if _COUNTS.fullmatch(name) and is_integer and not 0 <= value <= _MOST_COUNT:
            raise ValueError(f"{name} in {path} must be from 0 to {_MOST_COUNT}, got {str(value)[:40]}: {ADVICE}")
    weights_file = configuration.get("transformers_weights")
    if weights_file is not None:
        _check_weight_names(folder, path, [weights_file])
    if _holds(folder, "adapter_config.json"):
        raise ValueError(
            f"a model's folder must hold a whole model, but {folder} holds an adapter (adapter_config.json): merge "
            "it with its model (merge_and_unload in peft) and save the result, or remove the file"
        )
    if _holds(folder, _INDEX):
        weights = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise ValueError(f"{folder / _INDEX} must have weight_map, which names the file of each weight: {ADVICE}")
        _check_weight_names(folder, folder / _INDEX, list(weights.values()))


_TEXT_OR_TOKEN: Final = ((str, dict), "a text, or an object with the text as content")
_TOKENIZER_ENTRIES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "model_max_length": ((int, float), "a number of tokens"),
    "padding_side": ((str,), "left or right"),
    "truncation_side": ((str,), "left or right"),
    "tokenizer_class": ((str,), "the name of a class"),
    "add_bos_token": ((bool,), "true or false"),
    "add_eos_token": ((bool,), "true or false"),
    "clean_up_tokenization_spaces": ((bool,), "true or false"),
    "added_tokens_decoder": ((dict,), "an object"),
    "extra_special_tokens": ((dict, list), "an object or a list"),
    **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"), _TEXT_OR_TOKEN),
}
"""Entries of tokenizer_config.json that a library uses without a check -> the types they may have, and in words."""


TOKEN_FILES: Final = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Names of the files that can name tokens beside those of tokenizer.json."""
_MOST_SPECIAL: Final = 10_000
_MOST_ADDED: Final = 100_000


def check_token_files(folder: Path) -> None:
    """Check that a model's files add no more tokens to the tokenizer than a library can add in a few seconds.

    The library compares some of these tokens in pairs, so a file with very many could block it for hours.

    Raises:
        ValueError: a file is no regular file or no JSON object, or names more tokens.
    """
    for name in TOKEN_FILES:
        if not _holds(folder, name):
            continue
        entries = read_json(folder / name)
        added = [entries] if name == TOKEN_FILES[2] else [entries.pop("added_tokens_decoder", None)]
        special = [] if name == TOKEN_FILES[2] else [entries, *entries.values()]
        for values, most in ((added, _MOST_ADDED), (special, _MOST_SPECIAL)):
            count = sum(len(value) for value in values if isinstance(value, dict | list))
            if count > most:
                raise ValueError(
                    f"{folder / name} must name at most {most} tokens beside those of tokenizer.json, got {count} "
                    f"entries: {ADVICE}"
                )


def check_tokenizer(folder: Path) -> dict[str, Any]:
    """Check a model's tokenizer files before a library reads them, and return the content of tokenizer_config.json.

    Returns:
        The configuration; {} if the model has no such file.

    Raises:
        ValueError: an entry must not be read, for example because it names other files.
        ImportError: the model is a GGUF file, and a package for reading it is missing.
    """
    _check_template_files(folder)
    if NamedFile(folder).is_there():
        read_header(folder)  # refuses a damaged file before asking the user to install packages for it
        check_packages(folder)
    else:
        check_token_files(folder)
    file = folder / "tokenizer_config.json"
    configuration = read_json(file) if NamedFile(file).is_there() else {}
    if "fast_tokenizer_files" in configuration:
        raise ValueError(f"{file} must not have fast_tokenizer_files, since tokenizer.json is read: remove the entry")
    for name, (kinds, words) in _TOKENIZER_ENTRIES.items():
        value = configuration.get(name)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise ValueError(f"{file}: {name} must be {words}, got {shorten(value)}: correct or remove the entry")
    _check_templates(file, configuration.get("chat_template"))
    if NamedFile(templates_file := folder / TEMPLATE_FILES[1]).is_there():
        _check_templates(templates_file, read_json(templates_file).get("chat_template"))
    return configuration


def _check_templates(file: Path, value: Any) -> None:
    """Refuse an entry chat_template that is neither a template nor several templates with different names."""
    if value is None or isinstance(value, str):
        return
    pairs: list[Any] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        pairs = [(one.get("name"), one.get("template")) if isinstance(one, dict) else (one, None) for one in value]
    names = [name for name, _ in pairs]
    if not pairs or not all(isinstance(text, str) for pair in pairs for text in pair) or len({*names}) < len(names):
        raise ValueError(
            f"{file}: chat_template must be a text, or a list of objects with different texts as name and a text as "
            f"template, got {shorten(value)}: correct or remove the entry"
        )


def _entries(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all entries, including those of nested objects."""
    waiting = [configuration]
    while waiting:
        for name, value in waiting.pop().items():
            yield name, value
            if isinstance(value, dict):
                waiting.append(value)


def _check_weight_names(folder: Path, source: Path, names: list[Any]) -> None:
    for name in names:
        is_local_file = isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name
        if not is_local_file or not _holds(folder, name):
            raise ValueError(
                f"{source} must name only safetensors files in its own folder, got {str(name)[:80]!r}: {ADVICE}"
            )


def _check_template_files(folder: Path) -> None:
    """Refuse template files that are not regular files or are too large, since a library reads them whole."""
    if NamedFile(folder).is_there():
        return  # a GGUF file
    place = Folder(folder, links=True)
    entries = [entry for entry in place.entries() if entry.name in TEMPLATE_FILES[:-1]]
    if place.has_folder(TEMPLATE_FILES[-1]):
        entries += place.entries(TEMPLATE_FILES[-1])
    # Broken links are ignored, since a library does not find the file either.
    present = [entry for entry in entries if not stat.S_ISLNK(entry.status.st_mode)]
    odd = [entry.name for entry in present if not stat.S_ISREG(entry.status.st_mode)]
    size = sum(entry.status.st_size for entry in present)
    if odd or size > _MOST_TEMPLATES:
        description = f"{odd[0]}, which is not a file" if odd else f"{size} bytes"
        raise ValueError(
            f"the chat templates of {folder} must be files with at most {_MOST_TEMPLATES} bytes in total, "
            f"got {description}: "
            f"{ADVICE}"
        )
