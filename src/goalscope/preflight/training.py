"""Prompts to train a model of one's own on: what a chat agent of a study reads, and every optimal answer to it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.agents.agent import Turn
from goalscope.agents.chat import ChatAgent
from goalscope.agents.choice import answers_of
from goalscope.checks import check_probability
from goalscope.models.base import Message
from goalscope.planning.oracle import oracle
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.study import Study
from goalscope.worlds.world import Oracle, TimedOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPrompt:
    """One turn of an episode.

    Attributes:
        world_id: content id of the world.
        cluster: the grid, or other unit of intervals, that it belongs to: a held-back part consists of whole clusters.
        step: number of the step in its episode, 0-based.
        messages: the chat as a run of the study sends it.
        prompt: the text that the model reads, by its own chat template; the chat as JSON for a model behind a server.
        answers: the complete answer of each optimal action, e.g. ``{"action": "UP"}``; at least one.
    """

    world_id: str
    cluster: str
    step: int
    messages: tuple[Message, ...]
    prompt: str
    answers: tuple[str, ...]


def training_prompts(
    study: Study, *, rng: np.random.Generator, agent: str = "", wander: float = 0.0
) -> Iterator[TrainingPrompt]:
    """Yield each turn of the episodes of a study, in its order, played by optimal actions drawn at random.

    The texts are those that a run of the study shows to its agent in the same states. Use another seed, or other
    worlds, than those that the model is to be evaluated on.

    Args:
        study: the study; the tokenizer of its chat agent is read, no weights are.
        rng: draws one of several optimal actions, and the random ones.
        agent: name of the chat agent, where the study has several.
        wander: probability of a turn that takes a random offered action, so that states off the shortest ways occur.

    Raises:
        ValueError: no such chat agent, or several; a world whose optimal policy is not known.
    """
    check_probability("wander", wander)
    chat_agents = [one for one in study.agents() if isinstance(one, ChatAgent) and agent in ("", one.name)]
    if len(chat_agents) != 1:
        known = ", ".join(one.name for one in study.agents() if isinstance(one, ChatAgent)) or "none"
        raise ValueError(f"prompts must be those of one chat agent of the study ({known}), got {agent!r}: name one")
    (asked,) = chat_agents
    history = study.history_of(asked)
    for spec, world, _ in study.specs([asked]):
        policy = oracle(world)
        if policy is None:
            raise ValueError(f"training prompts need worlds whose optimal policy is known, {world.id} has none")
        episode = LiveEpisode(spec, world, study, history)
        while episode.outcome is None:
            observation = episode.observe()
            names = observation.view.actions
            optimal = _optimal(policy, episode, spec.horizon)
            best = [index for index in range(len(names)) if optimal[world.action(index)]]
            texts = answers_of(names)
            if best:  # none where the goal can no longer be reached
                yield TrainingPrompt(
                    world_id=world.id,
                    cluster=world.cluster_id,
                    step=observation.step,
                    messages=asked.messages(observation),
                    prompt=asked.prompt(observation),
                    answers=tuple(texts[index] for index in best),
                )
            offered = observation.view.offered
            taken = int(rng.choice(best if best and rng.random() >= wander else offered))
            episode.apply(Turn(action=taken, text=texts[taken]))


def _optimal(policy: Oracle, episode: LiveEpisode, horizon: int) -> npt.NDArray[np.bool_]:
    """Return ``[A]`` whether each action of the world is optimal in the present state of an episode."""
    state = episode.state
    states = np.array([(*state.position, state.phase) if hasattr(state, "phase") else state], dtype=np.int64)
    left = np.array([horizon - len(episode.steps)])
    sets = policy.look_up_left(states, left) if isinstance(policy, TimedOracle) else policy.look_up(states)[0]
    optimal: npt.NDArray[np.bool_] = sets[0]
    return optimal
