"""Passes of patching: for each site of a pair one pass with both sides as they are and a copy for each patch.

A `Condition` is one patch: its site, layers, component and the vectors that are written; `edits_of` returns its edits
of the rows of the pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.agents.choice import answers_of
from goalscope.agents.models.base import Reply, Sampling
from goalscope.agents.models.decode import Decoded, common_prefix
from goalscope.agents.models.likelihood import Alternatives, placed
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.sites import Site as FoundSite
from goalscope.inside.activations.sites import SiteFinder
from goalscope.inside.interventions.edits import EMBEDDING, Component, Edit
from goalscope.inside.interventions.forward import Batch
from goalscope.inside.interventions.pairs import Pair, Side

Places = npt.NDArray[np.int64]
Patch = Literal["source", "identity", "isotropic", "covariance", "wrong"]
"""The vectors that are written: the source's; the target's own; noise as far from the target's as the source's are, in
directions that are uniform or have the covariance of the activations; those of another pair's source."""
PATCHES: Final[tuple[Patch, ...]] = get_args(Patch)

TARGET, SOURCE, WRONG = 0, 1, 2
"""Rows of a pass that are not changed, and whose activations patches read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One patch.

    Attributes:
        site: name of the site.
        layers: the layers, a contiguous run of them.
        component: residual, attention or mlp.
        patch: the vectors that are written.
        everywhere: whether these are all layers, the embedding included.
        structural: whether nothing can read it: the last layer at a site without the last token.
    """

    site: str
    layers: tuple[int, ...]
    component: Component = "residual"
    patch: Patch = "source"
    everywhere: bool = False
    structural: bool = False

    @property
    def label(self) -> str:
        """The layers as tables write them: ``3``, ``2 to 4``, ``all``."""
        if self.everywhere:
            return "all"
        first, last = self.layers[0], self.layers[-1]
        return str(first) if first == last else f"{first} to {last}"

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of its rows; ``layer`` for a single one."""
        return {
            "site": self.site,
            "layers": self.label,
            "layer": self.layers[0] if len(self.layers) == 1 else None,
            "component": self.component,
            "patch": self.patch,
            "structural": True if self.structural else None,
        }


def conditions(
    site: str,
    layers: Sequence[int],
    *,
    last: int,
    reaches_end: bool,
    windows: Sequence[int] = (),
    components: Sequence[Component] = ("residual",),
    controls: Sequence[Patch] = ("isotropic", "covariance", "wrong"),
) -> Iterator[Condition]:
    """Yield all patches at a site.

    Each single layer and all layers together have every control; windows and components have isotropic noise alone.
    Identity is patched at all layers.

    Args:
        site: its name.
        layers: the layers, rising; all of the model where `all layers` is to be among them.
        last: the model's last layer.
        reaches_end: whether the site holds the last token of the pass.
        windows: widths of contiguous runs of layers.
        components: residual and parts of it.
        controls: patches other than that of the source.
    """
    noise: list[Patch] = [patch for patch in controls if patch == "isotropic"]
    source: tuple[Patch, ...] = ("source",)
    if "residual" in components:
        complete = tuple(range(EMBEDDING, last + 1))
        for layer in layers:
            structural = layer == last and not reaches_end
            for patch in source if structural else (*source, *controls):
                yield Condition(site=site, layers=(layer,), patch=patch, structural=structural)
        all_patches: tuple[Patch, ...] = ("source", "identity", *controls)
        for patch in all_patches:
            yield Condition(site=site, layers=complete, patch=patch, everywhere=True)
        for width in windows:
            for begin in range(len(layers) - width + 1):
                run = tuple(layers[begin : begin + width])
                if run[-1] - run[0] == width - 1 and width > 1 and run != complete:
                    for patch in (*source, *noise):
                        yield Condition(site=site, layers=run, patch=patch)
    for component in components:
        for layer in layers if component != "residual" else ():
            if layer != EMBEDDING and not (layer == last and not reaches_end):
                for patch in (*source, *noise):
                    yield Condition(site=site, layers=(layer,), component=component, patch=patch)


def edits_of(
    condition: Condition,
    row: int,
    places: Mapping[int, Mapping[str, Places]],
    bank: Sequence[tuple[int, Places]],
    width: int,
    rng: np.random.Generator,
) -> list[Edit]:
    """Return the edits of one patch.

    Args:
        condition: the patch.
        row: the row that is changed, a copy of the target's.
        places: token positions of each site in the rows `TARGET`, `SOURCE` and `WRONG`; equally many of a site.
        bank: rows and positions whose activations define the covariance of noise.
        width: D of the model.
        rng: directions of noise.
    """
    at = places[TARGET][condition.site]
    common: dict[str, Any] = {"row": row, "positions": at, "component": condition.component}
    if condition.patch == "identity":
        common |= {"source": TARGET}
    elif condition.patch == "wrong":
        common |= {"source": WRONG, "source_positions": places[WRONG][condition.site]}
    else:
        common |= {"source": SOURCE, "source_positions": places[SOURCE][condition.site]}
    edits = []
    for layer in condition.layers:
        written: dict[str, Any] = {}
        if condition.patch in ("isotropic", "covariance"):
            spanned = condition.patch == "covariance"
            size = sum(len(cells) for _, cells in bank) if spanned else width
            written = {"vectors": noise(rng, (len(at), size), unit=not spanned), "how": "noise", "clean": TARGET}
            written |= {"bank": tuple(bank)} if spanned else {}
        edits.append(Edit(layer=layer, **common, **written))
    return edits


def noise(rng: np.random.Generator, shape: tuple[int, int], *, unit: bool) -> Any:
    """Return normal vectors as a tensor of that shape, each of length 1 with ``unit``."""
    import torch

    normal = rng.standard_normal(shape)
    return torch.from_numpy(
        (normal / np.linalg.norm(normal, axis=1, keepdims=True) if unit else normal).astype(np.float32)
    )


Reading = Literal["free", "forced"]
"""Whether the model generates freely after the patch, or answers after the recorded reasoning of the target."""

CELLS: Final = ("grid", "changed")
IN_OUTPUT: Final = ("post", "action")
"""Sites after the written reasoning, which is the target's own in both readings: a patch there comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One pass: the sides as they are, then a copy of the target for each condition.

    Attributes:
        site, reading: the patched site, and how the answer is obtained.
        batch: the prompts and their edits.
        conditions: ``[N]`` the patch of each copy.
        sides: `TARGET`, `SOURCE` and, where one fits, `WRONG`: the rows that are not changed.
    """

    site: str
    reading: Reading
    batch: Batch
    conditions: Sequence[Condition]
    sides: Mapping[int, Side]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """The token ids of a side, with the positions of the site and of the cells among them."""

    ids: tuple[int, ...]
    site: Places
    cells: Places


def answers_after(model: LocalModel, side: Side) -> Alternatives:
    """Return the answers of all actions after a side's own reasoning; their common tokens are part of the context.

    Raises:
        ValueError: a model that does not mark its reasoning, or an output without a final answer.
    """
    if model.style == "none":
        raise ValueError(
            "an answer after replayed reasoning needs a model that marks its reasoning (harmony channels, tags), "
            f"{model.name} does not: change its activations by --kind patching or --kind steering"
        )
    reply = reply_of(model, side, side.output)
    alternatives = placed(model, model.text(side.prompt), answers_of(side.view.actions), reply)
    if alternatives is None:
        raise ValueError("the answers of a pair must come to a final one, got one that does not")
    return Alternatives(
        context=(*alternatives.context, *alternatives.answers[0][: alternatives.shared]),
        answers=tuple(answer[alternatives.shared :] for answer in alternatives.answers),
        shared=0,
        prompt=alternatives.prompt,
    )


def reply_of(model: LocalModel, side: Side, tokens: Sequence[int], *, complete: bool = True) -> Reply:
    """Return the reply of an output to a side's prompt."""
    output = Decoded(tokens=list(tokens), finish="stop" if complete else "length")
    return model.reply(model.text(side.prompt), side.prompt, output, Sampling(temperature=0.0))


