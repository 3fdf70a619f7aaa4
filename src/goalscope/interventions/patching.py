"""Activation patching: which vectors, at which tokens and layers, carry the action from one grid into another.

One piece of work is one pair in one direction. Free generation is the default reading. Where the recorded reasoning is
replayed before the answer (reading `forced`), the target's own plan stays in the context: biased to null.

Source: behavioural and representational evaluation, Section 5.2 and Appendix F.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from goalscope.activations.hooks import thirds
from goalscope.agents.chat import turn
from goalscope.interventions.edits import EMBEDDING, Component, Editor
from goalscope.interventions.experiment import Headline, OnPairs, PairSettings, Subject, intervention
from goalscope.interventions.forward import Batch, Generated, generate, score_answers
from goalscope.interventions.pairs import Pair, Side
from goalscope.interventions.passes import (
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
    completion_of,
    conditions,
    log_odds,
)
from goalscope.models.local import LocalModel
from goalscope.rows import Row, Rows
from goalscope.runs.kinds import sequence

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
"""Site of the forced reading with the source's whole prompt: no patch of the prompt can do more in that reading."""

Site = Literal["grid", "changed", "pre", "post", "action"]
_FEW: Final = 12  # blocks of a model whose every layer is patched by default
_ENDS: Final = ("pre", "post", "action")  # sites that hold the last token of their pass
_PAIRS: Final = {False: "counterfactual", True: "control"}


