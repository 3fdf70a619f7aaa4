"""Replay the recorded token ids of a run through a model and store the vectors at chosen sites and layers.

Several processes may each compute a part of the files; afterwards all files are added to the index. Steps are divided
into windows, windows into batches of equal length, and batches into shards. The plan depends only on the run and the
settings, never on what has been captured already, so that a resumed capture computes the same batches and writes the
same bytes.
"""

import json
import warnings
from collections import Counter
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.folder import Folder
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.progress import Progress
from goalscope.agents.models.base import RANDOM_WEIGHTS, check_random_weights
from goalscope.agents.models.decode import fitting_threads
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.hooks import DecoderBlocks, Prefix, Recording, check_blocks, shares_prefixes, thirds
from goalscope.inside.activations.shards import (
    CAPTURE,
    FORMAT,
    SHARD,
    Artifact,
    Capture,
    Shard,
    artifacts,
    captures,
    first_infinite,
    open_shard,
    place,
    put_artifacts,
    put_capture,
    write_shard,
)
from goalscope.inside.activations.sites import (
    DEFAULT_SITES,
    SITES,
    ReplayTarget,
    Site,
    SiteFinder,
    available_sites,
    check_ids,
    check_model,
    check_site,
    chosen_steps,
    find_target,
    model_id,
    model_of,
    plan_id,
    steps_seen,
)
from goalscope.runs import Store
from goalscope.runs.dispatch import lost_worker, open_executor
from goalscope.runs.provenance import note_libraries
from goalscope.runs.shards import StudyShard

_MIN_PREFIX = 64  # tokens; caching a shorter prefix does not pay off
_WINDOW_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """Settings that limit the memory of `capture`, which sends recorded token ids through a model to store its
    activations.

    Attributes:
        window: number of steps (agent decisions) planned together. They are sorted by length, so larger windows make
            fuller batches.
        batch_tokens: maximum tokens per forward pass; a single sequence may exceed it. None: 2,048 on a CPU, 32,768 on
            a GPU.
        shard_bytes: size at which a file of activations is full, in bytes; a single batch may exceed it.
        share_prefix: whether to compute the common first tokens of a window's sequences only once, if that saves time.

    Raises:
        ValueError: if a size is below 1.
    """

    window: int = 4096
    batch_tokens: int | None = None
    shard_bytes: int = 1 << 26
    share_prefix: bool = True

    def __post_init__(self) -> None:
        for name in ("window", "batch_tokens", "shard_bytes"):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ValueError(f"{name} of a capture must be an integer >= 1, got {size!r}")

    def on(self, device: str) -> Self:
        """Return a copy in which a missing ``batch_tokens`` has the default for the device: 2,048 for "cpu", else
        32,768.
        """
        return replace(self, batch_tokens=self.batch_tokens or (2048 if device == "cpu" else 32_768))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayItem:
    """One recorded step (agent decision) whose prompt and answer are sent through the model again, to read its
    activations.

    It holds the ids of its episode, the grid's shape, the token ids ``[T]`` up to the last position that is needed, and
    the positions ``[P]`` in them at which vectors are read, for each site ("pre", "post", "grid" or "action").
    """

    episode: tuple[str, str, str]  # ids of episode, world and grid
    step: int
    shape: tuple[int, int]  # height and width of the grid
    reconstructed: bool  # whether its token ids were reconstructed from text
    # [T] prompt and output up to the last requested position, because later tokens cannot affect earlier ones
    ids: npt.NDArray[np.int64]
    positions: dict[Site, npt.NDArray[np.int64]]  # site -> [P] positions in ids


@dataclass(slots=True, kw_only=True)
class ReplayCounts:
    """Numbers of steps, counted while recorded steps are sent through the model again to read its activations.

    Counted are all steps; the captured ones, in total and by site (such as "pre", the end of the prompt); those whose
    token ids were reconstructed from text; and by reason those in which a site is missing.
    """

    steps: int = 0
    captured: int = 0  # steps with at least one site
    reconstructed: int = 0  # captured steps whose ids were reconstructed from text
    found: Counter[str] = field(default_factory=Counter)  # captured steps by site
    left_out: Counter[str] = field(default_factory=Counter)  # missing sites by "site: reason"


