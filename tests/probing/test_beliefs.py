"""Actions against decoded beliefs: known answers, and a literal version of every number."""

import itertools
from typing import Any

import numpy as np
import pytest
from believed import FRAME, certain, decide, literal_optimal, random_posterior, rooms

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    CLASSES,
    GOAL,
    OPEN,
    belief_rows,
    decisions_at,
    label_cells,
    place_weights,
    read_beliefs,
)
from goalscope.inside.probing import beliefs as module
from goalscope.inside.probing.beliefs import top_name
from goalscope.inside.probing.labels import NO_ACTION
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows


def values(rows: Rows, measure: str) -> dict[str, float]:
    kept = rows.select(measure=measure)
    assert len(kept), measure
    return dict(zip(kept.cluster.tolist(), kept.value.tolist(), strict=True))


def mean(rows: Rows, measure: str) -> float:
    return float(np.nanmean(list(values(rows, measure).values())))


def every(rows: Rows, measure: str, wanted: float) -> bool:
    return bool(np.allclose(list(values(rows, measure).values()), wanted, equal_nan=True))


def moved_goals(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same states with the goal believed elsewhere, where no optimal action stays optimal."""
    kept = []
    for flat in labels:
        grid = flat.reshape(FRAME, FRAME)
        here, agent = (tuple(np.argwhere(grid == label)[0]) for label in (GOAL, AGENT))
        closed = ~np.isin(grid, (OPEN, GOAL, AGENT))
        true = literal_optimal(closed, agent, here)
        for cell in map(tuple, np.argwhere(grid == OPEN)):
            believed = literal_optimal(closed, agent, cell)
            if believed and not believed & true:
                other = grid.copy()
                other[here], other[cell] = OPEN, GOAL
                kept.append((flat, other.ravel()))
                break
    return np.array(kept)


def test_beliefs_that_are_true_agree_everywhere() -> None:
    labels = rooms(40)
    decisions = decide(labels, stream(0, "moves").integers(0, 4, 40), np.arange(40) // 2)
    rows = belief_rows(read_beliefs(certain(labels)), decisions)
    assert every(rows, module.OVERLAP, 1.0)
    assert every(rows, module.VERDICT, 1.0)
    assert every(rows, module.NO_PLAN, 0.0)
    accuracy = values(rows, module.TRUTH)
    for name in (module.DECODED, module.BOTH, module.EXPECTED, top_name(1)):
        assert values(rows, name) == pytest.approx(accuracy)
    assert 0 < mean(rows, module.TRUTH) < 1
    # An action that is wrong in truth is wrong on the map: nothing is recovered, either way.
    for name in (module.RECOVERY, module.INVERSE):
        found = values(rows, name)
        assert {grid: value for grid, value in found.items() if value == value} == {
            grid: 0.0 for grid, share in accuracy.items() if share < 1
        }
    for who in ("agent", "goal"):
        assert every(rows, f"decoded {who} at its cell", 1.0)
        assert every(rows, f"decoded {who}'s distance", 0.0)


def test_an_agent_that_follows_a_wrong_belief_is_recovered() -> None:
    true, believed = moved_goals(rooms(60)).transpose(1, 0, 2)
    assert len(true) > 30
    wrong = read_beliefs(certain(believed))
    decisions = decide(true, wrong.optimal.argmax(axis=1), np.arange(len(true)))
    rows = belief_rows(wrong, decisions)
    assert every(rows, module.TRUTH, 0.0)
    assert every(rows, module.DECODED, 1.0)
    assert every(rows, module.RECOVERY, 1.0)
    assert every(rows, module.OVERLAP, 0.0)
    assert every(rows, module.BOTH, 0.0)
    assert every(rows, module.VERDICT, 0.0)
    assert every(rows, module.INVERSE, np.nan)  # no action is wrong on the map
    assert every(rows, "decoded agent at its cell", 1.0)
    assert every(rows, "decoded goal at its cell", 0.0)
    difference = estimate_rows(rows.select(measure=module.RECOVERY + module.DIFFERENCE), by=("agent",))[0].estimate
    assert difference.low > 0.2
    # The same agent read by a truthful map: nothing explains its actions.
    truthful = belief_rows(read_beliefs(certain(true)), decisions)
    assert every(truthful, module.RECOVERY, 0.0)


def test_beliefs_that_are_noise_recover_no_more_than_those_of_other_states() -> None:
    labels = rooms(300, seed=4)
    decisions = decide(labels, stream(1, "moves").integers(0, 4, 300), np.arange(300) // 3)
    rows = belief_rows(read_beliefs(random_posterior(300, FRAME, FRAME, seed=9)), decisions)
    assert mean(rows, module.RECOVERY) > 0.1  # by chance alone
    checked = 0
    for name in (module.RECOVERY, module.DECODED, module.OVERLAP, module.EXPECTED, top_name(3), top_name(10)):
        (found,) = estimate_rows(rows.select(measure=name + module.DIFFERENCE), by=("agent",))
        checked += found.estimate.low <= 0 <= found.estimate.high
    assert checked >= 5


def test_a_map_without_a_plan_counts_as_wrong() -> None:
    labels = rooms(2)
    posterior = certain(labels).copy()
    cell = tuple(np.argwhere(labels[0].reshape(FRAME, FRAME) == AGENT)[0])
    posterior[0, ..., GOAL] = 0
    posterior[0] /= np.maximum(posterior[0].sum(axis=-1, keepdims=True), 1e-9)
    posterior[0][posterior[0].sum(axis=-1) == 0] = np.eye(len(CLASSES))[OPEN]
    posterior[0][cell] = [0.5, 0.5, 0, 0, 0]  # the goal on the agent's own cell
    decisions = decide(labels, None, [0, 0])
    beliefs = read_beliefs(posterior)
    assert beliefs.optimal.any(axis=1).tolist() == [False, True]
    rows = belief_rows(beliefs, decisions)
    assert every(rows, module.NO_PLAN, 0.5)
    assert every(rows, module.DECODED, 0.5)
    assert every(rows, module.INVERSE, 1.0)
    assert every(rows, "actions wrong on the decoded map", 1.0)


def literal(posterior: Any, decisions: Any, index: int, tops: tuple[int, ...]) -> dict[str, tuple[float, float]]:
    """All shares of one step, read by the map of a posterior ``[H, W, K]``, pair by pair: above and below the line."""
    height, width = posterior.shape[:2]
    cells = list(itertools.product(range(height), range(width)))
    closed = np.array([[max(range(5), key=cell.__getitem__) in (2, 4) for cell in row] for row in posterior])

    def by_probability(label: int) -> list[tuple[int, int]]:
        return sorted(cells, key=lambda cell: -posterior[cell][label])

    ranked = [by_probability(label) for label in (AGENT, GOAL)]
    best = literal_optimal(closed, ranked[0][0], ranked[1][0])
    action = int(decisions.action[index])
    true = set(np.flatnonzero(decisions.optimal[index]).tolist())
    right, decoded = action in true, action in best
    found: dict[str, tuple[float, float]] = {
        module.DECODED: (decoded, 1),
        module.OVERLAP: (bool(best & true), 1),
        module.BOTH: (right and decoded, 1),
        module.VERDICT: (right == decoded, 1),
        module.RECOVERY: (decoded and not right, not right),
        module.INVERSE: (right and not decoded, not decoded),
        module.NO_PLAN: (not best, 1),
    }
    for top in tops:
        pairs = itertools.product(ranked[0][:top], ranked[1][:top])
        found[top_name(top)] = (any(action in literal_optimal(closed, *pair) for pair in pairs), 1)
    agent, goal = (place_weights(posterior[None], label)[0].reshape(height, width) for label in (AGENT, GOAL))
    expected = sum(
        agent[one] * goal[other] for one in cells for other in cells if action in literal_optimal(closed, one, other)
    )
    found[module.EXPECTED] = (float(expected), 1)
    return found


def test_every_share_and_its_control_agree_with_a_literal_version() -> None:
    # Small frames, so that all pairs of cells can be gone through one by one.
    rng = stream(7, "literal")
    count = 12
    posterior = random_posterior(count, 3, 3, seed=5)
    labels = rooms(count, seed=8)
    grid = np.array([0, 0, 1, 1, 1, 2, 3, 3, 4, 5, 5, 5])
    density = np.array([0.0] * 6 + [1.0] * 3 + [np.nan] * 3)
    decisions = decide(labels, rng.integers(0, 4, count), grid, density=density)
    tops = (1, 2, 4)
    rows = belief_rows(read_beliefs(posterior, tops=tops), decisions)
    kind = [0] * 6 + [1] * 3 + [2] * 3
    alone = 0
    for group in sorted(set(zip(kind, grid.tolist(), strict=True))):
        mine = [at for at in range(count) if (kind[at], grid[at]) == group]
        others = [at for at in range(count) if kind[at] == group[0] and grid[at] != group[1]]
        kept = rows.where(
            (rows.cluster == str(group[1]))
            & np.array([d == {0: 0.0, 1: 1.0, 2: None}[group[0]] for d in rows["density"]])
        )
        own = [literal(posterior[at], decisions, at, tops) for at in mine]
        mixed = [literal(posterior[other], decisions, at, tops) for at in mine for other in others]
        # Grids weigh alike, however many states they have.
        weights = [1 / int((grid == grid[other]).sum()) for _ in mine for other in others]
        alone += not others
        for name in own[0]:
            for suffix, steps, share in (("", own, [1.0] * len(own)), (module.SHUFFLED, mixed, weights)):
                above, below = (
                    sum(weight * step[name][part] for weight, step in zip(share, steps, strict=True)) for part in (0, 1)
                )
                (value,) = kept.value[kept.measure == name + suffix]
                assert value == pytest.approx(above / below if below else np.nan, nan_ok=True), name + suffix
    assert alone == 1  # grid 5 has no other of its density: its control is undefined


def test_turns_without_an_action_are_counted_and_enter_nothing_else() -> None:
    labels = rooms(6)
    decisions = decide(labels, None, [0, 0, 1, 1, 2, 2])
    some = decisions.action.copy()
    some[[0, 2, 3]] = NO_ACTION
    beliefs = read_beliefs(certain(labels))
    rows = belief_rows(beliefs, decide(labels, some, [0, 0, 1, 1, 2, 2]))
    assert values(rows, "turns without an action") == {"0": 1, "1": 2, "2": 0}
    assert values(rows, "actions") == {"0": 1, "1": 0, "2": 2}
    assert values(rows, module.DECODED) == pytest.approx({"0": 1.0, "1": np.nan, "2": 1.0}, nan_ok=True)


def test_tags_are_kept_and_sizes_and_densities_told() -> None:
    labels = rooms(4)
    rows = belief_rows(read_beliefs(certain(labels)), decide(labels, None, range(4)), {"site": "pre", "layer": 3})
    assert set(rows["site"]) == {"pre"}
    assert set(rows["size"]) == {6}
    assert set(rows["density"]) == {0.5}
    assert set(rows["agent"]) == {"a"}


def test_other_numbers_of_steps_and_candidates_are_refused() -> None:
    labels = rooms(4)
    with pytest.raises(ValueError, match="got 4 and 3"):
        belief_rows(read_beliefs(certain(labels)), decide(labels[:3], None, range(3)))
    with pytest.raises(ValueError, match="tops"):
        read_beliefs(certain(labels), tops=(3, 1))


def test_decisions_of_recorded_episodes_are_those_of_the_measures(tmp_path: Any) -> None:
    from types import SimpleNamespace

    from goalscope.measures import StepTable
    from goalscope.runs import Store, Study, run

    study = Study.parse(
        {
            "name": "small",
            "seed": 5,
            "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.0, 1.0], "count": 2}],
            "agents": [{"kind": "epsilon-greedy", "epsilon": 0.5}],
        }
    )
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        episodes = list(store.episodes())
    table = StepTable.from_episodes(episodes)
    of = table.episode
    shape = np.array([(one.world.grid.height, one.world.grid.width) for one in episodes])[of]
    steps: Any = SimpleNamespace(
        episode_id=table.episode_id[of], step=table.step, cluster=table.cluster[of], shape=shape
    )
    steps = type("Steps", (SimpleNamespace,), {"__len__": lambda self: len(self.step)})(**vars(steps))
    cells = label_cells(steps, episodes, frame=FRAME)
    decisions = decisions_at(cells, episodes)
    assert np.array_equal(decisions.action, table.action)
    assert np.array_equal(decisions.optimal, table.optimal)
    assert np.array_equal(decisions.place, table.state[:, :2])
    rows = belief_rows(read_beliefs(certain(cells.labels)), decisions)
    assert every(rows, module.VERDICT, 1.0)
    assert every(rows, module.OVERLAP, 1.0)
    with pytest.raises(ValueError, match="missing"):
        decisions_at(cells, episodes[1:])
