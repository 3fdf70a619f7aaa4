import hashlib
import json
from pathlib import Path

import pytest

from command_line import call
from goalscope.measures import measure_bounds
from goalscope.runs import Store, content_hash
from goalscope.stats import estimate_rows
from measured_runs import Talker, measured, small_study

STUDY = """\
name: small
seed: 5
worlds: [{kind: grid, sizes: [5, 7], densities: [0.0, 1.0], count: 3}]
agents: [{kind: optimal}, {kind: random}]
trajectories: 3
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def done(study: Path) -> Path:
    directory = study.parent / "run"
    call("run", study, "--out", directory)
    return directory


def test_a_run_is_made_and_called_again_repeats_nothing(study: Path, tmp_path: Path) -> None:
    first = call("run", study, "--out", tmp_path / "run")
    assert "2 agents on 12 worlds, 72 episodes" in first and "72 episodes run" in first
    assert f"next: goalscope measure {tmp_path / 'run'}, goalscope report" in " ".join(first.split())
    with Store(tmp_path / "run") as store:
        before = content_hash(store)
        assert len(store.episode_ids()) == 72
    again = call("run", study, "--out", tmp_path / "run")
    assert "72 episodes stored before, 0 episodes run" in again
    with Store(tmp_path / "run") as store:
        assert content_hash(store) == before


def test_measure_prints_estimates_and_measured_twice_gives_the_same(done: Path) -> None:
    first = call("measure", done, "--measures", "success;action accuracy", "--by", "size,density")
    with Store(done) as store:
        before = content_hash(store)
    again = call("measure", done, "--measures", "success;action accuracy", "--by", "size,density")
    assert again[again.index("Estimates") :] == first[first.index("Estimates") :]  # how long it took stands before
    with Store(done) as store:
        assert content_hash(store) == before
    lines = [line.split() for line in first.splitlines() if line.strip().startswith("optimal")]
    assert len(lines) == 2 * 2 * 2
    assert ["optimal", "5", "0", "success", "1.000", "[0.292,", "1.000]", "share", "9", "3"] in [
        line[:10] for line in lines
    ]


def test_measure_prints_a_screen_with_the_headline_first_in_the_order_of_the_study(study: Path, tmp_path: Path) -> None:
    call("run", study, "--out", tmp_path / "run", "--agents", "random,optimal")
    shown = call("measure", tmp_path / "run")
    with Store(tmp_path / "run") as store:
        names, rows = store.agent_names(), store.rows()
    lines = shown.splitlines()
    assert len(lines) < 24 and names == ["random", "optimal"] != sorted(names)
    (heading,) = [line for line in lines if line.split()[:2] == ["agent", "Success"]]
    order = ["Success", "Action accuracy", "Invalid turns", "Excess JSD", "grids"]
    assert [heading.index(name) for name in order] == sorted(heading.index(name) for name in order)
    told = [line for line in lines if line.split()[:1] in (["random"], ["optimal"])]
    assert [line.split()[0] for line in told] == names
    success = {one.key["agent"]: one.estimate for one in estimate_rows(rows.select(measure="success"), by=("agent",))}
    assert all(f" {success[line.split()[0]].value:.3f} [" in line for line in told)
    assert f"{len(set(rows.measure.tolist()))} measures in all; --all" in shown
    assert call("measure", tmp_path / "run", "--all").count("\n") > 60


def test_measure_says_below_its_table_where_intervals_may_miss_and_letters_name_the_lines(done: Path) -> None:
    shown = call("measure", done, "--all")
    with Store(done) as store:
        estimates = [found.estimate for found in estimate_rows(store.rows(), by=("agent",), bounds=measure_bounds())]
    for note in {one.note for one in estimates if one.has_interval and "cover" in one.note}:
        letter = next(line[0] for line in shown.splitlines() if line[1:].strip() == f": {note}")
        lines = sum(line.rstrip().endswith(f"({letter})") for line in shown.splitlines())
        assert lines == sum(one.note == note for one in estimates if one.has_interval) > 0
    assert "a: " in shown


def test_report_measures_first_where_it_must_and_writes_page_and_ledger(tmp_path: Path) -> None:
    small = tmp_path / "study.yaml"
    text = STUDY.replace("sizes: [5, 7], densities: [0.0, 1.0]", "sizes: [5], densities: [0.0]")
    small.write_text(text, encoding="utf-8")
    call("run", small, "--out", tmp_path / "run")
    output = call("report", tmp_path / "run", "--ledger", tmp_path / "ledger.json")
    assert "measuring first" in output and str(tmp_path / "run" / "report.html") in output
    assert "goalscope report" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8"))["study"] == "small"
    assert "measuring first" not in call("report", tmp_path / "run", "--out", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "run" / "report.html").read_bytes()


def test_agents_of_one_run_and_the_same_agent_of_two_runs_are_compared(study: Path, done: Path, tmp_path: Path) -> None:
    call("measure", done, "--measures", "success")
    one = call("compare", done, "--measures", "action accuracy")
    assert "a family of 1 test" in one and "optimal" in one and "random" in one
    other = measured(tmp_path / "other", small_study(trajectories=2))
    two = call("compare", done, other, "--measures", "success")
    pairs = [line for line in two.splitlines() if line.startswith(" Success") and "optimal" in line]
    assert len(pairs) == 1 and "run: optimal" in pairs[0] and "other: optimal" in pairs[0] and " 12 " in pairs[0]


def test_runs_without_common_worlds_are_refused_with_the_reason(done: Path, tmp_path: Path) -> None:
    call("measure", done, "--measures", "success")
    other = measured(tmp_path / "other", small_study(seed=99, worlds=[{"kind": "key-door", "count": 2}]))
    assert "have no worlds in common" in call("compare", done, other, status=2)
    assert "must be different" in call("compare", done, done, status=2)
    assert "needs two sides" in call("compare", done, "--agents", "optimal", status=2)


def test_export_writes_tables(done: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    output = call("export", done, "--out", tmp_path / "tables")
    sums = dict(line.split("  ")[::-1] for line in (tmp_path / "tables" / "SHA256SUMS").read_text().splitlines())
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "tables").iterdir()}
    del files["SHA256SUMS"]
    assert sums == files and len(sums) == 4
    assert "episodes.parquet" in output
    assert pyarrow.parquet.read_table(tmp_path / "tables" / "episodes.parquet").num_rows == 72


def test_import_check_import_and_problems(tmp_path: Path) -> None:
    grid = "#####\n#A_G#\n#####"
    steps = [
        {
            "episode": "e",
            "agent": "log",
            "step": index,
            "position": [1, col],
            "action": "RIGHT",
            "grid": grid,
        }
        for index, col in ((0, 1), (1, 2))
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(step) for step in steps), encoding="utf-8")
    assert "no problem" in call("import", log, "--check")
    assert "no problem" in call("import", log, "--out", tmp_path / "run")
    with Store(tmp_path / "run") as store:
        assert len(store.episode_ids()) == 1
    call("report", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Checks of the imported data" in page and "Imported: log.jsonl" in page
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "cut.json").write_text('{"steps": [', encoding="utf-8")
    (broken / "log.jsonl").write_text(log.read_text(encoding="utf-8"), encoding="utf-8")
    output = call("import", broken, "--out", tmp_path / "partly", status=1)
    assert "problem: cut.json" in output and "1 problem" in output
    with Store(tmp_path / "partly") as store:
        assert len(store.episode_ids()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "nowhere.yaml", "--out", "x"), "a shipped study: give a YAML file, or one of baseline, "),
        (("measure", "nowhere"), "nowhere"),
        (("report", "nowhere"), "nowhere"),
        (("export", "nowhere", "--out", "x"), "nowhere"),
        (("compare", "nowhere", "elsewhere"), "nowhere"),
        (("import", "nowhere", "--check"), "nowhere"),
        (("import", "nowhere"), "either --out DIR"),
        (("measure",), "Missing argument"),
        (("swim",), "No such command"),
    ],
)
def test_wrong_input_gives_one_block_without_a_traceback(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = call(*words, status=2)
    assert said in output and "Traceback" not in output
    assert not list(tmp_path.iterdir())


def test_a_broken_study_a_broken_store_and_unknown_names_are_named(done: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.replace("sizes: [5, 7]", "sizes: [6]").replace("seed", "sed"), encoding="utf-8")
    output = call("run", study, "--out", tmp_path / "run", status=2)
    assert "odd" in output and "sed" in output
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.db").write_bytes(b"no database at all " * 100)
    assert "run.db" in call("measure", tmp_path / "bad", status=2)
    assert "has no measure 'beauty'" in call("measure", done, "--measures", "beauty", status=2)
    assert "--by: this run has no tag mood" in call("measure", done, "--by", "mood", status=2)


def test_hostile_names_reach_neither_the_terminal_nor_its_markup(tmp_path: Path) -> None:
    directory = measured(tmp_path / "hostile", small_study(trajectories=1), agents=[Talker()])
    output = call("measure", directory, "--measures", "success;invalid turns")
    assert "\x1b" not in output and "\u202e" not in output
    assert "\\x1b[31m" in output and "[red]x[/red]" in output


def test_ctrl_c_says_how_to_go_on(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goalscope.agents import Optimal

    def interrupted(self: object, observations: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Optimal, "act", interrupted)
    output = call("run", study, "--out", tmp_path / "run", status=130)
    assert "Stopped" in output and "run the same study on the same directory" in output


def test_a_folder_of_its_name_does_not_hide_a_shipped_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goalscope.cli.overrides import load_study

    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    with pytest.warns(UserWarning, match=r"\./plans"):
        assert load_study("plans").name == "Plans"


@pytest.mark.parametrize(("name", "agents", "count"), [("demo", 4, 150), ("scripted", 6, 300), ("baseline", 5, 300)])
def test_shipped_studies_cover_the_sizes_and_densities_of_the_paper(name: str, agents: int, count: int) -> None:
    from goalscope.cli.overrides import load_study

    study = load_study(name)
    assert len(study.agents()) == agents
    grids = [world for world in study.worlds() if world.tags["kind"] == "grid"]
    assert len(grids) == count and len({world.cluster_id for world in grids}) == count
    assert {(world.tags["size"], world.tags["density"]) for world in grids} == {
        (size, density) for size in (7, 9, 11, 13, 15) for density in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    }


def test_the_untrained_twin_of_the_demo_is_asked_once_an_episode(tmp_path: Path) -> None:
    changes = ("--sizes", "9", "--densities", "0.6", "--count", "2", "--agents", "untrained;random")
    call("run", "demo", *changes, "--out", tmp_path / "demo")
    with Store(tmp_path / "demo") as store:
        lengths = {(episode.agent, len(episode.steps), episode.outcome) for episode in store.episodes()}
    assert {item for item in lengths if item[0] == "untrained"} == {("untrained", 1, "failure")}
    assert max(length for agent, length, _ in lengths if agent == "random") > 1


@pytest.mark.full
def test_the_demo_tells_the_trained_model_from_an_optimal_a_random_and_an_untrained_one(tmp_path: Path) -> None:
    output = call("demo", "--out", tmp_path / "demo")
    assert "Report: " in output and "Action accuracy by density" in output
    page = tmp_path / "demo" / "report.html"
    assert 500_000 < page.stat().st_size < 3_000_000
    with Store(tmp_path / "demo") as store:
        rows = store.rows().select(measure="action accuracy")
    found = {group.key["agent"]: group.estimate for group in estimate_rows(rows, by=("agent",))}
    assert found["random"].high < found["Theseus"].low and found["Theseus"].high < found["optimal"].low
    assert found["untrained"].value == 0
    for tag, values in (("size", (7, 15)), ("density", (0.0, 1.0))):
        levels = {group.key[tag]: group.estimate for group in estimate_rows(rows.select(agent="Theseus"), by=(tag,))}
        assert levels[values[1]].high < levels[values[0]].value


def test_a_long_horizon_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A horizon of a million decisions takes a minute: once nothing was said in it."""
    process = {"horizon": 2_000, "start": 0, "utility": [0, 1, 0, 0.5], "next": [[1, 2], [3, 0], [0, 1], [2, 3]]}
    (tmp_path / "long.json").write_text(json.dumps({**process, "policy": [[0.5, 0.5]] * 4}))
    monkeypatch.setattr("goalscope.cli.goals._QUIET", 0.01)
    said = call("meg", tmp_path / "long.json")
    places = [line for line in said.splitlines() if line.startswith("MEG: pass ")]
    assert len(places) >= 3 and all("of 2,000, after " in line for line in places)
    assert places[-1].split(",")[0] != places[0].split(",")[0], "later passes are counted"
