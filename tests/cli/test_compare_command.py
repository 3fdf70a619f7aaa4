"""What `goalscope compare` compares, never averages over, refuses, and says."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import call
from goalscope.agents import Observation, Optimal, Turn
from goalscope.cli import app
from goalscope.measures import measure_episodes
from goalscope.report import build_ledger
from goalscope.report.ledger import MeasuredRows, Run
from goalscope.report.texts import TEXTS
from goalscope.runs import Store, Study, run
from goalscope.stats.rows import Row, Rows
from measured_runs import measured, small_study
from planted_findings import stated

WORLDS = [{"kind": "grid", "sizes": [7], "densities": [1.0], "count": 8}]
HEADS, CONTROLS, CLASSES, SITES = ("linear", "mlp"), ("none", "untrained"), ("agent", "goal"), ("pre", "post")


def probe_rows(clusters: list[str], number: int) -> Iterator[Row]:
    """Rows of probes: the second run is better by 0.3 where head, class and site are linear, agent and post alone."""
    for head in HEADS if number else (*HEADS, "percell"):
        for control, label, site in ((c, k, s) for c in CONTROLS for k in CLASSES for s in SITES):
            gain = 0.3 * number * ((head, control, label, site) == ("linear", "none", "agent", "post"))
            for at, cluster in enumerate(clusters):
                draws: list[dict[str, Any]] = [{"draw": draw} for draw in range(2)] if control == "untrained" else [{}]
                for draw in draws:
                    tags = {"head": head, "control": control, "class": label, "site": site, "scope": "general"}
                    tags |= {"agent": "optimal", "probe": f"probe-{number}-{head}-{control}-{site}", **draw}
                    value = 0.2 + 0.01 * at + gain
                    yield Row(measure="localisation", unit="share", value=value, cluster=cluster, tags=tags)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs on the same grids with rows of probes."""
    folder, found = tmp_path_factory.mktemp("models"), []
    for number in (0, 1):
        study = small_study(worlds=WORLDS, agents=[{"kind": "optimal"}], trajectories=1 + number)
        found.append(measured(folder / f"model-{number}", study))
        with Store(found[-1], "w") as store:
            clusters = sorted({episode.world.cluster_id for episode in store.episodes()})
            store.put_rows(Rows.from_rows(list(probe_rows(clusters, number))), source="probing")
    return found


def compared(*words: object, out: Path) -> tuple[list[dict[str, Any]], str]:
    said = call("compare", *words, "--measures", "localisation", "--json", out)
    return json.loads(out.read_text(encoding="utf-8"))["comparisons"], said


def test_probes_of_two_models_are_compared_within_equal_tags_and_holm_counts_them(
    models: list[Path], tmp_path: Path
) -> None:
    records, said = compared(*models, out=tmp_path / "found.json")
    assert len(records) == len(HEADS) * len(CONTROLS) * len(CLASSES) * len(SITES)
    by_tags = {
        tuple(record[f"tag {name}"] for name in ("head", "control", "class", "site")): record for record in records
    }
    assert len(by_tags) == len(records) and {record["tag scope"] for record in records} == {"general"}
    (differing,) = [tags for tags, record in by_tags.items() if record["difference"]]
    assert differing == ("linear", "none", "agent", "post")
    one = by_tags[differing]
    assert one["difference"] == pytest.approx(-0.3) and one["p_holm"] == pytest.approx(
        min(1.0, one["p"] * len(records))
    )
    assert f"all {len(records)} tests" in said and "all at scope general" in said
    # The head that one model alone has is left out, and that is said.
    assert "8 combinations of " in said and "occur only for" in said
    drawn = [record for tags, record in by_tags.items() if tags[1] == "untrained"]
    assert all("mean of its draws" in record["note"] for record in drawn) and "draws" not in one["note"]


def test_where_chooses_rows_by_their_tags(models: list[Path], tmp_path: Path) -> None:
    chosen = "head=linear;head=mlp;control=none;site=post;class=agent"
    records, said = compared(*models, "--where", chosen, out=tmp_path / "found.json")
    assert [record["tag head"] for record in records] == ["linear", "mlp"]
    assert "all 2 tests" in said and "control none" in said
    for wrong, told in (("head", "TAG=VALUE"), ("head=", "TAG=VALUE"), ("head=lineal", "linear"), ("hat=x", "no row")):
        refused = call("compare", *models, "--measures", "localisation", "--where", wrong, status=2)
        assert "--where" in refused and told in refused


