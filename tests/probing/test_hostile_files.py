"""Files of unknown origin: fitted probes and plans, shards and their index, written by somebody who means harm.

Each must be one clear error: nothing is read or written outside of the run directory, and no memory is taken by a size
that merely stands in a file.
"""

import json
import shutil
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import key
from replays import GRIDS, local, record
from safetensors.numpy import load_file, save_file
from test_plans import decoder
from test_probes import one

from flipped import FULL, attack
from goalscope.inside.activations import Shard, capture, load_activations, write_shard
from goalscope.inside.probing import Features, Probe
from goalscope.inside.probing.logit_lens import OWN
from goalscope.inside.probing.probe import ProbeStore
from goalscope.runs import Store
from tampered import tampered

LARGE = 1 << 60
KINDS = ("probe", "plan")


def raw(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(shape: list[int], end: int = 4, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def large(path: Path) -> int:
    """Write a file with 100 MB of header, and return its size."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 100_000_000) + bytes(60_000_000))  # holes may be half of it
        file.truncate(100_000_008)
    return 100_000_008


DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "too short": b"\1\2\3",
    "a header of 2^60 bytes": raw(b"{}", length=LARGE),
    "a header of 2^64 - 1 bytes": b"\xff" * 64,
    "shapes whose product overflows": raw({"x": tensor([1 << 40, 1 << 40])}, b"1234"),
    "shapes whose product overflows beside a 0": raw({"x": tensor([0, 1 << 62, 1 << 62], 0)}),
    "a tensor that ends outside of the file": raw({"x": tensor([1 << 58], LARGE)}, b"1234"),
    "a negative size": raw({"x": tensor([-1])}, b"1234"),
    "two tensors in one place": raw({"x": tensor([1]), "y": tensor([1])}, b"1234"),
    "an unknown type": raw({"x": tensor([1], dtype="\x1b[31mHA" + "A" * 100_000)}, b"1234"),
    "metadata that is no text": raw({"__metadata__": {"goalscope": 3}}),
    "no metadata": raw({"x": tensor([1])}, b"1234"),
    "a header that is a list": raw({"__metadata__": {"goalscope": "[]"}}),
    "a header of brackets": raw({"__metadata__": {"goalscope": "[" * 100_000}}),
    "numbers of many digits": raw({"__metadata__": {"goalscope": "9" * 100_000}}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_one_short_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=r"probe|decoder") as caught:
        Probe.load(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused_wherever_it_ends(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    size = (one("mlp") if kind == "probe" else decoder()).save(path)
    sound = path.read_bytes()
    for length in (*range(0, 64, 7), *range(64, size, size // 8), size - 1):
        path.write_bytes(sound[:length])
        with pytest.raises(ValueError, match="safetensors file"):
            Probe.load(path)


def test_a_large_header_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    large(path)
    tracemalloc.start()
    with pytest.raises(ValueError, match="100000000 bytes, at most 1048576"):
        Probe.load(path)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_tensors_that_numpy_has_no_type_for_are_refused(tmp_path: Path) -> None:
    path, probe = tmp_path / "file.safetensors", one()
    probe.save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for dtype, factor in (("BF16", 2), ("F8_E4M3", 4), ("F16", 2), ("I32", 1)):
        changed = json.loads(json.dumps(header))
        changed["weights.act"]["dtype"] = dtype
        changed["weights.act"]["shape"][1] *= factor
        path.write_bytes(raw(changed, content[8 + length :]))
        with pytest.raises(ValueError, match=r"an array|weights\.act"):
            Probe.load(path)


def test_another_version_of_the_format_is_named(tmp_path: Path) -> None:
    for kind, fitted in (("probe", one()), ("plan", decoder())):
        path = tmp_path / kind
        fitted.save(path)
        content = path.read_bytes()
        assert content.count(b'\\"format\\":1') == 1
        path.write_bytes(content.replace(b'\\"format\\":1', b'\\"format\\":2'))
        with pytest.raises(ValueError, match=r"format 1, got .2"):
            Probe.load(path)


def test_numbers_that_would_make_a_prediction_infinite_are_refused(tmp_path: Path) -> None:
    """The file is whole and its id is right: whoever wrote it can compute ids."""
    from planted import noise, rooms

    probe, cells = one(), rooms()
    tiny = np.full_like(probe.std, 1e-42)
    with pytest.raises(ValueError, match=r"std.*got 1.*e-42"):
        _again(probe, std=tiny)
    loud = _again(probe, weights={"act": np.full_like(probe.weights["act"], 3e38), "bias": probe.weights["bias"]})
    loud.save(tmp_path / "loud")
    with pytest.raises(ValueError, match="float32"):
        Probe.load(tmp_path / "loud").predict(noise(cells))
    far = _again(probe, mean=np.full_like(probe.mean, -3e38), std=np.full_like(probe.std, 1e-37))
    with pytest.raises(ValueError, match="finite"):
        far.predict(Features.of(noise(cells)))


def _again(probe: Probe, **changes: Any) -> Probe:
    names = ("head", "target", "source", "frame", "prior", "mean", "std", "weights", "settings", "scale", "tags")
    return Probe(**({name: getattr(probe, name) for name in names} | changes))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = record(tmp_path_factory.mktemp("hostile") / "run", local(), grids=GRIDS[:1], trajectories=1)
    capture(directory, local(), sites=["pre"], layers=[1])
    return directory


def _shard(directory: Path) -> Path:
    (path,) = (directory / "activations").rglob("*.safetensors")
    return path


def _rewrite(directory: Path, header: dict[str, Any] | None = None, **arrays: Any) -> None:
    """Write the shard anew with other arrays and the right digests, and its size into the index."""
    from safetensors import safe_open

    path = _shard(directory)
    with safe_open(str(path), framework="numpy") as file:
        told = json.loads(file.metadata()["goalscope"])
    kept = {name: array for name, array in {**load_file(path), **arrays}.items() if array is not None}
    size = write_shard(path, Shard(header={**told, **(header or {})}, arrays=kept))
    if header and "format" in header:  # write_shard writes its own
        content = path.read_bytes()
        path.write_bytes(content.replace(b'\\"format\\":1', f'\\"format\\":{header["format"]}'.encode()))
    _index(directory, f"UPDATE artifacts SET size = {size} WHERE kind = 'activations'")


def _index(directory: Path, statement: str) -> None:
    with tampered(directory / "run.db") as database:
        assert database.execute(statement).rowcount > 0


def _refused(directory: Path, says: str, kind: type[Exception] = ValueError) -> None:
    tracemalloc.start()
    with pytest.raises(kind, match=says) as caught:
        load_activations(directory, site="pre", layer=1)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1500


SHARDS: list[tuple[dict[str, Any], str]] = [
    ({"header": {"format": 2}}, "must have format 1, got '2'.*delete the file and run the same capture again"),
    ({"header": {"capture": "capture-x" * 1000}}, "must belong to capture "),
    ({"header": {"episodes": [["a", "b"]]}}, "must list its episodes"),
    ({"header": {"episodes": []}}, "episodes"),
    ({"step": np.array([0, 1, 2])}, r"episode must have shape \[N\] with N = 3, got \[4\]"),
    ({"step": np.array([0, 1, 2, -1])}, "step must be >= 0 everywhere, got -1"),
    ({"step": np.arange(4.0)}, "step must be int64, got float64"),
    ({"step": np.arange(4).reshape(2, 2)}, r"step must have shape \[N\], got \[2, 2\]"),
    ({"episode": np.array([0, 0])}, r"episode must have shape \[N\] with N = 4, got \[2\]"),
    ({"episode": np.array([0, 0, 0, 9])}, "episodes"),
    ({"shape": np.array([[3, 5]])}, r"shape must have shape \[N, 2\] with N = 4, got \[1, 2\]"),
    ({"shape": np.array([[3, 5]] * 3 + [[0, 5]])}, "shape must be >= 1 everywhere, got 0"),
    ({"reconstructed": np.zeros(1, dtype=np.uint8)}, r"reconstructed must have shape \[N\] with N = 4, got \[1\]"),
    *(
        ({"pre.rows": np.array(rows)}, "the rows of site pre must be ascending and within its 4 steps")
        for rows in ([0, 1, 2, 2**62], [0, 0, 1, 2], [1, 0, 2, 3], [0, 1, 2, 4], [-1, 0, 1, 2])
    ),
    (
        {"pre.positions": np.zeros((1, 3), dtype=np.int64)},
        r"pre.positions must have shape \[M, P\] with M = 4, got \[1, 3\]",
    ),
    (
        {"pre.tokens": np.zeros((4, 9), dtype=np.int64)},
        r"pre.tokens must have shape \[M, P\] with M = 4, P = 3, got \[4, 9\]",
    ),
    ({"pre.1": np.zeros((4, 3), dtype=np.float32)}, r"pre.1 must have shape \[4, 3, 32\], got \[4, 3\]"),
    ({"pre.1": np.zeros((5, 3, 16), dtype=np.float32)}, r"pre.1 must have shape \[4, 3, 32\], got \[5, 3, 16\]"),
    ({"pre.1": np.zeros((4, 2, 16), dtype=np.float32)}, r"pre.1 must have shape \[4, 3, 32\], got \[4, 2, 16\]"),
    ({"pre.1": np.zeros((4, 3, 5), dtype=np.float32)}, r"pre.1 must have shape \[4, 3, 32\], got \[4, 3, 5\]"),
    ({"pre.1": np.zeros((4, 3, 32), dtype=np.float16)}, "pre.1 must be float32, got float16"),
    (
        {"pre.1": np.full((4, 3, 32), np.nan, dtype=np.float32)},
        "activations must be finite.*episode-.* step 0",
    ),
    ({"pre.1": None}, "it has no tensor 'pre.1'"),
    ({"pre.rows": None}, "it has no tensor 'pre.rows'"),
]


@pytest.mark.parametrize(("changes", "says"), SHARDS, ids=range(len(SHARDS)))
def test_a_shard_with_right_digests_and_wrong_content_is_refused(
    captured: Path, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    _rewrite(directory, **changes)
    _refused(directory, says)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_shard_of_the_size_in_the_index_is_refused(captured: Path, tmp_path: Path, name: str) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    _shard(directory).write_bytes(DAMAGED[name])
    _index(directory, f"UPDATE artifacts SET size = {len(DAMAGED[name])} WHERE kind = 'activations'")
    _refused(directory, "activations .*delete the file and run the same capture again")


def test_a_shard_with_a_large_header_is_refused_before_it_is_parsed(captured: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    _index(directory, f"UPDATE artifacts SET size = {large(_shard(directory))} WHERE kind = 'activations'")
    _refused(directory, "100000000 bytes, at most 16777216")


WIDE = "UPDATE artifacts SET tags = json_set(tags, '$.{name}', {value}) WHERE kind = 'capture'"
INDEXES: list[tuple[str, str]] = [
    (
        "UPDATE artifacts SET path = '../../etc/passwd' WHERE kind = 'activations'",
        "must lie inside .*do not trust",
    ),
    ("UPDATE artifacts SET path = '/etc/passwd' WHERE kind = 'activations'", "the path of an artifact"),
    ("UPDATE artifacts SET path = 'a/../../x' WHERE kind = 'activations'", "the path of an artifact"),
    ("UPDATE artifacts SET path = 'a' || char(0) || 'b' WHERE kind = 'activations'", "the path of an artifact"),
    ("UPDATE artifacts SET path = '' WHERE kind = 'activations'", "the path of an artifact"),
    ("UPDATE artifacts SET path = hex(zeroblob(4000)) WHERE kind = 'activations'", "is not a path below"),
    ("UPDATE artifacts SET path = '../x' WHERE kind = 'capture'", "the path of an artifact"),
    ("UPDATE artifacts SET path = x'00ff' WHERE kind = 'activations'", "the index row of an artifact"),
    ("UPDATE artifacts SET size = -1 WHERE kind = 'activations'", "must be >= 0 bytes, got -1"),
    (
        "UPDATE artifacts SET size = 1152921504606846976 WHERE kind = 'activations'",
        "must have 1152921504606846976 b",
    ),
    ("UPDATE artifacts SET size = 'many' WHERE kind = 'activations'", "the index row of an artifact"),
    ("UPDATE artifacts SET tags = '[' WHERE kind = 'capture'", "artifact 'capture-"),
    ("UPDATE artifacts SET tags = '{}' WHERE kind = 'capture'", "the entry of capture 'capture-"),
    (WIDE.format(name="width", value=LARGE), rf"pre.1 must have shape \[4, 3, {LARGE}\], got \[4, 3, 32\]"),
    (WIDE.format(name="width", value="'x'"), "the entry of capture"),
    (WIDE.format(name="layers", value="'1,x'"), "the entry of capture"),
    (WIDE.format(name="layers", value="'" + "9" * 5000 + "'"), "the entry of capture"),
    (WIDE.format(name="left_out", value="'[]'"), "the entry of capture"),
    (WIDE.format(name="complete", value="1"), "the entry of capture"),
]


@pytest.mark.parametrize(("statement", "says"), INDEXES, ids=range(len(INDEXES)))
def test_a_hostile_row_of_the_index_is_refused(captured: Path, tmp_path: Path, statement: str, says: str) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    _index(directory, statement)
    _refused(directory, says)


def test_links_out_of_the_run_directory_are_refused(captured: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    shard, outside = _shard(directory), tmp_path / "outside.safetensors"
    shutil.copy(shard, outside)
    shard.unlink()
    shard.symlink_to(outside)
    _refused(directory, "must be a file of its own, got a link to .*outside.safetensors")
    shard.unlink()
    shutil.copy(outside, shard.with_name("inside.safetensors"))
    for target in (shard.name, "inside.safetensors"):
        shard.symlink_to(target)
        _refused(directory, "must be a file of its own, got a link to")
        shard.unlink()
    shard.mkdir()
    _refused(directory, "must be a file of its own, got a folder")


def test_a_capture_writes_through_no_link(captured: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    shard, treasure = _shard(directory), tmp_path / "treasure"
    sound = shard.read_bytes()
    treasure.write_text("gold")
    # A link under the name that the file has while it is written, which anybody can foretell.
    shard.unlink()
    (shard.parent / f".{shard.name}.partial").symlink_to(treasure)
    capture(directory, local(), sites=["pre"], layers=[1])
    assert treasure.read_text() == "gold" and shard.read_bytes() == sound and not shard.is_symlink()
    # A folder of activations that lies elsewhere: nothing is written there, and nothing removed.
    elsewhere = tmp_path / "elsewhere"
    shutil.move(shard.parent, elsewhere)
    shard.parent.symlink_to(elsewhere)
    (elsewhere / shard.name).unlink()
    (elsewhere / ".mine.partial").write_text("gold")
    with pytest.raises(ValueError, match="the link"):
        capture(directory, local(), sites=["pre"], layers=[1])
    assert [path.name for path in elsewhere.iterdir()] == [".mine.partial"]


def test_fitted_probes_are_neither_written_nor_read_through_a_link(captured: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(captured, tmp_path / "run")
    probe = one()
    with Store(directory, "w") as store:
        probes = ProbeStore(
            store=store,
            decisive={},
            settings={"cells": {}},
            models={OWN: probe.source.model},
            first="",
            tags={},
        )
        probes.keep({key("pre", "percell"): probe})
        found = probes.find(key("pre", "percell"))
        assert found is not None and found.id == probe.id
        shutil.move(directory / "probes", tmp_path / "elsewhere")
        (directory / "probes").symlink_to(tmp_path / "elsewhere")
        for use in (probes.find, lambda one: probes.keep({one: probe})):
            with pytest.raises(ValueError, match="the link"):
                use(key("pre", "percell"))
        (directory / "probes").unlink()
        (directory / "probes").mkdir()
        probes.keep({key("pre", "percell"): _again(probe, tags={"planted": True})})
        probes.keep({key("post", "percell"): probe})
        files = sorted((directory / "probes").iterdir())
        assert len(files) == 2
        contents = [path.read_bytes() for path in files]
        files[0].write_bytes(contents[1])
        files[1].write_bytes(contents[0])
        with pytest.raises(ValueError, match=r"probe-.*, .*probe-.*: delete"):
            probes.find(key("pre", "percell"))


def test_a_shard_whose_header_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the header"):
        write_shard(tmp_path / "x", Shard(header={"episodes": "x" * (1 << 23)}, arrays={}))
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_is_no_probe(captured: Path, tmp_path: Path) -> None:
    save_file({"x": np.zeros(2)}, tmp_path / "x", metadata={"goalscope": "{}"})
    for path in (tmp_path / "x", _shard(captured)):
        with pytest.raises(ValueError, match=r"does not describe|format 1"):
            Probe.load(path)


def loaded(directory: Path) -> tuple[Any, ...]:
    """All that is read of a capture."""
    found = load_activations(directory, site="pre", layer=1)
    names = ("vectors", "step", "shape", "positions", "tokens", "reconstructed")
    texts = [getattr(found, name).tolist() for name in ("episode_id", "world_id", "cluster")]
    return found.site, found.layer, found.model, *texts, *(getattr(found, name).tobytes() for name in names)


def rewritten(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


FEW = {"flip": 30, "cut": 5}
BOTH = pytest.mark.parametrize("changes", [FEW, pytest.param(FULL, marks=pytest.mark.full)], ids=["few", "full"])


@BOTH
@pytest.mark.parametrize("part", ["header", "file"])
def test_no_bit_of_a_shard_can_change_what_is_read(
    part: str, changes: dict[str, int], captured: Path, tmp_path: Path
) -> None:
    """The header, which lists the episodes, has a digest of its own: once 30 of 150 changes went unnoticed."""
    directory = shutil.copytree(captured, tmp_path / "run")
    path, sound = _shard(directory), _shard(captured).read_bytes()
    end = 8 + int.from_bytes(sound[:8], "little") if part == "header" else len(sound)

    def read(content: bytes) -> object:
        path.write_bytes(content + sound[end:])
        return loaded(directory)

    says = rf"{path.name}.*delete the file and run the same capture again"
    found = attack(f"shard, {part}", sound[:end], read, changes, says=says, seed=5)
    assert found == changes


@pytest.mark.parametrize("spelling", [b"\\u00E9", b" "])
def test_another_spelling_of_the_same_header_is_a_change(spelling: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    probe = replace(one(), tags={"agent": "\u00e9"})
    probe.save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + length], content[8 + length :]
    other = header.replace(b"\\\\u00e9", b"\\\\u00E9") if spelling != b" " else header.replace(b'\\":', b'\\": ', 1)
    assert other != header
    path.write_bytes(raw(other, body))
    with pytest.raises(ValueError, match="changed since"):
        Probe.load(path)


def test_a_file_without_the_digest_of_its_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    one().save(path)
    content = path.read_bytes()
    begin = content.index(b',\\"header\\":\\"')
    digest = len(b',\\"header\\":\\"') + 32 + len(b'\\"')
    length = int.from_bytes(content[:8], "little")
    old = content[8:begin] + content[begin + digest : 8 + length] + b" " * digest
    path.write_bytes(content[:8] + old + content[8 + length :])
    with pytest.raises(ValueError, match="differ at 'header'"):
        Probe.load(path)


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_no_bit_of_a_probe_can_change_what_it_is(kind: str, changes: dict[str, int], tmp_path: Path) -> None:
    path, fitted = tmp_path / "file.safetensors", one("mlp") if kind == "probe" else decoder()
    fitted.save(path)

    def read(content: bytes) -> object:
        found = Probe.load(rewritten(path, content))
        arrays = {name: array.tobytes() for name, array in found.arrays().items()}
        return found.id, found.describe(), dict(found.settings), arrays

    says = rf"{path.name}.*fit the (probe|decoder) again"
    found = attack(kind, path.read_bytes(), read, changes, says=says, seed=6)
    assert found == changes
