"""What a newcomer gets wrong: each gives one block that says how to mend it, and leaves nothing behind."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

import slipping_forklift  # noqa: F401  (registers the environment)
from command_line import call
from families import long_after
from goalscope._ground.own import TRACEBACK
from goalscope.cli.console import guarded
from goalscope.environments import EnvironmentWorld
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.written import check_names
from goalscope.goals.reading import IN_GRIDS
from goalscope.report.blocks import size_in_words
from goalscope.runs import GridWorld, Store, Study, content_hash
from goalscope.verdict.preflight.study_files import names
from goalscope.verdict.sizing import Budget
from goalscope.worlds import Grid

STUDY = """\
worlds: [{kind: grid, sizes: [5], densities: [1.0], count: 2}]
agents: [{kind: optimal}, {kind: random}]
trajectories: 2
"""
STEP = {"episode": "e", "step": 0, "position": [1, 1], "action": "RIGHT", "grid": "#####\n#A_G#\n#####"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, its run, a log of grid worlds, its import and a text, in a folder with a blank and an umlaut."""
    place = tmp_path_factory.mktemp("meine Läufe")
    (place / "study.yaml").write_text(STUDY, encoding="utf-8")
    (place / "log.jsonl").write_text(json.dumps(STEP) + "\n", encoding="utf-8")
    (place / "notes.txt").write_text("hello", encoding="utf-8")
    call("run", place / "study.yaml", "--out", place / "run")
    call("import", place / "log.jsonl", "--out", place / "imported")
    return place


def flat(output: str) -> str:
    return " ".join(output.split())


def test_a_study_and_imported_trajectories_are_kept_apart(folder: Path) -> None:
    for words, name, said in (
        (("run", folder / "study.yaml"), "imported", "cannot store a study"),
        (("import", folder / "log.jsonl"), "run", "cannot store imported trajectories"),
    ):
        with Store(folder / name) as store:
            before = content_hash(store)
        output = flat(call(*words, "--out", folder / name, status=2))
        assert said in output and "choose another directory" in output
        with Store(folder / name) as store:
            assert content_hash(store) == before
    call("run", folder / "study.yaml", "--out", folder / "run")
    call("import", folder / "log.jsonl", "--out", folder / "imported")


@pytest.mark.parametrize(
    "words",
    [("run", "study.yaml"), ("import", "log.jsonl"), ("export", "run")],
)
def test_a_file_where_a_folder_is_to_be_written_is_named(folder: Path, words: tuple[str, str]) -> None:
    command, given = words
    output = flat(call(command, folder / given, "--out", folder / "notes.txt", status=2))
    assert "notes.txt" in output and "a file" in output and "GOALSCOPE_TRACEBACK" not in output
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "hello"


def test_a_folder_where_a_file_is_to_be_written_is_named(folder: Path) -> None:
    call("measure", folder / "run")
    output = flat(call("report", folder / "run", "--out", folder / "imported", status=2))
    assert f"{folder / 'imported'} must be a file" in output and "got a folder" in output and "path of a file" in output


def test_an_import_without_anything_usable_says_that_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    for name, status in (("notes.txt", 1), ("study.yaml", 1)):
        output = call("import", folder / name, "--out", tmp_path / "new", status=status)
        assert "nothing was imported or written" in output and "the rest is in" not in output
    assert not (tmp_path / "new").exists()
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(json.dumps(STEP) + "\n" + json.dumps(STEP | {"episode": "f", "position": [1, 3]}) + "\n")
    output = flat(call("import", mixed, "--out", tmp_path / "new", status=1))
    assert f"the rest is in {tmp_path / 'new'}; next: goalscope measure" in output


def test_names_that_are_nearly_right_are_recognised(folder: Path) -> None:
    run = folder / "run"
    call("measure", run)
    assert "did you mean baseline?" in call("run", "baselin", "--out", folder / "x", status=2)
    assert "did you mean" not in call("run", "nowhere.yaml", "--out", folder / "x", status=2)
    for option, words in (
        ("--measures", ("measure", run, "--measures", "Success")),
        ("--measures", ("compare", run, "--measures", "succes")),
        ("--margin", ("compare", run, "--margin", "succes=0.1")),
    ):
        output = flat(call(*words, status=2))
        assert f"{option}: " in output and "has no measure" in output and "did you mean success?" in output
    wanted = ("measure", run, "--measures", "success", "--by")
    twice, once = (call(*wanted, by) for by in ("agent,size,size", "size"))
    assert twice[twice.index("Estimates") :] == once[once.index("Estimates") :]
    commas = flat(call("measure", run, "--measures", "success,action accuracy", status=2))
    assert "names are separated by ';', not by ','" in commas


