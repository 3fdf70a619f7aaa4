"""From a YAML file to plain values, and from a wrong value to a message that says where it is and what would do."""

import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goalscope.checks import near_miss

_MOST_BYTES = 4_000_000


class _Loader(yaml.SafeLoader):
    """`yaml.safe_load` without its two traps: repeated keys, and references that grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise ValueError(
                f"a study must be written out, without references, got *{event.anchor}{_place(event.start_mark)}"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"a key must be a plain word, got a list or mapping{_place(key.start_mark)}")
            if key.value in seen:
                raise ValueError(
                    f"a key must be given once: {key.value!r} stands{_place(seen[key.value])} and again"
                    f"{_place(key.start_mark)}"
                )
            seen[key.value] = key.start_mark
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return the plain values of a YAML file.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file cannot be read.
        ValueError: not UTF-8 text, too large, not YAML, a repeated key, or references.
    """
    if not path.exists():
        raise FileNotFoundError(f"a study must be a YAML file, found none at {path}")
    if path.is_dir():
        raise IsADirectoryError(f"a study must be a YAML file, got the directory {path}")
    with path.open("rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"a study must be a text of at most {_MOST_BYTES:,} bytes, {path} is larger")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"a study must be UTF-8 text, {path} is not (byte {error.start})") from error
    return read_yaml_text(text, str(path))


def read_yaml_text(text: str, name: str) -> Any:
    """Return the plain values of a YAML text; ``name`` stands for it in messages.

    Raises:
        ValueError: not YAML, a repeated key, or references; says where.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"{name} must be YAML: {error.problem or error.context}{_place(mark)}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{name} must be YAML text: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{name} must be a study, got lists or mappings nested too deep to read") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def explain(error: ValidationError, keys: dict[str, Sequence[str]], name: str, kind: str = "study") -> str:
    """Return one line for each thing that is wrong: the key's path, what must hold, what was given, a near miss.

    Args:
        error: what pydantic found.
        keys: valid keys by the kind of the mapping that holds them: "" for the study, "worlds grid", "horizon", ...
        name: name of the file, or "the study".
        kind: what it should be.
    """
    lines = [_line(detail, keys) for detail in error.errors(include_url=False)]
    return f"{name} is not a valid {kind}:\n" + "\n".join(f"  {line}" for line in dict.fromkeys(lines))


def shorten(value: object) -> str:
    """Return a value as it may stand in a message."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _line(detail: ErrorDetails, keys: dict[str, Sequence[str]]) -> str:
    parts, holder = list(detail["loc"]), ""
    if parts and parts[0] == "worlds" and len(parts) > 2:
        # The kind of an entry, by which its model was chosen, stands in the path before the key.
        holder = f"worlds {parts.pop(2)}"
    elif len(parts) > 1:
        holder = str(parts[0])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".") or "a study"
    kind, context, given = detail["type"], detail.get("ctx", {}), shorten(detail["input"])
    if kind == "extra_forbidden":
        return f"{path}: unknown key{near_miss(parts[-1], keys.get(holder, ()))}"
    if kind == "missing":
        return f"{path}: must be given"
    if kind == "union_tag_invalid":
        tag, valid = str(context["tag"]), [word.strip(" '") for word in str(context["expected_tags"]).split(",")]
        return f"{path}.kind: must be one of {', '.join(valid)}, got {tag!r}{near_miss(tag, valid)}"
    if kind == "union_tag_not_found":
        return f"{path}.kind: must be given, got {given}"
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{path}: {message}"
    message = message.replace("Input should be", "must be").replace("a valid tuple", "a list")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping of keys to values", message)
    valid = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ",").split(",") if word]
    hint = near_miss(detail["input"], valid) if kind == "literal_error" else ""
    return f"{path}: {message}, got {given}" + (hint if "did you mean" in hint else "")


def _place(mark: yaml.Mark | None) -> str:
    return f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
