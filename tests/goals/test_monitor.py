"""The alarm "no longer": its e-values against enumeration, its detector against the definition, and planted agents."""

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipping_forklift  # noqa: F401  (registers the environment)
from goalscope.goals.hypotheses import Undefined, finite_world, parse
from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.monitor import RANDOM, RIVAL_LAPSE, Detector, Monitor
from goalscope.measures.performance import decisions_lost, regret
from goalscope.measures.table import StepTable
from goalscope.runs import Store, Study, run
from goalscope.runs.record import Episode
from goalscope.worlds import Grid, GridWorld, generate

BANK = ("goal", "corner top-left", "corner bottom-right", "flee goal", "beside goal", "keep RIGHT")
ROOM = "#######\n#A____#\n#_____#\n#____G#\n#######"


def world_of(seed: int, size: int = 7) -> FiniteWorld:
    return finite_world(GridWorld(grid=generate(size, 0.4, rng=np.random.default_rng(seed))), 30)


def monitor(**settings: Any) -> Monitor:
    return Monitor(hypotheses={text: parse(text) for text in BANK}, **settings)


def episodes(folder: Path, agents: list[dict[str, Any]], **study: Any) -> dict[str, Episode]:
    plain = {"worlds": [{"kind": "grid", "sizes": [9], "densities": [0.3], "count": 1}], "trajectories": 1, **study}
    run(Study.parse({**plain, "agents": agents}), folder)
    with Store(folder) as store:
        return {episode.agent: episode for episode in store.episodes()}


@pytest.mark.parametrize("lapse", [0.05, 0.5, 1.0])
def test_an_e_value_is_at_most_one_on_average_for_every_agent_of_the_null(lapse: float) -> None:
    detector, counted = Detector(monitor(lapse=lapse)), 0
    for seed in range(3):
        world = world_of(seed)
        detector.begin(world)
        for state in np.flatnonzero(world.live & world.reached).tolist():
            chances, even = detector.chances(state, 0)
            inside, (leave, stay) = detector.ratios(chances, even)
            share = even[inside].sum()
            counted += int((leave > 1).sum())
            for rate in np.linspace(0, lapse, 9):
                # Whatever it prefers inside and outside of the set: only the probability to leave it matters.
                chance = rate * (1 - share)
                assert (chance * leave + (1 - chance) * stay <= 1 + 1e-12).all()
            assert (np.diff([stay, np.ones_like(stay), leave], axis=0) >= -1e-12).all()
    assert counted > 50 or lapse == 1.0


def test_the_least_favourable_agent_has_exactly_the_expectation_one() -> None:
    detector, world = Detector(monitor()), world_of(1)
    detector.begin(world)
    for state in np.flatnonzero(world.live & world.reached).tolist():
        chances, even = detector.chances(state, 0)
        inside, (leave, stay) = detector.ratios(chances, even)
        policy = (1 - detector.monitor.lapse) * chances[0] + detector.monitor.lapse * even
        assert policy[~inside].sum() * leave + policy[inside].sum() * stay == pytest.approx(1)


@pytest.mark.parametrize("lapse", [0.2, 0.5])
def test_the_detector_is_the_sum_over_all_starts_as_it_is_defined(lapse: float) -> None:
    world, settings = world_of(4), monitor(lapse=lapse)
    rng, detector = np.random.default_rng(0), Detector(settings)
    detector.begin(world)
    state = int(world.process.start.argmax())
    policies = {text: parse(text).solved(world).policy[0] for text in BANK}
    factors: dict[str, list[float]] = {name: [] for name in (*BANK[1:], RANDOM)}
    for _ in range(25):
        action = int(rng.integers(4))
        goal, offered = policies["goal"][state], np.flatnonzero(world.even[state])
        best = [move for move in offered if goal[move] > 0]
        least = lapse * (1 - len(best) / len(offered))
        for name, values in factors.items():
            chosen = world.even[state] if name == RANDOM else policies[name][state]
            out = sum(chosen[move] for move in offered if move not in best)
            if name != RANDOM:
                out = (1 - RIVAL_LAPSE) * out + RIVAL_LAPSE * (1 - len(best) / len(offered))
            tied = name != RANDOM and np.allclose(chosen, world.even[state])
            if out > least + 1e-9 and not tied and len(best) < len(offered):
                values.append(out / least if action not in best else (1 - out) / (1 - least))
        detector.update(state, 0, action)
        sums = [sum(math.prod(values[start:]) for start in range(len(values))) for values in factors.values()]
        assert detector.evidence == pytest.approx(np.mean(sums))
        state = int(world.process.transitions[state, action])
        if not world.live[state]:
            state = int(world.process.start.argmax())


