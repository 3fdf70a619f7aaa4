"""GGUF files, written byte by byte."""

import struct

U32, TEXT, LIST = 4, 8, 9
ALIGNMENT = 32


def text(value: str | bytes) -> bytes:
    octets = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(octets)) + octets


def entry(key: str | bytes, kind: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + body


def tensor(name: str, dimensions: list[int], offset: int = 0, kind: int = 0) -> bytes:
    numbers = b"".join(struct.pack("<Q", size) for size in dimensions)
    return text(name) + struct.pack("<I", len(dimensions)) + numbers + struct.pack("<IQ", kind, offset)


def whole(
    *entries: bytes, tensors: tuple[bytes, ...] = (), data: bytes = bytes(64), counts: tuple[int, int] | None = None
) -> bytes:
    """Return a file; its data, if there are any, begin at a multiple of 32 bytes."""
    n_tensors, n_entries = counts or (len(tensors), len(entries))
    header = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_entries) + b"".join((*entries, *tensors))
    return header + bytes(-len(header) % ALIGNMENT if data else 0) + data


SOUND = (
    entry("general.architecture", TEXT, text("llama")),
    entry("llama.block_count", U32, struct.pack("<I", 2)),
    entry("tokenizer.ggml.tokens", LIST, struct.pack("<IQ", TEXT, 3) + text("a") + text("b") + text("c")),
    entry("tokenizer.chat_template", TEXT, text("{{ messages }}")),
)
"""Entries of a small sound file."""
