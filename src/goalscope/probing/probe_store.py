"""Where fitted probes and decoders are kept beside a run: safetensors files in `probes/`, entered into the index."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from goalscope.activations.artifacts import Artifact, artifacts, place, put_artifacts
from goalscope.ident import content_id
from goalscope.probing.callbacks import Keeping, Progress
from goalscope.probing.heads import COUNTED
from goalscope.probing.plan_decoder import PlanDecoder
from goalscope.probing.probe import Probe
from goalscope.rows import Tag
from goalscope.runs import Store

PROBE: Final = "probe"
DECODER: Final = "plan decoder"
"""Kinds of artifacts."""
FOLDER: Final = "probes"
FORMAT: Final = 1
"""Enters the id of every fit: raised when the same settings no longer give the same probe."""

Made = TypeVar("Made", Probe, PlanDecoder)


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
class Shelf(Generic[Made]):
    """Fitted things of one kind in a run directory, found again by what decided them.

    Args:
        store: the run, open for writing.
        kind: `PROBE` or `DECODER`.
        load: reads a file.
        decisive: what decided them all: steps, split, settings, ...
        models: control -> content id of the model that it reads; "none" where no control says otherwise.
        first: the place ("SITE/LAYER") whose source heads that read no activation are given: their names do not say it.
        tags: kept with each in the index.

    Attributes:
        fitted, reused: how many were fitted, and how many were there already.
    """

    store: Store
    kind: str
    load: Callable[[Any], Made]
    decisive: Mapping[str, Any]
    models: Mapping[str, str]
    first: str
    tags: Mapping[str, Tag]
    fitted: int = 0
    reused: int = 0

    def keeping(self, progress: Progress) -> Keeping[Made]:
        """Return what a fit needs: to find what is there, to keep what is finished, to show how far it is."""
        return Keeping(find=self.find, keep=self.keep, progress=progress)

    def id_of(self, name: str) -> str:
        """Return the content id of all that decides the fit of this name ("HEAD/CONTROL/SITE/LAYER...")."""
        head, control, *_ = name.split("/")
        model = self.models.get(control, self.models["none"])
        where = {"first": self.first} if head in COUNTED else {}
        return content_id(
            "fit", {"format": FORMAT, "kind": self.kind, "name": name, "model": model, **where, **self.decisive}
        )

    def find(self, name: str) -> Made | None:
        """Return what was fitted before, None where it was not.

        Raises:
            ValueError: its file is damaged, or is another one than the index says.
        """
        identity = self.id_of(name)
        known = {one.id: one for one in artifacts(self.store, self.kind, fit=name)}.get(identity)
        if known is None:
            return None
        path = place(self.store, known)
        if not path.is_file():
            return None
        made = self.load(path)
        if made.id != known.tags.get("content"):
            raise ValueError(
                f"{path} must hold {known.tags.get('content')}, it holds {made.id}: delete the file, it is fitted again"
            )
        self.reused += 1
        return made

    def keep(self, name: str, made: Made) -> None:
        """Write one file and enter it into the index."""
        identity = self.id_of(name)
        path = f"{FOLDER}/{identity}.safetensors"
        target = place(self.store, Artifact(id=identity, kind=self.kind, path=path, size=0))
        target.parent.mkdir(parents=True, exist_ok=True)
        size = made.save(target)
        head, control, *_ = name.split("/")
        about: dict[str, Tag] = {
            **self.tags,
            "fit": name,
            "content": made.id,
            "head": head,
            "control": control,
            "site": made.source.site,
            "layer": made.source.layer,
            "model": made.source.model,
        }
        put_artifacts(self.store, Artifact(id=identity, kind=self.kind, path=path, size=size, tags=about))
        self.fitted += 1
