"""Converted copies of GGUF files: complete, checked before they are read, and removed when there are too many."""

import os
from pathlib import Path

import pytest

from command_line import call
from goalscope.agents.models import weight_files
from goalscope.agents.models.weight_files import PLACE, cache, clear, converted, keep


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PLACE, str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and weights")
    return path


def write(folder: Path) -> None:
    (folder / "a.txt").write_text("first", encoding="utf-8")
    (folder / "b.txt").write_text("second", encoding="utf-8")


def kept(file: Path, part: str = "tokenizer", *, right: bool = True, size: int = 10) -> Path | None:
    keep(file, part, write, lambda folder: right and (folder / "b.txt").is_file(), size)
    return converted(file, part)


def test_a_copy_is_found_by_the_content_of_the_file(file: Path) -> None:
    assert converted(file, "tokenizer") is None
    place = kept(file)
    assert place is not None and (place / "a.txt").read_text(encoding="utf-8") == "first"
    assert converted(file, "weights float32") is None
    copy = file.with_name("copy.gguf")
    copy.write_bytes(file.read_bytes())
    assert converted(copy, "tokenizer") == place
    file.write_bytes(b"GGUF and other weights")
    assert converted(file, "tokenizer") is None


def test_a_copy_that_was_changed_is_not_read(file: Path) -> None:
    for change in (
        lambda place: (place / "a.txt").write_text("furst", encoding="utf-8"),
        lambda place: (place / "c.txt").write_text("more", encoding="utf-8"),
        lambda place: (place / "b.txt").unlink(),
        lambda place: (place / "SHA256SUMS").unlink(),
    ):
        place = kept(file)
        assert place is not None
        change(place)
        assert converted(file, "tokenizer") is None
        assert clear() >= 0


def test_a_link_in_the_cache_is_not_followed(file: Path, tmp_path: Path) -> None:
    place = kept(file)
    assert place is not None
    outside = tmp_path / "outside.txt"
    outside.write_text("first", encoding="utf-8")  # the same content as that of the file in its place
    (place / "a.txt").unlink()
    (place / "a.txt").symlink_to(outside)
    with pytest.raises(ValueError, match=r"a\.txt"):
        converted(file, "tokenizer")


def test_a_copy_that_differs_or_fails_leaves_nothing(file: Path) -> None:
    assert kept(file, right=False) is None

    def fail(folder: Path) -> None:
        (folder / "a.txt").write_text("cut", encoding="utf-8")
        raise OSError(28, "No space left on device")

    keep(file, "tokenizer", fail, lambda folder: True, 10)
    assert converted(file, "tokenizer") is None and not cache().names()


def test_the_oldest_copies_make_room(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["weights float32", "weights bfloat16", "weights float16"]
    assert all(kept(file, part) for part in parts[:2])
    (first,) = [folder for folder in cache().folders() if folder.path.name.endswith("float32")]
    os.utime(first.path, (1, 1))
    monkeypatch.setattr(weight_files, "MOST", 2 * weight_files._size(cache(), first.path.name) - 1 + 10)
    assert kept(file, parts[2]) is not None
    assert converted(file, parts[0]) is None and converted(file, parts[1]) is not None


def test_a_copy_larger_than_the_cache_is_not_written(file: Path) -> None:
    assert kept(file, size=weight_files.MOST + 1) is None


def test_the_doctor_removes_all_copies(file: Path) -> None:
    place = kept(file)
    assert place is not None
    assert str(cache().path) in call("doctor", "--clear-cache")
    assert converted(file, "tokenizer") is None and not place.exists()
