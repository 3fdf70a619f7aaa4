"""Code and names of the working directory: what a folder that somebody sent can make a command import, run or read."""

import json
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

import goalscope
from families import long_after
from goalscope._ground import own
from goalscope._ground.own import allowed, command, consent, load_own
from goalscope.agents.models.folders import model_folder
from goalscope.cli import app
from goalscope.goals.prediction.kinds import SHIPPED, KindsOfWorlds
from goalscope.runs import Store, Study, run
from goalscope.verdict.subject import subject_of
from in_turn import in_turn

AGENT = """
from goalscope.agents import Turn

class Agent:
    name, journalled = "mine", False
    def describe(self):
        return {"kind": "mine"}
    def act(self, observations):
        return [Turn(action=0) for _ in observations]
"""
ENVIRONMENT = """
from goalscope.environments import Observed

class Line:
    actions = ("left", "right")
    def __init__(self, start=0):
        self.start = start
    def initial(self):
        return {self.start: 1.0}
    def step(self, state, action):
        return {min(max(state + (1 if action else -1), 0), 3): 1.0}
    def done(self, state):
        return state == 3
    def goal(self, state):
        return state == 3
    def observe(self, state):
        return Observed(text=f"cell {state}")
    def describe(self):
        return {"name": "line", "start": self.start}
"""
STUDY = """
name: line
worlds: [{kind: 'place:Line', parameters: [{start: 0}, {start: 1}]}]
agents: [{kind: environment-optimal}, {kind: 'mover:Agent'}]
trajectories: 2
"""
GRIDS = """
name: grids
worlds: [{kind: grid, sizes: [5], densities: [0.0], count: 2}]
agents: [{kind: optimal}, {kind: 'mover:Agent'}]
trajectories: 2
"""


def call(folder: Path, *arguments: object) -> tuple[int, str]:
    """Run a command in a folder; return its status, and what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "500"})
    return result.exit_code, result.output


def marking(folder: Path, module: str, code: str = "") -> str:
    """Code of a module that leaves a mark in a folder when it runs."""
    return f"from pathlib import Path\nPath({str(folder / module)!r} + '.ran').touch()\n{code}"


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of classes of somebody, in a folder with other modules of these names, which leave a mark if they run."""
    made, folder = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("received")
    (made / "place.py").write_text(ENVIRONMENT)
    (made / "mover.py").write_text(AGENT)
    for name, study in (("line", STUDY), ("grids", GRIDS)):
        (folder / f"{name}.yaml").write_text(study)
    # In processes of their own, so that none of these modules is known to the tests.
    lines = [("run", folder / f"{name}.yaml", "--out", folder / name) for name in ("line", "grids")]
    for one in in_turn(lines, cwd=made, environment={"COLUMNS": "500"}):
        assert one.status == 0, one.stderr
        assert f"mover:Agent: the code of '{made / 'mover.py'}' is run" in one.stderr
    for module, code in (("place", ENVIRONMENT), ("mover", AGENT)):
        (folder / f"{module}.py").write_text(marking(folder, module, code))
        (folder / "line" / f"{module}.py").write_text(marking(folder, module, code))
    return folder


def ran(folder: Path) -> list[str]:
    found = sorted(path.name for path in folder.glob("*.ran"))
    for name in found:
        (folder / name).unlink()
    return found


@pytest.mark.parametrize(
    "command",
    long_after(  # below, every command of the program, in one folder
        2,
        [
            *("measure", "show", "report", "verify", "doctor", "doctor --repair", "meg", "export --out out", "capture"),
            *("probe", "figure --list", "evaluate --out judged", "compare grids"),
        ],
    ),
)
def test_a_run_that_names_classes_runs_no_code(received: Path, command: str) -> None:
    """Neither that of the working directory nor, where that is the run directory, that of the run directory."""
    name, *options = command.split()
    for folder, path in ((received, "line"), (received / "line", ".")):
        status, said = call(folder, name, path, *options)
        assert ran(received) == [] and "Traceback" not in said
        if name in ("measure", "meg"):
            assert status == 2 and "--own-code" in said and "place:Line" in said


def test_an_episode_is_shown_and_shards_are_merged_without_code(received: Path, tmp_path: Path) -> None:
    for name in ("line", "grids"):
        with Store(received / name) as store:
            ids = [episode.spec.id for episode in store.episodes()]
        for identity in ids:
            call(received, "show", name, identity)
        call(received, "merge", tmp_path / name, name)
        assert ran(received) == []


