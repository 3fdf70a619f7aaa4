"""Capture: replay the recorded token ids of a run through a model and keep the vectors of some sites and layers."""

import json
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from goalscope.activations.capture_schedule import (
    SCOPES,
    CaptureSettings,
    Counts,
    Item,
    Scope,
    ShardPlan,
    plan_id,
    shards,
    windows,
)
from goalscope.activations.hooks import Blocks, Prefix, check_blocks, compute_shard, shares_prefixes, thirds
from goalscope.activations.load import CAPTURE, SHARD, Capture, captures, join_numbers
from goalscope.activations.record import SITES, Site, check_site
from goalscope.activations.replay_target import ReplayTarget, check_model, find_target, model_of
from goalscope.activations.shards import FORMAT, Artifact, Shard, artifacts, place, put_artifacts, write_shard
from goalscope.activations.sites import DEFAULT_SITES, SiteFinder, sites_there
from goalscope.ids import canonical_json, content_id
from goalscope.models.local import LocalModel
from goalscope.models.threads import fitting_threads
from goalscope.runs import Store
from goalscope.runs.provenance import note_libraries

Progress = Callable[[int, int], None]
"""Called with (steps done, steps of the agent)."""

_CHECKED_TOKENS = 64


def capture(
    run: str | Path,
    model: LocalModel | None = None,
    *,
    sites: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    agent: str | None = None,
    untrained: int | None = None,
    scope: Scope = "all",
    other_weights: bool = False,
    settings: CaptureSettings | None = None,
    progress: Progress | None = None,
) -> Capture:
    """Replay the steps of an agent through a model and store the vectors of some sites and layers beside the run.

    Called again after an interruption it goes on where it stopped; a complete capture is returned as it is.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        model: what to replay through; by default the local model that the run's study names.
        sites: "pre", "post", "grid", "action"; see `goalscope.activations.sites.SiteFinder`. None for those of
            `DEFAULT_SITES` that the steps have; a warning names the others.
        layers: numbers of decoder blocks, 0-based; the last block of each third of the model by default.
        agent: short name or id of the agent, where the run has several with token ids.
        untrained: seed of random weights in place of the study's: the control.
        scope: "all" steps, or the "first" one of each episode.
        other_weights: whether a trained model with other weights than those that generated the run is meant.
        settings: sizes of windows, batches and files.
        progress: is called as the work goes on.

    Raises:
        FileNotFoundError: no run there, or no such model.
        ValueError: a run without token ids, unknown sites or layers, a model whose tokenizer or weights are not those
            of the run, a site that cannot be found, or an activation that is not finite; names what to do.
        ImportError: torch or transformers is missing.
        BlockingIOError: another process writes to the run.
    """
    named = {check_site(name) for name in (DEFAULT_SITES if sites is None else sites)}
    wanted: tuple[Site, ...] = tuple(site for site in SITES if site in named)
    if not wanted:
        raise ValueError(f"a capture needs at least one site of {', '.join(SITES)}, got none")
    if scope not in SCOPES:
        raise ValueError(f"the scope of a capture must be one of {', '.join(SCOPES)}, got {scope!r}")
    if model is not None and untrained is not None:
        raise ValueError("untrained is for the study's model: give LocalModel(..., untrained=SEED) in place of both")
    with Store(run) as store:  # nothing is changed where something is wrong
        target = find_target(store, agent, wanted)
        model = model or model_of(store, target, untrained)
        check_model(target, model, other_weights=other_weights)
        wanted = wanted if sites is not None else sites_there(store, target.agent_id, model)
    finder = SiteFinder(model, wanted)
    blocks = Blocks(model.model, _layers(model, layers))
    with Store(run, "w") as store:
        note_libraries(store, "capture")
        work = _Capture(store, target, model, finder, blocks, wanted, scope, settings or CaptureSettings())
        return work.run(progress)


def _layers(model: LocalModel, layers: Sequence[int] | None) -> Sequence[int]:
    return thirds(Blocks(model.model).count) if layers is None else layers


