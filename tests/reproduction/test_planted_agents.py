"""Sentences of the papers on agents for which we know whether they are so: true, false, and not to be told."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_rows import item_of

from goalscope._ground.rng import stream
from goalscope.agents import Observation, ScriptedAgent
from goalscope.agents.scripted import Optimal, SideBiased
from goalscope.measures.exploration.errors import ONLY_EXPLORATION, PROGRESS_SHARE
from goalscope.papers import QuotedClaim, ReadAgents, find
from goalscope.papers.claims import Tested as Said
from goalscope.papers.claims import decide
from goalscope.runs import Store
from goalscope.stats.rows import Row, Rows
from goalscope.worlds import Action
from measured_runs import measured, small_study

OPTIMAL = Optimal()


class Hesitant(ScriptedAgent):
    """Acts at random where a best move is UP: of another construction than the side-biased agent."""

    kind = "hesitant"

    def probabilities(self, observation: Observation) -> Any:
        best = OPTIMAL.probabilities(observation)
        return np.full(4, 0.25) if best[Action.UP] else best


def said_of(item_name: str, rows: Rows, agents: Sequence[str]) -> dict[tuple[str, str], Said]:
    """The sentences of an item on some agents, by kind of test and measure."""
    item = find(item_name)
    found = decide(item, rows, ReadAgents(agents=tuple(agents)))
    return {(claim.test, claim.measure): one for claim, one in zip(item.claims, found, strict=True)}


def transformed(out: Path, grids: int, trajectories: int, **world: Any) -> Rows:
    """Rows of three agents on grids and their transforms."""
    agents = [OPTIMAL, SideBiased(epsilon=0.6, side="left"), Hesitant()]
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": grids, **world}
    transforms = ["identity", "reflect", "rotate", "transpose", "swap"]
    study = small_study(
        worlds=[{**entry, "transforms": transforms}], trajectories=trajectories, horizon={"factor": 1.5}
    )
    with Store(measured(out / "run", study, agents)) as store:
        return store.rows()


@pytest.fixture(scope="module")
def sided(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Goals in the right half of each original grid."""
    return transformed(tmp_path_factory.mktemp("sided"), 150, 2, goal_side="right")