def test_code_that_is_asked_for_is_named_before_it_runs(received: Path) -> None:
    (received / "mover.py").write_text("raise SystemExit(7)\n")
    status, said = call(received, "estimate", "line.yaml")
    assert status == 7 and f"mover:Agent: the code of '{received / 'mover.py'}' is run" in said
    status, said = call(received, "--own-code", "measure", "line")
    assert status == 0 and f"place:Line: the code of '{received / 'place.py'}' is run" in said
    assert ran(received) == ["place.ran"]


def test_a_refusal_holds_for_calls_in_python_too(
    received: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(received)
    (received / "walker.py").write_text(marking(received, "walker", AGENT))
    with pytest.raises(ValueError, match=r"walker:Agent .*walker\.py.*goalscope\.own\.allowed"):
        load_own("walker:Agent", ("act",), "an agent")
    assert ran(received) == [] and capsys.readouterr().err == ""
    with allowed():
        load_own("walker:Agent", ("act",), "an agent")
    assert ran(received) == ["walker.ran"] and "walker.py' is run" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"walker:Agent"):
        load_own("walker:Agent", ("act",), "an agent")
    consent({"agents": [{"kind": "walker:Agent"}]})
    load_own("walker:Agent", ("act",), "an agent")
    assert capsys.readouterr().err == "", "said when its code runs"
    with command(own_code=False, advice="say so"), pytest.raises(ValueError, match="say so"):
        load_own("walker:Agent", ("act",), "an agent")


