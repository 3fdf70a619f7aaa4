"""Load models and tokenizers with transformers from checked folders, and explain errors.

Missing weights are refused, since the library would draw them at random.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile
from goalscope.agents.models._fast import use_grouped_attention
from goalscope.agents.models.chat_templates import ChatTemplateError
from goalscope.agents.models.folders import ADVICE, brief, check_tokenizer, has_bundled_tokenizer, weight_octets
from goalscope.agents.models.gguf_cache import converted, keep
from goalscope.agents.models.tokenizer_contract import check_file

_DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?")
_TOKENIZER: Final = "tokenizer.json"
_SMALL: Final = 1 << 30  # bytes
_TEXTS: Final = (
    'A grid:\n# # # #\n# A . #\n# . G #\n\n{"action": "right"}  3.14 <|im_start|>',
    " ÄÖ é 中文 😀\t\r\n  x" + "".join(map(chr, range(32, 127))),
)
"""Texts in which a converted tokenizer is compared with its original."""
_PARAMETERS_PER_BYTE: Final = 4  # for weights of two bits


def check_device_name(device: str) -> None:
    """Raise a ValueError if a text is not the name of a device."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"device must be auto, cpu, cuda, a GPU by number such as cuda:1, xpu or mps, got {device!r}")


def check_device(torch: Any, device: str) -> None:
    """Raise a ValueError if this machine does not have the device, before any weights are read."""
    kind, _, number = device.partition(":")
    available = torch.backends.mps.is_available() if kind == "mps" else getattr(torch, kind).is_available()
    count = getattr(torch, kind).device_count() if available else 0
    if int(number or 0) >= count:
        raise ValueError(
            f"this machine has no device {device!r}: torch {torch.__version__} finds {count} devices of this "
            "kind. Set device: auto or device: cpu, or install a version of torch that is built for your GPU"
        )


def load_tokenizer(source: str, where: Mapping[str, Any], *, folder: Path | None) -> tuple[Any, Path | None]:
    """Return a tokenizer and the tokenizer.json that it must agree with; a ValueError says why it cannot be read.

    A tokenizer.json is loaded exactly as it is, whatever class the files next to it name. For the class of another
    model, transformers would build a different tokenizer from the same vocabulary. A file that does not come with the
    package is first tried in a bounded process.

    Args:
        source: the folder, or the model's name on the hub.
        where: further arguments for ``from_pretrained``.
        folder: the folder, None for the hub.

    Returns:
        The transformers tokenizer and its file. The file is None if there is none, or if it comes with the package, in
        which case no comparison is needed.
    """
    configuration = check_tokenizer(folder) if folder is not None else {}
    file = _tokenizer_file(source, where, folder)
    trusted = folder is not None and has_bundled_tokenizer(folder)
    if file is not None and not trusted:
        check_file(file, source)
    with explained(folder):
        # The library refuses a tokenizer with code of its own.
        if file is not None and "auto_map" not in configuration:
            # Loading the file directly avoids importing torch, which takes seconds.
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(source, **where), None if trusted else file
        if "gguf_file" in where and folder is not None:
            return _gguf_tokenizer(source, where, folder), None
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(source, **where), file


def _gguf_tokenizer(source: str, where: Mapping[str, Any], file: Path) -> Any:
    """Return the tokenizer of a GGUF file: from its converted copy in the cache, which is made if there is none."""
    from transformers import PreTrainedTokenizerFast

    def copied(place: Path) -> Any:
        return PreTrainedTokenizerFast.from_pretrained(str(place), local_files_only=True)

    if (place := converted(file, "tokenizer")) is not None:
        return copied(place)
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(source, **where)
    keep(file, "tokenizer", tokenizer.save_pretrained, lambda place: _alike(tokenizer, copied(place)), _SMALL // 16)
    return tokenizer


def _alike(first: Any, second: Any) -> bool:
    """Return whether two tokenizers have equal vocabularies, special tokens and templates, and encode texts alike."""
    facts = [
        (
            tokenizer.get_vocab(),
            *(
                tokenizer.bos_token_id,
                tokenizer.eos_token_id,
                tokenizer.unk_token_id,
                sorted(tokenizer.all_special_ids),
            ),
            *(tokenizer.chat_template, tokenizer.get_added_vocab()),
            [tokenizer(text, add_special_tokens=special)["input_ids"] for text in _TEXTS for special in (True, False)],
            [tokenizer.decode(tokenizer(text)["input_ids"]) for text in _TEXTS],
        )
        for tokenizer in (first, second)
    ]
    template = str(facts[0][5] or "")
    return facts[0] == facts[1] and first(template)["input_ids"] == second(template)["input_ids"]


def _tokenizer_file(source: str, where: Mapping[str, Any], folder: Path | None) -> Path | None:
    """Return the path of the tokenizer.json in a folder or of a model on the hub, or None if there is no such file.

    The file of a model on the hub is downloaded now.
    """
    if folder is None:
        from transformers.utils.hub import cached_file

        try:
            path = cached_file(source, _TOKENIZER, revision=where.get("revision"))
        except OSError:
            return None  # there is no such file, or the hub cannot be reached, which loading will report
        return None if path is None else Path(path)
    if NamedFile(folder).is_there():
        return None  # a GGUF file
    place = Folder(folder, links=True)
    return place.file(_TOKENIZER) if place.has_file(_TOKENIZER) else None


def load_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any) -> Any:
    """Return the model with the weights of a folder that `check_folder` has accepted, or of the hub.

    A ValueError says why they cannot be read, or which weights are missing.
    """
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained
    part = f"weights {dtype}".replace("torch.", "")
    cached = folder is not None and "gguf_file" in where and dtype != "auto" and "device_map" not in where
    place = converted(folder, part) if folder is not None and cached else None
    if place is not None:
        source, where = str(place), {name: value for name, value in where.items() if name != "gguf_file"}
    with explained(folder), _without_reports():
        model, info = read(source, dtype=dtype, use_safetensors=True, output_loading_info=True, **where)
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"the weights of {source} must be complete, but {len(missing)} are missing ({', '.join(missing)[:120]}): "
            f"{ADVICE}"
        )
    if folder is not None and cached and place is None:
        _keep_weights(model, folder, part)
    use_grouped_attention(model)
    return model


