"""Alignment search: a subspace of small rank whose interchange between two grids moves the action.

An orthogonal map is trained so that writing the counterfactual's coordinates in K of its directions makes the model
write its output in the counterfactual. This is a supervised search: it can find directions that nothing reads in the
unchanged model but that activate dormant pathways. So each result has these controls: the whole residual stream at the
same position; of the same rank random subspaces, the principal components of the activations and, for each thing
moved, those of the differences between counterfactual and original, which need no search; a search on shuffled pairs
and on random networks; and the parts of the found subspace that the next block reads strongly and weakly.

Sources: Geiger et al. 2024, Finding alignments between interpretable causal variables and distributed neural
representations (distributed alignment search); Makelov, Lange and Nanda 2023, arXiv:2311.17030 (dormant pathways).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope.agents.chat import ChatAgent
from goalscope.interventions.directions import reading_directions, split_subspace
from goalscope.interventions.edits import Edit, Editor
from goalscope.interventions.experiment import ExperimentSubject, Headline, OnPairs, PairSettings, intervention
from goalscope.interventions.forward import each_change, score_answers
from goalscope.interventions.pairs import Pair, Side
from goalscope.interventions.passes import answers_after, check_marks_reasoning, log_odds
from goalscope.interventions.reading import (
    FOLLOWS,
    Passage,
    Where,
    answers,
    averaged,
    finder_of,
    layers_of,
    pair_rows,
    passage,
    read_passages,
)
from goalscope.models.initialisation import permute, redraw
from goalscope.models.local import LocalModel
from goalscope.rng import stream
from goalscope.rows import Row, Rows
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers

KIND: Final = "alignment"
ODDS: Final = "log-odds of the forced answer follow"
"""Whether the counterfactual's word of action is likelier than the original's after the original's own output."""
FOUND, WHOLE, RANDOM, COMPONENTS, DIFFERENCES, SHUFFLED = (
    "found subspace",
    "whole residual",
    "random subspace",
    "components of the activations",
    "components of the differences",
    "trained on shuffled pairs",
)
NETWORKS: Final = ("permuted", "initial")
"""Kinds of random networks on which the search is repeated, see `goalscope.models.initialisation`."""
READ, UNREAD = "found, part that is read", "found, part that is hardly read"
_CASES_AT_ONCE: Final = 16


