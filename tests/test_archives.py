"""Archives with a directory that is too large: refused before it is read."""

import io
import struct
import zipfile
from pathlib import Path

import pytest

from goalscope._ground.archives import open_archive
from goalscope._ground.untrusted import UntrustedError
from goalscope.runs.importers.archive import MOST_DIRECTORY_BYTES, largest_member
from goalscope.worlds.environments.stored import read_arrays

ENTRY = b"PK\x01\x02" + bytes(42)
"""A member without a name in a directory; the shortest entry that there is."""


def with_directory(octets: int, *, large_form: bool) -> bytes:
    """Return an archive whose directory has many members; ``large_form``: as archives beyond 4 GiB state it."""
    directory = ENTRY * (octets // len(ENTRY))
    size, count = len(directory), len(directory) // len(ENTRY)
    if not large_form:
        return directory + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF & count, 0xFFFF & count, size, 0, 0)
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, 0)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, size, 1)
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return directory + record + locator + end


@pytest.mark.parametrize("large_form", [False, True])
def test_a_directory_has_a_length(large_form: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    octets = with_directory(10_000, large_form=large_form)
    assert len(open_archive(io.BytesIO(octets), 10_000).infolist()) == 10_000 // len(ENTRY)
    monkeypatch.setattr(zipfile, "ZipFile", None)  # nobody reads the directory
    with pytest.raises(UntrustedError, match="at most 9000 bytes"):
        open_archive(io.BytesIO(octets), 9000)


END = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, 50, 0, 0)
DAMAGED = {
    "a version to come": struct.pack("<4sHH38xI", b"PK\x01\x02", 20, 90, 0) + bytes(4) + END,
    "a name in no encoding": struct.pack("<4sHHH18xHHHHHII", b"PK\x01\x02", 20, 20, 0x800, 4, *[0] * 6)
    + b"\xff" * 4
    + END,
    "an entry cut short": b"PK\x01\x02" + bytes(46) + END,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_directory_is_one_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(zipfile.BadZipFile):
        open_archive(io.BytesIO(DAMAGED[name]), 100).infolist()[0].filename.encode()
    (path := tmp_path / "process.npz").write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=r"process\.npz is not a valid .npz file"):
        read_arrays(path)


@pytest.mark.parametrize("octets", [b"", b"PK\x05\x06", bytes(100)])
def test_what_is_no_archive_is_left_to_python(octets: bytes) -> None:
    with pytest.raises(zipfile.BadZipFile):
        open_archive(io.BytesIO(octets), 100)


@pytest.mark.parametrize("large_form", [False, True])
def test_readers_refuse_such_a_file_by_name(large_form: bool, tmp_path: Path) -> None:
    path = tmp_path / "process.npz"
    path.write_bytes(with_directory(2 * 2**20, large_form=large_form))
    with pytest.raises(ValueError, match=r"process\.npz is not a valid .npz file .*directory"):
        read_arrays(path)
    path.write_bytes(with_directory(MOST_DIRECTORY_BYTES + 2**20, large_form=large_form))
    with pytest.raises(UntrustedError, match="zip"):
        largest_member(path)
