"""The package as it is published, and the locks that it is installed by."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from goalscope import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = [re.split("[><=]", name)[0] for name in PROJECT["dependencies"]]
STUDY = """\
name: installed
worlds: [{kind: grid, sizes: [7], densities: [0.5], count: 2}]
agents: [{kind: optimal}, {kind: random}]
trajectories: 1
"""


def call(*words: object, cwd: Path, fails: bool = False) -> str:
    """Return what a command prints; nothing of the source tree is on its path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(word) for word in words]
    found = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (found.returncode != 0) == fails, f"{' '.join(command)}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    place = tmp_path_factory.mktemp("source")
    call(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", place, ROOT, cwd=place)
    return next(place.glob("goalscope-*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution; only the long tests need it."""
    place = tmp_path_factory.mktemp("wheel")
    with tarfile.open(source) as file:
        file.extractall(place, filter="data")
    [unpacked] = place.iterdir()
    call(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place, unpacked, cwd=place)
    return next(place.glob("goalscope-*.whl"))


def core_metadata(source: Path) -> str:
    with tarfile.open(source) as archive:
        file = archive.extractfile(f"goalscope-{__version__}/PKG-INFO")
        assert file is not None
        return file.read().decode()


@pytest.fixture(scope="module")
def metadata(source: Path) -> Message:
    return HeaderParser().parsestr(core_metadata(source))


@pytest.mark.full
def test_wheel_and_source_distribution_have_the_same_metadata(wheel: Path, source: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        assert file.read(f"goalscope-{__version__}.dist-info/METADATA").decode() == core_metadata(source)


@pytest.mark.full
def test_an_index_takes_both_and_shows_their_description(wheel: Path, source: Path) -> None:
    assert "PASSED" in call(sys.executable, "-m", "twine", "check", "--strict", wheel, source, cwd=ROOT)


def test_the_metadata_names_authors_licence_and_what_was_tested(metadata: Message) -> None:
    assert metadata["Author"] == "goalscope contributors"
    assert (metadata["License-Expression"], metadata["Version"]) == ("MIT", __version__)
    classifiers = metadata.get_all("Classifier") or []
    assert "Operating System :: POSIX" in classifiers, "the lock of a run directory needs one"
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert not [name for name in classifiers if name.startswith("License ::")], "the expression says it"


def test_the_description_has_no_link_that_is_dead_on_an_index(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    linked = re.findall(r"\]\(([^)\s]+)\)", text)
    assert not [target for target in linked if not target.startswith(("http", "#"))]
    assert "Start (`docs/start.md`)" in text and "`docs/studies.md`" in text
    assert text.index("files of the source distribution") < text.index("\n## ")
    assert not re.findall(r"https?://(?!127\.0\.0\.1)\S+", text), "no address of the project is known"


def test_the_source_distribution_holds_what_tests_and_documentation_need(source: Path, metadata: Message) -> None:
    with tarfile.open(source) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    paths = re.findall(r"`((?:docs|benchmarks)/[\w.-]+|[A-Z]+\.(?:md|cff))`", str(metadata.get_payload()))
    assert len(set(paths)) > 15 and set(paths) <= inside
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:  # the tests also run in an unpacked source distribution
        assert set(listed.stdout.split()) - inside == set()
    assert {"tests/conftest.py", "constraints.txt", "Makefile", "hatch_build.py", "docs/start.md"} <= inside


def linked(folder: Path) -> list[str | Path]:
    """Make an environment that holds the core dependencies alone, linked from this one; return how to call its pip."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    wanted, seen = list(CORE), set[str]()
    while wanted:
        found = distribution(wanted.pop())
        if found.name in seen:
            continue
        seen.add(found.name)
        for entry in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / entry).exists():
                (packages / entry).symlink_to(str(found.locate_file(entry)))
        asked = map(Requirement, found.requires or ())
        wanted += [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]


def check_works(pip: Sequence[str | Path], place: Path, cwd: Path) -> None:
    """Check that what was installed is goalscope with its core dependencies and nothing else, and that it runs."""
    python, program = place / "bin" / "python", place / "bin" / "goalscope"
    (cwd / "study.yaml").write_text(STUDY, encoding="utf-8")
    assert "No broken requirements" in call(*pip, "check", cwd=cwd)
    there = call(*pip, "list", "--format=freeze", cwd=cwd).lower().replace("_", "-")
    assert all(f"{name.lower()}==" in there for name in CORE)
    assert not re.search(r"^(torch|transformers|matplotlib|openai|pyarrow|pytest)==", there, re.MULTILINE)
    where = call(python, "-c", "import goalscope; print(goalscope.__file__)", cwd=cwd)
    assert Path(where.strip()).is_relative_to(place)
    assert __version__ in call(program, "--version", cwd=cwd)
    advice = " ".join(call(program, "doctor", cwd=cwd).split())
    assert "pip install 'jinja2>=" in advice and "clone" not in advice, "who has a wheel has no clone"
    call(program, "run", "study.yaml", "--out", "one", cwd=cwd)
    shown = call(program, "measure", "one", "--measures", "success", cwd=cwd)
    assert re.search(r"optimal\s+success\s+1", shown), shown
    call(program, "report", "one", cwd=cwd, fails=True)  # without jinja2


@pytest.mark.full
def test_the_wheel_runs_a_study_beside_its_core_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    call(*linked(place), "install", "--quiet", "--no-compile", "--no-index", wheel, cwd=tmp_path)
    assert not list(place.glob("lib/python*/site-packages/torch")) and list(
        place.glob("**/goalscope/verdict/studies/*.yaml")
    )
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    call(place / "bin" / "goalscope", "run", "study.yaml", "--out", "one", cwd=tmp_path)
    assert (tmp_path / "one" / "run.db").exists()


@pytest.mark.full
def test_the_wheel_works_beside_its_core_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    pip = linked(place)
    # No index is asked: all that the wheel declares is there.
    call(*pip, "install", "--quiet", "--no-compile", "--no-index", wheel, cwd=tmp_path)
    check_works(pip, place, tmp_path)


@pytest.mark.full
def test_wheel_and_source_distribution_install_into_an_empty_environment(
    wheel: Path, source: Path, tmp_path: Path
) -> None:
    place, pins = tmp_path / "environment", ROOT / "constraints.txt"
    venv.create(place, with_pip=True)
    pip: list[str | Path] = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    call(*pip, "install", "--quiet", "--no-compile", "--constraint", pins, wheel, cwd=tmp_path)
    check_works(pip, place, tmp_path)
    # The source distribution installs what the wheel does.
    first = call(*pip, "show", "--files", "goalscope", cwd=tmp_path)
    again = ("install", "--quiet", "--no-compile", "--no-deps", "--force-reinstall", source)
    call("env", f"PIP_CONSTRAINT={pins}", *pip, *again, cwd=tmp_path)
    assert call(*pip, "show", "--files", "goalscope", cwd=tmp_path) == first
    assert "nothing" not in call(place / "bin" / "goalscope", "run", "study.yaml", "--out", "two", cwd=tmp_path)


def test_one_version_stands_in_package_changelog_and_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "MIT" and citation["type"] == "software"
    assert citation["authors"] == [{"name": author["name"]} for author in PROJECT["authors"]]
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[:2] == ["Unreleased", __version__]
    assert citation["version"] == __version__


def test_every_tool_of_the_gate_has_an_exact_version() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==\S+", line) for line in pins)
    pinned = {re.sub("[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    wanted = [name for names in PROJECT["optional-dependencies"].values() for name in names] + PROJECT["dependencies"]
    bare = {re.sub("[-_.]+", "-", re.split(r"[\[><=;]", name)[0]).lower() for name in wanted}
    assert bare - {"goalscope"} <= pinned


def test_the_gate_installs_the_environments_that_its_tests_play() -> None:
    dev = " ".join(PROJECT["optional-dependencies"]["dev"])
    assert "gymnasium" in dev and "minigrid" in dev, "else tests/environments is skipped and nobody sees it"


# The locks name every package in one version with hashes, agree with what the project asks for, and are enforced.


lock_tool: Any = importlib.import_module("tools.lock")
CUDA, FOLDER, HERE, LOCKS = lock_tool.CUDA, lock_tool.FOLDER, lock_tool.HERE, lock_tool.LOCKS
cpu_build, entries = lock_tool.cpu_build, lock_tool.entries

OPTIONAL = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
MADE_FOR = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11", "extra": ""}


def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[str, Requirement]:
    """Return what a lock asks for by name."""
    lines = re.findall(r"(?m)^[a-z0-9].*?(?= \\$)", (FOLDER / f"{lock}.lock").read_text(encoding="utf-8"))
    return {canonical(one.name): one for one in map(Requirement, lines)}


@pytest.mark.parametrize("lock", ["run", "dev", "cuda", "torch-cpu", "tools"])
def test_each_package_has_one_version_and_the_hash_of_each_file_and_no_place_it_comes_from(lock: str) -> None:
    text = (FOLDER / f"{lock}.lock").read_text(encoding="utf-8")
    found = entries(text)
    assert found and len(found) == len(pins(lock))
    for name, entry in found.items():
        first, *hashes = entry.rstrip().split(" \\\n")
        assert re.fullmatch(rf"{name}==[\w.+]+( ; .+)?", first), first
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in hashes), entry
    assert "//" not in text and "--index" not in text and "--find" not in text


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_its_extras_ask_for_in_the_versions_of_the_constraints(lock: str) -> None:
    found = pins(lock)
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, wanted = list(LOCKS[lock]), list(project["dependencies"])
    for extra in extras:
        for one in map(Requirement, OPTIONAL[extra]):
            extras += [name for name in one.extras if one.name == "goalscope" and name not in extras]
            wanted += [str(one)] if one.name != "goalscope" else []
    for one in map(Requirement, wanted):
        (pin,) = found[canonical(one.name)].specifier
        assert one.specifier.contains(pin.version), f"{one} asks for another version than {pin}: make lock"
    for line in (HERE / "constraints.txt").read_text(encoding="utf-8").split():
        name, version = line.split("==")
        assert canonical(name) not in found or str(found[canonical(name)].specifier) == f"=={version}", "make lock"


def test_cuda_is_apart_and_the_cpu_build_is_that_of_the_same_version() -> None:
    assert not [name for lock in LOCKS for name in pins(lock) if CUDA.fullmatch(name)]
    assert len(pins("cuda")) > 10 and all(CUDA.fullmatch(name) for name in pins("cuda"))
    build, of_index = pins("torch-cpu")["torch"], pins("dev")["torch"]
    assert str(build.specifier) == f"{of_index.specifier}+cpu"
    assert build.marker is not None and build.marker.evaluate(MADE_FOR) and str(build.marker).count("==") == 3
    assert lock_tool.SERVED.replace("'", '"') == str(build.marker)
    with pytest.raises(ValueError, match="CPU_BUILDS"):
        cpu_build("torch==1.0.0 \\\n    --hash=sha256:0")


def test_the_makefile_installs_nothing_without_a_hash_unless_told_to() -> None:
    makefile = (HERE / "Makefile").read_text(encoding="utf-8")
    locked = makefile.partition("else\ndefine install")[0]
    lines = [line for line in re.findall(r".*\$\(INSTALL\).*", locked) if not line.startswith("INSTALL")]
    assert len(lines) == 4
    assert all("$(HASHED)" in line or "--no-deps --no-index --no-build-isolation" in line for line in lines)
    assert re.search(r"^LOCKED \?= yes$", makefile, re.MULTILINE)
    assert re.search(r"^HASHED := --require-hashes --no-deps", makefile, re.MULTILINE)


@pytest.mark.full
def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "requirements"):
        source = HERE / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    lock = tmp_path / "requirements" / "run.lock"
    text = lock.read_text(encoding="utf-8")
    first, entry = next(iter(entries(text).items()))
    wrong = re.sub(r"sha256:(\w{63})(\w)", lambda one: f"sha256:{one[1]}{'0' if one[2] != '0' else '1'}", entry)
    lock.write_text(text.replace(entry, wrong), encoding="utf-8")
    done = subprocess.run(
        ["make", "VENV=refused", f"PYTHON={sys.executable}", "refused/.installed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr and first in done.stderr
    listed = subprocess.run([tmp_path / "refused/bin/python", "-m", "pip", "list"], capture_output=True, text=True)
    assert "pydantic" not in listed.stdout and "goalscope" not in listed.stdout
