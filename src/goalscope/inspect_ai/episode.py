"""The solver that plays an episode: observe, ask Inspect's model, read the answer, act."""

from collections.abc import Mapping
from typing import Any

from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import GenerateConfig, ModelOutput, get_model
from inspect_ai.model import Model as InspectModel
from inspect_ai.solver import Generate, Solver, TaskState, solver

from goalscope.agents.agent import History, Observation, Turn, agent_id, check_fits
from goalscope.agents.build import CHAT
from goalscope.agents.chat import ChatAgent, turn
from goalscope.inspect_ai.chat import asked_model, chat_agent, split_parameters
from goalscope.inspect_ai.outputs import read_output, write_messages
from goalscope.inspect_ai.provider import GoalscopeAPI, body_of
from goalscope.inspect_ai.record import KEY, EpisodeRecord, SampleRecord
from goalscope.inspect_ai.settings import read_config
from goalscope.models.base import Sampling
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.runs.study import FailurePolicy, write_rules


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
        agent: parameters of the agent as in a study, without those of its model.
        history: what it is shown of earlier steps, where it does not say so itself.
        failure: what becomes of a turn without an action, as in a study.
    """
    own, sampling = split_parameters(kind, agent or {})
    policy = FailurePolicy.model_validate(dict(failure or {}))
    made: dict[int, tuple[InspectModel, ChatAgent]] = {}

    def acting(model: InspectModel) -> ChatAgent:
        # Its description hashes the files of a model: once, not for each sample.
        if id(model) not in made:
            asked = read_config(model.config, sampling)
            made[id(model)] = model, chat_agent(kind, asked_model(model), asked, own)
        return made[id(model)][1]

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        player = acting(model)
        sample = SampleRecord.read((state.metadata or {}).get(KEY), "metadata")
        world = sample.begin()
        check_fits(player, world.view)
        shown = player.history or history
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=agent_id(player),
            trajectory=state.epoch - 1,
            seed=sample.seed,
            horizon=sample.horizon,
            rules=write_rules(shown, policy),
        )
        live, turns = LiveEpisode(spec, world, None, shown, policy), list[str]()
        state.messages = []
        try:
            while live.outcome is None:
                observation = live.observe()
                output = await _ask(model, player, observation, state)
                live.apply(_turn(output, observation))
                turns.append(_message_id(output))
        finally:  # a limit may end it anywhere
            episode = _record(live, player)
            state.store.set(KEY, EpisodeRecord.of(episode, dict(player.describe()), turns).plain())
        return state

    return solve


async def _ask(model: InspectModel, player: ChatAgent, observation: Observation, state: TaskState) -> ModelOutput:
    """Ask about an observation; the messages of the sample show each question with its answer."""
    request = player.request(observation)
    messages = write_messages(request.messages)
    own = isinstance(model.api, GoalscopeAPI)
    output = await model.generate(messages, config=GenerateConfig(extra_body=body_of(request) if own else None))
    _check_settings(player.sampling)
    state.output = output
    if observation.history_as in ("conversation", "reasoning"):
        state.messages = [*messages, output.message]
    else:
        state.messages = [*state.messages, *messages, output.message]
    return output


def _check_settings(assumed: Sampling) -> None:
    """Raise a ValueError where Inspect asked with other settings than those that the agent's id stands for."""
    called = next(event for event in reversed(transcript().events) if isinstance(event, ModelEvent))
    used = read_config(called.config)
    if used != assumed:
        raise ValueError(
            f"the settings of a model must be those of its agent, {assumed}, got {used}: give them on the command line "
            "(--temperature 0), or name the model by its text where eval() is called with settings"
        )


def _turn(output: ModelOutput, observation: Observation) -> Turn:
    return turn(read_output(output), observation.view.actions)


def _message_id(output: ModelOutput) -> str:
    identity: str | None = output.message.id
    if identity is None:
        raise ValueError("a message of a model must have an id, by which the log is read, got none")
    return identity


def _record(live: LiveEpisode, player: ChatAgent) -> Episode:
    """Return the episode so far; one that goes on is recorded as stopped."""
    live.outcome = live.outcome or "stopped"
    return live.record(player.name, player.tags)
