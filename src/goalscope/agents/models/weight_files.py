"""Files of weights, GGUF and safetensors: their headers, which are checked before anything else is read, and digests.

A GGUF file contains configuration, tokenizer and weights, mostly quantised. transformers converts the weights to
unquantised numbers when it loads them, but precision that the quantisation lost stays lost. Such a model is therefore
an agent of its own, whose identity includes the digest of the file and the type of its quantisation. Converted copies
are kept in a cache.

The package ``gguf`` (0.19) takes 25 s and 0.5 GB to read a header with 300,000 texts; this reader takes 0.1 s. The
package also never finishes on a list of 2^60 numbers, and accepts a tensor that begins at byte 2^64 - 1.

Source: the GGUF specification, version 3, sections "File structure" and "Standardized key-value pairs"; the safetensors
format, https://github.com/huggingface/safetensors#format.
"""

import hashlib
import mmap
import os
import shutil
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Final

from goalscope._ground.extras import how_to_install
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.progress import TALLY
from goalscope._ground.untrusted import MOST_FILE_BYTES, decode_object, printable
from goalscope._ground.words import counted

SUFFIX: Final = ".gguf"
PACKAGES: Final = ("gguf", "accelerate")
"""Packages that transformers needs to read GGUF files."""

_TYPES: Final = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS IQ2_XS "
    "Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16"
)
TYPES: Final = {number: name for number, name in enumerate(_TYPES.split()) if name != "-"}
"""Value of ``general.file_type`` -> name of the quantisation."""

_BYTES_OF_BLOCKS: Final = (
    (1, {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2}),  # F32, F16, I8, I16, I32, I64, F64, BF16
    (32, {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 9: 40, 20: 18}),  # Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL
    (32, {39: 17}),  # MXFP4
    (64, {40: 36}),  # NVFP4
    (128, {41: 18}),  # Q1_0
    (256, {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292}),  # Q2_K to Q8_K
    (256, {16: 66, 17: 74, 18: 98, 19: 50}),  # IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S
    (256, {21: 110, 22: 82, 23: 136, 29: 56}),  # IQ3_S, IQ2_S, IQ4_XS, IQ1_M
    (256, {34: 54, 35: 66}),  # TQ1_0, TQ2_0
)
BLOCKS: Final = {kind: (weights, octets) for weights, kinds in _BYTES_OF_BLOCKS for kind, octets in kinds.items()}
"""Type of a tensor -> how many weights each of its blocks holds, and in how many bytes."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
MOST_WEIGHTS: Final = 2**40
"""Maximum size of a file of weights in bytes."""
_MOST_KEYS = 4096
_MOST_ITEMS = 1 << 22  # texts in all lists of a header together
_MOST_HEADER = 1 << 28  # bytes
_MOST_TEXT = 1 << 24  # bytes of a single text
_MOST_LISTED_TEXT = 1 << 16  # bytes of a text in a list, such as a token
_MOST_TENSORS = 1 << 16
_MOST_DIMENSIONS = 4
_ALIGNMENT = 32  # bytes, where a file states none
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a GGUF file, a format that holds a model's configuration, tokenizer and weights.

    Attributes:
        values: key -> single value, e.g. of ``general.architecture``; lists are left out.
        tokenizer: sha256 over all entries that define the tokenizer, including the chat template.
        quantisation: type of the quantisation, e.g. "Q4_K_M".
    """

    values: Mapping[str, Any]
    tokenizer: str
    quantisation: str

    @property
    def chat_template(self) -> str:
        """Source of the model's chat template; "" if the file has none."""
        return str(self.values.get("tokenizer.chat_template", ""))


def gguf_in(path: Path) -> Path | None:
    """Return the GGUF file that a path names: the file itself, or the only one in a folder without config.json.

    Returns:
        The file; None if there is no GGUF file, or the folder has a config.json.

    Raises:
        ValueError: the folder contains several GGUF files.
    """
    if NamedFile(path).is_there():
        return path if path.suffix.lower() == SUFFIX else None
    if not Folder(path).is_there() or Folder(path, links=True).has_file("config.json"):
        return None
    candidates = [
        path / name
        for name, status in Folder(path, links=True).entries()
        if name.lower().endswith(SUFFIX) and stat.S_ISREG(status.st_mode)
    ]
    if len(candidates) > 1:
        raise ValueError(
            f"a model's folder must contain one GGUF file, but {path} contains {len(candidates)} "
            f"({', '.join(file.name for file in candidates[:4])}): give the path of the file"
        )
    return candidates[0] if candidates else None


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file without reading its weights.

    Raises:
        ValueError: the file has another format or an unknown version, or its header is damaged.
    """
    return _read(path, (status := NamedFile(path).status()).st_size, status.st_mtime_ns)


def digest_of(path: Path) -> str:
    """Return the sha256 of a file of a model; it is computed once per process unless the file changes.

    Raises:
        UntrustedError: it is larger than files of its kind can be; only weights may have gigabytes.
    """
    return _digest(path, (status := NamedFile(path).status()).st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest(path: Path, size: int, modified: int) -> str:
    # Size and modification time are arguments only for the cache.
    weights = path.suffix.lower() in (SUFFIX, ".safetensors")
    with NamedFile(path).open_file(MOST_WEIGHTS if weights else MOST_FILE_BYTES, sparse=weights) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_packages(path: Path) -> None:
    """Check that the packages that transformers needs to read GGUF files are installed.

    Args:
        path: the GGUF file, for the error.

    Raises:
        ImportError: a package is missing; the message says how to install it or how to convert the file.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{path.name} is a GGUF file, which needs the packages {' and '.join(PACKAGES)} ({', '.join(missing)} "
            f"missing): install the extra gguf, {how_to_install('gguf')}. Or convert it where they are installed:\n"
            f"{conversion(path)}",
            name=missing[0],
        )


