"""What is done to a file or a directory before a command is given it, and what the command may then do."""

import json
import os
import random
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

DEEP: Final = "[" * 30_000 + "]" * 30_000
SPARSE: Final = 100 * 10**9
LONG: Final = "x" * 50_000_000
GRID: Final = "\n".join(["#" * 1500, *(f"#{'_' * 1498}#" for _ in range(1498)), "#" * 1500]).replace("_", "A", 1)
ESCAPE: Final = "\x1b[2J\x07"
MARK: Final = "canary-7f3a"
"""Stands in every file outside; nobody may print or copy it."""

Data = dict[str, Any] | list[Any]


@dataclass(frozen=True)
class Attack:
    """One thing that is done to one file.

    Attributes:
        name: of the attack.
        place: whether another thing than a regular file is put at the place, which must not be reached through it.
        content: whether the content is changed, so that a file that goalscope sealed must be refused or not be read.
        named: a key that may be named in the place of the file.
        do: does it: gets the path, and the directory outside.
    """

    name: str
    do: Callable[[Path, Path], None]
    place: bool = False
    content: bool = False
    named: str = ""


def _away(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _link_to_copy(path: Path, outside: Path) -> None:
    """Put a link where a file or folder is, to the same content outside."""
    target = outside / f"copy-of-{path.name}"
    if path.exists():
        shutil.move(path, target)
    else:
        target.write_text(MARK, encoding="utf-8")
    path.symlink_to(target)


def _link(name: str) -> Callable[[Path, Path], None]:
    def do(path: Path, outside: Path) -> None:
        _away(path)
        path.symlink_to(outside / name)

    return do


def _hard_link(path: Path, outside: Path) -> None:
    target = outside / f"name-of-{path.name}"
    if not path.exists():
        path.write_text(MARK, encoding="utf-8")
    os.link(path, target)


def _pipe(path: Path, outside: Path) -> None:
    _away(path)
    os.mkfifo(path)


def _socket(path: Path, outside: Path) -> None:
    _away(path)
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # the path of a socket may have 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _device(path: Path, outside: Path) -> None:
    _away(path)
    os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero, which never ends


def _folder(path: Path, outside: Path) -> None:
    _away(path)
    path.mkdir()


PLACES: Final = (
    Attack("link to a copy", _link_to_copy, place=True),
    Attack("link to a file", _link("canary.txt"), place=True),
    Attack("link to a folder", _link("folder"), place=True),
    Attack("dangling link", _link("nothing"), place=True),
    Attack("hard link", _hard_link, place=True),
    Attack("pipe", _pipe, place=True),
    Attack("socket", _socket, place=True),
    Attack("folder", _folder, place=True),
    *((Attack("device", _device, place=True),) if os.geteuid() == 0 else ()),
)
"""Attacks on what lies at a place, whatever it holds."""


def _written(make: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def do(path: Path, outside: Path) -> None:
        path.write_bytes(make(path.read_bytes()))

    return do


def _sparse(path: Path, outside: Path) -> None:
    os.truncate(path, SPARSE)


def _flip(number: int) -> Callable[[Path, Path], None]:
    def do(path: Path, outside: Path) -> None:
        octets = bytearray(path.read_bytes())
        draw = random.Random(f"{path.name} {number}")
        octets[draw.randrange(len(octets))] ^= 1 << draw.randrange(8)
        path.write_bytes(octets)

    return do


CONTENTS: Final = (
    Attack("empty", _written(lambda _: b""), content=True),
    Attack("cut", _written(lambda octets: octets[: len(octets) // 2]), content=True),
    Attack("100 GB", _sparse, content=True),
    Attack("another encoding", _written(lambda octets: octets.decode("latin-1").encode("utf-16")), content=True),
    Attack("noise", _written(lambda octets: random.Random(len(octets)).randbytes(5000)), content=True),
    *(Attack(f"flipped bit {number}", _flip(number), content=True) for number in range(3)),
)
"""Attacks on the bytes of any file."""


def _read(path: Path) -> tuple[Data, Callable[[Data], str]] | None:
    """Return the value of a JSON, JSON lines or YAML file, and what writes another; None for another file."""
    if path.suffix not in (".json", ".jsonl", ".yaml", ".yml") or path.stat().st_size > 2_000_000:
        return None
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        first, _, rest = text.partition("\n")
        return json.loads(first), lambda value: f"{_text(value)}\n{rest}"
    value = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    return (value, _text) if isinstance(value, dict | list) else None


class _Raw(str):
    """Text that is put into JSON as it stands."""


def _text(value: Any) -> str:
    """Return JSON, with what `_Raw` says."""
    raws: list[str] = []

    def plain(item: Any) -> Any:
        if isinstance(item, _Raw):
            raws.append(str(item))
            return f"@@raw {len(raws) - 1}@@"
        if isinstance(item, dict):
            return {key: plain(nested) for key, nested in item.items()}
        return [plain(nested) for nested in item] if isinstance(item, list) else item

    text = json.dumps(plain(value), indent=1)
    return re.sub(r'"@@raw (\d+)@@"', lambda found: raws[int(found[1])], text)


def _replaced(value: Data, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a place; without it where that is None."""
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    elif new is None:
        del copy[path[0]]
    else:
        copy[path[0]] = new
    return copy


def _leaves(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*here, key), item
        yield from _leaves(item, (*here, key))


def _is_grid(value: Any) -> bool:
    lines = value.split("\n") if isinstance(value, str) else []
    return len(lines) > 2 and len({len(line) for line in lines if line}) == 1 and "#" in value


def _other(value: Any) -> Any:
    """Return a value of another type."""
    return [1] if isinstance(value, str) else "text" if isinstance(value, int | float | bool | None) else 7


def values(path: Path) -> Iterator[Attack]:
    """Yield the attacks on the values of a JSON or YAML file; none for another file."""
    parsed = _read(path)
    if parsed is None:
        return
    value, write = parsed

    def put(place: tuple[Any, ...], new: Any) -> Callable[[Path, Path], None]:
        text = None if place else new
        return lambda path, outside: _write(path, text or write(_replaced(value, place, new)))

    leaves = list(_leaves(value))
    draw = random.Random(path.name)

    def pick(fits: Callable[[Any], bool]) -> tuple[Any, ...] | None:
        fitting = [place for place, item in leaves if fits(item)]
        return draw.choice(fitting) if fitting else None

    yield Attack("30,000 deep", put((), DEEP), content=True)
    top = value.items() if isinstance(value, dict) else []
    for key, item in top:
        yield Attack(f"without {key}", put((key,), None), content=True, named=key)
        yield Attack(f"{key} of another type", put((key,), _other(item)), content=True, named=key)
    changes: list[tuple[str, tuple[Any, ...] | None, Any]] = [
        ("a value 30,000 deep", pick(lambda item: True), _Raw(DEEP)),
        ("NaN", pick(_number), _Raw("NaN")),
        ("1e999", pick(_number), _Raw("1e999")),
        ("1e-320", pick(_number), _Raw("1e-320")),
        ("-1", pick(_number), -1),
        ("2**80", pick(_number), 2**80),
        ("a text of 50 MB", pick(lambda item: isinstance(item, str)), LONG),
        ("control characters", pick(lambda item: isinstance(item, str)), ESCAPE),
        ("half a surrogate pair", pick(lambda item: isinstance(item, str)), _Raw('"\\ud800"')),
        ("a grid of 1500x1500", pick(_is_grid), GRID),
        ("a million entries", pick(lambda item: isinstance(item, list)), _Raw(f"[{'1,' * 999_999}1]")),
        ("nothing", pick(lambda item: isinstance(item, list | dict) and bool(item)), _Raw("null")),
    ]
    for name, place, new in changes:
        if place is not None:
            key = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
            yield Attack(name, put(place, new), content=True, named=key)
    for number in range(4):
        place, item = draw.choice(leaves)
        key = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
        yield Attack(f"value {number} of another type", put(place, _other(item)), content=True, named=key)


def _number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def attacks_on(path: Path) -> Iterator[Attack]:
    """Yield all attacks on a file, those on a place for a folder."""
    yield from (attack for attack in PLACES if _is_sound(path, attack))
    if path.is_file():
        yield from CONTENTS
        yield from values(path)


def _is_sound(path: Path, attack: Attack) -> bool:
    """Return whether an attack changes anything: folders have one name, and stay folders."""
    return not (path.is_dir() and attack.name in ("hard link", "folder"))


def kinds_of_files(sample: Path) -> list[str]:
    """Return one file of each kind in a directory, and its folders, relative to it; "" for a file itself.

    Files are of a kind where their names differ in numbers and digests alone.
    """
    if sample.is_file():
        return [""]
    found: dict[str, str] = {}
    for path in sorted(sample.rglob("*")):
        name = str(path.relative_to(sample))
        if not name.endswith(("-wal", "-shm")):  # come and go as a run.db is opened
            found.setdefault(re.sub(r"[0-9a-f]{8,}|\d+", "*", name), name)
    return list(found.values())