def test_a_log_of_another_kind_is_not_scored_as_an_empty_table(folder: Path, tmp_path: Path) -> None:
    output = flat(call("score", folder / "log.jsonl", status=1))
    assert "no episode of log.jsonl could be scored" in output and "goalscope import" in output
    assert "Errors of" not in output and "problem: log.jsonl: line 1" in output
    made = tmp_path / "new" / "scores.jsonl"
    call("score", folder / "log.jsonl", "--out", made, status=1)
    assert made.read_text(encoding="utf-8") == ""


def test_a_run_without_episodes_and_runs_of_two_kinds_are_told(folder: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "empty", "w") as store:
        store.put_study(Study.parse(yaml.safe_load(STUDY)))
    for command in ("measure", "compare"):
        output = flat(call(command, tmp_path / "empty", status=2))
        assert "no episodes" in output
    tasks = {
        "worlds": [{"kind": "task-map", "presets": ["low-small"], "count": 1}],
        "agents": [{"kind": "task-greedy"}],
    }
    (tmp_path / "tasks.yaml").write_text(yaml.safe_dump(tasks | {"trajectories": 1}), encoding="utf-8")
    call("run", tmp_path / "tasks.yaml", "--out", tmp_path / "tasks")
    for run in (tmp_path / "tasks", folder / "run"):
        call("measure", run)
    output = flat(call("compare", tmp_path / "tasks", folder / "run", status=2))
    assert "cannot be compared with runs in grids" in output


def test_the_next_command_can_be_copied_where_a_path_has_a_blank(folder: Path) -> None:
    output = call("run", folder / "study.yaml", "--out", folder / "run")
    line = next(line for line in output.splitlines() if line.startswith("next: "))
    first, second = (shlex.split(part) for part in line.removeprefix("next: ").split(", "))
    assert first == ["goalscope", "measure", str(folder / "run")] and second[2:] == [str(folder / "run")]
    call(*first[1:])


def test_doctor_says_that_a_folder_is_not_there(tmp_path: Path) -> None:
    output = flat(call("doctor", "--folder", tmp_path / "nowhere"))
    assert "--folder" in output and ".goalscope-doctor" not in output


def test_the_help_names_every_shipped_study_and_every_hypothesis() -> None:
    for command in ("run", "estimate"):
        said = flat(call(command, "--help")).replace("- ", "-")
        assert all(name in said for name in names())
    said = flat(call("meg", "--help")).replace("- ", "-")
    assert all(name in said for name in IN_GRIDS)


def test_a_penalty_without_what_it_is_the_penalty_of_is_refused(folder: Path) -> None:
    assert "add --unknown" in call("meg", folder / "run", "--ridge", "2", status=2)


@pytest.mark.parametrize(
    "words",
    long_after(
        2,
        [
            ("report", "run", "--out"),
            ("report", "run", "--ledger"),
            ("compare", "run", "--json"),
            ("compare", "run", "--csv"),
        ],
    ),
)
def test_no_result_is_written_over_a_run(folder: Path, words: tuple[str, str, str]) -> None:
    command, run, option = words
    call("measure", folder / run)
    with Store(folder / run) as store:
        before = content_hash(store)
    output = flat(call(command, folder / run, option, folder / "imported" / "run.db", status=2))
    assert "overwritten" in output
    call("score", folder / "log.jsonl", "--out", folder / run / "run.db", status=2)
    with Store(folder / run) as store:
        assert content_hash(store) == before
    with Store(folder / "imported") as store:
        assert len(store.episode_ids()) == 1


def test_a_new_run_is_not_written_between_files_of_others(folder: Path, tmp_path: Path) -> None:
    study, other, evaluation = folder / "study.yaml", tmp_path / "other", tmp_path / "evaluation"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (evaluation / "arms" / "grids").mkdir(parents=True)
    (evaluation / "ledger.json").write_text("{}")
    shared = {name: sorted(name.rglob("*")) for name in (other, evaluation)}
    for words in (
        ("run", study),
        ("import", folder / "log.jsonl"),
        ("depends", "optimal", "--dry-run"),
        ("estimate", study, "--measure"),
    ):
        for directory, example in ((other, "notes.txt"), (evaluation, "arms/grids")):
            output = flat(call(*words, "--out", directory, status=2))
            assert str(directory) in output and example in output and f"--out {directory}-2" in output
            assert sorted(directory.rglob("*")) == shared[directory]
    for left in ("run.lock", ".run-new-1"):  # of a start that was interrupted
        begun = tmp_path / f"begun {left}"
        begun.mkdir()
        (begun / left).mkdir() if left.startswith(".") else (begun / left).touch()
        call("run", study, "--out", begun)


