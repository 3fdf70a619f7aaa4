"""Causal models: exact inference, interventions and d-separation against enumeration and networkx."""

from itertools import combinations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_causal import joint, marginal, random_model

from families import examples
from goalscope.meg import CausalModel, InfluenceDiagram, Variable, with_recall
from goalscope.papers.causal_examples import mouse, mouse_diagram, pomdp_mouse

seeds = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=examples(60))
@given(seeds)
def test_tables_equal_sums_over_the_enumerated_joint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    order = [model.names[place] for place in rng.permutation(len(model.names))]
    names, observed = order[: rng.integers(0, 4)], order[4:]
    values = next(values for values, chance in joint(model).items() if chance > 0)
    given_values = {name: values[model.names.index(name)] for name in observed}
    np.testing.assert_allclose(
        model.table(names, given_values), marginal(model, names, given_values), atol=1e-12, rtol=0
    )


@settings(deadline=None, max_examples=examples(40))
@given(seeds)
def test_an_intervention_is_the_truncated_factorisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, count=4)
    name = model.names[rng.integers(4)]
    value = model[name].values[-1]
    before = joint(model)
    after = joint(model.do({name: value}))
    for values, chance in before.items():
        world = dict(zip(model.names, values, strict=True))
        variable = model[name]
        index = tuple(model[other].index(world[other]) for other in (*variable.parents, name))
        own = float(np.asarray(variable.chances)[index])
        changed = dict(zip(model.do({name: value}).names, after, strict=False))
        assert set(changed) == set(model.names)
        found = after[tuple(world[other] for other in model.do({name: value}).names)]
        if world[name] != value:
            assert found == 0
        elif own > 0:
            assert found == pytest.approx(chance / own, abs=1e-12)
    assert joint(model) == before


@settings(deadline=None, max_examples=examples(40))
@given(seeds)
def test_d_separation_agrees_with_networkx_and_implies_independence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, count=5, most=2, kind="full")
    graph = networkx.DiGraph()
    graph.add_nodes_from(model.names)
    graph.add_edges_from((parent, variable.name) for variable in model.variables for parent in variable.parents)
    for left, right in combinations(model.names, 2):
        others = [name for name in model.names if name not in (left, right)]
        for size in range(4):
            for known in combinations(others, size):
                found = model.d_separated(left, right, known)
                assert found == networkx.is_d_separator(graph, {left}, {right}, set(known))
    left, right, known = model.names[0], model.names[4], model.names[1:3]
    if model.d_separated(left, right, known):
        for values in np.ndindex(*(len(model[name].values) for name in known)):
            table = model.table((left, right), dict(zip(known, values, strict=True)))
            np.testing.assert_allclose(table, np.outer(table.sum(1), table.sum(0)), atol=1e-12)


def test_ancestors_of_the_mouse() -> None:
    model = mouse()
    assert model.ancestors("T") == {"S", "D", "T"}
    assert not model.d_separated("D", "T") and not model.d_separated("S", "D", "T")
    assert model.probability({"T": 1}) == pytest.approx(0.8)
    assert model.probability({"T": 1}, {"S": "left", "D": "left"}) == 1
    assert model.do({"D": "left"}).probability({"T": 1}) == pytest.approx(0.5)


def test_a_variable_of_one_value_costs_nothing() -> None:
    only = [Variable(name=f"C{k}", values=("x",), chances=np.ones(1)) for k in range(80)]
    coin = Variable.by_rule("coin", (0, 1), only, lambda *_: {0: 0.25, 1: 0.75}) if len(only) < 60 else None
    assert coin is None
    coin = Variable.by_rule("coin", (0, 1), only[:20], lambda *_: {0: 0.25, 1: 0.75})
    model = CausalModel(variables=(*only, coin))
    np.testing.assert_allclose(model.table(("C3", "coin", "C70")), [[[0.25], [0.75]]])


