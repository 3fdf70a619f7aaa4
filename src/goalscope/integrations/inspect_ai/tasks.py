"""Tasks of Inspect: the agent that plays an episode, its scorer, and the tasks that are registered with Inspect.

The agent uses goalscope's prompts and parser with the model that Inspect calls. The solver observes, calls the model,
parses the answer and acts, as in ``inspect eval goalscope/grids -T sizes=7,9 --model goalscope/theseus``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import GenerateConfig, ModelOutput, get_model
from inspect_ai.model import Model as InspectModel
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from goalscope._ground import registry
from goalscope._ground.untrusted import UntrustedError
from goalscope.agents.agent import CHAT, TASK_CHAT, History, Observation, agent_id, check_fits
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.models.base import AskedElsewhere, Model, Sampling, check_type
from goalscope.agents.parse import turn
from goalscope.integrations.inspect_ai.provider import (
    GoalscopeAPI,
    body_of,
    read_config,
    read_output,
    write_config,
    write_messages,
)
from goalscope.integrations.inspect_ai.record import CLUSTER, KEY, VERSION, EpisodeRecord, SampleRecord, metadata_of
from goalscope.measures.behaviour import measure_episodes
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode, EpisodeSpec, Step
from goalscope.runs.study import FailurePolicy, Study, write_rules
from goalscope.verdict.preflight import study_files
from goalscope.worlds.world import World

MEASURES: Final = ("success", "action accuracy", "invalid turns")
TASK_MEASURES: Final = ("success", "exploration error", "exploitation error", "invalid actions")
"""The measures that a log shows; all others are computed after an import."""

_KINDS: Final[Mapping[str, type[ChatAgent]]] = {CHAT: ChatAgent, TASK_CHAT: TaskChatAgent}
_TYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("task", "template", "wording", "encoding", "name", "history", "strategy"), str),
    **dict.fromkeys(("reasoned", "memory"), bool),
}
_SAMPLING: Final = frozenset(entry.name for entry in fields(Sampling))


def asked_model(model: InspectModel) -> Model:
    """Return the goalscope model that an Inspect model stands for; a placeholder if another provider offers the
    model.
    """
    return model.api.asked if isinstance(model.api, GoalscopeAPI) else AskedElsewhere(str(model), "inspect")


def split_parameters(kind: str, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], Sampling]:
    """Split the parameters of a study's chat agent into those of its prompt and its sampling settings.

    Parameters of the model are dropped, because Inspect chooses the model.

    Args:
        kind: "chat" or "task-chat".
        parameters: the parameters as in a study.

    Raises:
        ValueError: another kind of agent, a value of the wrong type or out of range, or an agent that chooses actions
            by likelihood, which Inspect does not support.
    """
    if kind not in _KINDS:
        raise ValueError(
            f"the agent of an Inspect task must be of kind {' or '.join(_KINDS)}, got {kind!r}: set kind "
            "to one of these"
        )
    if parameters.get("answer", "generated") != "generated":
        raise ValueError(
            "answer: likelihood is not possible in an Inspect task, because Inspect cannot ask for "
            "likelihoods: leave answer out, or use goalscope run"
        )
    accepted = {entry.name for entry in fields(_KINDS[kind]) if entry.init} & set(_TYPES)
    own_parameters = {name: value for name, value in parameters.items() if name in accepted}
    for name, value in own_parameters.items():
        check_type(name, value, _TYPES[name])
    return own_parameters, Sampling(**{name: value for name, value in parameters.items() if name in _SAMPLING})


@solver(name="episode")
def play(
    kind: str = CHAT,
    agent: Mapping[str, Any] | None = None,
    history: History = "none",
    failure: Mapping[str, Any] | None = None,
) -> Solver:
    """Solver of Inspect that plays the episode of a sample: it prompts the model in the sample's world until the end.

    Args:
        kind: "chat" or "task-chat".
        agent: parameters of the agent as in a study, except those of its model.
        history: what the agent is shown of earlier steps, unless ``agent`` contains history.
        failure: treatment of a turn without an action, as in a study.
    """
    own_parameters, sampling = split_parameters(kind, agent or {})
    policy = FailurePolicy.model_validate(dict(failure or {}))
    agents: dict[int, tuple[InspectModel, ChatAgent]] = {}

    def acting(model: InspectModel) -> ChatAgent:
        # The description hashes the files of the model, so compute it once and not per sample.
        if id(model) not in agents:
            settings = read_config(model.config, sampling)
            agents[id(model)] = model, _KINDS[kind](model=asked_model(model), sampling=settings, **own_parameters)
        return agents[id(model)][1]

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        player = acting(model)
        sample = SampleRecord.read((state.metadata or {}).get(KEY), "metadata")
        world = sample.begin()
        check_fits(player, world.view)
        history_shown = player.history or history
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=agent_id(player),
            trajectory=state.epoch - 1,
            seed=sample.seed,
            horizon=sample.horizon,
            rules=write_rules(history_shown, policy),
        )
        live, turns = LiveEpisode(spec, world, None, history_shown, policy), list[str]()
        state.messages = []
        try:
            while live.outcome is None:
                observation = live.observe()
                output = await _ask(model, player, observation, state)
                live.apply(turn(read_output(output), observation.view.actions))
                turns.append(_message_id(output))
        finally:  # a limit of Inspect may end the episode at any point
            live.outcome = live.outcome or "stopped"  # an episode that is not over is recorded as stopped
            episode = live.record(player.name, player.tags)
            state.store.set(KEY, EpisodeRecord.of(episode, dict(player.describe()), turns).plain())
        return state

    return solve


async def _ask(model: InspectModel, player: ChatAgent, observation: Observation, state: TaskState) -> ModelOutput:
    """Ask the model about an observation, and add the question and the answer to the messages of the sample."""
    request = player.request(observation)
    messages = write_messages(request.messages)
    is_ours = isinstance(model.api, GoalscopeAPI)
    output = await model.generate(messages, config=GenerateConfig(extra_body=body_of(request) if is_ours else None))
    _check_settings(player.sampling)
    state.output = output
    if observation.history_as in ("conversation", "reasoning"):
        state.messages = [*messages, output.message]
    else:
        state.messages = [*state.messages, *messages, output.message]
    return output


def _check_settings(assumed: Sampling) -> None:
    """Raise a ValueError if Inspect called the model with settings other than those in the agent's id."""
    called = next(event for event in reversed(transcript().events) if isinstance(event, ModelEvent))
    config = read_config(called.config)
    if config != assumed:
        raise ValueError(
            f"the model was called with {config}, but its agent has {assumed}: give the settings on the "
            "command line (--temperature 0), or pass the model to eval() by name if you call it with "
            "settings"
        )