def test_a_directory_of_runs_names_the_runs_in_it(folder: Path, tmp_path: Path) -> None:
    assert str(folder / "run") in flat(call("measure", folder, status=2))
    call("evaluate", "random", "--quick", "--arms", "grids", "--out", tmp_path / "evaluation")
    shown = flat(call("measure", tmp_path / "evaluation", status=2))
    assert str(tmp_path / "evaluation" / "arms" / "grids") in shown
    assert str(tmp_path / "evaluation" / "report.html") in shown
    assert flat(call("measure", tmp_path, status=2)).count("there is no run") == 1


def test_options_that_change_a_study_are_named_when_the_study_refuses_them(tmp_path: Path) -> None:
    for words in (("--count", "0"), ("--sizes", "1"), ("--trajectories", "0"), ("--densities", "7")):
        shown = flat(call("run", "baseline", *words, "--out", tmp_path / "out", status=2))
        assert " ".join(words) in shown and "--agents" not in shown
    assert "--count 0" not in flat(call("run", "baseline", "--set", "worlds.0.count=0", "--out", tmp_path, status=2))


def test_worlds_and_studies_that_are_misspelled_are_completed(tmp_path: Path) -> None:
    shown = flat(call("separate", "--hypotheses", "goal", "--worlds", "gird", status=2))
    assert "did you mean grid?" in shown and "--worlds" in shown and "baseline" in shown
    shown = flat(call("evaluate", "random", "--worlds", "toy-texts", "--out", tmp_path / "out", status=2))
    assert "did you mean toy-text?" in shown and "?:" not in shown
    (tmp_path / "study.yaml").write_text("agents: [{kind: random}]\n")
    shown = flat(call("run", tmp_path / "study.yaml", "--out", tmp_path / "out", status=2))
    assert "worlds: [{kind: grid" in shown and "agents: [" not in shown


def test_a_damaged_ledger_is_not_taken_for_that_of_another_version(tmp_path: Path) -> None:
    words = ("evaluate", "random", "--quick", "--arms", "grids", "--out", tmp_path)
    first, ledger = call(*words), tmp_path / "ledger.json"
    assert "in place of --quick" in flat(first)
    for text, fact in {"{}": "damaged", "[1": "damaged", '{"version": 2}': "another version"}.items():
        ledger.write_text(text)
        shown = flat(call("ledger", tmp_path, status=2))
        assert str(ledger) in shown and fact in shown and "goalscope evaluate" in shown
        assert ("another version" in shown) == (fact != "damaged")
    call(*words)
    call("ledger", tmp_path)


def test_what_nobody_could_ask_is_not_proposed(tmp_path: Path) -> None:
    shown = flat(call("evaluate", "optimal", "--arms", "inside", "--out", tmp_path / "out", status=2))
    assert "activations" in shown and "--arms grids,inside" not in shown
    shown = flat(call("evaluate", "theseus", "--arms", "inside", "--out", tmp_path / "out", status=2))
    assert "--arms grids,inside" in shown


def test_the_folder_of_a_file_to_write_is_created(folder: Path, tmp_path: Path) -> None:
    call("measure", folder / "run")
    for number, words in enumerate(
        (
            ("table", "FrozenLake-v1", "w.npz"),
            ("report", folder / "run", "w.html"),
            ("compare", folder / "run", "w.json"),
        )
    ):
        place = tmp_path / str(number) / "below" / str(words[-1])
        call(*words[:-1], "--json" if words[0] == "compare" else "--out", place)
        assert place.stat().st_size


# What a message names, and that what it proposes can be typed; a start that failed is in nobody's way.


SLIPPERY = """
from goalscope.environments import Observed

class Slippery:
    actions = ("left", "right")
    def initial(self):
        return {0: 1.0}
    def step(self, state, action):
        to = min(max(state + (1 if action else -1), 0), 3)
        return {to: 0.8, state: 0.2} if to != state else {state: 1.0}
    def done(self, state):
        return state == 3
    def goal(self, state):
        return state == 3
    def observe(self, state):
        return Observed(text=str(state))
    def describe(self):
        return {"name": "slippery"}
"""
GRIDS = "worlds: [{kind: grid, sizes: [5], densities: [0.0], count: 2}]\ntrajectories: 1\nagents: "
MUTE = "[{kind: chat, model: m, server: {base_url: 'http://127.0.0.1:9/v1', timeout: 1, retries: 0}}]"


