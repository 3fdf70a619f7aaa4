"""Decoded map and decoded plan: what is read from an agent's activations, and from those of random networks.

A linear map reads a label from the activations at the end of the prompt, fitted in other worlds than it is tested in.
The same is done with random networks, which pass on what the prompt holds: what is no more readable in the agent than
in each of them (lower end of the difference above 0, Student's t over clusters) is nothing that it made itself.

*Map*: the cell of each place that a hypothesis speaks of, in the worlds as they are and with goal or key elsewhere. A
hypothesis is claimed where all of its places that differ between worlds are read; whether it is gone to or fled from,
no reading tells. *Plan*: the moves after the next one, up to `AHEAD`, or that the episode is over. Decoded moves are
carried out after the one that was taken; a hypothesis is claimed for the share of them that it prefers.

Source: Hewitt and Liang (2019), Designing and interpreting probes with control tasks.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from goalscope.goals.attribution.by_arrival import lower_end
from goalscope.goals.attribution.definition import Attribution, Trial, attribution
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, Hypothesis, Mask, Numbers
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.views import Undefined
from goalscope.inside.attribution.by_patching import claimed, moved_pairs
from goalscope.inside.attribution.by_reasoning import chosen_of
from goalscope.inside.probing.ridge import PENALTIES, RidgePath

FOLDS: Final = 5
AHEAD: Final = 3
"""Decoded moves behind the next one."""
_PENALTIES: Final = PENALTIES[::3]


@attribution("decoded map", asks="inside")
def by_map(trial: Trial) -> Attribution:
    """Return the hypotheses whose places are more readable than from random networks."""
    inside, pairs = trial.opened, moved_pairs(trial, ("goal", "key"))
    owned = {id(pair.own): (pair.cluster, pair.own) for pair in pairs}
    shown = [*owned.values(), *((pair.cluster, pair.other) for pair in pairs)]
    clusters = np.array([cluster for cluster, _ in shown])
    vectors = inside.vectors([(world, int(world.process.start.argmax())) for _, world in shown])
    named = {name: _places(one) for name, one in trial.bank.items()}
    above = dict[str, float]()
    for text, place in {text: one for places in named.values() for text, one in places.items()}.items():
        cells = np.full(len(shown), -1)
        for number, (_, world) in enumerate(shown):
            try:
                cells[number] = np.array(place.cell(world)) @ [world.grid.width, 1]
            except Undefined:
                continue
        known = cells >= 0
        if len({*cells[known].tolist()}) > 1 and len({*clusters[known].tolist()}) >= FEWEST:
            right = {
                network: _cross_read(of[known], cells[known, None], clusters[known]) == cells[known, None]
                for network, of in vectors.items()
            }
            above[text] = _above(right, clusters[known], trial.level)
    found = [
        name
        for name, places in named.items()
        if (differ := places.keys() & above.keys()) and all(above[text] > 0 for text in differ)
    ]
    return claimed("decoded map", found, trial, f"the cells of {' or '.join(found)} are read", above)


def _places(one: Hypothesis) -> dict[str, Hypothesis]:
    """Return the places that a hypothesis speaks of by their written form."""
    inner = [part for given in one.parts for part in (given if isinstance(given, tuple) else (given,))]
    found = {text: place for part in inner if isinstance(part, Hypothesis) for text, place in _places(part).items()}
    return found or ({one.text: one} if one.kind == "place" else {})


@attribution("decoded plan", asks="inside")
def by_plan(trial: Trial) -> Attribution:
    """Return the hypotheses that the decoded moves follow, where they are more readable than from random networks."""
    inside = trial.opened
    if any((one.first.max(axis=1) < 1).any() for one in trial.answers):
        raise Undefined("it needs moves that were taken, this agent gives the probabilities of all")
    places = [(one.world, state) for one in trial.answers for state in one.state.tolist()]
    clusters = np.array([one.cluster for one in trial.answers for _ in one.state])
    if len({*clusters.tolist()}) < FEWEST:
        raise Undefined(f"it needs steps in at least {FEWEST} worlds")
    later = np.concatenate([_later(one) for one in trial.answers])
    read = {network: _cross_read(of, later, clusters) for network, of in inside.vectors(places).items()}
    low = _above({network: moves == later for network, moves in read.items()}, clusters, trial.level)
    if low <= 0:
        return claimed("decoded plan", (), trial, "", {})
    said = np.concatenate(
        [_said(trial.bank, one, moves) for one, moves in _by_world(trial, read[next(iter(read))])], axis=1
    )  # [K, N, AHEAD]
    each, mean = list[Array](), (said == 1).sum(axis=(1, 2)) / np.maximum((said >= 0).sum(axis=(1, 2)), 1)
    targets = [(cluster, said[:, clusters == cluster]) for cluster in dict.fromkeys(clusters.tolist())]
    for _, own in targets:
        number = (own >= 0).sum(axis=(1, 2))
        each.append(np.where(number > 0, (own == 1).sum(axis=(1, 2)) / np.maximum(number, 1), mean))
    found = chosen_of(np.array(each), targets, trial)
    return claimed(
        "decoded plan",
        found,
        trial,
        f"the decoded moves follow {' or '.join(found)}",
        dict(zip(trial.bank, mean.tolist(), strict=True)),
    )


def _by_world(trial: Trial, moves: Numbers) -> Any:
    ends = np.cumsum([len(one.state) for one in trial.answers])[:-1]
    return zip(trial.answers, np.split(moves, ends), strict=True)


def _later(one: Answers) -> Numbers:
    """Return ``[N, AHEAD]`` the moves after each step's own; the number of actions where the episode is over."""
    actions = one.world.process.actions
    found = np.full((len(one.state), AHEAD), actions)
    taken = one.first.argmax(axis=1)
    for ahead in range(AHEAD):
        here = np.flatnonzero(one.episode[: -ahead - 1] == one.episode[ahead + 1 :])
        found[here, ahead] = taken[here + ahead + 1]
    return found


