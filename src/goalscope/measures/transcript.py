"""A readable transcript of an episode: observation, prompt, reasoning, answer and assessment of each step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goalscope.agents.agent import Agent, Observation, Turn, agent_id
from goalscope.measures.table import StepTable
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.journal import call_for
from goalscope.runs.record import Episode, Step
from goalscope.runs.study import FailurePolicy, Study, read_rules
from goalscope.worlds.world import Drawing

OUTCOMES = {
    "goal": "reached the goal",
    "horizon": "did not reach the goal within its horizon",
    "failure": "ended by a turn without an action",
    "stopped": "its record stops before the goal",
    "ended": "ended without the goal",
}
"""How an episode ended, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheck:
    """What is known about the action of one step: whether it was valid and optimal, and how it changed the distance.

    Attributes:
        action: name of the action, None if the turn had none.
        failure: why there is no action, None if there is one.
        optimal: whether the action is optimal; None if unknown or if there is no action.
        before, after: steps to the goal before and after the step; None if unknown or unreachable.
    """

    action: str | None
    failure: str | None
    optimal: bool | None
    before: int | None
    after: int | None

    def __str__(self) -> str:
        parts = [f"{self.action}: valid" if self.failure is None else f"invalid, no action ({self.failure})"]
        if self.optimal is not None:
            parts.append("optimal" if self.optimal else "not optimal")
        if self.before is not None or self.after is not None:
            before, after = ("out of reach" if steps is None else steps for steps in (self.before, self.after))
            parts.append(f"distance {before} to {after}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptStep:
    """One step of an episode, with everything that a reader of the episode wants to see.

    Attributes:
        step: the recorded step.
        attempts: (answer, failure) of each earlier attempt at this step, after which the agent was asked again.
        seen: the observation in words; None if the record cannot be replayed.
        prompt: the exact prompt of its model; None if there is no model or it is not available.
        journalled: content id of the prompt in the journal of requests; None if no model is available.
        verdict: what is known about its action.
        picture: drawing of what the agent saw; None if that is the whole world, or only text.
        policy: ``[A]`` probabilities of the actions, recorded or computed for a scripted agent; None if unknown.
        actions: names of the actions of its world.
        optimal: indices of the optimal actions; None if unknown.
    """

    step: Step
    attempts: tuple[tuple[str | None, str | None], ...]
    seen: str | None
    prompt: str | None
    journalled: str | None
    verdict: StepCheck
    picture: Drawing | None = None
    policy: tuple[float, ...] | None = None
    actions: tuple[str, ...] = ()
    optimal: tuple[int, ...] | None = None


def transcript(episode: Episode, agent: Agent | None = None) -> Iterator[TranscriptStep]:
    """Yield the steps of a recorded episode, with what the agent saw, by replaying the recorded actions in its world.

    Args:
        episode: the recorded episode.
        agent: the agent, rebuilt, to write its prompts; its model is not called. None leaves the prompts out.
    """
    table = StepTable.from_episodes([episode], tasks="tasks" in episode.world.offers)
    history, failure = read_rules(episode.spec.rules)
    live: LiveEpisode | None = LiveEpisode(
        episode.spec,
        episode.world,
        None,
        history,
        failure,
        knows_world=bool(getattr(agent, "knows_world", False)),
    )
    names: tuple[str, ...] = ()
    for index, step in enumerate(episode.steps):
        attempts = tuple((attempt.get("text"), attempt.get("failure")) for attempt in step.extra.get("attempts", ()))
        observed = prompt = prompt_id = picture = policy = None
        if live is not None and live.outcome is None:
            observation = live.observe()
            observed, names = observation.view.text, observation.view.actions
            # Before the step is applied, because the views of some worlds read data that keeps growing.
            picture, policy = observation.view.drawing, _policy(step, agent, observation)
            if agent is not None and (write := getattr(agent, "prompt", None)) is not None:
                prompt = write(observation)
                prompt_id = call_for(agent, episode.spec.agent_id, observation).prompt
            if not _follow(live, step, failure):
                observed = prompt = prompt_id = picture = policy = None
                live = None
        action = None if step.action is None else getattr(step.action, "name", None) or names[step.action]
        yield TranscriptStep(
            step=step,
            attempts=attempts,
            seen=observed,
            prompt=prompt,
            journalled=prompt_id,
            verdict=_verdict(table, index, action, step.failure),
            picture=picture,
            policy=policy,
            actions=names,
            optimal=tuple(np.flatnonzero(table.optimal[index]).tolist()) if "oracle" in table.offers else None,
        )


def _policy(step: Step, agent: Agent | None, observation: Observation) -> tuple[float, ...] | None:
    """Return the probabilities from which the action of a step was drawn, None if unknown."""
    recorded = step.extra.get("policy")  # may be anything in an imported log
    if not isinstance(recorded, list | tuple) or not all(isinstance(chance, int | float) for chance in recorded):
        # An agent whose hypothesis is undefined in this world has no probabilities; its step says so.
        look = None if "undefined" in step.extra else getattr(agent, "probabilities", None)
        recorded = [] if look is None else np.asarray(look(observation)).tolist()
    return tuple(map(float, recorded)) if len(recorded) == len(observation.view.actions) else None


def agent_of(study: Study | None, identity: str) -> Agent | None:
    """Rebuild the agent of a study that has a content id; None if the study has no such agent, or it cannot be built
    here.

    Args:
        study: the study; None gives None.
        identity: content id of the agent.

    Raises:
        ImportError: if the libraries of the agent are not installed.
    """
    for entry in (*study.agents_, *study.further_agents_) if study is not None else ():
        try:
            agent = entry.build()
            if agent_id(agent) == identity:
                return agent
        except (OSError, ValueError):  # its model, template or package may be on another machine
            continue
    return None


def _follow(live: LiveEpisode, step: Step, failure: FailurePolicy) -> bool:
    """Replay a recorded step; return whether its recorded state matches the replay."""
    attempts: Sequence[Any] = step.extra.get("attempts", ())
    for attempt in attempts[: failure.retries]:
        live.apply(Turn(action=None, failure=attempt.get("failure") or "?", text=attempt.get("text")))
    action = None if step.action is None else int(step.action)
    live.apply(Turn(action=action, failure=step.failure, text=step.text, reasoning=step.reasoning))
    return bool(live.steps) and tuple(live.steps[-1].state) == tuple(step.state)


def _verdict(table: StepTable, index: int, action: str | None, failure: str | None) -> StepCheck:
    if "oracle" not in table.offers:
        return StepCheck(action=action, failure=failure, optimal=None, before=None, after=None)
    number = int(table.action[index])
    before, after = (int(column[index]) for column in (table.distance, table.after))
    return StepCheck(
        action=action,
        failure=failure,
        optimal=None if action is None else bool(table.optimal[index, number]),
        before=before if before >= 0 else None,
        after=after if after >= 0 else None,
    )


def write_step(entry: TranscriptStep, lines: Sequence[str], sent: str | None = None, most: int | None = None) -> str:
    """Format one step of an episode as text for the terminal.

    Texts of a model are marked with a bar at the left, so that they cannot pass for the program's own.

    Args:
        entry: the step.
        lines: lines of its prompt to show, or of the observation if it has none.
        sent: content id of the prompt in the journal, None if there is none.
        most: maximum number of characters to show of a prompt, reasoning or answer; None for all.
    """

    def barred(text: str) -> list[str]:
        cut = f"... ({len(text) - most:,} characters more)" if most is not None and len(text) > most else ""
        return [f"  | {line}" for line in text[:most].splitlines()] + ([f"  {cut}"] if cut else [])

    parts = [f"\nstep {entry.step.index}"]
    if entry.seen is None:
        parts.append("what it saw is not known: the record does not follow from its world")
    else:
        differs = entry.prompt is not None and sent is not None and sent != entry.journalled
        name = "saw" if entry.prompt is None else "prompt"
        parts += [f"{name}, as this version writes it; another one was sent" if differs else name]
        parts += barred("\n".join(lines))
    for number, (text, failure) in enumerate(entry.attempts, 1):
        parts += [f"attempt {number}: no action ({failure}), asked again", *barred(text or "")]
    for name, foreign in (("reasoning", entry.step.reasoning), ("answer", entry.step.text)):
        parts += [name, *barred(foreign)] if foreign else []
    return "\n".join([*parts, f"verdict: {entry.verdict}"])
