"""A package of others: installed, found by its entry point, named by a study, run, measured and reported."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from goalscope._ground import registry
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.inside.probing import stored_probes
from goalscope.measures import check_measure
from goalscope.runs import Store, Study
from goalscope.runs.provenance import packages_of
from goalscope.verdict import Evaluation
from goalscope.worlds import check_thing
from goalscope.worlds.environments.world import EnvironmentWorld
from in_turn import in_turn

HERE = Path(__file__).parent
MEASURE = "moves taken back"
EDGE = "edge of the field"


def install(
    site: Path, name: str, modules: Mapping[str, str], points: Mapping[str, str], group: str = registry.GROUP
) -> None:
    """Put a package and its metadata where an installer puts them, without network and without building a wheel."""
    for module, text in modules.items():
        (site / module).parent.mkdir(parents=True, exist_ok=True)
        (site / module).write_text(text, encoding="utf-8")
    information = site / f"{name.replace('-', '_')}-0.1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
    lines = [f"{key} = {value}" for key, value in points.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]), encoding="utf-8")


def python(site: Path, code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, in which the packages of a folder are installed."""
    code = f"import sys; sys.path.append({str(site)!r})\n{code}"
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def installed(site: Path) -> Iterator[None]:
    """Have the packages of a folder installed in this process, and no longer afterwards."""
    registry.names("head")  # what is installed anyway is loaded before, and stays
    before = {kind: set(entries) for kind, entries in registry._entries.items()}
    sys.path.append(str(site))
    invalidate_caches()
    registry._loaded.discard(registry.GROUP)
    try:
        yield
    finally:
        sys.path.remove(str(site))
        invalidate_caches()
        registry.names("head")
        for kind, entries in registry._entries.items():
            for name in [name for name, one in entries.items() if name not in before[kind] and not one.built_in]:
                del entries[name]
        for name in [name for name in sys.modules if name.partition(".")[0] == "goalscope_compass"]:
            del sys.modules[name]