class _Writer:
    """Writes one shard while the next is computed; its row of the index follows once the file is there."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="goalscope-shard")
        self._last: tuple[Artifact, Future[int]] | None = None

    def put(self, row: Artifact, shard: Shard) -> None:
        """Begin to write a shard, once the one before it is written and indexed."""
        self.finish()
        self._last = row, self._pool.submit(write_shard, self._folder / Path(row.path).name, shard)

    def finish(self) -> None:
        """Wait until the last file is there, then enter it into the index."""
        if self._last is not None:
            row, size = self._last
            self._last = None
            put_artifacts(self._store, replace(row, size=size.result()))

    def close(self) -> None:
        """End the thread; what is being written is written to its end."""
        self._pool.shutdown()


class _Capture:
    """One capture at work."""

    def __init__(
        self,
        store: Store,
        target: ReplayTarget,
        model: LocalModel,
        finder: SiteFinder,
        blocks: Blocks,
        sites: tuple[Site, ...],
        scope: Scope,
        settings: CaptureSettings,
    ) -> None:
        self._store, self._target, self._model = store, target, model
        self._finder, self._blocks, self._sites, self._scope = finder, blocks, sites, scope
        self._settings = settings
        self._kind = str(blocks.device.type)
        self._shares = shares_prefixes(blocks.config)
        description = dict(model.describe())
        plan = plan_id(store, target.agent_id, scope)
        self._model_id = content_id("model", description)
        dtype = str(blocks.dtype).removeprefix("torch.")
        decisive = {
            "format": FORMAT,
            "plan": plan,
            "model": self._model_id,
            "sites": list(sites),
            "layers": list(blocks.layers),
            "device": self._kind,
            "dtype": dtype,
            "settings": settings.describe(self._kind),
        }
        identity = content_id("capture", decisive)
        untrained = description.get("untrained")
        self._begun = Capture(
            id=identity,
            model=self._model_id,
            model_name=model.name,
            untrained=untrained if isinstance(untrained, int) else None,
            agent=target.agent,
            agent_id=target.agent_id,
            sites=sites,
            layers=blocks.layers,
            width=blocks.width,
            device=self._kind,
            dtype=dtype,
            scope=scope,
            steps=0,
            captured=None,
            reconstructed=0,
            left_out={},
            self_check={},
            complete=False,
            path=f"activations/{identity}",
            plan=plan,
        )

    def run(self, progress: Progress | None) -> Capture:
        stored = next((one for one in captures(self._store) if one.id == self._begun.id), None)
        known = {row.id: row for row in artifacts(self._store, SHARD, capture=self._begun.id)}
        ready = {identity for identity, row in known.items() if self._is_there(row)}
        if stored is not None and stored.complete and len(ready) == len(known):
            return stored
        folder = place(self._store, Artifact(id=self._begun.id, kind=CAPTURE, path=self._begun.path, size=0))
        folder.mkdir(parents=True, exist_ok=True)
        self._put(self._begun)
        counts = Counts()
        with fitting_threads(self._model.model), closing(_Writer(self._store, folder)) as writer:
            checked = self._compute(ready, counts, writer, progress)
            writer.finish()
        self._tidy(folder)
        complete = replace(
            self._begun,
            steps=counts.steps,
            captured=counts.captured,
            reconstructed=counts.reconstructed,
            left_out=dict(sorted(counts.left_out.items())),
            self_check=checked,
            complete=True,
        )
        self._put(complete)
        return complete

    def _compute(
        self, ready: Container[str], counts: Counts, writer: _Writer, progress: Progress | None
    ) -> dict[str, float]:
        """Compute the shards that are not ready; return what the self-check found for each layer."""
        steps = windows(
            self._store,
            self._target.agent_id,
            self._scope,
            self._finder,
            self._sites,
            self._settings.window,
            counts,
        )
        checked, number = dict[str, float](), 0
        for window in filter(None, steps):
            for item in window:
                self._check_ids(item)
            checked = checked or self._check_blocks(window[0])
            done = counts.steps - len(window)
            for planned, shard in self._window(window, number, ready):
                number += 1
                if shard is not None:
                    writer.put(self._row(planned), shard)
                done += sum(len(batch.items) for batch in planned.batches)
                if progress is not None:
                    progress(done, max(self._target.steps, counts.steps))
        return checked

    def _window(
        self, window: Sequence[Item], first: int, ready: Container[str]
    ) -> Iterator[tuple[ShardPlan, Shard | None]]:
        """Yield each shard of a window, None in place of one that is ready."""
        prefix: Prefix | None = None
        for planned in self._shards(window, first):
            if self._row(planned).id in ready:
                yield planned, None
                continue
            if prefix is None and len(planned.prefix):
                with self._blocks.recording() as recording:
                    prefix = recording.prefix(planned.prefix)
            yield (
                planned,
                compute_shard(self._blocks, planned, prefix, self._sites, capture=self._begun.id, model=self._model_id),
            )

    def _check_blocks(self, item: Item) -> dict[str, float]:
        found = check_blocks(self._model.model, self._blocks.layers, item.ids[:_CHECKED_TOKENS].tolist())
        return {str(layer): difference for layer, difference in found.items()}

    def _check_ids(self, item: Item) -> None:
        try:
            self._blocks.check_ids(item.ids)
        except ValueError as error:
            raise ValueError(f"{item.episode[0]} step {item.step}: {error}") from error

    def _shards(self, window: Sequence[Item], first: int) -> Iterator[ShardPlan]:
        return shards(
            window,
            first,
            settings=self._settings,
            device=self._kind,
            item_bytes=4 * self._blocks.width * len(self._blocks.layers),
            shares_prefix=self._shares,
            by_shape="grid" in self._sites,
        )

    def _is_there(self, row: Artifact) -> bool:
        path = place(self._store, row)
        return path.is_file() and path.stat().st_size == row.size

    def _row(self, planned: ShardPlan) -> Artifact:
        """Return the row of the index of a shard, its size not known yet."""
        return Artifact(
            id=content_id("shard", {"capture": self._begun.id, "number": planned.number}),
            kind=SHARD,
            path=f"{self._begun.path}/{planned.number:05d}.safetensors",
            size=0,
            tags={
                "capture": self._begun.id,
                "number": planned.number,
                "steps": sum(len(batch.items) for batch in planned.batches),
            },
        )

    def _tidy(self, folder: Path) -> None:
        """Remove what a killed process left half-written."""
        for path in folder.glob(".*.part"):
            path.unlink()

    def _put(self, capture: Capture) -> None:
        tags: dict[str, Any] = {
            name: getattr(capture, name)
            for name in ("model", "model_name", "untrained", "agent", "agent_id", "width", "device", "dtype", "scope")
        }
        tags |= {name: getattr(capture, name) for name in ("steps", "captured", "reconstructed", "complete", "plan")}
        tags |= {
            "sites": ",".join(capture.sites),
            "layers": join_numbers(capture.layers),
            "left_out": canonical_json(capture.left_out),
            "self_check": json.dumps(capture.self_check),
        }
        put_artifacts(self._store, Artifact(id=capture.id, kind=CAPTURE, path=capture.path, size=0, tags=tags))
