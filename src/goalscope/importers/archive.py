"""Archives of strangers: every member is unpacked once to count it, before another library unpacks it into memory.

What an archive says of its members' sizes is not believed: a few bytes can unpack to gigabytes.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from goalscope.extras import lacking
from goalscope.untrusted import UntrustedError, shorten

MOST_MEMBER_BYTES: Final = 128 * 2**20
"""Most bytes of a member, unpacked: one sample with all of its events."""

MOST_MEMBERS: Final = 200_000

MOST_RATIO: Final = 500
"""Most bytes that an archive may unpack to for each of its own."""

_PIECE: Final = 2**20
_STORED, _DEFLATED, _ZSTANDARD = 0, 8, 93
_LOCAL: Final = struct.Struct("<4s22xHH")


def largest_member(path: Path) -> int:
    """Return the bytes of the largest member of a zip archive, unpacked.

    Args:
        path: the archive.

    Raises:
        UntrustedError: no whole zip archive, a damaged member, one that unpacks to more than `MOST_MEMBER_BYTES` or
            to other bytes than the archive says, or more than `MOST_MEMBERS`.
        ImportError: members are packed in a way that needs a package of the extra ``inspect``.
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise UntrustedError("a log must be a whole zip archive", f"a damaged or cut one ({error})") from error
    if len(members) > MOST_MEMBERS:
        raise UntrustedError(f"an archive must have at most {MOST_MEMBERS} members", f"{len(members)}")
    largest = whole = 0
    most = MOST_MEMBER_BYTES + MOST_RATIO * path.stat().st_size
    with path.open("rb") as stream:
        for member in members:
            size = _unpacked(stream, member)
            largest, whole = max(largest, size), whole + size
            if whole > most:  # members may overlap
                raise UntrustedError(
                    f"an archive must unpack to at most {most} bytes, {MOST_RATIO} times its own", "more"
                )
    return largest


def _unpacked(stream: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Return how many bytes a member unpacks to, at most `MOST_MEMBER_BYTES`; they are counted and dropped."""
    name, size, digest = shorten(member.filename), 0, 0
    try:
        for piece in _pieces(stream, member):
            size, digest = size + len(piece), zlib.crc32(piece, digest)
            if size > MOST_MEMBER_BYTES:
                must = f"a member of an archive must unpack to at most {MOST_MEMBER_BYTES} bytes"
                raise UntrustedError(must, "more", name)
    except (zlib.error, struct.error, EOFError) as error:
        raise UntrustedError("a member of an archive must be whole", f"a damaged one ({error})", name) from error
    if (size, digest) != (member.file_size, member.CRC):
        must = f"a member of an archive must have the {member.file_size} bytes and the digest that its directory says"
        raise UntrustedError(must, f"{size} bytes, digest {digest:08x} instead of {member.CRC:08x}", name)
    return size


def _pieces(stream: BinaryIO, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the unpacked bytes of a member, piece by piece."""
    stream.seek(member.header_offset)
    mark, name, extra = _LOCAL.unpack(stream.read(_LOCAL.size))
    if mark != b"PK\x03\x04":
        raise EOFError("no member where the directory says")
    stream.seek(name + extra, 1)
    unpacking = _unpacking(member.compress_type)
    left = member.compress_size
    while left > 0:
        packed = stream.read(min(_PIECE, left))
        if not packed:
            raise EOFError("the file ends in it")
        left -= len(packed)
        yield from unpacking(packed)


def _unpacking(method: int) -> Any:
    """Return a function that yields what pieces unpack to, never much at a time."""
    if method == _STORED:
        return lambda packed: (packed,)
    if method == _DEFLATED:
        return _inflating()
    if method == _ZSTANDARD:
        return _zstandard()
    raise UntrustedError("members of an archive must be stored, deflated or packed by Zstandard", f"method {method}")


def _inflating() -> Any:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)

    def pieces(packed: bytes) -> Iterator[bytes]:
        while packed:
            yield unpacker.decompress(packed, _PIECE)
            packed = unpacker.unconsumed_tail
        while piece := unpacker.decompress(b"", _PIECE):
            yield piece

    return pieces


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise lacking("logs packed by Zstandard need zstandard", "inspect", error) from error
    window = 2**27  # bytes; a larger one is a bomb in the memory of whoever unpacks it
    unpacker = zstandard.ZstdDecompressor(max_window_size=window).decompressobj(write_size=_PIECE)

    def pieces(packed: bytes) -> Iterator[bytes]:
        # A block unpacks to 128 KiB at most, a run of one byte included: small pieces in, bounded pieces out.
        for at in range(0, len(packed), _ZSTANDARD_PIECE):
            try:
                yield unpacker.decompress(packed[at : at + _ZSTANDARD_PIECE])
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error

    return pieces


_ZSTANDARD_PIECE: Final = 2**10
"""Packed bytes at a time: blocks have 4 bytes at least, so that these unpack to 32 MiB at most."""
