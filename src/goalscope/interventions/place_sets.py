"""Free sets of places: any union of sites and layers as one patch, and the search for a small set that suffices.

The search sees one half of the grids; the effect of what it found is measured on the other half, beside random sets of
as many places, noise in the same places, all places together, and control pairs, whose action must stay.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import numpy as np
from pydantic import Field

from goalscope.agents.chat import turn
from goalscope.interventions.edits import Edit, Editor
from goalscope.interventions.experiment import ExperimentSubject, Headline, OnPairs, PairSettings, intervention
from goalscope.interventions.forward import Batch, generate
from goalscope.interventions.minimal import minimal_set
from goalscope.interventions.pairs import Pair
from goalscope.interventions.passes import SOURCE, TARGET, Reader, noise, reply_of
from goalscope.interventions.patching import (
    CHANGED,
    DENOISING,
    FOLLOWS,
    NOISING,
    PAIRS,
    LayerSetting,
    Site,
    patched_layers,
)
from goalscope.interventions.reading import averaged
from goalscope.models.local import LocalModel
from goalscope.probing.scores import chosen
from goalscope.rng import stream
from goalscope.rows import Row, Rows
from goalscope.runs.kinds import sequence

KIND: Final = "place-sets"
PLACE: Final = "place of the set"
FOUND: Final = "found"
ALL: Final = "all places"
RANDOM: Final = "random set"

Place = tuple[str, int]
"""A site and a layer: what is written there is what the source holds."""

_Listed = Annotated[tuple[str, int], Field(strict=False)]
Change = tuple[frozenset[Place], Literal["source", "isotropic"]]
_TOGETHER: Final = 48  # rows of a pass


@intervention(KIND)
class PlaceSets(OnPairs):
    """Patches of sets of places, each a site and a layer, between the two grids of counterfactual pairs.

    `sets` are named sets, each a list of [site, layer]; all pairs measure them. With `search` a set is searched for
    among all of `sites` (and `spans`, texts of the prompt by name) and `layers`: one that has at least `share` of the
    effect of all these places together on half of the grids. `random` is the number of random sets beside each. The
    layers auto and all are blocks: the embedding of the cells that differ makes the source's prompt of the target's,
    and the token before the action in the last block is the answer itself, each alone.
    """

    kind: Literal["place-sets"] = KIND
    pairs: PairSettings = PairSettings(per_size=24)
    sites: tuple[Site, ...] = sequence(default=("changed", "pre"), min_length=1)
    spans: dict[str, str] = Field(default_factory=dict)
    layers: LayerSetting = "auto"
    sets: dict[str, Annotated[tuple[_Listed, ...], Field(strict=False)]] = Field(default_factory=dict)
    search: bool = True
    share: float = Field(default=0.9, gt=0, le=1)
    random: int = Field(default=10, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, le=2**62)
    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"pairs": "counterfactual"},
        ("moved", "set", "patch", "places", "half"),
    )

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Search, and measure the sets; stored results are not computed again."""
        work = _Work(subject.model, self, subject.agent.sampling.max_tokens)
        groups = {control: subject.pairs(self.pairs, control=control).kept for control in (False, True)}
        first, held_out = _halves(groups[False], self.seed)
        sets = dict(work.named)
        about: dict[str, Any] = {"settings": self.model_dump(mode="json"), "layers": list(work.layers)}
        if self.search:
            if not first or not held_out:
                raise ValueError(
                    f"a set is searched for on some grids and measured on others, got pairs of {len(first)} and "
                    f"{len(held_out)} of them: give more grids, or search: false"
                )
            subject.work({"search": (first,)}, work.searched)
            rows = chosen(subject.store.rows(), measure=PLACE, intervention=KIND, agent=subject.tags["agent"])
            found = frozenset((str(row.tags["site"]), int(str(row.tags["layer"]))) for row in rows)
            label = ", ".join(f"{site} {layer}" for site, layer in sorted(found))
            sets |= {f"{FOUND}: {label}": found, ALL: frozenset(work.places)}
            about |= {"found": sorted(map(list, found)), "pairs of the search": len(first)}
        elif not sets:
            raise ValueError("place-sets needs sets to measure or search: true, got neither: give one of them")
        measured = [pair for pair in (*groups[False], *groups[True]) if work.named or pair not in first]
        halves = {pair.id: "searched" if pair in first else "held out" for pair in measured}
        units = {f"{pair.id}": (pair, sets, halves[pair.id] if self.search else "all") for pair in measured}
        subject.work(units, work.rows)
        return {**about, "pairs": len(groups[False]), "control pairs": len(groups[True]), "left out": work.left_out}