def goalscope(site: Path, *words: object) -> str:
    """Run a command, or several with "&&" between them, where packages are installed; return what they say."""
    parts: list[list[object]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    with installed(site):
        return "".join(call(*part) for part in parts)


def told(run: str) -> str:
    """Return what happened in the episodes of a run, as JSON."""
    with Store(run) as store:
        episodes = list(store.episodes())
    return json.dumps(
        [[one.outcome, one.final, [[s.state, s.action, s.reward] for s in one.steps]] for one in episodes]
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package of this folder installed, as its pyproject.toml says."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = {
        str(path.relative_to(HERE)): path.read_text(encoding="utf-8")
        for path in HERE.glob("*/*")
        if path.is_file() and path.suffix != ".pyc"
    }
    install(site, project["name"], modules, project["entry-points"]["goalscope"])
    return site


def test_a_study_names_its_agent_and_the_report_shows_its_measure(site: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    measured = ("measure", run, "--all", "&&", "measure", "--help", "&&", "report", run)
    shown, _, told = goalscope(site, "run", HERE / "study.yaml", "--out", run, "&&", *measured).partition("Usage")
    lines = [line for line in shown.splitlines() if MEASURE in line]
    assert len(lines) == 2 and any("compass(right, 0.8)" in line for line in lines)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "compass(right, 0.8)" in page and MEASURE in page
    assert "lead back to where the step before came from" in page
    assert page.index('id="run"') < page.index('id="moves-taken-back"'), "after the built-in sections"
    own = page[page.index('id="moves-taken-back"') :]
    assert "Moves taken back, mean and 95 % interval over grids" in own and "Moves taken back by size" in own
    assert MEASURE in told
    # Where the package is not installed its run is shown and its study is refused.
    call("report", run)
    assert "'compass'" in call("run", HERE / "study.yaml", "--out", tmp_path / "again", status=2)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "compass(right, 0.8)" in page and MEASURE in page and 'id="moves-taken-back"' not in page


def test_a_chat_agent_names_its_model_backend(site: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    measure = ("measure", run, "--measures", "success;invalid turns")
    shown = goalscope(site, "run", HERE / "models.yaml", "--out", run, "&&", *measure)
    (invalid,) = [line for line in shown.splitlines() if "invalid turns" in line and "die(right, 0.8)" in line]
    assert "0.000" in invalid
    assert "'die'" in call("run", HERE / "models.yaml", "--out", tmp_path / "again", status=2)


def test_its_hypotheses_are_told_apart_and_have_twins(site: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    worlds = ("--worlds", "grid", "--sizes", "7", "--densities", "0.2", "--count", "12")
    bank = "goal;halfway to goal;northward"
    shown = goalscope(site, "separate", "--hypotheses", bank, *worlds)
    assert "goal – halfway to goal" in shown and "northward" in shown
    ran = ("run", study, "--out", tmp_path / "run", "&&", "measure", tmp_path / "run")
    shown = goalscope(site, "design", "--hypotheses", bank, *worlds, "--choose", "3", "--out", study, "&&", *ran)
    assert "halfway to goal" in shown.partition("Mean and")[2]
    assert "northward" in call("separate", "--hypotheses", bank.replace("halfway to ", "beside "), *worlds, status=2)


def test_its_attribution_method_stands_beside_the_others_and_is_scored(site: Path, tmp_path: Path) -> None:
    worlds = ("--worlds", "grid", "--sizes", "5", "--densities", "0.2", "--count", "7")
    asked = ("attribute", "optimal", "--hypotheses", "goal;corner top-left", *worlds, "--out", tmp_path / "out")
    shown = goalscope(site, *asked, "--separating", "grid", "--methods", "last place,score")
    assert "last place: named: 100% of its episodes end at goal" in shown
    assert "last place" in shown.partition("nats per move")[2]
    assert "last place" in call(*asked, "--methods", "last place", status=2)


@pytest.mark.full
def test_a_study_names_its_probe_head_and_probes_and_report_show_it(site: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = goalscope(site, "run", HERE / "probes.yaml", "--out", run, "&&", "probe", run)
    # Its probes are kept: `probe` fits nothing again, and their files are read with the head.
    with installed(site):
        found = [probe for _, probe in stored_probes(run, head="narrow", control="none")]
    settings = sorted((probe.target, probe.settings["directions"]) for probe in found)
    assert settings == [("cells", 4), ("distance", 4)]
    first, second = map(int, re.findall(r"(\d+) probes fitted", shown))
    assert first > second == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    # Its analysis of activations: rows by grid and network at each place, its headline, its title on the page.
    with Store(run) as store:
        rows = store.rows().select(measure="spread of the activations")
        assert "compass" in packages_of(store)["analysis", "spread"]
    assert set(rows.tags["control"].tolist()) == {"none", "permuted"} and set(rows.tags["site"].tolist()) == {"pre"}
    assert set(rows.tags["layer"].tolist()) == {2} and set(rows.tags["head"].tolist()) == {"spread"}
    assert len(set(rows.cluster.tolist())) == 5 and np.all(rows.value >= 0)
    assert "spread, layer 2" in shown and "Spread of the activations" in page
    for title in ("Cognitive map", "Decoded distance to the goal"):
        section = page[page.index(f">{title}") :]
        assert "narrow" in section and "narrow, shuffled labels" in section
    # Where the package is not installed the report is written, and fitting is refused.
    call("report", run)
    assert "'narrow'" in call("probe", run, status=2)
    assert "'spread'" in call("probe", run, "--reads", "spread", "--set", "heads=[]", status=2)
    assert "spread" in (run / "report.html").read_text(encoding="utf-8")
    assert "narrow" in (run / "report.html").read_text(encoding="utf-8")


def test_its_arm_is_asked_and_its_claim_decided(site: Path, tmp_path: Path) -> None:
    agents = ("optimal", "random")
    told = goalscope(
        site, "evaluate", *agents, "--arms", "small-grids", "--quick", "--seed", "7", "--out", tmp_path / "out"
    )
    found = Evaluation.read(tmp_path / "out" / "ledger.json")
    claims = [ledger.claim("takes few moves back") for ledger in found.models]
    assert [claim.value == 1 for claim in claims if claim is not None] == [True, False]
    assert [claim.section for claim in claims if claim is not None] == ["small-grids-results", "small-grids-2-results"]
    page = found.kept_in(tmp_path / "out").report().read_text()
    assert "Does it take back less than one move in ten?" in told + page and "Small open grids, random: all" in page
    assert all(f'id="{claim.section}"' in page for claim in claims if claim is not None)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))
    assert "all claims agree" in goalscope(site, "verify", tmp_path / "out")


@pytest.mark.full
def test_a_study_names_its_experiment_on_activations(site: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = goalscope(site, "run", HERE / "mixture.yaml", "--out", run, "&&", "patch", run)
    tables = shown.split("Theseus: mixture")[1:]
    assert len(tables) == 2, "the second one is read from the stored rows"
    for table in tables:
        lines = {line.split()[4]: line.split()[5] for line in table.splitlines() if "action follows the edit" in line}
        assert set(lines) == {"0.0", "0.5", "1.0"} and lines["0.0"] == "0.000" and lines["1.0"] == "1.000"
    assert "'mixture'" in call("run", HERE / "mixture.yaml", "--out", tmp_path / "again", status=2)


def test_a_study_names_its_world_kind_and_the_report_shows_success_and_return(site: Path, tmp_path: Path) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    words = ("run", HERE / "ice.yaml", "--out", run, "&&", "measure", run, "--all", "&&", "report", run)
    repeat = ("&&", "run", HERE / "ice.yaml", "--out", again, "--workers", "2")
    shown = goalscope(site, *words, *repeat)
    with installed(site):
        held = told(str(run))
    assert "15 episodes" in shown
    for name in ("success", "return", "steps to goal", "invalid turns", MEASURE):
        assert any(f" {name} " in line for line in shown.splitlines()), name
    assert "action accuracy" in shown and "left out" in shown
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "15 episodes in 3 worlds" in page and "undiscounted sum of an episode" in page
    # Chance belongs to the episode, whatever the order of work; the store holds states, rewards and endings.
    assert told(str(run)) == told(str(again))
    assert told(str(run)) == held, "it is read without the package as it is with it"
    first = json.loads(told(str(run)))
    assert {outcome for outcome, _, _ in first} >= {"goal", "ended"}
    for outcome, final, steps in first:
        assert final[1] == (outcome == "ended") and all(action in range(5) for _, action, _ in steps)
        assert [reward for *_, reward in steps[:-1]] == [-1.0] * (len(steps) - 1)
        assert steps[-1][2] == {"goal": 10.0, "ended": -10.0}.get(outcome, -1.0)
    call("report", run)
    assert "'ice'" in call("run", HERE / "ice.yaml", "--out", tmp_path / "refused", status=2)
    assert "15 episodes in 3 worlds" in (run / "report.html").read_text(encoding="utf-8")


def test_its_study_command_and_format_are_found_like_ours(site: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "agents-of" in goalscope(site, "--help") and "agents-of" not in call("--help")
    assert "compass" in goalscope(site, "run", "northward", "--out", run, "&&", "agents-of", run)
    (tmp_path / "north.wind").write_text("calm")
    with installed(site):
        assert "a wind must blow; got calm" in call("import", tmp_path / "north.wind", "--check", status=1)


def test_its_measure_obeys_the_laws(site: Path) -> None:
    with installed(site):
        check_measure(registry.resolve("measure", MEASURE))


def test_its_thing_obeys_the_laws_and_stands_in_worlds(site: Path, tmp_path: Path) -> None:
    worlds = [{"kind": "text", "grids": ["########\n#Aj#_G_#\n########"]}]
    study = {"worlds": worlds, "agents": [{"kind": "optimal"}], "trajectories": 1}
    with installed(site):
        check_thing("trampoline", grids=4)
        landed = tmp_path / "landed.yaml"
        landed.write_text(json.dumps(study), encoding="utf-8")
        call("run", landed, "--out", tmp_path / "landed")
        with Store(tmp_path / "landed") as store:
            (episode,) = store.episodes()
        assert [step.state[:2] for step in episode.steps] == [(1, 1), (1, 4)] and episode.outcome == "goal"


def test_the_page_explains_every_file_of_this_package() -> None:
    page = (HERE.parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
    shown = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    code = sorted((HERE / "goalscope_compass").glob("[a-z]*.py"))
    studies = sorted(HERE.glob("*.yaml"))
    assert not [
        path.name
        for path in (*code, *studies)
        if f"]({path.relative_to(HERE.parent).as_posix()})" not in page.replace("../tests/", "")
    ]
    whole = [path.read_text(encoding="utf-8") for path in (*code, HERE / "pyproject.toml")]
    assert {language for language, _ in shown} == {"python", "toml"}
    for language, text in shown:
        if not any(text in file for file in whole):  # what is no part of the package runs as it stands there
            assert language == "python"
            exec(compile(text, "plugins.md", "exec"), {})


@pytest.mark.full
def test_an_environment_with_named_goals_and_its_measure_are_evaluated_like_ours(site: Path, tmp_path: Path) -> None:
    run, verdict = tmp_path / "run", tmp_path / "verdict"
    asked = ("evaluate", "environment-wrong-goal:target=gem a", "--worlds", HERE / "gems.yaml", "--out", verdict)
    measured = ("measure", run, "--all", "&&", "report", run)
    shown = goalscope(site, "run", HERE / "gems.yaml", "--out", run, "&&", *measured, "&&", *asked, "--quick")
    finding = Evaluation.read(verdict / "ledger.json").models[0].findings[0]
    assert "on 12 worlds" in shown and (finding.answer, finding.names) == ("yes", ("gem a",))
    assert sum(EDGE in line for line in shown.splitlines()) == 2
    with installed(site), Store(run) as store:
        rows = store.rows().select(measure=EDGE, agent="optimal")
        episodes = {episode.id: episode for episode in store.episodes()}
        for name, value in zip(rows.episode_id, rows.value, strict=True):
            episode = episodes[name]
            cells = episode.path()
            assert value == pytest.approx(sum({0, 4} & set(cell) != set() for cell in cells) / len(cells))
        assert len({episode.world.cluster_id for episode in episodes.values()}) == 12
    for page in (run / "report.html", verdict / "report.html"):
        text = page.read_text(encoding="utf-8")
        assert "Measures of other packages" in text and "Edge of the field" in text
        assert 'results-figure-1">' in text, "and a picture of it"
    claim = Evaluation.read(verdict / "ledger.json").models[0].claim("is directed at another goal of given worlds")
    assert claim is not None and claim.answer == "yes" and "gem a" in claim.names
    # Without the package its runs say which one they need; what needs no code of it is read.
    done = commands(tmp_path, ("show", run), ("report", run), ("measure", run))
    assert [status for status, _ in done] == [0, 0, 2]
    for _, said in done:
        assert "goalscope-compass 0.1" in said and "'gem-field'" in said and "not installed" in said
    assert "Edge of the field" in (run / "report.html").read_text(encoding="utf-8")


def test_its_environment_is_drawn(site: Path) -> None:
    with installed(site):
        world = EnvironmentWorld.make("gem-field", {"seed": 1})
        (start,) = world.believed.environment.initial()
        picture = world.drawing((world.believed.table.states.index(start),))
    assert picture is not None and picture.agent == (2, 2) and len(picture.rows) == 5
    assert [name for _, _, name in picture.labels] == ["exit", "gem a", "gem b"]


@pytest.mark.parametrize("span", ["12..1", "0..10000", "1..99999999999", "1..x", "[1, 1]", "[]", "-1..3", "both"])
def test_spans_of_seeds_are_bounded(site: Path, span: str) -> None:
    text = (HERE / "gems.yaml").read_text(encoding="utf-8")
    with installed(site):
        assert len(Study.parse(read_yaml_text(text, "gems")).worlds()) == 12
        with pytest.raises(ValueError, match="seeds"):
            changed = text.replace("1..12", "[1]\n    parameters: [{seed: 1}]" if span == "both" else span)
            Study.parse(read_yaml_text(changed, "gems"))


STRANGE = r"""
import multiprocessing
from dataclasses import dataclass

from goalscope.agents import Turn, agent_kind
from goalscope.verdict import Arm, arm
from goalscope.verdict import claim
from goalscope.measures import measure
from goalscope.inside.probing import head
from goalscope._ground.registry import register
from goalscope.report import section
import numpy as np

@measure("one that raises", unit="share", text="x")
def raising(table):
    return {}["nothing"]

@measure("one beyond its bounds", unit="share", text="x")
def beyond(table):
    return np.full(len(table.length), 7.0)

@section("a broken section")
def broken(run):
    raise RuntimeError("\x1b[31mno\nlines")
    yield

@claim("a broken claim", arm="worlds", question="Q?", yes="y", no="n", quantity="q", threshold=0.5, compared="c")
def unclaimed(data):
    return data.nothing_of_the_kind

register("measure", "no measure at all")(1)

@agent_kind("falling")
@dataclass(frozen=True)
class Falling:
    journalled = False

    def describe(self):
        return {"kind": "falling"}

    def act(self, observations):
        return [self.fall() for _ in observations]

    def fall(self):
        raise LookupError("fell")

class Lost(Exception):
    def __init__(self, *, where):
        super().__init__(where)

@agent_kind("losing")
@dataclass(frozen=True)
class Losing(Falling):
    journalled = True

    def describe(self):
        return {"kind": "losing"}

    def fall(self):
        if multiprocessing.parent_process() is None:  # the first turns, which this process asks
            return Turn(action=0)
        raise Lost(where="on the way")

@head("collapsing")
def collapsing(sizes):
    from torch import nn

    class Collapsing(nn.Linear):
        def forward(self, vectors):
            raise KeyError("no layers")

    return Collapsing(sizes.inputs, sizes.outputs * sizes.classes)

def flat(count):
    raise ArithmeticError("no worlds")

arm(Arm(name="flat", title="Flat worlds", needs=frozenset({"grids"}), why="x", worlds=flat, quick=1, full=1))
"""


@pytest.fixture
def strange(site: Path, tmp_path: Path) -> Path:
    """Return a folder with this package and one whose parts raise."""
    folder = tmp_path / "site"
    shutil.copytree(site, folder)
    install(folder, "goalscope-strange", {"strange.py": STRANGE}, {"strange": "strange"})
    return folder


def commands(site: Path, *lines: tuple[object, ...]) -> list[tuple[int, str]]:
    """Run commands as a user does, each in a process of its own, where packages are installed."""
    done = in_turn(lines, environment={"PYTHONPATH": str(site)})
    assert not any("Traceback" in one.stdout + one.stderr for one in done), done
    return [(one.status, one.stdout + one.stderr) for one in done]


@pytest.mark.full
def test_parts_that_raise_are_named_with_their_package_and_take_nothing_down(strange: Path, tmp_path: Path) -> None:
    run, verdict = tmp_path / "run", tmp_path / "verdict"
    asked = ("evaluate", "environment-optimal", "--worlds", HERE / "gems.yaml", "--out", verdict, "--quick")
    (ran, _), (measured, said), (reported, told_of), (evaluated, judged) = commands(
        strange, ("run", HERE / "study.yaml", "--out", run), ("measure", run), ("report", run), asked
    )
    assert (ran, measured, reported, evaluated) == (0, 1, 1, 1), "all else is done, and the status says what is not"
    for name, error in (
        ("one that raises", "KeyError: 'nothing' (strange.py, raising)"),
        ("one beyond its bounds", "[0, 1], got 7.0"),
        ("no measure at all", "TypeError"),
    ):
        (line,) = [line for line in said.splitlines() if f"'{name}'" in line]
        assert "goalscope-strange 0.1" in line and error in line and "GOALSCOPE_TRACEBACK=1" in line
    with Store(run) as store:
        stored = set(store.row_counts("behaviour"))
    assert {"success", MEASURE} <= stored and not stored & {"one that raises", "one beyond its bounds"}
    (line,) = [line for line in told_of.splitlines() if "'a broken section'" in line]
    assert "goalscope-strange 0.1" in line and r"\x1b[31mno\nlines" in line
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "a broken section" in page and "Moves taken back" in page
    assert "is directed at the goal" in judged and "'a broken claim'" in judged
    claims = json.loads((verdict / "ledger.json").read_text())["models"][0]["claims"]
    (broken,) = [claim for claim in claims if claim["name"] == "a broken claim"]
    assert broken["answer"] == "untestable" and "goalscope-strange 0.1" in broken["says"]


def test_an_agent_that_raises_is_named_and_what_was_finished_is_kept(strange: Path, tmp_path: Path) -> None:
    study, run = tmp_path / "study.yaml", tmp_path / "run"
    text = (HERE / "study.yaml").read_text(encoding="utf-8")
    study.write_text(text.replace("kind: optimal", "kind: falling"), encoding="utf-8")
    ((status, said),) = commands(strange, ("run", study, "--out", run))
    assert status == 2 and "the agent 'falling' of goalscope-strange 0.1" in said
    assert "LookupError: fell (strange.py, fall)" in said and "is stored" in said
    with Store(run) as store:
        assert {episode.agent for episode in store.episodes()} == {"compass(right, 0.8)"}


@pytest.mark.full
def test_an_agent_that_raises_in_a_worker_process_is_named(strange: Path, tmp_path: Path) -> None:
    """Its class of errors cannot be made again from what reaches this process."""
    study, run = tmp_path / "study.yaml", tmp_path / "run"
    text = (HERE / "study.yaml").read_text(encoding="utf-8")
    study.write_text(text.replace("kind: optimal", "kind: losing"), encoding="utf-8")
    words = ("run", study, "--out", run, "--executor", "processes", "--workers", 2)
    ((status, said),) = commands(strange, words)
    assert status == 2 and "the agent 'losing' of goalscope-strange 0.1" in said
    assert "Lost: on the way (strange.py, fall)" in said and "is stored" in said


@pytest.mark.full
def test_a_head_that_raises_is_left_out_and_the_others_are_fitted(strange: Path, tmp_path: Path) -> None:
    study, run = tmp_path / "study.yaml", tmp_path / "run"
    text = (HERE / "probes.yaml").read_text(encoding="utf-8")
    study.write_text(text.replace("[narrow]", "[narrow, collapsing]"), encoding="utf-8")
    ((status, said),) = commands(strange, ("run", study, "--out", run))
    assert status == 1 and (run / "report.html").exists()
    (line,) = [line for line in said.splitlines() if "the head 'collapsing'" in line]
    assert "goalscope-strange 0.1" in line and "KeyError: 'no layers' (strange.py, forward)" in line
    with installed(strange):
        assert {"mlp", "narrow"} <= {probe.head for _, probe in stored_probes(run)}


@pytest.mark.full
def test_an_arm_that_raises_is_named_with_its_package_and_the_others_are_asked(strange: Path, tmp_path: Path) -> None:
    out = tmp_path / "verdict"
    ((status, said),) = commands(strange, ("evaluate", "optimal", "--quick", "--out", out))
    assert status == 1, said
    assert "the arm 'flat' of goalscope-strange 0.1 failed: ArithmeticError: no worlds (strange.py, flat)" in said
    arms = {arm["name"]: arm for arm in json.loads((out / "ledger.json").read_text())["models"][0]["arms"]}
    assert arms["grids"]["asked"] and "goalscope-strange 0.1" in arms["flat"]["why"]


def test_a_run_says_which_package_its_study_lacks(site: Path, tmp_path: Path) -> None:
    """Without the package a study names a kind alone; the run that it was begun in knows whose it is."""
    run = tmp_path / "run"
    goalscope(site, "run", HERE / "ice.yaml", "--out", run)
    for words in (("run", HERE / "ice.yaml", "--out", run), ("meg", run)):
        said = call(*words, status=2)
        assert "'ice'" in said and "goalscope-compass 0.1" in said and "not installed" in said


def test_packages_that_cannot_be_loaded_are_named_and_take_nothing_down(site: Path, tmp_path: Path) -> None:
    register = "from goalscope._ground.registry import register\n"
    install(tmp_path, "half-done", {"half.py": f"{register}register('head', 'half')(1)\n1 / 0\n"}, {"a": "half"})
    install(tmp_path, "taking", {"taking.py": f"{register}register('measure', 'success')(1)\n"}, {"b": "taking"})
    install(tmp_path, "absent", {}, {"c": "nothing.of.the.kind"})
    install(tmp_path, "whole", {"whole.py": f"{register}register('head', 'whole')(2)\n"}, {"d": "whole"})
    code = """
import json, warnings
from goalscope._ground import registry
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    heads = registry.names("head")
try:
    registry.resolve("head", "wholy")
except ValueError as error:
    said = str(error)
from goalscope.measures import behaviour_measures
names = [measure.name for measure in behaviour_measures()]
print(json.dumps([heads, [str(one.message) for one in caught], said, names[0], registry.resolve("head", "whole")]))
"""
    heads, caught, said, first, whole = json.loads(python(tmp_path, code).stdout)
    assert "whole" in heads and "half" not in heads and whole == 2 and first == "success"
    assert len(caught) == 3, "each package is loaded once"
    for package, error in (("half-done", "ZeroDivisionError"), ("taking", "'success'"), ("absent", "nothing")):
        assert any(package in sentence and error in sentence for sentence in caught)
        assert package in said
    assert "did you mean whole?" in said


def test_a_module_of_one_kind_is_imported_when_names_of_that_kind_are_asked_for(tmp_path: Path) -> None:
    text = "from goalscope._ground.registry import register\nregister('head', 'late')(1)\n"
    install(tmp_path, "late", {"late.py": text}, {"a": "late"}, group=f"{registry.GROUP}.head")
    code = """
import json, sys
from goalscope._ground import registry
kinds = [registry.names("measure")[:1], "late" in sys.modules]
print(json.dumps([*kinds, "late" in registry.names("head"), "late" in sys.modules, registry.package_of("late")]))
"""
    measures, before, named, after, package = json.loads(python(tmp_path, code).stdout)
    assert measures and not before and named and after and package == "late 0.1"


def test_the_list_of_commands_imports_no_arrays_and_no_models() -> None:
    code = "import sys; from goalscope.cli import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "goalscope.organisms.command" in modules  # commands of packages are in the list
    assert not {"numpy", "torch", "pandas", "scipy", "goalscope.runs", "goalscope.agents"} & set(modules)
