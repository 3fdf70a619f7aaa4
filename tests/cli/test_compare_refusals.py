"""What `goalscope compare` refuses or says: other horizons, absent agents, unfinished runs, too little to compare."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goalscope.agents import Observation, Optimal, Turn
from goalscope.cli import app
from goalscope.measures import measure_episodes
from goalscope.report.texts import TEXTS
from goalscope.runs import Store, Study, run
from measured_runs import measured, small_study
from planted_findings import stated

ONE = {"kind": "grid", "sizes": [7], "densities": [1.0], "count": 1}


def call(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return " ".join(str(result.output).split())


def tiny(**changes: Any) -> Study:
    plain = {"worlds": [{**ONE, "count": 4}], "agents": [{"kind": "optimal"}, {"kind": "random"}], "trajectories": 2}
    return small_study(**{**plain, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("compared") / "first", tiny())


def test_runs_with_other_horizons_are_refused_unless_the_difference_is_asked_for(first: Path, tmp_path: Path) -> None:
    longer = measured(tmp_path / "longer", tiny(horizon={"factor": 3.0}))
    said = call("compare", first, longer, status=2)
    assert stated("comparing/horizons", said, TEXTS) and "4 common worlds" in said and "--other-horizons" in said
    allowed = call("compare", first, longer, "--other-horizons")
    assert "different horizons on 4 common worlds" in allowed and "first: random" in allowed
    # The same number of steps by another rule is the same time: what counts is what each episode was given.
    with Store(first) as store:
        horizons = {episode.world.cluster_id: episode.spec.horizon for episode in store.episodes()}
    if len(set(horizons.values())) == 1:
        steps = {"steps": next(iter(horizons.values()))}
        fixed = measured(tmp_path / "fixed", tiny(horizon=steps, trajectories=3))
        assert "differ in horizon" not in call("compare", first, fixed)


def test_agents_that_are_nowhere_are_refused_and_those_in_one_run_only_are_compared(
    first: Path, tmp_path: Path
) -> None:
    other = measured(tmp_path / "other", tiny(agents=[{"kind": "epsilon-greedy", "epsilon": 0.5}, {"kind": "random"}]))
    said = call("compare", first, other, "--agents", "optimal;nobody", status=2)
    assert "has no agent 'nobody'" in said
    crossed = call("compare", first, other, "--agents", "optimal;epsilon-greedy(0.5)")
    assert "first: optimal" in crossed and "other: epsilon-greedy(0.5)" in crossed and "random" not in crossed
    assert "one side of the comparison has no agent" in call("compare", first, other, "--agents", "optimal", status=2)


def test_the_same_episodes_are_never_said_to_be_equal_to_themselves(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    said = call("compare", first, copy, "--margin", "success=0.9", status=2)
    assert "contain the same episodes of optimal, random" in said
    assert "a copy or a repetition of the other" in said
    # Two of four trajectories of the other run are those of the first: that bends no test, but equality it would.
    more = measured(tmp_path / "more", tiny(trajectories=4))
    files = ("--json", tmp_path / "found.json")
    for measure in ("success", "policy entropy"):  # a value of each episode, and one of all episodes of a grid
        said = call("compare", first, more, "--agents", "random", "--margin", f"{measure}=0.9", *files)
        assert "16 of 24 episodes are the same on both sides: no test can show equality" in said
        (one,) = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["comparisons"]
        assert one["p"] is not None and one["p_equivalence"] is None and one["reading"] == "undecided"


def test_what_is_left_out_of_a_comparison_of_runs_is_said(first: Path, tmp_path: Path) -> None:
    agents = [{"kind": "optimal"}, {"kind": "random"}, {"kind": "epsilon-greedy", "epsilon": 0.5}]
    wider = measured(tmp_path / "wider", tiny(agents=agents, worlds=[{**ONE, "count": 7}], trajectories=3))
    said = call("compare", first, wider)
    assert "3 worlds of wider: random without a partner left out" in said and "of first: random without" not in said
    assert stated("comparing/alone", said, TEXTS) and "wider: epsilon-greedy(0.5)" in said
    # Where only the agents that both runs share are the same, the refusal names the others.
    other = measured(tmp_path / "other", tiny(agents=[*agents[:1], agents[2]]))
    said = call("compare", first, other, status=2)
    assert "contain the same episodes of optimal" in said and "--agents 'random;epsilon-greedy(0.5)'" in said


class Stopping:
    """Acts like the optimal agent and is killed once some of its episodes have ended."""

    name = "stopping"
    journalled = False

    def __init__(self) -> None:
        self.most = 0

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "stopping"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        self.most = max(self.most, len(observations))
        if len(observations) < self.most:
            raise KeyboardInterrupt
        return list(Optimal().act(observations))


def test_an_unfinished_run_is_refused_until_it_is_measured_and_said_to_be_unfinished_then(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), path, agents=[Optimal(), Stopping()])
    said = call("compare", path, status=2)
    assert "are not measured" in said
    assert "the run is not finished" in said and f"goalscope measure {path}" in said
    with Store(path, "w") as store:
        # While it is written to nobody else can measure it, and what is there is not measured: nothing to compare.
        assert "writing to" in call("measure", path, status=2)
        assert "are not measured" in call("compare", path, status=2)
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
        count = len(store.episode_ids())
    assert 8 < count < 16
    said = call("compare", path, "--json", tmp_path / "a.json")
    assert f"the run is not finished: {count} of 16 episodes are stored" in said
    for one in json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]:
        assert one["grids"] < 4
    call("report", path)
    page = (path / "report.html").read_text(encoding="utf-8")
    assert f"The run is not finished: {count} of 16 episodes are stored" in page


def test_a_finished_run_that_is_in_use_is_neither_compared_nor_reported_without_its_rows(tmp_path: Path) -> None:
    run(tiny(), tmp_path)
    with Store(tmp_path, "w") as store:
        for command in ("compare", "report"):
            assert "writing to" in call(command, tmp_path, status=2)
        assert not len(store.rows())
    assert "16 of 16 are not measured" in call("compare", tmp_path)
    with Store(tmp_path) as store:
        assert len(store.rows().select(measure="success")) == 16


def test_one_grid_no_variance_and_undefined_measures_are_printed_with_the_reason(tmp_path: Path) -> None:
    single = measured(tmp_path / "single", tiny(worlds=[ONE]))
    said = call("compare", single, "--margin", "success=0.2", "--json", tmp_path / "a.json")
    (only,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]
    assert only["grids"] == 1 and only["low"] is None and only["p_equivalence"] is None
    assert "one cluster: undefined interval" in only["note"] and "one cluster: undefined interval" in said
    assert only["reading"] != "equivalent" and "method: no interval" in said
    # Two perfect agents: no difference is non-zero, and their equality is bounded, not certain.
    alike = [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.0}]
    equal = measured(tmp_path / "equal", tiny(agents=alike))
    said = call("compare", equal, "--json", tmp_path / "b.json")
    assert "no variance between clusters" in said
    # A measure that no episode of either side defines stays in the family.
    said = call("compare", equal, "--measures", "success;key attraction bias", "--json", tmp_path / "c.json", status=2)
    assert "has no measure" in said
    lost = [{"kind": "random"}, {"kind": "wrong-goal"}]
    never = measured(tmp_path / "never", tiny(agents=lost, horizon={"steps": 1}))
    said = call("compare", never, "--measures", "success;path ratio", "--json", tmp_path / "d.json")
    ratio = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))["comparisons"][1]
    assert ratio["p"] is None and ratio["p_holm"] == 1 and ratio["grids"] == 0 and ratio["reading"] == "undefined"
    assert "no common grid with a value on both sides" in ratio["note"] and "16 undefined values left out" in said
