"""Attribution methods that look inside an agent: at its reasoning, at the effect of patches, and at its activations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.attribution.definition import Attribution, MixturePart, Said, Trial, attribution, lower_end
from goalscope.goals.counterfactual.worlds import elsewhere
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Mask, Numbers, Undefined, finite_world
from goalscope.goals.hypotheses.rules import holding
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers
from goalscope.inside.probing.plans import named_plans
from goalscope.inside.probing.ridge import PENALTIES, RidgePath
from goalscope.worlds.gridworld import GridWorld

HALF: Final = 0.5
"""Share of the steps in which a target must be a hypothesis's own for it to be named."""

_CELL: Final = r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"
_TARGET: Final = re.compile(rf"\b(?:to|towards?|goal|target|reach|aim\w*|destination)\b[^()]{{0,24}}{_CELL}", re.I)
_ANY: Final = re.compile(_CELL)


@attribution("written reasoning")
def by_reasoning(trial: Trial) -> Attribution:
    """Attribution method: name the hypotheses (possible goals) that an agent's written reasoning supports.

    A text supports a hypothesis by the cell that it *names*: the first ``(row, column)`` after a word such as "to" or
    "goal" or, without one, the first that is not the agent's own cell. It also supports one by its *plan*, the longest
    list of moves, through the cell to which these moves lead. Plans decide if texts contain them and the agent's move
    is the first one of the plan in most of the steps, since what an agent writes need not be what it does; else named
    cells decide. If both support different hypotheses, the result says so. Hypotheses are compared by the share of
    steps in which the cell is their target, averaged over clusters (groups of related worlds). The result may be
    undecided.

    Args:
        trial: the agent's episodes with its texts, and the hypotheses to compare.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.

    Raises:
        Undefined: if the agent writes no reasoning, or its texts name cells or plans in too few worlds.

    Source: Lanham et al. (2023), Measuring faithfulness in chain-of-thought reasoning (text and action must be
    distinguished).
    """
    if all(answers.written is None for answers in trial.answers):
        raise Undefined("it needs written reasoning, but this agent writes none")
    named, planned, followed = dict[str, list[Array]](), dict[str, list[Array]](), dict[str, list[float]]()
    targets = list[tuple[str, Array]]()
    for answers in trial.answers:
        target_cells = np.array([_target(hypothesis, answers.world) for hypothesis in trial.bank.values()])[
            :, answers.state
        ]
        says, leads, does = _read(answers)
        targets.append((answers.cluster, target_cells))
        for shares_by_cluster, cells in ((named, says), (planned, leads)):
            if (is_known := cells >= 0).any():
                shares_by_cluster.setdefault(answers.cluster, []).append(
                    (target_cells == cells)[:, is_known].mean(axis=1)
                )
        if len(does):
            followed.setdefault(answers.cluster, []).append(float(does.mean()))
    sources = {
        source: shares_of(shares_by_cluster)
        for source, shares_by_cluster in (("named", named), ("planned", planned))
        if len(shares_by_cluster) >= FEWEST
    }
    if not sources:
        raise Undefined(f"the method needs texts with a cell or a plan in at least {FEWEST} worlds, got {len(named)}")
    follows = float(np.mean([np.mean(shares) for shares in followed.values()])) if followed else 0.0
    chosen = {source: chosen_of(shares_by_cluster, targets, trial) for source, shares_by_cluster in sources.items()}
    acts = "planned" in sources and follows >= HALF
    names = chosen["planned"] if acts else chosen["named"] if "planned" not in sources else ()
    kind: Said = "undecided" if not names else "named" if len(names) == 1 else "set"
    words = [f"texts name {_or(chosen['named'])}"] if "named" in chosen else []
    if "planned" in chosen:
        words.append(
            f"plans lead to {_or(chosen['planned'])}, and their first move is taken in {follows:.2f} of the steps"
        )
    shares = dict(
        zip(trial.bank, sources["planned" if "planned" in sources else "named"].mean(axis=0).tolist(), strict=True)
    )
    return Attribution(
        method="written reasoning",
        kind=kind,
        names=names,
        sentence="; ".join(words),
        weights=shares,
        predicts=tuple(
            MixturePart(hypothesis=trial.bank[name].text, weight=1 / len(names), strength=shares[name])
            for name in names
        ),
        details={
            "first move taken": follows,
            **{source: list(shares_by_cluster) for source, shares_by_cluster in chosen.items()},
        },
    )


