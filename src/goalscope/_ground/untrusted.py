"""Read untrusted input: every file, line and answer from outside passes through this module (YAML: `yaml_text`).

Sizes, nesting and numbers are limited first. Text must be UTF-8; repeated keys, non-finite numbers and references are
refused. Every failure is an `UntrustedError` with a location. Pydantic models check the structure of the data; `faults`
converts their errors into plain sentences.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from sys import get_int_max_str_digits
from typing import Any, BinaryIO, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goalscope._ground.checks import near_miss

MOST_FILE_BYTES: Final = 256 * 2**20
MOST_LINE_BYTES: Final = 16 * 2**20
MOST_DEPTH: Final = 64
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

_LONGEST_TEXT: Final = 300
_LONGEST_VALUE: Final = 200
_LONGEST_MESSAGE: Final = 2000
_MOST_ENTRIES: Final = 20
_MOST_FAULTS: Final = 100
_LONG_NUMBER = re.compile(r"\d{19}|[eE]\+?\d{3}")
_SCALARS: Final = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_MARKS_16 = (b"\xff\xfe", b"\xfe\xff")


class UntrustedError(ValueError):
    """Error for input from outside (a file, a line, an answer) that cannot be accepted.

    Attributes:
        must: what the input must be, as a sentence, for the message.
        given: what was found instead; "" if ``must`` suffices.
        where: location in the input, such as "line 3, column 1"; "" for all of it.
    """

    def __init__(self, must: str, given: str = "", where: str = "") -> None:
        super().__init__(f"{must}, got {given}" if given else must)
        self.must, self.given, self.where = must, given, where

    def __str__(self) -> str:
        return f"{self.where}: {self.args[0]}" if self.where else str(self.args[0])


class StrangeFileError(UntrustedError):
    """Error for a path at which, or on the way to which, lies a link, a pipe or something else that is not an ordinary
    file.

    The whole directory is refused.
    """


class DamagedError(ValueError):
    """Error for stored data that are damaged, so that no reader can use them."""


class AbsentPartError(ValueError):
    """Error for stored data that are intact, but can be read only with code that is not installed here."""


def check_nesting(stream: BinaryIO, most: int) -> None:
    """Raise an UntrustedError if JSON is nested too deeply for the parser of another library.

    This takes one pass over the bytes, in pieces of a megabyte. Nothing is parsed: the parser will report invalid JSON.

    Args:
        stream: stream with the bytes of the JSON text.
        most: maximum depth of lists and objects.
    """
    import numpy as np  # every command imports this module, and some need no arrays

    depth, in_text, carried = 0, False, b""
    while piece := stream.read(1 << 20):
        piece = carried + piece
        # A backslash at the end of a piece escapes the byte after it.
        carried = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""
        parts = _ESCAPED.sub(b"", piece.removesuffix(carried)).split(b'"')
        outside = b"".join(parts[int(in_text) :: 2]).translate(None, _NO_BRACKETS)
        in_text ^= len(parts) % 2 == 0
        brackets = np.frombuffer(outside, dtype=np.uint8)
        depths = depth + np.cumsum(np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1))
        if len(depths):
            if depths.max() > most:
                raise UntrustedError(f"JSON must be nested at most {most} deep", "deeper nesting")
            depth = int(depths[-1])


def decode_text(octets: bytes) -> str:
    """Decode UTF-8 bytes as text, and leave out a byte order mark.

    Raises:
        UntrustedError: if the bytes are not UTF-8, or one of them is zero.
    """
    if octets.startswith(_MARKS_16):
        raise UntrustedError("text must be UTF-8", "a UTF-16 byte order mark")
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UntrustedError(
            "text must be UTF-8",
            f"byte 0x{octets[error.start]:02x} at offset {error.start}: save the file as UTF-8 text, or check that it "
            "is the file you meant",
        ) from error
    if "\x00" in text:
        raise UntrustedError("a file must hold text", f"binary data: a zero byte at offset {octets.index(0)}")
    return text


def decode_json(data: bytes | str, *, strict: bool = True, finite: bool = True) -> Any:
    """Parse JSON of unknown origin, and return its value.

    Args:
        data: text, or UTF-8 bytes (a byte order mark is allowed).
        strict: whether to refuse nesting deeper than `MOST_DEPTH`, integers beyond 64 bits, numbers that overflow, and
            text with half of a surrogate pair. goalscope's own files never contain them.
        finite: whether to refuse NaN and Infinity, which Python's json module may write.

    Raises:
        UntrustedError: if the data are not UTF-8 or not JSON, have a zero byte or a repeated key, or ``strict`` or
            ``finite`` refuses them.
    """
    if not isinstance(data, str | bytes):
        raise UntrustedError("JSON must come as text", type(data).__name__)
    text = data if isinstance(data, str) else decode_text(data)
    if not text.strip():
        raise UntrustedError("a file must hold a JSON value", "an empty file")
    # Numbers are checked one by one only if one may be too large, because hooks make lists of tokens much slower.
    long = strict and _LONG_NUMBER.search(text) is not None
    try:
        value = _decoder(long, finite).decode(text)
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise UntrustedError("text must be valid JSON", error.msg[:1].lower() + error.msg[1:], position) from error
    except RecursionError as error:
        raise UntrustedError(f"JSON must be nested at most {MOST_DEPTH} deep", "deeper nesting") from error
    except UntrustedError:
        raise
    except ValueError as error:
        raise UntrustedError(f"a number must have at most {get_int_max_str_digits()} digits", "more") from error
    if strict and (text.count("[") + text.count("{") > MOST_DEPTH or "\\u" in text):
        _check_plain(value)
    return value


def decode_object(data: bytes | str, *, strict: bool = True, finite: bool = True) -> dict[str, Any]:
    """Parse JSON of unknown origin that must be an object, and return it as a dictionary.

    Args:
        data: text, or UTF-8 bytes (a byte order mark is allowed).
        strict: whether to refuse deep nesting, numbers beyond 64 bits and half surrogate pairs, see `decode_json`.
        finite: whether to refuse NaN and Infinity.

    Raises:
        UntrustedError: if the data are not valid JSON or are refused (see `decode_json`), or the value is not an
            object.
    """
    value = decode_json(data, strict=strict, finite=finite)
    if not isinstance(value, dict):
        raise UntrustedError("it must be an object", shorten(value))
    return value


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield number (from 1) and bytes of each line of a stream that is not blank.

    Instead of the bytes of a line longer than `MOST_LINE_BYTES`, None is yielded.

    Raises:
        UntrustedError: if the stream begins as UTF-16 or binary data do.
    """
    number = 0
    while line := stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(2**20)
            yield number, None
        elif number == 1 and line.startswith(_MARKS_16):
            raise UntrustedError("text must be UTF-8", "a UTF-16 byte order mark")
        elif number == 1 and b"\x00" in line:
            raise UntrustedError("a file must hold text", "binary data: a zero byte", f"line {number}")
        elif line.strip():
            yield number, line


