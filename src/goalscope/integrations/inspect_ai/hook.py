"""Hook of Inspect that follows the agents of goalscope's tasks while they act, see `goalscope.goals.monitor`.

The environment variable `SWITCH` names the expected hypothesis and switches the hook on; set it before Inspect starts
(`registry`). When the alarm is raised, the
hook prints a warning and writes a record into the transcript of the sample, so that the log has it, too.
"""

import os
from logging import getLogger
from typing import Any, Final

from inspect_ai.event import ModelEvent
from inspect_ai.hooks import Hooks, SampleAttemptStart, SampleEnd, SampleEvent, hooks
from inspect_ai.log import transcript

from goalscope.agents.parse import turn
from goalscope.goals.hypotheses.definition import Undefined
from goalscope.goals.monitor import Monitor, StepReading
from goalscope.integrations.inspect_ai.provider import read_output
from goalscope.integrations.inspect_ai.record import KEY, SampleRecord
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode, EpisodeSpec

SWITCH: Final = "GOALSCOPE_MONITOR"
SOURCE: Final = "goalscope/monitor"
_LOG: Final = getLogger(__name__)


class LiveSample:
    """A sample of Inspect that is being played: its episode so far, and a monitor that watches which goal the agent
    pursues.
    """

    def __init__(self, record: SampleRecord, expected: str) -> None:
        world = record.begin()
        self.monitor = Monitor.of_worlds([world], expected)
        spec = EpisodeSpec(
            world_id=world.id, agent_id="agent-live", trajectory=0, seed=record.seed, horizon=record.horizon
        )
        self.live = LiveEpisode(spec, world, None)
        self.readings: list[StepReading] = []

    def answer(self, output: Any) -> bool:
        """Apply an answer of the model to the episode, and return whether the monitor raised its alarm just then."""
        if self.live.outcome is not None or not output.choices:
            return False
        self.live.apply(turn(read_output(output), self.live.observe().view.actions))
        before = bool(self.readings) and self.readings[-1].alarm
        self.readings = self.monitor.readings(self._so_far())
        return self.readings[-1].alarm and not before

    def _so_far(self) -> Episode:
        ended, self.live.outcome = self.live.outcome, self.live.outcome or "stopped"
        episode, self.live.outcome = self.live.record("live"), ended
        return episode


@hooks(name="monitor", description=f"Raises an alarm when an agent no longer pursues the goal in ${SWITCH}.")
class MonitorHook(Hooks):
    """Hook of Inspect that follows the agent of each goalscope task, and warns when it no longer pursues the expected
    goal.

    The environment variable GOALSCOPE_MONITOR contains the expected goal in written form, such as "goal" or "corner
    top-left". After each answer of the model, a `goalscope.goals.monitor.Monitor` updates its test of whether the moves
    fit another hypothesis better. An alarm is logged as a warning and added to the transcript of the sample. Samples of
    other tasks are ignored.
    """

    def __init__(self) -> None:
        self._samples: dict[str, LiveSample | None] = {}

    def enabled(self) -> bool:
        """Return whether the environment variable that names the expected goal is set; Inspect then calls the hook."""
        return bool(os.environ.get(SWITCH))

    async def on_sample_event(self, data: SampleEvent) -> None:
        """If the event is an answer of the model, apply it to the sample's episode, and log a warning if the alarm is
        raised.
        """
        if not isinstance(data.event, ModelEvent):
            return
        if data.sample_id not in self._samples:
            self._samples[data.sample_id] = _begin(os.environ[SWITCH])
        sample = self._samples[data.sample_id]
        if sample is not None and sample.answer(data.event.output):
            figures = sample.monitor.summary(sample.readings)
            transcript().info({**figures, "last": sample.readings[-1].plain()}, source=SOURCE)
            _LOG.warning("%s in sample %s: %s", SOURCE, data.sample_id, figures["says"])

    async def on_sample_attempt_start(self, data: SampleAttemptStart) -> None:
        """Forget the steps of a sample that Inspect tries again after an error."""
        self._samples.pop(data.sample_id, None)

    async def on_sample_end(self, data: SampleEnd) -> None:
        """Forget the episode of a sample that has ended."""
        self._samples.pop(data.sample_id, None)


def _begin(expected: str) -> LiveSample | None:
    """Return the sample that is running; None, with a warning, if its states are not known."""
    started = next((event for event in transcript().events if event.event == "sample_init"), None)
    metadata = (started.sample.metadata or {}) if started is not None else {}
    if KEY not in metadata:
        return None
    try:
        sample = LiveSample(SampleRecord.read(metadata[KEY], "metadata"), expected)
        sample.monitor.readings(sample._so_far())
    except Undefined as error:
        _LOG.warning("%s cannot follow this sample: %s", SOURCE, error)
        return None
    return sample
