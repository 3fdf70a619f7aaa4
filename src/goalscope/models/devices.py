"""Where a model lies, where it is computed, and what a study may tell its chat template: checked before it is read."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

PACKAGED: Final = {"theseus": "theseus/weights", "ariadne": "theseus/ariadne"}
"""Models that come with the package: name and folder inside of it."""

_DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?")

# What chats are rendered with is settled by the project; a study adds variables of the template.
_SETTLED: Final = frozenset(
    (
        *("conversation", "messages", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message"),
        *("tools", "documents", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "reasoning_effort"),
    )
)


def model_folder(path_or_name: str | Path) -> Path | None:
    """Return the folder that an argument names, None for a name on the hub.

    Raises:
        FileNotFoundError: a path that is not there, or a bundled model that is not installed.
        ValueError: an empty name, or nearly the name of a bundled model.
    """
    text = str(path_or_name)
    if not text.strip():
        raise ValueError(
            "a model must be named: a folder, a name on the Hugging Face hub, or one of the bundled "
            f"{' and '.join(PACKAGED)}; got an empty text"
        )
    if text in PACKAGED and not Path(text).is_dir():
        folder = Path(str(files("goalscope"))) / PACKAGED[text]
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(
                f"the bundled model {text!r} is not in this installation: install the released package"
            )
        return folder
    path = Path(path_or_name).expanduser()
    if path.is_dir():
        return path
    looks_like_path = isinstance(path_or_name, Path) or text.startswith((".", "/", "~", "\\")) or text.count("/") > 1
    if looks_like_path or "\\" in text or path.exists():
        raise FileNotFoundError(
            f"a model's path must be a folder with config.json, weights and tokenizer, there is none at {text}: give "
            "the folder that save_pretrained wrote, or a name on the hub such as openai/gpt-oss-20b"
        )
    close = get_close_matches(text.lower(), PACKAGED, n=1)
    if close:  # a misspelled name is not worth a minute of asking the hub
        raise ValueError(f"no folder is called {text!r}, and the bundled model is called {close[0]}: write it so")
    return None


def check_device_name(device: str) -> None:
    """Refuse what is no name of a device.

    Raises:
        ValueError: says what names there are.
    """
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"device must be auto, cpu, cuda, a certain GPU such as cuda:1, xpu or mps, got {device!r}")


def check_device(torch: Any, device: str) -> None:
    """Refuse a device that is not in this machine, before any weight is read.

    Raises:
        ValueError: says how many of the kind there are.
    """
    kind, _, number = device.partition(":")
    there = torch.backends.mps.is_available() if kind == "mps" else getattr(torch, kind).is_available()
    count = getattr(torch, kind).device_count() if there else 0
    if int(number or 0) >= count:
        raise ValueError(
            f"the device must be in this machine, got {device!r}, and torch {torch.__version__} finds {count} of this "
            "kind: say device: auto or cpu, or install a torch that is built for your GPU"
        )


def checked_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return further variables of a chat template.

    Raises:
        ValueError: one that is set elsewhere; names it.
    """
    held = sorted(_SETTLED & set(given or {}))
    if held:
        raise ValueError(
            "template_options must hold further variables of the chat template, such as enable_thinking; got "
            f"{', '.join(held)}, set elsewhere: leave it out"
        )
    return dict(given or {})
