"""MEG in causal models: the paper's examples, its propositions on random models, and slow oracles."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_causal import marginal, random_chances, random_model, score
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp

from families import examples
from goalscope.meg import (
    CausalModel,
    InfluenceDiagram,
    Variable,
    meg_target,
    meg_utility,
    pseudo_terminal_goals,
    with_recall,
)
from goalscope.papers.causal_examples import instructed, mouse, mouse_diagram, pomdp_mouse

Array = npt.NDArray[np.float64]
LOG2 = float(np.log(2))
seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(["full", "fixed", "any"])


def with_policy(model: CausalModel, names: tuple[str, ...], rng: np.random.Generator, kind: str) -> CausalModel:
    """Return a model with perfect recall in which these variables follow random distributions."""
    recalled = with_recall(model, names)
    changed = []
    for name in names:
        old = recalled[name]
        chances = random_chances(rng, np.asarray(old.chances).shape, kind)
        changed.append(Variable(name=name, values=old.values, parents=old.parents, chances=chances))
    return recalled.replace(*changed)


def same_policy(model: CausalModel, names: tuple[str, ...]) -> CausalModel:
    """Return the model with uniform decisions."""
    return model.replace(
        *(
            Variable(
                name=name,
                values=model[name].values,
                parents=model[name].parents,
                chances=np.full_like(np.asarray(model[name].chances), 1 / len(model[name].values)),
            )
            for name in names
        )
    )


def random_case(seed: int, kind: str) -> tuple[CausalModel, tuple[str, ...], str]:
    """Return a model, one or two decisions and a target."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, count=5)
    places = sorted(rng.choice(4, size=rng.integers(1, 3), replace=False))
    decisions = tuple(model.names[place] for place in places)
    return with_policy(model, decisions, rng, kind), decisions, model.names[4]


# The paper's examples


def test_mouse_of_the_paper() -> None:
    found = meg_target(mouse(0.8), decisions="D", target="T")
    assert found.value == pytest.approx(0.192745, abs=1e-6)
    assert found.value == pytest.approx(0.8 * np.log(1.6) + 0.2 * np.log(0.4), abs=1e-12)
    known = meg_utility(mouse_diagram(), {"D": np.array([[0.8, 0.2], [0.2, 0.8]])})
    assert known.value == pytest.approx(0.192745, abs=1e-6)
    assert known.beta == pytest.approx(LOG2, abs=1e-6)
    assert known.expected == pytest.approx(0.6) and known.uniform == pytest.approx(0)
    assert known.signed == known.value and known.attained


def test_optimal_and_anti_optimal_mouse_are_limits() -> None:
    for target in (
        meg_target(mouse(1.0), decisions="D", target="T"),
        meg_target(mouse(0.0), decisions="D", target="T"),
    ):
        assert target.value == pytest.approx(LOG2, abs=1e-12) and not target.attained
    away = meg_utility(mouse_diagram(), {"D": np.array([[0, 1], [1, 0]])})
    assert away.value == pytest.approx(LOG2, abs=1e-12)
    assert away.signed == -away.value and away.beta == -np.inf
    assert away.tight_bound == pytest.approx(LOG2) and away.bound == pytest.approx(LOG2)


def test_pomdp_mouse_is_refused_as_drawn_and_measured_with_recall() -> None:
    with pytest.raises(ValueError, match=r"D2.*D1.*O1, D1"):
        meg_target(pomdp_mouse(recall=False), decisions=("D1", "D2"), target="U3")
    optimal = meg_target(pomdp_mouse(1.0), decisions=("D1", "D2"), target="U3")
    assert optimal.value == pytest.approx(2 * LOG2, abs=1e-9) and not optimal.attained

    # By symmetry beta alone matters: the second decision counts only where the first was right.
    def predicted(beta: float) -> float:
        second = logsumexp([beta, 0]) - LOG2
        return 0.64 * beta - float(logsumexp([second, 0]) - LOG2)

    best = -minimize_scalar(
        lambda beta: -predicted(beta), bounds=(0, 20), method="bounded", options={"xatol": 1e-10}
    ).fun
    found = meg_target(pomdp_mouse(0.8), decisions=("D1", "D2"), target="U3")
    assert found.value == pytest.approx(best, abs=1e-9)
    assert found.value <= meg_target(pomdp_mouse(0.8), decisions=("D1", "D2"), target="S3").value


def test_the_instruction_belongs_to_the_target() -> None:
    assert meg_target(instructed(1.0), decisions="D", target="T").value == pytest.approx(0, abs=1e-12)
    assert meg_target(instructed(1.0), decisions="D", target=("I", "T")).value == pytest.approx(LOG2, abs=1e-12)