def test_between_compares_the_values_of_a_tag_in_one_run(models: list[Path], tmp_path: Path) -> None:
    chosen = ("--where", "control=none;head=linear", "--between", "site")
    records, said = compared(models[1], *chosen, out=tmp_path / "found.json")
    assert [(record["first"], record["second"]) for record in records] == [
        ("optimal, site post", "optimal, site pre")
    ] * 2
    assert [record["tag class"] for record in records] == list(CLASSES)
    assert [record["difference"] for record in records] == pytest.approx([0.3, 0.0]) and "all 2 tests" in said
    refused = ((*models, "--between", "site"), (models[1], "--between", "scope"), (models[1], "--between", "nothing"))
    for words in refused:
        assert "--between" in call("compare", *words, "--measures", "localisation", status=2)
    transforms = call("compare", models[1], "--between", "site", "--transforms", status=2)
    assert "--transforms" in transforms and "--between" in transforms


def test_phases_on_other_grids_are_compared_unpaired_and_those_on_the_same_grids_paired(tmp_path: Path) -> None:
    grids = {"kind": "grid", "densities": [0.6], "goal": "top-right", "apart": 3}
    worlds = [
        {**grids, "sizes": [7], "count": 6, "phase": "trained"},
        {**grids, "sizes": [7], "count": 9, "goal": "not top-right", "phase": "shifted"},
        {**grids, "sizes": [9], "count": 5, "goal": "not top-right", "phase": "large"},
    ]
    agents = [{"kind": "wrong-goal"}, {"kind": "optimal"}]
    run_at = measured(tmp_path / "phases", small_study(worlds=worlds, agents=agents, trajectories=1))
    out = tmp_path / "found.json"
    call("compare", run_at, "--between", "phase", "--measures", "success", "--margin", "success=0.5", "--json", out)
    records = json.loads(out.read_text(encoding="utf-8"))["comparisons"]
    by_sides = {
        (one["first"].partition(",")[0], one["first"].split()[-1], one["second"].split()[-1]): one for one in records
    }
    assert len(records) == len(by_sides) == 6
    for (agent, first, second), record in by_sides.items():
        paired = {first, second} == {"trained", "shifted"}
        grids_of = {"trained": 6, "shifted": 9, "large": 5}
        assert record["grids"] == (6 if paired else grids_of[first] + grids_of[second])
        assert ("without a partner" in record["note"]) == paired != (record["p_signed_rank"] is None)
        assert (record["p_equivalence"] is None) == (not paired or record["difference"] is None)
        assert record["n"] == (12 if paired else record["grids"])
        if agent == "optimal":
            assert record["difference"] == 0
    means = {
        phase: record["value"]
        for phase in ("trained", "large")
        for record in Run(run_at).estimates(by=("agent", "phase"), measures=["success"]).records
        if record["phase"] == phase and record["agent"].startswith("wrong-goal")
    }
    found = next(
        record
        for (agent, *phases), record in by_sides.items()
        if agent.startswith("wrong") and set(phases) == set(means)
    )
    assert abs(found["difference"]) == pytest.approx(means["trained"] - means["large"]) and means["trained"] == 1
    assert (found["low"] <= 0 <= found["high"]) == (found["p"] > 0.05) and found["p"] > 0.99 * 2 / math.comb(11, 5)


