"""Logs of Inspect, read by its own public reader, a few samples in memory: ours replayed, others' by a reader."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from goalscope.extras import lacking
from goalscope.importers.archive import largest_member
from goalscope.importers.inspect_replay import replayed
from goalscope.importers.problems import Context
from goalscope.importers.recorded import RecordedEpisode, recorded_episode
from goalscope.inspect_ai.record import KEY
from goalscope.runs.record import Episode
from goalscope.untrusted import MOST_FILE_BYTES, UntrustedError, printable, shorten

_HELD: Final = 64 * 2**20
"""Bytes of samples that are read together."""

_MOST_TOGETHER: Final = 16
_HEAD: Final = 4096
_MOST_MESSAGE: Final = 300


def is_inspect_json(path: Path) -> bool:
    """Return whether a JSON file is a log of Inspect, by its beginning."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False  # the reader that gets it reports it
    return b'"eval"' in head and (b'"eval_id"' in head or b'"run_id"' in head) and b'"status"' in head


def inspect_episodes(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Yield the episodes of one log; what cannot be used is reported.

    Raises:
        ImportError: inspect-ai is not installed.
    """
    context.ledger.counts["files read"] += 1
    with context.ledger.reporting(name):
        yield from _Log(path, name, context).episodes()


class _Log:
    """One log."""

    def __init__(self, path: Path, source: str, context: Context) -> None:
        self.source, self.context, self.ledger = source, context, context.ledger
        self.location = path.resolve().as_posix()
        packed = path.suffix.lower() == ".eval"
        size = largest_member(path) if packed else path.stat().st_size
        if not packed and size > MOST_FILE_BYTES:
            must = f"a log in JSON must have at most {MOST_FILE_BYTES} bytes: inspect log convert --to eval helps"
            raise UntrustedError(must, f"{size}")
        self.together = max(1, min(_MOST_TOGETHER, _HELD // max(1, size))) if packed else None
        self.reader = _public_reader()
        with _inspect("the header of the log"):
            self.header = self.reader.read_eval_log(self.location, header_only=True)

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes of its samples."""
        if self.header.status != "success":
            self.ledger.counts[f"logs that are not complete ({self.header.status})"] += 1
        for sample in self._samples():
            place = f"sample {printable(str(sample.id))} epoch {sample.epoch}"
            ours = isinstance(sample.metadata, dict) and KEY in sample.metadata
            if not ours and self.context.reader is None:
                raise UntrustedError(
                    "a log of a task that is not ours must be read by a function of yours: add --reader "
                    "module:function, ten lines (docs/inspect.md)",
                    f"the task {shorten(self.header.eval.task)}",
                )
            with self.ledger.reporting(self.source, place, count="trajectories not imported"):
                episode = self._replayed(sample) if ours else self._read(sample)
                if episode is not None:
                    self.ledger.counts["trajectories"] += 1
                    self.ledger.counts["steps"] += len(episode.steps)
                    yield episode

    def _samples(self) -> Iterator[Any]:
        """Yield the samples that are in the log; one that cannot be read is reported."""
        if self.together is None:
            with _inspect("the log"):
                log = self.reader.read_eval_log(self.location, resolve_attachments="full")
            yield from log.samples or ()
            return
        with _inspect("the list of samples"):
            found = self.reader.read_eval_log_sample_summaries(self.location)
        self._count_missing(len(found))
        waiting = iter([(one.id, one.epoch) for one in found])
        while part := list(islice(waiting, self.together)):
            try:
                with _inspect("the samples"):
                    yield from self._read_part(part)
            except UntrustedError:
                for one in part:
                    with self.ledger.reporting(self.source, count="trajectories not imported"):
                        with _inspect(f"sample {shorten(one[0])} epoch {one[1]}"):
                            samples = self._read_part([one])
                        yield from samples

    def _read_part(self, part: list[tuple[Any, int]]) -> list[Any]:
        found: list[Any] = self.reader.read_eval_log_samples_by_id(self.location, part, resolve_attachments="full")
        return found

    def _count_missing(self, there: int) -> None:
        """Count what an unfinished log lacks; the sample ids and epochs of a finished one need not all be paired."""
        planned = len(self.header.eval.dataset.sample_ids or ()) * (self.header.eval.config.epochs or 1)
        if self.header.status != "success" and planned > there:
            self.ledger.counts["samples that are not in the log"] += planned - there

    def _replayed(self, sample: Any) -> Episode | None:
        """Return the episode of a sample of ours, None for one that an error or an interruption ended."""
        if sample.error is not None or KEY not in (sample.store or {}):
            self.ledger.counts["samples that an error or an interruption ended"] += 1
            return None
        episode, description = replayed(sample, self.context)
        self.ledger.agents.setdefault(episode.spec.agent_id, (episode.agent, description))
        return episode

    def _read(self, sample: Any) -> Episode | None:
        """Return the episode that the reader makes of a sample, None where it leaves it out."""
        reader = self.context.reader
        assert reader is not None  # asked before
        try:
            found = reader(sample, self.header)
        except Exception as error:
            must = "the reader must return a RecordedEpisode for each sample, or None to leave it out"
            raise UntrustedError(must, f"{type(error).__name__}: {shorten(str(error))}") from error
        if found is None:
            self.ledger.counts["samples that the reader leaves out"] += 1
            return None
        if not isinstance(found, RecordedEpisode):
            must = "the reader must return a RecordedEpisode for each sample, or None to leave it out"
            raise UntrustedError(must, type(found).__name__)
        episode, agent = recorded_episode(found, sample, self.header)
        self.context.take(episode)
        self.ledger.agents.setdefault(episode.spec.agent_id, (agent, {"recorded": agent}))
        return episode


def _public_reader() -> Any:
    """Return the module of Inspect's public reader."""
    try:
        import inspect_ai.log
    except ImportError as error:
        raise lacking("logs of Inspect need inspect-ai", "inspect", error) from error
    return inspect_ai.log


@contextmanager
def _inspect(what: str) -> Iterator[None]:
    """Turn whatever Inspect's reader raises about a file into one sentence."""
    try:
        yield
    except (OSError, UntrustedError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        given = f"{type(error).__name__}: {printable(said[:_MOST_MESSAGE])}"
        raise UntrustedError(f"Inspect must be able to read {what}", given) from error
