"""The nine scripted agents: what each is for, what it may know, and the errors it must show."""

from itertools import pairwise

import pytest
from literal_tasks import literal_score
from played import play

from families import long_after
from goalscope.agents import (
    TASK_SCRIPTED,
    Agent,
    DepthFirst,
    ExploreFirst,
    Greedy,
    NoisyGreedy,
    Observation,
    RandomWalk,
    TaskOracle,
)
from goalscope.agents.scripted import FrontierOnly, Oscillator, ShortMemory
from goalscope.measures.exploration import estimate_errors, score_episode
from goalscope.worlds.tasks import (
    PRESETS,
    WIDE_COOKING,
    AgentKnowledge,
    TaskMap,
    TaskState,
    TaskView,
    cooking_map,
    generate_task_map,
    plan_task,
    task_spec,
)

DEMANDS, GRAPHS = ("low", "medium", "high"), ("small", "medium", "large")
AGENTS: tuple[Agent, ...] = (
    Greedy(),
    ExploreFirst(),
    DepthFirst(),
    NoisyGreedy(0.3),
    FrontierOnly(),
    ShortMemory(4),
    RandomWalk(),
    Oscillator(),
)


def maps(preset: str, count: int) -> list[TaskMap]:
    return [generate_task_map(preset, seed=seed) for seed in range(count)]