def test_an_optimal_policy_is_not_predicted_as_uniform_over_optimal_actions() -> None:
    # After "safe" both second actions win, after "risky" one of them: three of four plans win.
    first = Variable(name="D1", values=("safe", "risky"), chances=np.array([0.5, 0.5]))
    second = Variable.by_rule("D2", (0, 1), [first], lambda _: 1)
    wins = Variable.by_rule("T", (0, 1), [first, second], lambda chosen, action: int(chosen == "safe" or action == 1))
    found = meg_target(CausalModel(variables=(first, second, wins)), decisions=("D1", "D2"), target="T")
    assert found.value == pytest.approx(np.log(4 / 3), abs=1e-12)
    np.testing.assert_allclose(found.prediction["D1"], [2 / 3, 1 / 3], atol=1e-9)
    np.testing.assert_allclose(found.prediction["D2"], np.array([[1 / 2, 1 / 2], [0, 1]]), atol=1e-9)


# The propositions


@given(seeds, kinds)
def test_bounds_and_definition(seed: int, kind: str) -> None:
    model, decisions, target = random_case(seed, kind)
    found = meg_target(model, decisions=decisions, target=target)
    assert 0 <= found.value <= found.bound + 1e-9  # Proposition 3.2
    assert found.value == pytest.approx(score(model, found.prediction), abs=1e-7)  # Definition 3.2, limits included
    uniform = meg_target(same_policy(model, decisions), decisions=decisions, target=target)
    assert uniform.value == pytest.approx(0, abs=1e-12)
    utility = np.random.default_rng(seed).normal(size=len(model[target].values))
    known = meg_target(model, decisions=decisions, target=target, utility=utility)
    assert known.tight_bound is not None
    assert known.value <= found.value + 1e-9  # the class of all utilities contains this one
    assert known.value <= known.tight_bound + 1e-9 <= known.bound + 2e-9
    assert known.value == pytest.approx(score(model, known.prediction), abs=1e-7)


@settings(deadline=None, max_examples=examples(40))
@given(seeds, kinds, st.floats(0.01, 100), st.floats(-100, 100))
def test_scale_and_translation_change_nothing(seed: int, kind: str, scale: float, shift: float) -> None:
    model, decisions, target = random_case(seed, kind)  # Proposition 3.1
    utility = np.random.default_rng(seed).normal(size=len(model[target].values))
    first = meg_target(model, decisions=decisions, target=target, utility=utility)
    more = meg_target(model, decisions=decisions, target=target, utility=scale * utility + shift)
    less = meg_target(model, decisions=decisions, target=target, utility=-scale * utility + shift)
    assert more.value == pytest.approx(first.value, abs=1e-8) == less.value
    assert more.signed == pytest.approx(first.signed, abs=1e-8) == -less.signed


@settings(deadline=None, max_examples=examples(40))
@given(seeds, kinds)
def test_without_causal_influence_the_value_is_exactly_zero(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)  # Proposition 3.3
    model = random_model(rng, count=5)
    decision = model.names[int(rng.integers(1, 5))]
    model = with_policy(model, (decision,), rng, kind)
    others = [name for name in model.names if decision not in model.ancestors(name)]
    assert others, "the first variable never depends on a later one"
    found = meg_target(model, decisions=decision, target=others)
    assert found.value == 0.0 and found.attained
    utility = rng.normal(size=[len(model[name].values) for name in others])
    known = meg_target(model, decisions=decision, target=others, utility=utility)
    assert known.value == 0.0 and known.beta == 0 and known.signed == 0
    constant = meg_target(
        model, decisions=decision, target=model.names[-1], utility=np.full(len(model[model.names[-1]].values), 0.1)
    )
    assert constant.value == 0.0


@settings(deadline=None, max_examples=examples(100))
@given(seeds, kinds)
def test_pseudo_terminal_goals(seed: int, kind: str) -> None:
    model, decisions, target = random_case(seed, kind)  # Theorem 4.1
    between = pseudo_terminal_goals(model, decisions=decisions, target=target, most=2)
    assume(between)
    towards = meg_target(model, decisions=decisions, target=target).value
    for names in between:
        assert model.d_separated(decisions, target, names)
        nearer = meg_target(model, decisions=decisions, target=names).value if names else 0.0
        assert towards <= nearer + 1e-8


def test_towards_the_decisions_alone_the_value_is_their_log_count_less_their_entropy() -> None:
    def value(model: CausalModel, target: str | tuple[str, ...]) -> float:
        return meg_target(model, decisions=("D1", "D2") if "D1" in model.names else "D", target=target).value

    perfect, sides = mouse(1.0), ("left", "right")
    for chances, entropy in (([0.5, 0.5], LOG2), ([0.9, 0.1], -0.9 * np.log(0.9) - 0.1 * np.log(0.1)), ([1, 0], 0.0)):
        told = perfect.replace(Variable(name="S", values=sides, chances=np.array(chances)))
        assert value(told, "D") == pytest.approx(LOG2 - entropy, abs=1e-9)
        assert value(told, ("S", "D")) == pytest.approx(LOG2, abs=1e-9)  # with what it sees: the full value
    two = pomdp_mouse(1.0)  # both moves go the same way, left as often as right
    assert value(two, ("D1", "D2")) == pytest.approx(2 * LOG2 - LOG2, abs=1e-9)
    assert value(two, ("O1", "D1", "O2", "D2")) == pytest.approx(2 * LOG2, abs=1e-9)
    assert value(perfect, "D") == 0.0 and value(two, "D1") == pytest.approx(0, abs=1e-12)


