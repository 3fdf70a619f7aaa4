"""A sample of ours: the world begun again, the answers read again, each step compared with what is recorded."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goalscope.agents.agent import Turn
from goalscope.agents.chat import turn
from goalscope.importers.problems import Context
from goalscope.importers.recorded import model_events, reasoning_of
from goalscope.inspect_ai.record import KEY, TURN, CompletionRecord, EpisodeRecord, SampleRecord, TurnRecord
from goalscope.models.base import Completion
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode
from goalscope.runs.study import read_rules
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds.recorded import RecordedWorld


def replayed(sample: Any, context: Context) -> tuple[Episode, Mapping[str, Any]]:
    """Return the episode of a sample and the description of its agent.

    Args:
        sample: `inspect_ai.log.EvalSample`, its attachments resolved.
        context: what the files of the import share.

    Raises:
        UntrustedError: what is recorded does not follow from the world and from what was written, or is not ours.
    """
    place = SampleRecord.read(sample.metadata[KEY], "metadata")
    record = EpisodeRecord.read(sample.store[KEY], "store")
    world = place.begin()
    try:
        spec = record.spec(place)
        history, failure = read_rules(record.rules)
    except ValueError as error:
        raise UntrustedError("the rules of an episode must be valid", str(error), "store") from error
    live = LiveEpisode(spec, world, None, history, failure)
    for output in _outputs(sample, record.turns):
        if live.outcome is not None:
            raise UntrustedError(f"an episode must end where it is over ({live.outcome})", "a further turn")
        observation, taken = live.observe(), len(live.steps)
        try:
            said, reward = _turn(output, observation.view.actions)
            live.apply(said)
        except UntrustedError:
            raise
        except ValueError as error:
            raise UntrustedError("a turn must fit its world", str(error), f"step {taken}") from error
        if len(live.steps) > taken and live.steps[-1].reward is None:  # the world gives none, a record may
            live.steps[-1] = replace(live.steps[-1], reward=reward)
    _compare(live, record, context, free=isinstance(world, RecordedWorld))
    live.outcome = record.outcome
    episode = live.record(record.agent, record.tags)
    context.take(episode)
    return episode, record.description


def _outputs(sample: Any, turns: list[str]) -> list[Any]:
    """Return the outputs of the messages with these ids, in order."""
    waiting, found = iter(turns), list[Any]()
    wanted = next(waiting, None)
    for event in model_events(sample):
        if wanted is not None and event.output.choices[0].message.id == wanted:
            found.append(event.output)
            wanted = next(waiting, None)
    if wanted is not None:
        must = f"each of the {len(turns)} turns must be among the calls of models in the log"
        raise UntrustedError(must, f"{len(found)} of them", "events")
    return found


def _turn(output: Any, names: tuple[str, ...]) -> tuple[Turn, float | None]:
    """Return the turn that an output amounts to, and the reward that is recorded beside it."""
    held = (output.metadata or {}).get(KEY)
    if isinstance(held, dict) and set(held) == {TURN}:
        record = TurnRecord.read(held[TURN], "metadata")
        return record.turn(), record.reward
    if held is not None:
        return turn(CompletionRecord.read(held, "metadata").completion(), names), None
    message, finish = output.choices[0].message, output.choices[0].stop_reason
    completion = Completion(
        text=message.text,
        reasoning=reasoning_of(message),
        finish="length" if finish in ("max_tokens", "model_length") else "stop",
    )
    return turn(completion, names), None


def _compare(live: LiveEpisode, record: EpisodeRecord, context: Context, *, free: bool) -> None:
    """Require that the recorded steps and outcome are those of the replay; ``free``: a record says how it ended."""
    ledger = context.ledger
    given = [(tuple(state), action, failure) for state, action, failure in record.steps]
    ours = [(tuple(step.state), None if step.action is None else int(step.action), step.failure) for step in live.steps]
    if not ledger.check("step counts", len(given) == len(ours)):
        raise UntrustedError(f"an episode must have the {len(ours)} steps that were answered", f"{len(given)}")
    for index, (theirs, mine) in enumerate(zip(given, ours, strict=True)):
        if not ledger.check("steps", theirs == mine):
            raise UntrustedError(
                f"a step must be {mine}, as its answer and the rules say", shorten(theirs), f"step {index}"
            )
    ended = live.outcome or "stopped"
    if not ledger.check("outcomes", free or record.outcome == ended):
        raise UntrustedError(f"the outcome must be {ended}", shorten(record.outcome), "outcome")
