"""Data that are kept in a temporary file in place of memory while a command works on them."""

import tempfile
from array import array
from types import TracebackType
from typing import Self


class Spill:
    """Pieces of bytes in a temporary file without a name, numbered from 0 in the order in which they come.

    The file lies in the directory for temporary files (the variable TMPDIR sets it), and is gone with the object or the
    process, however it ends.
    """

    def __init__(self) -> None:
        # It lives as long as this object.
        self._file = tempfile.TemporaryFile(prefix="goalscope-", buffering=0)  # noqa: SIM115
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, piece: bytes) -> int:
        """Write a piece and return its number.

        Raises:
            OSError: it cannot be written, e.g. since the disk is full; the error names the directory.
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

    def read(self, number: int) -> bytes:
        """Return a piece.

        Raises:
            OSError: it cannot be read.
        """
        size = self._ends[number + 1] - self._ends[number]
        self._file.seek(self._ends[number])
        parts, missing = list[bytes](), size
        while missing:
            parts.append(self._file.read(missing))
            if not parts[-1]:
                raise OSError(f"a temporary file in {_folder()} must keep what was written, but it ends early")
            missing -= len(parts[-1])
        return b"".join(parts)


def _folder() -> str:
    return tempfile.gettempdir()
