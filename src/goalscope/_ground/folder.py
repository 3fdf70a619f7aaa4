"""The only access to files: a `Folder` named by the user, with everything below it, a `NamedFile`, and a `Spill`.

A directory may come from a stranger. It may contain links, hard links (second names of files elsewhere), pipes,
devices, enormous files and sparse files. The path that a user names may contain links; below it, no part of a path may
be a link, and a file must be a regular file. Folders are opened one inside the other, and files relative to them, so
that a part that is replaced by a link after the check is noticed on opening.

Nothing else in this package opens, lists, creates or removes files (`tests/project/test_file_access.py`).
"""

import errno
import fnmatch
import os
import stat
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files as resources
from io import BufferedReader
from pathlib import Path, PurePath
from shutil import copyfileobj, rmtree
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self, TextIO, cast

from goalscope._ground.untrusted import (
    MOST_FILE_BYTES,
    MOST_LINE_BYTES,
    StrangeFileError,
    UntrustedError,
    decode_object,
    decode_text,
    printable,
)
from goalscope._ground.untrusted import lines as lines_of

MOST_LOG_BYTES: Final = 16 * 2**30
"""Maximum size of a file that is read in pieces, such as a log."""
MOST_HOLE_BYTES: Final = MOST_LINE_BYTES
"""Maximum bytes that were never written (holes of a sparse file) in a file that is read in pieces.

Files of weights and activations may have more, since blocks of zeros are holes on some file systems, but at most half
of their size. The time that their digest takes is then bounded by what somebody really wrote.
"""
MOST_ENTRIES: Final = 1_000_000
"""Maximum number of entries of a folder."""

_STREAMS: Final = (Path("/dev"), Path("/dev/fd"), Path("/dev/pts"))
"""Folders of devices and of the open streams of this process, which only the system changes."""

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LINK: Final = os.O_NOFOLLOW
_INSIDE: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # to reach what lies inside
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderEntry(NamedTuple):
    """An entry of a folder: its name, and its status as the system reports it (of a link, not of the link's target)."""

    name: str
    status: os.stat_result


