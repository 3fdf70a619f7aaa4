"""No command imports a module of the working directory because a directory that it was given names it.

The commands, their arguments and their options are read from the program, so that a new one is tried, too.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from families import long_after
from goalscope._ground import own
from goalscope.cli import app
from in_turn import in_turn

PROGRAM: Any = typer.main.get_command(app)
COMMANDS = PROGRAM.list_commands(None)
PLACES = ("AGENT", "DIR", "EVALUATION", "FILE", "MODEL", "OUT", "PATH", "RUN", "RUN_A", "RUN_B", "SHARD", "STUDY")
"""Words for what stands on a command line for a directory or a file."""
NOTHING_TO_READ = {("demo", "judged"), ("demo", "asked")}
"""Commands that write into a directory without reading what lies there, and take a minute."""
RECEIVED = (("world", "judged"), ("grids", "asked", "placed", "predicted"))
"""The directories of the fixture: two runs, two evaluations (one in their environment), a claim and a prediction."""

AGENT = """
from pathlib import Path
from goalscope.agents import Turn
from goalscope.environments import Observed

class Agent:
    name, journalled = "theirs", False
    def describe(self):
        return {"kind": "theirs"}
    def act(self, observations):
        return [Turn(action=index % 2) for index, _ in enumerate(observations)]

def spot(world):
    return 0, 0

class Line:
    actions = ("left", "right")
    def __init__(self, size=3):
        self.size = size
    def initial(self):
        return {1: 1.0}
    def step(self, state, action):
        return {min(max(state + (1 if action else -1), 0), self.size): 1.0}
    def done(self, state):
        return state == self.size
    def goal(self, state):
        return state == self.size
    def observe(self, state):
        return Observed(text=f"cell {state}")
    def describe(self):
        return {"name": "line"}
"""
WORLD = """
name: world
worlds: [{kind: 'evil:Line'}]
agents: [{kind: 'evil:Agent'}]
horizon: {steps: 3}
trajectories: 2
answers: 2
"""
GRIDS = """
name: grids
worlds: [{kind: grid, sizes: [5], densities: [0.0], count: 2}]
agents: [{kind: 'evil:Agent'}]
analysis: {hypotheses: [{name: theirs, is: place evil:spot}]}
horizon: {steps: 3}
trajectories: 2
answers: 2
"""
KINDS = """
horizon: {steps: 3}
places: [goal]
kinds: [{name: lines, worlds: [{kind: 'evil:Line'}]}]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what somebody made with a module of theirs, and in place of that module one that leaves a mark."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "evil.py").write_text(AGENT)
    for name, study in (("world", WORLD), ("grids", GRIDS)):
        (folder / f"{name}.yaml").write_text(study)
    (folder / "kinds.yaml").write_text(KINDS)
    grids = "{kind: grid, sizes: [5], densities: [0.0], count: 2}"
    six = f"{{kind: 'evil:Line', parameters: {[{'size': size} for size in range(4, 10)]}}}"
    bank = "goal;corner top-left;place evil:spot"
    given = (
        ["run", "world.yaml", "--out", "world"],
        ["run", "grids.yaml", "--out", "grids"],
        ["evaluate", "evil:Agent", "--quick", "--arms", "grids", "--sizes", "5", "--out", "judged"],
        ["attribute", "evil:Agent", "--hypotheses", bank, "--worlds", grids, "--out", "asked"],
        ["evaluate", "random", "--env", "evil:Line", "--quick", "--out", "placed"],
        ["predict", "evil:Agent", "--worlds", six, "--kinds", "kinds.yaml", "--out", "predicted"],
    )
    # In processes of their own, so that the module is not imported in that of the tests.
    done = in_turn(given, cwd=folder)
    assert all(one.status == 0 and "evil:" in one.stderr and "is run" in one.stderr for one in done), done
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(folder / 'mark')!r}).touch()\n{AGENT}")
    return folder


def is_place(parameter: Any) -> bool:
    """Return whether an argument or option takes a directory or file."""
    words = (parameter.metavar or "").replace("|", " ").replace("[", " ").replace("]", " ").split()
    return bool(set(words) & set(PLACES))