def test_measures_of_episodes_are_compared_as_before(models: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    call("compare", *models, "--json", out)
    records = json.loads(out.read_text(encoding="utf-8"))["comparisons"]
    assert [record["measure"] for record in records] == ["success", "action accuracy"]
    assert not [name for record in records for name in record if name.startswith("tag ")]


def environment_rows() -> Rows:
    """Two environments with returns on scales of their own, on three worlds each."""
    scales = {"Taxi-v4": 8.0, "CliffWalking-v1": -500.0}
    return Rows.from_rows(
        [
            Row(
                measure=measure,
                unit=unit,
                value=value + number,
                cluster=f"{name} {number}",
                tags={"agent": "optimal", "environment": name, "kind": "gymnasium"},
            )
            for name, scale in scales.items()
            for number in range(3)
            for measure, unit, value in (("success", "share", 0.0 - number + 1), ("return", "reward", scale))
        ]
    )


def test_returns_of_different_environments_have_no_common_mean() -> None:
    measured_rows = MeasuredRows(environment_rows())
    by_agent = {str(one.key["measure"]): one.estimate for one in measured_rows.estimated(("agent",))}
    assert set(by_agent) == {"success", "return in CliffWalking-v1", "return in Taxi-v4"}
    taxi = by_agent["return in Taxi-v4"]
    assert (taxi.value, taxi.clusters, taxi.without) == (9.0, 3, 0)
    by_environment = [one.key for one in measured_rows.estimated(("agent", "environment"), ("return",))]
    assert {(key["measure"], key["environment"]) for key in by_environment} == {
        ("return", "Taxi-v4"),
        ("return", "CliffWalking-v1"),
    }
    ledger = build_ledger(measured_rows)
    assert "return" not in ledger.measures and ledger.measures["return in Taxi-v4"] == "reward"
    one_alone = environment_rows().select(environment="Taxi-v4")
    assert {str(one.key["measure"]) for one in MeasuredRows(one_alone).estimated(("agent",))} == {"success", "return"}


def test_measure_and_compare_show_returns_by_environment(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    worlds = [{"kind": "gymnasium", "environments": ["CliffWalking-v1", "Taxi-v4"]}]
    agents = [{"kind": "environment-optimal"}, {"kind": "random"}]
    plain = {
        "name": "scales",
        "seed": 1,
        "worlds": worlds,
        "agents": agents,
        "trajectories": 2,
        "horizon": {"steps": 30},
    }
    run(Study.parse(plain), tmp_path)
    shown = call("measure", tmp_path)
    assert "return in CliffWalking-v1" in shown and "return in Taxi-v4" in shown and "Return " not in shown
    said = call("compare", tmp_path, "--measures", "return;success", "--json", tmp_path / "found.json")
    records = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["comparisons"]
    environments = [(record["measure"], record.get("tag environment")) for record in records]
    assert environments == [("return", "CliffWalking-v1"), ("return", "Taxi-v4"), ("success", None)]
    assert "all 3 tests" in said
    assert "return in Taxi-v4" not in call("measure", tmp_path, "--by", "environment", "--measures", "return")


# What `goalscope compare` refuses or says: other horizons, absent agents, unfinished runs, too little to compare.


ONE = {"kind": "grid", "sizes": [7], "densities": [1.0], "count": 1}


def flat(*words: object, status: int = 0) -> str:
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
    said = flat("compare", first, longer, status=2)
    assert stated("comparing/horizons", said, TEXTS) and "4 common worlds" in said and "--other-horizons" in said
    allowed = flat("compare", first, longer, "--other-horizons")
    assert "different horizons on 4 common worlds" in allowed and "first: random" in allowed
    # The same number of steps by another rule is the same time: what counts is what each episode was given.
    with Store(first) as store:
        horizons = {episode.world.cluster_id: episode.spec.horizon for episode in store.episodes()}
    if len(set(horizons.values())) == 1:
        steps = {"steps": next(iter(horizons.values()))}
        fixed = measured(tmp_path / "fixed", tiny(horizon=steps, trajectories=3))
        assert "differ in horizon" not in flat("compare", first, fixed)


def test_agents_that_are_nowhere_are_refused_and_those_in_one_run_only_are_compared(
    first: Path, tmp_path: Path
) -> None:
    other = measured(tmp_path / "other", tiny(agents=[{"kind": "epsilon-greedy", "epsilon": 0.5}, {"kind": "random"}]))
    said = flat("compare", first, other, "--agents", "optimal;nobody", status=2)
    assert "has no agent 'nobody'" in said
    crossed = flat("compare", first, other, "--agents", "optimal;epsilon-greedy(0.5)")
    assert "first: optimal" in crossed and "other: epsilon-greedy(0.5)" in crossed and "random" not in crossed
    assert "one side of the comparison has no agent" in flat("compare", first, other, "--agents", "optimal", status=2)


def test_the_same_episodes_are_never_said_to_be_equal_to_themselves(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    said = flat("compare", first, copy, "--margin", "success=0.9", status=2)
    assert "contain the same episodes of optimal, random" in said
    assert "a copy or a repetition of the other" in said
    # Two of four trajectories of the other run are those of the first: that bends no test, but equality it would.
    more = measured(tmp_path / "more", tiny(trajectories=4))
    files = ("--json", tmp_path / "found.json")
    for measure in ("success", "policy entropy"):  # a value of each episode, and one of all episodes of a grid
        said = flat("compare", first, more, "--agents", "random", "--margin", f"{measure}=0.9", *files)
        assert "16 of 24 episodes are the same on both sides: no test can show equality" in said
        (one,) = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["comparisons"]
        assert one["p"] is not None and one["p_equivalence"] is None and one["reading"] == "undecided"


def test_what_is_left_out_of_a_comparison_of_runs_is_said(first: Path, tmp_path: Path) -> None:
    agents = [{"kind": "optimal"}, {"kind": "random"}, {"kind": "epsilon-greedy", "epsilon": 0.5}]
    wider = measured(tmp_path / "wider", tiny(agents=agents, worlds=[{**ONE, "count": 7}], trajectories=3))
    said = flat("compare", first, wider)
    assert "3 worlds of wider: random without a partner left out" in said and "of first: random without" not in said
    assert stated("comparing/alone", said, TEXTS) and "wider: epsilon-greedy(0.5)" in said
    # Where only the agents that both runs share are the same, the refusal names the others.
    other = measured(tmp_path / "other", tiny(agents=[*agents[:1], agents[2]]))
    said = flat("compare", first, other, status=2)
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
    said = flat("compare", path, status=2)
    assert "are not measured" in said
    assert "the run is not finished" in said and f"goalscope measure {path}" in said
    with Store(path, "w") as store:
        # While it is written to nobody else can measure it, and what is there is not measured: nothing to compare.
        assert "writing to" in flat("measure", path, status=2)
        assert "are not measured" in flat("compare", path, status=2)
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
        count = len(store.episode_ids())
    assert 8 < count < 16
    said = flat("compare", path, "--json", tmp_path / "a.json")
    assert f"the run is not finished: {count} of 16 episodes are stored" in said
    for one in json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]:
        assert one["grids"] < 4
    flat("report", path)
    page = (path / "report.html").read_text(encoding="utf-8")
    assert f"The run is not finished: {count} of 16 episodes are stored" in page


def test_a_finished_run_that_is_in_use_is_neither_compared_nor_reported_without_its_rows(tmp_path: Path) -> None:
    run(tiny(), tmp_path)
    with Store(tmp_path, "w") as store:
        for command in ("compare", "report"):
            assert "writing to" in flat(command, tmp_path, status=2)
        assert not len(store.rows())
    assert "16 of 16 are not measured" in flat("compare", tmp_path)
    with Store(tmp_path) as store:
        assert len(store.rows().select(measure="success")) == 16


def test_one_grid_no_variance_and_undefined_measures_are_printed_with_the_reason(tmp_path: Path) -> None:
    single = measured(tmp_path / "single", tiny(worlds=[ONE]))
    said = flat("compare", single, "--margin", "success=0.2", "--json", tmp_path / "a.json")
    (only,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]
    assert only["grids"] == 1 and only["low"] is None and only["p_equivalence"] is None
    assert "one cluster: undefined interval" in only["note"] and "one cluster: undefined interval" in said
    assert only["reading"] != "equivalent" and "method: no interval" in said
    # Two perfect agents: no difference is non-zero, and their equality is bounded, not certain.
    alike = [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.0}]
    equal = measured(tmp_path / "equal", tiny(agents=alike))
    said = flat("compare", equal, "--json", tmp_path / "b.json")
    assert "no variance between clusters" in said
    # A measure that no episode of either side defines stays in the family.
    said = flat("compare", equal, "--measures", "success;key attraction bias", "--json", tmp_path / "c.json", status=2)
    assert "has no measure" in said
    lost = [{"kind": "random"}, {"kind": "wrong-goal"}]
    never = measured(tmp_path / "never", tiny(agents=lost, horizon={"steps": 1}))
    said = flat("compare", never, "--measures", "success;path ratio", "--json", tmp_path / "d.json")
    ratio = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))["comparisons"][1]
    assert ratio["p"] is None and ratio["p_holm"] == 1 and ratio["grids"] == 0 and ratio["reading"] == "undefined"
    assert "no common grid with a value on both sides" in ratio["note"] and "16 undefined values left out" in said
