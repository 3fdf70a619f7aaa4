"""Converted copies of GGUF files in the user's cache, since reading a GGUF file anew takes half a minute each time.

A copy is a folder that transformers writes: the tokenizer, or the weights in one dtype. Its place follows from the
digest of the GGUF file, so a changed file never meets an old copy. A copy is written beside its place and then renamed,
so a killed process leaves none that is incomplete, and the digests of its files are checked before it is read.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from goalscope._ground.folder import Folder
from goalscope._ground.progress import TALLY
from goalscope._ground.words import counted
from goalscope.agents.models.gguf_files import digest_of

PLACE: Final = "GOALSCOPE_CACHE"
"""Environment variable that names the folder of the cache."""
MOST: Final = 40 * 2**30
"""Maximum size of all copies together in bytes; the oldest are removed for a new one."""
_SUMS: Final = "SHA256SUMS"
_COPIES: Final = "gguf"


def cache() -> Folder:
    """Return the folder of converted copies, which need not exist."""
    stated = os.environ.get(PLACE, "")
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goalscope"
    return Folder(Path(stated) if stated else usual).below(_COPIES)


def converted(file: Path, part: str) -> Path | None:
    """Return the folder of a complete copy of a part of a GGUF file, None if there is none.

    Args:
        file: the GGUF file.
        part: what was converted: "tokenizer", or "weights" with their dtype.
    """
    copies, name = cache(), _name(file, part)
    if not copies.has_file(name, _SUMS):
        return None
    lines = copies.load_text(name, _SUMS).splitlines()
    sums = {entry: digest for digest, _, entry in (line.partition("  ") for line in lines)}
    present = set(copies.names(name)) - {_SUMS}
    if present == set(sums) and all(digest_of(copies.file(name, entry)) == sums[entry] for entry in sums):
        return copies.below(name).checked()
    copies.remove_folder(name)  # it is made anew
    return None


def keep(file: Path, part: str, write: Callable[[Path], object], right: Callable[[Path], bool], size: int) -> None:
    """Write a copy of a part of a GGUF file into the cache, unless the disk has too little room for it.

    Args:
        file, part: see `converted`.
        write: writes the copy into a folder.
        right: whether a copy that was written is like the original; it is removed otherwise.
        size: expected size in bytes.
    """
    copies, name = cache(), _name(file, part)
    try:
        copies.make()
        if size > MOST or shutil.disk_usage(copies.path).free < 2 * size:
            TALLY.tell(
                f"{file.name}: too little room for a converted copy in {copies.path}, so it is read slowly again"
            )
            return
        _make_room(copies, MOST - size)
        with copies.temporary(f".{name[:24]}-") as folder:
            write(folder.path)
            if not right(folder.path):
                TALLY.tell(f"{file.name}: its converted {part} differs from the file, so the file is read slowly again")
                return
            sums = (f"{digest_of(folder.file(entry))}  {entry}" for entry in sorted(folder.names()))
            folder.save_text("".join(f"{line}\n" for line in sums), _SUMS)
            if not copies.has_folder(name):  # another process may have written it
                copies.move(folder.path.name, name)
    except OSError as error:
        TALLY.tell(f"{file.name}: no converted copy was kept, so it is read slowly again: {error}")
        return
    TALLY.tell(f"{file.name}: a converted copy of its {part} is kept in {copies.path}; doctor --clear-cache removes it")


def clear() -> int:
    """Remove all converted copies; return how many bytes they had."""
    copies = cache()
    total = 0
    for name in copies.names():
        total += _size(copies, name)
        copies.remove_folder(name)
    return total


def _name(file: Path, part: str) -> str:
    return f"{digest_of(file)[:40]}-{part.replace(' ', '-')}"


def _make_room(copies: Folder, most: int) -> None:
    """Remove the oldest copies until the others have at most some bytes."""
    ages = {entry.name: entry.status.st_mtime for entry in copies.entries()}
    sizes = {name: _size(copies, name) for name in ages}
    removed = 0
    for name in sorted(ages, key=lambda name: ages[name]):
        if sum(sizes.values()) <= most:
            break
        copies.remove_folder(name)
        del sizes[name]
        removed += 1
    if removed:
        TALLY.tell(f"{counted(removed, 'older conversion')} removed from {copies.path}, to make room")


def _size(copies: Folder, name: str) -> int:
    return sum(entry.status.st_size for entry in copies.entries(name))
