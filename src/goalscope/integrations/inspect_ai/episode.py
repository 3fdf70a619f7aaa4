"""Episodes in Inspect: the chat agent of a task, the solver that plays an episode, and its scorer.

The agent uses goalscope's prompts and parser with the model that Inspect calls. The solver observes, calls the model,
parses the answer and acts.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

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
from goalscope.integrations.inspect_ai.provider import GoalscopeAPI, body_of, read_config, read_output, write_messages
from goalscope.integrations.inspect_ai.record import CLUSTER, KEY, EpisodeRecord, SampleRecord
from goalscope.measures.behaviour import measure_episodes
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode, EpisodeSpec, Step
from goalscope.runs.study import FailurePolicy, write_rules
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
    """Return the goalscope model behind an Inspect model, or a placeholder if it is another provider's."""
    return model.api.asked if isinstance(model.api, GoalscopeAPI) else AskedElsewhere(str(model), "inspect")


def split_parameters(kind: str, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], Sampling]:
    """Split the study's parameters of a chat agent into prompt parameters and sampling settings.

    Parameters of the model are dropped, because Inspect chooses the model.

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
    """Play the episode of a sample.

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
    """Score an episode by goalscope's measures, with standard errors over the clusters of worlds."""

    async def score(state: TaskState, target: Target) -> Score:
        stored = state.store.get(KEY, None)
        if stored is None:
            return Score.unscored("the sample holds no episode: it ended before its first turn")
        sample = SampleRecord.read(state.metadata.get(KEY), "metadata")
        record = EpisodeRecord.read(stored, "store")
        return score_of(recorded_episode(sample, record))

    return score


def score_of(episode: Episode) -> Score:
    """Compute the score of an episode. A measure without a value is NaN, which Inspect ignores."""
    names = TASK_MEASURES if "tasks" in episode.world.offers else MEASURES
    rows = measure_episodes([episode], [registry.resolve("measure", name) for name in names])
    by_measure = dict(zip(rows.measure.tolist(), rows.value.tolist(), strict=True))
    value: dict[str, Any] = {name: float(by_measure.get(name, math.nan)) for name in names}
    return Score(value=value, answer=episode.outcome, explanation=_in_words(episode))


def recorded_episode(sample: SampleRecord, record: EpisodeRecord) -> Episode:
    """Rebuild the episode of a log record, without its texts.

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