def _read(answers: Answers) -> tuple[Numbers, Numbers, Array]:
    """Return ``[N]`` the cells named in texts, the cells plans lead to, and whether the first planned move is taken.

    The cell is -1 if there is none.
    """
    texts, width = answers.written or ("",) * len(answers.state), answers.world.grid.width
    size = answers.world.grid.walls.size
    says, leads = np.full(len(texts), -1), np.full(len(texts), -1)
    plans, does = named_plans(texts, answers.world.horizon), list[float]()
    for number, (text, state) in enumerate(zip(texts, answers.state.tolist(), strict=True)):
        own = np.unravel_index(state % size, answers.world.grid.walls.shape)
        cells = [(int(row), int(col)) for row, col in _TARGET.findall(text)] or [
            cell for row, col in _ANY.findall(text) if (cell := (int(row), int(col))) != own
        ]
        if cells and cells[0][1] < width and cells[0][0] < answers.world.grid.height:
            says[number] = cells[0][0] * width + cells[0][1]
        moves = [move for move in plans[number].tolist() if move < answers.world.process.actions]
        if moves:
            for move in moves:
                state = int(answers.world.process.transitions[state, move])
            leads[number] = state % size
            does.append(float(answers.first[number, moves[0]]))
    return says, leads, np.array(does)


def _target(hypothesis: Hypothesis, world: FiniteWorld) -> Numbers:
    """Return the target cell of a hypothesis in each of S states ``[S]``, -2 where it has no target."""
    nowhere = np.full(world.process.states, -2)
    try:
        if hypothesis.kind == "place":
            row, col = hypothesis.cell(world)
            return np.full(world.process.states, row * world.grid.width + col)
        conditions = [part for part in hypothesis.parts if isinstance(part, Hypothesis)]
        if hypothesis.kind == "table" and hypothesis.form.startswith("{hypothesis} if "):
            first, condition, *otherwise = conditions
            rest = _target(otherwise[0], world) if otherwise else nowhere
            return np.where(holding(world, first, condition), _target(first, world), rest)
        if hypothesis.kind == "table" and hypothesis.form.startswith("{hypothesis} within "):
            return _target(conditions[0], world)
    except Undefined:
        pass
    return nowhere


def shares_of(shares_by_cluster: Mapping[str, list[Array]]) -> Array:
    """Average, in each cluster of related worlds, the shares of steps whose cell is the target of each hypothesis.

    ``shares_by_cluster`` maps a cluster to one array ``[K]`` per world, one share per hypothesis (possible goal). The
    result is ``[G, K]``: clusters by hypotheses.
    """
    return np.array([np.mean(rows, axis=0) for rows in shares_by_cluster.values()])


def chosen_of(shares: Array, targets: list[tuple[str, Array]], trial: Trial) -> tuple[str, ...]:
    """Name the hypothesis (possible goal) that the largest share of steps supports, and those that cannot be told from
    it.

    Args:
        shares: ``[G, K]`` share of steps that support each hypothesis, clusters of related worlds by hypotheses.
        targets: for each world its cluster and an array ``[K, ...]`` of target cells. A hypothesis whose targets differ
            from the best one's in too few clusters cannot be told from it.
        trial: the hypotheses, and the confidence level of the intervals.

    Returns:
        The names of the best hypothesis and of all that are not significantly behind it; empty if the best share is not
        significantly above one half.
    """
    value, best = shares.mean(axis=0), int(shares.mean(axis=0).argmax())
    if lower_end(shares[:, best], trial.level) <= HALF:
        return ()
    names = []
    for number, name in enumerate(trial.bank):
        clusters_apart = {cluster for cluster, cells in targets if (cells[best] != cells[number]).any()}
        behind = lower_end(shares[:, best] - shares[:, number], trial.level) > 0
        if number == best or (value[number] > 0 and (len(clusters_apart) < FEWEST or not behind)):
            names.append(name)
    return tuple(names)


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names) or "no one hypothesis"


