"""Written reasoning: the cell that a text names as its target, and the cell that its plan of moves leads to.

*Named* is the first cell ``(row, column)`` behind a word such as "to" or "goal", without one the first that is not the
agent's own; the *plan* is the longest list of moves, carried out in the world. What an agent writes need not be what it
does: a hypothesis is named by the cells that plans lead to, where texts hold plans, and where the move that is taken is
the plan's first one in most of the steps. Where cells that are named and cells that plans lead to speak for different
hypotheses, that is said in words.

Hypotheses are compared by the share of steps in which the cell is theirs, means over clusters of worlds. Source: Lanham
et al. (2023), Measuring faithfulness in chain-of-thought reasoning (text and action must be held apart).
"""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from goalscope.goals.attribution.by_arrival import lower_end
from goalscope.goals.attribution.definition import Attribution, PredictedPart, Said, Trial, attribution
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Numbers
from goalscope.goals.hypotheses.rules import holding
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.views import Undefined
from goalscope.inside.probing.plan_scores import named_plans

HALF: Final = 0.5
"""Share of the steps in which a target must be a hypothesis's own for it to be named."""

_CELL: Final = r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"
_TARGET: Final = re.compile(rf"\b(?:to|towards?|goal|target|reach|aim\w*|destination)\b[^()]{{0,24}}{_CELL}", re.I)
_ANY: Final = re.compile(_CELL)


@attribution("written reasoning")
def by_reasoning(trial: Trial) -> Attribution:
    """Return the hypothesis whose place the written plans lead to, or the texts name."""
    if all(one.written is None for one in trial.answers):
        raise Undefined("it needs written reasoning, this agent writes none")
    named, planned, followed = dict[str, list[Array]](), dict[str, list[Array]](), dict[str, list[float]]()
    targets = list[tuple[str, Array]]()
    for one in trial.answers:
        own = np.array([_target(hypothesis, one.world) for hypothesis in trial.bank.values()])[:, one.state]
        says, leads, does = _read(one)
        targets.append((one.cluster, own))
        for found, cells in ((named, says), (planned, leads)):
            if (known := cells >= 0).any():
                found.setdefault(one.cluster, []).append((own == cells)[:, known].mean(axis=1))
        if len(does):
            followed.setdefault(one.cluster, []).append(float(does.mean()))
    both = {what: shares_of(found) for what, found in (("named", named), ("planned", planned)) if len(found) >= FEWEST}
    if not both:
        raise Undefined(f"it needs texts with a cell or a plan in at least {FEWEST} worlds, got {len(named)}")
    follows = float(np.mean([np.mean(each) for each in followed.values()])) if followed else 0.0
    chosen = {what: chosen_of(found, targets, trial) for what, found in both.items()}
    acts = "planned" in both and follows >= HALF
    names = chosen["planned"] if acts else chosen["named"] if "planned" not in both else ()
    kind: Said = "undecided" if not names else "named" if len(names) == 1 else "set"
    words = [f"texts name {_or(chosen['named'])}"] if "named" in chosen else []
    if "planned" in chosen:
        words.append(
            f"plans lead to {_or(chosen['planned'])}, and their first move is taken in {follows:.2f} of the steps"
        )
    shares = dict(zip(trial.bank, both["planned" if "planned" in both else "named"].mean(axis=0).tolist(), strict=True))
    return Attribution(
        method="written reasoning",
        kind=kind,
        names=names,
        sentence="; ".join(words),
        weights=shares,
        predicts=tuple(
            PredictedPart(hypothesis=trial.bank[name].text, weight=1 / len(names), strength=shares[name])
            for name in names
        ),
        details={"first move taken": follows, **{what: list(found) for what, found in chosen.items()}},
    )


def _read(one: Answers) -> tuple[Numbers, Numbers, Array]:
    """Return ``[N]`` cells that texts name, and that plans lead to, -1 for none; and which first moves are taken."""
    texts, width = one.written or ("",) * len(one.state), one.world.grid.width
    size = one.world.grid.walls.size
    says, leads = np.full(len(texts), -1), np.full(len(texts), -1)
    plans, does = named_plans(texts, one.world.horizon), list[float]()
    for number, (text, state) in enumerate(zip(texts, one.state.tolist(), strict=True)):
        own = np.unravel_index(state % size, one.world.grid.walls.shape)
        cells = [(int(row), int(col)) for row, col in _TARGET.findall(text)] or [
            cell for row, col in _ANY.findall(text) if (cell := (int(row), int(col))) != own
        ]
        if cells and cells[0][1] < width and cells[0][0] < one.world.grid.height:
            says[number] = cells[0][0] * width + cells[0][1]
        moves = [move for move in plans[number].tolist() if move < one.world.process.actions]
        if moves:
            for move in moves:
                state = int(one.world.process.transitions[state, move])
            leads[number] = state % size
            does.append(float(one.first[number, moves[0]]))
    return says, leads, np.array(does)


def _target(one: Hypothesis, world: FiniteWorld) -> Numbers:
    """Return ``[S]`` the cell that a hypothesis is after in each state, -2 where it is after none."""
    nowhere = np.full(world.process.states, -2)
    try:
        if one.kind == "place":
            row, col = one.cell(world)
            return np.full(world.process.states, row * world.grid.width + col)
        conditions = [part for part in one.parts if isinstance(part, Hypothesis)]
        if one.kind == "table" and one.form.startswith("{hypothesis} if "):
            first, condition, *otherwise = conditions
            rest = _target(otherwise[0], world) if otherwise else nowhere
            return np.where(holding(world, first, condition), _target(first, world), rest)
        if one.kind == "table" and one.form.startswith("{hypothesis} within "):
            return _target(conditions[0], world)
    except Undefined:
        pass
    return nowhere


def shares_of(found: Mapping[str, list[Array]]) -> Array:
    """Return ``[G, K]`` by cluster the share of steps in which the cell is that of each hypothesis."""
    return np.array([np.mean(rows, axis=0) for rows in found.values()])


def chosen_of(shares: Array, targets: list[tuple[str, Array]], trial: Trial) -> tuple[str, ...]:
    """Return the hypothesis with the largest share, with those of the same target and those not shown to be behind."""
    value, best = shares.mean(axis=0), int(shares.mean(axis=0).argmax())
    if lower_end(shares[:, best], trial.level) <= HALF:
        return ()
    names = []
    for number, name in enumerate(trial.bank):
        apart = {cluster for cluster, own in targets if (own[best] != own[number]).any()}
        behind = lower_end(shares[:, best] - shares[:, number], trial.level) > 0
        if number == best or (value[number] > 0 and (len(apart) < FEWEST or not behind)):
            names.append(name)
    return tuple(names)


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names) or "no one hypothesis"