@pytest.mark.parametrize("module", ["colorsys", "ensurepip", "safetensors", "pip"])
def test_no_module_takes_the_place_of_an_installed_one(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    sys.modules.pop("colorsys", None)
    (tmp_path / f"{module}.py").write_text(AGENT)
    consent(f"{module}:Agent")
    with pytest.raises(ValueError, match=f"{module}"):
        load_own(f"{module}:Agent", ("act",), "an agent")


@pytest.mark.parametrize(
    "words", long_after(2, ["-m goalscope", "-B -bm goalscope", "-mgoalscope", "-m goalscope.__main__"])
)
def test_python_imports_nothing_else_from_the_working_directory(words: str, tmp_path: Path) -> None:
    """However the module to run is spelled; Python itself imports about ten modules of its own before."""
    for module in ("typer", "click", "pydantic", "yaml", "typing", "re", "json", "numpy"):
        (tmp_path / f"{module}.py").write_text(marking(tmp_path, module))
    source = str(Path(goalscope.__file__).parents[1])
    command = [sys.executable, *words.split(), "run", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": source}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout and ran(tmp_path) == [], done.stderr


def test_python_still_imports_a_package_that_imports_goalscope(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import goalscope\n")
    (tmp_path / "mine" / "work.py").write_text("print('done')\n")
    source = str(Path(goalscope.__file__).parents[1])
    command = [sys.executable, "-m", "mine.work", "goalscope"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": source}, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files and folders have names that ship."""
    for folder in ("theseus", "ariadne", "random"):
        (tmp_path / folder).mkdir()
    (tmp_path / "theseus" / "config.json").write_text("{}")
    for study in ("baseline", "demo"):
        (tmp_path / study).write_text("worlds: [{kind: 'evil:World'}]\nagents: [{kind: 'evil:Agent'}]")
    (tmp_path / "evil.py").write_text(marking(tmp_path, "evil"))
    (tmp_path / "grid").write_text("{{grid}} walk into the wall")
    plain = "worlds: [{kind: grid, sizes: [5], densities: [0.0], count: 1}]\nagents: [{kind: random}]"
    (tmp_path / "plain.yaml").write_text(plain)
    monkeypatch.chdir(tmp_path)
    run(Study.load("plain.yaml"), "optimal")
    return tmp_path


def test_what_ships_is_taken_and_the_path_is_named(names: Path) -> None:
    for model in ("theseus", "ariadne"):
        with pytest.warns(UserWarning, match=rf"{model}.*\./{model}"):
            folder = model_folder(model)
        assert folder is not None and names not in folder.parents
    assert model_folder("./theseus") == model_folder(Path("theseus")) == Path("theseus")
    for kind in ("optimal", "random"):
        with pytest.warns(UserWarning, match=rf"{kind}.*\./{kind}"):
            assert subject_of(kind).kind == kind
    assert subject_of("./optimal").kind == "logs"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("study", ["baseline", "demo"])
def test_a_file_is_no_shipped_study(names: Path, study: str) -> None:
    status, said = call(names, "estimate", study, "--count", 1)
    assert status == 0 and f"./{study} names it" in said and ran(names) == []
    assert "./theseus names it" in said and "./grid names it" in said
    status, said = call(names, "estimate", f"./{study}")
    assert status == 2 and "names it" not in said


@pytest.mark.filterwarnings("error:.* ships with goalscope")
def test_a_path_that_is_typed_is_taken_whatever_ships_under_its_name(names: Path) -> None:
    status, shown = call(names, "attribute", "./optimal", "--hypotheses", "goal;random")
    assert status == 0 and "--worlds" not in shown
    assert goalscope.attribute(Path("optimal"), hypotheses="goal;random").agent == "random"
    (names / "kinds").write_text("kinds: none\n")
    status, shown = call(names, "predict", "./optimal", "--kinds", "./kinds")
    assert status == 2 and "./kinds is not a valid" in shown
    with pytest.warns(UserWarning, match=r"kinds.*\./kinds"):
        assert KindsOfWorlds.load(SHIPPED).kinds
    (names / "grid").unlink()
    words = ("--hypotheses", "goal", "--worlds", "grid", "--out", "out")
    status, shown = call(names, "attribute", "./theseus", *words)
    assert status == 2 and "theseus must hold a model" in shown, shown  # the folder has a configuration alone


@pytest.mark.filterwarnings("ignore:.* ships with goalscope")
def test_kinds_of_worlds_and_agents_never_are_files_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('evil ran')\n")
    (tmp_path / "grid").write_text("worlds: [{kind: 'evil:Line'}]\nagents: [{kind: random}]\n")
    (tmp_path / "optimal").mkdir()
    monkeypatch.chdir(tmp_path)
    separated = CliRunner().invoke(app, ["separate", "--hypotheses", "goal;random", "--worlds", "grid"])
    assert separated.exit_code == 0 and "evil ran" not in separated.output
    attributed = CliRunner().invoke(app, ["attribute", "optimal", "--hypotheses", "goal"])
    assert attributed.exit_code == 2 and "--worlds" in attributed.output


def test_an_own_module_that_cannot_be_imported_is_named_with_the_line(tmp_path: Path) -> None:
    for code, facts in {
        "class Line:\n    def x(self)\n        pass\n": ("line 2", "def x(self)"),
        "def load():\n    return {}['key']\nTABLE = load()\n": ("line 2", "KeyError"),
        "import sys\n\nimport no_such_package\n": ("line 3", "no_such_package", "install"),
    }.items():
        (tmp_path / "half.py").write_text(code)
        for words in (("evaluate", "random", "--env", "half:Line", "--quick"), ("evaluate", "half:Agent", "--quick")):
            status, shown = call(tmp_path, *words, "--out", "out")
            assert status == 2 and "half.py" in shown and all(fact in shown for fact in facts), shown
            assert "correct the file" in shown and "Traceback" not in shown
    assert "half" not in sys.modules


def test_parameters_that_a_class_lacks_or_needs_are_named_as_they_are_typed(tmp_path: Path) -> None:
    needing = ENVIRONMENT.replace("start=0", "start, *, slip=0")
    (tmp_path / "needing.py").write_text(needing)
    (tmp_path / "unparameterised.py").write_text(ENVIRONMENT.replace(", start=0):", "):").replace("= start", "= 0"))
    (tmp_path / "failing.py").write_text(ENVIRONMENT.replace("self.start = start", "self.start = start + 'a'"))
    (tmp_path / "mover.py").write_text(AGENT + "    def __init__(self, speed):\n        pass\n")
    for environment, facts in {
        "needing:Line": ("--env needing:Line:start=VALUE",),
        "needing:Line:start=0,slop=1": ("no parameter slop", "start, slip", "did you mean slip?"),
        "unparameterised:Line:start=0": ("no parameter start", "takes no parameters"),
        "failing:Line:start=1": ("failing.py, __init__", "TypeError"),
        "minigrid": ("--env minigrid:level=VALUE",),
    }.items():
        status, shown = call(tmp_path, "evaluate", "random", "--env", environment, "--quick", "--out", "out")
        assert status == 2 and all(fact in shown for fact in facts), shown
    status, shown = call(tmp_path, "evaluate", "mover:Agent", "--quick", "--out", "out")
    assert status == 2 and "mover:Agent:speed=VALUE" in shown


def test_an_environment_without_end_names_what_can_be_typed(tmp_path: Path) -> None:
    endless = ENVIRONMENT.replace("min(max(state + (1 if action else -1), 0), 3)", "state + (1 if action else -1)")
    (tmp_path / "place.py").write_text(endless)
    (tmp_path / "mover.py").write_text(AGENT)
    (tmp_path / "study.yaml").write_text(STUDY.replace("parameters:", "limit: 10, parameters:"))
    status, shown = call(tmp_path, "evaluate", "random", "--worlds", "study.yaml", "--quick", "--out", "out")
    assert status == 2 and "10 states" in shown and "--worlds" in shown
    (tmp_path / "study.yaml").write_text(STUDY.replace("parameters:", "depth: 9, parameters:"))
    words = ("--agents", "mine", "--set", "horizon={steps: 5}")
    assert call(tmp_path, "run", "study.yaml", "--out", "run", *words)[0] == 0


def test_an_id_without_its_version_is_completed(tmp_path: Path) -> None:
    for text, complete in {"CartPole": "CartPole-v1", "FrozenLake:is_slippery=false": "FrozenLake-v1"}.items():
        status, shown = call(tmp_path, "evaluate", "random", "--env", text, "--quick", "--out", "out")
        assert status == 2 and f"did you mean {complete}?" in shown and "valid:" not in shown


def test_an_untestable_answer_has_its_reason_below_the_table(tmp_path: Path) -> None:
    falling = ENVIRONMENT.replace("min(max(state + (1 if action else -1), 0), 3)", "state + 1")  # whatever is done
    (tmp_path / "place.py").write_text(falling)
    assert call(tmp_path, "evaluate", "random", "--env", "place:Line", "--quick", "--out", "out")[0] == 0
    shown = " ".join(call(tmp_path, "ledger", "out")[1].split())
    claims = json.loads((tmp_path / "out" / "ledger.json").read_text())["models"][0]["claims"]
    untestable = [claim for claim in claims if claim["answer"] == "untestable"]
    assert untestable and all(shown.count(claim["question"]) > 1 for claim in untestable)
    assert all(claim["why"].rstrip(".") in shown for claim in untestable)


# No command imports a module of the working directory because a directory that it was given names it.


PROGRAM: Any = typer.main.get_command(app)
COMMANDS = PROGRAM.list_commands(None)
PLACES = ("AGENT", "DIR", "EVALUATION", "FILE", "MODEL", "OUT", "PATH", "RUN", "RUN_A", "RUN_B", "SHARD", "STUDY")
"""Words for what stands on a command line for a directory or a file."""
NOTHING_TO_READ = {("demo", "judged"), ("demo", "asked")}
"""Commands that write into a directory without reading what lies there, and take a minute."""
RECEIVED = (("world", "judged"), ("grids", "asked", "placed", "predicted"))
"""The directories of the fixture: two runs, two evaluations (one in their environment), a claim and a prediction."""

THEIR_AGENT = """
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
THEIR_GRIDS = """
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
    (folder / "evil.py").write_text(THEIR_AGENT)
    for name, study in (("world", WORLD), ("grids", THEIR_GRIDS)):
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
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(folder / 'mark')!r}).touch()\n{THEIR_AGENT}")
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
    for options in ([], ["--own-code"]):
        # In a process of its own: a module that was imported once leaves its mark only then.
        command = [sys.executable, "-c", "from goalscope.cli import main; main()", *options, *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert (folder / "mark").exists() == bool(options), done.stderr
        assert done.returncode == (0 if options else 2), done.stderr
        if not options:
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
    (tmp_path / "evil.py").write_text(THEIR_AGENT)
    (tmp_path / "multiprocessing.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    (tmp_path / "grids.yaml").write_text(THEIR_GRIDS)
    monkeypatch.chdir(tmp_path)
    code = (
        "from goalscope import own\nfrom goalscope.runs import dispatch\n"
        "from goalscope.runs.study import Study\n"
        "if __name__ == '__main__':\n"
        "    study = Study.load('grids.yaml')\n"
        "    recipe = dispatch.Recipe.of(study.agents_[0], study.agents()[0])\n"
        "    with dispatch.open_executor('processes', 1) as pool:\n"
        "        print(pool.submit(dispatch.answer_in_worker, recipe, []).result())\n"
        "    with own.command(own_code=False, advice='say so'):\n"
        "        with dispatch.open_executor('processes', 1) as pool:\n"
        "            print(pool.submit(dispatch.answer_in_worker, recipe, []).exception())\n"
    )
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(code)
    command = [sys.executable, str(tmp_path / "scripts" / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    options, refused = done.stdout.splitlines()[:2]
    assert options == "[]" and "evil:Agent" in refused and "say so" in refused
    assert not (tmp_path / "mark").exists()
