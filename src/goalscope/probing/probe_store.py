"""Where fitted probes and decoders are kept beside a run: safetensors files in `probes/`, entered into the index."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from goalscope.activations.shards import Artifact, artifacts, place, put_artifacts
from goalscope.ids import content_id
from goalscope.probing.fitted import ProbeKey, Target
from goalscope.probing.fitting import Callbacks, Progress
from goalscope.probing.heads import COUNTED
from goalscope.probing.plans import PlanDecoder
from goalscope.probing.probe import Probe
from goalscope.rows import Tag
from goalscope.runs import Store

PROBE: Final = "probe"
DECODER: Final = "plan decoder"
"""Kinds of artifacts."""
FOLDER: Final = "probes"
FORMAT: Final = 1
"""Enters the id of every fit: raised when the same settings no longer give the same probe."""


def stored_probes(run: str | Path, **tags: Tag) -> Iterator[tuple[Artifact, Probe | PlanDecoder]]:
    """Return the probes and decoders that are kept with a run, each with its row of the index.

    Args:
        run: a run directory.
        tags: which ones: head, control, site, layer, agent, target ("cells", "distance"), ...

    Raises:
        FileNotFoundError: no run there, or a file is missing.
        ValueError: a damaged file; says so.
    """
    with Store(run) as store:
        for kind, load in ((PROBE, Probe.load), (DECODER, PlanDecoder.load)):
            for one in artifacts(store, kind, **tags):
                yield one, load(place(store, one))


@dataclass(slots=True, kw_only=True)
class ProbeStore:
    """The probes and decoders of one set of steps in a run directory, found again by what decided them.

    Args:
        store: the run, open for writing.
        decisive: what decided them all: steps, split, ...
        settings: target -> how probes of it are trained.
        models: control -> content id of the model that it reads; "none" where no control says otherwise.
        first: the place ("SITE/LAYER") whose source heads that read no activation are given: their keys do not say it.
        tags: kept with each in the index.

    Attributes:
        fitted, reused: how many were fitted, and how many were there already.
    """

    store: Store
    decisive: Mapping[str, Any]
    settings: Mapping[Target, Mapping[str, Any]]
    models: Mapping[str, str]
    first: str
    tags: Mapping[str, Tag]
    fitted: int = 0
    reused: int = 0

    def callbacks(self, progress: Progress) -> Callbacks[Any]:
        """Return what a fit needs: to find what is there, to keep what is finished, to show how far it is."""
        return Callbacks(find=self.find, keep=self.keep, progress=progress)

    def id_of(self, key: ProbeKey) -> str:
        """Return the content id of all that decides the fit of a probe."""
        kind, _ = _kind(key)
        where = {"first": self.first} if key.head in COUNTED else {}
        target = {"target": key.target} if kind == PROBE else {}
        return content_id(
            "fit",
            {
                "format": FORMAT,
                "kind": kind,
                "name": key.text,
                "model": self.models.get(key.control, self.models["none"]),
                **where,
                **self.decisive,
                **target,
                "seed": key.seed,
                "settings": self.settings[key.target],
            },
        )

    def find(self, key: ProbeKey) -> Probe | PlanDecoder | None:
        """Return what was fitted before, None where it was not.

        Raises:
            ValueError: its file is damaged, or is another one than the index says.
        """
        kind, load = _kind(key)
        known = {one.id: one for one in artifacts(self.store, kind, fit=key.text)}.get(self.id_of(key))
        if known is None:
            return None
        path = place(self.store, known)
        if not path.is_file():
            return None
        made = load(path)
        if made.id != known.tags.get("content"):
            raise ValueError(
                f"{path} must hold {known.tags.get('content')}, it holds {made.id}: delete the file, it is fitted again"
            )
        self.reused += 1
        return made

    def keep(self, key: ProbeKey, made: Probe | PlanDecoder) -> None:
        """Write one file and enter it into the index."""
        kind, _ = _kind(key)
        identity = self.id_of(key)
        path = f"{FOLDER}/{identity}.safetensors"
        target = place(self.store, Artifact(id=identity, kind=kind, path=path, size=0))
        target.parent.mkdir(parents=True, exist_ok=True)
        size = made.save(target)
        about: dict[str, Tag] = {
            **self.tags,
            "target": key.target,
            "fit": key.text,
            "content": made.id,
            "head": key.head,
            "control": key.control,
            "site": made.source.site,
            "layer": made.source.layer,
            "model": made.source.model,
        }
        put_artifacts(self.store, Artifact(id=identity, kind=kind, path=path, size=size, tags=about))
        self.fitted += 1


def _kind(key: ProbeKey) -> tuple[str, Callable[[Path], Probe | PlanDecoder]]:
    """Return the kind of artifact that a probe is kept as, and what reads its file."""
    return (DECODER, PlanDecoder.load) if key.target == "plan" else (PROBE, Probe.load)