def _tuple(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


@intervention(KIND)
class Patching(OnPairs):
    """Patches of activations between the two grids of counterfactual pairs.

    `sites` are the cells of the grid, the cells that differ, the tokens before and after the reasoning, and the token
    before the word of the action; `spans` are further ones: a name, and a text of the prompt whose tokens they are.
    `layers` are thirds, all, auto (all of a model of at most 12 blocks, else thirds), or numbers, -1 for the
    embedding; `windows` the widths of runs of layers. `components` are the residual stream and what attention and MLP
    add to it. `forced` also reads the answer after the replayed reasoning.
    """

    kind: Literal["patching"] = KIND
    pairs: PairSettings = PairSettings()
    sites: tuple[Site, ...] = sequence(default=("grid", "changed", "pre", "post", "action"))
    spans: dict[str, str] = Field(default_factory=dict)
    layers: Annotated[Literal["auto", "thirds", "all"] | tuple[int, ...], BeforeValidator(_tuple)] = "auto"
    windows: tuple[int, ...] = sequence(default=(3,))
    components: tuple[Component, ...] = sequence(default=("residual", "attention", "mlp"))
    controls: tuple[Literal["isotropic", "covariance", "wrong"], ...] = sequence(
        default=("isotropic", "covariance", "wrong")
    )
    forced: bool = True
    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"reading": "free", "component": "residual", "patch": "source", "pairs": "counterfactual", "structural": None},
        ("site", "layers"),
    )

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Patch every pair in both directions; what is stored is not done again."""
        work = _Work(subject.model, self, subject.agent.sampling.max_tokens)
        found = {control: subject.pairs(self.pairs, control=control) for control in (False, True)}
        kept = [pair for pairs in found.values() for pair in pairs.kept]
        if not found[False].kept:
            raise ValueError(
                "patching needs pairs in which the agent acts optimally on both sides, there are none "
                f"({_reasons(found[False].left_out)}): give more grids, or other things to move (pairs.moved)"
            )
        units = {
            f"{pair.id} {direction}": (pair, direction, found[pair.control].kept)
            for pair in kept
            for direction in (DENOISING, NOISING)
        }
        subject.work(units, work.rows)
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(found[False].kept),
            "control pairs": len(found[True].kept),
            "left out": {_PAIRS[control]: dict(pairs.left_out) for control, pairs in found.items()},
            "layers": list(work.layers),
            "last layer": work.last,
            "passes left out": dict(work.left_out),
        }


def _reasons(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "no grid"


class _Work:
    """Patches of one pair in one direction at a time."""

    def __init__(self, model: LocalModel, settings: Patching, max_tokens: int) -> None:
        self._model, self._settings = model, settings
        self._limit = settings.max_tokens or max_tokens
        blocks = Editor(model.model).blocks
        self.last = blocks.count - 1
        self._reader = Reader(model, settings.sites, settings.spans, blocks.width)
        everything = tuple(range(EMBEDDING, blocks.count))
        named = {"all": everything, "thirds": thirds(blocks.count)}
        named["auto"] = named["all" if blocks.count <= _FEW else "thirds"]
        asked = named[settings.layers] if isinstance(settings.layers, str) else settings.layers
        if not asked or not set(asked) <= set(everything) or len(set(asked)) < len(asked):
            raise ValueError(
                f"layers must be auto, thirds, all, or different numbers in {EMBEDDING}..{self.last}, {EMBEDDING} the "
                f"embedding, got {list(asked)}: {model.name} has {blocks.count} blocks"
            )
        self.layers = tuple(sorted(asked))
        self.left_out: Counter[str] = Counter()

    def rows(self, pair: Pair, direction: str, others: Sequence[Pair]) -> Rows:
        """Return the effect of every patch, a row for each measure and reading.

        Args:
            pair: the pair.
            direction: `NOISING` patches the original, `DENOISING` the counterfactual.
            others: pairs, one of whose sides is the wrong source where they are of other grids.
        """
        target, source = pair.sides if direction == NOISING else pair.sides[::-1]
        sides = {TARGET: target, SOURCE: source}
        wrong = _wrong([one for one in others if one.cluster != pair.cluster], target, source)
        if wrong is not None:
            sides[WRONG] = wrong
        base = {**pair.tags, "direction": direction, "moved": pair.moved, "pairs": _PAIRS[pair.control]}
        passes = self._passes(pair, sides, "free")
        written = generate(self._model, [one.batch for one in passes], max_tokens=self._limit)
        found = [row for one, output in zip(passes, written, strict=True) for row in self._written(one, output)]
        if self._settings.forced and not pair.control:
            found += self._forced(self._passes(pair, sides, "forced"))
        return Rows.from_rows(
            Row(measure=row.measure, unit=row.unit, value=row.value, grid_id=pair.cluster, tags={**base, **row.tags})
            for row in found
        )

    def _passes(self, pair: Pair, sides: Mapping[int, Side], reading: Reading) -> list[Pass]:
        found = []
        for site in (*self._settings.sites, *self._settings.spans):
            if reading == "forced" and site == "action":
                continue  # nothing is written between this token and the action: both readings are one
            patches = list(self._conditions(site, reading, few=reading == "forced" or pair.control))
            one = self._reader.read(pair, sides, patches, reading, self._settings.pairs.seed)
            if one is None:
                self.left_out[f"{site}, {reading}: reasonings of too different lengths"] += 1
            else:
                found.append(one)
        return found

    def _conditions(self, site: str, reading: Reading, *, few: bool) -> Iterator[Condition]:
        controls: tuple[Patch, ...] = self._settings.controls
        return conditions(
            site,
            self.layers,
            last=self.last,
            reaches_end=site in _ENDS and reading == "free",
            windows=() if few else self._settings.windows,
            components=("residual",) if few else self._settings.components,
            controls=[one for one in controls if one == "isotropic"] if few else controls,
        )

    def _written(self, done: Pass, output: Generated) -> Iterator[Row]:
        """Yield the effects on the freely written action."""
        target, source = done.sides[TARGET], done.sides[SOURCE]
        actions = [self._action(done, row, one.tokens, one.finish) for row, one in enumerate(output.outputs)]
        if actions[TARGET] not in target.optimal:
            self.left_out[f"{done.site}: the unchanged answer fell otherwise in this pass"] += 1
            return
        count = len(done.sides)
        found = zip(done.conditions, output.outputs[count:], actions[count:], output.rerouted[count:], strict=True)
        for condition, one, action, share in found:
            tags = {"reading": "free", **condition.tags}
            if target.optimal != source.optimal:
                yield _row(FOLLOWS, "share", float(action in source.optimal), tags)
            yield _row(CHANGED, "share", float(action not in target.optimal), tags)
            must = _must_equal(condition)
            if must is not None:
                yield _row(EQUAL, "share", float(one.tokens == output.outputs[must].tokens), tags)
            if share is not None and condition.component == "residual" and condition.patch == "source":
                yield _row(REROUTED, "share", share, tags)

    def _forced(self, passes: Sequence[Pass]) -> Iterator[Row]:
        """Yield the effects on the answer after replayed reasoning."""
        if not passes:
            return
        target, source = passes[0].sides[TARGET], passes[0].sides[SOURCE]
        mine, theirs = answers_after(self._model, target), answers_after(self._model, source)
        batches = [*(one.batch for one in passes), Batch(prompts=[theirs.context])]
        answers = [*([mine.answers] * len(one.batch.prompts) for one in passes), [theirs.answers]]
        *scored, away = score_answers(self._model, batches, answers)
        whole = log_odds(away.scores[0], source, target)
        swapped = False
        for one, found in zip(passes, scored, strict=True):
            odds = [log_odds(each, source, target) for each in found.scores]
            own, count = odds[TARGET], len(one.sides)
            listed = list(zip([each.tags for each in one.conditions], found.scores[count:], odds[count:], strict=True))
            if one.site not in IN_OUTPUT and not swapped:
                swapped = True
                tags = {"site": WHOLE, "layers": "all", "component": "residual", "patch": "source"}
                listed.append((tags, found.scores[SOURCE], odds[SOURCE]))
            for condition, each, value in listed:
                tags = {"reading": "forced", **condition}
                best = int(np.argmax([sum(answer) for answer in each]))
                yield _row(FOLLOWS, "share", float(best in source.optimal), tags)
                yield _row(LOG_ODDS, "nats", value - own, tags)
                yield _row(RECOVERY, "ratio", (value - own) / (whole - own) if whole != own else np.nan, tags)

    def _action(self, done: Pass, row: int, tokens: Sequence[int], finish: str) -> int | None:
        """Return the action of an output, what was given of it included."""
        side = done.sides.get(row, done.sides[TARGET])
        given = done.batch.prompts[row][len(side.prompt) :]
        return turn(completion_of(self._model, side, [*given, *tokens], complete=finish == "stop")).action


def _wrong(others: Sequence[Pair], target: Side, source: Side) -> Side | None:
    """Return a side of another pair, as many tokens and cells, another action: neither of theirs, if there is one."""
    shape = target.view.grid.walls.shape
    fits = [
        side
        for other in others
        for side in other.sides
        if len(side.prompt) == len(target.prompt) and side.view.grid.walls.shape == shape
        if side.action not in target.optimal
    ]
    return next((side for side in fits if side.action not in source.optimal), fits[0] if fits else None)


def _must_equal(condition: Condition) -> int | None:
    """Return the row whose output a patch must reproduce: the target's own, or the source's after a swap of the cells
    that differ in the embedding; None for all others."""
    if condition.patch == "identity":
        return TARGET
    swap = condition.site == "changed" and condition.patch == "source" and condition.layers == (EMBEDDING,)
    return SOURCE if swap else None


def _row(measure: str, unit: str, value: float, tags: Mapping[str, Any]) -> Row:
    return Row(measure=measure, unit=unit, value=value, grid_id="", tags=tags)