Batch = Sequence[Sequence[ReplayItem]]
"""Steps of equal length that pass through the model together; those of a group have equal ids and pass only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What one file of activations (a shard) will contain: its number, and the batches of steps to compute for it.

    ``prefix`` holds the token ids ``[S]`` with which all sequences begin; they pass through the model only once.
    """

    number: int
    batches: tuple[Batch, ...]
    prefix: npt.NDArray[np.int64]

    @property
    def items(self) -> list[ReplayItem]:
        """All recorded steps of the planned file, in the order of their rows in it."""
        return [item for batch in self.batches for group in batch for item in group]


def windows(
    store: Store, agent_id: str, scope: str, finder: SiteFinder, sites: Sequence[Site], size: int, counts: ReplayCounts
) -> Iterator[list[ReplayItem]]:
    """Yield lists of about ``size`` recorded steps of one agent, each step with the token positions to read activations
    from.

    Args:
        store: the stored run.
        agent_id, scope: the agent, and which of its steps to take ("all", "first" or "N:SEED", see `capture`).
        finder: finds the token positions of the requested ``sites`` (such as "pre", the end of the prompt) in a step.
        sites: the requested sites.
        size: number of steps per list; a list is shorter if its steps have very many tokens.
        counts: updated with the steps read, captured and left out.

    Raises:
        ValueError: if a requested site was in none of the steps read so far; the message names the site and says why.
    """
    window: list[ReplayItem] = []
    n_steps, tokens = 0, 0
    for episode, step, grid in steps_seen(store, agent_id, scope, chosen_steps(store, agent_id, scope)):
        counts.steps += 1
        n_steps += 1
        try:
            sites_found = finder.find(step, grid)
        except ValueError as error:
            raise ValueError(f"{episode.id} step {step.index}: {error}") from error
        counts.left_out.update(f"{site}: {reason}" for site, reason in sites_found.missing.items())
        counts.found.update(list(sites_found.positions))
        if sites_found.positions:
            last = max(int(positions.max()) for positions in sites_found.positions.values())
            ids = [*(step.prompt_tokens or ()), *(step.output_tokens or ())][: last + 1]
            item = ReplayItem(
                episode=(episode.id, episode.world.id, episode.world.cluster_id),
                step=step.index,
                shape=(episode.world.grid.height, episode.world.grid.width),
                reconstructed=bool(step.extra.get("reconstructed", False)),
                ids=np.array(ids, dtype=np.int64),
                positions=sites_found.positions,
            )
            counts.captured += 1
            counts.reconstructed += item.reconstructed
            tokens += len(ids)
            window.append(item)
        if n_steps >= size or tokens >= _WINDOW_TOKENS:
            _check_found(sites, counts)
            yield window
            window, n_steps, tokens = [], 0, 0
    _check_found(sites, counts)
    if window:
        yield window