@intervention(KIND)
class Alignment(OnPairs):
    """Subspaces of small rank, searched for at each site and layer, interchanged within pairs of held-back grids.

    `ranks` are the numbers of directions; `steps`, `batch` and `rate` are those of the search; `test` is the fraction
    of the grids that is held back, of each thing moved. `random` is the number of random subspaces; `networks` that of
    the random networks of each kind on which the search is repeated, scored by the log-odds of the forced answer: with
    permuted weights and, where the training of the model says how it began, with those.
    """

    headline: ClassVar[Headline] = ((FOLLOWS,), {"network": "own"}, ("moved", "site", "layer", "rank", "subspace"))

    kind: Literal["alignment"] = KIND
    pairs: PairSettings = PairSettings(per_size=40, controls=0)
    sites: tuple[Where, ...] = sequence(default=("changed", "pre"))
    layers: Layers = "thirds"
    ranks: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = sequence(default=(1, 4))
    steps: int = Field(default=60, ge=1, le=1_000_000)
    batch: int = Field(default=8, ge=1, le=4096)
    rate: float = Field(default=0.02, gt=0, le=10)
    test: float = Field(default=0.5, gt=0, lt=1)
    random: int = Field(default=3, ge=1, le=100)
    networks: int = Field(default=1, ge=0, le=100)
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Search at each site and layer; stored results are not computed again."""
        check_marks_reasoning(subject.model)  # before the pairs: no number of worlds would help
        layers, pairs = layers_of(subject.model, self.layers), subject.pairs(self.pairs)
        train, test = split_pairs(pairs.kept, self.test, self.seed)
        kinds = [kind for kind in NETWORKS if kind != "initial" or subject.model.has_recipe]
        twin = cache(lambda kind, seed: random_network(subject.model, kind, seed))

        def rows(site: Where, layer: int) -> Rows:
            networks = [("own", subject.model)]
            networks += [(kind, twin(kind, seed)) for kind in kinds for seed in range(self.networks)]
            searched = [
                search(subject.agent, network, train, test, self, site, layer, kind=kind) for kind, network in networks
            ]
            return averaged(row for found in searched for row in found)

        subject.work({f"{site} {layer}": (site, layer) for site in self.sites for layer in layers}, rows)
        return {
            "settings": self.model_dump(mode="json"),
            "training pairs": len(train),
            "tested pairs": len(test),
            "left out": dict(pairs.left_out),
            "layers": list(layers),
        }


def random_network(model: LocalModel, kind: str, seed: int) -> LocalModel:
    """Return a copy of a model that has learned nothing: `permuted` or `initial`, as in `models.initialisation`."""
    with model.alone() as network:
        twin = deepcopy(network)
    (permute if kind == "permuted" else redraw)(twin, seed=seed)
    reasoning = model.marks.setting
    return LocalModel.from_parts(twin, model.tokenizer, name=f"{model.name}-{kind}-{seed}", reasoning=reasoning)


def split_pairs(pairs: Sequence[Pair], test: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return training and tested pairs; both directions of a pair, and all pairs of a grid, are on one side.

    Of the grids in which each thing is moved the same share is tested.

    Raises:
        ValueError: too few grids for both.
    """
    held_out: set[str] = set()
    for thing in dict.fromkeys(pair.moved for pair in pairs) or (None,):
        grids = list(dict.fromkeys(pair.cluster for pair in pairs if pair.moved == thing))
        if len(grids) < 2:
            raise ValueError(
                f"an alignment search must have pairs of at least 2 grids for each thing moved, got {len(grids)} "
                f"({thing or 'nothing'} moved): add worlds"
            )
        order = stream(seed, "alignment split", str(thing)).permutation(len(grids))
        count = min(max(1, round(test * len(grids))), len(grids) - 1)
        held_out |= {grids[index] for index in order[:count]}
    both = [candidate for pair in pairs for candidate in (pair, pair.swapped)]
    return [candidate for candidate in both if candidate.cluster not in held_out], [
        candidate for candidate in both if candidate.cluster in held_out
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A pair at one site and layer, with the original's passage and its forced answers.

    ``target`` and ``source`` are the activations ``[P, D]`` of the original and of the counterfactual.
    ``counterfactual`` is the side whose output a search must bring about. ``context`` is the original with its own
    reasoning up to the word of the action, ``words`` the ids of all actions.
    """

    pair: Pair
    counterfactual: Side
    context: tuple[int, ...]
    words: tuple[tuple[int, ...], ...]
    passage: Passage
    target: npt.NDArray[np.float32]
    source: npt.NDArray[np.float32]


def search(
    agent: ChatAgent,
    model: LocalModel,
    train: Sequence[Pair],
    test: Sequence[Pair],
    settings: Alignment,
    site: Where,
    layer: int,
    *,
    kind: str = "own",
) -> Rows:
    """Search subspaces at one site and layer, and interchange them in the tested pairs.

    Args:
        agent: the agent that the pairs were found with.
        model: its model, or a random network of the same architecture.
        train, test: pairs of different grids.
        settings: ranks, steps, seeds.
        site, layer: where the activations are read and changed.
        kind: "own" for the agent's own model, which writes freely; of a random network the kind, see `NETWORKS`: its
            forced answer is scored.

    Returns:
        Rows with the tags site, layer, rank, subspace, network, and those of the pairs; clusters are grids.
    """
    own = kind == "own"
    cases = [_cases(model, group, site, layer) for group in (train, test)]
    width = cases[0][0].target.shape[-1]
    too_wide = [rank for rank in settings.ranks if rank > width]
    if too_wide:
        raise ValueError(f"the rank of a subspace must be at most the width {width} of the model, got {too_wide[0]}")
    subspaces: list[tuple[str, int, Any]] = [(WHOLE, width, None)]
    vectors = np.concatenate([activations for case in cases[0] for activations in (case.target, case.source)]).astype(
        np.float64
    )
    components = _components(vectors - vectors.mean(axis=0))
    # Both directions of each pair are among the cases: the mean of the differences is 0.
    differences = {
        thing: _components(np.concatenate([case.source - case.target for case in cases[0] if case.pair.moved == thing]))
        for thing in dict.fromkeys(case.pair.moved for case in cases[0])
    }
    reading = reading_directions(model, layer) if own else None
    rng = stream(settings.seed, "random subspaces", site, layer)
    for rank in settings.ranks:
        learned = train_subspace(model, cases[0], layer, rank, settings, own=own)
        subspaces.append((FOUND, rank, learned))
        if reading is None:
            continue
        shuffled_cases = _shuffled(cases[0], stream(settings.seed, "shuffled pairs", site, layer, rank))
        controls = [
            (SHUFFLED, train_subspace(model, shuffled_cases, layer, rank, settings, own=own)),
            (COMPONENTS, components[:, :rank]),
            (DIFFERENCES, {thing: found[:, :rank] for thing, found in differences.items()}),
        ]
        controls += [(RANDOM, np.linalg.qr(rng.standard_normal((width, rank)))[0]) for _ in range(settings.random)]
        controls += zip((READ, UNREAD), split_subspace(learned, reading), strict=True)
        subspaces += [(name, rank, basis) for name, basis in controls]
    common: dict[str, Any] = {"site": site, "layer": layer}
    rows: list[Row] = []
    for begin in range(0, len(cases[1]), _CASES_AT_ONCE):
        part = cases[1][begin : begin + _CASES_AT_ONCE]
        for measure, values in _effects(agent, model, part, layer, subspaces, settings, own=own):
            for case, found_values in zip(part, values, strict=True):
                for (label, rank, _), value in zip(subspaces, found_values, strict=True):
                    tags = common | {"rank": None if label == WHOLE else rank, "subspace": label}
                    rows += pair_rows(case.pair, {measure: value}, **tags, network=kind)
    return averaged(rows)


def _components(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the principal components of centred vectors ``[N, D]`` as columns, the largest first."""
    components: npt.NDArray[np.float64] = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)[2].T
    return components


