"""One capture by several processes: each computes a part of its files, then all are entered into the index."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from goalscope.activations.capture import capture
from goalscope.activations.load import Capture
from goalscope.ids import canonical_json
from goalscope.models.local import LocalModel
from goalscope.runs.executors import lost_worker, open_executor
from goalscope.runs.study_shard import StudyShard

_PARTS: Final = 4  # of each worker: one that is late holds up few files


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """What is captured, as it passes between processes.

    Attributes:
        run: the run directory, as every worker sees it.
        options: arguments of `capture` but for the model.
        model: arguments of `LocalModel`; None for the model that the run's study names.
    """

    run: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None

    def loaded(self) -> LocalModel | None:
        """Return the model that is given; a process makes it once."""
        return None if self.model is None else _model(canonical_json(self.model))


@lru_cache(maxsize=1)
def _model(described: str) -> LocalModel:
    return LocalModel(**json.loads(described))


def capture_part(request: CaptureRequest, shard: str) -> str:
    """Compute a part of the files of a capture; return the id of the capture."""
    return capture(request.run, request.loaded(), shard=StudyShard.parse(shard), **request.options).id


def capture_elsewhere(
    request: CaptureRequest,
    executor: str,
    workers: int,
    gpus: float = 0.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Capture:
    """Capture in other processes, then take their files over here; equal to what one process captures.

    Args:
        request: what is captured.
        executor, workers, gpus: see `goalscope.runs.executors.open_executor`; not "threads".
        progress: told (parts done, in all).

    Raises:
        OSError: a worker died.
        ValueError, ImportError: see `capture` and `open_executor`.
    """
    parts = [str(StudyShard(number, workers * _PARTS)) for number in range(1, workers * _PARTS + 1)]
    with open_executor(executor, workers, gpus) as pool:
        if pool is None:
            raise ValueError("a capture in other processes needs processes, ray or dask, got threads: leave it out")
        waiting = [pool.submit(capture_part, request, part) for part in parts]
        for done, future in enumerate(as_completed(waiting), start=1):
            problem = future.exception()
            if problem is not None:
                for one in waiting:
                    one.cancel()
                raise lost_worker(problem) or problem
            progress(done, len(parts))
    return capture(request.run, request.loaded(), **request.options)
