"""Goals on the way to a goal: found as by enumeration, and no rivals of what lies behind them."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipping_forklift  # noqa: F401  (registers the environment)
from goalscope.goals.hypotheses import load_hypotheses, parse, twin
from goalscope.goals.hypotheses.definition import FiniteWorld, reached_before, steps_in
from goalscope.goals.hypotheses.score import ScoreVerdict, evidence, judge
from goalscope.goals.hypotheses.states import answers_of, states_of_episodes
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.runs import GridWorld, Store, Study, run
from goalscope.worlds import Grid
from goalscope.worlds.planning.process import process_of

DOOR = Grid.parse("#######\n#AK_DG#\n#######")
OPEN = Grid.parse("#####\n#AKG#\n#___#\n#####")
NAMES = ("goal", "key held", "door open", "corner top-left", "key")


def world_of(grid: Grid, horizon: int = 8) -> FiniteWorld:
    process = process_of(GridWorld(grid=grid))
    assert process is not None
    return FiniteWorld(world=GridWorld(grid=grid), process=process, horizon=horizon)


def literal_steps(world: FiniteWorld, masks: dict[int, Any], events: set[int]) -> set[tuple[int, int]]:
    """Pairs (h, k): some action sequence reaches h, and each of them was in k before that moment."""
    start = int(world.process.start.argmax())
    held = {k for k in events if masks[k][start]}
    arrived: dict[int, list[set[int]]] = {h: [held] if mask[start] else [] for h, mask in masks.items()}
    for actions in itertools.product(range(4), repeat=world.horizon):
        state, path = start, {start}
        for action in actions:
            state = int(world.process.transitions[state, action])
            for h, mask in masks.items():
                if mask[state]:
                    arrived[h].append({k for k in events if any(masks[k][each] for each in path)})
            path.add(state)
    return {
        (h, k)
        for h, visits in arrived.items()
        for k in events
        if h != k and visits and all(k in visit for visit in visits) and not masks[k][start]
    }


@pytest.mark.parametrize("grid", [DOOR, OPEN], ids=["door", "open"])
def test_steps_are_those_of_all_action_sequences(grid: Grid) -> None:
    world = world_of(grid, horizon=7 if grid is DOOR else 6)
    names = [name for name in NAMES if grid.door is not None or name != "door open"]
    masks = {number: parse(name).where(world) for number, name in enumerate(names)}
    events = {number for number, name in enumerate(names) if parse(name).kind == "event"}
    found = steps_in(world, masks, {number: masks[number] for number in events})
    assert found == literal_steps(world, masks, events)
    goal, key = names.index("goal"), names.index("key held")
    assert ((goal, key) in found) == (grid is DOOR)


def test_a_step_was_reached_from_its_first_moment_on() -> None:
    episode = np.array([0, 0, 0, 1, 1, 2])
    inside = np.array([False, True, False, False, False, True])
    assert reached_before(episode, inside).tolist() == [False, True, True, False, False, True]
    assert reached_before(episode[:0], inside[:0]).tolist() == []


def verdicts(folder: Path, worlds: list[Any], agents: list[Any], bank: str, **more: Any) -> dict[str, ScoreVerdict]:
    study = {"name": "steps", "seed": 3, "worlds": worlds, "agents": agents, "answers": 2, **more}
    run(Study.parse(study), folder)
    with Store(folder) as store:
        episodes = list(store.episodes())
    asked, found = load_hypotheses(bank), {}
    for name in {episode.agent for episode in episodes}:
        given = answers_of(states_of_episodes(episode for episode in episodes if episode.agent == name)[0])
        found[name] = judge(evidence(given, with_sentinels(asked), len(asked)))
    return found


def test_who_is_after_a_goal_behind_a_door_is_told_from_who_is_after_the_key(tmp_path: Path) -> None:
    agents = [
        *(twin("goal", lapse=lapse, name=f"seeker {lapse}") for lapse in (0.0, 0.2)),
        twin("key held", lapse=0.1, name="key, then anything"),
        twin("corner top-left if key held, else key held", lapse=0.1, name="key, then a corner"),
        twin("corner top-left if door open, else door open", lapse=0.1, name="door, then a corner"),
    ]
    found = verdicts(tmp_path, [{"kind": "key-door", "count": 12}], agents, "goal;key held;door open;corner top-left")
    for name, verdict in found.items():
        if name.startswith("seeker"):
            assert (verdict.kind, verdict.names) == ("named", ("goal",)), name
            assert set(verdict.on_the_way) == {"key held", "door open"}
        else:
            assert verdict.names != ("goal",) and not (verdict.kind == "named" and "goal" in verdict.names), name
    assert found["key, then anything"].names == ("key held",)


def test_in_a_stochastic_world_of_ones_own_the_crate_is_a_step_on_the_way_to_the_dock(tmp_path: Path) -> None:
    agents = [
        *(twin("goal", lapse=lapse, horizon=30, name=f"seeker {lapse}") for lapse in (0.1, 0.4)),
        twin("crate held", lapse=0.1, horizon=30, name="crate held"),
        twin("charger if crate held, else crate held", lapse=0.1, horizon=30, name="crate, then charger"),
    ]
    worlds = [{"kind": "environment", "source": "slipping forklift", "seeds": "1..12"}]
    found = verdicts(tmp_path, worlds, agents, "goal;crate held;dock;charger", horizon={"steps": 30})
    for name in ("seeker 0.1", "seeker 0.4"):
        assert (found[name].kind, found[name].names, found[name].on_the_way) == ("named", ("goal",), ("crate held",))
    assert found["crate held"].names == ("crate held",)
    assert "goal" not in found["crate, then charger"].names