def _cases(model: LocalModel, pairs: Sequence[Pair], site: Where, layer: int) -> list[Case]:
    finder = finder_of(model, [site])
    passages = [passage(finder, site, side, pair.changed) for pair in pairs for side in pair.sides]
    vectors = read_passages(model, passages, layer)
    cases = []
    for at, pair in enumerate(pairs):
        forced, (target, source) = answers_after(model, pair.sides[0]), vectors[2 * at : 2 * at + 2]
        context: dict[str, Any] = {"counterfactual": pair.sides[1], "context": forced.context, "words": forced.answers}
        cases.append(Case(pair=pair, passage=passages[2 * at], target=target, source=source, **context))
    return cases


def _shuffled(cases: Sequence[Case], rng: np.random.Generator) -> list[Case]:
    """Return cases whose target output is that of another case's counterfactual.

    The source activations stay: at the changed cells those of other pairs hold the same code, and would be no control.
    """
    order = rng.permutation(len(cases))
    partner = {int(index): int(other) for index, other in zip(order, np.roll(order, 1), strict=True)}
    return [replace(case, counterfactual=cases[partner[index]].counterfactual) for index, case in enumerate(cases)]


def train_subspace(
    model: LocalModel, cases: Sequence[Case], layer: int, rank: int, settings: Alignment, *, own: bool
) -> npt.NDArray[np.float64]:
    """Return a basis ``[D, K]`` whose interchange makes the model write its output in the counterfactual.

    The loss is the cross-entropy of those tokens of the counterfactual's output that differ from the original's, each
    after the counterfactual's tokens before it. On a random network, which writes no meaningful text, it is that of the
    counterfactual's action after the original's reasoning: the scored quantity itself, which favours its search.
    """
    import torch
    from torch.nn.utils.parametrizations import orthogonal

    rng = stream(settings.seed, "alignment search", layer, rank)
    with model.alone() as network:
        editor = Editor(network)
        width = editor.blocks.width
        map_ = torch.nn.Linear(width, rank, bias=False)
        with torch.no_grad():
            initial = np.linalg.qr(rng.standard_normal((width, rank)))[0].T
            map_.weight.copy_(torch.from_numpy(np.ascontiguousarray(initial, dtype=np.float32)))
        with torch.random.fork_rng(devices=[]):  # the rest of the basis is drawn with torch's global numbers
            torch.manual_seed(int(rng.integers(2**63)))
            orthogonal(map_)
        map_.to(editor.blocks.device)
        optimiser = torch.optim.Adam(map_.parameters(), lr=settings.rate)
        trainable = [parameter.requires_grad for parameter in network.parameters()]
        network.requires_grad_(False)
        try:
            with editor.hooked([(layer, "residual")]):
                for step in range(settings.steps):
                    for group in optimiser.param_groups:
                        group["lr"] = settings.rate * (1 - step / settings.steps)
                    chosen = [cases[int(at)] for at in rng.permutation(len(cases))[: settings.batch]]
                    loss = _loss(network, editor, chosen, layer, map_.weight.T, own=own)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
            basis = map_.weight.detach().T.double().cpu().numpy()
        finally:
            for parameter, flag in zip(network.parameters(), trainable, strict=True):
                parameter.requires_grad_(flag)
    orthonormal: npt.NDArray[np.float64] = np.linalg.qr(basis)[0]
    return orthonormal


