"""Written reasoning: the cell that a text names as its target, and the cell to which its plan of moves leads.

The *named* cell is the first ``(row, column)`` after a word such as "to" or "goal" or, without one, the first that is
not the agent's own cell. The *plan* is the longest list of moves, carried out in the world. What an agent writes need
not be what it does: a hypothesis is named by the cells to which plans lead, if texts contain plans and the move taken
is the plan's first one in most of the steps. If named cells and plans support different hypotheses, the result says so.

Hypotheses are compared by the share of steps in which the cell is theirs, averaged over clusters of worlds. Source:
Lanham et al. (2023), Measuring faithfulness in chain-of-thought reasoning (text and action must be distinguished).
"""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from goalscope.goals.attribution.definition import Attribution, MixturePart, Said, Trial, attribution, lower_end
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Numbers, Undefined
from goalscope.goals.hypotheses.rules import holding
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers
from goalscope.inside.probing.plan_scores import named_plans

HALF: Final = 0.5
"""Share of the steps in which a target must be a hypothesis's own for it to be named."""

_CELL: Final = r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"
_TARGET: Final = re.compile(rf"\b(?:to|towards?|goal|target|reach|aim\w*|destination)\b[^()]{{0,24}}{_CELL}", re.I)
_ANY: Final = re.compile(_CELL)


@attribution("written reasoning")
def by_reasoning(trial: Trial) -> Attribution:
    """Name the hypothesis whose place the written plans lead to or the texts name."""
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
    """Return ``[G, K]`` per cluster and hypothesis, the share of steps whose cell is the target of the hypothesis."""
    return np.array([np.mean(rows, axis=0) for rows in shares_by_cluster.values()])


def chosen_of(shares: Array, targets: list[tuple[str, Array]], trial: Trial) -> tuple[str, ...]:
    """Return the hypothesis with the largest share, and those with the same target or no significant difference."""
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
