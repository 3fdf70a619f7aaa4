"""What the README shows runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readme")
    (place / "maze.yaml").write_text(next(text for kind, text in BLOCKS if kind == "yaml"), encoding="utf-8")
    return place


def test_the_python_example_runs(folder: Path) -> None:
    code = next(text for kind, text in BLOCKS if kind == "python")
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert found.stdout.count("'measure': 'success'") == 4 and "[" in found.stdout


def test_the_commands_on_a_study_run_in_order(folder: Path) -> None:
    commands = next(text for kind, text in BLOCKS if kind == "sh" and "maze.yaml" in text).splitlines()
    assert len(commands) >= 4
    for line in commands:
        words = line.split("#")[0].split()
        assert words[0] == "goalscope"
        code = "from goalscope.cli import main; main()"
        found = subprocess.run([sys.executable, "-c", code, *words[1:]], cwd=folder, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
    assert (folder / "tables" / "steps.parquet").exists()


def test_every_file_that_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(((?!#|http)[^)]+)\)", text):
        assert (ROOT / target).exists(), target