class Reader:
    """Finds the sites of pairs and builds their passes.

    Args:
        model: the model.
        spans: further sites: a name, and a text of the prompt.
        sites: names of the sites to find.
        width: D of the model.

    Raises:
        ValueError: the model's template has no such site; says why.
    """

    def __init__(self, model: LocalModel, sites: Sequence[str], spans: Mapping[str, str], width: int) -> None:
        self._model, self._spans, self._width = model, spans, width
        found_sites: list[FoundSite] = [site for site in ("pre", "post") if site in sites]
        self._finder = SiteFinder(model, ("grid", *found_sites))

    def read(
        self, pair: Pair, sides: Mapping[int, Side], conditions: Sequence[Condition], reading: Reading, seed: int
    ) -> Pass | None:
        """Return the pass of some conditions at one site; None if the reasonings differ too much in length.

        Args:
            pair: the pair; its id names the noise.
            sides: the target, the source, and a wrong source, which is left out where its length does not fit.
            conditions: the patches, all of one site.
            reading: see `Reading`.
            seed: root of the noise.
        """
        site = conditions[0].site
        reads = {row: self._read(pair, sides, row, site, reading) for row in sides}
        if not _together([reads[TARGET], reads[SOURCE]]):
            return None
        if WRONG in reads and not _together(list(reads.values())):
            reads.pop(WRONG)
        conditions_kept = [candidate for candidate in conditions if candidate.patch != "wrong" or WRONG in reads]
        rows = {row: number for number, row in enumerate(reads)}  # 0, 1 and where it fits 2: as the edits say
        rng = stream(seed, "patching", pair.id, site)
        places = {row: {site: reads[row].site} for row in rows}
        bank = [(row, self._bank(reads[row], site)) for row in rows]
        edits = [
            edit
            for row, condition in enumerate(conditions_kept, start=len(rows))
            for edit in edits_of(condition, row, places, bank, self._width, rng)
        ]
        prompts = [reads[row].ids for row in rows] + [reads[TARGET].ids] * len(conditions_kept)
        clean = [*rows.values(), *[TARGET] * len(conditions_kept)]
        return Pass(
            site=site,
            reading=reading,
            batch=Batch(prompts=prompts, edits=edits, clean=clean),
            conditions=conditions_kept,
            sides={row: sides[row] for row in rows},
        )

    def _read(self, pair: Pair, sides: Mapping[int, Side], row: int, site: str, reading: Reading) -> _Read:
        side = sides[row]
        places = self._finder.find(side.step, side.view.grid).positions
        output: tuple[int, ...] = ()
        if site == "action" or reading == "forced":
            # At sites of the prompt a source is read with the target's output, which no token of its prompt sees.
            answered = side if site in IN_OUTPUT else sides[TARGET]
            output = answers_after(self._model, answered).context[len(answered.prompt) :]
        elif site == "post":
            output = side.output[: int(places["post"][-1]) + 1 - len(side.prompt)]
        ids = (*side.prompt, *output)
        if site == "changed":
            positions = pair.changed
        elif site == "action":
            positions = np.array([len(ids) - 1])
        elif site in self._spans:
            positions = self._span(side, site)
        else:
            positions = np.asarray(places[site]).reshape(-1)  # type: ignore[index]
        return _Read(ids=ids, site=positions, cells=places["grid"].reshape(-1))

    def _span(self, side: Side, name: str) -> Places:
        """Return the tokens of a text in a prompt, its last occurrence."""
        text, prompt = self._spans[name], self._model.text(side.prompt)
        ends = np.cumsum([len(self._model.text([token])) for token in side.prompt])
        begin = prompt.rfind(text) if text else -1
        if begin < 0 or ends[-1] != len(prompt):
            problem = "is not in it" if begin < 0 else "cannot be placed: tokens of this prompt are parts of letters"
            raise ValueError(f"the span {name!r} must be a text of the prompt, {text!r} {problem}")
        inside = np.flatnonzero((ends > begin) & (np.r_[0, ends[:-1]] < begin + len(text)))
        return inside.astype(np.int64)

    def _bank(self, read: _Read, site: str) -> Places:
        """Return the positions whose activations define the covariance of noise: the cells, or all after the grid."""
        return read.cells if site in CELLS else np.arange(int(read.cells.max()) + 1, len(read.ids))


def _together(reads: Sequence[_Read]) -> bool:
    """Whether sequences pass through the model together: lengths differ by no more than their common beginning."""
    ids = [read.ids for read in reads]
    return max(map(len, ids)) - min(map(len, ids)) <= common_prefix(ids)


def log_odds(scores: Sequence[Sequence[float]], source: Side, target: Side) -> float:
    """Return log P(an optimal action of the source) - log P(one of the target), nats.

    Args:
        scores: ``[A]`` lists, the log-probability of each token of each answer.
        source, target: the sides.
    """
    sums = np.array([sum(score) for score in scores])
    parts = [np.logaddexp.reduce(sums[sorted(side.optimal)]) for side in (source, target)]
    return float(parts[0] - parts[1])
