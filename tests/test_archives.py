"""Archives of strangers: a directory that is too large is refused before it is read, and members are unpacked within
bounds before anybody believes what they say of themselves.
"""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground import archives
from goalscope._ground.archives import MOST_DIRECTORY_BYTES, largest_member, open_archive
from goalscope._ground.untrusted import UntrustedError
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


def packed(path: Path, *members: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for number, member in enumerate(members):
            made.writestr(f"{number}.json", member)
    return path


def written_by_hand(path: Path, octets: bytes, size: int, method: int, digest: int = 0) -> Path:
    """Write an archive of one member that says of itself what it is told to say."""
    name = b"header.json"
    shared = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 0, digest, len(octets), size, len(name), 0)
    local = b"PK\x03\x04" + shared + name
    central = b"PK\x01\x02" + struct.pack("<H", 20) + shared + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(octets), 0)
    path.write_bytes(local + octets + central + end)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_sound_archive_has_its_largest_member(tmp_path: Path, method: int) -> None:
    path = packed(tmp_path / "log.eval", b"{}", b"x" * 3_000_000, b"", method=method)
    assert archives.largest_member(path) == 3_000_000


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    octets = squeeze.compress(b"\0" * 1_000_000) + squeeze.flush()
    path = written_by_hand(tmp_path / "log.eval", octets, 100, zipfile.ZIP_DEFLATED)
    with pytest.raises(UntrustedError, match="100 bytes"):
        archives.largest_member(path)


def test_a_member_that_unpacks_too_far_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBER_BYTES", 2_000_000)
    with pytest.raises(UntrustedError, match="2000000"):
        archives.largest_member(packed(tmp_path / "one.eval", b"\0" * 3_000_000))
    with pytest.raises(UntrustedError, match="500 times"):  # each within its bound, all of them far beyond the file
        archives.largest_member(packed(tmp_path / "many.eval", *[b"\0" * 1_900_000] * 6))


def test_too_many_members_and_unknown_methods_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UntrustedError, match="method 12"):
        archives.largest_member(packed(tmp_path / "log.eval", b"{}", method=zipfile.ZIP_BZIP2))
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    with pytest.raises(UntrustedError, match="2 members"):
        archives.largest_member(packed(tmp_path / "log.eval", b"{}", b"{}", b"{}"))


def test_a_member_before_the_beginning_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "log.eval", b"{}")
    octets = bytearray(path.read_bytes())
    octets[-6:-2] = struct.pack("<I", struct.unpack("<I", octets[-6:-2])[0] + 10)  # where the directory is said to lie
    path.write_bytes(octets)
    with pytest.raises(UntrustedError, match="whole"):
        archives.largest_member(path)


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), length=st.none() | st.integers(0, 10**6))
def test_a_damaged_archive_is_refused_or_unpacks_as_before(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, length: int | None
) -> None:
    path = packed(tmp_path_factory.mktemp("archive") / "log.eval", b'{"a": 1}' * 50, b"[]")
    octets = bytearray(path.read_bytes())
    octets[at % len(octets)] ^= 1 << bit
    path.write_bytes(octets if length is None else octets[: length % len(octets)])
    try:
        assert archives.largest_member(path) in (400, 2)
    except UntrustedError as error:
        assert "\n" not in str(error)


def test_names_of_members_lead_nowhere_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "inside" / "log.eval"
    path.parent.mkdir()
    link = zipfile.ZipInfo("samples/link.json")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(path, "w") as made, pytest.warns(UserWarning, match="Duplicate name"):
        made.writestr(link, "/etc/passwd")
        for name in ("../../out.json", "/tmp/out.json", "C:\\out.json", "\x1b[2J\n", "twice", "twice", "x" * 60_000):
            made.writestr(name, b"{}")
    before = sorted(tmp_path.rglob("*"))
    assert archives.largest_member(path) == len("/etc/passwd")
    assert sorted(tmp_path.rglob("*")) == before


def test_thousands_of_members_of_one_place_are_counted_each(tmp_path: Path) -> None:
    path = packed(tmp_path / "log.eval", b"\0" * 3_000_000)
    whole = path.read_bytes()
    at = whole.index(b"PK\x01\x02")
    central, count = whole[at : whole.index(b"PK\x05\x06")], 2000
    sizes = struct.pack("<HHHHIIH", 0, 0, count, count, len(central) * count, at, 0)
    path.write_bytes(whole[:at] + central * count + b"PK\x05\x06" + sizes)
    with pytest.raises(UntrustedError, match="500 times"):
        archives.largest_member(path)