def test_mediators_that_do_not_separate_can_hide_the_goal() -> None:
    # The agent wants T = 1, and what it makes of M for that depends on a context X.
    seen = Variable(name="X", values=(0, 1), chances=np.array([0.5, 0.5]))
    decision = Variable.by_rule("D", (0, 1), [seen], lambda value: value)
    mediator = Variable.by_rule("M", (0, 1), [decision], lambda value: value)
    target = Variable.by_rule("T", (0, 1), [mediator, seen], lambda made, value: int(made == value))
    model = CausalModel(variables=(seen, decision, mediator, target))
    assert meg_target(model, decisions="D", target="T").value == pytest.approx(LOG2)
    assert meg_target(model, decisions="D", target="M").value == pytest.approx(0, abs=1e-12)
    assert pseudo_terminal_goals(model, decisions="D", target="T", most=2) == [("X", "M")]
    assert meg_target(model, decisions="D", target=("X", "M")).value == pytest.approx(LOG2)


# Slow oracles


@settings(deadline=None, max_examples=examples(25))
@given(seeds)
def test_one_decision_against_direct_maximisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, count=4, kind="full")
    decision, target = model.names[1], model.names[3]
    variable = model[decision]
    seen = marginal(model, (*variable.parents, decision)).reshape(-1, len(variable.values))
    after = np.array(
        [
            marginal(model, (target,), {decision: action} | dict(zip(variable.parents, values, strict=True)))
            for values in np.ndindex(*np.asarray(variable.chances).shape[:-1])
            for action in variable.values
        ]
    )

    def loss(utility: Array) -> float:
        table = (after @ utility).reshape(seen.shape)
        return -float((seen * (table - logsumexp(table, axis=1, keepdims=True))).sum())

    starts = [rng.normal(size=after.shape[1]) for _ in range(3)]
    best = -min(minimize(loss, start, method="BFGS", options={"gtol": 1e-9}).fun for start in starts)
    found = meg_target(model, decisions=decision, target=target)
    assert found.value == pytest.approx(best + np.log(len(variable.values)), abs=1e-6)


