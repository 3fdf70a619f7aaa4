"""Data kept in a temporary file instead of memory while a command works on them."""

import tempfile
import weakref
from array import array
from types import TracebackType
from typing import Self


class Spill:
    """Store of pieces of bytes that need not fit in memory, numbered from 0 in order of arrival.

    They are in an unnamed file in the directory for temporary files (set by the variable TMPDIR). It disappears with
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
        """Write a piece and return its number.

        Raises:
            OSError: if it cannot be written, e.g. because the disk is full; the error names the directory.
        """
        rest = memoryview(piece)
        try:
            self._file.seek(self._ends[-1])
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise OSError(error.errno, f"a temporary file cannot be written ({error.strerror})", _folder()) from error
        self._ends.append(self._ends[-1] + len(piece))
        return len(self) - 1

    def read(self, number: int, first: int = 0, last: int | None = None) -> bytes:
        """Return a piece, or its bytes from ``first`` up to (not including) ``last``.

        Raises:
            OSError: if it cannot be read.
        """
        begin, end = self._ends[number], self._ends[number + 1]
        parts, missing = list[bytes](), (end if last is None else begin + last) - begin - first
        self._file.seek(begin + first)
        while missing:
            parts.append(self._file.read(missing))
            if not parts[-1]:
                raise OSError(f"a temporary file in {_folder()} must keep what was written, but it ends early")
            missing -= len(parts[-1])
        return b"".join(parts)


def _folder() -> str:
    return tempfile.gettempdir()
