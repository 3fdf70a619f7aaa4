"""Pieces of bytes in a temporary file: what comes back, and what happens where the disk is full."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from goalscope._ground.folder import Spill


def test_pieces_come_back_whole_and_in_part() -> None:
    pieces = [b"", b"one", bytes(range(256)) * 5000, b"two"]
    with Spill() as spill:
        assert [spill.add(piece) for piece in pieces] == [0, 1, 2, 3] and len(spill) == 4
        assert [spill.read(number) for number in (3, 0, 2, 1)] == [pieces[number] for number in (3, 0, 2, 1)]
        assert spill.read(2, 255, 258) == b"\xff\x00\x01" and spill.read(1, 1) == b"ne"
        assert spill.add(b"more") == 4 and spill.read(4) == b"more"  # reading does not move the end


def test_the_file_has_no_name_and_lies_where_temporary_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Spill() as spill:
        spill.add(b"piece")
        assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    spill = Spill()

    class Full:
        def seek(self, at: int) -> int:
            return at

        def write(self, piece: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spill, "_file", Full())
    with pytest.raises(OSError, match="temporary file") as raised:
        spill.add(b"piece")
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == tempfile.gettempdir()
    assert len(spill) == 0


def test_what_is_cut_short_is_an_error() -> None:
    with Spill() as spill:
        spill.add(b"piece")
        spill._file.truncate(2)
        with pytest.raises(OSError, match="ends early"):
            spill.read(0)
