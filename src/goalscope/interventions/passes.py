"""What the model reads of a pair: for each site one pass with both sides as they are and a copy for each patch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from goalscope.activations.record import Site as FoundSite
from goalscope.activations.sites import SiteFinder
from goalscope.agents.choice import answers_of
from goalscope.interventions.conditions import SOURCE, TARGET, WRONG, Condition, Places, edits_of
from goalscope.interventions.forward import Batch
from goalscope.interventions.pairs import Pair, Side
from goalscope.models.base import Completion, Sampling
from goalscope.models.decode import Decoded, common_prefix
from goalscope.models.likelihood import Alternatives, placed
from goalscope.models.local import LocalModel
from goalscope.rng import stream

Reading = Literal["free", "forced"]
"""Whether the model writes on after the patch, or answers after the recorded reasoning of the target."""

CELLS: Final = ("grid", "changed")
IN_OUTPUT: Final = ("post", "action")
"""Sites behind written reasoning: the target's own in both readings, since a patch there comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One pass: the sides as they are, then a copy of the target for each condition.

    Attributes:
        site, reading: where and how.
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
    """The ids that the model reads of a side, the places of the site in them, and those of the cells."""

    ids: tuple[int, ...]
    site: Places
    cells: Places


class Reader:
    """Finds the sites of pairs and builds their passes.

    Args:
        model: the model.
        spans: further sites: a name, and a text of the prompt.
        sites: the sites that are wanted.
        width: D of the model.

    Raises:
        ValueError: the model's template has no such site; says why.
    """

    def __init__(self, model: LocalModel, sites: Sequence[str], spans: Mapping[str, str], width: int) -> None:
        self._model, self._spans, self._width = model, spans, width
        wanted: list[FoundSite] = [site for site in ("pre", "post") if site in sites]
        self._finder = SiteFinder(model, ("grid", *wanted))

    def read(
        self, pair: Pair, sides: Mapping[int, Side], conditions: Sequence[Condition], reading: Reading, seed: int
    ) -> Pass | None:
        """Return the pass of some conditions at one site; None where the reasonings differ too much in length.

        Args:
            pair: the pair; its id names the noise.
            sides: what is patched, what is read, and a wrong source, which is left out where it does not fit.
            conditions: the patches, all of one site.
            reading: see `Reading`.
            seed: root of the noise.
        """
        site = conditions[0].site
        found = {row: self._read(pair, sides, row, site, reading) for row in sides}
        if not _together([found[TARGET], found[SOURCE]]):
            return None
        if WRONG in found and not _together(list(found.values())):
            found.pop(WRONG)
        kept = [one for one in conditions if one.patch != "wrong" or WRONG in found]
        rows = {row: number for number, row in enumerate(found)}  # 0, 1 and where it fits 2: as the edits say
        rng = stream(seed, "patching", pair.id, site)
        places = {row: {site: found[row].site} for row in rows}
        bank = [(row, self._bank(found[row], site)) for row in rows]
        edits = [
            edit
            for row, condition in enumerate(kept, start=len(rows))
            for edit in edits_of(condition, row, places, bank, self._width, rng)
        ]
        prompts = [found[row].ids for row in rows] + [found[TARGET].ids] * len(kept)
        clean = [*rows.values(), *[TARGET] * len(kept)]
        return Pass(
            site=site,
            reading=reading,
            batch=Batch(prompts=prompts, edits=edits, clean=clean),
            conditions=kept,
            sides={row: sides[row] for row in rows},
        )

    def answers(self, side: Side) -> Alternatives:
        """Return the answers of all actions after a side's own reasoning; what they share is part of the context."""
        text = self._model.text(side.prompt)
        found = placed(self._model, text, answers_of(side.view.actions), self.completion(side, side.output))
        if found is None:
            raise ValueError("the answers of a pair must come to a final one, got one that does not")
        return Alternatives(
            context=(*found.context, *found.answers[0][: found.shared]),
            answers=tuple(answer[found.shared :] for answer in found.answers),
            shared=0,
            prompt=found.prompt,
        )

    def completion(self, side: Side, tokens: Sequence[int], *, complete: bool = True) -> Completion:
        """Return what an output to a side's prompt amounts to."""
        output = Decoded(tokens=list(tokens), finish="stop" if complete else "length")
        return self._model.completion(self._model.text(side.prompt), side.prompt, output, Sampling(temperature=0.0))

    def _read(self, pair: Pair, sides: Mapping[int, Side], row: int, site: str, reading: Reading) -> _Read:
        side = sides[row]
        places = self._finder.find(side.step, side.view.grid).positions
        output: tuple[int, ...] = ()
        if site == "action" or reading == "forced":
            # At sites of the prompt a source is read with the target's output, which no token of its prompt sees.
            told = side if site in IN_OUTPUT else sides[TARGET]
            output = self.answers(told).context[len(told.prompt) :]
        elif site == "post":
            output = side.output[: int(places["post"][-1]) + 1 - len(side.prompt)]
        ids = (*side.prompt, *output)
        if site == "changed":
            at = pair.changed
        elif site == "action":
            at = np.array([len(ids) - 1])
        elif site in self._spans:
            at = self._span(side, site)
        else:
            at = np.asarray(places[site]).reshape(-1)  # type: ignore[index]
        return _Read(ids=ids, site=at, cells=places["grid"].reshape(-1))

    def _span(self, side: Side, name: str) -> Places:
        """Return the tokens of a text in a prompt, its last occurrence."""
        text, whole = self._spans[name], self._model.text(side.prompt)
        ends = np.cumsum([len(self._model.text([token])) for token in side.prompt])
        begin = whole.rfind(text) if text else -1
        if begin < 0 or ends[-1] != len(whole):
            lacking = "is not in it" if begin < 0 else "cannot be placed: tokens of this prompt are parts of letters"
            raise ValueError(f"the span {name!r} must be a text of the prompt, {text!r} {lacking}")
        inside = np.flatnonzero((ends > begin) & (np.r_[0, ends[:-1]] < begin + len(text)))
        return inside.astype(np.int64)

    def _bank(self, read: _Read, site: str) -> Places:
        """Return the places whose activations give noise its covariance: the cells, or all tokens behind the grid."""
        return read.cells if site in CELLS else np.arange(int(read.cells.max()) + 1, len(read.ids))


def _together(reads: Sequence[_Read]) -> bool:
    """Whether sequences pass through the model together: lengths differ by no more than their common beginning."""
    ids = [read.ids for read in reads]
    return max(map(len, ids)) - min(map(len, ids)) <= common_prefix(ids)
