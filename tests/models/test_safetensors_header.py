"""Files of weights whose size differs from what their header describes: refused before they are read."""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from families import examples
from goalscope.agents.models import weight_files
from goalscope.agents.models.folders import check_folder, folder_identity, model_folder
from goalscope.agents.models.weight_files import BITS, check_header

WEIGHTS = "model.safetensors"


def tensor(begin: Any, end: Any, shape: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def whole(header: Any, octets: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(octets)


FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "header"),
    "half a length": (b"\1\2\3", "header"),
    "a header of 2^64 - 1 bytes": (b"\xff" * 64, f"header has {2**64 - 1} bytes"),
    "a header beyond the end": (struct.pack("<Q", 60) + b"{}", "header has 60 bytes"),
    "a header that is no JSON": (whole(b"{{"), "valid JSON"),
    "a header 30,000 deep": (whole(b'{"a":' * 30_000 + b"1" + b"}" * 30_000), "nested"),
    "a list": (whole([]), "object"),
    "a tensor twice": (
        whole(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}'),
        "repeated|twice|unique",
    ),
    "bytes that no tensor has": (
        whole({"a": tensor(0, 4, [1])}, 5),
        "describes 4 bytes of weights, and the file has 5",
    ),
    "a byte too few": (whole({"a": tensor(0, 4, [1])}, 3), "describes 4 bytes of weights, and the file has 3"),
    "weights of 1 PB": (whole({"a": tensor(0, 1 << 50, [1 << 48])}, 4), "from 0 to"),
    "a gap": (whole({"a": tensor(0, 4, [1]), "b": tensor(8, 12, [1])}, 12), "b begins at byte 8"),
    "an overlap": (whole({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, 12), "b begins at byte 4"),
    "another size": (whole({"a": tensor(0, 4, [2])}, 4), "differs from its shape"),
    "a product that overflows": (whole({"a": tensor(0, 4, [1 << 40, 1 << 40])}, 4), "differs from its shape"),
    "a million axes": (whole({"a": tensor(0, 4, [1] * 10**6)}, 4), "axes"),
    "numbers of 4,000 digits": (whole({"a": tensor(0, 4, [10**4000] * 30)}, 4), "axes"),
    "a size below 0": (whole({"a": tensor(0, -4, [-1])}, 4), "whole numbers"),
    "a size of true": (whole({"a": tensor(0, 1, True, "U8")}, 1), "whole numbers"),
    "an axis of true": (whole({"a": tensor(0, 1, [True], "U8")}, 1), "whole numbers"),
    "an axis of NaN": (whole(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', 1), "NaN|whole numbers"),
    "offsets in words": (whole({"a": tensor("0", "4", [1])}, 4), "whole numbers"),
    "three offsets": (whole({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, 4), "data_offsets"),
    "no offsets": (whole({"a": {"dtype": "F32", "shape": [1]}}, 4), "data_offsets"),
    "a kind of numbers in a list": (whole({"a": tensor(0, 4, [1], ["F32"])}, 4), "dtype"),
    "numbers of an unknown kind": (whole({"a": tensor(0, 4, [1], "F99")}, 4), "dtype"),
    "no tensor": (whole({"a": None}), "dtype"),
    "a name that acts on terminals": (whole({"\x1b[2J": None}), "dtype"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_size_is_one_short_error(name: str, tmp_path: Path) -> None:
    octets, says = FILES[name]
    (tmp_path / WEIGHTS).write_bytes(octets)
    with pytest.raises(ValueError, match=says) as caught:
        check_header(tmp_path / WEIGHTS)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def test_the_header_has_a_length(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(whole({"__metadata__": {"a": "x" * (1 << 24)}}))
    with pytest.raises(ValueError, match=f"{1 << 24} are allowed"):
        check_header(tmp_path / WEIGHTS)


@pytest.mark.parametrize("check", [check_folder, folder_identity])
def test_weights_are_not_read_before_their_size_is_checked(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model_folder("organism-goal")
    assert source is not None
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    digests: list[str] = []

    def note_digest(path: Path, size: int, modified: int) -> str:
        digests.append(path.name)
        return "0" * 64

    monkeypatch.setattr(weight_files, "_digest", note_digest)
    check(folder)
    assert (WEIGHTS in digests) == (check is folder_identity)
    digests.clear()
    octets = (folder / WEIGHTS).read_bytes()
    for damage in (octets[:-1], octets + b"\0", whole({"w": tensor(0, 10**12, [25 * 10**10])}, 4)):
        (folder / WEIGHTS).write_bytes(damage)
        with pytest.raises(ValueError, match=f"{WEIGHTS} must be an intact safetensors file"):
            check(folder)
    with (folder / WEIGHTS).open("wb") as file:  # a header that agrees with a file that nobody wrote
        file.write(whole({"w": tensor(0, 10**11, [25 * 10**9])}))
        os.truncate(file.fileno(), file.tell() + 10**11)
    with pytest.raises(ValueError, match="sparse"):
        check(folder)
    assert not digests


@settings(max_examples=examples(150), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(BITS)), max_size=4),
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=4, max_size=4),
    moved=st.sampled_from([0, 0, 0, 1, -1]),
    octets=st.sampled_from([0, 0, 0, 1, -1]),
    reverse=st.booleans(),
)
def test_files_are_accepted_that_the_library_accepts(
    kinds: list[str],
    shapes: list[list[int]],
    moved: int,
    octets: int,
    reverse: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    header, end = {}, 0
    for number, (kind, shape) in enumerate(zip(kinds, shapes, strict=False)):
        count = 1
        for side in shape:
            count *= side
        begin, end = end, end + count * BITS[kind] // 8
        header[f"w{number}"] = tensor(begin, end, shape, kind)
    if "w1" in header:
        header["w1"]["data_offsets"][0] = max(0, header["w1"]["data_offsets"][0] + moved)
    entries = dict(reversed(header.items())) if reverse else header
    file = tmp_path_factory.mktemp("weights") / WEIGHTS
    file.write_bytes(whole({"__metadata__": {"format": "pt"}, **entries}, max(0, end + octets)))
    try:
        with safe_open(file, framework="numpy"):
            pass
    except SafetensorError:
        with pytest.raises(ValueError, match="its "):
            check_header(file)
    else:
        check_header(file)