def _message_id(output: ModelOutput) -> str:
    identity: str | None = output.message.id
    if identity is None:
        raise ValueError(
            "a message of the model has no id, but the log is read by these ids: use a model provider "
            "that sets message ids"
        )
    return identity


@scorer(metrics={"*": [mean(), stderr(cluster=CLUSTER)]}, name="episode_measures")
def episode_measures() -> Scorer:
    """Scorer of Inspect with goalscope's measures of an episode (such as success), and standard errors over clusters of
    worlds.
    """

    async def score(state: TaskState, target: Target) -> Score:
        stored = state.store.get(KEY, None)
        if stored is None:
            return Score.unscored("the sample holds no episode: it ended before its first turn")
        sample = SampleRecord.read(state.metadata.get(KEY), "metadata")
        record = EpisodeRecord.read(stored, "store")
        return score_of(recorded_episode(sample, record))

    return score


def score_of(episode: Episode) -> Score:
    """Compute the Inspect score of an episode: the value of each of goalscope's measures.

    A measure without a value is NaN, which Inspect ignores.
    """
    names = TASK_MEASURES if "tasks" in episode.world.offers else MEASURES
    rows = measure_episodes([episode], [registry.resolve("measure", name) for name in names])
    by_measure = dict(zip(rows.measure.tolist(), rows.value.tolist(), strict=True))
    value: dict[str, Any] = {name: float(by_measure.get(name, math.nan)) for name in names}
    return Score(value=value, answer=episode.outcome, explanation=_in_words(episode))


def recorded_episode(sample: SampleRecord, record: EpisodeRecord) -> Episode:
    """Rebuild an episode, without its texts, from the records of its conditions and of what was played.

    Raises:
        UntrustedError: the record does not describe an episode.
    """
    world = sample.begin()
    try:
        steps = tuple(
            Step(index=index, state=world.check_state(tuple(state)), action=_action(world, action), failure=failure)
            for index, (state, action, failure) in enumerate(record.steps)
        )
        return Episode(
            spec=record.spec(sample),
            world=world,
            agent=record.agent,
            steps=steps,
            final=world.check_state(tuple(record.final)),
            outcome=record.outcome,
            tags=record.tags,
        )
    except ValueError as error:
        raise UntrustedError(str(error).split("\n", 1)[0], where="store") from error


def _action(world: World, action: int | None) -> Any:
    return None if action is None else world.action(action)


def _in_words(episode: Episode) -> str:
    names = [step.failure or getattr(step.action, "name", f"{step.action}") for step in episode.steps]
    return f"{episode.outcome} after {len(names)} of at most {episode.spec.horizon} steps: {', '.join(names)}"


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
    """Task of Inspect: walk from the start to the goal of generated grids.

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
    """Task of Inspect: explore task maps, in which nodes must be achieved in an order that is unknown at first.

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
    """Task of Inspect: win generated TextWorld games (extra ``textworld``).

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
    """Task of Inspect with the worlds, rules and prompts of a goalscope study, for any model that Inspect calls.

    Args:
        path: a study file, or the name of a shipped study.
        agent: name of the chat agent whose prompt and sampling are used; needed if the study has several.
    """
    loaded = study_files.load(path)
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
    """Build an Inspect task with a study's worlds and rules.

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
    """Build the Inspect sample in which an episode is played in a world; its metadata have the world, its tags and
    cluster.

    ``horizon`` is the maximum number of actions.
    """
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
