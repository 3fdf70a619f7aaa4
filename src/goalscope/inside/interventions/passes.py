"""Forward passes of patching, which contain both unchanged sides of a pair and one copy per patch at a site.

A `Condition` describes one patch by its site, layers, component and source of vectors; `edits_of` returns its edits
for the rows of a pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.agents.choice import answers_of
from goalscope.agents.models.base import Reply, Sampling
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.likelihood import Alternatives, placed
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import common_prefix
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
    """Description of a patch.

    Attributes:
        site: name of the site.
        layers: contiguous range of layers.
        component: residual, attention or mlp.
        patch: kind of vectors to write.
        everywhere: whether ``layers`` are all layers, including the embedding.
        structural: whether the patch cannot have an effect, because it is in the last layer at a site without the last
            token.
    """

    site: str
    layers: tuple[int, ...]
    component: Component = "residual"
    patch: Patch = "source"
    everywhere: bool = False
    structural: bool = False

    @property
    def label(self) -> str:
        """The layers as text for tables: ``3``, ``2 to 4`` or ``all``."""
        if self.everywhere:
            return "all"
        first, last = self.layers[0], self.layers[-1]
        return str(first) if first == last else f"{first} to {last}"

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of the patch's rows, including ``layer`` for a single layer."""
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

    Each single layer, and all layers together, have every control; windows and components have only isotropic noise.
    Identity is patched at all layers.

    Args:
        site: name of the site.
        layers: the layers, ascending; all layers of the model if `all layers` is to be included.
        last: the model's last layer.
        reaches_end: whether the site includes the last token of the pass.
        windows: widths of contiguous ranges of layers.
        components: residual stream or parts of it.
        controls: kinds of control patches.
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
    """Build the edits of one patch.

    Args:
        condition: the patch.
        row: index of the row to change, a copy of the target's row.
        places: row -> site -> token positions, for the rows `TARGET`, `SOURCE` and `WRONG`; a site has equally many
            positions in each row.
        bank: rows and positions whose activations define the covariance of noise.
        width: width D of the model.
        rng: generator of the noise directions.
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
    """Draw normally distributed vectors as a tensor; with ``unit``, each is scaled to length 1."""
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
    """Pass with the unchanged sides followed by one copy of the target per condition.

    Attributes:
        site, reading: the patched site and how the answer is obtained.
        batch: the prompts with their edits.
        conditions: ``[N]`` patch applied to each copy.
        sides: unchanged rows `TARGET`, `SOURCE` and, if a wrong source fits, `WRONG`.
    """

    site: str
    reading: Reading
    batch: Batch
    conditions: Sequence[Condition]
    sides: Mapping[int, Side]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """Token ids of a side, with the positions of the site and of the cells."""

    ids: tuple[int, ...]
    site: Places
    cells: Places


def answers_after(model: LocalModel, side: Side) -> Alternatives:
    """Return the answers for all actions after a side's own reasoning, with their common tokens as part of the
    context.

    Raises:
        ValueError: the model does not mark its reasoning, or an output has no final answer.
    """
    if model.style == "none":
        raise ValueError(
            "answers after replayed reasoning need a model that marks its reasoning (harmony channels, "
            f"tags), but {model.name} does not: use --kind patching or --kind steering instead"
        )
    reply = reply_of(model, side, side.output)
    alternatives = placed(model, model.text(side.prompt), answers_of(side.view.actions), reply)
    if alternatives is None:
        raise ValueError("the answers of a pair must end in a final answer, but one does not: raise max_tokens")
    return Alternatives(
        context=(*alternatives.context, *alternatives.answers[0][: alternatives.shared]),
        answers=tuple(answer[alternatives.shared :] for answer in alternatives.answers),
        shared=0,
        prompt=alternatives.prompt,
    )


def reply_of(model: LocalModel, side: Side, tokens: Sequence[int], *, complete: bool = True) -> Reply:
    """Parse an output after a side's prompt as a reply."""
    output = Decoded(tokens=list(tokens), finish="stop" if complete else "length")
    return model.reply(model.text(side.prompt), side.prompt, output, Sampling(temperature=0.0))


class Reader:
    """Builder of passes, which finds the sites of pairs.

    Args:
        model: the model.
        spans: further sites, as name -> text in the prompt.
        sites: names of the sites to find.
        width: width D of the model.

    Raises:
        ValueError: the model's template lacks a site; the message says why.
    """

    def __init__(self, model: LocalModel, sites: Sequence[str], spans: Mapping[str, str], width: int) -> None:
        self._model, self._spans, self._width = model, spans, width
        found_sites: list[FoundSite] = [site for site in ("pre", "post") if site in sites]
        self._finder = SiteFinder(model, ("grid", *found_sites))

    def read(
        self, pair: Pair, sides: Mapping[int, Side], conditions: Sequence[Condition], reading: Reading, seed: int
    ) -> Pass | None:
        """Build the pass for conditions at one site; None if the two reasoning texts differ too much in length.

        Args:
            pair: the pair, whose id seeds the noise.
            sides: target, source and wrong source. The wrong source is left out if its length does not fit.
            conditions: the patches, all at one site.
            reading: how the answer is obtained, see `Reading`.
            seed: root seed of the noise.
        """
        site = conditions[0].site
        reads = {row: self._read(pair, sides, row, site, reading) for row in sides}
        if not _together([reads[TARGET], reads[SOURCE]]):
            return None
        if WRONG in reads and not _together(list(reads.values())):
            reads.pop(WRONG)
        conditions_kept = [candidate for candidate in conditions if candidate.patch != "wrong" or WRONG in reads]
        # rows 0, 1 and, if the wrong source fits, 2, to which the edits refer
        rows = {row: number for number, row in enumerate(reads)}
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
            # At sites in the prompt, the source is followed by the target's output, which cannot affect its prompt
            # tokens.
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
        """Return the token positions of the last occurrence of a text in a prompt."""
        text, prompt = self._spans[name], self._model.text(side.prompt)
        ends = np.cumsum([len(self._model.text([token])) for token in side.prompt])
        begin = prompt.rfind(text) if text else -1
        if begin < 0 or ends[-1] != len(prompt):
            problem = "is not in it" if begin < 0 else "cannot be placed: tokens of this prompt are parts of letters"
            raise ValueError(
                f"the span {name!r} must be a text in the prompt, but {text!r} {problem}: copy the text from the prompt"
            )
        inside = np.flatnonzero((ends > begin) & (np.r_[0, ends[:-1]] < begin + len(text)))
        return inside.astype(np.int64)

    def _bank(self, read: _Read, site: str) -> Places:
        """Return the positions whose activations define the covariance of noise: the cells, or all after the grid."""
        return read.cells if site in CELLS else np.arange(int(read.cells.max()) + 1, len(read.ids))


def _together(reads: Sequence[_Read]) -> bool:
    """Whether sequences can share a pass, i.e. their lengths differ by no more than their common prefix."""
    ids = [read.ids for read in reads]
    return max(map(len, ids)) - min(map(len, ids)) <= common_prefix(ids)


def log_odds(scores: Sequence[Sequence[float]], source: Side, target: Side) -> float:
    """Return log P(optimal action of the source) - log P(optimal action of the target) in nats.

    Args:
        scores: ``[A]`` lists with the log-probability of each token of each answer.
        source, target: the two sides of the pair.
    """
    sums = np.array([sum(score) for score in scores])
    parts = [np.logaddexp.reduce(sums[sorted(side.optimal)]) for side in (source, target)]
    return float(parts[0] - parts[1])
