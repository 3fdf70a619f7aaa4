"""Zip archives of unknown origin: their directory and each member are measured before they are read into memory.

A directory names the members of an archive. Python reads it whole, and takes some hundred bytes of memory for each
member, before anybody can ask how many there are. The sizes stated in an archive are not trusted either, since a few
bytes can unpack to gigabytes: each member is unpacked once to count its bytes, before another library unpacks it.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import UntrustedError, shorten

_module: Any = zipfile  # what `ZipFile` itself calls has no public name; so both find the same directory
_SIZE: Final[int] = _module._ECD_SIZE


def open_archive(stream: BinaryIO, most: int) -> zipfile.ZipFile:
    """Open the zip archive in a stream of bytes, after checking that the archive's directory is not too large.

    The directory is the list of the archive's members (its packed files), which Python reads into memory as a whole.

    Args:
        stream: a seekable stream with the bytes of the archive.
        most: maximum size of the directory in bytes; each member takes at least 46.

    Raises:
        UntrustedError: if the directory is larger; it was not read.
        zipfile.BadZipFile: if the stream is not a zip archive.
    """
    end = _module._EndRecData(stream)
    if end is not None and end[_SIZE] > most:
        raise UntrustedError(f"the directory of a zip archive must have at most {most} bytes", f"{end[_SIZE]}")
    try:
        return zipfile.ZipFile(stream)
    except (NotImplementedError, ValueError, OverflowError, struct.error) as error:  # a damaged directory
        raise zipfile.BadZipFile(str(error)) from error


MOST_MEMBER_BYTES: Final = 128 * 2**20
"""Maximum unpacked bytes of a member, which is one sample with all of its events."""

MOST_DIRECTORY_BYTES: Final = 32 * 2**20
"""Maximum size of the directory of an archive, which Python reads whole."""
MOST_MEMBERS: Final = 200_000

MOST_RATIO: Final = 500
"""Maximum number of unpacked bytes per byte of the archive."""

_PIECE: Final = 2**20
_STORED, _DEFLATED, _ZSTANDARD = 0, 8, 93
_LOCAL: Final = struct.Struct("<4s22xHH")


def largest_member(path: Path) -> int:
    """Return the unpacked size, in bytes, of the largest member (packed file) of a zip archive of unknown origin.

    Each member is unpacked piece by piece to count its bytes, since the sizes that an archive states may be false.

    Args:
        path: path of the archive.

    Raises:
        UntrustedError: if the file is not a complete zip archive, a member is damaged, larger than `MOST_MEMBER_BYTES`
            or differs from the stated size, or there are more than `MOST_MEMBERS` members or `MOST_DIRECTORY_BYTES` of
            their names.
        ImportError: if unpacking needs a package of the extra ``inspect``.
        OSError: if the file cannot be read.
    """
    try:
        with NamedFile(path).open_file() as stream, open_archive(stream, MOST_DIRECTORY_BYTES) as archive:
            members = archive.infolist()
    except UntrustedError:
        raise
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise UntrustedError("a log must be a whole zip archive", f"a damaged or cut one ({error})") from error
    if len(members) > MOST_MEMBERS:
        raise UntrustedError(f"an archive must have at most {MOST_MEMBERS} members", f"{len(members)}")
    largest = total = 0
    limit = MOST_MEMBER_BYTES + MOST_RATIO * NamedFile(path).status().st_size
    with NamedFile(path).open_file() as stream:
        for member in members:
            size = _unpacked_size(stream, member)
            largest, total = max(largest, size), total + size
            if total > limit:  # members may overlap
                raise UntrustedError(
                    f"an archive must unpack to at most {limit} bytes, {MOST_RATIO} times its own", "more"
                )
    return largest


def _unpacked_size(stream: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Count the unpacked bytes of a member, at most `MOST_MEMBER_BYTES`, without storing them."""
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
    stream.seek(max(member.header_offset, 0))  # negative if the directory does not lie where the archive says
    signature, name_length, extra_length = _LOCAL.unpack(stream.read(_LOCAL.size))
    if signature != b"PK\x03\x04" or member.header_offset < 0:
        raise EOFError("no member where the directory says")
    stream.seek(name_length + extra_length, 1)
    unpack = _unpacker(member.compress_type)
    remaining = member.compress_size
    while remaining > 0:
        packed = stream.read(min(_PIECE, remaining))
        if not packed:
            raise EOFError("the file ends in it")
        remaining -= len(packed)
        yield from unpack(packed)


def _unpacker(method: int) -> Any:
    """Return a function that yields the unpacked bytes of a piece in bounded parts."""
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
    window = 2**27  # bytes; a larger one could exhaust the memory
    unpacker = zstandard.ZstdDecompressor(max_window_size=window).decompressobj(write_size=_PIECE)

    def pieces(packed: bytes) -> Iterator[bytes]:
        # A block unpacks to 128 KiB at most, a run of one byte included: small pieces stay bounded when unpacked.
        for offset in range(0, len(packed), _ZSTANDARD_PIECE):
            try:
                yield unpacker.decompress(packed[offset : offset + _ZSTANDARD_PIECE])
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error

    return pieces


_ZSTANDARD_PIECE: Final = 2**10
"""Packed bytes read at a time. A block has at least 4 bytes, so these unpack to at most 32 MiB."""
