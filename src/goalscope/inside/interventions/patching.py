"""Activation patching, which finds the tokens and layers whose vectors carry the action from one grid to another.

A work item is one pair in one direction. By default the answer is generated freely. If the recorded reasoning is
replayed before the answer (reading `forced`), the target's own plan stays in the context, which biases towards no
effect.

A forward pass contains both unchanged sides of a pair and one copy per patch at a site. A `Condition` describes one
patch by its site, layers, component and source of vectors; `edits_of` returns its edits for the rows of a pass.

Source: behavioural and representational evaluation, Section 5.2 and Appendix F.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.rng import stream
from goalscope.agents.chat import answers_of
from goalscope.agents.models.base import Reply, Sampling
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.dialect import placed
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import common_prefix
from goalscope.agents.parse import turn
from goalscope.inside.activations.hooks import thirds
from goalscope.inside.activations.sites import Site as FoundSite
from goalscope.inside.activations.sites import SiteFinder
from goalscope.inside.interventions.experiment import (
    ExperimentSubject,
    Headline,
    OnPairs,
    Pair,
    PairSettings,
    Side,
    intervention,
)
from goalscope.inside.interventions.forward import (
    EMBEDDING,
    Batch,
    BatchOutputs,
    Component,
    Edit,
    Editor,
    generate,
    score_answers,
)
from goalscope.runs.study_parts import sequence
from goalscope.stats.rows import Row, Rows

Places = npt.NDArray[np.int64]
Patch = Literal["source", "identity", "isotropic", "covariance", "wrong"]
"""The vectors that are written: the source's; the target's own; noise as far from the target's as the source's are, in
directions that are uniform or have the covariance of the activations; those of another pair's source."""
PATCHES: Final[tuple[Patch, ...]] = get_args(Patch)

TARGET, SOURCE, WRONG = 0, 1, 2
"""Rows of a pass that are not changed, and whose activations patches read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A kind of activation patch: where activations are overwritten, and with which vectors.

    Attributes:
        site: the token positions, such as "grid" (all cells) or "pre" (the end of the prompt).
        layers: contiguous range of layers.
        component: residual, attention or mlp.
        patch: kind of vectors to write: "source" (from the other grid of the pair), "identity" (the prompt's own), or a
            control, see `conditions`.
        everywhere: whether the patch changes all layers, including the embedding.
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
        """The patched layers as text for tables: ``3``, ``2 to 4`` or ``all``."""
        if self.everywhere:
            return "all"
        first, last = self.layers[0], self.layers[-1]
        return str(first) if first == last else f"{first} to {last}"

    @property
    def tags(self) -> dict[str, Any]:
        """Named facts (tags) that mark the results of this patch: site, layers, component and kind of vectors.

        ``layer`` is the number of a single layer, and None for several.
        """
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
    """Yield the patches to apply at a site (a set of token positions): each is a range of layers and the vectors to
    write.

    The main patch writes the vectors of the source, the other grid of a pair. "identity" writes the prompt's own
    vectors, and must change nothing.

    Each single layer, and all layers of the model together, are patched with every control; windows and components only
    with isotropic noise. "identity" is patched at all layers together.

    Args:
        site: name of the site.
        layers: the single layers to patch, ascending; -1 is the embedding.
        last: number of the model's last layer.
        reaches_end: whether the site includes the last token of the pass; if not, a patch in the last layer cannot have
            an effect.
        windows: widths of contiguous ranges of layers.
        components: residual stream or parts of it.
        controls: kinds of control patches: noise in any direction ("isotropic") or with the covariance of the
            activations ("covariance"), and the vectors of another pair's source ("wrong").
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
    places: Mapping[int, Places],
    bank: Sequence[tuple[int, Places]],
    width: int,
    rng: np.random.Generator,
) -> list[Edit]:
    """Build the edits that apply one patch to one copy of the target prompt (the prompt that is patched), one per
    layer.

    Args:
        condition: the patch.
        row: index of the copy among the prompts of the batch.
        places: for the prompts `TARGET`, `SOURCE` (the other grid of the pair) and `WRONG` (another pair's source), the
            token positions of the site; equally many in each.
        bank: prompts and positions whose activations define the covariance of noise.
        width: width D of the model.
        rng: generator of the noise directions.
    """
    source, at = {"identity": TARGET, "wrong": WRONG}.get(condition.patch, SOURCE), places[TARGET]
    fields: dict[str, Any] = {"row": row, "positions": at, "component": condition.component}
    fields |= {"source": source, "source_positions": places[source]}
    edits = []
    for layer in condition.layers:
        if condition.patch in ("isotropic", "covariance"):
            spanned = condition.patch == "covariance"
            size = sum(len(cells) for _, cells in bank) if spanned else width
            fields |= {"vectors": noise(rng, (len(at), size), unit=not spanned), "how": "noise", "clean": TARGET}
            fields |= {"bank": tuple(bank)} if spanned else {}
        edits.append(Edit(layer=layer, **fields))
    return edits