def decode_line(octets: bytes | None) -> Any:
    """Parse one line of a file of JSON lines, and return its value.

    Args:
        octets: the line, as `lines` yields it; None for a line that was too long.

    Raises:
        UntrustedError: if the line was too long, or is not valid JSON (see `decode_json`); ``where`` of the error is
            the column only, since the caller knows the line.
    """
    if octets is None:
        raise UntrustedError("a line must be shorter", f"one of more than {MOST_LINE_BYTES} bytes")
    try:
        return decode_json(octets.strip(b" \t\r\n"))
    except UntrustedError as error:
        error.where = error.where.removeprefix("line 1, ")
        raise


class Fault(NamedTuple):
    """One error in a value of a file.

    Attributes:
        where: path of the value, such as ``worlds[0].count``.
        must: what the value must be.
        given: the value itself; "" if the requirement alone suffices for the message.
    """

    where: str
    must: str
    given: str


def faults(error: ValidationError, keys: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Turn the errors of a pydantic validation into plain statements, without duplicates; at most about a hundred.

    Args:
        error: the errors of the validation.
        keys: kind of a mapping in the file ("" for the outermost, "worlds grid", "horizon", ...) -> its valid keys,
            from which similar keys are suggested.
    """
    result: dict[Fault, None] = {}
    scalars: dict[tuple[int | str, ...], list[str]] = {}
    for detail in islice(_details(error), _MOST_FAULTS):
        fault = _fault(detail, keys)
        path = detail["loc"][:-1]
        if path and detail["loc"][-1] in _SCALARS:  # one of several alternative types, each with its own error
            scalars.setdefault(path, []).append(str(detail["loc"][-1]))
            result.pop(Fault(fault.where.rpartition(".")[0], _one_of(scalars[path][:-1]), fault.given), None)
            fault = Fault(fault.where.rpartition(".")[0], _one_of(scalars[path]), fault.given)
        result[fault] = None
    return list(result)


def _details(error: ValidationError) -> Iterator[ErrorDetails]:
    """Yield the errors of pydantic; errors of a nested model, raised in a validator, get their full location."""
    for detail in error.errors(include_url=False):
        yield from _unfolded(detail)


def _unfolded(detail: ErrorDetails) -> Iterator[ErrorDetails]:
    nested: list[ErrorDetails] | None = detail.get("ctx", {}).get("nested")
    if nested is None:
        yield detail
    for item in nested or ():
        located = item.copy()
        located["loc"] = (*detail["loc"], *item["loc"])
        yield from _unfolded(located)


def explain(
    error: ValidationError,
    keys: Mapping[str, Sequence[str]],
    name: str,
    kind: str = "study",
    examples: Mapping[str, str] | None = None,
) -> str:
    """Write the errors of a pydantic validation as text, one line per error under a first line that names the file.

    Each line has the path of the key, the requirement, the value, and a similar valid key.

    Args:
        error: the errors of the validation.
        keys: kind of a mapping in the file ("" for the outermost, "worlds grid", "horizon", ...) -> its valid keys.
        name: name of the file, or "the study".
        kind: what the file should be, such as "study".
        examples: key -> an example of its line, shown if the key is missing.
    """
    faults_found = faults(error, keys)
    sentences = [
        f"  {place + ': ' if place else ''}{must}{f', got {got}' if got else ''}"
        + (f", as in {examples[place]}" if examples and must == _MISSING and place in examples else "")
        for place, must, got in faults_found[:_MOST_ENTRIES]
    ]
    more = ["  and more errors of this kind"] if len(faults_found) > _MOST_ENTRIES else []
    return "\n".join([f"{name} is not a valid {kind}:", *sentences, *more])


def printable(text: str) -> str:
    """Make a text safe to print on one line: control characters are escaped, and long text is shortened in its
    middle.
    """
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT - 60]} ... {text[-50:]}"
    if text.isprintable():
        return text
    return "".join(
        symbol if symbol.isprintable() else symbol.encode("unicode_escape", "backslashreplace").decode("ascii")
        for symbol in text
    )


def shorten(value: object) -> str:
    """Format any value for an error message: its ``repr`` as one printable line of limited length."""
    if isinstance(value, dict | list | tuple) and len(value) > _MOST_ENTRIES:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} entries"
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"{printable(repr(value[:_LONGEST_VALUE]))} and {len(value) - _LONGEST_VALUE} more characters"
    return printable(repr(value))


_MISSING: Final = "must be given"


def _one_of(types: list[str]) -> str:
    return f"must be {' or '.join(_SCALARS[name] for name in types)}"


def _fault(detail: ErrorDetails, keys: Mapping[str, Sequence[str]]) -> Fault:
    parts, holder = list(detail["loc"]), ""
    depth = 3 if parts[1:2] == ["interventions"] else 2 if parts[:1] == ["worlds"] else len(parts)
    if len(parts) > depth:  # the kind of an entry, which selects its model, precedes the key
        holder = f"{parts[depth - 2]} {parts.pop(depth)}"
    elif len(parts) > 1:
        holder = str(parts[0])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in parts).removeprefix(".")
    kind, context, got = detail["type"], detail.get("ctx", {}), shorten(detail["input"])
    if kind == "extra_forbidden":
        return Fault(path, f"unknown key{near_miss(parts[-1], keys.get(holder, ()))}", "")
    if kind == "missing":
        return Fault(path, _MISSING, "")
    if kind == "union_tag_invalid":
        tag, valid = str(context["tag"]), [word.strip(" '") for word in str(context["expected_tags"]).split(",")]
        return Fault(f"{path}.kind", f"must be one of {', '.join(valid)}", f"{shorten(tag)}{near_miss(tag, valid)}")
    if kind == "union_tag_not_found":
        return Fault(f"{path}.kind", _MISSING, got)
    message = detail["msg"].removeprefix("Value error, ")
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[: _LONGEST_MESSAGE - 300]} ... {message[-250:]}"
    if kind == "value_error":
        return Fault(path, message, "")
    message = message.replace("Input should be", "must be").replace("a valid tuple", "a list")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping of keys to values", message)
    valid = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ",").split(",") if word]
    hint = near_miss(detail["input"], valid) if kind == "literal_error" else ""
    return Fault(path, message, got + (hint if "did you mean" in hint else ""))


@cache
def _decoder(long: bool, finite: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=_refuse_constant if finite else None,
        parse_float=_float if long else None,
        parse_int=_integer if long else None,
        object_pairs_hook=_object,
    )


def _refuse_constant(name: str) -> float:
    raise UntrustedError("numbers must be finite", name)


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise UntrustedError("numbers must be finite", text[:60])
    return number


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else 2**64
    if not -(2**63) <= number < 2**63:
        raise UntrustedError("whole numbers must fit into 64 bits", text[:60])
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        earlier: set[str] = set()
        twice = next(name for name, _ in pairs if name in earlier or earlier.add(name))  # type: ignore[func-returns-value]
        raise UntrustedError("a key must occur once in an object", f"{shorten(twice)} twice")
    return value


def _check_plain(value: Any) -> None:
    """Refuse deep nesting and text that is not Unicode, without recursion."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if not item.isascii():
                try:
                    item.encode()
                except UnicodeEncodeError as error:
                    raise UntrustedError("text must be Unicode", "half a surrogate pair") from error
        elif isinstance(item, dict | list):
            if depth > MOST_DEPTH:
                raise UntrustedError(f"JSON must be nested at most {MOST_DEPTH} deep", "deeper nesting")
            children = [*item, *item.values()] if isinstance(item, dict) else item
            waiting.extend((entry, depth + 1) for entry in children if isinstance(entry, str | dict | list))
