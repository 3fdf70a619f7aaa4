"""Where fitted probes are kept beside a run: safetensors files in `probes/`, entered into the index."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from goalscope.activations.shards import Artifact, artifacts, place, put_artifacts
from goalscope.ids import content_id
from goalscope.probing.fitting import Callbacks
from goalscope.probing.heads import COUNTED
from goalscope.probing.probe import Probe, ProbeKey, Target
from goalscope.progress import Progress
from goalscope.rows import Tag
from goalscope.runs import Store
from goalscope.stats import DRAW

PROBE: Final = "probe"
DECODER: Final = "plan decoder"
"""Kinds of artifacts."""
FOLDER: Final = "probes"
FORMAT: Final = 2
"""Enters the id of every fit: raised when the same settings no longer give the same probe."""


def stored_probes(run: str | Path, **tags: Tag) -> Iterator[tuple[Artifact, Probe]]:
    """Return the probes that are kept with a run, each with its row of the index; decoders of plans come last.

    Args:
        run: a run directory.
        tags: which ones: head, control, site, layer, agent, target ("cells", "distance", "plan"), ...

    Raises:
        FileNotFoundError: no run there, or a file is missing.
        ValueError: a damaged file; says so.
    """
    with Store(run) as store:
        for kind in (PROBE, DECODER):
            for one in artifacts(store, kind, **tags):
                yield one, Probe.load(place(store, one))


@dataclass(kw_only=True)
class ProbeStore:
    """The probes of one set of steps in a run directory, found again by what decided them.

    The index is read once: nobody else writes to the run meanwhile.

    Attributes:
        decisive, settings: what decided them all (steps, split, ...); target -> how probes of it are trained.
        models: control and seed of a random network (None without) -> content id of the model that it reads; that of
            ("none", None) where no control says otherwise.
        first: the place ("SITE/LAYER") whose source heads that read no activation are given: their keys do not say
        it.
        tags: kept with each in the index.
        pool: trains probes in other processes, None where this one does.
        fitted, reused: how many were fitted, and how many were there already.
    """

    store: Store
    decisive: Mapping[str, Any]
    settings: Mapping[Target, Mapping[str, Any]]
    models: Mapping[tuple[str, int | None], str]
    first: str
    tags: Mapping[str, Tag]
    pool: Executor | None = None
    fitted: int = 0
    reused: int = 0

    def callbacks(self, progress: Progress) -> Callbacks:
        """Return what a fit needs."""
        return Callbacks(find=self.find, keep=self.keep, progress=progress, pool=self.pool)

    @cached_property
    def _index(self) -> dict[str, Artifact]:
        return {one.id: one for kind in (PROBE, DECODER) for one in artifacts(self.store, kind)}

    def _id(self, key: ProbeKey) -> str:
        """Return the content id of all that decides the fit of a probe."""
        about = {
            "format": FORMAT,
            "kind": _kind(key),
            "name": key.text,
            "model": self.models.get((key.control, key.draw), self.models["none", None]),
            **({"first": self.first} if key.head in COUNTED else {}),
            **self.decisive,
            **({"target": key.target} if key.target != "plan" else {}),
            "seed": key.seed,
            "settings": self.settings[key.target],
        }
        return content_id("fit", about)

    def find(self, key: ProbeKey) -> Probe | None:
        """Return what was fitted before, None where it was not; a damaged or exchanged file is refused."""
        known = self._index.get(self._id(key))
        if known is None or not (path := place(self.store, known)).is_file():
            return None
        made = Probe.load(path)
        if made.id != known.tags.get("content"):
            raise ValueError(
                f"{path} must hold {known.tags.get('content')}, it holds {made.id}: delete the file, it is fitted again"
            )
        self.reused += 1
        return made

    def keep(self, key: ProbeKey, made: Probe) -> None:
        """Write one file and enter it into the index."""
        identity = self._id(key)
        about: dict[str, Tag] = {
            **self.tags,
            "target": key.target,
            "fit": key.text,
            "content": made.id,
            "head": key.head,
            "control": key.control,
            **({} if key.draw is None else {DRAW: key.draw}),
            "site": made.source.site,
            "layer": made.source.layer,
            "model": made.source.model,
        }
        path = f"{FOLDER}/{identity}.safetensors"
        one = Artifact(id=identity, kind=_kind(key), path=path, size=0, tags=about)
        target = place(self.store, one)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._index[identity] = replace(one, size=made.save(target))
        put_artifacts(self.store, self._index[identity])
        self.fitted += 1


def _kind(key: ProbeKey) -> str:
    return DECODER if key.target == "plan" else PROBE