def noise(rng: np.random.Generator, shape: tuple[int, int], *, unit: bool) -> Any:
    """Draw normally distributed vectors of a given shape ``[P, D]``, as a float32 tensor; ``unit`` scales each to
    length 1.
    """
    import torch

    normal = rng.standard_normal(shape)
    if unit:
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    return torch.from_numpy(normal.astype(np.float32))


Reading = Literal["free", "forced"]
"""Whether the model generates freely after the patch, or answers after the recorded reasoning of the target."""

CELLS: Final = ("grid", "changed")
IN_OUTPUT: Final = ("post", "action")
"""Sites after the written reasoning, which is the target's own in both readings: a patch there comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One forward pass: the unchanged prompts of a pair of grids, then one copy of the prompt to be patched per patch.

    Attributes:
        site: the patched token positions, such as "grid".
        batch: the prompts with their edits.
        conditions: the patch that each copy gets.
        sides: the grids and answers of the unchanged prompts, by the index of the prompt: `TARGET` (the grid to be
            patched), `SOURCE` (the other grid of the pair) and, if one fits, `WRONG` (the source of another pair).
    """

    site: str
    batch: Batch
    conditions: Sequence[Condition]
    sides: Mapping[int, Side]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """Token ids of a side with the positions of the site, and those whose activations give the covariance of noise:
    the cells, or all after the grid.
    """

    ids: tuple[int, ...]
    site: Places
    bank: Places


_Effect = tuple[str, str, float, Mapping[str, Any]]
"""Measure, unit, value and tags of a row."""


def answers_after(model: LocalModel, side: Side) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the token ids with which the possible answers after an agent's own reasoning are scored.

    Args:
        model: the local model.
        side: a grid with the agent's output there.

    Returns:
        The ids up to the end of the reasoning and of the tokens that all answers share; and, for each action, the
        remaining ids of its answer.

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
    shared, answers = alternatives.shared, alternatives.answers
    return (*alternatives.context, *answers[0][:shared]), tuple(answer[shared:] for answer in answers)


def reply_of(model: LocalModel, side: Side, tokens: Sequence[int], *, complete: bool = True) -> Reply:
    """Parse output token ids of the model as a reply to the prompt of one grid of a pair.

    ``complete`` says whether the output ended by itself, not at the maximum number of tokens.
    """
    output = Decoded(tokens=list(tokens), finish="stop" if complete else "length")
    return model.reply(model.text(side.prompt), side.prompt, output, Sampling(temperature=0.0))


def _together(reads: Sequence[_Read]) -> bool:
    """Whether sequences can share a pass, i.e. their lengths differ by no more than their common prefix."""
    ids = [read.ids for read in reads]
    return max(map(len, ids)) - min(map(len, ids)) <= common_prefix(ids)


def log_odds(scores: Sequence[Sequence[float]], source: Side, target: Side) -> float:
    """Return log P(optimal action in the source grid) - log P(optimal action in the target grid), in nats.

    Args:
        scores: for each action, the log-probability of each token of its answer.
        source, target: the two grids of the pair with their optimal actions.
    """
    sums = np.array([sum(score) for score in scores])
    parts = [np.logaddexp.reduce(sums[sorted(side.optimal)]) for side in (source, target)]
    return float(parts[0] - parts[1])