class Folder:
    """A directory whose content is read and written only through the methods of this class.

    Paths below it are given as names or relative paths. Every method raises StrangeFileError if a part is a link, leads
    upwards or is absolute, or if something other than a regular file is at the path of a file. It raises OSError, with
    the whole path, if the system refuses the path.

    Args:
        path: the directory as the user named it; it may contain links, and need not exist.
        links: whether to follow links below it, too. Model folders need this, since hubs download into folders of
            links. Files must still be regular files. Nothing is written into such a folder.
    """

    __slots__ = ("_links", "_names", "_root")

    def __init__(self, path: str | os.PathLike[str], *, links: bool = False) -> None:
        self._root = Path(path)
        self._names: tuple[str, ...] = ()
        self._links = links

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The path of the directory, for messages only; access to files goes through the methods of this class."""
        return self._root.joinpath(*self._names)

    def below(self, *parts: str) -> "Folder":
        """Return the `Folder` at a path below this one, given as names; it need not exist.

        Links in the path are refused when the folder is used.
        """
        inner = Folder(self._root, links=self._links)
        inner._names = self._split(parts)
        return inner

    def checked(self) -> Path:
        """Return the path of this directory, for a library that opens paths itself. The directory need not exist yet.

        Raises:
            StrangeFileError: if a link lies on the path.
            NotADirectoryError: if a file lies at the path.
        """
        with suppress(FileNotFoundError), self._opened(self._names):
            pass
        return self.path

    # What is there

    def is_there(self) -> bool:
        """Return whether the directory exists."""
        return self.has_folder()

    def is_free(self, name: str) -> bool:
        """Return whether a folder of this name can be created in this folder: nothing, or an empty folder, is there."""
        with suppress(FileNotFoundError), self._opened(self._names) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return stat.S_ISDIR(status.st_mode) and not self.names(name)
        return True

    def has_folder(self, *parts: str) -> bool:
        """Return whether a folder exists at a path below this folder, given as names; False for a file, a link, or
        nothing.
        """
        if "\0" in str(self._root):
            return False
        try:
            with self._opened(self._split(parts)):
                return True
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise

    def has_file(self, *parts: str) -> bool:
        """Return whether a regular file exists at a path below this folder, given as names.

        Raises:
            StrangeFileError: if something other than a regular file is there, such as a link or a folder.
        """
        return self.status(*parts) is not None

    def status(self, *parts: str) -> os.stat_result | None:
        """Return the system's status of a regular file below this folder, or None if nothing exists at that path.

        Args:
            parts: names of the folders that lead to the file, and of the file.

        Raises:
            StrangeFileError: if something other than a regular file is there, such as a link or a folder.
        """
        try:
            return self._look(self._split(parts))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, *parts: str) -> int:
        """Return the size, in bytes, of a file below this folder.

        Args:
            parts: names of the folders that lead to the file, and of the file.

        Raises:
            FileNotFoundError: if there is no such file.
        """
        return self._look(self._split(parts)).st_size

    def file(self, *parts: str, one_name: bool = False, content: bool = True) -> Path:
        """Return the checked path of a file below this folder, for a library that opens paths itself.

        The file need not exist yet.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            one_name: whether to refuse a file with a second name (a hard link), whose content would change with this
                file.
            content: whether the content of the file is needed; False if it will be replaced. This only decides the
                advice in the error.

        Raises:
            StrangeFileError: if something other than a regular file is there, such as a link or a folder.
        """
        names = self._split(parts)
        with suppress(FileNotFoundError):
            self._look(names, one_name, content)
        return self._root.joinpath(*names)

    def entries(self, *parts: str) -> list[FolderEntry]:
        """Return all entries of a folder, sorted by name; an empty list if there is no such folder.

        Links are returned as links, unless this folder follows links.

        Args:
            parts: names that lead from this folder to the listed one; none for this folder itself.

        Raises:
            UntrustedError: if there are more than `MOST_ENTRIES` entries.
            NotADirectoryError: if a file lies at the path.
        """
        names = self._split(parts)
        entries = list[FolderEntry]()
        try:
            with self._opened(names, _LIST) as number, os.scandir(number) as listing:
                for entry in listing:
                    if len(entries) >= MOST_ENTRIES:
                        path = self._root.joinpath(*names)
                        raise UntrustedError(f"{path} must have at most {MOST_ENTRIES} entries", "more")
                    with suppress(FileNotFoundError):  # removed since it was listed
                        entries.append(
                            FolderEntry(entry.name, entry.stat(follow_symlinks=self._links and _leads(entry)))
                        )
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def names(self, *parts: str) -> list[str]:
        """Return the sorted names of all files, folders and links in a folder; empty if there is no such folder.

        Args:
            parts: names that lead from this folder to the listed one; none for this folder itself.
        """
        return [entry.name for entry in self.entries(*parts)]

    def files(self, pattern: str = "*", *parts: str) -> list[Path]:
        """Return the paths of the regular files in a folder whose names match a pattern, sorted by name.

        Folders are skipped.

        Args:
            pattern: a file-name pattern such as ``"*.json"``.
            parts: names that lead from this folder to the listed one; none for this folder itself.

        Raises:
            StrangeFileError: if a link, pipe or device has a name that matches.
        """
        return [self._placed(parts, entry) for entry in self.entries(*parts) if _is_file(entry, pattern, self, parts)]

    def folders(self, *parts: str) -> "list[Folder]":
        """Return the folders in a folder, sorted by name. Files are skipped.

        Args:
            parts: names that lead from this folder to the listed one; none for this folder itself.

        Raises:
            StrangeFileError: if there is a link, unless this folder follows links.
        """
        entries = self.entries(*parts)
        for entry in entries:
            if stat.S_ISLNK(entry.status.st_mode) and not self._links:
                raise _outside(self.path, self._placed(parts, entry), entry.status)
        return [self.below(*parts, name) for name, status in entries if stat.S_ISDIR(status.st_mode)]

    # Reading

    def open_file(self, *parts: str, most: int = MOST_LOG_BYTES, sparse: bool = False) -> BufferedReader:
        """Open a file below this folder for reading in pieces, and return the stream of its bytes.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            most: maximum size of the file in bytes.
            sparse: whether up to half of the file may be holes (bytes that were never written), as in files of weights.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes, or more bytes of holes than `MOST_HOLE_BYTES`
                (with ``sparse``, than half of its size, if that is more).
            FileNotFoundError: if there is no such file.
        """
        names = self._split(parts)
        path = self._root.joinpath(*names)
        self._look(names)  # a device may act when it is opened
        if self._links:
            return _checked_stream(os.open(path, _READ), path, most, sparse)
        with self._opened(names[:-1]) as folder, _naming(path):
            number = os.open(names[-1], _READ | _NO_LINK, dir_fd=folder)
        return _checked_stream(number, path, most, sparse)

    def load_bytes(self, *parts: str, most: int = MOST_FILE_BYTES) -> bytes:
        """Return the whole content of a file below this folder.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            most: maximum size of the file in bytes.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes; nothing is read then.
            FileNotFoundError: if there is no such file.
        """
        return _load(self.open_file(*parts, most=most), most)

    def load_text(self, *parts: str, most: int = MOST_FILE_BYTES) -> str:
        """Return the whole content of a file of UTF-8 text below this folder.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            most: maximum size of the file in bytes.

        Raises:
            UntrustedError: if the file is larger, or is not UTF-8.
            FileNotFoundError: if there is no such file.
        """
        return decode_text(self.load_bytes(*parts, most=most))

    def load_object(self, *parts: str) -> dict[str, Any]:
        """Return the JSON object (a mapping) that a file below this folder contains.

        Args:
            parts: names of the folders that lead to the file, and of the file.

        Raises:
            UntrustedError: if the file is too large, or is not a JSON object.
            FileNotFoundError: if there is no such file.
        """
        return decode_object(self.load_bytes(*parts))

    def lines(self, *parts: str, most: int = MOST_LOG_BYTES) -> Iterator[tuple[int, bytes | None]]:
        """Yield number (from 1) and bytes of each line of a file below this folder that is not blank.

        Instead of the bytes of a line that is too long, None is yielded.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            most: maximum size of the file in bytes.

        Raises:
            UntrustedError: if the file is larger, or begins as UTF-16 or binary data do.
            FileNotFoundError: if there is no such file.
        """
        with self.open_file(*parts, most=most) as stream:
            yield from lines_of(stream)

    # Writing

    def make(self, *parts: str) -> "Folder":
        """Create a folder below this one with all its parents, if it is missing, and return it.

        Args:
            parts: names that lead from this folder to the new one; none for this folder itself.
        """
        names = self._split(parts)
        self._root.mkdir(parents=True, exist_ok=True)
        for depth, name in enumerate(names):
            path = self._root.joinpath(*names[: depth + 1])
            with self._opened(names[:depth]) as number, suppress(FileExistsError), _naming(path):
                os.mkdir(name, dir_fd=number)
        with self._opened(names):  # what was there may be a link or a file
            return self.below(*parts)

    @contextmanager
    def replacing(self, *parts: str, sync: bool = False) -> Iterator[Path]:
        """Yield the path of a new, empty file, which replaces the named file at the end of the context.

        On an error, the new file is removed and the old one stays unchanged. A killed process leaves the old content,
        and a partial file that the next attempt removes.

        Args:
            parts: names of the folders that lead to the file, and of the file; its folder must exist.
            sync: whether to flush the file and its folder to the disk.
        """
        names = self._split(parts)
        path = self._root.joinpath(*names)
        partial = f".{names[-1]}.partial"
        with suppress(FileNotFoundError):
            self._look(names, content=False)
        with self._opened(names[:-1]) as folder:
            with _naming(path.with_name(partial)):
                # A partial file of a killed process is removed; so is a link, which is never written through.
                with suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=folder)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(partial, flags, 0o666, dir_fd=folder))
            try:
                yield path.with_name(partial)
                with _naming(path):
                    if sync:
                        _sync(os.open(partial, _READ | _NO_LINK, dir_fd=folder))
                    os.replace(partial, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
                    if sync:
                        _sync(os.open(".", _LIST, dir_fd=folder))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=folder)

    @contextmanager
    def writing(self, *parts: str, sync: bool = False) -> Iterator[BinaryIO]:
        """Yield a stream for writing the bytes of a new file, which replaces the named file at the end of the context.

        On an error, the old file stays unchanged.

        Args:
            parts: names of the folders that lead to the file, and of the file; its folder must exist.
            sync: whether to flush the file and its folder to the disk.
        """
        with self.replacing(*parts, sync=sync) as partial, _stream_to(partial) as stream:
            yield stream
            stream.flush()

    @contextmanager
    def writing_text(self, *parts: str, newline: str = "\n") -> Iterator[TextIO]:
        """Yield a stream for writing a new file of UTF-8 text, which replaces the named file at the end of the context.

        On an error, the old file stays unchanged.

        Args:
            parts: names of the folders that lead to the file, and of the file; its folder must exist.
            newline: how line ends are written.
        """
        with self.replacing(*parts) as partial, _text_to(partial, newline) as stream:
            yield stream
            stream.flush()

    def save_bytes(self, octets: bytes, *parts: str, sync: bool = False) -> Path:
        """Write a file completely or not at all, replacing an old one, and return its path.

        Args:
            octets: the content.
            parts: names of the folders that lead to the file, and of the file; its folder must exist.
            sync: whether to flush the file and its folder to the disk.
        """
        with self.writing(*parts, sync=sync) as stream:
            stream.write(octets)
        return self._root.joinpath(*self._split(parts))

    def save_text(self, text: str, *parts: str, newline: str = "\n") -> Path:
        """Write a file of UTF-8 text completely or not at all, replacing an old one, and return its path.

        Args:
            text: the content.
            parts: names of the folders that lead to the file, and of the file; its folder must exist.
            newline: how line ends are written.
        """
        with self.writing_text(*parts, newline=newline) as stream:
            stream.write(text)
        return self._root.joinpath(*self._split(parts))

    def copy_file(self, *parts: str, into: "Folder") -> Path:
        """Copy a file below this folder to the same path below another folder, and return the path of the copy.

        Args:
            parts: names of the folders that lead to the file, and of the file.
            into: the other folder, created if it is missing.
        """
        names = self._split(parts)[len(self._names) :]
        into.make(*names[:-1])
        with self.open_file(*parts, most=MOST_LOG_BYTES) as source, into.writing(*names) as target:
            copyfileobj(source, target, 2**20)
        return into.path.joinpath(*names)

    def open_to_change(self, *parts: str) -> int:
        """Open a file below this folder for changing, created if missing, and return its file descriptor.

        The content of the file does not matter; an example is a file that serves as a lock.

        Raises:
            StrangeFileError: if something other than a regular file with one name is there; it was not changed.
        """
        names = self._split(parts)
        path = self._root.joinpath(*names)
        self.file(*parts, one_name=True, content=False)  # a device may act, and a pipe wait, when it is opened
        with self._opened(names[:-1]) as folder, _naming(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | _NO_LINK
            number = os.open(names[-1], flags, 0o644, dir_fd=folder)
        try:
            _check(path, os.fstat(number), one_name=True, content=False)
        except BaseException:
            os.close(number)
            raise
        return number

    def move(self, old: str, new: str) -> None:
        """Move a file or folder to another path below this folder, replacing a file or an empty folder there.

        Args:
            old: its present path, relative to this folder.
            new: its new path, relative to this folder.
        """
        before, after = self._split((old,)), self._split((new,))
        with self._opened(before[:-1]) as source, self._opened(after[:-1]) as target, _naming(self.path / new):
            os.replace(before[-1], after[-1], src_dir_fd=source, dst_dir_fd=target)

    def link(self, old: str, new: str) -> None:
        """Give a file below this folder a second name (a hard link).

        Args:
            old: path of the file, relative to this folder.
            new: its second path, relative to this folder, where nothing may exist.
        """
        before, after = self._split((old,)), self._split((new,))
        self._look(before)
        with self._opened(before[:-1]) as source, self._opened(after[:-1]) as target, _naming(self.path / new):
            os.link(before[-1], after[-1], src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def remove_file(self, *parts: str) -> None:
        """Remove the file at a path below this folder, given as names, if it exists.

        If a link is there, the link is removed and never its target.
        """
        names = self._split(parts)
        with (
            suppress(FileNotFoundError),
            self._opened(names[:-1]) as folder,
            _naming(self._root.joinpath(*names)),
        ):
            os.unlink(names[-1], dir_fd=folder)

    def remove_folder(self, *parts: str) -> None:
        """Remove the folder at a path below this one, given as names, with its content, as far as the system allows.

        Anything that is not a folder, such as a link to a folder, stays.
        """
        names = self._split(parts)
        with suppress(FileNotFoundError), self._opened(names[:-1]) as folder:
            # rmtree opens its argument before it checks it, and would wait forever for a pipe.
            if stat.S_ISDIR(os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                rmtree(names[-1], ignore_errors=True, dir_fd=folder)

    def sync(self, *parts: str) -> None:
        """Flush a file below this folder, given as names, to the disk; without names, flush this folder's list of
        entries.
        """
        names = self._split(parts)
        path = self._root.joinpath(*names)
        with self._opened(names[:-1]) as folder, _naming(path):
            if names:
                _sync(os.open(names[-1], _READ | _NO_LINK, dir_fd=folder))
            else:
                _sync(os.open(".", _LIST, dir_fd=folder))

    @contextmanager
    def temporary(self, prefix: str) -> "Iterator[Folder]":
        """Yield a new folder in this one, whose name starts with ``prefix``; it is removed at the end of the
        context.
        """
        with (
            self._opened(self._names),
            tempfile.TemporaryDirectory(prefix=prefix, dir=self.path, ignore_cleanup_errors=True) as folder,
        ):
            yield Folder(folder)

    # Checks

    def _split(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names below the root that lead to a path below this folder."""
        below = PurePath(*parts)
        if below.is_absolute() or ".." in below.parts or any("\0" in name for name in below.parts):
            raise StrangeFileError(f"a path must lie inside of {self.path}", printable(str(below)))
        return (*self._names, *below.parts)

    def _placed(self, parts: tuple[str, ...], entry: FolderEntry) -> Path:
        return self._root.joinpath(*self._split(parts), entry.name)

    @contextmanager
    def _opened(self, names: tuple[str, ...], flags: int = _INSIDE) -> Iterator[int]:
        """Yield the file descriptor of an open folder; its path below the root contains no link."""
        path = self._root
        number = os.open(self._root, _INSIDE if names else flags)
        try:
            for depth, name in enumerate(names, start=1):
                path /= name
                inner = self._step(number, name, path, flags if depth == len(names) else _INSIDE)
                os.close(number)
                number = inner
            yield number
        finally:
            os.close(number)

    def _step(self, folder: int, name: str, path: Path, flags: int) -> int:
        """Open a folder inside an open folder, and return its file descriptor."""
        with _naming(path):
            try:
                return os.open(name, flags if self._links else flags | _NO_LINK, dir_fd=folder)
            except OSError:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode) and not self._links:
                    raise _outside(self._root, path, status) from None
                raise

    def _look(self, names: tuple[str, ...], one_name: bool = False, content: bool = True) -> os.stat_result:
        """Return the status of a regular file; raise a FileNotFoundError if there is none."""
        path = self._root.joinpath(*names)
        with self._opened(names[:-1]) as folder, _naming(path):
            if not names:
                raise IsADirectoryError(errno.EISDIR, "a file must lie there, not a folder", str(path))
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=self._links)
        _check(path, status, one_name, content)
        return status


