"""Values that are tagged apart are never averaged: rows of probes by head and control, returns by environment."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.report import build_ledger
from goalscope.report.ledger import MeasuredRows, Run
from goalscope.runs import Store, Study, run
from goalscope.stats.rows import Row, Rows
from measured_runs import measured, small_study

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
