"""Import of Inspect logs, which Inspect's public reader reads in a process with limited memory and time.

For a sample of a goalscope task, the episode is replayed: the world is restarted, the answers are parsed again, and
each step is compared with the recorded step. Samples of other tasks are converted by a function of the user. Only a
few samples are in memory at a time, and only one if the log is a JSON file.
"""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

from goalscope._ground.archives import MOST_DIRECTORY_BYTES, largest_member, open_archive
from goalscope._ground.bounded import BoundedError, BoundedWorker, Bounds
from goalscope._ground.extras import lacking
from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import MOST_FILE_BYTES, UntrustedError, check_nesting, printable, shorten
from goalscope.agents.agent import Turn
from goalscope.agents.parse import turn
from goalscope.integrations.inspect_ai.record import (
    KEY,
    TURN,
    EpisodeRecord,
    RecordedEpisode,
    ReplyRecord,
    SampleRecord,
    TurnRecord,
    foreign_reply,
    model_events,
    reasoning_of,
    recorded_episode,
)
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.importers.front import Format, exporter, importer
from goalscope.runs.importers.problems import Context, ImportLog, SampleReader
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import read_rules
from goalscope.worlds.world import RecordedWorld

_HELD: Final = 64 * 2**20
"""Bytes of samples that are read together."""

_MOST_TOGETHER: Final = 16
_MOST_LOST: Final = 100
"""Samples in a row that cannot be read, after which no more are tried."""

_HEAD: Final = 4096
_MANIFESTS: Final = ("eval-set.json", "logs.json")
"""Files that an eval set of Inspect writes beside its logs: its plan, and the headers of the logs."""
_MANIFEST: Final = re.compile(rb'\s*\{\s*"(eval_set_id"|[^"]*\.(eval|json)"\s*:\s*\{)')
_MOST_MESSAGE: Final = 300
_MOST_NESTED: Final = 200
"""Greatest depth of a log in JSON; the parser that Inspect reads whole logs with refuses more, too."""
_KNOWN_VERSION: Final = 2
"""The newest version of logs that inspect-ai wrote when this was written; a later inspect-ai may read more."""
_VERSION: Final = re.compile(rb'\s*\{\s*"version"\s*:\s*"?([0-9]{1,9})\b')
_HEADERS: Final = ("header.json", "_journal/start.json")
"""Members of an `.eval` archive that begin with the version: of a finished log, and of one that was interrupted."""


_STORED: Final = {"deserializing": True}
"""Tells the models of Inspect that what they read was stored, so that they make up no ids."""

READING: Final = Bounds(seconds=300, wait=600, memory=4 * 2**30, answer=512 * 2**20)
"""What reading may take until the next sample is there; a log in JSON is read as a whole before its first sample."""

_READER: Final = BoundedWorker(Path(__file__).with_name("log_process.py"), READING, "to read it")


def is_inspect_log(path: Path) -> bool:
    """Return whether a file is a log or manifest of Inspect, judged by its ending or, for JSON, by its first bytes."""
    if path.suffix.lower() == ".eval":
        return True
    head = _head(path)
    is_log = b'"eval"' in head and (b'"eval_id"' in head or b'"run_id"' in head) and b'"status"' in head
    return is_log or _is_manifest(path)


def _is_manifest(path: Path) -> bool:
    return path.name in _MANIFESTS and _MANIFEST.match(_head(path)) is not None


def log_version(path: Path) -> int:
    """Read the version of Inspect's log format from the beginning of a log; 0 if there is none."""
    head = _head(path)
    if path.suffix.lower() == ".eval":
        head = b""
        unreadable = (zipfile.BadZipFile, KeyError, OSError, ValueError, zlib.error, NotImplementedError, RuntimeError)
        with (
            suppress(*unreadable),
            NamedFile(path).open_file() as stream,
            open_archive(stream, MOST_DIRECTORY_BYTES) as packed,
        ):
            member = next((name for name in _HEADERS if name in packed.namelist()), _HEADERS[0])
            with packed.open(member) as header:
                head = header.read(_HEAD)
    version = _VERSION.match(head)
    return int(version[1]) if version else 0


def _head(path: Path) -> bytes:
    try:
        with NamedFile(path).open_file() as stream:
            return stream.read(_HEAD)
    except (OSError, UntrustedError):
        return b""  # the reader that opens the file reports the error