def lines_of(name: str, place: Path, new: Path) -> Iterator[list[str]]:
    """Yield command lines of a command with a directory in the place of each of its arguments and options."""
    command = PROGRAM.get_command(None, name)
    arguments = [one for one in command.params if one.param_type_name == "argument" and is_place(one)]
    words = [str(place)] * (len(arguments) + sum("RUN_B" in (one.metavar or "") for one in arguments))
    # All but `make`, which reads nothing and takes minutes.
    actions = [["list"], ["check"], ["judge"], ["gate"], ["inside"], ["seal"], ["claim"], ["open"], ["score"]]
    starts = actions if any(one.metavar == "ACTION" for one in command.params) else [[]]
    needed = list[str]()
    for option in command.params:
        if option.param_type_name == "option" and option.required:
            needed += [option.opts[0], str(new) if option.name == "out" else "goal;corner top-left"]
    for start in starts:
        if arguments or start:
            yield [name, *start, *words, *needed]
        for option in command.params:
            if option.param_type_name == "option" and is_place(option) and not getattr(option, "is_flag", False):
                files = sorted(place.glob("*.json")) if "FILE" in option.metavar else [place]
                for file in files if (name, place.name) not in NOTHING_TO_READ else ():
                    yield [name, *start, *words, *needed, option.opts[0], str(file)]


@pytest.mark.parametrize("places", long_after(1, RECEIVED), ids=" and ".join)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_in_a_directory_imports_nothing(
    name: str, places: tuple[str, ...], made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = list[str]()
    decide = own.may_import

    def noting(source: str) -> bool:
        if not decide(source):
            refused.append(source)
        return decide(source)

    monkeypatch.setattr(own, "may_import", noting)
    monkeypatch.chdir(made)
    for place in places:
        copied = tmp_path / place
        shutil.copytree(made / place, copied)
        for number, words in enumerate(lines_of(name, copied, tmp_path / "new")):
            refused.clear()
            result = CliRunner().invoke(app, words, env={"COLUMNS": "500"})
            assert not (made / "mark").exists(), words
            assert result.exception is None or isinstance(result.exception, SystemExit), words
            if refused and result.exit_code and not number:
                assert "--own-code" in result.output and any(one in result.output for one in refused), words


@pytest.mark.parametrize(
    "words",
    [
        "attribute world --hypotheses goal;random",
        pytest.param("evaluate --plan judged/evaluation.json --out again", marks=pytest.mark.full),
        pytest.param("evaluate --plan placed/evaluation.json --out again", marks=pytest.mark.full),
    ],
)
def test_the_user_can_allow_what_a_directory_names(made: Path, tmp_path: Path, words: str) -> None:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    (folder / "evil.py").write_text((made / "evil.py").read_text().replace(str(made / "mark"), str(folder / "mark")))
    for allowed in ([], ["--own-code"]):
        # In a process of its own: a module that was imported once leaves its mark only then.
        command = [sys.executable, "-c", "from goalscope.cli import main; main()", *allowed, *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert (folder / "mark").exists() == bool(allowed), done.stderr
        assert done.returncode == (0 if allowed else 2), done.stderr
        if not allowed:
            said = " ".join(done.stderr.split())
            assert "evil:" in said and f"goalscope --own-code {shlex.join(words.split())}" in said


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("evaluate evil:Agent --quick --arms grids --sizes 5 --out judged", marks=pytest.mark.full),
        "run grids.yaml --out grids",
    ],
)
def test_a_directory_goes_on_where_the_user_types_the_name_again(made: Path, tmp_path: Path, words: str) -> None:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    command = [sys.executable, "-c", "from goalscope.cli import main; main()", *words.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_workers_decide_as_the_process_that_began_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they import a module of the working directory that has the name of one of Python's own."""
    (tmp_path / "evil.py").write_text(AGENT)
    (tmp_path / "multiprocessing.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    (tmp_path / "grids.yaml").write_text(GRIDS)
    monkeypatch.chdir(tmp_path)
    code = (
        "from goalscope import own\nfrom goalscope.runs import executors\n"
        "from goalscope.runs.study import Study\n"
        "if __name__ == '__main__':\n"
        "    study = Study.load('grids.yaml')\n"
        "    recipe = executors.Recipe.of(study.agents_[0], study.agents()[0])\n"
        "    with executors.open_executor('processes', 1) as pool:\n"
        "        print(pool.submit(executors.answer_in_worker, recipe, []).result())\n"
        "    with own.command(own_code=False, advice='say so'):\n"
        "        with executors.open_executor('processes', 1) as pool:\n"
        "            print(pool.submit(executors.answer_in_worker, recipe, []).exception())\n"
    )
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(code)
    command = [sys.executable, str(tmp_path / "scripts" / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    allowed, refused = done.stdout.splitlines()[:2]
    assert allowed == "[]" and "evil:Agent" in refused and "say so" in refused
    assert not (tmp_path / "mark").exists()