def _keep_weights(model: Any, file: Path, part: str) -> None:
    """Keep a converted copy of the weights of a GGUF file, whose numbers are unquantised once they are loaded."""
    from safetensors.torch import load_file

    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())

    def same(place: Path) -> bool:
        # Weights that are tied to others are stored once.
        state = model.state_dict()
        files = Folder(place).files("*.safetensors")
        return bool(files) and all(
            tensor.equal(state[name]) for stored in files for name, tensor in load_file(stored).items()
        )

    keep(file, part, model.save_pretrained, same, size)


def draw_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any, seed: int) -> Any:
    """Return a model of the same architecture with random weights, which depend only on the seed.

    A ValueError says why the folder cannot be read, or that its files are too small for a model of this size.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config
    with explained(folder):
        config = AutoConfig.from_pretrained(source, **where)
        if folder is not None:
            with torch.device("meta"):  # tensors have shapes but take no memory
                shapes_only = make(config, trust_remote_code=False)
            count = sum(parameter.numel() for parameter in shapes_only.parameters())
            n_bytes = weight_octets(folder)
            if count > _PARAMETERS_PER_BYTE * n_bytes:
                raise ValueError(
                    f"config.json describes a model of {count} weights, but its files have {n_bytes} bytes"
                )
        with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU, so that a seed always gives one model
            torch.manual_seed(seed)
            model = make(config, dtype=dtype, trust_remote_code=False)
    use_grouped_attention(model)
    return model


@contextmanager
def explained(folder: Path | str | None, what: str = "a model that transformers can load") -> Iterator[None]:
    """Turn any library error about a folder's files into a ValueError that names the folder, if there is a folder."""
    if folder is None:
        yield
        return
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # a damaged file can make a library raise any kind of error
        torch = sys.modules.get("torch")  # torch is not imported if only a tokenizer is read
        if torch is not None and isinstance(error, torch.OutOfMemoryError):
            raise
        if "ignore_mismatched_sizes" in str(error):  # the library names no weight, but prints a report
            raise ValueError(
                f"{folder} must hold weights of the shapes that config.json describes, but some have others: {ADVICE}"
            ) from error
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"{folder} must hold a model whose code is part of transformers, but it has code of its own, which "
                "is never run (trust_remote_code stays off): save it as a known architecture, or serve it with another "
                "program and use that server"
            ) from error
        kind = "" if isinstance(error, ChatTemplateError) else f"{type(error).__name__}: "
        raise ValueError(f"{folder} must hold {what}, but {kind}{brief(error)}: {ADVICE}") from error


@contextmanager
def _without_reports() -> Iterator[None]:
    """Keep transformers from printing tables of weights, with codes for colours, where goalscope says what is wrong."""
    library: Any = import_module("transformers.utils.logging")
    before = library.get_verbosity()
    library.set_verbosity_error()
    try:
        yield
    finally:
        library.set_verbosity(before)


@contextmanager
def quiet(folder: Path | None) -> Iterator[None]:
    """Keep transformers from drawing progress bars over ours while it reads a small model."""
    bars: Any = import_module("transformers.utils.logging")
    small = folder is not None and Folder(folder).is_there() and weight_octets(folder) < _SMALL  # GGUF files are slow
    disabled = small and bars.is_progress_bar_enabled()
    if disabled:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if disabled:
            bars.enable_progress_bar()


def needed(name: str) -> Any:
    """Return a library that local models need; an ImportError names the extra to install."""
    try:
        return import_module(name)
    except ImportError as error:
        raise lacking("local models need torch and transformers", "lm", error) from error