def _said(bank: Mapping[str, Hypothesis], one: Answers, moves: Numbers) -> Numbers:
    """Return ``[K, N, AHEAD]`` whether decoded moves, carried out, are preferred; -1 where nothing is, or at an end."""
    found = np.full((len(bank), *moves.shape), -1)
    follow, actions = one.world.process.transitions, one.world.process.actions
    for number, hypothesis in enumerate(bank.values()):
        try:
            policy = hypothesis.solved(one.world).policy[0]
        except Undefined:
            continue
        best = policy >= policy.max(axis=1, keepdims=True) - 1e-12
        speaks = ~best.all(axis=1) & one.world.live
        state, going = follow[one.state, one.first.argmax(axis=1)], np.ones(len(one.state), dtype=bool)
        for ahead in range(moves.shape[1]):
            going &= moves[:, ahead] < actions
            move = np.where(going, moves[:, ahead], 0)
            found[number, :, ahead] = np.where(going & speaks[state], best[state, move], -1)
            state = np.where(going, follow[state, move], state)
    return found


def _above(right: Mapping[str, Mask], clusters: Array, level: float) -> float:
    """Return the least lower end by which the first network's share of right readings exceeds that of each other."""
    own, *others = (each.mean(axis=1) for each in right.values())
    of = [clusters == cluster for cluster in dict.fromkeys(clusters.tolist())]
    return min(lower_end(np.array([(own - other)[here].mean() for here in of]), level) for other in others)


def _cross_read(vectors: Array, labels: Numbers, clusters: Array) -> Numbers:
    """Return ``[N, C]`` the likeliest labels by a linear map that was fitted in other worlds."""
    found = np.empty_like(labels)
    fold = np.unique(clusters, return_inverse=True)[1] % FOLDS
    for tested in range(FOLDS):
        parts = [~np.isin(fold, (tested, (tested + 1) % FOLDS)), fold == (tested + 1) % FOLDS, fold == tested]
        for column in range(labels.shape[1]):
            found[parts[2], column] = likeliest(vectors, labels[:, column], *(np.flatnonzero(part) for part in parts))
    return found


def likeliest(vectors: Any, labels: Numbers, fitted: Numbers, held: Numbers, tested: Numbers) -> Numbers:
    """Return ``[M]`` the likeliest label by a linear map to indicators, of the rows that test it.

    Args:
        vectors: ``[N, D]`` activations.
        labels: ``[N]`` what is to be read.
        fitted, held, tested: rows that fit the map, choose the penalty, and test it.
    """
    import torch

    inputs = torch.from_numpy(vectors.astype(np.float64))
    inputs = (inputs - inputs.mean(dim=0)) / inputs.std(dim=0).clamp(min=1e-9)
    classes, number = np.unique(labels, return_inverse=True)
    targets = torch.from_numpy(np.eye(len(classes))[number])
    path = RidgePath(inputs[fitted], targets[fitted], torch.ones(len(fitted), dtype=torch.float64))

    def guessed(predicted: Any) -> Numbers:
        return np.asarray(classes[(predicted + path.level).argmax(dim=1).numpy()])

    tried = [(guessed(predicted) == labels[held]).mean() for predicted in path.deviations(inputs[held], _PENALTIES)]
    penalty = _PENALTIES[len(tried) - 1 - int(np.argmax(tried[::-1]))]
    return guessed(next(path.deviations(inputs[tested], [penalty])))