def conversion(path: Path) -> str:
    """Return two lines of Python code that convert a GGUF file to a folder of safetensors files, to show to the
    user.
    """
    source = f"({str(path.parent)!r}, gguf_file={path.name!r})"
    return (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        f"m = M.from_pretrained{source}; m.hf_quantizer = None; vars(m.config).pop('quantization_config', None)\n"
        f"m.save_pretrained('FOLDER'); T.from_pretrained{source}.save_pretrained('FOLDER')"
    )


class _Cursor:
    """Read a memory-mapped file from front to back; raise a ValueError instead of reading beyond its end."""

    def __init__(self, octets: mmap.mmap) -> None:
        self.octets, self.at, self.items = octets, 0, 0

    def skip(self, count: int) -> int:
        """Skip the next ``count`` bytes and return where they begin."""
        begin = self.at
        if count > len(self.octets) - begin:
            raise ValueError("it ends inside its header")
        self.at += count
        if self.at > _MOST_HEADER:
            raise ValueError(f"its header has more than {_MOST_HEADER} bytes")
        return begin

    def number(self, form: str) -> Any:
        """Read a number in a format of Python's module `struct`."""
        return struct.unpack_from(f"<{form}", self.octets, self.skip(struct.calcsize(f"<{form}")))[0]

    def text(self) -> bytes:
        """Read a text as bytes."""
        count = self.number("Q")
        if count > _MOST_TEXT:
            raise ValueError(f"it contains a text of {count} bytes")
        begin = self.skip(count)
        return self.octets[begin : begin + count]

    def value(self, kind: int) -> Any:
        """Read a single value; a list is skipped and returned as None."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text().decode("utf-8", "replace")
        if kind != _ARRAY:
            raise ValueError(f"it contains a value of the unknown type {kind}")
        item_type, count = self.number("I"), self.number("Q")
        if item_type in _SCALARS:
            self.skip(struct.calcsize(f"<{_SCALARS[item_type]}") * count)
        elif item_type == _STRING and (items := self.items + count) <= _MOST_ITEMS:
            self.items = items
            length, end, at = struct.Struct("<Q").unpack_from, len(self.octets) - 8, self.at
            for _ in range(count):
                if at > end:
                    raise ValueError("it ends inside its header")
                text_bytes = length(self.octets, at)[0]
                if text_bytes > _MOST_LISTED_TEXT:
                    raise ValueError(f"one of its lists contains a text of {text_bytes} bytes")
                at += 8 + text_bytes
            self.skip(at - self.at)
        else:
            raise ValueError(f"it contains a list of {count} values of type {item_type}")
        return None


@lru_cache(maxsize=64)
def _read(path: Path, size: int, modified: int) -> Header:
    # Size and modification time are arguments only for the cache.
    try:
        with (
            NamedFile(path).open_file(MOST_WEIGHTS, sparse=True) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as octets,
        ):
            return _entries(octets)
    except ValueError as error:
        raise ValueError(
            f"{path} must be a GGUF file of version {' or '.join(map(str, _VERSIONS))}, but {error}: download the file "
            "again, and check its digest"
        ) from error


def _entries(octets: mmap.mmap) -> Header:
    cursor = _Cursor(octets)
    begin = cursor.skip(len(_MAGIC))
    if octets[begin : cursor.at] != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    tensors = cursor.number("Q")
    if tensors > _MOST_TENSORS:
        raise ValueError(f"it has {tensors} tensors")
    count = cursor.number("Q")
    if count > _MOST_KEYS:
        raise ValueError(f"it has {count} entries")
    values: dict[str, Any] = {}
    keys: set[str] = set()
    tokenizer = hashlib.sha256()
    for _ in range(count):
        begin = cursor.at
        key = cursor.text().decode("utf-8", "replace")
        if key in keys:
            raise ValueError(f"it contains the entry {printable(key)} twice")
        keys.add(key)
        value = cursor.value(cursor.number("I"))
        if value is not None:
            values[key] = value
        if key.startswith("tokenizer."):
            tokenizer.update(octets[begin : cursor.at])
    _check_tensors(cursor, tensors, values.get("general.alignment", _ALIGNMENT))
    file_type = values.get("general.file_type")
    type_name = TYPES.get(file_type, f"file type {file_type}") if isinstance(file_type, int) else "unknown"
    return Header(values=values, tokenizer=tokenizer.hexdigest(), quantisation=type_name)


def _check_tensors(cursor: _Cursor, count: int, alignment: Any) -> None:
    """Refuse tensors that do not end within the file, or that take more bytes together than the file has for them.

    Args:
        cursor: at the descriptions of the tensors.
        count: number of tensors.
        alignment: value of ``general.alignment``; the weights begin at a multiple of it.
    """
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"its general.alignment is {alignment!r:.40}, which is no power of two")
    names = set[bytes]()
    ends: list[tuple[int, str]] = []
    total = 0
    for _ in range(count):
        name_bytes, dimensions = cursor.text(), cursor.number("I")
        name = printable(name_bytes.decode("utf-8", "replace"))
        if name_bytes in names or dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"it contains the tensor {name} twice, or with {dimensions} axes")
        names.add(name_bytes)
        shape = [cursor.number("Q") for _ in range(dimensions)]
        kind, offset = cursor.number("I"), cursor.number("Q")
        if kind not in BLOCKS:
            raise ValueError(f"its tensor {name} is of the unknown type {kind}")
        block_weights, block_bytes = BLOCKS[kind]
        if (shape[0] if shape else 1) % block_weights:
            raise ValueError(
                f"its tensor {name} has rows of {shape[:1]} weights, which is no multiple of {block_weights}"
            )
        size = prod(shape) // block_weights * block_bytes
        ends.append((offset + size, name))
        total += size
    most = max(0, len(cursor.octets) - (cursor.at + -cursor.at % alignment))
    last, name = max(ends, default=(0, ""))
    if last > most:
        raise ValueError(f"its tensor {name} ends {last - most} bytes after the end of the file")
    if total > most:
        raise ValueError(f"its tensors take {total} bytes together, and the file has {most} for them")


# Headers of safetensors files.
#
# A file of weights may have hundreds of gigabytes, so reading it whole, only to find that it is cut or that its header
# describes something else, takes minutes. The header has some kilobytes and says where the file must end.

BITS: Final[Mapping[str, int]] = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""Name of a kind of numbers -> the bits that each number takes."""