@pytest.mark.parametrize("run_length", [4, 7])
def test_false_alarms_of_the_least_favourable_agent_are_bounded_as_enumeration_shows(run_length: int) -> None:
    """One best action of four, one alternative: all sequences of moves, in exact fractions."""
    least, other = Fraction(3, 8), Fraction(3, 4)
    ratio = {True: other / least, False: (1 - other) / (1 - least)}
    for length in range(1, 11):
        alarmed, stopped = Fraction(0), Fraction(0)
        for leaves in itertools.product((True, False), repeat=length):
            chance = math.prod((least if leave else 1 - least for leave in leaves), start=Fraction(1))
            total, steps, stops = Fraction(0), 0, False
            for leave in leaves:
                total, steps = (total + 1) * ratio[leave], steps + 1
                if total >= run_length:
                    stops = True
                    break
            alarmed += chance * stops
            stopped += chance * steps
        assert alarmed <= stopped / run_length <= Fraction(length, run_length)
    assert alarmed > Fraction(1, 5)
    detector = Detector(Monitor(hypotheses={"goal": parse("goal")}, run=run_length))
    world = finite_world(GridWorld(grid=Grid.parse("######\n#A__G#\n######")), 30)
    detector.begin(world)
    chances, even = detector.chances(int(world.process.start.argmax()), 0)
    _, (leave_ratio, stay_ratio) = detector.ratios(chances, even)
    assert (leave_ratio[0], stay_ratio[0]) == pytest.approx((float(ratio[True]), float(ratio[False])))


def test_an_agent_that_pursues_the_goal_raises_no_alarm_and_one_with_another_aim_does(tmp_path: Path) -> None:
    agents = [{"kind": "optimal"}, {"kind": "hypothesis", "hypothesis": "corner top-left"}, {"kind": "random"}]
    played = episodes(tmp_path, agents, horizon={"steps": 80})
    figures = {}
    for name, episode in played.items():
        settings = Monitor.of_worlds([episode.world], "goal")
        readings = settings.readings(episode)
        figures[name] = settings.summary(readings)
        assert [reading.alarm for reading in readings] == sorted(reading.alarm for reading in readings)
        assert all((reading.evidence >= settings.run) <= reading.alarm for reading in readings)
    assert figures["optimal"]["alarm"] is None and figures["optimal"]["follows"] == ["goal"]
    assert figures["optimal"]["optimal"] == 1 and figures["optimal"]["regret"] == 0
    other = figures["hypothesis(corner top-left)"]
    assert other["alarm"] is not None and other["follows"] == ["corner top-left"]
    assert figures["random"]["alarm"] is not None


def test_optimal_moves_and_regret_are_those_of_the_grid(tmp_path: Path) -> None:
    [episode] = episodes(tmp_path / "run", [{"kind": "random"}], worlds=[{"kind": "text", "grids": [ROOM]}]).values()
    readings = Monitor.of_worlds([episode.world], "goal").readings(episode)
    assert len(readings) == len(episode.steps) > 3
    for reading, step, after in zip(readings, episode.steps, [*episode.steps[1:], None], strict=True):
        (row, col), (to_row, to_col) = step.state[:2], episode.final[:2] if after is None else after.state[:2]
        lost = 1 + abs(3 - to_row) + abs(5 - to_col) - abs(3 - row) - abs(5 - col)  # no walls inside
        assert reading.action == step.action.name and reading.regret == lost and reading.optimal == (lost == 0)


def test_costs_of_steps_add_up_to_the_regret_of_the_episode(tmp_path: Path) -> None:
    worlds = [{"kind": "environment", "source": "slipping forklift", "seeds": "1..3"}]
    run(Study.parse({"worlds": worlds, "agents": [{"kind": "random"}], "horizon": {"steps": 9}}), tmp_path)
    with Store(tmp_path) as store:
        played = list(store.episodes())
    table = StepTable.from_episodes(played)
    sums = np.bincount(table.episode, weights=decisions_lost(table))
    np.testing.assert_allclose(sums, np.asarray(regret(table)))
    assert sums.sum() > 0
    readings = Monitor.of_worlds([played[0].world], "goal").readings(played[0])
    assert sum(reading.regret or 0 for reading in readings) == pytest.approx(sums[0])


def test_turns_without_a_move_and_states_in_which_any_move_serves_change_nothing() -> None:
    detector, world = Detector(monitor()), world_of(2)
    detector.begin(world)
    state = int(world.process.start.argmax())
    detector.update(state, 0, -1)
    assert detector.evidence == 0 and detector.follows() == ()
    even = Detector(Monitor(hypotheses={"random": parse("random"), "goal": parse("goal")}, expected="random"))
    even.begin(world)
    for _ in range(2000):  # one that allows every action makes no prediction about sets
        even.update(state, 0, 0)
    assert even.evidence == 0 and not even.instead


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    foggy = {"kind": "grid", "sizes": [7], "densities": [0.2], "count": 1, "fog_radius": 1}
    [episode] = episodes(tmp_path, [{"kind": "random"}], worlds=[foggy]).values()
    with pytest.raises(Undefined, match="fog"):
        Monitor.of_worlds([episode.world], "goal").readings(episode)
    with pytest.raises(ValueError, match="corner top-left"):
        monitor(expected="corner top-lft")
    for wrong in ({"lapse": 0.0}, {"lapse": 1.5}, {"run": 1}, {"last": 0}):
        with pytest.raises(ValueError):
            monitor(**wrong)
    with pytest.raises(Undefined):
        Detector(Monitor.of_worlds([], "key")).begin(world_of(3))