KIND: Final = "patching"
FOLLOWS: Final = "action follows the source"
CHANGED: Final = "action changed"
EQUAL: Final = "output that must be equal"
REROUTED: Final = "tokens rerouted"
LOG_ODDS: Final = "change of log-odds"
RECOVERY: Final = "normalised recovery"
DENOISING: Final = "original into counterfactual"
NOISING: Final = "counterfactual into original"
WHOLE: Final = "prompt"
"""Site of the forced reading with the source's whole prompt: the upper bound of a patch of the prompt there."""

Site = Literal["grid", "changed", "pre", "post", "action"]
_FEW: Final = 12  # maximum number of blocks of a model in which every layer is patched by default
_ENDS: Final = ("pre", "post", "action")  # sites that include the last token of their pass
PAIRS: Final = {False: "counterfactual", True: "control"}


LayerSetting = Literal["auto", "thirds", "all"] | Annotated[tuple[int, ...], Field(strict=False)]


@intervention(KIND)
class Patching(OnPairs):
    """Experiment that patches activations between the two grids of counterfactual pairs (a grid, and a copy with one
    thing moved).

    Activations in the forward pass of one grid are overwritten with those of the other, to see whether the agent then
    acts as in the other grid.

    Attributes:
        pairs: which pairs to use.
        sites: token positions to patch: all cells ("grid"), the cells that differ ("changed"), the end of the prompt
            ("pre"), after the reasoning ("post"), before the word of the action ("action").
        spans: further token positions, as a name and a text in the prompt.
        layers: "thirds", "all", "auto" (all for a model of at most 12 blocks, otherwise thirds) or a list of numbers,
            with -1 for the embedding.
        windows: widths of contiguous ranges of layers that are patched together.
        components: what is overwritten: the residual stream, or the contribution of attention or MLP to it.
        controls: kinds of control patches: noise ("isotropic", "covariance") or another pair's activations ("wrong").
        forced: whether to also read the answer after the agent's own reasoning is replayed. If the model does not mark
            its reasoning, this and the default sites in the output are left out with a warning.
    """

    kind: Literal["patching"] = KIND
    pairs: PairSettings = PairSettings()
    sites: tuple[Site, ...] = sequence(default=("grid", "changed", "pre", "post", "action"))
    spans: dict[str, str] = Field(default_factory=dict)
    layers: LayerSetting = "auto"
    windows: tuple[int, ...] = sequence(default=(3,))
    components: tuple[Component, ...] = sequence(default=("residual", "attention", "mlp"))
    controls: tuple[Literal["isotropic", "covariance", "wrong"], ...] = sequence(
        default=("isotropic", "covariance", "wrong")
    )
    forced: bool = True
    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"reading": "free", "component": "residual", "patch": "source", "pairs": "counterfactual", "structural": None},
        ("moved", "site", "layers"),
    )

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Patch the activations of every pair of grids in both directions, and store the results with the run.

        Results that are stored already are not computed again.

        Returns:
            A summary that JSON can hold: settings, numbers of pairs, reasons for leaving some out, layers.

        Raises:
            ValueError: if there is no pair in which the agent acts optimally in both grids.
        """
        settings = self._fitting(subject.model)
        work = _Work(subject.model, settings, subject.agent.sampling.max_tokens)
        by_control = {control: subject.pairs(self.pairs, control=control) for control in (False, True)}
        pairs_kept = [pair for pairs in by_control.values() for pair in pairs.kept]
        if not by_control[False].kept:
            reasons = [f"{reason}: {count}" for reason, count in by_control[False].left_out.items()]
            raise ValueError(
                "patching needs pairs in which the agent acts optimally on both sides, but found none "
                f"({'; '.join(reasons) or 'no grid'}): give more grids, or set pairs.moved to other things"
            )
        units = {
            f"{pair.id} {direction}": (pair, direction, by_control[pair.control].kept)
            for pair in pairs_kept
            for direction in (DENOISING, NOISING)
        }
        subject.work(units, work.rows)
        return {
            "settings": settings.model_dump(mode="json"),
            "pairs": len(by_control[False].kept),
            "control pairs": len(by_control[True].kept),
            "left out": {PAIRS[control]: dict(pairs.left_out) for control, pairs in by_control.items()},
            "layers": list(work.layers),
            "last layer": work.last,
            "passes left out": dict(work.left_out),
        }

    def _fitting(self, model: LocalModel) -> Self:
        """Drop settings that need marked reasoning if the model has none, with a warning that names them.

        Raises:
            ValueError: the user, not the default, names a site in the output.
        """
        out = [site for site in self.sites if site in IN_OUTPUT]
        if model.style != "none" or not (out or self.forced):
            return self
        why = f"{model.name} marks no reasoning apart from its answer"
        if out and self.sites != type(self).model_fields["sites"].default:
            raise ValueError(f"the sites {', '.join(out)} do not exist, {why}: leave them out of sites")
        reasons = [*(f"site {site}" for site in out), *(["the forced reading"] if self.forced else [])]
        warnings.warn(f"patching leaves out {', '.join(reasons)}: {why}", stacklevel=2)
        sites = tuple(site for site in self.sites if site not in IN_OUTPUT)
        return self.model_copy(update={"sites": sites, "forced": False})


def patched_layers(setting: LayerSetting, blocks: int, name: str) -> tuple[int, ...]:
    """Return the numbers of the layers to patch for a setting, ascending, with -1 for the embedding.

    Args:
        setting: "thirds", "all", "auto" (all for at most 12 blocks, otherwise thirds), or the numbers themselves.
        blocks: number of decoder blocks of the model.
        name: name of the model, for the error message.

    Raises:
        ValueError: the setting is invalid for the model.
    """
    all_layers = tuple(range(EMBEDDING, blocks))
    by_name = {"all": all_layers, "thirds": thirds(blocks)}
    by_name["auto"] = by_name["all" if blocks <= _FEW else "thirds"]
    selected = by_name[setting] if isinstance(setting, str) else setting
    if not selected or not set(selected) <= {EMBEDDING, *range(blocks)} or len(set(selected)) < len(selected):
        raise ValueError(
            f"layers must be auto, thirds, all, or different numbers in {EMBEDDING}..{blocks - 1}, where "
            f"{EMBEDDING} is the embedding, got {list(selected)}: {name} has {blocks} blocks"
        )
    return tuple(sorted(selected))


class _Work:
    """Work items of patching, each of which patches one pair in one direction.

    Raises:
        ValueError: the model's template lacks a site; the message says why.
    """

    def __init__(self, model: LocalModel, settings: Patching, max_tokens: int) -> None:
        self._model, self._settings = model, settings
        self._limit = settings.max_tokens or max_tokens
        blocks = Editor(model.model).blocks
        self._width, self.last = blocks.width, blocks.count - 1
        found_sites: list[FoundSite] = [site for site in ("pre", "post") if site in settings.sites]
        self._finder = SiteFinder(model, ("grid", *found_sites))
        self.layers = patched_layers(settings.layers, blocks.count, model.name)
        self.left_out: Counter[str] = Counter()

    def rows(self, pair: Pair, direction: str, other_pairs: Sequence[Pair]) -> Rows:
        """Compute the effect of every patch, with one row per measure and reading.

        Args:
            pair: the pair.
            direction: `NOISING` to patch the original, `DENOISING` to patch the counterfactual.
            other_pairs: pairs from which the wrong source is chosen, if they have other grids.
        """
        target, source = pair.sides if direction == NOISING else pair.sides[::-1]
        sides = {TARGET: target, SOURCE: source}
        wrong = _wrong([other for other in other_pairs if other.cluster != pair.cluster], target, source)
        if wrong is not None:
            sides[WRONG] = wrong
        passes = self._passes(pair, sides, "free")
        written = generate(self._model, [other.batch for other in passes], max_tokens=self._limit)
        effects = [row for other, output in zip(passes, written, strict=True) for row in self._free(other, output)]
        if self._settings.forced and not pair.control:
            effects += self._forced(self._passes(pair, sides, "forced"))
        tags = {**pair.tags, "direction": direction, "moved": pair.moved, "pairs": PAIRS[pair.control]}
        return Rows.from_rows(
            Row(measure=measure, unit=unit, value=value, cluster=pair.cluster, tags={**tags, **own_tags})
            for measure, unit, value, own_tags in effects
        )

    def _passes(self, pair: Pair, sides: Mapping[int, Side], reading: Reading) -> list[Pass]:
        """Build one pass per site. Sites at which two reasoning texts differ too much in length are counted."""
        settings, few = self._settings, reading == "forced" or pair.control
        controls: tuple[Patch, ...] = settings.controls
        passes = []
        for site in (*settings.sites, *settings.spans):
            if reading == "forced" and site == "action":
                continue  # nothing is generated between this token and the action, so both readings agree
            reads = {row: self._read(pair, sides, row, site, reading) for row in sides}
            if not _together([reads[TARGET], reads[SOURCE]]):
                self.left_out[f"{site}, {reading}: reasonings of too different lengths"] += 1
                continue
            if WRONG in reads and not _together(list(reads.values())):
                reads.pop(WRONG)
            patches = conditions(
                site,
                self.layers,
                last=self.last,
                reaches_end=site in _ENDS and reading == "free",
                windows=() if few else settings.windows,
                components=("residual",) if few else settings.components,
                controls=[patch for patch in controls if patch == "isotropic"] if few else controls,
            )
            kept = [condition for condition in patches if condition.patch != "wrong" or WRONG in reads]
            rng = stream(settings.pairs.seed, "patching", pair.id, site)
            places = {row: read.site for row, read in reads.items()}
            bank = [(row, read.bank) for row, read in reads.items()]
            edits = [
                edit
                for row, condition in enumerate(kept, start=len(reads))
                for edit in edits_of(condition, row, places, bank, self._width, rng)
            ]
            prompts = [read.ids for read in reads.values()] + [reads[TARGET].ids] * len(kept)
            batch = Batch(prompts=prompts, edits=edits, clean=[*reads, *[TARGET] * len(kept)])
            passes.append(Pass(site=site, batch=batch, conditions=kept, sides={row: sides[row] for row in reads}))
        return passes

    def _read(self, pair: Pair, sides: Mapping[int, Side], row: int, site: str, reading: Reading) -> _Read:
        side = sides[row]
        places = self._finder.find(side.step, side.view.grid).positions
        output: tuple[int, ...] = ()
        if site == "action" or reading == "forced":
            # At sites in the prompt, the source is followed by the target's output, which cannot affect its prompt
            # tokens.
            answered = side if site in IN_OUTPUT else sides[TARGET]
            output = answers_after(self._model, answered)[0][len(answered.prompt) :]
        elif site == "post":
            output = side.output[: int(places["post"][-1]) + 1 - len(side.prompt)]
        ids = (*side.prompt, *output)
        if site == "changed":
            positions = pair.changed
        elif site == "action":
            positions = np.array([len(ids) - 1])
        elif site in self._settings.spans:
            positions = self._span(side, site)
        else:
            positions = np.asarray(places[site]).reshape(-1)  # type: ignore[index]
        cells = places["grid"].reshape(-1)
        bank = cells if site in CELLS else np.arange(int(cells.max()) + 1, len(ids))
        return _Read(ids=ids, site=positions, bank=bank)

    def _span(self, side: Side, name: str) -> Places:
        """Return the token positions of the last occurrence of a text in a prompt."""
        text, prompt = self._settings.spans[name], self._model.text(side.prompt)
        ends = np.cumsum([len(self._model.text([token])) for token in side.prompt])
        begin = prompt.rfind(text) if text else -1
        if begin < 0 or ends[-1] != len(prompt):
            problem = "is not in it" if begin < 0 else "cannot be placed: tokens of this prompt are parts of letters"
            raise ValueError(
                f"the span {name!r} must be a text in the prompt, but {text!r} {problem}: copy the text from the prompt"
            )
        return np.flatnonzero((ends > begin) & (np.r_[0, ends[:-1]] < begin + len(text))).astype(np.int64)

    def _free(self, pass_: Pass, output: BatchOutputs[Decoded]) -> Iterator[_Effect]:
        """Yield the effects of patching on the action that the model generates freely."""
        target, source = pass_.sides[TARGET], pass_.sides[SOURCE]
        actions = []
        for row, decoded in enumerate(output.outputs):
            side = pass_.sides.get(row, target)
            # A part of the answer may have been in the prompt.
            tokens = [*pass_.batch.prompts[row][len(side.prompt) :], *decoded.tokens]
            actions.append(turn(reply_of(self._model, side, tokens, complete=decoded.finish == "stop")).action)
        if actions[TARGET] not in target.optimal:
            self.left_out[f"{pass_.site}: the unchanged answer fell otherwise in this pass"] += 1
            return
        count = len(pass_.sides)
        results = zip(pass_.conditions, output.outputs[count:], actions[count:], output.rerouted[count:], strict=True)
        for condition, decoded, action, rerouted in results:
            tags = {"reading": "free", **condition.tags}
            if target.optimal != source.optimal:
                yield FOLLOWS, "share", float(action in source.optimal), tags
            yield CHANGED, "share", float(action not in target.optimal), tags
            must = _must_equal(condition)
            if must is not None:
                yield EQUAL, "share", float(decoded.tokens == output.outputs[must].tokens), tags
            if rerouted is not None and condition.component == "residual" and condition.patch == "source":
                yield REROUTED, "share", rerouted, tags

    def _forced(self, passes: Sequence[Pass]) -> Iterator[_Effect]:
        """Yield the effects of patching on the answer that follows the replayed reasoning."""
        if not passes:
            return
        target, source = passes[0].sides[TARGET], passes[0].sides[SOURCE]
        (_, target_answers), (context, source_answers) = (answers_after(self._model, side) for side in (target, source))
        batches = [*(pass_.batch for pass_ in passes), Batch(prompts=[context])]
        answers = [*([target_answers] * len(pass_.batch.prompts) for pass_ in passes), [source_answers]]
        *scored, at_source = score_answers(self._model, batches, answers)
        source_odds = log_odds(at_source.outputs[0], source, target)
        swapped = False
        for pass_, result in zip(passes, scored, strict=True):
            odds = [log_odds(answer_scores, source, target) for answer_scores in result.outputs]
            target_odds, count = odds[TARGET], len(pass_.sides)
            all_tags = [condition.tags for condition in pass_.conditions]
            results = list(zip(all_tags, result.outputs[count:], odds[count:], strict=True))
            if pass_.site not in IN_OUTPUT and not swapped:
                swapped = True
                tags = {"site": WHOLE, "layers": "all", "component": "residual", "patch": "source"}
                results.append((tags, result.outputs[SOURCE], odds[SOURCE]))
            for condition_tags, answer_scores, value in results:
                tags = {"reading": "forced", **condition_tags}
                best = int(np.argmax([sum(answer) for answer in answer_scores]))
                change, whole = value - target_odds, source_odds - target_odds
                yield FOLLOWS, "share", float(best in source.optimal), tags
                yield LOG_ODDS, "nats", change, tags
                yield RECOVERY, "ratio", change / whole if whole else np.nan, tags


def _wrong(other_pairs: Sequence[Pair], target: Side, source: Side) -> Side | None:
    """Choose a side of another pair, of equal length and shape, whose action is wrong on the target side.

    If possible, the action is wrong on the source side, too. Return None if there is no such side.
    """
    shape = target.view.grid.walls.shape
    fits = [
        side
        for other in other_pairs
        for side in other.sides
        if len(side.prompt) == len(target.prompt) and side.view.grid.walls.shape == shape
        if side.action not in target.optimal
    ]
    return next((side for side in fits if side.action not in source.optimal), fits[0] if fits else None)


def _must_equal(condition: Condition) -> int | None:
    """Return the row whose output a patch must reproduce, or None.

    An identity patch must reproduce the target, and a swap of the differing cells in the embedding must reproduce the
    source.
    """
    if condition.patch == "identity":
        return TARGET
    swap = condition.site == "changed" and condition.patch == "source" and condition.layers == (EMBEDDING,)
    return SOURCE if swap else None
