"""Reading files that nobody vouches for: bounded in size, depth and numbers, no error but `UnreadableError`."""

import json
import re
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from goalscope.importers.problems import Ledger, printable
from goalscope.worlds import Grid

MOST_FILE_BYTES = 256 * 2**20
MOST_LINE_BYTES = 16 * 2**20
MOST_DEPTH = 64
MOST_GRID_CHARACTERS = 2**20
MOST_ERRORS_A_RECORD = 5
_LONG_NUMBER = re.compile(rb"\d{19}|[eE]\+?\d{3}")


class UnreadableError(ValueError):
    """Something that cannot be read, as the parts of a `Problem`.

    Attributes:
        must: what must hold.
        given: what was found.
        where: place inside what was read, "" where it is the whole.
    """

    def __init__(self, must: str, given: str, where: str = "") -> None:
        super().__init__(f"{must}; got {given}")
        self.must, self.given, self.where = must, given, where


def files_below(path: Path, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield (file, name relative to ``path``) of each regular file, sorted; symbolic links are followed once.

    Folders that link back, pipes, devices and what cannot be opened become problems.
    """
    waiting, seen = [(path, "")], set[tuple[int, int]]()
    while waiting:
        here, name = waiting.pop()
        inside: list[str] = []
        try:
            found = here.stat()
            folder = stat.S_ISDIR(found.st_mode)
            if folder:
                inside = sorted((entry.name for entry in here.iterdir()), reverse=True)
        except (OSError, ValueError) as error:  # a ValueError for a zero byte in the path
            given = error.strerror if isinstance(error, OSError) else error
            ledger.report(name or here.name, "", "a file or folder must be there and readable", given)
            continue
        if not folder and not stat.S_ISREG(found.st_mode):
            must = "an import must consist of plain files and folders"
            ledger.report(name or here.name, "", must, "a pipe, socket or device")
            continue
        if not folder:
            yield here, name or here.name
            continue
        if (found.st_dev, found.st_ino) in seen:
            ledger.report(name or here.name, "", "a folder must be met only once", "a link to a folder read before")
            continue
        seen.add((found.st_dev, found.st_ino))
        waiting.extend((here / entry, f"{name}/{entry}" if name else entry) for entry in inside)


def read_json(path: Path) -> Any:
    """Return the JSON value of a whole file.

    Raises:
        UnreadableError: too large, not UTF-8, not JSON, too deep, or with numbers or text that cannot be kept.
    """
    try:
        with path.open("rb") as stream:
            octets = stream.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableError("a file must be readable", error.strerror or str(error)) from error
    if len(octets) > MOST_FILE_BYTES:
        raise UnreadableError(f"a file must have at most {MOST_FILE_BYTES} bytes", "a larger one")
    return decode(octets)


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number, bytes) of each line that is not blank, None in place of one above `MOST_LINE_BYTES`.

    Raises:
        UnreadableError: UTF-16, or binary data.
    """
    number = 0
    while line := stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(2**20)
            yield number, None
        elif number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UnreadableError("text must be UTF-8", "a UTF-16 byte order mark")
        elif number == 1 and b"\x00" in line:
            raise UnreadableError("a file must hold text", "binary data: a zero byte", f"line {number}")
        elif line.strip():
            yield number, line


def decode(octets: bytes) -> Any:
    """Return the JSON value of UTF-8 bytes (a byte order mark is allowed).

    Raises:
        UnreadableError: not UTF-8, a zero byte, not JSON, nested deeper than `MOST_DEPTH`, a number that is not finite
            or beyond 64 bits, a key twice in one object, or text with half a surrogate pair.
    """
    if octets.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableError("text must be UTF-8", "a UTF-16 byte order mark")
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        given = f"byte 0x{octets[error.start]:02x} at offset {error.start}"
        raise UnreadableError("text must be UTF-8", given) from error
    if "\x00" in text:
        raise UnreadableError("a file must hold text", f"binary data: a zero byte at offset {octets.index(0)}")
    if not text.strip():
        raise UnreadableError("a file must hold a JSON value", "an empty file")
    try:
        # Numbers are looked at one by one only where one may be too large: hooks slow lists of tokens down severalfold.
        long = _LONG_NUMBER.search(octets) is not None
        value = json.loads(
            text,
            parse_constant=_constant,
            parse_float=_float if long else None,
            parse_int=_integer if long else None,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UnreadableError("text must be valid JSON", error.msg[:1].lower() + error.msg[1:], where) from error
    except RecursionError as error:
        raise UnreadableError(f"JSON must be nested at most {MOST_DEPTH} deep", "deeper nesting") from error
    if octets.count(b"[") + octets.count(b"{") > MOST_DEPTH or b"\\u" in octets:
        _check_plain(value)
    return value


def decode_line(octets: bytes | None) -> Any:
    """Return the JSON value of one line, None standing for a line that is too long.

    Raises:
        UnreadableError: see `decode`; its place is the column.
    """
    if octets is None:
        raise UnreadableError("a line must be shorter", f"one of more than {MOST_LINE_BYTES} bytes")
    try:
        return decode(octets.strip(b" \t\r\n"))
    except UnreadableError as error:
        error.where = error.where.removeprefix("line 1, ")
        raise


def parse_grid(text: str | list[str] | list[list[str]]) -> Grid:
    """Return a grid from its text form.

    Raises:
        ValueError: see `Grid.parse`; also a text that is too long.
    """
    length = len(text) if isinstance(text, str) else sum(map(len, text))
    if length > MOST_GRID_CHARACTERS:
        raise ValueError(f"a grid must have at most {MOST_GRID_CHARACTERS} characters, got {length}")
    return Grid.parse(text)


def report_validation(ledger: Ledger, source: str, place: str, error: ValidationError, keys: tuple[str, ...]) -> None:
    """Report what pydantic found: the first few errors of a record, and how many more there are.

    Args:
        ledger: where the problems go.
        source: the file.
        place: line or object in the file.
        error: what was raised.
        keys: keys that the record may have, for "did you mean".
    """
    found = error.errors(include_url=False, include_context=False)
    for item in found[:MOST_ERRORS_A_RECORD]:
        path = json_path(item["loc"])
        if item["type"] == "extra_forbidden":
            close = get_close_matches(str(item["loc"][-1]), keys, n=1)
            hint = f": did you mean {close[0]!r}?" if close else ""
            must, given = f"keys must be among {', '.join(keys)}", f"the key {str(item['loc'][-1])!r}{hint}"
        elif item["type"] == "missing":
            must, given = f"the key {str(item['loc'][-1])!r} must be there", "an object without it"
            path = json_path(item["loc"][:-1])
        else:
            must, given = item["msg"].removeprefix("Value error, "), show(item["input"])
        ledger.report(source, " ".join(part for part in (place, path) if part), must, given)
    if len(found) > MOST_ERRORS_A_RECORD:
        ledger.report(source, place, "a record must be valid everywhere", f"{len(found) - MOST_ERRORS_A_RECORD} more")


def json_path(location: tuple[int | str, ...]) -> str:
    """Return a place in a JSON value as text, e.g. ``steps[3].grid_state``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def show(value: Any) -> str:
    """Return a short text of a value, for messages."""
    if isinstance(value, dict | list | tuple) and len(value) > 20:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} entries"
    if isinstance(value, str) and len(value) > 200:
        return printable(repr(value[:200])) + f" and {len(value) - 200} more characters"
    return printable(repr(value))


def _constant(name: str) -> float:
    raise UnreadableError("numbers must be finite", name)


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise UnreadableError("numbers must be finite", text[:60])
    return number


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else 2**64
    if not -(2**63) <= number < 2**63:
        raise UnreadableError("whole numbers must fit into 64 bits", text[:60])
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnreadableError("a key must occur once in an object", f"{twice!r} twice")
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
                    raise UnreadableError("text must be Unicode", "half a surrogate pair") from error
        elif isinstance(item, dict | list):
            if depth > MOST_DEPTH:
                raise UnreadableError(f"JSON must be nested at most {MOST_DEPTH} deep", "deeper nesting")
            inside = [*item, *item.values()] if isinstance(item, dict) else item
            waiting.extend((entry, depth + 1) for entry in inside if isinstance(entry, str | dict | list))