def check_free_of_error(agent: Agent, task_map: TaskMap) -> None:
    score = score_episode(task_map, play(task_map, agent).actions)
    summary = score.summary
    assert summary.exploration_errors == summary.exploitation_errors == summary.invalid_actions == 0
    assert summary.exploration_error == 0.0 and summary.exploitation_error in (0.0, None)
    assert not any(step.error or step.stale for step in score.steps)
    for step in score.steps[:: max(1, len(score.steps) // 5)]:
        assert step.action in step.free_moves


@pytest.mark.parametrize("agent", [Greedy(), ExploreFirst()], ids=lambda agent: agent.name)
def test_walks_along_shortest_paths_to_targets_have_no_error(agent: Agent) -> None:
    for seed in range(66):
        check_free_of_error(agent, generate_task_map(list(PRESETS)[seed % len(PRESETS)], seed=seed))


@pytest.mark.full
@pytest.mark.parametrize("agent", [Greedy(), ExploreFirst()], ids=lambda agent: agent.name)
def test_walks_along_shortest_paths_to_targets_have_no_error_on_a_thousand_maps(agent: Agent) -> None:
    for seed in range(1000):
        check_free_of_error(agent, generate_task_map(list(PRESETS)[seed % len(PRESETS)], seed=10_000 + seed))


def doses(preset: str, count: int) -> list[tuple[float, float]]:
    """Pooled exploration and exploitation error of noisy greedy agents, by dose."""
    worlds = maps(preset, count)
    found = []
    for epsilon in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        agent = NoisyGreedy(epsilon)
        summaries = [score_episode(world, play(world, agent).actions).summary for world in worlds]
        exploration, exploitation = estimate_errors(summaries, [world.id for world in worlds])
        found.append((exploration.pooled.value, exploitation.pooled.value))
    return found


@pytest.mark.parametrize("preset", long_after(1, ["10x10", "paper-low-large", "paper-medium-medium"]))
def test_noise_raises_the_exploration_error_monotonically(preset: str) -> None:
    curve = [exploration for exploration, _ in doses(preset, 20)]
    assert curve[0] == 0
    assert all(low < high for low, high in pairwise(curve))


@pytest.mark.full
def test_noise_raises_the_exploration_error_monotonically_on_many_maps() -> None:
    for preset in ("10x10", "paper-low-large"):
        curve = [exploration for exploration, _ in doses(preset, 200)]
        assert all(high - low > 0.01 for low, high in pairwise(curve))


def test_maps_of_the_papers_size_take_steps_of_the_papers_order() -> None:
    """Language models of the paper take 66 to 94 steps to a success, one printed run has a budget of 228."""
    worlds = [generate_task_map(f"paper-{d}-{g}", seed=seed) for d in DEMANDS for g in GRAPHS for seed in range(3)]
    steps = [len(play(world, Greedy()).actions) for world in worlds]
    noisy = [len(play(world, NoisyGreedy(0.3)).actions) for world in worlds]
    assert 40 < sum(steps) / 27 < 70 < 100 < sum(world.budget for world in worlds) / 27
    assert sum(steps) < sum(noisy) and max(world.budget for world in worlds) < 300
    kitchens = [len(play(cooking_map(name), Greedy()).actions) for name in WIDE_COOKING]
    assert 80 < sum(kitchens) / 4 < 143 < cooking_map("wide-berry-tart").budget


def test_random_walk_and_oscillator_show_the_errors_of_the_calibration() -> None:
    worlds = maps("10x10", 30)
    grids = [world.id for world in worlds]
    walk = [score_episode(world, play(world, RandomWalk()).actions).summary for world in worlds]
    exploration, exploitation = estimate_errors(walk, grids)
    assert 0.25 < exploration.pooled.value < 0.45 and 0.25 < exploitation.pooled.value < 0.45
    swing = [score_episode(world, play(world, Oscillator()).actions).summary for world in worlds]
    assert estimate_errors(swing, grids)[0].mean.value > 0.85
    assert all(summary.exploitation_error is None for summary in swing if summary.exploitation_steps == 0)


def test_one_sided_agents_show_one_sided_errors() -> None:
    worlds = maps("10x10", 20)
    grids = [world.id for world in worlds]
    frontier = [score_episode(world, play(world, FrontierOnly()).actions).summary for world in worlds]
    exploration, exploitation = estimate_errors(frontier, grids)
    assert exploration.pooled.value < 0.01 and exploitation.pooled.value > 0.3
    short = [score_episode(world, play(world, ShortMemory(4)).actions).summary for world in worlds]
    assert estimate_errors(short, grids)[0].pooled.value > 0.3


def test_the_oracle_walks_the_shortest_way() -> None:
    for world in maps("low-large", 10):
        episode = play(world, TaskOracle())
        assert episode.outcome == "goal" and len(episode.actions) == plan_task(world).length


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_episodes_repeat_and_obey_the_rules(agent: Agent) -> None:
    for seed, world in enumerate(maps("medium-large", 3)):
        episode = play(world, agent, seed=seed)
        assert episode == play(world, agent, seed=seed)
        assert len(episode.turns) == len(episode.actions) + 1 <= world.budget + 1
        score = score_episode(world, episode.actions)
        assert score.summary.outcome == episode.outcome and score.summary.invalid_actions == 0
        literal = literal_score(world, [action.name.lower() for action in episode.actions if action is not None])
        assert [step.error for step in literal] == [step.error for step in score.steps]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_agents_act_on_their_memory_alone(agent: Agent) -> None:
    """On two maps that look alike so far, whatever lies beyond, an agent does the same."""
    base = generate_task_map("10x10", seed=11)
    far = max(base.cells, key=lambda cell: abs(cell[0] - base.start[0]) + abs(cell[1] - base.start[1]))
    beyond = (far[0], far[1] + 1) if (far[0], far[1] + 1) not in base.cells else (far[0], far[1] - 1)
    other = TaskMap(
        cells=[*base.cells, *([] if beyond in base.cells else [beyond])],
        start=base.start,
        goal=base.goal,
        nodes=base.nodes,
        alpha=50,
    )
    worlds = [TaskState(base), TaskState(other)]
    memories = [AgentKnowledge(), AgentKnowledge()]
    for world, memory in zip(worlds, memories, strict=True):
        memory.add(world.report())
    for step in range(40):
        if memories[0].turns[-1] != memories[1].turns[-1] or worlds[0].ending:
            break
        first, second = (agent.act([Observation(view=TaskView(memory=memory), step=step)])[0] for memory in memories)
        assert first == second
        for world, memory in zip(worlds, memories, strict=True):
            world.move(first.action)
            memory.add(world.report(), first.action)
    else:
        step = 40
    assert step >= 5


def test_there_are_nine_agents_with_names_and_descriptions() -> None:
    assert len(TASK_SCRIPTED) == 9 and len({agent.name for agent in AGENTS}) == 8
    for agent in AGENTS:
        assert isinstance(agent, Agent) and not agent.journalled
        assert agent.describe()["kind"].startswith("task-")
    assert NoisyGreedy(0.3).describe() == {"kind": "task-noisy-greedy", "version": 1, "epsilon": 0.3}
    for broken in (-0.1, 1.5, True, "much"):
        with pytest.raises(ValueError, match="epsilon"):
            NoisyGreedy(broken)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="span"):
        ShortMemory(0)


def test_agents_whose_way_is_blocked_everywhere_else_still_move() -> None:
    """A corridor of two cells: nothing but there and back."""
    world = generate_task_map(task_spec("high", "small", nodes=2, size=(3, 1), alpha=4), seed=0)
    for agent in AGENTS:
        assert len(play(world, agent).actions) <= world.budget
