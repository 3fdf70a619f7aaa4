"""Files and folders inside of a directory that somebody else may have made: nothing there is reached through a link.

Such a directory can hold links, further names of files that lie elsewhere (hard links), pipes and devices. The path
that a user names may lead through links; each part below it is looked at itself before it is opened or written.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from shutil import rmtree

from goalscope.untrusted import StrangeFileError, printable


def path_in(root: Path, *parts: str) -> Path:
    """Return a path below a directory; no part of it is a link, and any part may be missing.

    Args:
        root: the directory, which may itself be a link.
        parts: names or relative paths.

    Raises:
        StrangeFileError: a part is a link, or leads upwards.
        OSError: the system refuses the path.
    """
    path, below = root, PurePath(*parts)
    if below.is_absolute() or ".." in below.parts:
        raise StrangeFileError(f"a path must lie inside of {root}", printable(str(below)))
    for name in below.parts:
        path /= name
        if path.is_symlink():
            raise StrangeFileError(
                f"{path} must lie inside of {root}",
                f"{described(path, path.lstat())}: remove the link, and copy what it leads to if you trust it",
            )
    return path


def check_file(path: Path, *, one_name: bool = False, content: bool = True) -> Path:
    """Return a path where nothing or a regular file lies.

    Args:
        path: the file; only its last part is looked at.
        one_name: refuse a file that has another name, too, whose content would change with this one.
        content: whether what the file holds is wanted; False where it is replaced, or says nothing.

    Raises:
        StrangeFileError: a link, a folder, a pipe, a socket or a device lies there.
        OSError: the system refuses the path.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return path
    _check(path, status, one_name, content)
    return path


def open_to_change(path: Path) -> int:
    """Open a file whose content does not matter, made where it is missing, to be changed; return its number.

    Raises:
        StrangeFileError: another thing than a regular file with one name lies there; it was not changed.
        OSError: it cannot be opened.
    """
    check_file(path, one_name=True, content=False)  # a device may act, and a pipe wait, when it is opened
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        _check(path, os.fstat(number), one_name=True, content=False)
    except BaseException:
        os.close(number)
        raise
    return number


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new, empty file, which takes the place of a file once all is written.

    On an error it is removed, and the place stays as it was. A path in `/dev`, as `/dev/stdout`, is yielded itself.

    Raises:
        StrangeFileError: another thing than a regular file lies at the path.
        OSError: it cannot be written.
    """
    if os.path.normpath(path).startswith("/dev/"):
        yield path
        return
    partial = check_file(path, content=False).with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # of a killed process, or a link: removed, never written through
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, newline: str = "\n") -> Path:
    """Write a text file as UTF-8, whole or not at all; see `replacing`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline=newline)
    return path


def remove_folder(path: Path) -> None:
    """Remove a folder as far as that is possible; what is no folder, such as a link to one, stays."""
    # rmtree opens what it is given before it looks at it, and waits forever where that leads to a pipe.
    if path.is_dir() and not path.is_symlink():
        rmtree(path, ignore_errors=True)


def _check(path: Path, status: os.stat_result, one_name: bool, content: bool) -> None:
    if not stat.S_ISREG(status.st_mode) or (one_name and status.st_nlink > 1):
        file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        advice = "remove it, or give the path of a file" if not file else "remove it"
        advice = "put a copy of the file in its place if you trust it" if file and content else advice
        raise StrangeFileError(f"{path} must be a file of its own", f"{described(path, status)}: {advice}")


def described(path: Path, status: os.stat_result) -> str:
    """Return a description of what lies at a path, by its own status."""
    if stat.S_ISLNK(status.st_mode):
        return f"a link to {printable(str(path.readlink()))}"
    if stat.S_ISREG(status.st_mode):
        return f"a file with {status.st_nlink} names (hard links)"
    return {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}.get(stat.S_IFMT(status.st_mode), "a device or socket")
