"""GGUF files of strangers: each is one error of one line, soon."""

import os
import resource
import struct
import time
from pathlib import Path

import pytest
from gguf_bytes import ALIGNMENT, LIST, SOUND, TEXT, U32, entry, tensor, text, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples
from goalscope.agents.models.folders import check_folder, check_tokenizer, folder_identity, has_chat_template
from goalscope.agents.models.weight_files import BLOCKS, read_header

ONE = tensor("w", [4, 4])
FILES: dict[str, tuple[bytes, str]] = {
    "2^62 entries": (whole(counts=(0, 1 << 62)), "entries"),
    "2^62 tensors": (whole(counts=(1 << 62, 0)), "tensors"),
    "more entries than there are": (whole(*SOUND, counts=(0, 4000), data=b""), "ends inside"),
    "a text of 2^63 bytes": (whole(struct.pack("<Q", 1 << 63) + b"key"), "a text of"),
    "a list of lists": (whole(entry("a", LIST, struct.pack("<IQ", LIST, 1 << 40))), "a list of"),
    "2^60 numbers": (whole(entry("a", LIST, struct.pack("<IQ", 10, 1 << 60))), "ends inside"),
    "2^60 texts": (whole(entry("a", LIST, struct.pack("<IQ", TEXT, 1 << 60))), "a list of"),
    "lists with many texts together": (
        whole(*(entry(f"a{n}", LIST, struct.pack("<IQ", TEXT, 1 << 20) + bytes(8 << 20)) for n in range(5))),
        "a list of",
    ),
    "an unknown type": (whole(entry("a", 77, b"")), "unknown type 77"),
    "an entry twice": (whole(SOUND[0], SOUND[0]), "general.architecture twice"),
    "a list twice": (whole(SOUND[2], SOUND[2]), "tokens twice"),
    "a tensor twice": (whole(tensors=(ONE, ONE)), "w twice"),
    "99 axes": (whole(tensors=(tensor("w", [1] * 99),)), "99 axes"),
    "2^32 axes": (whole(tensors=(text("w") + struct.pack("<I", 2**32 - 1),)), "axes"),
    "a text of 64 KiB in a list": (
        whole(entry("a", LIST, struct.pack("<IQ", TEXT, 2) + text("a") + text(bytes(1 << 16 | 1)))),
        f"one of its lists contains a text of {(1 << 16) + 1} bytes",
    ),
    "a text of 2^64 - 1 bytes in a list": (
        whole(entry("a", LIST, struct.pack("<IQQ", TEXT, 1, 2**64 - 1))),
        f"one of its lists contains a text of {2**64 - 1} bytes",
    ),
    "fewer texts than a list counts": (whole(entry("a", LIST, struct.pack("<IQ", TEXT, 1 << 20))), "ends inside"),
    "a shape that overflows": (
        whole(tensors=(tensor("w", [1 << 40, 1 << 40]),)),
        f"w ends {(4 << 80) - 64} bytes after the end",
    ),
    "a tensor beyond the end": (whole(tensors=(tensor("w", [4], offset=1 << 40),)), "w ends .* after the end"),
    "a tensor that ends beyond the end": (whole(tensors=(tensor("w", [4, 4], offset=32),)), "w ends 32 bytes after"),
    "a tensor that ends a byte too late": (whole(tensors=(tensor("w", [16]),), data=bytes(63)), "w ends 1 bytes after"),
    "an offset below 0": (whole(tensors=(tensor("w", [4], offset=2**64 - 1),)), "w ends .* after the end"),
    "tensors of the same bytes": (
        whole(tensors=tuple(tensor(f"w{n}", [16]) for n in range(200))),
        "take 12800 bytes together, and the file has 64",
    ),
    "numbers of an unknown type": (whole(tensors=(tensor("w", [4], kind=99),)), "w is of the unknown type 99"),
    "half a block": (whole(tensors=(tensor("w", [16], kind=2),)), r"w has rows of \[16\] weights"),
    "an alignment of 0": (whole(entry("general.alignment", U32, bytes(4)), tensors=(ONE,)), "general.alignment is 0"),
    "an alignment in words": (whole(entry("general.alignment", TEXT, text("x"))), "general.alignment is 'x'"),
    "an alignment beyond the end": (
        whole(entry("general.alignment", U32, struct.pack("<I", 1 << 31)), tensors=(tensor("w", [1]),)),
        "w ends .* after the end",
    ),
    "a name that acts on terminals": (whole(tensors=(tensor("\x1b[2J\n", [1] * 9),)), "9 axes"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_one_short_error(name: str, tmp_path: Path) -> None:
    octets, says = FILES[name]
    file = tmp_path / "m.gguf"
    file.write_bytes(octets)
    started = time.process_time()
    with pytest.raises(ValueError, match=rf"m\.gguf .*{says}") as caught:
        read_header(file)
    assert time.process_time() - started < 30
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def test_a_damaged_file_is_refused_before_packages_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope.agents.models.weight_files.find_spec", lambda name: None)
    file = tmp_path / "m.gguf"
    file.write_bytes(whole(*SOUND, tensors=(ONE,)))
    with pytest.raises(ImportError, match="gguf"):
        check_tokenizer(file)
    for octets in (bytes(5000), whole(counts=(0, 1 << 62)), b""):
        file.write_bytes(octets)
        with pytest.raises(ValueError, match=r"m\.gguf"):
            check_tokenizer(file)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    octets = whole(*SOUND, tensors=(ONE, tensor("v", [8], offset=64)), data=bytes(range(1, 97)))
    for length in range(0, len(octets), 8):
        (tmp_path / f"{length}.gguf").write_bytes(octets[:length])
        with pytest.raises(ValueError, match="GGUF"):
            read_header(tmp_path / f"{length}.gguf")
    (tmp_path / "whole.gguf").write_bytes(octets)
    assert has_chat_template(tmp_path / "whole.gguf")


@settings(max_examples=examples(150), deadline=None)
@given(at=st.integers(0, 10**4), octet=st.integers(0, 255), second=st.integers(0, 10**4))
def test_any_octet_may_be_another(at: int, octet: int, second: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    octets = bytearray(whole(*SOUND, tensors=(ONE,)))
    octets[at % len(octets)] = octet
    octets[second % len(octets)] ^= 0x80
    file = tmp_path_factory.mktemp("gguf") / "m.gguf"
    file.write_bytes(octets)
    try:
        header = read_header(file)
        check_folder(file)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert len(header.tokenizer) == 64


def test_a_long_hole_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(whole(*SOUND, tensors=(tensor("w", [10**10]),), data=bytes(4 << 20)))
    os.truncate(file, 10**11)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for work in (read_header, folder_identity):
        with pytest.raises(ValueError, match="sparse"):
            work(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18


@pytest.mark.parametrize(
    "long_entry",
    [
        entry("a", TEXT, struct.pack("<Q", 1 << 24) + bytes(1 << 24)),
        entry("tokenizer.a", LIST, struct.pack("<IQ", 0, 1 << 24) + bytes(1 << 24)),
    ],
    ids=["a text", "a list"],
)
def test_a_header_has_a_length(long_entry: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(whole(long_entry))
    read_header(file)
    monkeypatch.setattr("goalscope.agents.models.weight_files._MOST_HEADER", 1 << 24)
    os.utime(file, (1, 1))  # as if it had changed since its header was read
    with pytest.raises(ValueError, match="header has more than"):
        read_header(file)


def test_weights_per_block_are_those_of_the_format() -> None:
    constants = pytest.importorskip("gguf.constants")
    assert {int(kind): sizes for kind, sizes in constants.GGML_QUANT_SIZES.items()} == {**BLOCKS}


@settings(max_examples=examples(100), deadline=None)
@given(
    shapes=st.lists(st.lists(st.sampled_from([0, 1, 2, 32, 64, 256]), min_size=1, max_size=2), min_size=1, max_size=3),
    kinds=st.lists(st.sampled_from(sorted(BLOCKS)), min_size=3, max_size=3),
    offsets=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    length=st.integers(0, 600),
)
def test_tensors_are_accepted_where_another_reader_finds_their_bytes(
    shapes: list[list[int]], kinds: list[int], offsets: list[int], length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = pytest.importorskip("gguf")
    tensors = tuple(
        tensor(f"w{number}", shape, offset=ALIGNMENT * offset, kind=kind)
        for number, (shape, kind, offset) in enumerate(zip(shapes, kinds, offsets, strict=False))
    )
    file = tmp_path_factory.mktemp("gguf") / "m.gguf"
    file.write_bytes(whole(*SOUND, tensors=tensors, data=bytes(range(1, 201)) * 3)[: -length or None])
    try:
        read_header(file)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
    try:
        total = sum(int(found.n_bytes) for found in package.GGUFReader(file).tensors)
    except (ValueError, IndexError):  # it finds fewer bytes than a tensor needs, or a part of a block
        assert refusal
    else:
        assert not refusal or total > file.stat().st_size - len(whole(*SOUND, tensors=tensors)) + 64