@pytest.mark.parametrize("kind", ["full", "fixed"])
@pytest.mark.parametrize("seed", range(3))
def test_two_decisions_against_the_largest_causal_entropy(seed: int, kind: str) -> None:
    # Duality: MEG = n log A - the largest causal entropy of the policies with the same distribution of the target.
    rng = np.random.default_rng(seed)
    variables = (
        Variable(name="X", values=(0, 1), chances=rng.dirichlet([2, 2])),
        Variable(name="D1", values=(0, 1), parents=("X",), chances=random_chances(rng, (2, 2), kind)),
        Variable(name="D2", values=(0, 1), parents=("X", "D1"), chances=random_chances(rng, (2, 2, 2), kind)),
        Variable(
            name="T", values=(0, 1, 2), parents=("X", "D1", "D2"), chances=random_chances(rng, (2, 2, 2, 3), "any")
        ),
    )
    model = CausalModel(variables=variables)
    wanted, prior = marginal(model, ("T",)), np.asarray(variables[0].chances)
    first, second, outcome = (np.asarray(variable.chances) for variable in variables[1:])

    # A plan is the chance of the decisions up to each point, [X, D1] and [X, D1, D2]: in it the problem is convex.
    def parts(plan: Array) -> tuple[Array, Array]:
        return plan[:4].reshape(2, 2), plan[4:].reshape(2, 2, 2)

    def lack(plan: Array) -> float:
        one, two = parts(np.maximum(plan, 1e-300))
        return float(
            prior @ (one * np.log(2 * one)).sum(1) + prior @ (two * np.log(2 * two / one[..., None])).sum((1, 2))
        )

    def broken(plan: Array) -> Array:
        one, two = parts(plan)
        reached = np.einsum("x,xde,xdet->t", prior, two, outcome)
        return np.concatenate([one.sum(1) - 1, (two.sum(2) - one).reshape(-1), (reached - wanted)[:2]])

    search: Any = minimize
    answer = search(
        lack,
        np.concatenate([first.reshape(-1), (first[..., None] * second).reshape(-1)]),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 12,
        constraints={"type": "eq", "fun": broken},
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert np.abs(broken(answer.x)).max() < 1e-8
    found = meg_target(model, decisions=("D1", "D2"), target="T")
    assert answer.fun == pytest.approx(found.value, abs=1e-4)


def test_an_unrolled_decision_process_agrees_with_soft_backward_induction() -> None:
    rng = np.random.default_rng(7)
    states, actions, horizon = 3, 2, 3
    moves = rng.dirichlet(np.ones(states), size=(states, actions))
    reward, policy, start = (
        rng.normal(size=states),
        rng.dirichlet(np.ones(actions), size=(horizon, states)),
        rng.dirichlet(np.ones(states)),
    )
    names = tuple(range(states))
    state = Variable(name="S0", values=names, chances=start)
    variables, utilities = [state], []
    for t in range(horizon):
        move = Variable(name=f"D{t}", values=tuple(range(actions)), parents=(f"S{t}",), chances=policy[t])
        worth = Variable.by_rule(f"U{t}", tuple(reward.tolist()), [state], lambda place: float(reward[place]))
        state = Variable(name=f"S{t + 1}", values=names, parents=(f"S{t}", f"D{t}"), chances=moves)
        variables += [move, worth, state]
        utilities.append(worth.name)
    model = with_recall(CausalModel(variables=tuple(variables)), [f"D{t}" for t in range(horizon)])
    blank = tuple(
        Variable(name=own.name, values=own.values, parents=own.parents) if own.name.startswith("D") else own
        for own in model.variables
    )
    diagram = InfluenceDiagram(variables=blank, utilities=tuple(utilities))
    found = meg_utility(diagram, {f"D{t}": np.asarray(model[f"D{t}"].chances) for t in range(horizon)})

    place, total = start, 0.0
    for t in range(horizon):
        total += float(place @ reward)
        place = np.einsum("s,sa,sax->x", place, policy[t], moves)

    def advantage(beta: float) -> float:
        values = np.zeros(states)
        for _ in range(horizon):
            values = logsumexp(beta * reward[:, None] + moves @ values, axis=1) - np.log(actions)
        return beta * total - float(start @ values)

    best = -minimize_scalar(
        lambda beta: -advantage(beta), bounds=(-50, 50), method="bounded", options={"xatol": 1e-9}
    ).fun
    assert found.expected == pytest.approx(total, abs=1e-12)
    assert found.value == pytest.approx(best, abs=1e-9)


# Limits


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_the_limit_is_what_nearly_deterministic_policies_approach(seed: int) -> None:
    model, decisions, target = random_case(seed, "fixed")
    limit = meg_target(model, decisions=decisions, target=target).value
    gaps = []
    for share in (1e-2, 1e-4, 1e-6, 1e-9, 1e-11):
        mixed = model.replace(
            *(
                Variable(
                    name=name,
                    values=model[name].values,
                    parents=model[name].parents,
                    chances=(1 - share) * np.asarray(model[name].chances) + share / len(model[name].values),
                )
                for name in decisions
            )
        )
        gaps.append(abs(meg_target(mixed, decisions=decisions, target=target).value - limit))
    assert gaps[-1] <= 1e-4
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(gaps))


def test_bad_input_is_refused_in_words() -> None:
    model = mouse()
    with pytest.raises(ValueError, match="S, D, T"):
        meg_target(model, decisions="X", target="T")
    with pytest.raises(ValueError, match="decisions"):
        meg_target(model, decisions=(), target="T")
    with pytest.raises(ValueError, match="target"):
        meg_target(model, decisions="D", target=("T", "T"))
    with pytest.raises(ValueError, match=r"T, shape \[2\]"):
        meg_target(model, decisions="D", target="T", utility=[1, 2, 3])
    with pytest.raises(ValueError, match=r"utility.*finite"):
        meg_target(model, decisions="D", target="T", utility=[1, np.inf])
    with pytest.raises(ValueError, match="known utility"):
        _ = meg_target(model, decisions="D", target="T").signed
    wide = Variable(name="W", values=tuple(range(3000)), chances=np.full(3000, 1 / 3000))
    with pytest.raises(ValueError, match="2048"):
        meg_target(model.replace(wide), decisions="D", target="W")
    assert meg_target(model.replace(wide), decisions="D", target="W", utility=np.arange(3000)).value == 0


def test_utilities_of_any_size_give_the_same_value() -> None:
    for utility in ([-1e300, 1e300], [1e-300, 2e-300], [1e15, 1e15 + 1]):
        found = meg_target(mouse(0.8), decisions="D", target="T", utility=utility)
        assert found.value == pytest.approx(0.192745, abs=1e-6)
    with pytest.raises(ValueError, match="overflow"):
        meg_target(mouse(0.8), decisions="D", target="T", utility=[-1.7e308, 1.7e308])