_PREFIX: Final = 8  # bytes that contain the length of the header
_LONGEST_HEADER: Final = 1 << 24  # bytes; headers with 10,000 tensors have 1.2 MB
_MOST_AXES: Final = 32
_METADATA: Final = "__metadata__"


def check_header(path: Path) -> None:
    """Check that a safetensors file has exactly the size that its header describes, without reading its weights.

    Each tensor must take the bytes that follow from its shape and kind of numbers, the tensors must follow each other
    without gaps, and the file must end with the last one.

    Raises:
        ValueError: the size differs, or the file has no such header; the message does not name the file.
    """
    _check(path, (status := NamedFile(path).status()).st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _check(path: Path, size: int, modified: int) -> None:
    # Size and modification time are arguments only for the cache.
    with NamedFile(path).open_file(MOST_WEIGHTS, sparse=True) as file:
        length = int.from_bytes(file.read(_PREFIX), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, size - _PREFIX):
            raise ValueError(
                f"its header has {length} bytes, where the file has {size} and {_LONGEST_HEADER} are allowed"
            )
        header = decode_object(file.read(length), strict=False)
    spans = sorted(_span(name, entry) for name, entry in header.items() if name != _METADATA)
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            raise ValueError(f"its tensor {name} begins at byte {begin} of the weights, where {end} is expected")
        end = stop
    if (octets := size - _PREFIX - length) != end:
        raise ValueError(f"its header describes {end} bytes of weights, and the file has {octets}")


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    """Return where the bytes of a tensor begin and end, and its printable name."""
    name = printable(name)
    try:
        bits, shape, (begin, end) = BITS[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its tensor {name} lacks a known dtype, a shape or two data_offsets") from error
    numbers = [begin, end, *shape] if isinstance(shape, list) and len(shape) <= _MOST_AXES else [None]
    if not all(type(number) is int and 0 <= number <= MOST_WEIGHTS for number in numbers):
        raise ValueError(
            f"the data_offsets and shape of its tensor {name} must be whole numbers from 0 to {MOST_WEIGHTS}, with at "
            f"most {_MOST_AXES} axes"
        )
    if 8 * (end - begin) != prod(shape) * bits:
        raise ValueError(f"its tensor {name} has {end - begin} bytes, which differs from its shape and dtype")
    return begin, end, name


# Converted copies of GGUF files in the user's cache, since reading a GGUF file anew takes half a minute each time.
#
# A copy is a folder that transformers writes: the tokenizer, or the weights in one dtype. Its place follows from the
# digest of the GGUF file, so a changed file never meets an old copy. A copy is written beside its place and then
# renamed, so a killed process leaves none that is incomplete, and the digests of its files are checked before it is
# read.

PLACE: Final = "GOALSCOPE_CACHE"
"""Environment variable that names the folder of the cache."""
MOST: Final = 40 * 2**30
"""Maximum size of all copies together in bytes; the oldest are removed for a new one."""
_SUMS: Final = "SHA256SUMS"
_COPIES: Final = "gguf"


def cache() -> Folder:
    """Return the folder in which converted copies of GGUF files are kept; it need not exist yet."""
    stated = os.environ.get(PLACE, "")
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goalscope"
    return Folder(Path(stated) if stated else usual).below(_COPIES)


def converted(file: Path, part: str) -> Path | None:
    """Return the folder of a complete converted copy of a part of a GGUF file; None if the cache has none.

    Args:
        file: the GGUF file.
        part: what was converted: "tokenizer", or "weights" with their dtype.
    """
    copies, name = cache(), _name(file, part)
    if not copies.has_file(name, _SUMS):
        return None
    lines = copies.load_text(name, _SUMS).splitlines()
    sums = {entry: digest for digest, _, entry in (line.partition("  ") for line in lines)}
    present = set(copies.names(name)) - {_SUMS}
    if present == set(sums) and all(digest_of(copies.file(name, entry)) == sums[entry] for entry in sums):
        return copies.below(name).checked()
    copies.remove_folder(name)  # it is made anew
    return None


def keep(file: Path, part: str, write: Callable[[Path], object], right: Callable[[Path], bool], size: int) -> None:
    """Write a converted copy of a part of a GGUF file into the cache, so that the slow conversion is done only once.

    Nothing is kept if the disk has too little room, or if the copy differs from the original.

    Args:
        file: the GGUF file.
        part: what was converted: "tokenizer", or "weights" with their dtype.
        write: writes the copy into a folder.
        right: returns whether the copy in a folder is like the original.
        size: expected size in bytes.
    """
    copies, name = cache(), _name(file, part)
    try:
        copies.make()
        if size > MOST or shutil.disk_usage(copies.path).free < 2 * size:
            TALLY.tell(
                f"{file.name}: too little room for a converted copy in {copies.path}, so it is read slowly again"
            )
            return
        _make_room(copies, MOST - size)
        with copies.temporary(f".{name[:24]}-") as folder:
            write(folder.path)
            if not right(folder.path):
                TALLY.tell(f"{file.name}: its converted {part} differs from the file, so the file is read slowly again")
                return
            sums = (f"{digest_of(folder.file(entry))}  {entry}" for entry in sorted(folder.names()))
            folder.save_text("".join(f"{line}\n" for line in sums), _SUMS)
            if not copies.has_folder(name):  # another process may have written it
                copies.move(folder.path.name, name)
    except OSError as error:
        TALLY.tell(f"{file.name}: no converted copy was kept, so it is read slowly again: {error}")
        return
    TALLY.tell(f"{file.name}: a converted copy of its {part} is kept in {copies.path}; doctor --clear-cache removes it")


def clear() -> int:
    """Remove all converted copies of GGUF files from the cache; return how many bytes they had."""
    copies = cache()
    total = 0
    for name in copies.names():
        total += _size(copies, name)
        copies.remove_folder(name)
    return total


def _name(file: Path, part: str) -> str:
    return f"{digest_of(file)[:40]}-{part.replace(' ', '-')}"


def _make_room(copies: Folder, most: int) -> None:
    """Remove the oldest copies until the others have at most some bytes."""
    ages = {entry.name: entry.status.st_mtime for entry in copies.entries()}
    sizes = {name: _size(copies, name) for name in ages}
    removed = 0
    for name in sorted(ages, key=lambda name: ages[name]):
        if sum(sizes.values()) <= most:
            break
        copies.remove_folder(name)
        del sizes[name]
        removed += 1
    if removed:
        TALLY.tell(f"{counted(removed, 'older conversion')} removed from {copies.path}, to make room")


def _size(copies: Folder, name: str) -> int:
    return sum(entry.status.st_size for entry in copies.entries(name))