@pytest.fixture(scope="module")
def unsided(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The design of the paper: goals anywhere."""
    return transformed(tmp_path_factory.mktemp("unsided"), 40, 6)


NAMES = {"optimal": OPTIMAL.name, "side-biased": SideBiased(epsilon=0.6, side="left").name, "hesitant": Hesitant().name}
MEAN, EACH = ("unmoved", "action accuracy"), ("unmoved on each", "action accuracy")


def test_a_mean_moves_where_goals_lie_on_one_side(sided: Rows) -> None:
    said = {name: said_of("telos table 3", sided, [agent]) for name, agent in NAMES.items()}
    assert said["optimal"][MEAN].answer == said["optimal"]["unmoved", "success"].answer == "yes"
    assert said["side-biased"][MEAN].answer == said["side-biased"]["unmoved", "success"].answer == "no"
    assert said["hesitant"][MEAN].answer == "no"
    parts = dict(said["hesitant"][MEAN].parts)
    rotated, reflected = parts["rotate less original"], parts["reflect less original"]
    assert rotated.high < -0.05 and reflected.low < 0 < reflected.high  # a reflection leaves the moves up as many
    assert rotated.confidence == pytest.approx(1 - 0.05 / 4)


@pytest.mark.full
def test_a_mean_over_random_grids_hides_what_single_grids_show(unsided: Rows) -> None:
    said = {name: said_of("telos table 3", unsided, [agent]) for name, agent in NAMES.items()}
    for name in ("side-biased", "hesitant"):
        assert said[name][MEAN].answer != "no"
        assert said[name][EACH].answer == "no", name
    assert said["optimal"][EACH].answer != "no"


def test_few_grids_tell_nothing(sided: Rows) -> None:
    few = sided.where(np.isin(sided.cluster, sorted(set(sided.cluster.tolist()))[:3]))
    for name, agent in NAMES.items():
        said = said_of("telos table 3", few, [agent])
        assert said[MEAN].answer == said[EACH].answer == "few", name
    originals = said_of("telos table 3", sided.select(transform="identity"), [NAMES["optimal"]])
    assert originals[MEAN].answer == "undecided" and "transformed" in originals[MEAN].why


def test_single_grids_alike_need_many_trajectories_and_their_root_mean_square_is_that_of_the_rows() -> None:
    """Rows whose true differences are known: +-.3 on each grid, or none."""

    def rows(apart: float, noise: float) -> Rows:
        rng, found = stream(42, "unmoved on each", str(apart)), []
        for grid in range(200):
            sign = 1 if grid % 2 else -1
            for name, change in (("identity", 0.0), ("reflect", apart * sign)):
                for _ in range(10):
                    value = float(np.clip(0.5 + change + noise * rng.normal(), 0, 1))
                    tags = {"agent": "A", "transform": name}
                    one = Row(measure="success", unit="share", value=value, cluster=f"g{grid}", tags=tags)
                    found.append(one)
        return Rows.from_rows(found)

    def said(test: str, values: Rows) -> Said:
        claim = QuotedClaim(said="s", test=test, measure="success", margin=0.2)
        (one,) = decide(item_of(claims=(claim,), readings=()), values, ReadAgents(agents=("A",)))
        return one

    assert said("unmoved on each", rows(0.0, 0.05)).answer == "yes"
    apart = said("unmoved on each", rows(0.3, 0.05))
    assert apart.answer == "no" and apart.parts[0][1].value == pytest.approx(0.3, abs=0.01)
    assert said("unmoved", rows(0.3, 0.05)).answer == "yes"  # it cancels


def explorers(out: Path, agents: Sequence[Mapping[str, Any]], maps: int, preset: str) -> Rows:
    worlds = [{"kind": "task-map", "presets": [preset], "count": maps}]
    study = small_study(worlds=worlds, agents=[dict(agent) for agent in agents], trajectories=1)
    with Store(measured(out / "run", study)) as store:
        return store.rows()


GREEDY, FIRST = {"kind": "task-greedy"}, {"kind": "task-explore-first"}


def finding_2(rows: Rows) -> Said:
    names = list(dict.fromkeys(rows["agent"].tolist()))
    return said_of("exploration figure 4", rows, names)["equal but different", ONLY_EXPLORATION]


@pytest.mark.full
def test_agents_of_equal_success_that_explore_otherwise_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    """One goes to what it can achieve at once, the other explores first: both always succeed."""
    found = finding_2(explorers(tmp_path / "other", [GREEDY, FIRST], 24, "paper-low-large"))
    assert found.answer == "yes" and found.parts[0][1].high < -0.1
    nearly = {"kind": "task-noisy-greedy", "epsilon": 0.002}
    assert finding_2(explorers(tmp_path / "same", [GREEDY, nearly], 80, "paper-high-small")).answer == "no"
    assert finding_2(explorers(tmp_path / "few", [GREEDY, FIRST], 4, "paper-low-large")).answer == "undecided"
    walk = {"kind": "task-oscillator"}
    assert finding_2(explorers(tmp_path / "never", [GREEDY, walk], 4, "paper-low-large")).answer == "untestable"


def test_it_is_the_named_share_that_is_compared() -> None:
    """Two agents that enter new cells at another pace, and call for exploration alone equally often."""
    rng, rows = stream(4, "named share"), []
    for agent, pace in (("A", 0.2), ("B", 0.8)):
        for at in range(100):
            one: dict[str, Any] = {"unit": "share", "cluster": f"map {at}", "episode_id": f"{agent} {at}"}
            rows.append(Row(measure="success", value=1.0, tags={"agent": agent}, **one))
            for tenth in range(1, 11):
                tags: dict[str, Any] = {"agent": agent, "progress": tenth / 10}
                rows.append(Row(measure=PROGRESS_SHARE, value=pace, tags=tags, **one))
                alone = float(np.clip(0.5 + 0.05 * rng.normal(), 0, 1))
                rows.append(Row(measure=ONLY_EXPLORATION, value=alone, tags=tags, **one))
    assert finding_2(Rows.from_rows(rows)).answer == "no"


def sized(own: Mapping[int, float], seed: int = 0, grids: int = 30) -> Rows:
    """Rows of figure 16: the general probe at .6 on each grid, that of one size apart by `own`, on the same grids."""
    rng, rows = stream(seed, "one size"), []
    for size, change in own.items():
        for at in range(grids):
            level = 0.6 + 0.1 * rng.normal()  # grids differ by more than the probes do
            for scope, value in (("general", level), (f"{size}x{size}", level + change + 0.02 * rng.normal())):
                for measure, of_class in (
                    ("cell accuracy without padding", None),
                    *((name, label) for name in ("recall", "precision") for label in ("agent", "goal")),
                ):
                    tags: dict[str, Any] = {
                        "agent": "A",
                        "site": "pre",
                        "layer": 15,
                        "reading": "balanced",
                        "control": "none",
                    }
                    tags |= {"head": "mlp", "scope": scope, "size": size, "class": of_class}
                    share = float(np.clip(value, 0, 1))
                    rows.append(Row(measure=measure, unit="share", value=share, cluster=f"{size} {at}", tags=tags))
    return Rows.from_rows(rows)


SIZES = (7, 9, 11, 13, 15)
ACCURACY = "cell accuracy without padding"


def test_probes_of_one_size_are_compared_with_the_general_one_grid_by_grid() -> None:
    as_printed = {size: 0.1 if size < 10 else 0.0 for size in SIZES}
    changes = {
        "as printed": as_printed,
        "lower": dict.fromkeys(SIZES, -0.15),
        "alike": dict.fromkeys(SIZES, 0.0),
        "one other": {**as_printed, 13: 0.1},
    }
    said = {name: said_of("telos figure 16", sized(change), ["A"]) for name, change in changes.items()}
    wanted = {
        ("one size higher", ACCURACY): ("yes", "no", "undecided", "yes"),
        ("one size equal", ACCURACY): ("yes", "no", "yes", "no"),
        ("one size higher", "precision"): ("undecided", "no", "undecided", "undecided"),
        ("one size lower", "recall"): ("no", "yes", "no", "no"),
    }
    for key, verdicts in wanted.items():
        assert tuple(said[name][key].answer for name in changes) == verdicts, key
    parts = dict(said["as printed"]["one size higher", ACCURACY].parts)
    assert list(parts) == [f"size {size}: probe of that size less general" for size in (7, 9)]
    assert all(part.value == pytest.approx(0.1, abs=0.02) and part.clusters == 30 for part in parts.values())
    few = said_of("telos figure 16", sized(dict.fromkeys(SIZES, 0.0), grids=3), ["A"])
    assert few["one size equal", ACCURACY].answer == "few"
    rows = sized(as_printed)
    general = said_of("telos figure 16", rows.select(scope="general"), ["A"])
    assert general["one size equal", ACCURACY].answer == "untestable"
    assert "size 11" in general["one size equal", ACCURACY].why
