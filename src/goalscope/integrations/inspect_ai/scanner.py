"""Scanner of Inspect Scout that follows an agent step by step, see `goalscope.goals.monitor`.

Scout says which sample a transcript is; its steps are read from the log as an import reads them (`formats`), in a
process with limits, and replayed in the world. A transcript whose states are not known is refused with the reason.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from inspect_scout import Result, Scanner, Transcript, scanner

from goalscope._ground.own import consent, load_function
from goalscope._ground.untrusted import UntrustedError, printable
from goalscope.goals.monitor import LAPSE, LAST, RUN, Monitor
from goalscope.integrations.inspect_ai.formats import episode_of
from goalscope.runs.record import Episode


@scanner(name="monitor", events=["info"], metadata=False)
def monitor(
    expected: str = "goal",
    hypotheses: str | Sequence[str] = (),
    lapse: float = LAPSE,
    run: int = RUN,
    last: int = LAST,
    reader: str = "",
) -> Scanner[Transcript]:
    """Scanner of Inspect Scout that follows the agent of a transcript, and raises an alarm if it no longer pursues a
    goal.

    The value of a transcript is a mapping with the keys of `Monitor.summary` (optimal moves, regret, what its last
    moves fit), and its metadata has a record for each step (`StepReading`). The value is None for a transcript that is
    refused; the explanation is the reason.

    Args:
        expected: the hypothesis (possible goal) that the agent is expected to pursue, as text.
        hypotheses: its rivals, separated by commas; by default those that the world suggests.
        lapse: greatest share of random moves with which an agent still counts as pursuing it.
        run: the mean number of steps before a false alarm is at least this.
        last: number of the last moves that are explained.
        reader: ``module:function`` that reads the samples of another task, as in ``goalscope import --reader``.
    """
    names = hypotheses.split(",") if isinstance(hypotheses, str) else list(hypotheses)
    written = [name.strip() for name in names if name.strip()]
    if reader:
        consent(reader)
    read = load_function(reader, "a reader of samples") if reader else None
    Monitor.of_worlds([], expected, written or [expected], lapse=lapse, run=run, last=last)  # refuses wrong settings

    async def scan(transcript: Transcript) -> Result:
        try:
            episode = _episode(transcript, read)
            chosen = Monitor.of_worlds([episode.world], expected, written, lapse=lapse, run=run, last=last)
            readings = chosen.readings(episode)
        except (OSError, ValueError) as error:  # what is wrong with this log or this world
            return Result(value=None, answer="refused", explanation=printable(" ".join(str(error).split())))
        value = chosen.summary(readings)
        return Result(
            value={name: figure for name, figure in value.items() if name != "says"},
            answer=", ".join(value["follows"]),
            explanation=value["says"],
            metadata={"world": episode.world.id, "steps": [reading.plain() for reading in readings]},
        )

    return scan


def _episode(transcript: Transcript, reader: Any) -> Episode:
    """Return the episode of a transcript.

    Raises:
        UntrustedError: the transcript is not from an Inspect log on this machine, or its episode is not known.
    """
    place = urlsplit(transcript.source_uri or "")
    if transcript.source_type != "eval_log" or place.scheme not in ("", "file") or transcript.task_id is None:
        must = "a transcript must come from an Inspect log on this machine, since its steps are read from the log"
        raise UntrustedError(must, printable(f"{transcript.source_type}: {transcript.source_uri}"))
    path = Path(unquote(place.path) if place.scheme else transcript.source_uri or "")
    episode = episode_of(path, transcript.task_id, transcript.task_repeat or 1, reader)
    if episode is None:
        must = "a transcript must hold an episode: an error ended this sample, or the reader leaves it out"
        raise UntrustedError(must, f"sample {transcript.task_id!r}")
    return episode
