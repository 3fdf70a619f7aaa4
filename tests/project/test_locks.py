"""The locks name every package in one version with hashes, agree with what the project asks for, and are enforced."""

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

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