def _halves(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of two halves of the grids, drawn by a seed."""
    clusters = list(dict.fromkeys(pair.cluster for pair in pairs))
    order = stream(seed, "halves of pairs").permutation(len(clusters))
    first = {clusters[at] for at in order[: len(clusters) // 2]}
    return [pair for pair in pairs if pair.cluster in first], [pair for pair in pairs if pair.cluster not in first]


class _Work:
    """Patches of sets of places in pairs."""

    def __init__(self, model: LocalModel, settings: PlaceSets, max_tokens: int) -> None:
        self._model, self._settings = model, settings
        self._limit = settings.max_tokens or max_tokens
        blocks = Editor(model.model).blocks
        self.layers = patched_layers(settings.layers, blocks.count, model.name, first=0)
        self.places: list[Place] = [
            (site, layer) for site in (*settings.sites, *settings.spans) for layer in self.layers
        ]
        self.named = {name: frozenset(places) for name, places in settings.sets.items()}
        everywhere = [*self.places, *sorted(set().union(*self.named.values()))]
        self._sites = list(dict.fromkeys(site for site, _ in everywhere))
        known = [*get_args(Site), *settings.spans]
        for name, places in self.named.items():
            wrong = [site for site, _ in places if site not in known]
            if wrong or not places:
                raise ValueError(
                    f"a set must be a list of [site, layer], sites of {', '.join(known)}, got "
                    f"{', '.join(wrong) or 'none'} in {name}"
                )
        self._width = blocks.width
        self._reader = Reader(model, self._sites, settings.spans, blocks.width)
        self.left_out = 0

    def searched(self, pairs: Sequence[Pair]) -> Rows:
        """Return the places of the set that is found on some pairs, a row each."""

        def values_of(sets: Sequence[frozenset[Place]]) -> list[float]:
            changes: list[Change] = [(each, "source") for each in sets]
            follows = [
                [float(action in pair.sides[source].optimal) for action in actions]
                for pair, source, actions in self._acted(pairs, changes)
            ]
            if not follows:
                raise ValueError("a set is searched for in pairs that pass through the model together, there are none")
            return [float(value) for value in np.mean(follows, axis=0)]

        (most,) = values_of([frozenset(self.places)])
        if most == 0:
            raise ValueError(
                f"a set is searched for where all {len(self.places)} places together move an action, here they move "
                f"none in {len(pairs)} pairs: give other sites or layers; with post or action among them the target's "
                "own reasoning is replayed before the patch"
            )
        rng = stream(self._settings.seed, "search for places")
        found = minimal_set(self.places, values_of, self._settings.share * most, rng=rng)
        (value,) = values_of([found])
        about = {"value on the half searched": value, "all places there": most}
        return Rows.from_rows(
            Row(measure=PLACE, unit="share", value=1.0, cluster="search", tags={"site": site, "layer": layer, **about})
            for site, layer in sorted(found)
        )

    def rows(self, pair: Pair, sets: Mapping[str, frozenset[Place]], half: str) -> Rows:
        """Return the effects of all sets and their controls in both directions of a pair."""
        labels: list[tuple[str, str, int]] = []
        changes: list[Change] = []
        for name, places in sets.items():
            labels += [(name, "source", len(places)), (name, "isotropic", len(places))]
            changes += [(places, "source"), (places, "isotropic")]
            if not pair.control and len(places) < len(self.places):
                drawn = [stream(self._settings.seed, "random sets", name, at) for at in range(self._settings.random)]
                chosen_at = [rng.choice(len(self.places), size=len(places), replace=False) for rng in drawn]
                changes += [(frozenset(self.places[at] for at in ats), "source") for ats in chosen_at]
                labels += [(name, RANDOM, len(places))] * len(drawn)
        base = {**pair.tags, "moved": pair.moved, "pairs": PAIRS[pair.control], "half": half}
        rows = []
        for _, source, actions in self._acted([pair], changes):
            target = pair.sides[1 - source].optimal
            direction = DENOISING if source == 0 else NOISING
            for (name, patch, count), action in zip(labels, actions, strict=True):
                tags = {**base, "direction": direction, "set": name, "patch": patch, "places": count}
                values = {CHANGED: float(action not in target)}
                values |= {} if pair.control else {FOLLOWS: float(action in pair.sides[source].optimal)}
                rows += [
                    Row(measure=measure, unit="share", value=value, cluster=pair.cluster, tags=tags)
                    for measure, value in values.items()
                ]
        return averaged(rows)

    def _acted(self, pairs: Sequence[Pair], changes: Sequence[Change]) -> Iterator[tuple[Pair, int, list[int | None]]]:
        """Yield for each pair and direction the side that is the source, and the action after each change.

        Left out are pairs whose sides do not pass together, or whose unchanged answer falls otherwise in this pass.
        """
        passes: list[tuple[Pair, int, Batch]] = []
        for pair, source in product(pairs, (0, 1)):
            sites = self._reader.together(
                pair, {TARGET: pair.sides[1 - source], SOURCE: pair.sides[source]}, self._sites
            )
            if sites is None:
                self.left_out += 1
                continue
            (target_ids, at), (source_ids, source_at) = sites[TARGET], sites[SOURCE]
            for begin in range(0, len(changes), _TOGETHER):
                part = changes[begin : begin + _TOGETHER]
                edits = [
                    edit
                    for row, change in enumerate(part, start=2)
                    for edit in self._edits(pair, change, row, at, source_at)
                ]
                batch = Batch(prompts=[target_ids, source_ids, *[target_ids] * len(part)], edits=edits)
                passes.append((pair, source, batch))
        outputs = generate(self._model, [batch for *_, batch in passes], max_tokens=self._limit)
        written = zip(passes, outputs, strict=True)
        for (pair, source), group in groupby(written, key=lambda each: each[0][:2]):
            target = pair.sides[1 - source]
            clean, actions = set[int | None](), list[int | None]()
            for (_, _, batch), output in group:
                prefix = batch.prompts[TARGET][len(target.prompt) :]
                own, _, *changed = (
                    turn(reply_of(self._model, target, [*prefix, *one.tokens], complete=one.finish == "stop"))
                    for one in output.outputs
                )
                clean.add(own.action)
                actions += [each.action for each in changed]
            if clean <= target.optimal:
                yield pair, source, actions
            else:
                self.left_out += 1

    def _edits(
        self, pair: Pair, change: Change, row: int, at: Mapping[str, Any], source_at: Mapping[str, Any]
    ) -> Iterator[Edit]:
        """Yield one edit for each layer of a set: the positions of all its sites there, each once."""
        places, patch = change
        rng = stream(self._settings.seed, "noise of a set", pair.id, str(sorted(places)))
        for layer in sorted({layer for _, layer in places}):
            sites = [site for site in self._sites if (site, layer) in places]
            positions, first = np.unique(np.concatenate([at[site] for site in sites]), return_index=True)
            read = np.concatenate([source_at[site] for site in sites])[first]
            drawn: dict[str, Any] = {}
            if patch == "isotropic":
                drawn = {
                    "vectors": noise(rng, (len(positions), self._width), unit=True),
                    "how": "noise",
                    "clean": TARGET,
                }
            yield Edit(row=row, layer=layer, positions=positions, source=SOURCE, source_positions=read, **drawn)
