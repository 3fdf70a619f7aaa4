"""Zip archives of unknown origin: the size of their directory is checked before Python reads it.

A directory names the members of an archive. Python reads it whole, and takes some hundred bytes of memory for each
member, before anybody can ask how many there are.
"""

import struct
import zipfile
from typing import Any, BinaryIO, Final

from goalscope._ground.untrusted import UntrustedError

_module: Any = zipfile  # what `ZipFile` itself calls has no public name; so both find the same directory
_SIZE: Final[int] = _module._ECD_SIZE


def open_archive(stream: BinaryIO, most: int) -> zipfile.ZipFile:
    """Return the archive in a stream.

    Args:
        stream: the bytes.
        most: maximum bytes of its directory; each member takes at least 46.

    Raises:
        UntrustedError: the directory is larger; it was not read.
        zipfile.BadZipFile: it is no zip archive.
    """
    end = _module._EndRecData(stream)
    if end is not None and end[_SIZE] > most:
        raise UntrustedError(f"the directory of a zip archive must have at most {most} bytes", f"{end[_SIZE]}")
    try:
        return zipfile.ZipFile(stream)
    except (NotImplementedError, ValueError, OverflowError, struct.error) as error:  # a damaged directory
        raise zipfile.BadZipFile(str(error)) from error