def test_elimination_never_builds_the_whole_joint() -> None:
    variables = [Variable(name="V0", values=(0, 1), chances=np.array([0.3, 0.7]))]
    for place in range(1, 60):  # a chain of 2**60 joint values
        chances = np.array([[0.9, 0.1], [0.2, 0.8]])
        variables.append(Variable(name=f"V{place}", values=(0, 1), parents=(f"V{place - 1}",), chances=chances))
    model = CausalModel(variables=tuple(reversed(variables)))
    expected = np.array([0.3, 0.7]) @ np.linalg.matrix_power(np.array([[0.9, 0.1], [0.2, 0.8]]), 59)
    np.testing.assert_allclose(model.table("V59"), expected, atol=1e-12)
    with pytest.raises(ValueError, match="1000"):
        model.table([f"V{place}" for place in range(10)], largest=1000)


def test_recall_adds_edges_and_changes_no_chance() -> None:
    drawn, recalled = pomdp_mouse(0.8, smell=0.9, recall=False), pomdp_mouse(0.8, smell=0.9)
    assert drawn["D2"].parents == ("O2",) and recalled["D2"].parents == ("O2", "O1", "D1")
    names = ("S1", "O1", "D1", "O2", "D2", "U3")
    np.testing.assert_allclose(drawn.table(names), recalled.table(names), atol=1e-15)
    assert with_recall(recalled, ("D2", "D1"))["D2"].parents == recalled["D2"].parents
    assert drawn["D2"].parents == ("O2",)


def test_a_model_is_refused_in_words() -> None:
    coin = Variable(name="a", values=(0, 1), chances=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="sum to 1"):
        Variable(name="a", values=(0, 1), chances=np.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="finite"):
        Variable(name="a", values=(0, 1), chances=np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match="different values"):
        Variable(name="a", values=(0, 0), chances=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="1 parents"):
        Variable(name="b", values=(0, 1), parents=("a",), chances=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match=r"\[2, 2\]"):
        CausalModel(variables=(coin, Variable(name="b", values=(0, 1), parents=("a",), chances=np.full((3, 2), 0.5))))
    with pytest.raises(ValueError, match="variables"):
        CausalModel(variables=(Variable(name="b", values=(0, 1), parents=("a",), chances=np.full((2, 2), 0.5)),))
    with pytest.raises(ValueError, match="different names"):
        CausalModel(variables=(coin, coin))
    loop = [
        Variable(name=own, values=(0, 1), parents=(other,), chances=np.full((2, 2), 0.5)) for own, other in ("ab", "ba")
    ]
    with pytest.raises(ValueError, match="cycle"):
        CausalModel(variables=tuple(loop))
    with pytest.raises(ValueError, match="for D"):
        CausalModel(variables=mouse_diagram().variables)
    with pytest.raises(ValueError, match="S, D, T"):
        mouse().table("X")
    with pytest.raises(ValueError, match="values"):
        mouse().do({"D": "up"})
    with pytest.raises(ValueError, match="probability 0"):
        mouse(1.0).table("S", {"T": 0})
    with pytest.raises(ValueError, match="observed"):
        mouse().table(("S", "S"))
    with pytest.raises(ValueError, match="rule"):
        Variable.by_rule("b", (0, 1), [coin], lambda value: value + 1)
    with pytest.raises(ValueError, match="finite numbers"):
        InfluenceDiagram(variables=mouse_diagram().variables, utilities=("S",))
    with pytest.raises(ValueError, match="decisions"):
        mouse_diagram().under({"T": np.ones((2, 2))})
    with pytest.raises(ValueError, match="probability in"):
        mouse(1.5)


def test_chances_cannot_be_changed_afterwards() -> None:
    given_chances = np.array([0.5, 0.5])
    coin = Variable(name="a", values=(0, 1), chances=given_chances)
    given_chances[0] = 1
    assert coin.chances is not None and coin.chances[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        coin.chances[0] = 1
