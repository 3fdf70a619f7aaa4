"""GGUF files of strangers: each is one error of one line, soon."""

import os
import resource
import struct
import time
from pathlib import Path

import pytest
from gguf_bytes import LIST, SOUND, TEXT, entry, tensor, text, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples
from goalscope.agents.models.folders import check_folder, check_tokenizer, has_chat_template
from goalscope.agents.models.gguf import read_header

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
    "a shape that overflows": (whole(tensors=(tensor("w", [1 << 40, 1 << 40]),)), f"{1 << 80} weights"),
    "a tensor beyond the end": (whole(tensors=(tensor("w", [4], offset=1 << 40),)), f"at byte {1 << 40}"),
    "an offset below 0": (whole(tensors=(tensor("w", [4], offset=2**64 - 1),)), "at byte"),
    "tensors of the same bytes": (whole(tensors=tuple(tensor(f"w{n}", [512]) for n in range(200))), "weights"),
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
    monkeypatch.setattr("goalscope.agents.models.gguf.find_spec", lambda name: None)
    file = tmp_path / "m.gguf"
    file.write_bytes(whole(*SOUND, tensors=(ONE,)))
    with pytest.raises(ImportError, match="gguf"):
        check_tokenizer(file)
    for octets in (bytes(5000), whole(counts=(0, 1 << 62)), b""):
        file.write_bytes(octets)
        with pytest.raises(ValueError, match=r"m\.gguf"):
            check_tokenizer(file)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    octets = whole(*SOUND, tensors=(ONE, tensor("v", [2])), data=b"")
    for length in range(0, len(octets), 8):
        (tmp_path / f"{length}.gguf").write_bytes(octets[:length])
        with pytest.raises(ValueError, match="GGUF"):
            read_header(tmp_path / f"{length}.gguf")
    (tmp_path / "whole.gguf").write_bytes(octets + bytes(64))
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
    for kind in (
        entry("a", TEXT, struct.pack("<Q", 1 << 37)),
        entry("tokenizer.a", LIST, struct.pack("<IQ", 0, 1 << 37)),
    ):
        file.write_bytes(whole(kind, data=b""))
        os.truncate(file, 1 << 38)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ValueError, match=r"a text of|header has more than"):
            read_header(file)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18