class NamedFile:
    """A single file that the user typed, to be read or written.

    A file to read may be a link, but must lead to a regular file; pipes, devices and folders are refused before they
    are opened. A file to write may be new or replace a regular file; a link there is refused, but `/dev/stdout` and
    other devices in `/dev` are written to directly (not files in `/dev/shm`).

    Every method raises StrangeFileError if there is something other than a file, and OSError if the system refuses the
    path.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def is_there(self) -> bool:
        """Return whether the path leads to a regular file; False for anything else, or nothing."""
        return self.path.is_file()

    def status(self) -> os.stat_result:
        """Return the system's status of the regular file that the path leads to.

        Raises:
            FileNotFoundError: if there is no such file.
            StrangeFileError: if something other than a regular file is there.
        """
        status = self.path.stat()
        _check(self.path, status, one_name=False, content=True)
        return status

    def checked(self) -> Path:
        """Return the path of this file, which must exist, for a library that opens paths itself.

        Raises:
            FileNotFoundError: if there is no such file.
            StrangeFileError: if something other than a regular file is there.
        """
        self.status()
        return self.path

    def open_file(self, most: int = MOST_LOG_BYTES, *, sparse: bool = False) -> BufferedReader:
        """Open the file for reading in pieces, and return the stream of its bytes.

        Args:
            most: maximum size of the file in bytes.
            sparse: whether up to half of the file may be holes (bytes that were never written), as in files of weights.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes, or too many bytes of holes.
            FileNotFoundError: if there is no such file.
        """
        self.status()  # a device may act when it is opened
        return _checked_stream(os.open(self.path, _READ), self.path, most, sparse)

    def load_bytes(self, most: int = MOST_FILE_BYTES) -> bytes:
        """Return the whole content of the file.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes; nothing is read then.
            FileNotFoundError: if there is no such file.
        """
        return _load(self.open_file(most), most)

    def load_text(self, most: int = MOST_FILE_BYTES) -> str:
        """Return the whole content of the file as UTF-8 text.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes, or is not UTF-8.
            FileNotFoundError: if there is no such file.
        """
        return decode_text(self.load_bytes(most))

    def lines(self, most: int = MOST_LOG_BYTES) -> Iterator[tuple[int, bytes | None]]:
        """Yield number (from 1) and bytes of each line of the file that is not blank.

        Instead of the bytes of a line that is too long, None is yielded.

        Raises:
            UntrustedError: if the file has more than ``most`` bytes, or begins as UTF-16 or binary data do.
            FileNotFoundError: if there is no such file.
        """
        with self.open_file(most) as stream:
            yield from lines_of(stream)

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Yield the path of a new, empty file, which replaces this file at the end of the context.

        Its folder is created if it is missing. On an error, the old file stays unchanged. For a device such as
        ``/dev/stdout``, the path itself is yielded.
        """
        if Path(os.path.normpath(self.path)).parent in _STREAMS:
            yield self.path
            return
        with Folder(self.path.parent).make().replacing(self.path.name) as partial:
            yield partial

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Yield a stream for writing the bytes of a new file, which replaces this file at the end of the context.

        On an error, the old file stays unchanged.
        """
        with self.replacing() as partial, _stream_to(partial) as stream:
            yield stream
            stream.flush()

    @contextmanager
    def writing_text(self, newline: str = "\n") -> Iterator[TextIO]:
        """Yield a stream for writing a new file of UTF-8 text, which replaces this file at the end of the context.

        On an error, the old file stays unchanged. ``newline`` says how line ends are written.
        """
        with self.replacing() as partial, _text_to(partial, newline) as stream:
            yield stream
            stream.flush()

    def save_bytes(self, octets: bytes) -> Path:
        """Write bytes to the file, completely or not at all, replacing an old file, and return the path."""
        with self.writing() as stream:
            stream.write(octets)
        return self.path

    def save_text(self, text: str, *, newline: str = "\n") -> Path:
        """Write the file as UTF-8 text, completely or not at all, replacing an old file, and return the path.

        Args:
            text: the content.
            newline: how line ends are written.
        """
        with self.writing_text(newline) as stream:
            stream.write(text)
        return self.path


class Spill:
    """A store in a temporary file for pieces of bytes that may not fit in memory, numbered from 0 in order of arrival.

    The file has no name and lies in the directory for temporary files (set by the variable TMPDIR). It disappears with
    the object or the process, however it ends.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="goalscope-", buffering=0)  # noqa: SIM115
        self._close = weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def add(self, piece: bytes) -> int:
        """Write a piece of bytes at the end of the store, and return the number by which it can be read.

        Raises:
            OSError: if the piece cannot be written, e.g. because the disk is full; the error names the directory.
        """
        rest = memoryview(piece)
        try:
            self._file.seek(self._ends[-1])
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            problem = f"a temporary file cannot be written ({error.strerror})"
            raise OSError(error.errno, problem, tempfile.gettempdir()) from error
        self._ends.append(self._ends[-1] + len(piece))
        return len(self) - 1

    def read(self, number: int, first: int = 0, last: int | None = None) -> bytes:
        """Return the piece of bytes with a number, or its bytes from ``first`` up to (not including) ``last``.

        Raises:
            OSError: if the piece cannot be read.
        """
        begin, end = self._ends[number], self._ends[number + 1]
        parts, missing = list[bytes](), (end if last is None else begin + last) - begin - first
        self._file.seek(begin + first)
        while missing:
            parts.append(self._file.read(missing))
            if not parts[-1]:
                place = tempfile.gettempdir()
                raise OSError(f"a temporary file in {place} must keep what was written, but it ends early")
            missing -= len(parts[-1])
        return b"".join(parts)


