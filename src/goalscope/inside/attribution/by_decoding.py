"""Decoded map and decoded plan: what can be read from an agent's activations, compared with random networks.

A linear map reads a label from the activations at the end of the prompt. It is fitted and tested in different worlds.
The same is done with random networks, which pass on what the prompt contains: a label that is no more readable in the
agent than in each of them (lower end of the difference above 0, Student's t over clusters) is not the agent's own work.

*Map*: the cell of each place that a hypothesis mentions, in the original worlds and with goal or key moved. A
hypothesis is claimed if all of its places that differ between worlds can be read; no reading tells whether the agent
approaches or avoids a place. *Plan*: the moves after the next one, up to `AHEAD`, or that the episode is over. Decoded
moves are carried out after the move that was taken; a hypothesis is claimed by the share of them that it prefers.

Source: Hewitt and Liang (2019), Designing and interpreting probes with control tasks.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from goalscope.goals.attribution.definition import Attribution, Trial, attribution, lower_end
from goalscope.goals.hypotheses.definition import Array, Hypothesis, Mask, Numbers, Undefined
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers
from goalscope.inside.attribution.by_patching import claimed, moved_pairs
from goalscope.inside.attribution.by_reasoning import chosen_of
from goalscope.inside.probing.ridge import PENALTIES, RidgePath

FOLDS: Final = 5
AHEAD: Final = 3
"""Decoded moves behind the next one."""
_PENALTIES: Final = PENALTIES[::3]


@attribution("decoded map", asks="inside")
def by_map(trial: Trial) -> Attribution:
    """Name the hypotheses whose places a probe reads better from the agent than from random networks."""
    inside, pairs = trial.opened, moved_pairs(trial, ("goal", "key"))
    owned = {id(pair.own): (pair.cluster, pair.own) for pair in pairs}
    stimuli = [*owned.values(), *((pair.cluster, pair.other) for pair in pairs)]
    clusters = np.array([cluster for cluster, _ in stimuli])
    vectors = inside.vectors([(world, int(world.process.start.argmax())) for _, world in stimuli])
    named = {name: _places(hypothesis) for name, hypothesis in trial.bank.items()}
    above = dict[str, float]()
    for text, place in {text: hypothesis for places in named.values() for text, hypothesis in places.items()}.items():
        cells = np.full(len(stimuli), -1)
        for number, (_, world) in enumerate(stimuli):
            try:
                cells[number] = np.array(place.cell(world)) @ [world.grid.width, 1]
            except Undefined:
                continue
        is_known = cells >= 0
        if len({*cells[is_known].tolist()}) > 1 and len({*clusters[is_known].tolist()}) >= FEWEST:
            right = {
                network: _cross_read(of[is_known], cells[is_known, None], clusters[is_known]) == cells[is_known, None]
                for network, of in vectors.items()
            }
            above[text] = _above(right, clusters[is_known], trial.level)
    attributions = [
        name
        for name, places in named.items()
        if (differ := places.keys() & above.keys()) and all(above[text] > 0 for text in differ)
    ]
    return claimed("decoded map", attributions, trial, f"the cells of {' or '.join(attributions)} are read", above)


def _places(hypothesis: Hypothesis) -> dict[str, Hypothesis]:
    """Map the written form of each place in a hypothesis to the place."""
    inner = [
        part
        for part_or_parts in hypothesis.parts
        for part in (part_or_parts if isinstance(part_or_parts, tuple) else (part_or_parts,))
    ]
    places = {text: place for part in inner if isinstance(part, Hypothesis) for text, place in _places(part).items()}
    return places or ({hypothesis.text: hypothesis} if hypothesis.kind == "place" else {})


@attribution("decoded plan", asks="inside")
def by_plan(trial: Trial) -> Attribution:
    """Name the hypotheses that fit the decoded moves, if a probe decodes these better than from random networks."""
    inside = trial.opened
    if any((answers.first.max(axis=1) < 1).any() for answers in trial.answers):
        raise Undefined("decoding needs sampled moves, but this agent returns the probabilities of all moves")
    places = [(answers.world, state) for answers in trial.answers for state in answers.state.tolist()]
    clusters = np.array([answers.cluster for answers in trial.answers for _ in answers.state])
    if len({*clusters.tolist()}) < FEWEST:
        raise Undefined(f"decoding needs steps in at least {FEWEST} worlds")
    later = np.concatenate([_later(answers) for answers in trial.answers])
    read = {network: _cross_read(of, later, clusters) for network, of in inside.vectors(places).items()}
    low = _above({network: moves == later for network, moves in read.items()}, clusters, trial.level)
    if low <= 0:
        return claimed("decoded plan", (), trial, "", {})
    follows = np.concatenate(
        [_follows(trial.bank, answers, moves) for answers, moves in _by_world(trial, read[next(iter(read))])], axis=1
    )  # [K, N, AHEAD]
    shares, mean = list[Array](), (follows == 1).sum(axis=(1, 2)) / np.maximum((follows >= 0).sum(axis=(1, 2)), 1)
    targets = [(cluster, follows[:, clusters == cluster]) for cluster in dict.fromkeys(clusters.tolist())]
    for _, cluster_follows in targets:
        number = (cluster_follows >= 0).sum(axis=(1, 2))
        shares.append(np.where(number > 0, (cluster_follows == 1).sum(axis=(1, 2)) / np.maximum(number, 1), mean))
    named = chosen_of(np.array(shares), targets, trial)
    return claimed(
        "decoded plan",
        named,
        trial,
        f"the decoded moves follow {' or '.join(named)}",
        dict(zip(trial.bank, mean.tolist(), strict=True)),
    )


def _by_world(trial: Trial, moves: Numbers) -> Any:
    ends = np.cumsum([len(answers.state) for answers in trial.answers])[:-1]
    return zip(trial.answers, np.split(moves, ends), strict=True)


def _later(answers: Answers) -> Numbers:
    """Return the `AHEAD` moves that follow the move of each of N steps; the number of actions stands for the end."""
    actions = answers.world.process.actions
    moves = np.full((len(answers.state), AHEAD), actions)
    chosen_moves = answers.first.argmax(axis=1)
    for ahead in range(AHEAD):
        rows = np.flatnonzero(answers.episode[: -ahead - 1] == answers.episode[ahead + 1 :])
        moves[rows, ahead] = chosen_moves[rows + ahead + 1]
    return moves


def _follows(bank: Mapping[str, Hypothesis], answers: Answers, moves: Numbers) -> Numbers:
    """Return ``[K, N, AHEAD]`` whether each hypothesis prefers the decoded move where it is carried out.

    The value is -1 if the hypothesis prefers no move there or the episode is over.
    """
    follows_bank = np.full((len(bank), *moves.shape), -1)
    follow, actions = answers.world.process.transitions, answers.world.process.actions
    for number, hypothesis in enumerate(bank.values()):
        try:
            policy = hypothesis.solved(answers.world).policy[0]
        except Undefined:
            continue
        best = policy >= policy.max(axis=1, keepdims=True) - 1e-12
        speaks = ~best.all(axis=1) & answers.world.live
        state, going = follow[answers.state, answers.first.argmax(axis=1)], np.ones(len(answers.state), dtype=bool)
        for ahead in range(moves.shape[1]):
            going &= moves[:, ahead] < actions
            move = np.where(going, moves[:, ahead], 0)
            follows_bank[number, :, ahead] = np.where(going & speaks[state], best[state, move], -1)
            state = np.where(going, follow[state, move], state)
    return follows_bank


def _above(right: Mapping[str, Mask], clusters: Array, level: float) -> float:
    """Return the smallest lower end of how much more accurate the first network is than each other one."""
    first_network, *other_networks = (readings.mean(axis=1) for readings in right.values())
    of = [clusters == cluster for cluster in dict.fromkeys(clusters.tolist())]
    return min(
        lower_end(np.array([(first_network - other)[rows].mean() for rows in of]), level) for other in other_networks
    )


def _cross_read(vectors: Array, labels: Numbers, clusters: Array) -> Numbers:
    """Return the most likely values of C labels in N steps, ``[N, C]``, by a linear map fitted in other worlds."""
    predicted = np.empty_like(labels)
    fold = np.unique(clusters, return_inverse=True)[1] % FOLDS
    for tested in range(FOLDS):
        parts = [~np.isin(fold, (tested, (tested + 1) % FOLDS)), fold == (tested + 1) % FOLDS, fold == tested]
        for column in range(labels.shape[1]):
            predicted[parts[2], column] = likeliest(
                vectors, labels[:, column], *(np.flatnonzero(part) for part in parts)
            )
    return predicted


def likeliest(vectors: Any, labels: Numbers, fitted: Numbers, held: Numbers, tested: Numbers) -> Numbers:
    """Predict the most likely labels ``[M]`` of the test rows with a linear map to label indicators.

    Args:
        vectors: ``[N, D]`` activations.
        labels: ``[N]`` labels to read.
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
