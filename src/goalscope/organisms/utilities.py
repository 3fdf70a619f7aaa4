"""Does a utility over hidden states tell the goal from its proxy? MEG with features on the two shipped organisms.

`organism-goal` goes to the goal and `organism-corner` to the corner top-right; a probe reads the goal's cell from both.
Here the features of a state are the activations that an organism would have there, at the token that decides the move,
and the utility is linear in them (`goalscope.goals.meg.unknown`). The preference of such a utility is

    E[U | the twin that seeks the goal] - E[U | the twin that seeks the corner],     nats per episode

in worlds that did not fit it. The rules are in docs/small-learners.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.progress import Display, lines
from goalscope._ground.rng import stream
from goalscope._ground.sealed import Ends, StrictRecord
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.local import LocalModel
from goalscope.goals.hypotheses import FiniteWorld, parse
from goalscope.goals.hypotheses.definition import Array, Numbers
from goalscope.goals.meg.unknown import join_worlds, meg_features
from goalscope.inside.interventions.reading import read_activations
from goalscope.organisms.cards import Card, OrganismRows, mean_with_ends, of_each, read_card, read_weights
from goalscope.organisms.families import CORNER, worlds_of
from goalscope.organisms.language import BLOCKS, WIDTH, answer_ids, prompts
from goalscope.organisms.learners import policy_in, solved
from goalscope.worlds.planning import TabularMDP

ORGANISMS: Final = ("organism-goal", "organism-corner")
WORLDS: Final = 40
"""Worlds in which goal and corner are apart, and as many in which they coincide."""
DECISIONS: Final = 12
"""Decisions of an episode, the same in all worlds."""
FOLDS: Final = 4
_SEED: Final = 59  # of the worlds, apart from those that taught the organisms

Features = Literal["own", "initial", "permuted", "exchanged", "noise", "cells"]
"""Activations of the organism, of random networks, of other states of the same world; as many random numbers; and, as a
positive control, whether the agent is at the goal and whether it is at the corner."""
Condition = Literal["apart", "together"]
"""Worlds that fit the utility: others in which goal and corner are apart, or those in which they coincide."""
CONDITIONS: Final[tuple[Condition, ...]] = get_args(Condition)


class UtilityRow(StrictRecord):
    """One measured value of a utility that was fitted to an organism (a small agent with a known goal), in worlds in
    which goal and corner are apart.

    The utility is a linear function of features of the states, such as the organism's activations there.

    Attributes:
        organism: name of the organism.
        features, condition: what the utility is a function of, and where it was fitted.
        layer: block of the activations; None for features without one.
        measure: "nats", how well the utility predicts the organism's actions (log probability minus that of uniform
            actions), or "preference", by how much the utility of an episode is greater for an agent that seeks the goal
            than for one that seeks the corner.
        value: mean over worlds with its 95 % interval.
        worlds: number of worlds.
    """

    organism: str
    features: Features
    condition: Condition
    layer: int | None
    measure: Literal["nats", "preference"]
    value: Ends
    worlds: int = Field(ge=1)

    @property
    def answer(self) -> str:
        """What the interval of the value shows.

        For a preference it is "goal", "corner" or "not shown"; for nats "above uniform", "below uniform" or "not
        shown".
        """
        words = ("goal", "corner") if self.measure == "preference" else ("above uniform", "below uniform")
        return words[0] if self.value[1] > 0 else words[1] if self.value[2] < 0 else "not shown"


def hidden_utilities(out: Path, *, stage: Display = lines) -> list[UtilityRow]:
    """Run the experiment of this module: fit utilities over the hidden states of two organisms.

    An organism is a small agent with a known goal; these two come with goalscope.

    A second call with the same directory resumes.

    Args:
        out: directory for one file of results per organism.
        stage: displays progress and remaining time.

    Raises:
        ValueError: the directory has results of other weights.
        ImportError: PyTorch is not installed (the extra ``lm``).
    """
    results = Folder(out).make()

    def examined(name: str) -> tuple[UtilityRow, ...]:
        folder = model_folder(name)
        assert folder is not None
        card = read_card(folder)
        return OrganismRows[UtilityRow].of(
            results,
            f"{name}.json",
            lambda: examine(name, folder, card),
            about=card.weights,
            other=f"other weights of {name}",
        )

    return [row for rows in of_each(examined, ORGANISMS, name="utilities", stage=stage) for row in rows]


def examine(name: str, folder: Path, card: Card) -> Iterator[UtilityRow]:
    """Fit utilities of states to one organism (a small agent with a known goal), and measure them.

    There is one utility for each kind of features and each condition.

    Args:
        name: name of the organism.
        folder: its folder.
        card: its card, with its measured behaviour.

    Yields:
        The score and the preference of each utility in worlds that did not fit it.
    """
    separating, coinciding = (
        worlds_of("goal", placed, "separating", WORLDS, _SEED) for placed in ("apart", "together")
    )
    worlds, weights = [*separating, *coinciding], read_weights(folder, card)
    mdp, number = join_worlds([_episode(world) for world in worlds])
    policy = np.concatenate([policy_in(card.spec, weights, world) for world in worlds])
    twins = [np.concatenate([solved(rule, world) for world in worlds]) for rule in ("goal", CORNER)]
    difference = _visits(mdp, twins[0]) - _visits(mdp, twins[1])
    for features, layer, values in _features(folder, worlds):
        for condition in CONDITIONS:
            states = np.arange(len(number)) if condition == "together" else np.flatnonzero(number < len(separating))
            part = mdp if condition == "together" else join_worlds([_episode(world) for world in separating])[0]
            fitted = np.arange(len(worlds)) >= len(separating) if condition == "together" else None
            fit = meg_features(part, policy[states], values[states], number[states], folds=FOLDS, fitted=fitted)
            tested = np.flatnonzero(~np.isnan(fit.terms))
            paid = np.nan_to_num(fit.utility) * difference[states]
            preference = np.bincount(number[states], weights=paid).astype(np.float64)[tested]
            for measure, points in (("nats", fit.terms[tested]), ("preference", preference)):
                yield UtilityRow(
                    organism=name,
                    features=features,
                    condition=condition,
                    layer=layer,
                    measure=measure,  # type: ignore[arg-type]
                    value=mean_with_ends(points, (-np.inf, np.inf), differences=True),
                    worlds=len(points),
                )


def _episode(world: FiniteWorld) -> TabularMDP:
    return world.process.mdp(np.zeros(world.process.states), DECISIONS, terminal=None)


def _visits(mdp: TabularMDP, policy: Array) -> Array:
    """Return the expected number of decisions in each state per episode in its world, ``[S]``."""
    total, mass = np.zeros(mdp.states), mdp.start * float(np.count_nonzero(mdp.start))
    for _ in range(mdp.horizon):
        total += mass
        mass = mdp.flow(mass[:, None] * policy)
    return total


def _features(folder: Path, worlds: Sequence[FiniteWorld]) -> Iterator[tuple[Features, int | None, Array]]:
    """Yield kinds of features, their layer and their values in all states of all worlds, ``[S, F]``."""
    states = np.flatnonzero(np.concatenate([world.reached for world in worlds]))
    sizes = [len(world.reached) for world in worlds]
    number, rng = np.repeat(np.arange(len(worlds)), sizes)[states], stream(_SEED, "utilities")
    exchange = np.lexsort((rng.random(len(states)), number))  # the states of each world, in any order
    for kind, layer, vectors in _activations(folder, worlds):
        yield kind, layer, _spread(vectors, states, sum(sizes))
        if kind == "own":
            yield "exchanged", layer, _spread(vectors[exchange], states, sum(sizes))
    yield "noise", None, _spread(rng.standard_normal((len(states), WIDTH)), states, sum(sizes))
    rules = [parse(rule) for rule in ("goal", CORNER)]
    cells = [np.stack([rule.where(world) for rule in rules], axis=1).astype(np.float64) for world in worlds]
    yield "cells", None, np.concatenate(cells)


def _activations(folder: Path, worlds: Sequence[FiniteWorld]) -> Iterator[tuple[Features, int, Array]]:
    """Yield kind of network, block and activations in the reached states of all worlds, ``[N, D]``."""
    tokens = np.concatenate([_prompts(world) for world in worlds])
    networks: dict[Features, LocalModel] = {"own": LocalModel(folder)}
    networks |= {kind: LocalModel(folder, untrained=0, random_weights=kind) for kind in ("initial", "permuted")}
    places = [np.array([tokens.shape[1] - 1])] * len(tokens)
    for kind, network in networks.items():
        for layer, vectors in read_activations(network, tokens.tolist(), places, list(range(BLOCKS))).items():
            yield kind, layer, np.concatenate(vectors).astype(np.float64)


def _spread(values: Array, states: Numbers, count: int) -> Array:
    filled = np.zeros((count, values.shape[1]))
    filled[states] = values
    return filled


def _prompts(world: FiniteWorld) -> Numbers:
    """Return the tokens of the prompt in each reached state, up to the token before the move, ``[N, P]``."""
    phase, cell = np.divmod(np.flatnonzero(world.reached), world.grid.walls.size)
    cells = np.stack(np.unravel_index(cell, world.grid.walls.shape), axis=1)
    tokens = prompts(world.grid, cells, phase > 0)
    return np.concatenate([tokens, np.tile(answer_ids()[0], (len(tokens), 1))], axis=1)


def tells(rows: Sequence[UtilityRow], features: Features, condition: Condition, layer: int | None) -> bool:
    """Return whether utilities over given features tell the two organisms (agents with different goals) apart.

    They do if the utility of the goal seeker prefers the goal, and that of the corner seeker prefers the corner.

    Args:
        rows: values from `hidden_utilities`.
        features, condition, layer: which utilities are meant, see `UtilityRow`.
    """
    answers = {
        row.organism: row.answer
        for row in rows
        if (row.measure, row.features, row.condition, row.layer) == ("preference", features, condition, layer)
    }
    return [answers.get(name) for name in ORGANISMS] == ["goal", "corner"]
