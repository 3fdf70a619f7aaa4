"""Read YAML from strangers as plain values: the core schema of YAML 1.2, without further language features.

Everything is text, except ``null`` (``~``), ``true``, ``false``, and finite numbers (decimal, ``0x`` or ``0o``;
integers within 64 bits). References, tags and repeated keys are refused. So are words that YAML 1.1 reads differently
(``yes``, ``off``, ``010``, ``1_000``, ``1:30``), because only the author knows what was meant.

Source: YAML 1.2.2, section 10.3 "Core Schema"; YAML 1.1, the types bool, int and float.
"""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.untrusted import UntrustedError, printable, shorten

MOST_YAML_BYTES: Final = 4_000_000
MOST_VALUES: Final = 100_000
"""Maximum number of values in a text, including keys."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file of unknown origin, and return its content: nested mappings, lists, texts, numbers, booleans and
    None.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if the file cannot be read.
        ValueError: if the file is not UTF-8 text, is too large, or is refused by `read_yaml_text`.
    """
    if Folder(path).is_there():
        raise IsADirectoryError(f"a YAML file is needed, but {path} is a directory: give the path of a file in it")
    try:
        text = NamedFile(path).load_text(MOST_YAML_BYTES)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path}: check the path") from error
    except UntrustedError as error:
        raise ValueError(f"{path}: {error}") from error
    return read_yaml_text(text, str(path))