def anything_at(path: str | os.PathLike[str]) -> bool:
    """Return whether anything exists at a path that the user typed; links are followed."""
    return Path(path).exists()


@contextmanager
def temporary_folder(prefix: str = "goalscope-") -> Iterator[Folder]:
    """Yield a new folder in the system's directory for temporary files; it is removed at the end of the context."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Folder(folder)


def package_text(package: str, *parts: str) -> str:
    """Return the text of a file that ships with a package.

    Args:
        package: name of the package, such as ``goalscope.verdict``.
        parts: folders and file name below the package.
    """
    return resources(package).joinpath(*parts).read_text(encoding="utf-8")


def package_files(package: str) -> list[str]:
    """Return the sorted names of the files and folders at the top of an installed package, such as
    ``goalscope.verdict``.
    """
    return sorted(entry.name for entry in resources(package).iterdir())


def described(path: Path, status: os.stat_result) -> str:
    """Describe in words what lies at a path, such as "a link to ..." or "a pipe".

    Args:
        path: the path.
        status: the system's status of what lies there (of a link, not of its target).
    """
    if stat.S_ISLNK(status.st_mode):
        return f"a link to {printable(str(path.readlink()))}"
    if stat.S_ISREG(status.st_mode):
        return f"a file with {status.st_nlink} names (hard links)"
    return {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}.get(stat.S_IFMT(status.st_mode), "a device or socket")


def _is_file(entry: FolderEntry, pattern: str, folder: Folder, parts: tuple[str, ...]) -> bool:
    if not fnmatch.fnmatchcase(entry.name, pattern) or stat.S_ISDIR(entry.status.st_mode):
        return False
    _check(folder._placed(parts, entry), entry.status, one_name=False, content=True)
    return True


def _leads(entry: "os.DirEntry[str]") -> bool:
    """Return whether the target of an entry exists."""
    try:
        entry.stat()
    except OSError:
        return False
    return True


def _outside(root: Path, path: Path, status: os.stat_result) -> StrangeFileError:
    advice = "remove the link, and copy what it leads to if you trust it"
    return StrangeFileError(f"{path} must lie inside of {root}", f"{described(path, status)}: {advice}")


def _check(path: Path, status: os.stat_result, one_name: bool, content: bool) -> None:
    if not stat.S_ISREG(status.st_mode) or (one_name and status.st_nlink > 1):
        file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        advice = "remove it, or give the path of a file" if not file else "remove it"
        advice = "put a copy of the file in its place if you trust it" if file and content else advice
        raise StrangeFileError(f"{path} must be a file of its own", f"{described(path, status)}: {advice}")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the whole path to the system's errors: relative to an open folder, they name only its last part."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str) or Path(error.filename).is_absolute():
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error.__cause__


def _checked_stream(number: int, path: Path, most: int, sparse: bool) -> BufferedReader:
    """Return a stream of an open file if it is regular and not too large; else close it and raise an error."""
    try:
        status = os.fstat(number)
        _check(path, status, one_name=False, content=True)
        if status.st_size > most:
            raise UntrustedError(f"a file must have at most {most} bytes", f"one of {status.st_size}")
        most_holes = max(MOST_HOLE_BYTES, status.st_size // 2 if sparse else 0)
        if status.st_blocks * 512 < status.st_size - most_holes:
            _check_holes(number, status.st_size, most_holes)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def _check_holes(number: int, size: int, most: int) -> None:
    """Refuse a file with holes of more than ``most`` bytes.

    File systems that compress have fewer blocks than bytes, but no holes.
    """
    if not hasattr(os, "SEEK_HOLE"):
        return
    offset = holes = 0
    while offset < size and holes <= most:
        hole = os.lseek(number, offset, os.SEEK_HOLE)
        try:
            offset = os.lseek(number, hole, os.SEEK_DATA) if hole < size else size
        except OSError:  # no data follow
            offset = size
        holes += offset - hole if hole < size else 0
    os.lseek(number, 0, os.SEEK_SET)
    if holes > most:
        raise UntrustedError(
            "a file must have been written from its beginning to its end",
            f"a sparse file with holes of more than {most} bytes",
        )


def _load(stream: BufferedReader, most: int) -> bytes:
    with stream:
        octets = stream.read(most + 1)
    if len(octets) > most:  # it grew since it was opened
        raise UntrustedError(f"a file must have at most {most} bytes", "a larger one")
    return octets


def _stream_to(path: Path) -> BinaryIO:
    return cast(BinaryIO, os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb"))


def _text_to(path: Path, newline: str) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "w", encoding="utf-8", newline=newline)


def _sync(number: int) -> None:
    try:
        os.fsync(number)
    finally:
        os.close(number)
