"""Each page on a tool of others is true of that tool as the package registry has it, in an environment of its own.

An environment is made once, with what its page says to install, in `.venv-integrations` or where the variable
GOALSCOPE_INTEGRATIONS says; the tests of the page then run in it, and none of them may be skipped.
"""

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PLACE = Path(os.environ.get("GOALSCOPE_INTEGRATIONS") or ROOT / ".venv-integrations")


@dataclass(frozen=True)
class Integration:
    """Pages with the extras that they name, the tests that run their scripts, and what these need besides.

    `chosen` selects tests of these files by name, as pytest's option -k does; `python` is the oldest that will do.
    """

    pages: tuple[str, ...]
    extras: str
    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()
    further: str = ""
    chosen: str = ""
    python: tuple[int, int] = (3, 11)


INTEGRATIONS = {
    "training": Integration(
        ("environments.md",),
        "lm,gymnasium,minigrid,sb3,export",
        tuple(f"tests/environments/test_{name}.py" for name in ("oracle", "policies", "policies_with_memory", "docs")),
        ("sb3-contrib",),
        chosen="not imitation",  # which needs an older version of gymnasium
    ),
    "inspect": Integration(
        ("integrations.md",),
        "lm,inspect",
        tuple(f"tests/inspect_logs/test_{name}.py" for name in ("known_worlds", "meg_in_inspect", "with_inspect")),
        further=",api,export,textworld,gymnasium,minigrid",
    ),
    "scout": Integration(
        ("monitor.md",),
        "lm,scout,cards",
        ("tests/inspect_logs/test_scout.py", "tests/evaluation/test_cards.py"),
        further=",export,gymnasium,minigrid",
        python=(3, 12),
    ),
    "verifiers": Integration(("integrations.md",), "verifiers", ("tests/verifiers_worlds",), ("uv",)),
    "openenv": Integration(("integrations.md",), "openenv", ("tests/openenv_worlds",)),
}


def test_each_page_names_the_extras_of_its_environment() -> None:
    for one in INTEGRATIONS.values():
        text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in one.pages)
        installed = [name for line in re.findall(r"pip install '\.\[([\w,]+)\]'", text) for name in line.split(",")]
        for name in one.extras.split(","):
            assert name in EXTRAS and (name in installed or re.search(rf"[Ee]xtras? [^.]*`{name}`|`{name}` \|", text))
        assert all((ROOT / path).exists() for path in one.tests)


def test_scripts_of_these_pages_are_short() -> None:
    for page in (page for one in INTEGRATIONS.values() for page in one.pages):
        scripts = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
        if page == "environments.md":  # its first is an environment to write: its own test says how long it may be
            scripts = scripts[1:]
        assert scripts and all(len(script.splitlines()) <= 30 for script in scripts), page


def call(*words: object) -> str:
    """Return what a command prints; it must succeed, and sees no packages of this environment."""
    first = Path(str(words[0])).parent
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PATH"] = f"{first}{os.pathsep}{clean.get('PATH', '')}"
    command = [str(word) for word in words]
    found = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout[-8000:]}\n{found.stderr[-4000:]}"
    return found.stdout


def interpreter(oldest: tuple[int, int]) -> str:
    """Return an interpreter of at least this version: that of the tests, or another one of this machine."""
    if sys.version_info >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 4)]
    beside = Path(sys.base_prefix).parent  # where tools such as pyenv and uv keep other versions
    places = [*names, *(str(path) for name in names for path in sorted(beside.glob(f"*/bin/{name}")))]
    for place in places:
        with contextlib.suppress(OSError):
            if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
                return place
    raise AssertionError(f"this needs Python {'.'.join(map(str, oldest))} or later: install one beside this one")


def made(name: str, one: Integration) -> Path:
    """Return the interpreter of an environment, made where it lacks what it should hold."""
    place = PLACE / name
    python, stamp = place / "bin" / "python", place / "holds"
    wanted = f"{one.extras}{one.further} {' '.join(one.packages)} {sorted(EXTRAS.items())}"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        subprocess.run([interpreter(one.python), "-m", "venv", "--clear", str(place)], check=True)
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
        if "lm" in one.extras.split(","):  # first and by exact version: else another package brings gigabytes of CUDA
            pinned = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
            assert pinned is not None
            call(*pip, pinned[0])
        call(*pip, "--editable", f".[{one.extras}{one.further}]", *one.packages, "pytest", "hypothesis")
        stamp.write_text(wanted, encoding="utf-8")
    return python


@pytest.mark.full
@pytest.mark.parametrize("name", INTEGRATIONS)
def test_the_pages_are_true_of_the_packages_of_the_registry(name: str) -> None:
    one = INTEGRATIONS[name]
    selection = ("-m", "full or not full", "-k", one.chosen)
    tests = (made(name, one), "-m", "pytest", "-p", "no:cacheprovider", *selection, *one.tests)
    last = call(*tests).splitlines()[-1]
    assert "passed" in last and "skipped" not in last, last
