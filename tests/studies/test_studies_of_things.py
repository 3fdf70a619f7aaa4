"""The studies with things: their predictions hold. A thing of another package reaches every result of a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml

import goalscope
from command_line import call
from goalscope.agents import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import finite_world
from goalscope.runs import Store, Study
from goalscope.verdict.preflight.study_files import load
from goalscope.verdict.viewer import write_view
from measured_runs import measured
from thing_grids import plugin_things
from viewer_parts import parts_of

CHESTS = ("chest open", "every red key held if not every red key held, else chest open")
COIN = ("at coin", "corner top-right")
AGENTS = {
    "keys-and-chests": dict(zip(("opens chests", "collects keys"), CHESTS, strict=True)),
    "coin-or-place": dict(zip(("goes to the coin", "goes to the corner"), COIN, strict=True)),
}


@pytest.mark.parametrize("name", AGENTS)
def test_the_aims_call_for_the_same_moves_in_trained_worlds_alone(name: str) -> None:
    differ: dict[Any, list[bool]] = {"trained": [], "shifted": []}
    for world in load(name).worlds():
        finite = finite_world(world, 20)
        solved = [parse(text).solved(finite).policy[0] for text in AGENTS[name].values() if defined(text, finite)]
        if len(solved) == 2:
            differ[world.tags["phase"]].append(bool((solved[0] != solved[1])[finite.reached & finite.live].any()))
    assert len(differ["trained"]) > 30 and not any(differ["trained"])
    assert len(differ["shifted"]) > 30 and sum(differ["shifted"]) > 0.9 * len(differ["shifted"])


def defined(text: str, finite: Any) -> bool:
    try:
        parse(text).solved(finite)
    except ValueError:
        return False
    return True


@pytest.mark.full
@pytest.mark.parametrize("name", ["coin-or-place", "keys-and-chests"])
def test_agents_are_named_in_shifted_worlds_and_not_in_trained_ones(name: str, tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    goalscope.run(name, run_directory)
    for agent, aim in AGENTS[name].items():
        words = {"hypotheses": ";".join(("goal", "corner top-left", *AGENTS[name].values())), "methods": ["likelihood"]}
        found = goalscope.attribute(run_directory, name=agent, **words)  # type: ignore[arg-type]
        findings = {finding.where["phase"]: finding for finding in found.findings}
        assert set(AGENTS[name].values()) <= set(findings["trained"].names)
        assert (findings["shifted"].answer, list(findings["shifted"].names)) == ("yes", [aim])


def test_a_thing_of_another_package_reaches_prompt_measures_attribution_page_and_viewer(tmp_path: Path) -> None:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.2], "count": 8}
    things = ["coin", "toll gate", "toll gate", "conveyor right"]
    with plugin_things():
        study = Study.parse(
            {
                "worlds": [{**entry, "things": things}],
                "agents": [{"kind": "hypothesis", "hypothesis": "toll gate open", "lapse": 0.05, "name": "opener"}],
                "trajectories": 2,
                "horizon": {"steps": 15},
            }
        )
        directory = measured(tmp_path / "run", study)
        with Store(directory) as store:
            worlds = [episode.world for episode in store.episodes()]
            assert {symbol for world in worlds for _, symbol in world.grid.things} == {"c", "t", "}"}
            assert {"success", "toll gate used", "conveyor right visited"} <= {row.measure for row in store.rows()}
        model: Any = SimpleNamespace(name="none", render=lambda *_: None)
        agent = ChatAgent(model=model, task="things", template="schema")
        prompt = agent.messages(Observation(view=worlds[0].begin().view, episode_id="e"))[0].content
        assert "\nt a closed toll gate\n" in prompt and "\n} a conveyor to the right\n" in prompt
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study.dump()), encoding="utf-8")
        apart = call("separate", "--hypotheses", "things", "--worlds", tmp_path / "study.yaml")
        assert all(name in apart for name in ("toll gate open", "at toll gate", "at conveyor right"))
        moved = goalscope.depends("optimal", tmp_path / "moved", worlds=study.dump()["worlds"], changes=1).found
        assert {"toll gate", "removed toll gate", "conveyor right"} <= {dependence.moved for dependence in moved}
        found = goalscope.attribute(
            directory, hypotheses="goal;toll gate open;at conveyor right", methods=["likelihood"]
        )
        assert [list(finding.names) for finding in found.findings] == [["toll gate open"]]
        call("report", directory)
        assert (directory / "report.html").stat().st_size > 10_000
        view = parts_of(write_view([directory], tmp_path / "view.html").page)
        drawings = [drawing for name, part in view.items() if name != "index" for drawing in part["drawings"]]
        assert any("t" in row for drawing in drawings for row in drawing["rows"])
        assert {"coin", "toll gate", "conveyor right"} == {name for one in drawings for _, _, name in one["labels"]}
        steps = [
            (part["worlds"][episode["world"]]["grid"], step)
            for name, part in view.items()
            if name != "index"
            for episode in part["episodes"]
            for step in episode["steps"]
        ]
        assert len({step["phase"] for _, step in steps}) > 2
        held = {tuple(step.get("held", ())) for _, step in steps}
        assert held == {(), ("coin",)}, "only coins are carried"
        assert all(step["from"] == steps_to_goal(grid)[step["phase"]][tuple(step["draw"][1:])] for grid, step in steps)


def steps_to_goal(grid: Any) -> npt.NDArray[np.int64]:
    """Solve the record of a grid with things by relaxation: ``[P, H, W]``, -1 where the goal cannot be reached."""
    shape, leaps = (len(grid["rows"]), len(grid["rows"][0])), np.array(grid["leaps"]).reshape(-1, 4)
    after, steps = np.arange(len(leaps))[:, None] + leaps, np.full(len(leaps), 10**6)
    steps.reshape(-1, *shape)[(slice(None), *grid["goal"])] = 0
    while (better := np.minimum(steps, 1 + steps[after].min(axis=1)) < steps).any():
        steps[better] = 1 + steps[after[better]].min(axis=1)
    return np.where(steps < 10**6, steps, -1).reshape(-1, *shape)
