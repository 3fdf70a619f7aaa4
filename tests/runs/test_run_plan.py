"""The plan of a run: what is specified and not stored, in order, in a few bytes an episode."""

import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

from goalscope.agents import Agent
from goalscope.runs import Store, Study, StudyShard, run
from goalscope.runs.runner import RunPlan


def study(trajectories: int) -> Study:
    mapping: dict[str, Any] = {
        "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.0], "count": 2}],
        "agents": [{"kind": "optimal"}, {"kind": "random"}],
        "trajectories": trajectories,
    }
    return Study.parse(mapping)


def steps(agent: Agent) -> float:
    return 1.0 if agent.name == "optimal" else 0.5


def test_a_plan_holds_what_is_specified_and_not_stored_in_order(tmp_path: Path) -> None:
    few, many = study(2), study(3)
    agents = many.agents()
    run(few, tmp_path / "few")
    for shard in (None, StudyShard(2, 3)):
        with Store(tmp_path / "few") as store:
            stored = store.episode_ids()
            plan = RunPlan(many, agents, shard, store, steps)
        every = list(many.specs(agents))
        every = every if shard is None else list(shard.part(every, many.trajectories))
        left = [item for item in every if item[0].id not in stored]
        assert len(left) < len(every) == plan.total and plan.reused == len(every) - len(left)
        assert [spec.id for spec, _, _ in plan] == [spec.id for spec, _, _ in left] == [one[0].id for one in plan]
        assert plan.work == sum(spec.horizon * steps(agent) for spec, _, agent in left)


def test_a_plan_of_many_episodes_takes_few_bytes_each(tmp_path: Path) -> None:
    large = study(5_000)
    agents = large.agents()
    with Store(tmp_path, "w") as store:
        list(large.specs(agents[:1]))  # worlds and their shortest paths
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        plan = RunPlan(large, agents, None, store, steps)
        kept = tracemalloc.get_traced_memory()[0] - before
        assert len(list(islice(plan, 3))) == 3 and plan.total == 40_000
        tracemalloc.stop()
    assert kept < 5 * plan.total