def shards(
    window: Sequence[ReplayItem],
    first: int,
    *,
    settings: CaptureSettings,
    item_bytes: int,
    shares_prefix: bool,
    by_shape: bool,
) -> Iterator[ShardPlan]:
    """Divide steps into files of activations (shards), and yield for each file which steps it will contain, in which
    batches.

    Args:
        window, first: the steps, and the number of the first file.
        settings: limits of batches and files, with ``batch_tokens`` set (see `CaptureSettings.on`).
        item_bytes: bytes of the vectors at one position, all layers together.
        shares_prefix: whether the model can compute the common prefix once and continue from its cache.
        by_shape: whether grids of different shapes go into different files (needed for the site ``grid``).
    """
    prefix = _shared(window) if shares_prefix and settings.share_prefix else np.zeros(0, dtype=np.int64)

    def key(item: ReplayItem) -> tuple[tuple[int, int], int]:
        return (item.shape if by_shape else (0, 0)), len(item.ids)

    plan, size, shape = ShardPlan(number=first, batches=(), prefix=prefix), 0, (0, 0)
    for (group_shape, length), group in groupby(sorted(window, key=key), key=key):
        rows = max(1, (settings.batch_tokens or 1) // max(1, length - len(prefix)))
        for batch, added in _batches(list(group), rows, item_bytes, settings.shard_bytes):
            if plan.batches and (size >= settings.shard_bytes or group_shape != shape):
                yield plan
                plan, size = ShardPlan(number=plan.number + 1, batches=(), prefix=prefix), 0
            plan, size, shape = replace(plan, batches=(*plan.batches, batch)), size + added, group_shape
    if plan.batches:
        yield plan


def _batches(group: Sequence[ReplayItem], rows: int, item_bytes: int, max_bytes: int) -> Iterator[tuple[Batch, int]]:
    """Cut steps of one length into batches of at most ``rows`` different sequences, each with the bytes it adds."""
    by_ids: dict[bytes, list[ReplayItem]] = {}
    for item in group:
        by_ids.setdefault(item.ids.tobytes(), []).append(item)
    batch: list[list[ReplayItem]] = []
    size = 0
    for equal_items in by_ids.values():
        is_new = True
        for item in equal_items:
            if (is_new and len(batch) == rows) or size >= max_bytes:
                yield batch, size
                batch, size, is_new = [], 0, True
            if is_new:
                batch.append([])
            is_new = False
            batch[-1].append(item)
            size += item_bytes * sum(len(positions) for positions in item.positions.values())
    if batch:
        yield batch, size


def _shared(window: Sequence[ReplayItem]) -> npt.NDArray[np.int64]:
    """Return the common prefix of all sequences before any captured position.

    Empty if caching it would not save time.
    """
    none = np.zeros(0, dtype=np.int64)
    first = window[0].ids
    n_shared = min(int(positions.min()) for item in window for positions in item.positions.values())
    for item in window:
        length = min(n_shared, len(item.ids) - 1)
        differing = np.flatnonzero(item.ids[:length] != first[:length])
        n_shared = int(differing[0]) if len(differing) else length
    mean = sum(len(item.ids) for item in window) / len(window)
    worthwhile = len(window) > 1 and n_shared >= _MIN_PREFIX and n_shared >= mean / 4
    return first[:n_shared] if worthwhile else none


def _check_found(sites: Sequence[Site], counts: ReplayCounts) -> None:
    for site in sites:
        if counts.steps and not counts.found[site]:
            reasons = [
                f"{reason.removeprefix(f'{site}: ')} ({count} steps)"
                for reason, count in counts.left_out.most_common()
                if reason.startswith(f"{site}: ")
            ]
            raise ValueError(
                f"site {site} was not found in any of the first {counts.steps} steps: {'; '.join(reasons)}. "
                "Leave the site out, or give the model that generated the run"
            )


ON_DISK: Final = "there"
_CHECKED_TOKENS = 64
_PARTS_PER_WORKER: Final = 4  # more than one, so that a slow worker delays few files


def capture(
    run: str | Path,
    model: LocalModel | None = None,
    *,
    sites: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    agent: str | None = None,
    untrained: int | None = None,
    random_weights: str = RANDOM_WEIGHTS[0],
    scope: str = "all",
    other_weights: bool = False,
    settings: CaptureSettings | None = None,
    progress: Progress | None = None,
    shard: StudyShard | None = None,
) -> Capture:
    """Replay the recorded steps of an agent through its model, and store activations with the run.

    The activations are the residual stream after some decoder blocks (`layers`) at some token positions (`sites`).

    Call it again to resume after an interruption; a complete capture is returned unchanged. Files that processes with a
    ``shard`` have written, but that the index of the run does not list yet, are added.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        model: the model to replay through; by default the local model that the run's study names.
        sites: some of "pre" (the end of the prompt), "post" (after the reasoning), "grid" (the cells), "action" (before
            the word of the action); see `goalscope.inside.activations.sites.SiteFinder`. None for those of
            `DEFAULT_SITES` that the steps have; a warning names the others.
        layers: numbers of decoder blocks, counted from 0; by default the last block of each third of the model.
        agent: short name or id of the agent, if several agents of the run have token ids.
        untrained: seed of random weights, to capture a control instead of the study's model.
        random_weights: with ``untrained``, their kind: "default-init", "initial" or "permuted", see `LocalModel`.
        scope: "all" steps, the "first" one of each episode, or "N:SEED" for N random steps per grid.
        other_weights: whether to allow a trained model with other weights than those that generated the run.
        settings: sizes of windows, batches and files.
        progress: called with (steps done, steps of the agent).
        shard: compute only this part of the files and leave the index unchanged. Any number of processes and machines
            may do so at the same time; the same call without a shard then adds their files and completes the capture.

    Returns:
        The description of the stored activations (model, sites, layers, numbers of steps); `load_activations` reads
        them.

    Raises:
        FileNotFoundError: if there is no such run or model.
        ValueError: if the run has no token ids, a site or layer is unknown or cannot be found, the model has another
            tokenizer or other weights than the run, or an activation is not finite; the message says what to do.
        ImportError: if torch or transformers is missing.
        BlockingIOError: if another process is writing to the run.
    """
    site_names = {check_site(name) for name in (DEFAULT_SITES if sites is None else sites)}
    selected_sites: tuple[Site, ...] = tuple(site for site in SITES if site in site_names)
    if not selected_sites:
        raise ValueError(f"sites must name at least one of {', '.join(SITES)}, got none")
    if model is not None and untrained is not None:
        raise ValueError(
            "untrained applies to the study's model only: pass LocalModel(..., untrained=SEED) instead "
            "of both model and untrained"
        )
    check_random_weights(random_weights, untrained)
    with Store(run) as store:  # all checks come before the first change
        target = find_target(store, agent, selected_sites)
        chosen = chosen_steps(store, target.agent_id, scope)
        model = model or model_of(store, target, untrained, random_weights)
        check_model(target, model, other_weights=other_weights)
        check_ids(store, target, model)
        selected_sites = selected_sites if sites is not None else available_sites(store, target.agent_id, model)
    steps = target.steps if chosen is None else sum(map(len, chosen.values()))
    blocks = DecoderBlocks(model.model)
    blocks = DecoderBlocks(model.model, thirds(blocks.count) if layers is None else layers)
    finder = SiteFinder(model, selected_sites)
    with Store(run, "r" if shard is not None else "w") as store:
        work = _Capture(
            store=store,
            target=target,
            model=model,
            finder=finder,
            blocks=blocks,
            sites=selected_sites,
            scope=scope,
            settings=(settings or CaptureSettings()).on(blocks.device.type),
            part=shard,
        )
        if shard is None:
            note_libraries(store, "capture")
        stored = next((item for item in captures(store) if item.id == work.pending.id), None)
        shard_rows = list(artifacts(store, SHARD, capture=work.pending.id))
        ready = {
            row.id
            for row in shard_rows
            if (status := store.folder.status(row.path)) is not None and status.st_size == row.size
        }
        if stored is not None and stored.complete and len(ready) == len(shard_rows):
            return stored
        with fitting_threads(model.model), closing(work.write(ready)) as done_counts:
            for done in done_counts:
                if progress is not None:
                    progress(done, max(steps, work.counts.steps))
        return work.pending if shard is not None else work.finish()


@dataclass(frozen=True, kw_only=True)
class _Capture:
    """Capture in progress, with step counts and the differences found by the self-check."""

    store: Store
    target: ReplayTarget
    model: LocalModel
    finder: SiteFinder
    blocks: DecoderBlocks
    sites: tuple[Site, ...]
    scope: str
    settings: CaptureSettings
    part: StudyShard | None = None
    counts: ReplayCounts = field(default_factory=ReplayCounts)
    self_check: dict[str, float] = field(default_factory=dict)

    @cached_property
    def pending(self) -> Capture:
        """The capture before any computation; its id covers everything that its files depend on."""
        description = dict(self.model.describe())
        untrained = description.get("untrained")
        decisive: dict[str, Any] = {
            "plan": plan_id(self.store, self.target.agent_id, self.scope),
            "model": model_id(self.model),
            "sites": self.sites,
            "layers": self.blocks.layers,
            "device": str(self.blocks.device.type),
            "dtype": str(self.blocks.dtype).removeprefix("torch."),
        }
        identity = content_id("capture", {**decisive, "format": FORMAT, "settings": asdict(self.settings)})
        return Capture(
            **decisive,
            id=identity,
            model_name=self.model.name,
            untrained=untrained if isinstance(untrained, int) else None,
            random_weights=description.get("random_weights", RANDOM_WEIGHTS[0]),
            agent=self.target.agent,
            agent_id=self.target.agent_id,
            width=self.blocks.width,
            scope=self.scope,
            steps=0,
            captured=None,
            reconstructed=0,
            left_out={},
            self_check={},
            complete=False,
            path=f"activations/{identity}",
        )

    @property
    def folder(self) -> Path:
        return place(self.store, Artifact(id=self.pending.id, kind=CAPTURE, path=self.pending.path, size=0))

    def write(self, ready: Container[str]) -> Generator[int, None, None]:
        """Write each shard while the next is computed; yield the number of finished steps.

        The row of a shard enters the index once its file exists.
        """
        folder = self.folder
        self.store.folder.make(self.pending.path)
        if self.part is None:
            put_capture(self.store, self.pending)
        waiting: list[tuple[Artifact, Future[int]]] = []

        def enter() -> None:
            for row, size in waiting:
                entered = replace(row, size=size.result())
                if self.part is None:
                    put_artifacts(self.store, entered)
            waiting.clear()

        with ThreadPoolExecutor(1, thread_name_prefix="goalscope-shard") as pool:
            for done, row, shard in self._computed(ready):
                if shard is not None:
                    enter()
                    waiting.append((row, pool.submit(_write_if_missing, folder / Path(row.path).name, shard)))
                yield done
            enter()

    def finish(self) -> Capture:
        """Complete the capture and return it."""
        folder = self.store.folder
        for path in folder.files(".*.partial", self.pending.path):  # remove the temporary files of killed processes
            folder.remove_file(self.pending.path, path.name)
        complete = replace(
            self.pending,
            steps=self.counts.steps,
            captured=self.counts.captured,
            reconstructed=self.counts.reconstructed,
            left_out=dict(sorted(self.counts.left_out.items())),
            self_check=self.self_check,
            complete=True,
        )
        put_capture(self.store, complete)
        return complete

    def _computed(self, ready: Container[str]) -> Iterator[tuple[int, Artifact, Shard | str | None]]:
        """Yield, for each file, the number of finished steps, its row of the index without the size, and its content.

        The content is `ON_DISK` if an intact file exists, and None if the file belongs to another process.
        """
        pending, number, shares_prefix = self.pending, 0, shares_prefixes(self.blocks.config)
        steps = windows(
            self.store, pending.agent_id, pending.scope, self.finder, pending.sites, self.settings.window, self.counts
        )
        for window in filter(None, steps):
            self._check(window)
            done, prefix = self.counts.steps - len(window), None
            plans = shards(
                window,
                number,
                settings=self.settings,
                item_bytes=4 * pending.width * len(pending.layers),
                shares_prefix=shares_prefix,
                by_shape="grid" in pending.sites,
            )
            for planned in plans:
                n_items = len(planned.items)
                row = Artifact(
                    id=content_id("shard", {"capture": pending.id, "number": number}),
                    kind=SHARD,
                    path=f"{pending.path}/{number:05d}.safetensors",
                    size=0,
                    tags={"capture": pending.id, "number": number, "steps": n_items},
                )
                shard: Shard | str | None = None
                in_part = self.part is None or number % self.part.of == self.part.number - 1
                if in_part and row.id not in ready and self._is_on_disk(row, planned):
                    shard = ON_DISK
                elif in_part and row.id not in ready:
                    with self.blocks.recording() as recording:
                        if prefix is None and len(planned.prefix):
                            prefix = recording.prefix(planned.prefix)
                        shard = _shard(recording, planned, prefix, pending)
                done, number = done + n_items, number + 1
                yield done, row, shard

    def _is_on_disk(self, row: Artifact, planned: ShardPlan) -> bool:
        """Return whether an intact file with the planned steps exists; a damaged file is computed again."""
        pending, path = self.pending, place(self.store, row)
        status = self.store.folder.status(row.path)
        if status is None:
            return False
        try:
            with open_shard(path, size=status.st_size, capture=pending.id) as shard:
                for site in pending.sites:
                    expected = [(item.episode[0], item.step) for item in planned.items if site in item.positions]
                    for layer in pending.layers:
                        columns = shard.columns(site, layer, pending.width)
                        shard.vectors(site, layer)
                        if expected != list(zip(columns["episode_id"].tolist(), columns["step"].tolist(), strict=True)):
                            raise ValueError(
                                f"{path} contains other steps than planned: delete this file and capture again"
                            )
        except ValueError as error:
            warnings.warn(f"{error}; it is computed again", stacklevel=2)
            return False
        return True

    def _check(self, window: Sequence[ReplayItem]) -> None:
        """Raise an error if the model lacks some tokens, or if its hooks do not read the outputs of its blocks."""
        for item in window:
            try:
                self.blocks.check_ids(item.ids)
            except ValueError as error:
                raise ValueError(f"{item.episode[0]} step {item.step}: {error}") from error
        if not self.self_check:
            differences = check_blocks(self.model.model, self.pending.layers, window[0].ids[:_CHECKED_TOKENS].tolist())
            self.self_check.update((str(layer), difference) for layer, difference in differences.items())


def _write_if_missing(path: Path, shard: Shard | str) -> int:
    """Write a shard unless it is on disk, and return the size of its file."""
    return Folder(path.parent).size(path.name) if isinstance(shard, str) else write_shard(path, shard)


def _shard(recording: Recording, planned: ShardPlan, prefix: Prefix | None, pending: Capture) -> Shard:
    """Compute the vectors of a shard."""
    import torch

    by_site: dict[Site, list[Any]] = {site: [] for site in pending.sites}
    for batch in planned.batches:
        for site, vectors in _recorded(recording, batch, prefix, len(planned.prefix), pending.sites):
            by_site[site].append(vectors)
    # Nothing synchronises with the device before this line.
    items = planned.items
    episodes, arrays = _layout(items, pending.sites)
    for site in pending.sites:
        site_items = [item for item in items if site in item.positions]
        for number, layer in enumerate(pending.layers):
            vectors = np.zeros((*arrays[f"{site}.positions"].shape, pending.width), dtype=np.float32)
            if site_items:
                vectors = torch.cat([tensor[number] for tensor in by_site[site]]).cpu().numpy()
            if (row := first_infinite(vectors)) is not None:
                raise ValueError(
                    f"activations must be finite, but {site_items[row].episode[0]} step {site_items[row].step}, "
                    f"site {site}, layer {layer} has NaN or infinity: check the model's weights and its dtype "
                    "(float16 overflows in some models; use bfloat16 or float32)"
                )
            arrays[f"{site}.{layer}"] = vectors
    header = {"capture": pending.id, "model": pending.model, "number": planned.number, "episodes": episodes}
    return Shard(header=header, arrays=arrays)


def _recorded(
    recording: Recording, batch: Batch, prefix: Prefix | None, skipped: int, sites: Sequence[Site]
) -> Iterator[tuple[Site, Any]]:
    """Yield the vectors ``[L, m, P, D]`` float32 of each site that m steps of a batch have, still on the device.

    ``skipped`` is the number of tokens in the prefix.
    """
    import torch

    ids = np.stack([group[0].ids for group in batch])[:, skipped:]
    steps = [(row, item) for row, group in enumerate(batch) for item in group]
    by_site = {site: [(row, item.positions[site]) for row, item in steps if site in item.positions] for site in sites}
    all_positions = [item for site_positions in by_site.values() for item in site_positions]
    columns = np.concatenate([positions for _, positions in all_positions]).astype(np.int64) - skipped
    rows = np.repeat(
        np.array([row for row, _ in all_positions], dtype=np.int64), [len(item) for _, item in all_positions]
    )
    layers = recording.run(np.ascontiguousarray(ids), rows, columns, prefix)
    vectors = torch.stack([layer.to(layers[0].device).float() for layer in layers])
    offset = 0
    for site, site_positions in by_site.items():
        if site_positions:
            end = offset + sum(len(positions) for _, positions in site_positions)
            yield site, vectors[:, offset:end].reshape(len(vectors), len(site_positions), -1, vectors.shape[2])
            offset = end


def _layout(items: Sequence[ReplayItem], sites: Sequence[Site]) -> tuple[list[list[str]], dict[str, npt.NDArray[Any]]]:
    """Return the episode of each of n steps, and all tensors of the steps' shard except the vectors."""
    episode_numbers = {episode: number for number, episode in enumerate(dict.fromkeys(item.episode for item in items))}
    arrays: dict[str, npt.NDArray[Any]] = {
        "episode": np.array([episode_numbers[item.episode] for item in items], dtype=np.int64),
        "step": np.array([item.step for item in items], dtype=np.int64),
        "shape": np.array([item.shape for item in items], dtype=np.int64).reshape(-1, 2),
        "reconstructed": np.array([item.reconstructed for item in items], dtype=np.uint8),
    }
    for site in sites:
        rows = [row for row, item in enumerate(items) if site in item.positions]
        positions = [items[row].positions[site] for row in rows]
        tokens = [items[row].ids[position] for row, position in zip(rows, positions, strict=True)]
        size = (len(rows), len(positions[0]) if rows else 0)
        arrays[f"{site}.rows"] = np.array(rows, dtype=np.int64)
        arrays[f"{site}.positions"] = np.array(positions, dtype=np.int64).reshape(size)
        arrays[f"{site}.tokens"] = np.array(tokens, dtype=np.int64).reshape(size)
    return [list(episode) for episode in episode_numbers], arrays


@lru_cache(maxsize=1)
def _model(described: str) -> LocalModel:
    return LocalModel(**json.loads(described))


def capture_part(
    run: str, options: Mapping[str, Any], model: Mapping[str, Any] | None, shard: str | None = None
) -> Capture:
    """Compute a capture (the stored activations of a run), or one part of its files, in a worker process.

    `capture_elsewhere` calls this in its workers. A process loads the model only once.

    Args:
        run: the run directory.
        options: other arguments of `capture`.
        model: arguments of `LocalModel`; None for the model that the run's study names.
        shard: the part to compute, as "2/8" for the second of eight; None computes whatever is still missing, and
            completes the capture.
    """
    local_model = None if model is None else _model(canonical_json(model))
    return capture(run, local_model, shard=None if shard is None else StudyShard.parse(shard), **options)


def capture_elsewhere(
    run: str,
    options: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    executor: str,
    workers: int,
    gpus: float = 0.0,
    progress: Progress = lambda done, total: None,
) -> Capture:
    """Store the activations of a run like `capture`, computed by several processes; the result equals that of one
    process.

    Args:
        run: the run directory, as every worker sees it.
        options: arguments of `capture`, except for the model.
        model: arguments of `LocalModel`; None for the model that the run's study names.
        executor, workers, gpus: see `goalscope.runs.dispatch.open_executor`; the executor "threads" is refused.
        progress: called with (parts done, all parts).

    Raises:
        OSError: if a worker died.
        ValueError, ImportError: see `capture` and `open_executor`.
    """
    parts = [
        str(StudyShard(number, workers * _PARTS_PER_WORKER)) for number in range(1, workers * _PARTS_PER_WORKER + 1)
    ]
    with open_executor(executor, workers, gpus) as pool:
        if pool is None:
            raise ValueError(
                "executor must be processes or ray for a capture in other processes, got threads: leave "
                "executor out to capture in this process"
            )
        futures = [pool.submit(capture_part, run, options, model, part) for part in parts]
        for done, future in enumerate(as_completed(futures), start=1):
            problem = future.exception()
            if problem is not None:
                for pending in futures:
                    pending.cancel()
                raise lost_worker(problem) or problem
            progress(done, len(parts))
    return capture_part(run, options, model)
