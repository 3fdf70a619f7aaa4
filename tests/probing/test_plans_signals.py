"""Planted plans are found, shuffled ones are not, and everything stands on one split."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from planted_plans import QUICK, SMALL, encoded, nothing, random_plans, run_plans, worlds

from goalscope.inside.probing import (
    ProbeInputs,
    plan_differences,
    probe_plans,
    split_by_grid,
    summarise_plans,
    true_map,
)
from goalscope.inside.probing.plans import PREFIX
from goalscope.inside.probing.scores import chosen
from goalscope.inside.probing.suite import FittedProbes
from goalscope.stats import Estimate


@functools.cache
def planted(count: int = 700, *, quick: bool = False) -> FittedProbes:
    cells = worlds(count)
    plans = run_plans(cells)
    return probe_plans(
        ProbeInputs(
            activations=[encoded(cells, plans)],
            cells=cells,
            split=split_by_grid(cells),
            random={("permuted", 3): [nothing(cells, model="model-random")]},
        ),
        plans,
        controls=("none", "shuffled", "permuted"),
        layers=(1,),
        maps={("pre", 1): true_map(cells)},
        settings=QUICK if quick else SMALL,
    )


def accuracy(head: str, control: str) -> dict[int, Estimate]:
    rows = chosen(planted().rows, measure=PREFIX, head=head, control=control, plans="all")
    return {int(str(one.key["N"])): one.estimate for one in summarise_plans(rows)}


@pytest.mark.full
def test_a_planted_plan_is_decoded() -> None:
    found = accuracy("decoder-1", "none")
    assert found[1].value > 0.95 and found[4].value > 0.9 and found[10].value > 0.8
    lengths = chosen(planted().rows, head="decoder-1", control="none", measure="length match")
    assert lengths.value.mean() > 0.9
    # Far beyond what its own first action gives.
    assert accuracy("decoder-1", "continuation")[10].high < found[10].low - 0.3


@pytest.mark.full
def test_a_planted_plan_of_independent_actions_is_decoded_whole() -> None:
    cells = worlds(4000)
    plans = random_plans(cells)
    settings = replace(SMALL, feedforward=128, epochs=30)
    split = split_by_grid(cells)
    fitted = probe_plans(
        ProbeInputs(activations=[encoded(cells, plans)], cells=cells, split=split),
        plans,
        layers=(2,),
        controls=("none",),
        settings=settings,
    )
    rows = chosen(fitted.rows, measure=PREFIX, head="decoder-2", control="none", plans="all", N=10)
    assert summarise_plans(rows)[0].estimate.low > 0.95


@pytest.mark.full
@pytest.mark.parametrize("control", ["shuffled", "permuted"])
def test_without_its_plan_a_decoder_is_not_above_its_baselines(control: str) -> None:
    rows, truth = planted().rows, "shuffled" if control == "shuffled" else "none"
    # Place by place a plan of two runs is guessed worse than as a whole: a decoder that knows nothing learns the runs.
    for baseline, most in (("commonest", 10), ("marginal", 1)):
        against = {"head": baseline, "control": truth}
        less = plan_differences(rows, "decoder-1", control, against, name=baseline)
        found = [one for one in summarise_plans(less) if one.key["plans"] == "all"]
        assert len(found) == 10
        for one in found[:most]:
            assert one.estimate.low <= 0, (baseline, one)
    assert accuracy("decoder-1", control)[1].high < 0.45 < accuracy("decoder-1", "none")[10].low


def test_every_row_stands_on_a_tested_grid_with_its_tags() -> None:
    cells, fitted = worlds(150), planted(150, quick=True)
    split = split_by_grid(cells)
    tested = set(cells.cluster[split.test].tolist())
    assert set(fitted.rows.cluster.tolist()) == tested
    assert not tested & set(cells.cluster[split.train].tolist())
    assert {key.text for key in fitted.probes} == {
        f"decoder-1/{name}/pre/1" for name in ("none", "shuffled", "permuted 3")
    }
    kinds = set(zip(*(fitted.rows[name].tolist() for name in ("head", "control", "site")), strict=True))
    assert kinds == {
        *(("decoder-1", name, "pre") for name in ("none", "shuffled", "permuted", "repeat", "continuation")),
        *((head, name, None) for head in ("marginal", "commonest") for name in ("none", "shuffled")),
        ("repeat executed", "none", None),
        ("text", "none", None),
        *((head, "none", "pre") for head in ("planner", "planner, best ties")),
        *((head, "true map", None) for head in ("planner", "planner, best ties")),
    }
    models = {key.control: one.source.model for key, one in fitted.probes.items()}
    assert models["permuted"] == "model-random"
    # The decoded map given here is the true one: the planner says the same of both.
    same = [chosen(fitted.rows, head="planner", control=name).value for name in ("none", "true map")]
    np.testing.assert_array_equal(same[0], same[1])


def test_a_suite_is_refused_where_its_parts_do_not_fit() -> None:
    cells = worlds(8)
    plans, split, given = random_plans(cells), split_by_grid(cells), nothing(cells)
    with pytest.raises(ValueError, match="--untrained"):
        probe_plans(ProbeInputs(activations=[given], cells=cells, split=split), plans)
    with pytest.raises(ValueError, match="another model"):
        probe_plans(
            ProbeInputs(activations=[given], cells=cells, split=split, random={("default-init", 0): [given]}), plans
        )
    with pytest.raises(ValueError, match="same steps"):
        probe_plans(
            ProbeInputs(activations=[given.where(np.arange(8)[::-1])], cells=cells, split=split),
            plans,
            controls=("none",),
        )
    with pytest.raises(ValueError, match="controls"):
        probe_plans(ProbeInputs(activations=[given], cells=cells, split=split), plans, controls=("input",))
    with pytest.raises(ValueError, match=r"site and layer .*'pre', 1.*'pre', 1"):
        probe_plans(ProbeInputs(activations=[given, given], cells=cells, split=split), plans, controls=("none",))
