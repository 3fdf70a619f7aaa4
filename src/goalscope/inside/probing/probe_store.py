"""Storage of fitted probes with a run: safetensors files in `probes/`, listed in the index."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from goalscope._ground.ids import content_id
from goalscope._ground.progress import Progress
from goalscope.inside.activations.shards import Artifact, artifacts, place, put_artifacts
from goalscope.inside.probing.fitting import Callbacks
from goalscope.inside.probing.heads import COUNTED
from goalscope.inside.probing.probe import Probe, ProbeKey, Target
from goalscope.runs import Store
from goalscope.stats import DRAW
from goalscope.stats.rows import Tag

PROBE: Final = "probe"
DECODER: Final = "plan decoder"
"""Kinds of artifacts."""
FOLDER: Final = "probes"
FORMAT: Final = 2
REFORMED: Final[Mapping[str, int]] = {"percell": 3}
"""Enters the id of every fit, by head: raised when the same settings no longer give the same probe."""


def stored_probes(run: str | Path, **tags: Tag) -> Iterator[tuple[Artifact, Probe]]:
    """Return the probes stored with a run, each with its row of the index; plan decoders come last.

    Probes of an earlier format, which the same settings no longer produce, are left out.

    Args:
        run: a run directory.
        tags: tags that they must have: head, control, site, layer, agent, target ("cells", "distance", "plan"), ...

    Raises:
        FileNotFoundError: if there is no such run, or a file is missing.
        ValueError: if a file is damaged.
    """
    with Store(run) as store:
        for kind in (PROBE, DECODER):
            for row in artifacts(store, kind, **tags):
                if row.tags.get("format", FORMAT) == _format(row.tags.get("head")):
                    yield row, Probe.load(place(store, row))


@dataclass(kw_only=True)
class ProbeStore:
    """The probes for one set of steps in a run directory, identified by everything that determines their fit.

    The index is read only once, because no other process writes to the run meanwhile.

    Attributes:
        decisive: inputs common to all fits (steps, split, ...).
        settings: target -> settings of its probes.
        models: control and seed of a random network (None without) -> content id of the model that it reads; other
            controls read that of ("none", None).
        first: the place ("SITE/LAYER") that stands for heads that read no activations, whose keys have no place.
        tags: stored with each probe in the index.
        pool: trains probes in other processes; None to train in this one.
        fitted: number of probes fitted in this call.
        reused: number of probes that were stored before.
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
        """Build the callbacks of a fit, which find and store probes here."""
        return Callbacks(find=self.find, keep=self.keep, progress=progress, pool=self.pool)

    @cached_property
    def _index(self) -> dict[str, Artifact]:
        return {row.id: row for kind in (PROBE, DECODER) for row in artifacts(self.store, kind)}

    def _id(self, key: ProbeKey) -> str:
        """Return the content id of everything that determines the fit of a probe."""
        tags = {
            "format": _format(key.head),
            "kind": _kind(key),
            "name": key.text,
            "model": self.models.get((key.control, key.draw), self.models["none", None]),
            **({"first": self.first} if key.head in COUNTED else {}),
            **self.decisive,
            **({"target": key.target} if key.target != "plan" else {}),
            "seed": key.seed,
            "settings": self.settings[key.target],
        }
        return content_id("fit", tags)

    def find(self, key: ProbeKey) -> Probe | None:
        """Return the stored probe for a key, or None. A damaged or exchanged file raises an error."""
        row = self._index.get(self._id(key))
        if row is None or not self.store.folder.has_file(row.path):
            return None
        path = place(self.store, row)
        probe = Probe.load(path)
        if probe.id != row.tags.get("content"):
            raise ValueError(
                f"{path} must contain probe {row.tags.get('content')}, but contains {probe.id}: delete the "
                "file to fit it again"
            )
        self.reused += 1
        return probe

    def keep(self, probes: Mapping[ProbeKey, Probe]) -> None:
        """Write one file per probe and add all to the index at once, so that an interruption leaves no entry."""
        rows = [self._written(key, probe) for key, probe in probes.items()]
        put_artifacts(self.store, *rows)
        self._index.update({row.id: row for row in rows})
        self.fitted += len(rows)

    def _written(self, key: ProbeKey, probe: Probe) -> Artifact:
        identity = self._id(key)
        tags: dict[str, Tag] = {
            **self.tags,
            "target": key.target,
            "fit": key.text,
            "content": probe.id,
            "head": key.head,
            "format": _format(key.head),
            "control": key.control,
            **({} if key.draw is None else {DRAW: key.draw}),
            "site": probe.source.site,
            "layer": probe.source.layer,
            "model": probe.source.model,
        }
        path = f"{FOLDER}/{identity}.safetensors"
        row = Artifact(id=identity, kind=_kind(key), path=path, size=0, tags=tags)
        self.store.folder.make(FOLDER)
        return replace(row, size=probe.save(place(self.store, row)))


def _format(head: Tag) -> int:
    return REFORMED.get(str(head), FORMAT)


def _kind(key: ProbeKey) -> str:
    return DECODER if key.target == "plan" else PROBE
