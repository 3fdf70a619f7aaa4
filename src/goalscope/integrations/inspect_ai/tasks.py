"""Tasks registered with Inspect, e.g. ``inspect eval goalscope/grids -T sizes=7,9 --model goalscope/theseus``."""

from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample

from goalscope._ground.checks import note_namesake
from goalscope._ground.folder import NamedFile
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.integrations.inspect_ai.episode import episode_measures, play, split_parameters
from goalscope.integrations.inspect_ai.provider import write_config
from goalscope.integrations.inspect_ai.record import VERSION, metadata_of
from goalscope.runs.study import Study
from goalscope.verdict.preflight import study_files
from goalscope.worlds.world import World

# Values from the command line: a single value, several values separated by commas, or a list.
Numbers = str | float | Sequence[str] | Sequence[float]
Texts = str | Sequence[str]


@task
def grids(
    sizes: Numbers = (7, 9, 11),
    densities: Numbers = (0.0, 0.3, 0.6),
    count: int = 10,
    trajectories: int = 1,
    horizon_factor: float = 1.5,
    seed: int = 0,
    fog_radius: int | None = None,
    transforms: Texts = "identity",
    history: str = "none",
    prompt: str = "",
    template: str = "",
) -> Task:
    """Task of walking from the start to the goal of generated grids.

    Args:
        sizes, densities: side lengths of the grids and shares of inner walls.
        count: number of grids per size and density.
        trajectories: number of episodes per grid (Inspect's epochs).
        horizon_factor: maximum number of actions, as a multiple of the shortest path.
        seed: root seed of the grids, of the examples in prompts and, for goalscope models, of sampling.
        fog_radius: how far the agent sees in cells; None for the whole grid.
        transforms: versions of each grid: identity, reflect, rotate, transpose, swap. All versions of a grid form one
            cluster.
        history: what is shown of earlier steps: none, actions, conversation, reasoning.
        prompt: "grid", "fog" or the path of a template; by default the prompt that fits ``fog_radius``.
        template: variant of the bundled template; by default the model's own.
    """
    entry: dict[str, Any] = {
        "kind": "grid",
        "sizes": [int(size) for size in _numbers("sizes", sizes)],
        "densities": _numbers("densities", densities),
        "count": count,
        "transforms": _texts(transforms),
        "fog_radius": fog_radius,
    }
    rules = {"horizon": {"factor": float(horizon_factor)}, "history": history, "trajectories": trajectories}
    prompt_name = prompt or ("grid" if fog_radius is None else "fog")
    return _task("grids", [entry], seed, rules, {"kind": CHAT, "task": prompt_name, "template": template})


@task
def task_maps(
    presets: Texts = "high-small",
    count: int = 10,
    trajectories: int = 1,
    seed: int = 0,
    strategy: str = "base",
    reasoned: bool = False,
    memory: bool = False,
    template: str = "",
) -> Task:
    """Task of exploration and exploitation on task maps, where nodes must be achieved in an order that is initially
    unknown.

    Args:
        presets: names of presets, see docs/exploration.md.
        count: number of maps per preset.
        trajectories: number of episodes per map (Inspect's epochs).
        seed: root seed.
        strategy, reasoned, memory, template: parameters of the agent ``task-chat``.
    """
    entry = {"kind": "task-map", "presets": _texts(presets), "count": count}
    agent = {"strategy": strategy, "reasoned": reasoned, "memory": memory, "template": template}
    return _task("task_maps", [entry], seed, {"trajectories": trajectories}, {"kind": TASK_CHAT, **agent})


@task
def textworld(
    rooms: int = 2,
    objects: int = 3,
    quest_length: int = 2,
    seeds: Numbers = (1, 2, 3),
    trajectories: int = 1,
    horizon_factor: float = 1.5,
    history: str = "none",
    template: str = "",
) -> Task:
    """Task of winning generated TextWorld games (extra ``textworld``).

    Args:
        rooms, objects, quest_length: size of each game.
        seeds: seeds of the games, one per game.
        trajectories: number of episodes per game (Inspect's epochs).
        horizon_factor: maximum number of actions, as a multiple of the shortest solution.
        history: what is shown of earlier steps: none, actions, conversation, reasoning.
        template: variant of the bundled template; by default the model's own.
    """
    entry = {
        "kind": "textworld",
        "rooms": rooms,
        "objects": objects,
        "quest_length": quest_length,
        "seeds": [int(game_seed) for game_seed in _numbers("seeds", seeds)],
    }
    rules = {"horizon": {"factor": float(horizon_factor)}, "history": history, "trajectories": trajectories}
    return _task("textworld", [entry], 0, rules, {"kind": CHAT, "task": "text", "template": template})


