"""Folder and NamedFile: nothing below a directory is reached through a link, and only regular files are opened."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goalscope._ground import folder as folder_module
from goalscope._ground.folder import Folder, NamedFile, described, package_text, temporary_folder
from goalscope._ground.untrusted import StrangeFileError, UntrustedError

ODD_NAMES = ["a b", "-rf", "naïve", "日本", "tab\there", "new\nline", "*", "~", "$HOME", "a'b\"c", "\udcff", "x" * 200]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What a planted link leads to."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "file").write_text("precious")
    os.mkfifo(place / "pipe")
    return place


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """The received directory."""
    place = tmp_path / "given"
    (place / "inner").mkdir(parents=True)
    (place / "inner" / "file").write_text("content")
    return place


def plant_socket(path: Path, outside: Path) -> None:
    number = os.open(path.parent, os.O_RDONLY)  # the path of a socket has at most 108 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{number}/{path.name}")
    os.close(number)


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "link to a folder": lambda path, outside: path.symlink_to(outside),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "link to a pipe": lambda path, outside: path.symlink_to(outside / "pipe"),
    "link to a device": lambda path, outside: path.symlink_to("/dev/zero"),
    "link to itself": lambda path, outside: path.symlink_to(path.name),
    "link inside": lambda path, outside: path.symlink_to("inner/file"),
    "pipe": lambda path, outside: os.mkfifo(path),
    "socket": plant_socket,
    "folder": lambda path, outside: path.mkdir(),
}
OPERATIONS: dict[str, Callable[[Folder], object]] = {
    "load_bytes": lambda folder: folder.load_bytes("x"),
    "load_text": lambda folder: folder.load_text("x"),
    "load_object": lambda folder: folder.load_object("x"),
    "lines": lambda folder: list(folder.lines("x")),
    "file": lambda folder: folder.file("x"),
    "size": lambda folder: folder.size("x"),
    "status": lambda folder: folder.status("x"),
    "has_file": lambda folder: folder.has_file("x"),
    "files": lambda folder: folder.files("x*"),
    "save_text": lambda folder: folder.save_text("new", "x"),
    "save_bytes": lambda folder: folder.save_bytes(b"new", "x"),
    "open_to_change": lambda folder: folder.open_to_change("x"),
    "below": lambda folder: folder.below("x").load_bytes("file"),
    "middle": lambda folder: folder.load_bytes("x", "file"),
    "make": lambda folder: folder.make("x", "y"),
    "has_folder": lambda folder: folder.has_folder("x", "y"),
    "save below": lambda folder: folder.save_text("new", "x", "file"),
    "remove below": lambda folder: folder.remove_file("x", "file"),
    "list": lambda folder: folder.names("x"),
    "folders": lambda folder: folder.folders(),
}
THROUGH_FOLDERS = ("below", "middle", "make", "has_folder", "save below", "remove below", "list", "folders")


def contents(place: Path) -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(place)), path.read_text() if path.is_file() else oct(path.lstat().st_mode))
        for path in sorted(place.rglob("*"))
    ]


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_planted_is_refused_and_nothing_outside_is_reached(
    given: Path, outside: Path, kind: str, operation: str
) -> None:
    PLANTED[kind](given / "x", outside)
    before, began = contents(outside), time.monotonic()
    link = kind.startswith("link")
    if kind == "folder" and operation in (*THROUGH_FOLDERS[2:], "files"):
        OPERATIONS[operation](Folder(given))  # a folder may be where a folder is wanted
    elif operation in ("has_folder", "folders") and not link:
        OPERATIONS[operation](Folder(given))  # what is no folder is none
    else:
        with pytest.raises((StrangeFileError, OSError)) as caught:
            OPERATIONS[operation](Folder(given))
        assert str(given / "x") in str(caught.value)
        if link or operation not in THROUGH_FOLDERS:
            assert isinstance(caught.value, StrangeFileError)
    assert contents(outside) == before and time.monotonic() - began < 60


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_thing_is_removed_itself(given: Path, outside: Path, kind: str) -> None:
    PLANTED[kind](given / "x", outside)
    before = contents(outside)
    if kind == "folder":
        Folder(given).remove_folder("x")
    else:
        Folder(given).remove_folder("x")
        assert os.path.lexists(given / "x")
        Folder(given).remove_file("x")
    assert not os.path.lexists(given / "x") and contents(outside) == before


@pytest.mark.parametrize("kind", PLANTED)
def test_a_partial_file_is_never_written_through(given: Path, outside: Path, kind: str) -> None:
    PLANTED[kind](given / ".x.partial", outside)
    before = contents(outside)
    if kind == "folder":
        with pytest.raises(OSError, match=r"\.x\.partial"):
            Folder(given).save_text("new", "x")
    else:
        assert Folder(given).save_text("new", "x").read_text() == "new"
    assert contents(outside) == before


@pytest.mark.parametrize("kind", PLANTED)
def test_a_file_that_the_user_typed(given: Path, outside: Path, kind: str) -> None:
    path = given / "x"
    PLANTED[kind](path, outside)
    if kind in ("link to a file", "link inside"):
        assert NamedFile(path).load_text() == path.read_text()
    else:
        with pytest.raises((StrangeFileError, OSError)):
            NamedFile(path).load_bytes()
    before = contents(outside)
    with pytest.raises(StrangeFileError):
        NamedFile(path).save_text("new")
    assert contents(outside) == before


def test_the_directory_itself_may_lead_through_links(given: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("given")
    latest = Folder(tmp_path / "latest")
    assert latest.is_there() and latest.load_text("inner", "file") == "content"
    assert latest.save_text("new", "other") == tmp_path / "latest" / "other"
    assert latest.names() == ["inner", "other"] and (given / "other").read_text() == "new"


def test_hard_links_are_read_but_not_changed_in_place(given: Path, outside: Path) -> None:
    (given / "x").hardlink_to(outside / "file")
    folder = Folder(given)
    assert folder.load_text("x") == "precious" and folder.file("x") == given / "x"
    for change in (lambda: folder.open_to_change("x"), lambda: folder.file("x", one_name=True)):
        with pytest.raises(StrangeFileError, match="2 names"):
            change()
    folder.save_text("new", "x")
    assert (outside / "file").read_text() == "precious" and folder.load_text("x") == "new"


@pytest.mark.parametrize("path", ["../outside/file", "/etc/passwd", "inner/../../outside/file", "a\0b"])
def test_a_path_stays_inside(given: Path, outside: Path, path: str) -> None:
    for work in (Folder(given).load_bytes, Folder(given).file, Folder(given).make, Folder(given).below):
        with pytest.raises(StrangeFileError, match="inside"):
            work(path)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path)
    folder.make(name).save_text("content", name)
    assert folder.below(name).names() == [name] and folder.load_text(name, name) == "content"
    assert [each.path.name for each in folder.folders()] == [name]
    folder.below(name).remove_file(name)
    folder.remove_folder(name)
    assert folder.names() == []


def test_what_is_missing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "none")
    assert not folder.is_there() and not folder.has_file("x") and not folder.has_folder("x") and folder.names("x") == []
    assert folder.file("x") == tmp_path / "none" / "x"
    assert folder.status("x") is None and folder.files() == [] and folder.folders() == []
    folder.remove_file("x")
    folder.remove_folder("x")
    for work in (folder.load_bytes, folder.size):
        with pytest.raises(FileNotFoundError):
            work("x")
    folder.make()
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none" / "x")):
        folder.load_bytes("x")
    with pytest.raises(OSError, match="name too long"):
        folder.has_file("x" * 300)


def test_large_and_sparse_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(100 * 10**9)
    with (tmp_path / "holes.jsonl").open("wb") as file:
        file.write(b"{}\n")
        file.seek(10**9)
        file.write(b"{}\n")
    with (tmp_path / "sound.jsonl").open("wb") as file:
        file.write(b"{}\n" * 3)
        file.seek(2**20, os.SEEK_CUR)
        file.write(b"\n{}\n")
    began, folder = time.monotonic(), Folder(tmp_path)
    for opened in (lambda: list(folder.lines("huge.jsonl")), lambda: NamedFile(tmp_path / "huge.jsonl").open_file()):
        with pytest.raises(UntrustedError, match=rf"{folder_module.MOST_LOG_BYTES} bytes.* 1{'0' * 11}"):
            opened()
    with pytest.raises(UntrustedError, match="at most 268435456 bytes"):
        folder.load_bytes("holes.jsonl")
    with pytest.raises(UntrustedError, match="sparse file"):
        folder.open_file("holes.jsonl")
    assert len(list(folder.lines("sound.jsonl"))) == 5  # a hole of 1 MiB is one damaged line
    assert time.monotonic() - began < 60


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(UntrustedError, match="5 bytes"):
        Folder("/proc/self").load_bytes("stat", most=5)  # such files have a size of 0


@pytest.mark.parametrize("exchanged", ["last", "middle"])
def test_a_file_that_is_exchanged_for_a_link_after_it_was_looked_at(
    given: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, exchanged: str
) -> None:
    checked, opened = os.stat, os.open

    def exchange(path: str, *arguments: object, **options: object) -> os.stat_result:
        status = checked(path, *arguments, **options)  # type: ignore[arg-type]
        if path == "file":
            monkeypatch.setattr(os, "stat", checked)
            place = given / "inner" / "file" if exchanged == "last" else given / "inner"
            place.rename(given / "aside")
            place.symlink_to(outside / "file" if exchanged == "last" else outside)
        return status

    monkeypatch.setattr(os, "stat", exchange)
    with pytest.raises((StrangeFileError, OSError)):
        Folder(given).load_bytes("inner", "file")
    assert os.open is opened


def test_too_many_entries(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MOST_ENTRIES", 3)
    for number in range(2):
        (given / str(number)).write_text("")
    assert Folder(given).names() == ["0", "1", "inner"]
    (given / "3").write_text("")
    for listing in (Folder(given).names, Folder(given).files, Folder(given).folders):
        with pytest.raises(UntrustedError, match="at most 3 entries"):
            listing()


def test_a_listing_shows_links_as_links(given: Path, outside: Path) -> None:
    (given / "link").symlink_to(outside / "file")
    kinds = {entry.name: described(given / entry.name, entry.status) for entry in Folder(given).entries()}
    assert kinds == {"inner": "a folder", "link": f"a link to {outside / 'file'}"}
    assert Folder(given).files("inner*") == []
    assert [entry.name for entry in Folder(given, links=True).entries() if stat.S_ISREG(entry.status.st_mode)] == [
        "link"
    ]


def test_a_folder_of_models_may_hold_links_but_no_pipes(given: Path, outside: Path) -> None:
    (given / "weights").symlink_to(outside / "file")
    (given / "more").symlink_to(outside)
    (given / "pipe").symlink_to(outside / "pipe")
    folder = Folder(given, links=True)
    assert folder.load_text("weights") == folder.load_text("more", "file") == "precious"
    assert folder.files("w*") == [given / "weights"] and folder.below("more").has_file("file")
    for work in (folder.load_bytes, folder.file, folder.has_file):
        with pytest.raises(StrangeFileError, match="pipe"):
            work("pipe")


def test_an_error_leaves_the_old_content(given: Path) -> None:
    folder = Folder(given)
    with pytest.raises(ZeroDivisionError), folder.writing_text("inner", "file") as stream:
        stream.write("new")
        raise ZeroDivisionError
    assert folder.load_text("inner", "file") == "content" and folder.names("inner") == ["file"]


KILLED = """
import os, signal, sys
from goalscope._ground.folder import Folder
with Folder(sys.argv[1]).writing("inner", "file", sync=True) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_the_old_content(given: Path) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED, str(given)], check=False)
    folder = Folder(given)
    assert result.returncode == -9 and folder.load_text("inner", "file") == "content"
    assert folder.names("inner") == [".file.partial", "file"]
    folder.save_bytes(b"new", "inner", "file", sync=True)
    assert folder.names("inner") == ["file"] and folder.load_bytes("inner", "file") == b"new"