THINGS: Final = ("goal", "key", "agent")
CHANGES: Final = 6
"""Versions of a world for each thing."""
LEAST: Final = 0.1
"""Change of the probability of moves that counts as a turn."""
NULL: Final = 0.05
"""The same in null pairs, where a turn speaks against a claim."""
OFTEN: Final = 0.2
"""Share of the pairs of a thing that must be own ones for it to matter to a hypothesis."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedPair:
    """A world, and a copy of it with one thing moved, to see how an agent's activations change between them.

    Attributes:
        cluster: id of the group of related worlds; intervals count both worlds as one unit.
        own: the original world.
        other: the copy.
        thing: what was moved, "goal", "key" or "agent".
    """

    cluster: str
    thing: str
    own: FiniteWorld
    other: FiniteWorld


def moved_pairs(trial: Trial, things: Sequence[str]) -> list[MovedPair]:
    """Draw pairs of a world and a copy in which one thing lies elsewhere, up to `CHANGES` copies per world and thing.

    Worlds that are not grids, or that hide the agent, are skipped.

    Args:
        trial: the agent's answers in some worlds; ``trial.seed`` seeds the draw.
        things: what to move: "goal", "key" or "agent".

    Raises:
        Undefined: if nothing can be moved in any world.
    """
    pairs = list[MovedPair]()
    for answers in trial.answers:
        world = answers.world.world
        if not isinstance(world, GridWorld) or world.grid.start is None:
            continue
        for thing in things:
            all_moves = list(elsewhere(world.grid, thing))
            drawn = stream(trial.seed, "put in", world.id, thing).permutation(len(all_moves))[:CHANGES]
            for grid in (all_moves[index] for index in drawn.tolist()):
                other = finite_world(GridWorld(grid=grid, cluster=answers.cluster), answers.world.horizon)
                pairs.append(MovedPair(cluster=answers.cluster, thing=thing, own=answers.world, other=other))
    if not pairs:
        raise Undefined("it needs whole grids in which a thing can be moved")
    return pairs


@attribution("patching", asks="inside")
def by_patching(trial: Trial) -> Attribution:
    """Attribution method: name the hypotheses (possible goals) whose moves the agent takes after activation patching.

    In the first state of each world, the goal, the key or the agent is moved, in `CHANGES` versions each. Activations
    from the changed grid replace those in the forward pass of the original one. If the agent pursues a hypothesis, its
    moves should turn to those that the hypothesis prefers in the changed grid. Let S_h(x) be the moves that hypothesis
    h prefers in grid x, and p the probabilities of moves with and without the patch. Then

        turn(h) = mean over pairs (x, y) of  p(S_h(y) | x with y put in) - p(S_h(y) | x),   S_h(x) and S_h(y) disjoint

    over the pairs of an original x and a changed grid y in which h prefers disjoint moves, its *own pairs*. Pairs with
    S_h(x) = S_h(y) are its *null pairs*. We compute turn(h) with its interval for each moved thing (the goal, the key
    or the agent), but only for things of whose pairs at least the share `OFTEN` are own pairs of h. A hypothesis is a
    candidate if

    * for each of these things, the upper end of the interval of turn(h) lies above `LEAST`;
    * in its null pairs, the moves do not turn significantly more than `NULL` to moves that only a rival prefers.

    We name each candidate for which the lower end of turn(h) lies above `LEAST` for at least one thing, unless a rival
    turns the moves significantly more (over pairs that are own pairs of both and in which both prefer different moves).
    Any other candidate is named too if the moves do not turn significantly less to it than to one of these.

    Intervals are Student's t over at least `FEWEST` clusters. Only later parts of the network see the patch, so it
    turns the moves less than moving the object itself would.

    Source: Geiger et al. (2021), Causal abstractions of neural networks (interchange interventions).
    """
    inside, pairs = trial.opened, moved_pairs(trial, THINGS)
    chances = inside.put_in([(pair.own, pair.other) for pair in pairs])
    change = chances[:, 0] - chances[:, 1]
    cached: dict[int, Mask] = {}
    preferred = [[_preferred(trial.bank, world, cached) for world in (pair.own, pair.other)] for pair in pairs]
    before, after = np.swapaxes(np.array(preferred), 0, 1)  # [N, K, A] each
    speaks = before.any(axis=2) & after.any(axis=2)
    decisive = speaks & ~(before & after).any(axis=2)
    null = speaks & (before == after).all(axis=2)
    turns = (change[:, None] * after).sum(axis=2)  # [N, K]
    clusters, names = np.array([pair.cluster for pair in pairs]), list(trial.bank)
    of_things = [np.array([pair.thing == thing for pair in pairs]) for thing in THINGS]

    def low(values: Array, chosen: Mask) -> float | None:
        """Return the lower end of the interval of a mean over clusters, or None with too few clusters."""
        means = [values[chosen & (clusters == cluster)].mean() for cluster in dict.fromkeys(clusters[chosen].tolist())]
        return lower_end(np.array(means), trial.level) if len(means) >= FEWEST else None

    def ends(k: int) -> tuple[list[float], list[float]]:
        """Return the lower and upper ends of the intervals of the turn over own pairs, per moved thing."""
        pairs_of = [decisive[:, k] & of for of in of_things if (decisive[:, k] & of).sum() >= OFTEN * of.sum()]
        lows = [end for of in pairs_of if (end := low(turns[:, k], of)) is not None]
        return lows, [-end for of in pairs_of if (end := low(-turns[:, k], of)) is not None]

    def free(index: int) -> bool:
        other_turns = (change[:, None] * (after & ~after[:, index, None])).sum(axis=2)
        rivals = (
            low(other_turns[:, k], decisive[:, k] & null[:, index] & of) for k in range(len(names)) for of in of_things
        )
        return all(end is None or end <= NULL for end in rivals)

    def ahead(k: int, of: int) -> bool:
        differ = decisive[:, k] & decisive[:, of] & (after[:, k] != after[:, of]).any(axis=1)
        end = low(turns[:, k] - turns[:, of], differ)
        return end is not None and end > 0

    spread = [ends(k) for k in range(len(names))]
    candidates = [k for k, (lows, highs) in enumerate(spread) if lows and min(highs) > LEAST and free(k)]
    first = [
        k for k in candidates if max(spread[k][0]) > LEAST and not any(ahead(other, k) for other in range(len(names)))
    ]
    named = [names[k] for k in candidates if k in first or any(not ahead(best, k) for best in first)]
    weights = {name: float(turns[decisive[:, k], k].mean()) for k, name in enumerate(names) if decisive[:, k].any()}
    return claimed("patching", named, trial, f"its activations turn the moves as {' or '.join(named)} says", weights)


def _preferred(bank: Mapping[str, Hypothesis], world: FiniteWorld, cached: dict[int, Mask]) -> Mask:
    """Return which of A moves each of K hypotheses prefers in the first state ``[K, A]``.

    None if all are equally good.
    """
    if id(world) not in cached:
        start, rows = int(world.process.start.argmax()), list[Array]()
        for hypothesis in bank.values():
            try:
                policy = hypothesis.solved(world).policy[0, start]
            except Undefined:
                policy = world.even[start]
            best = policy >= policy.max() - 1e-12
            rows.append(best & ~best.all())
        cached[id(world)] = np.array(rows)
    return cached[id(world)]


def claimed(method: str, names: Sequence[str], trial: Trial, words: str, weights: Mapping[str, float]) -> Attribution:
    """Build the result of an attribution method that looks inside an agent, from the hypotheses that it names.

    Args:
        method: name of the method.
        names: the named hypotheses (possible goals); with none, the result is "undecided".
        trial: the agent's answers and the evidence from its behaviour, from which the strength of each hypothesis is
            taken.
        words: sentence that states the result; used if there are names.
        weights: the method's score of each hypothesis.
    """
    kind: Said = "undecided" if not names else "named" if len(names) == 1 else "set"
    gain, size = trial.evidence.gain.sum(axis=0), trial.evidence.size.sum(axis=0)
    parts = []
    for name in names:
        at = trial.evidence.names.index(name)
        strength = float(gain[at] / size[at]) if size[at] > 0 else 1.0
        parts.append(MixturePart(hypothesis=trial.bank[name].text, weight=1 / len(names), strength=strength))
    verdict = words if names else f"{method} shows nothing"
    return Attribution(
        method=method, kind=kind, names=tuple(names), sentence=verdict, weights=weights, predicts=tuple(parts)
    )


FOLDS: Final = 5
AHEAD: Final = 3
"""Decoded moves behind the next one."""
_PENALTIES: Final = PENALTIES[::3]


@attribution("decoded map", asks="inside")
def by_map(trial: Trial) -> Attribution:
    """Attribution method: name hypotheses (possible goals) whose cells a probe reads better from the agent than from
    random networks.

    A linear map reads the cell of each place that a hypothesis mentions from the activations at the end of the prompt,
    in the original worlds and with goal or key moved. It is fitted and tested in different worlds. The same is done
    with random networks, which pass on what the prompt contains: a place that is no more readable in the agent than in
    each of them (lower end of the difference above 0, Student's t over clusters) is not the agent's own work. A
    hypothesis is claimed if all of its places that differ between worlds can be read; no reading tells whether the
    agent approaches or avoids a place.

    Source: Hewitt and Liang (2019), Designing and interpreting probes with control tasks.
    """
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
    """Attribution method: name the hypotheses (possible goals) that prefer the later moves that a probe decodes from
    the agent.

    As in `by_map`, no hypothesis is named unless the probe decodes more from the agent than from random networks. It
    decodes the moves after the next one, up to `AHEAD`, or that the episode is over. These moves are carried out after
    the move that was taken, and each hypothesis is scored by the share of them that it prefers.

    Raises:
        Undefined: if the agent returns probabilities instead of sampled moves, or there are too few worlds.
    """
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
    """Predict labels from activations with a ridge regression on label indicators.

    Args:
        vectors: ``[N, D]`` activations: rows by width.
        labels: ``[N]`` integer labels.
        fitted, held, tested: indices of the rows that fit the regression, choose its penalty, and are predicted.

    Returns:
        ``[M]`` the most likely label of each of the M tested rows.
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