@task
def study(path: str, agent: str | None = None) -> Task:
    """Task with the worlds, rules and prompts of a study, for any model that Inspect calls.

    Args:
        path: a study file, or the name of a shipped study.
        agent: name of the chat agent whose prompt and sampling are used; needed if the study has several.
    """
    if shipped := path in study_files.names():
        note_namesake(path, "study")
    is_own = not shipped and NamedFile(path).is_there()
    loaded = Study.load(path) if is_own else Study.parse(read_yaml_text(study_files.text(path), path))
    entries = [chat_agent for chat_agent in loaded.agents_ if chat_agent.kind in (CHAT, TASK_CHAT)]
    names = {chat_agent.build().name: chat_agent for chat_agent in entries}
    if agent is not None and agent not in names:
        raise ValueError(
            f"agent must be a chat agent of the study ({', '.join(names)}), got {agent!r}: set agent to "
            "one of these names"
        )
    if agent is None and len(names) != 1:
        raise ValueError(
            f"the study must have exactly one chat agent, got {', '.join(names) or 'none'}: choose one with agent=NAME"
        )
    entry = names[agent] if agent is not None else entries[0]
    failure = entry.failure or loaded.failure
    return study_task(loaded.name, loaded, entry.kind, entry.parameters, failure.model_dump())


def study_task(
    name: str, study: Study, kind: str, parameters: Mapping[str, Any], failure: Mapping[str, Any] | None = None
) -> Task:
    """Build the task with a study's worlds and rules.

    Args:
        name: name of the data set.
        study: the study that gives worlds, trajectories, horizon, history and failures; its agents are not used.
        kind: "chat" or "task-chat".
        parameters: parameters of the agent as in a study.
        failure: treatment of turns without an action; None to use the study's.
    """
    own_parameters, sampling = split_parameters(kind, parameters)
    policy = dict(study.failure.model_dump() if failure is None else failure)
    return Task(
        dataset=MemoryDataset(
            [sample_of(world, seed=study.seed, horizon=study.horizon.of(world)) for world in study.worlds()], name=name
        ),
        solver=play(kind=kind, agent={**own_parameters, **sampling.describe()}, history=study.history, failure=policy),
        scorer=episode_measures(),
        epochs=study.trajectories,
        config=write_config(sampling),
        version=VERSION,
    )


def sample_of(world: World, *, seed: int, horizon: int) -> Sample:
    """Build the sample of a world, with its tags and cluster in the metadata."""
    text = world.begin_episode(seed, "sample").view.text
    return Sample(id=world.id, input=text, target="goal", metadata=metadata_of(world, seed=seed, horizon=horizon))


def _task(name: str, worlds: list[dict[str, Any]], seed: int, rules: Mapping[str, Any], agent: dict[str, Any]) -> Task:
    kind = agent.pop("kind")
    # A study must have an agent; Inspect's model takes its place.
    stand_in = {CHAT: {"kind": "random"}, TASK_CHAT: {"kind": "task-random-walk"}}[kind]
    study = Study.parse({"name": name, "seed": seed, "worlds": worlds, "agents": [stand_in], **rules})
    return study_task(name, study, kind, agent)


def _texts(values: Texts) -> list[str]:
    return values.split(",") if isinstance(values, str) else [str(value) for value in values]


def _numbers(name: str, values: Any) -> list[float]:
    items = (
        values.split(",") if isinstance(values, str) else [values] if isinstance(values, int | float) else list(values)
    )
    try:
        return [float(item) for item in items]
    except ValueError:
        raise ValueError(f"{name} must be numbers separated by commas, e.g. {name}=7,9, got {values!r}") from None