def _loss(network: Any, editor: Editor, cases: Sequence[Case], layer: int, basis: Any, *, own: bool) -> Any:
    """Return the mean cross-entropy over cases; rows are padded on the right, where no logit is used."""
    import torch

    sequences, targets = zip(*(_target(case, own=own) for case in cases), strict=True)
    longest = max(map(len, sequences))
    device = editor.blocks.device
    ids = torch.tensor(
        [[*sequence, *[sequence[-1]] * (longest - len(sequence))] for sequence in sequences], device=device
    )
    edits = [
        Edit(
            row=row,
            layer=layer,
            positions=case.passage.places,
            vectors=torch.from_numpy(case.source).to(device),
            basis=basis,
        )
        for row, case in enumerate(cases)
    ]
    with editor.applying(edits, range(len(cases)), [0] * len(cases)):
        logits = network(input_ids=ids, use_cache=False).logits
    rows = [row for row, places in enumerate(targets) for _ in places]
    columns = [place - 1 for places in targets for place in places]
    expected = torch.tensor(
        [sequences[row][column + 1] for row, column in zip(rows, columns, strict=True)], device=device
    )
    return torch.nn.functional.cross_entropy(logits[rows, columns].float(), expected)


def _target(case: Case, *, own: bool) -> tuple[tuple[int, ...], list[int]]:
    """Return a token sequence, and the positions of the tokens whose likelihood is trained."""
    first, second = case.pair.sides[0], case.counterfactual
    begin, replayed = len(case.passage.ids), case.passage.replayed
    written = (*case.passage.ids, *second.output[replayed:])
    unchanged = (*case.passage.ids, *first.output[replayed:])
    places = [at for at in range(begin, len(written)) if at >= len(unchanged) or written[at] != unchanged[at]]
    if own and places:
        return written, places
    word = case.words[second.action]
    return (*case.context, *word), list(range(len(case.context), len(case.context) + len(word)))


def _effects(
    agent: ChatAgent,
    model: LocalModel,
    cases: Sequence[Case],
    layer: int,
    subspaces: Sequence[tuple[str, int, Any]],
    settings: Alignment,
    *,
    own: bool,
) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield a measure and its values, ``[case][subspace]``: 1 where the interchange had the effect."""
    edits = [[interchange(case, layer, basis) for _, _, basis in subspaces] for case in cases]
    if own:
        views, passages = zip(*((case.pair.sides[0].view, case.passage) for case in cases), strict=True)
        answered = answers(agent, views, passages, edits, max_tokens=settings.max_tokens)
        answered_cases = zip(cases, answered, strict=True)
        yield (
            FOLLOWS,
            [[one.effect(case.pair)[FOLLOWS] for one in case_answers] for case, case_answers in answered_cases],
        )
    batches = [each_change(case.context, changes) for case, changes in zip(cases, edits, strict=True)]
    scored = score_answers(model, batches, [[case.words] * len(subspaces) for case in cases])
    sides = [case.pair.sides for case in cases]
    yield (
        ODDS,
        [
            [float(log_odds(one, second, first) > 0) for one in case_answers.scores]
            for (first, second), case_answers in zip(sides, scored, strict=True)
        ],
    )


def interchange(case: Case, layer: int, basis: Any) -> list[Edit]:
    """Return the edit that writes the counterfactual's coordinates in a basis ``[D, K]``, None for the whole space.

    Bases by the thing moved are those of the pairs in which it is moved.
    """
    import torch

    if isinstance(basis, Mapping):
        basis = basis[case.pair.moved]
    if basis is not None and not basis.shape[1]:
        return []
    projection = None if basis is None else torch.from_numpy(np.ascontiguousarray(basis, dtype=np.float32))
    source = torch.from_numpy(case.source)
    return [Edit(row=0, layer=layer, positions=case.passage.places, vectors=source, basis=projection)]
