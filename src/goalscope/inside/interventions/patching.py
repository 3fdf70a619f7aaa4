"""Activation patching, which finds the tokens and layers whose vectors carry the action from one grid to another.

A work item is one pair in one direction. By default the answer is generated freely. If the recorded reasoning is
replayed before the answer (reading `forced`), the target's own plan stays in the context, which biases towards no
effect.

Source: behavioural and representational evaluation, Section 5.2 and Appendix F.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field

from goalscope.agents.chat import turn
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.hooks import thirds
from goalscope.inside.interventions.edits import EMBEDDING, Component, Editor
from goalscope.inside.interventions.experiment import ExperimentSubject, Headline, OnPairs, PairSettings, intervention
from goalscope.inside.interventions.forward import Batch, BatchOutputs, generate, score_answers
from goalscope.inside.interventions.pairs import Pair, Side
from goalscope.inside.interventions.passes import (
    IN_OUTPUT,
    SOURCE,
    TARGET,
    WRONG,
    Condition,
    Pass,
    Patch,
    Reader,
    Reading,
    answers_after,
    conditions,
    log_odds,
    reply_of,
)
from goalscope.runs.kinds import sequence
from goalscope.stats.rows import Row, Rows

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


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


LayerSetting = Annotated[Literal["auto", "thirds", "all"] | tuple[int, ...], BeforeValidator(_tuple)]


@intervention(KIND)
class Patching(OnPairs):
    """Experiment that patches activations between the two grids of counterfactual pairs.

    `sites` are the cells of the grid, the cells that differ, the tokens before and after the reasoning, and the token
    before the word of the action. `spans` are further sites, given as a name and a text in the prompt. `layers` is
    thirds, all, auto (all for a model of at most 12 blocks, otherwise thirds) or a list of numbers, with -1 for the
    embedding. `windows` are widths of contiguous ranges of layers. `components` are the residual stream and the
    contributions of attention and MLP to it. `forced` also reads the answer after the replayed reasoning. If the model
    does not mark its reasoning, `forced` and the default sites in the output are left out with a warning.
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
        """Patch every pair in both directions, skipping results that are already stored."""
        settings = self._fitting(subject.model)
        work = _Work(subject.model, settings, subject.agent.sampling.max_tokens)
        by_control = {control: subject.pairs(self.pairs, control=control) for control in (False, True)}
        pairs_kept = [pair for pairs in by_control.values() for pair in pairs.kept]
        if not by_control[False].kept:
            raise ValueError(
                "patching needs pairs in which the agent acts optimally on both sides, but found none "
                f"({_reasons(by_control[False].left_out)}): give more grids, or set pairs.moved to other "
                "things"
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
    """Return the ascending layers for a setting in a model of ``blocks`` blocks.

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


def _reasons(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "no grid"


class _Work:
    """Work items of patching, each of which patches one pair in one direction."""

    def __init__(self, model: LocalModel, settings: Patching, max_tokens: int) -> None:
        self._model, self._settings = model, settings
        self._limit = settings.max_tokens or max_tokens
        blocks = Editor(model.model).blocks
        self.last = blocks.count - 1
        self._reader = Reader(model, settings.sites, settings.spans, blocks.width)
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
        base = {**pair.tags, "direction": direction, "moved": pair.moved, "pairs": PAIRS[pair.control]}
        passes = self._passes(pair, sides, "free")
        written = generate(self._model, [other.batch for other in passes], max_tokens=self._limit)
        rows = [row for other, output in zip(passes, written, strict=True) for row in self._written(other, output)]
        if self._settings.forced and not pair.control:
            rows += self._forced(self._passes(pair, sides, "forced"))
        return Rows.from_rows(
            Row(measure=row.measure, unit=row.unit, value=row.value, cluster=pair.cluster, tags={**base, **row.tags})
            for row in rows
        )

    def _passes(self, pair: Pair, sides: Mapping[int, Side], reading: Reading) -> list[Pass]:
        passes = []
        for site in (*self._settings.sites, *self._settings.spans):
            if reading == "forced" and site == "action":
                continue  # nothing is generated between this token and the action, so both readings agree
            patches = list(self._conditions(site, reading, few=reading == "forced" or pair.control))
            pass_ = self._reader.read(pair, sides, patches, reading, self._settings.pairs.seed)
            if pass_ is None:
                self.left_out[f"{site}, {reading}: reasonings of too different lengths"] += 1
            else:
                passes.append(pass_)
        return passes

    def _conditions(self, site: str, reading: Reading, *, few: bool) -> Iterator[Condition]:
        controls: tuple[Patch, ...] = self._settings.controls
        return conditions(
            site,
            self.layers,
            last=self.last,
            reaches_end=site in _ENDS and reading == "free",
            windows=() if few else self._settings.windows,
            components=("residual",) if few else self._settings.components,
            controls=[patch for patch in controls if patch == "isotropic"] if few else controls,
        )

    def _written(self, pass_: Pass, output: BatchOutputs[Decoded]) -> Iterator[Row]:
        """Yield the effects on the freely generated action."""
        target, source = pass_.sides[TARGET], pass_.sides[SOURCE]
        actions = [
            self._action(pass_, row, decoded.tokens, decoded.finish) for row, decoded in enumerate(output.outputs)
        ]
        if actions[TARGET] not in target.optimal:
            self.left_out[f"{pass_.site}: the unchanged answer fell otherwise in this pass"] += 1
            return
        count = len(pass_.sides)
        results = zip(pass_.conditions, output.outputs[count:], actions[count:], output.rerouted[count:], strict=True)
        for condition, decoded, action, rerouted in results:
            tags = {"reading": "free", **condition.tags}
            if target.optimal != source.optimal:
                yield _row(FOLLOWS, "share", float(action in source.optimal), tags)
            yield _row(CHANGED, "share", float(action not in target.optimal), tags)
            must = _must_equal(condition)
            if must is not None:
                yield _row(EQUAL, "share", float(decoded.tokens == output.outputs[must].tokens), tags)
            if rerouted is not None and condition.component == "residual" and condition.patch == "source":
                yield _row(REROUTED, "share", rerouted, tags)

    def _forced(self, passes: Sequence[Pass]) -> Iterator[Row]:
        """Yield the effects on the answer after replayed reasoning."""
        if not passes:
            return
        target, source = passes[0].sides[TARGET], passes[0].sides[SOURCE]
        target_answers, source_answers = answers_after(self._model, target), answers_after(self._model, source)
        batches = [*(pass_.batch for pass_ in passes), Batch(prompts=[source_answers.context])]
        answers = [*([target_answers.answers] * len(pass_.batch.prompts) for pass_ in passes), [source_answers.answers]]
        *scored, at_source = score_answers(self._model, batches, answers)
        source_odds = log_odds(at_source.outputs[0], source, target)
        swapped = False
        for pass_, result in zip(passes, scored, strict=True):
            odds = [log_odds(answer_scores, source, target) for answer_scores in result.outputs]
            target_odds, count = odds[TARGET], len(pass_.sides)
            results = list(
                zip(
                    [answer_scores.tags for answer_scores in pass_.conditions],
                    result.outputs[count:],
                    odds[count:],
                    strict=True,
                )
            )
            if pass_.site not in IN_OUTPUT and not swapped:
                swapped = True
                tags = {"site": WHOLE, "layers": "all", "component": "residual", "patch": "source"}
                results.append((tags, result.outputs[SOURCE], odds[SOURCE]))
            for condition, answer_scores, value in results:
                tags = {"reading": "forced", **condition}
                best = int(np.argmax([sum(answer) for answer in answer_scores]))
                yield _row(FOLLOWS, "share", float(best in source.optimal), tags)
                yield _row(LOG_ODDS, "nats", value - target_odds, tags)
                yield _row(
                    RECOVERY,
                    "ratio",
                    (value - target_odds) / (source_odds - target_odds) if source_odds != target_odds else np.nan,
                    tags,
                )

    def _action(self, pass_: Pass, row: int, tokens: Sequence[int], finish: str) -> int | None:
        """Parse the action of an output together with the part of the answer that was in the prompt."""
        side = pass_.sides.get(row, pass_.sides[TARGET])
        prefix = pass_.batch.prompts[row][len(side.prompt) :]
        return turn(reply_of(self._model, side, [*prefix, *tokens], complete=finish == "stop")).action


def _wrong(other_pairs: Sequence[Pair], target: Side, source: Side) -> Side | None:
    """Choose a side of another pair with equal length and shape and another action, if possible unlike both sides'."""
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


def _row(measure: str, unit: str, value: float, tags: Mapping[str, Any]) -> Row:
    return Row(measure=measure, unit=unit, value=value, cluster="", tags=tags)