def test_a_horizon_by_factor_in_a_stochastic_world_is_a_multiple_of_the_expected_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slippery_here.py").write_text(SLIPPERY)
    study = "worlds: [{kind: 'slippery_here:Slippery'}]\nagents: [{kind: random}]\ntrajectories: 1\n"
    Path("study.yaml").write_text(study + "horizon: {factor: 2}\n")
    call("run", "study.yaml", "--out", "out")
    loaded = Study.load("study.yaml")
    # Three moves, each of which succeeds with the chance 0.8: 2 * 3.75, rounded up.
    assert [loaded.horizon.of(world) for world in loaded.worlds()] == [8]


@pytest.mark.parametrize(
    ("entries", "number", "proposed"),
    [
        ("[goal, crate hold]", 2, "crate held"),
        ("[cornor top-left]", 1, "corner top-left"),
        ("[goal, start, {name: x, is: keyheld}]", 3, "key held"),
        ("[goal, {nme: y}]", 2, ""),
        ("[xyzzy]", 1, ""),
        ("[goal, corner top-rigth]", 2, "top-right"),
    ],
)
def test_a_misspelt_hypothesis_of_a_file_is_found_by_its_number(
    tmp_path: Path, entries: str, number: int, proposed: str
) -> None:
    path = tmp_path / "bank.yaml"
    path.write_text(entries)
    worlds = EnvironmentWorld.make("slipping forklift", {"seed": 1}), GridWorld(grid=Grid.parse("A_G"))
    with pytest.raises(ValueError) as raised:
        check_names(load_hypotheses(str(path)), lambda: worlds)
    told = str(raised.value)
    assert f"entry {number}" in told and told.count("{") <= 1
    assert ("did you mean" in told) == bool(proposed) and proposed in told


@pytest.mark.parametrize(
    ("octets", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (812, "812 bytes"), (8_100, "8 kB"), (1_440_000, "1.4 MB"), (25 * 10**6, "25 MB")],
)
def test_sizes_of_files_have_the_unit_that_fits(octets: int, words: str) -> None:
    assert size_in_words(octets) == words


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        GRIDS.replace("count: 2", "count: 40").replace("[5]", "[9]") + "[{kind: random}]"
    )
    code = (
        "import resource, signal, sys; from goalscope.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); main()"
    )
    command = [sys.executable, "-c", code, "run", "study.yaml", "--set", "trajectories=50", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    told = " ".join(done.stderr.split())
    assert done.returncode == 2 and "100,000 bytes" in told and "ulimit -f" in told
    assert "permissions" not in told and "Traceback" not in told


def test_a_start_without_answers_does_not_refuse_the_corrected_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mute.yaml").write_text(GRIDS + MUTE)
    Path("mended.yaml").write_text(GRIDS + "[{kind: random}]")
    call("run", "mute.yaml", "--out", "out", status=2)
    call("run", "mended.yaml", "--out", "out")
    call("verify", "out")
    with Store("out") as store:
        assert store.agent_names() and store.holds_answers()
    refused = call("run", "mute.yaml", "--out", "out", status=2)
    assert "another directory" in refused, "answers are never given up"


@pytest.mark.parametrize(
    ("limit", "least", "words"),
    [("1k-tokens", 179_034.0, "179,000 tokens"), ("1m", 7_800.0, "2 h 10 min"), ("1usd", 4.5, "4.50 USD")],
)
def test_a_budget_that_is_too_small_names_one_that_is_enough(limit: str, least: float, words: str) -> None:
    budget = Budget.parse(limit)
    assert budget.in_words(least) == words
    enough = Budget.parse(budget.enough(least))
    assert enough.of == budget.of and least < enough.amount < 1.3 * least


# What the user can mend is one block; what may be a fault of goalscope names the way to its traceback.


def raised(call: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on standard error after a command that fails."""
    assert callable(call)
    with pytest.raises(typer.Exit) as caught, guarded([]):
        call()
    assert caught.value.exit_code == 2
    return capsys.readouterr().err


def test_an_error_that_a_check_raises_is_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert TRACEBACK not in raised(lambda: Study.parse({}), capsys)
    missing = raised(lambda: (tmp_path / "none.yaml").read_text(), capsys)
    assert "No such file" in missing and TRACEBACK not in missing


def test_an_error_that_no_check_raises_names_the_way_to_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    shown = raised(lambda: json.loads("{"), capsys)
    assert "Expecting property name" in shown and f"set {TRACEBACK}=1" in shown
    assert TRACEBACK in raised(lambda: int("x"), capsys)


def test_a_module_of_goalscope_that_is_missing_is_no_wrong_input() -> None:
    with pytest.raises(ModuleNotFoundError), guarded([]):
        import goalscope.nowhere  # type: ignore[import-not-found]  # noqa: F401


def test_every_error_keeps_its_traceback_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(ValueError, match="valid study"), guarded([]):
        Study.parse({"worlds": 1})