def inspect_episodes(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Yield the episodes of one Inspect log, and report samples that cannot be used to ``context``.

    Manifests of an eval set are skipped.

    Args:
        path: the log.
        name: its name in the import.
        context: state shared by the files of the import, which collects problems.

    Raises:
        ImportError: inspect-ai is not installed.
    """
    if _is_manifest(path):
        context.ledger.counts["other files left alone"] += 1
        return
    context.ledger.counts["files read"] += 1
    with context.ledger.reporting(name):
        yield from _Log(path, name, context).episodes()


def episode_of(path: Path, identity: str, epoch: int, reader: SampleReader | None = None) -> Episode | None:
    """Return the episode of one sample of an Inspect log.

    Args:
        path: the log.
        identity, epoch: id of the sample as text, and its epoch (repetition).
        reader: function that reads samples of other tasks, see `goalscope.runs.importers.import_path`.

    Returns:
        The episode; None if an error ended the sample, or the reader leaves it out.

    Raises:
        UntrustedError: the log or the sample cannot be read, or belongs to another task and there is no reader.
        ImportError: inspect-ai is not installed.
    """
    return _Log(path, path.name, Context(ImportLog(), reader)).episode_of(identity, epoch)


class _Log:
    """Reader of one log."""

    def __init__(self, path: Path, source: str, context: Context) -> None:
        self.source, self.context, self.ledger = source, context, context.ledger
        self.location = path.resolve().as_posix()
        packed = path.suffix.lower() == ".eval"
        size = largest_member(path) if packed else NamedFile(path).status().st_size
        if not packed and size > MOST_FILE_BYTES:
            must = f"a log in JSON must have at most {MOST_FILE_BYTES} bytes: inspect log convert --to eval helps"
            raise UntrustedError(must, f"{size}")
        self.together = max(1, min(_MOST_TOGETHER, _HELD // max(1, size))) if packed else None
        if not packed:
            # The memory of Inspect's streaming parser grows with the square of the nesting depth (2.3 GB at 30,000).
            with NamedFile(path).open_file() as stream:
                check_nesting(stream, _MOST_NESTED)
        self.version = log_version(path)
        self.reader = self._reader()
        try:
            with _inspect("the header of the log"):
                [text] = self._answers("header")
                self.header = self.reader.EvalLog.model_validate_json(text, context=_STORED)
        except UntrustedError as error:
            if self.version <= _KNOWN_VERSION:
                raise
            must = (
                f"a log must have a version that the installed inspect-ai {version('inspect-ai')} reads, at most "
                f"{_KNOWN_VERSION}: a newer inspect-ai may help, pip install -U inspect-ai"
            )
            raise UntrustedError(must, f"log version {self.version}") from error

    def _reader(self) -> Any:
        """Import Inspect's public reader. If it is missing, a log that is too new is reported first."""
        try:
            return _public_reader()
        except ImportError:
            if self.version <= _KNOWN_VERSION:
                raise
            must = f"a log must have a version that inspect-ai reads, at most {_KNOWN_VERSION} in the one known here"
            raise UntrustedError(must, f"log version {self.version}") from None

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes of the log's samples."""
        if self.header.status != "success":
            self.ledger.counts[f"logs that are not complete ({self.header.status})"] += 1
        for sample in self._samples():
            position = f"sample {printable(str(sample.id))} epoch {sample.epoch}"
            self._check_known(sample)
            with self.ledger.reporting(self.source, position, count="trajectories not imported"):
                episode = self._episode(sample)
                if episode is not None:
                    self.ledger.counts["trajectories"] += 1
                    self.ledger.counts["steps"] += len(episode.steps)
                    yield episode

    def episode_of(self, identity: str, epoch: int) -> Episode | None:
        """Return the episode of one sample; None if an error ended the sample, or the user's reader leaves it out.

        Raises:
            UntrustedError: there is no such sample, or it cannot be read.
        """
        samples: Iterator[Any]
        if self.together is None:
            samples = (sample for sample in self._samples() if (str(sample.id), sample.epoch) == (identity, epoch))
        else:
            with _inspect("the list of samples"):
                [listed] = self._answers("keys")
            keys = [(key, number) for key, number in listed if (str(key), number) == (identity, epoch)]
            with _inspect(f"sample {shorten(identity)} epoch {epoch}"):
                samples = iter(self._read_part(keys[:1]) if keys else [])
        sample = next(samples, None)
        if sample is None:
            raise UntrustedError("the log must hold the sample", f"none with id {shorten(identity)} and epoch {epoch}")
        self._check_known(sample)
        return self._episode(sample)

    def _check_known(self, sample: Any) -> None:
        """Raise an error for a sample of another task if the user gave no reader."""
        if KEY not in (sample.metadata or {}) and self.context.reader is None:
            raise UntrustedError(
                "a log of a task that is not from goalscope needs a reader function of yours: write one (ten lines, "
                "docs/integrations.md) and add --reader module:function",
                f"the task {shorten(self.header.eval.task)}",
            )

    def _episode(self, sample: Any) -> Episode | None:
        is_ours = isinstance(sample.metadata, dict) and KEY in sample.metadata
        return self._replayed(sample) if is_ours else self._read(sample)

    def _samples(self) -> Iterator[Any]:
        """Yield the samples of the log, and report those that cannot be read."""
        if self.together is None:
            with _inspect("the log"):
                yield from map(self._sample, self._answers("all"))
            return
        with _inspect("the list of samples"):
            [listed] = self._answers("keys")
        self._count_missing(len(listed))
        keys, lost = iter(dict.fromkeys((identity, epoch) for identity, epoch in listed)), 0
        while part := list(islice(keys, self.together)):
            try:
                with _inspect("the samples"):
                    yield from self._read_part(part)
                lost = 0
            except UntrustedError:
                for key in part:
                    lost += 1
                    with self.ledger.reporting(self.source, count="trajectories not imported"):
                        with _inspect(f"sample {shorten(key[0])} epoch {key[1]}"):
                            samples = self._read_part([key])
                        lost = 0
                        yield from samples
            if lost >= _MOST_LOST:  # every attempt opens the log again
                self.ledger.counts["trajectories not imported"] += (rest := len(list(keys)))
                must = "the samples that a log lists must be in it"
                raise UntrustedError(must, f"{lost} in a row that cannot be read; {rest} more are not tried")

    def _read_part(self, part: list[tuple[Any, int]]) -> list[Any]:
        return [self._sample(text) for text in self._answers("samples", keys=part)]

    def _sample(self, text: str) -> Any:
        """Build an Inspect sample from the JSON text that the bounded process returns."""
        return self.reader.EvalSample.model_validate_json(text, context=_STORED)

    def _answers(self, part: str, **more: Any) -> Iterator[Any]:
        """Yield the requested part of the log from the bounded process, see `log_process`."""
        return _READER.answers({"path": self.location, "part": part, **more})

    def _count_missing(self, present: int) -> None:
        """Count the samples missing from an unfinished log. A finished log need not have every pair of id and epoch."""
        planned = len(self.header.eval.dataset.sample_ids or ()) * (self.header.eval.config.epochs or 1)
        if self.header.status != "success" and planned > present:
            self.ledger.counts["samples that are not in the log"] += planned - present

    def _replayed(self, sample: Any) -> Episode | None:
        """Replay the episode of a goalscope sample; None if an error or interruption ended the sample."""
        if sample.error is not None or KEY not in (sample.store or {}):
            self.ledger.counts["samples that an error or an interruption ended"] += 1
            return None
        episode, description = replayed(sample, self.context)
        self.ledger.agents.setdefault(episode.spec.agent_id, (episode.agent, description))
        return episode

    def _read(self, sample: Any) -> Episode | None:
        """Convert a sample to an episode with the user's reader; None if the reader skips the sample."""
        reader = self.context.reader
        assert reader is not None  # checked before
        try:
            recorded = reader(sample, self.header)
        except Exception as error:
            must = "the reader must return a RecordedEpisode for each sample, or None to leave it out"
            raise UntrustedError(must, f"{type(error).__name__}: {shorten(str(error))}") from error
        if recorded is None:
            self.ledger.counts["samples that the reader leaves out"] += 1
            return None
        if not isinstance(recorded, RecordedEpisode):
            must = "the reader must return a RecordedEpisode for each sample, or None to leave it out"
            raise UntrustedError(must, type(recorded).__name__)
        episode, agent = recorded_episode(recorded, sample, self.header)
        self.context.register(episode)
        self.ledger.agents.setdefault(episode.spec.agent_id, (agent, {"recorded": agent}))
        return episode


def _public_reader() -> Any:
    """Import Inspect's public reader."""
    try:
        import inspect_ai.log
    except ImportError as error:
        raise lacking("logs of Inspect need inspect-ai", "inspect", error) from error
    return inspect_ai.log


@contextmanager
def _inspect(what: str) -> Iterator[None]:
    """Convert any error of Inspect's reader to an UntrustedError."""
    try:
        yield
    except (OSError, UntrustedError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        # The message of the bounded process begins with the type of the error that occurred there.
        message = message if isinstance(error, BoundedError) else f"{type(error).__name__}: {message}"
        text = printable(message[:_MOST_MESSAGE])
        raise UntrustedError(f"Inspect must be able to read {what}", text) from error


def replayed(sample: Any, context: Context) -> tuple[Episode, Mapping[str, Any]]:
    """Play the recorded answers of an Inspect sample again in its world, and check that everything agrees with the
    record.

    Args:
        sample: `inspect_ai.log.EvalSample`, its attachments resolved.
        context: state shared by the files of the import.

    Returns:
        The episode, and the description of its agent.

    Raises:
        UntrustedError: a record that is malformed or inconsistent with the world and the outputs.
    """
    sample_record = SampleRecord.read(sample.metadata[KEY], "metadata")
    record = EpisodeRecord.read(sample.store[KEY], "store")
    world = sample_record.begin()
    try:
        spec = record.spec(sample_record)
        history, failure = read_rules(record.rules)
    except ValueError as error:
        raise UntrustedError("the rules of an episode must be valid", str(error), "store") from error
    live = LiveEpisode(spec, world, None, history, failure)
    for output in _outputs(sample, record.turns):
        if live.outcome is not None:
            raise UntrustedError(f"an episode must end where it is over ({live.outcome})", "a further turn")
        observation, n_steps = live.observe(), len(live.steps)
        try:
            answered_turn, reward = _turn(output, observation.view.actions)
            live.apply(answered_turn)
        except UntrustedError:
            raise
        except ValueError as error:
            raise UntrustedError("a turn must fit its world", str(error), f"step {n_steps}") from error
        # the world gives no reward, but the record may
        if len(live.steps) > n_steps and live.steps[-1].reward is None:
            live.steps[-1] = replace(live.steps[-1], reward=reward)
    _compare(live, record, context, free=isinstance(world, RecordedWorld))
    live.outcome = record.outcome
    episode = live.record(record.agent, record.tags)
    context.register(episode)
    return episode, record.description


def _outputs(sample: Any, turns: list[str]) -> list[Any]:
    """Return the outputs of the messages with the given ids, in order."""
    remaining, outputs = iter(turns), list[Any]()
    message_id = next(remaining, None)
    for event in model_events(sample):
        if message_id is not None and event.output.choices[0].message.id == message_id:
            outputs.append(event.output)
            message_id = next(remaining, None)
    if message_id is not None:
        must = f"each of the {len(turns)} turns must be among the calls of models in the log"
        raise UntrustedError(must, f"{len(outputs)} of them", "events")
    return outputs


def _turn(output: Any, names: tuple[str, ...]) -> tuple[Turn, float | None]:
    """Return the turn and the recorded reward of an output."""
    stored = (output.metadata or {}).get(KEY)
    if isinstance(stored, dict) and set(stored) == {TURN}:
        record = TurnRecord.read(stored[TURN], "metadata")
        return record.turn(), record.reward
    if stored is not None:
        return turn(ReplyRecord.read(stored, "metadata").reply(), names), None
    message, stop_reason = output.choices[0].message, output.choices[0].stop_reason
    return turn(foreign_reply(message, stop_reason, reasoning_of(message)), names), None


def _compare(live: LiveEpisode, record: EpisodeRecord, context: Context, *, free: bool) -> None:
    """Raise an error unless the recorded steps and outcome equal those of the replay.

    With ``free``, the record determines how the episode ended.
    """
    ledger = context.ledger
    recorded = [(tuple(state), action, failure) for state, action, failure in record.steps]
    replayed_steps = [
        (tuple(step.state), None if step.action is None else int(step.action), step.failure) for step in live.steps
    ]
    if not ledger.check("step counts", len(recorded) == len(replayed_steps)):
        raise UntrustedError(
            f"an episode must have the {len(replayed_steps)} steps that were answered", f"{len(recorded)}"
        )
    for index, (recorded_step, replayed_step) in enumerate(zip(recorded, replayed_steps, strict=True)):
        if not ledger.check("steps", recorded_step == replayed_step):
            raise UntrustedError(
                f"a step must be {replayed_step}, as its answer and the rules say",
                shorten(recorded_step),
                f"step {index}",
            )
    ended = live.outcome or "stopped"
    if not ledger.check("outcomes", free or record.outcome == ended):
        raise UntrustedError(f"the outcome must be {ended}", shorten(record.outcome), "outcome")


# Entry point that registers Inspect logs as a format of `import` and `export`.

importer("inspect", Format(endings=(".eval", ".json"), read=inspect_episodes, holds=is_inspect_log))


@exporter("inspect")
def export(store: Store, out: Path, progress: Callable[[int, int], None]) -> list[Path]:
    """Write a run as logs of Inspect, one per agent, or several for an agent with many steps; see `export_logs`.

    ``progress`` is called with the number of episodes written and the total number. Returns the paths of the logs.
    """
    try:
        from goalscope.integrations.inspect_ai.export import export_logs
    except ImportError as error:
        raise lacking("export --format inspect needs inspect-ai", "inspect", error) from error
    return export_logs(store, out, progress=progress)