def read_yaml_text(text: str, name: str) -> Any:
    """Parse YAML of unknown origin, and return its content: nested mappings, lists, texts, numbers, booleans and None.

    Args:
        text: the YAML text.
        name: what messages call the text.

    Raises:
        ValueError: if the text is not YAML, has more than `MOST_VALUES` values, or uses what is refused: references,
            tags, repeated keys, and words that versions of YAML read differently. The message has key and location.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = printable(str(error.problem or error.context))
        raise ValueError(
            f"{name} is not valid YAML: {problem}{_location(mark)}: correct that line or the one above it"
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        column = error.position - text.rfind("\n", 0, error.position)  # `rfind` gives -1 in the first line
        raise ValueError(
            f"{name} is not valid YAML text: it has the character U+{error.character:04X} in line {line + 1}, "
            f"column {column}: remove it"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not valid YAML text: {printable(str(error))}") from error
    except RecursionError as error:
        raise ValueError(f"{name} must be a study, got lists or mappings nested too deep to read") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def write_yaml(value: Any, **layout: Any) -> str:
    """Write nested mappings, lists, texts, numbers, booleans and None as YAML text that `read_yaml_text` can read.

    Args:
        value: the values.
        layout: further arguments of ``yaml.dump``.
    """
    return str(yaml.dump(value, Dumper=_Dumper, **layout))


def read_pairs(text: str, argument: str) -> list[tuple[str, Any]]:
    """Read parameters that are written as ``key=value,key=value``, each value as YAML, in their order.

    Args:
        text: the parameters; "" for none. Commas within brackets belong to a value.
        argument: the whole argument of the command line, for messages.

    Returns:
        The pairs of key and value.

    Raises:
        ValueError: if a part is not KEY=VALUE, a key occurs twice, or a value is not YAML.
    """
    pairs = list[tuple[str, Any]]()
    for part in re.split(r",(?![^\[{(]*[\]})])", text) if text else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ValueError(
                f"parameters must be written as key=value,key=value, but {part!r:.80} in {argument!r:.200} is not: "
                "give a key and a value"
            )
        if key in dict(pairs):
            raise ValueError(f"the parameter {key} is given twice in {argument!r:.200}: leave one of them out")
        pairs.append((key, read_yaml_text(value, argument)))
    return pairs


def set_key(mapping: dict[str, Any], setting: str, holds: str = "the study") -> None:
    """Change one key of nested settings in place, as the option ``--set KEY=VALUE`` asks; the value is read as YAML.

    Args:
        mapping: the settings, as nested mappings and lists.
        setting: the change, such as ``worlds.0.count=3``. The key may be new, but its parent must exist.
        holds: what the settings are called in errors.

    Raises:
        ValueError: if the change has another form, or the parent of the key does not exist.
    """
    key, equals, text = setting.partition("=")
    path = key_path(key)
    if not equals or not path:
        raise ValueError(f"--set must be KEY=VALUE, e.g. worlds.0.count=3, got {setting!r}")
    holder: Any = mapping
    for depth, step in enumerate(path):
        parent = ".".join(path[:depth]) or holds
        if isinstance(holder, list):
            if not step.isascii() or not step.isdigit() or int(step) >= len(holder):
                count = "1 value" if len(holder) == 1 else f"{len(holder)} values"
                raise ValueError(f"--set {key}: {parent} has {count}, numbered from 0, so there is no value {step!r}")
            index: Any = int(step)
        elif isinstance(holder, Mapping):
            index = step
        else:
            raise ValueError(
                f"--set {key}: {parent} has no keys below it, since its value is {shorten(holder)}: set {parent}"
            )
        if depth + 1 == len(path):
            holder[index] = read_yaml_text(text, f"--set {key}")
        elif isinstance(holder, Mapping) and index not in holder:
            raise ValueError(f"--set {key}: {parent} has no key {step}{near_miss(step, list(map(str, holder)))}")
        else:
            holder = holder[index]


def key_path(key: str) -> list[str]:
    """Split a key such as ``worlds.0.count`` or ``worlds[0].count`` into its parts, here ``["worlds", "0",
    "count"]``.
    """
    return [part for part in re.split(r"[.\[\]]+", key.strip()) if part]


class _Dumper(yaml.SafeDumper):
    """The writer: no references, and quotes around texts that either version of YAML would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    """The reader: the scalars of the core schema instead of those of YAML 1.1, and refusals."""

    _values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        key = index.value if isinstance(index, yaml.ScalarNode) else None
        position = _location(event.start_mark) + ("" if key is None else f" (key {shorten(key)})")
        if isinstance(event, yaml.AliasEvent):
            alias = f"*{printable(str(event.anchor))}{position}"
            raise ValueError(f"a study must be written out, without references, got {alias}")
        if getattr(event, "tag", None) is not None:
            raise ValueError(
                f"a value must be written without a tag, got {printable(event.tag)}{position}: leave it out"
            )
        self._values += 1
        if self._values > MOST_VALUES:
            raise ValueError(f"a study must have at most {MOST_VALUES} values, got more{position}")
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            node.value = _joined(node.value, position)
            _check(node, position)
        return node

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: yaml.Mark) -> list[str]:
        try:
            return list(super().scan_flow_scalar_non_spaces(double, start_mark))
        except (OverflowError, ValueError) as error:  # of chr
            location = _location(self.get_mark())
            raise ValueError(
                f"an escape must name a character of Unicode, at most \\U0010FFFF, got more{location}"
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first_marks: dict[Any, yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"a key must be a plain word, got a list or mapping{_location(key.start_mark)}")
            if len(key.value) > _LONGEST_KEY:
                key_text = f"{shorten(key.value)}{_location(key.start_mark)}"
                raise ValueError(f"a key must have at most {_LONGEST_KEY} characters, got {key_text}")
            if key.value in first_marks:
                raise ValueError(
                    f"a key must be given once: {shorten(key.value)} stands{_location(first_marks[key.value])} and "
                    f"again{_location(key.start_mark)}"
                )
            first_marks[key.value] = key.start_mark
        return super().construct_mapping(node, deep)


def _check(node: yaml.ScalarNode, position: str) -> None:
    """Refuse a plain scalar that versions of YAML read differently, and a number that is too large."""
    text, kind = node.value, node.tag.rpartition(":")[2]
    if kind in ("str", "int") and node.style is None and _AMBIGUOUS.fullmatch(text):
        raise ValueError(
            f"a plain value must mean the same in every version of YAML, got {shorten(text)}{position}: write true or "
            "false, a number in plain digits, or a text in quotes"
        )
    if kind == "int" and not (len(text) <= _LONGEST_NUMBER and -(2**63) <= _whole(text) < 2**63):
        raise ValueError(f"a whole number must fit into 64 bits, got {shorten(text)}{position}")
    if kind == "float" and float(text) in (float("inf"), float("-inf")):
        raise ValueError(f"a number must be finite, got {shorten(text)}{position}")


def _joined(text: str, position: str) -> str:
    """Return a text in which the two halves of a surrogate pair are one character, as JSON writes them in escapes."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError(f"text must be Unicode, got half a surrogate pair{position}") from error


def _whole(text: str) -> int:
    """Return a whole number of the core schema: decimal, or after 0o and 0x."""
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _location(mark: yaml.Mark | None) -> str:
    return f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


_LONGEST_KEY: Final = 1024  # characters, as YAML has it for keys without a mark of their own
_LONGEST_NUMBER: Final = 24  # characters, of whole numbers
# Of YAML 1.1 alone: truth in six words, octal, binary, grouped and base-60 numbers.
_AMBIGUOUS: Final = re.compile(
    r"(yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)|[-+]?0[0-9_]+|[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]*_[0-9a-fA-F_]*"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9][0-9]*_[0-9_]*(\.[0-9_]*([eE][-+][0-9]+)?)?"
)
_Loader.yaml_implicit_resolvers = {}  # those of YAML 1.1 are not inherited
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _whole(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
