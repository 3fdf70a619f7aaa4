"""An episode step by step, as a reader wants it: what the agent saw, was asked, thought and answered, and a verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.agents.agent import Agent, Turn, agent_id
from goalscope.measures.table import StepTable
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.journal import call_for
from goalscope.runs.record import Episode, Step
from goalscope.runs.study import FailurePolicy, Study, read_rules

OUTCOMES = {
    "goal": "reached the goal",
    "horizon": "did not reach the goal within its horizon",
    "failure": "ended by a turn without an action",
    "stopped": "its record stops before the goal",
    "ended": "ended without the goal",
}
"""How an episode ended, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a step amounts to.

    Attributes:
        action: name of the action, None where the turn held none.
        failure: why there is none, None where there is one.
        optimal: whether the action is an optimal one, None where it is not known or there is no action.
        before, after: steps to the goal before and after the step, None where they are not known or it is out of reach.
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
    """One step of an episode.

    Attributes:
        step: what is recorded.
        attempts: (answer, failure) of each earlier attempt at this step, which the agent was asked again after.
        seen: what the agent was shown, in words; None where the record cannot be replayed.
        prompt: the exact text that its model was sent; None where there is no model or it is not here.
        journalled: content id by which the journal knows the prompt, None where there is no model here.
        verdict: what it amounts to.
    """

    step: Step
    attempts: tuple[tuple[str | None, str | None], ...]
    seen: str | None
    prompt: str | None
    journalled: str | None
    verdict: Verdict


def transcript(episode: Episode, agent: Agent | None = None) -> Iterator[TranscriptStep]:
    """Yield the steps of an episode, its world begun again and the recorded actions taken in it.

    Args:
        episode: what is recorded.
        agent: who acted, built again; its model is not asked, but writes its prompts.
    """
    table = StepTable.from_episodes([episode], tasks=episode.world.own_measures)
    history, failure = read_rules(episode.spec.rules)
    live: LiveEpisode | None = LiveEpisode(
        episode.spec,
        episode.world,
        None,
        history,
        failure,
        knows_world=bool(getattr(agent, "knows_world", False)),
    )
    for index, step in enumerate(episode.steps):
        attempts = tuple((one.get("text"), one.get("failure")) for one in step.extra.get("attempts", ()))
        seen = prompt = known_as = None
        if live is not None and live.outcome is None:
            observation = live.observe()
            seen, names = observation.view.text, observation.view.actions
            if agent is not None and (write := getattr(agent, "prompt", None)) is not None:
                prompt = write(observation)
                known_as = call_for(agent, episode.spec.agent_id, observation).prompt
            if not _follow(live, step, failure):
                seen = prompt = known_as = None
                live = None
        action = None if step.action is None else getattr(step.action, "name", None) or names[step.action]
        yield TranscriptStep(
            step=step,
            attempts=attempts,
            seen=seen,
            prompt=prompt,
            journalled=known_as,
            verdict=_verdict(table, index, action, step.failure),
        )


def agent_of(study: Study | None, identity: str) -> Agent | None:
    """Return the agent of a study with a content id, built again; None where it cannot be built here.

    Raises:
        ImportError: the agent's libraries are not installed.
    """
    for entry in (*study.agents_, *study.further_agents_) if study is not None else ():
        try:
            agent = entry.build()
            if agent_id(agent) == identity:
                return agent
        except (OSError, ValueError):  # its model, template or package is on another machine
            continue
    return None


def _follow(live: LiveEpisode, step: Step, failure: FailurePolicy) -> bool:
    """Take a recorded step; return whether it began in the recorded state."""
    said: Sequence[Any] = step.extra.get("attempts", ())
    for one in said[: failure.retries]:
        live.apply(Turn(action=None, failure=one.get("failure") or "?", text=one.get("text")))
    action = None if step.action is None else int(step.action)
    live.apply(Turn(action=action, failure=step.failure, text=step.text, reasoning=step.reasoning))
    return bool(live.steps) and tuple(live.steps[-1].state) == tuple(step.state)


def _verdict(table: StepTable, index: int, action: str | None, failure: str | None) -> Verdict:
    if "oracle" not in table.offers:
        return Verdict(action=action, failure=failure, optimal=None, before=None, after=None)
    taken = int(table.action[index])
    before, after = (int(column[index]) for column in (table.distance, table.after))
    return Verdict(
        action=action,
        failure=failure,
        optimal=None if action is None else bool(table.optimal[index, taken]),
        before=before if before >= 0 else None,
        after=after if after >= 0 else None,
    )


def write_step(one: TranscriptStep, lines: Sequence[str], sent: str | None = None, most: int | None = None) -> str:
    """Return a step as text; texts of others stand behind a bar, so that none can be taken for ours.

    Args:
        one: the step.
        lines: what is to stand there of its prompt, or of what was seen where it has none.
        sent: content id of the prompt that the journal holds, None where there is none.
        most: characters of a prompt, a reasoning or an answer that are shown, all where None.
    """

    def barred(text: str) -> list[str]:
        cut = f"... ({len(text) - most:,} characters more)" if most is not None and len(text) > most else ""
        return [f"  | {line}" for line in text[:most].splitlines()] + ([f"  {cut}"] if cut else [])

    parts = [f"\nstep {one.step.index}"]
    if one.seen is None:
        parts.append("what it saw is not known: the record does not follow from its world")
    else:
        differs = one.prompt is not None and sent is not None and sent != one.journalled
        name = "saw" if one.prompt is None else "prompt"
        parts += [f"{name}, as this version writes it; another one was sent" if differs else name]
        parts += barred("\n".join(lines))
    for number, (text, failure) in enumerate(one.attempts, 1):
        parts += [f"attempt {number}: no action ({failure}), asked again", *barred(text or "")]
    for name, said in (("reasoning", one.step.reasoning), ("answer", one.step.text)):
        parts += [name, *barred(said)] if said else []
    return "\n".join([*parts, f"verdict: {one.verdict}"])