def test_moving_copying_and_temporary_folders(given: Path, tmp_path: Path) -> None:
    folder, other = Folder(given), Folder(tmp_path / "copy")
    assert folder.copy_file("inner", "file", into=other).read_text() == "content"
    assert folder.below("inner").copy_file("file", into=other).read_text() == "content"
    assert other.names() == ["file", "inner"]
    folder.move("inner", "moved")
    assert folder.load_text("moved/file") == "content" and not folder.has_folder("inner")
    with folder.temporary(".new-") as inside, temporary_folder() as elsewhere:
        inside.save_text("1", "x")
        elsewhere.save_text("2", "y")
        assert len(folder.names()) == 2
        paths = inside.path, elsewhere.path
    assert folder.names() == ["moved"] and not any(path.exists() for path in paths)


def test_a_typed_file_in_dev_is_written_directly() -> None:
    NamedFile("/dev/null").save_text("text")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(StrangeFileError):
        NamedFile("/dev/zero").load_bytes()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="only Linux has files in memory there")
def test_a_file_in_memory_is_replaced_like_any_other(outside: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "link").symlink_to(outside / "file")
        (folder / "second").write_text("old")
        (folder / "name").hardlink_to(folder / "second")
        with pytest.raises(StrangeFileError, match="link"):
            NamedFile(folder / "link").save_text("new")
        NamedFile(folder / "name").save_text("new")
        assert (outside / "file").read_text() == "precious"
        assert ((folder / "second").read_text(), (folder / "name").read_text()) == ("old", "new")


def test_a_text_that_ships() -> None:
    assert package_text("goalscope.verdict.studies", "demo.yaml").startswith("#")
