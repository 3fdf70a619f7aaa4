"""Patching on models whose path from input to action is known: positive exactly where the code is still to be read."""

import numpy as np
import pytest
import torch
from handmade import (
    CODE,
    DOWN,
    IS_INPUT,
    IS_LAST,
    IS_SITE,
    JUNK,
    READ,
    UP,
    WIDTH,
    A,
    B,
    Move,
    handmade,
    linear,
    prompt,
    redundant,
    spread,
)
from scipy.stats import binom

from goalscope.agents.models import LocalModel
from goalscope.inside.interventions import EMBEDDING, Batch, generate
from goalscope.inside.interventions.patching import SOURCE, TARGET, WRONG, Condition, conditions, edits_of
from goalscope.report.definitions import verdict
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows

PLACES = {"input": np.array([1]), "site": np.array([4]), "filler": np.array([3])}


def moved(model: LocalModel, count: int, *, windows: tuple[int, ...] = ()) -> dict[tuple[str, str, str], bool]:
    """Return whether each patch moves the action from A's to B's: by site, layers and what was written."""
    listed = [
        one
        for site in PLACES
        for one in conditions(
            site, range(EMBEDDING, count), last=count - 1, reaches_end=False, windows=windows, controls=("isotropic",)
        )
    ]
    edits = [
        edit
        for row, one in enumerate(listed, start=2)
        for edit in edits_of(
            one, row, dict.fromkeys((TARGET, SOURCE), PLACES[one.site]), (), WIDTH, np.random.default_rng(row)
        )
    ]
    prompts = [prompt(A), prompt(B), *[prompt(A)] * len(listed)]
    outputs = [one.tokens[0] for one in generate(model, [Batch(prompts=prompts, edits=edits)], max_tokens=1)[0].outputs]
    assert outputs[:2] == [UP, DOWN]
    return {(one.site, one.label, one.patch): token == DOWN for one, token in zip(listed, outputs[2:], strict=True)}


def _positive(found: dict[tuple[str, str, str], bool], site: str) -> list[str]:
    return [layers for (where, layers, patch), yes in found.items() if yes and where == site and patch == "source"]


def test_linear_code_is_found_from_where_it_is_written_to_where_it_is_read() -> None:
    found = moved(linear(), 6)
    assert _positive(found, "site") == ["1", "2", "3", "all"]
    assert _positive(found, "input") == ["-1", "0", "all"]
    assert _positive(found, "filler") == []
    assert not any(yes for (_, _, patch), yes in found.items() if patch == "identity")


def test_a_code_spread_over_two_layers_is_found_once_all_of_it_is_written() -> None:
    found = moved(spread(), 6)
    assert _positive(found, "site") == ["2", "3", "all"]
    assert _positive(found, "input") == ["-1", "0", "1", "all"]


def test_in_a_redundant_model_single_layers_are_null_and_a_window_finds_the_code() -> None:
    found = moved(redundant(), 8, windows=(2, 3))
    assert _positive(found, "site") == ["all", "1 to 3", "3 to 5"]
    assert [layers for layers in _positive(found, "input") if " to " not in layers] == ["-1", "0", "1", "2", "all"]


def test_structural_nulls_are_named_and_have_no_controls() -> None:
    listed = list(conditions("site", range(EMBEDDING, 6), last=5, reaches_end=False))
    assert [(one.label, one.patch) for one in listed if one.structural] == [("5", "source")]
    assert not any(one.structural for one in conditions("pre", (5,), last=5, reaches_end=True))


def _null_verdict(seed: int, pairs: int = 24) -> str:
    """Return what is said of a model whose action is swayed by a site that has nothing to do with the source's action.

    The site holds a random vector that the last token reads beside the input's code: whatever is written there changes
    some actions.
    """
    generator = torch.Generator().manual_seed(seed)
    junk = torch.zeros(3 * pairs, WIDTH)
    junk[:, IS_SITE] = 1.0
    junk[:, 12:] = torch.randn(3 * pairs, WIDTH - 12, generator=generator)
    moves = [
        Move(layer=1, to=IS_LAST, source=IS_INPUT, dims={CODE: READ}),
        Move(layer=2, to=IS_LAST, source=IS_SITE, dims={dim: dim for dim in range(12, WIDTH)}),
    ]
    readout = {READ: 1.0} | {
        12 + at: float(weight) for at, weight in enumerate(torch.randn(WIDTH - 12, generator=generator) / 2)
    }
    model = handmade(moves, 3, readout, junk=junk)
    rng = np.random.default_rng(seed)
    prompts: list[list[int]] = []
    edits = []
    controls = ("source", "isotropic", "wrong")
    for pair in range(pairs):
        at = len(prompts)
        codes = (A, B) if rng.random() < 0.5 else (B, A)
        rows = [prompt(codes[0], JUNK + 3 * pair), prompt(codes[1], JUNK + 3 * pair + 1)]
        rows.append(prompt(codes[0], JUNK + 3 * pair + 2))
        prompts += [*rows, *[rows[0]] * len(controls)]
        for number, patch in enumerate(controls, start=3):
            one = Condition(site="site", layers=(1,), patch=patch)  # type: ignore[arg-type]
            places = dict.fromkeys((TARGET, SOURCE, WRONG), PLACES["site"])
            for edit in edits_of(one, number, places, (), WIDTH, rng):
                from dataclasses import replace

                moved_rows = {name: getattr(edit, name) for name in ("row", "source", "clean")}
                edits.append(replace(edit, **{name: at + row for name, row in moved_rows.items() if row is not None}))
    done = generate(model, [Batch(prompts=prompts, edits=edits)], max_tokens=1)[0].outputs
    tokens = np.array([one.tokens[0] for one in done]).reshape(pairs, 3 + len(controls))
    kept = tokens[tokens[:, TARGET] != tokens[:, SOURCE]]  # as pairs are found: the two actions differ
    follows = (kept[:, 3:] == kept[:, [SOURCE]]).astype(float)
    rivals = {}
    for number, name in enumerate(controls[1:], start=1):
        rows_ = Rows.from_columns(
            measure=f"x less {name}", unit="share", value=follows[:, 0] - follows[:, number],
            cluster=[str(at) for at in range(len(kept))], tags={"differences": 1},
        )  # fmt: skip
        rivals[name] = estimate_rows(rows_, by=())[0].estimate
    return verdict(rivals)


def test_a_null_model_carries_nothing() -> None:
    assert [_null_verdict(seed) for seed in range(2)].count("above") < 2


@pytest.mark.full
def test_over_200_null_models_positives_stay_at_the_nominal_level() -> None:
    """A 95 % interval lies above 0 in 2.5 % of the cases at most; the strictest control decides, so less often."""
    found = [_null_verdict(seed) for seed in range(200)]
    assert found.count("above") <= binom.ppf(0.999, 200, 0.025)
    assert found.count("unknown") == 0
