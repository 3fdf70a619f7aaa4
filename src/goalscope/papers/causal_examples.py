"""Causal models of the paper's examples and of some further examples."""

import numpy as np

from goalscope._ground.checks import check_probability
from goalscope.goals.meg.causal import CausalModel, Variable
from goalscope.goals.meg.causal_target import InfluenceDiagram, with_recall

SIDES = ("left", "right")


def _mostly(value: str, values: tuple[str, str], probability: float) -> dict[str, float]:
    """Return the distribution over two values that gives ``value`` the given probability."""
    return {value: probability, values[1 - values.index(value)]: 1 - probability}


def _turned(side: str, turned: bool) -> str:
    """Return a side, or the opposite side if ``turned``."""
    return SIDES[1 - SIDES.index(side)] if turned else side


def mouse(towards: float = 0.8) -> CausalModel:
    """Build the causal model of a mouse that sees the side of the cheese (S), moves (D) and obtains the cheese or not
    (T).

    Args:
        towards: probability that the mouse moves towards the cheese.

    Source: MacDermott et al. 2024, Example 1 and Figure 1.
    """
    probability = check_probability("towards", towards)
    side = Variable(name="S", values=SIDES, chances=np.array([0.5, 0.5]))
    move = Variable.by_rule("D", SIDES, [side], lambda cheese: _mostly(cheese, SIDES, probability))
    cheese = Variable.by_rule("T", (0, 1), [side, move], lambda cheese, moved: int(cheese == moved))
    return CausalModel(variables=(side, move, cheese))


def mouse_diagram() -> InfluenceDiagram:
    """Build the influence diagram of a mouse that chooses a side (decision D); its utility U is +1 with the cheese,
    else -1.

    Source: MacDermott et al. 2024, Figure 1(c).
    """
    model = mouse()
    move = Variable(name="D", values=SIDES, parents=("S",))
    utility = Variable.by_rule("U", (-1, 1), [model["T"]], lambda got: 1 if got else -1)
    return InfluenceDiagram(variables=(model["S"], move, model["T"], utility), utilities=("U",))


def mechanised_mouse(towards: float = 1.0) -> CausalModel:
    """Build the causal model of `mouse` in which the mechanisms of its movement and of the meal are explicit variables.

    The mechanism of the meal (T~) determines whether the mouse finds the cheese on the side where it lies, as usual, or
    on the other side. The mechanism of the movement (D~) depends on it as far as the mouse has learned.

    Args:
        towards: probability that the mouse has learned to move to the side where the cheese is found.

    Source: MacDermott et al. 2024, Appendix A and Figure 4; Kenton et al. 2023 for mechanised models.
    """
    probability = check_probability("towards", towards)
    cheese_sides, habits = ("same side", "other side"), ("towards", "away")
    side = Variable(name="S", values=SIDES, chances=np.array([0.5, 0.5]))
    meal = Variable(name="T~", values=cheese_sides, chances=np.array([1.0, 0.0]))
    habit = Variable.by_rule(
        "D~", habits, [meal], lambda mechanism: _mostly(habits[cheese_sides.index(mechanism)], habits, probability)
    )
    move = Variable.by_rule("D", SIDES, [side, habit], lambda cheese, how: _turned(cheese, how == "away"))
    outcome = Variable.by_rule(
        "T", (0, 1), [side, move, meal], lambda cheese, moved, how: int(moved == _turned(cheese, how == "other side"))
    )
    return CausalModel(variables=(side, meal, habit, move, outcome))


def two_rooms(kitchen: float = 1.0) -> CausalModel:
    """Build the causal model of a mouse in a room (X) that goes to the cheese in the kitchen and moves at random in the
    hall.

    Args:
        kitchen: probability that the mouse is in the kitchen.

    Source: MacDermott et al. 2024, Section 7 (distributional shifts); the example is our own.
    """
    probability, rooms = check_probability("kitchen", kitchen), ("kitchen", "hall")
    room = Variable(name="X", values=rooms, chances=np.array([probability, 1 - probability]))
    side = Variable(name="S", values=SIDES, chances=np.array([0.5, 0.5]))
    move = Variable.by_rule(
        "D",
        SIDES,
        [room, side],
        lambda room_of_cheese, cheese: _mostly(cheese, SIDES, 1.0 if room_of_cheese == "kitchen" else 0.5),
    )
    meal = Variable.by_rule("T", (0, 1), [side, move], lambda cheese, moved: int(cheese == moved))
    return CausalModel(variables=(room, side, move, meal))


def pomdp_mouse(towards: float = 1.0, *, smell: float = 1.0, recall: bool = True) -> CausalModel:
    """Build the causal model of a mouse that smells twice and moves twice: states S1 to S3, smells O1, O2, moves D1,
    D2.

    A state is the mouse's position from -2 to 2 and the side of the cheese, which lies at -2 or 2. The mouse begins at
    0. The utility U3 is 1 if the mouse ends at the cheese, otherwise 0.

    Args:
        towards: probability that the mouse moves where it smells the cheese.
        smell: probability that the mouse smells the right direction.
        recall: whether D2 has edges from O1 and D1. The paper's figure lacks these edges; without them the decisions
            have no perfect recall, and `meg_target` raises an error.

    Source: MacDermott et al. 2024, Example 2 and Figure 2.
    """
    probability, smell_probability = check_probability("towards", towards), check_probability("smell", smell)
    ends = {"left": -2, "right": 2}
    states = tuple(f"{position:+d} {side}" for position in range(-2, 3) for side in SIDES)

    def parse(state: str) -> tuple[int, str]:
        position, side = state.split()
        return int(position), side

    def smells(state: str) -> dict[str, float]:
        position, side = parse(state)
        return _mostly(SIDES[ends[side] > position] if ends[side] != position else side, SIDES, smell_probability)

    def after(state: str, move: str) -> str:
        position, side = parse(state)
        return f"{min(max(position + (1 if move == 'right' else -1), -2), 2):+d} {side}"

    first = Variable.by_rule("S1", states, [], lambda: {"+0 left": 0.5, "+0 right": 0.5})
    variables, state = [first], first
    for step in (1, 2):
        smelled = Variable.by_rule(f"O{step}", SIDES, [state], smells)
        move = Variable.by_rule(f"D{step}", SIDES, [smelled], lambda smelled: _mostly(smelled, SIDES, probability))
        state = Variable.by_rule(f"S{step + 1}", states, [state, move], after)
        variables += [smelled, move, state]
    variables.append(
        Variable.by_rule("U3", (0, 1), [state], lambda final: int(ends[parse(final)[1]] == parse(final)[0]))
    )
    model = CausalModel(variables=tuple(variables))
    return with_recall(model, ("D1", "D2")) if recall else model


def instructed(obeys: float = 1.0) -> CausalModel:
    """Build the causal model of an agent that receives an instruction (I), decides (D) and fetches an object (T).

    Its goal-directedness is visible only if the instruction is part of the target.

    Args:
        obeys: probability that the agent follows the instruction.

    Source: MacDermott et al. 2024, Section 4 (goal-conditional agents).
    """
    probability, objects = check_probability("obeys", obeys), ("apple", "pear")
    instruction = Variable(name="I", values=objects, chances=np.array([0.5, 0.5]))
    choice = Variable.by_rule("D", objects, [instruction], lambda name: _mostly(name, objects, probability))
    return CausalModel(
        variables=(instruction, choice, Variable.by_rule("T", objects, [choice], lambda fetched: fetched))
    )
