"""Draws follow a literal reading of temperature and top-p, and the distribution they should."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from families import examples
from goalscope._ground.rng import stream
from goalscope.agents.models.decode import draw, log_probabilities


def literal(logits: list[float], temperature: float, top_p: float, uniform: float) -> int:
    """One draw, written out: softmax, the fewest most likely tokens that reach top_p, inverse cumulative by id."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / temperature) for logit in logits]
    total = math.fsum(weights)
    probabilities = [weight / total for weight in weights]
    kept: list[int] = []
    mass = 0.0
    for token in sorted(range(len(logits)), key=lambda token: (-probabilities[token], token)):
        if kept and mass >= top_p:
            break
        kept.append(token)
        mass += probabilities[token]
    wanted, reached = uniform * math.fsum(probabilities[token] for token in kept), 0.0
    for token in sorted(kept):
        reached += probabilities[token]
        if reached > wanted:
            return token
    return max(kept)


# Logits that differ by multiples of 1/8: sums that fall on a boundary do so in both forms or in none.
logits_of = st.lists(st.integers(-40, 40).map(lambda number: number / 8), min_size=2, max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(logits_of, st.sampled_from([0.3, 0.7, 1.0, 2.0]), st.floats(0.01, 1.0), st.floats(0, 1, exclude_max=True))
def test_a_draw_equals_the_literal_reading(
    logits: list[float], temperature: float, top_p: float, uniform: float
) -> None:
    drawn = draw(torch.tensor([logits]), temperature=temperature, top_p=top_p, uniforms=np.array([uniform]))
    expected = literal(logits, temperature, top_p, uniform)
    # A draw within rounding of a boundary may fall on either side of it.
    assert drawn.tokens.item() == expected or drawn.margins.item() < 1e-12


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])  # most rows need all tokens, some do, none does
@pytest.mark.parametrize("step", [0.25, 1e-4])  # with many equal logits, with few
def test_draws_from_many_tokens_equal_the_literal_reading(scale: float, step: float) -> None:
    rng = stream(3, "many", scale, step)
    logits = torch.from_numpy(np.round(rng.normal(size=(24, 1500)) * scale / step) * step)
    for temperature, top_p in ((0.7, 0.95), (1.0, 0.5), (0.3, 0.999)):
        uniforms = rng.random(24)
        drawn = draw(logits, temperature=temperature, top_p=top_p, uniforms=uniforms)
        for row, uniform in enumerate(uniforms):
            expected = literal(logits[row].tolist(), temperature, top_p, float(uniform))
            assert drawn.tokens[row].item() == expected or drawn.margins[row].item() < 1e-12


@settings(max_examples=examples(100), deadline=None)
@given(logits_of, st.floats(0.2, 1.0), st.floats(0.001, 0.999))
def test_a_change_of_the_number_below_the_margin_changes_nothing(
    logits: list[float], top_p: float, uniform: float
) -> None:
    batch = torch.tensor([logits])
    first = draw(batch, temperature=0.7, top_p=top_p, uniforms=np.array([uniform]))
    margin = first.margins.item()
    assert 0 <= margin <= 1
    shift = max(0.0, 0.99 * margin - 1e-12)  # less than rounding is no change
    for moved in (uniform - shift, uniform + shift):
        again = draw(batch, temperature=0.7, top_p=top_p, uniforms=np.array([min(max(moved, 0.0), 1 - 1e-12)]))
        assert again.tokens.item() == first.tokens.item()


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 0.95), (1.0, 1.0), (1.5, 0.5)])
def test_frequencies_are_those_of_the_truncated_distribution(temperature: float, top_p: float) -> None:
    logits = torch.tensor([2.0, -1.0, 0.5, 1.9, 0.0, -3.0, 1.0, 0.2])
    count = 20_000
    uniforms = stream(7, "frequencies").random(count)
    tokens = draw(logits.expand(count, -1), temperature=temperature, top_p=top_p, uniforms=uniforms).tokens
    weights = np.exp((logits.double().numpy() - 2.0) / temperature)
    probabilities = weights / weights.sum()
    order = np.argsort(-probabilities)
    kept = order[: int(np.searchsorted(np.cumsum(probabilities[order]), top_p) + 1)]
    seen = np.bincount(tokens.numpy(), minlength=8)
    assert seen.sum() == seen[kept].sum(), "nothing outside of the kept mass is ever drawn"
    expected = probabilities[kept] / probabilities[kept].sum() * count
    assert chisquare(seen[kept], expected).pvalue > 0.01


def test_temperature_zero_takes_the_largest_and_the_lowest_id_on_ties() -> None:
    drawn = draw(torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 1.5]]), temperature=0, top_p=0.5, uniforms=None)
    assert drawn.tokens.tolist() == [1, 0]
    assert drawn.margins.tolist() == [0.0, 0.5]


def test_the_ends_of_the_unit_interval_draw_tokens_that_have_a_probability() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf, -800.0]])
    for uniform, expected in ((0.0, 1), (0.4999, 1), (0.5001, 2), (np.nextafter(1, 0), 2)):
        drawn = draw(logits, temperature=1.0, top_p=1.0, uniforms=np.array([uniform]))
        assert drawn.tokens.item() == expected


def test_a_tiny_top_p_is_the_most_likely_token() -> None:
    logits = torch.randn((50, 30), generator=torch.Generator().manual_seed(0))
    drawn = draw(logits, temperature=1.0, top_p=1e-9, uniforms=stream(0, "u").random(50))
    assert torch.equal(drawn.tokens, logits.argmax(dim=-1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="float16 overflows"):
        draw(torch.tensor([[0.0, bad]]), temperature=1.0, top_p=1.0, uniforms=np.array([0.5]))


def test_rows_of_a_batch_do_not_touch_each_other() -> None:
    logits = torch.randn((20, 40), generator=torch.Generator().manual_seed(1))
    uniforms = stream(0, "rows").random(20)
    together = draw(logits, temperature=0.7, top_p=0.9, uniforms=uniforms).tokens.tolist()
    alone = [
        draw(logits[[row]], temperature=0.7, top_p=0.9, uniforms=uniforms[[row]]).tokens.item() for row in range(20)
    ]
    assert together == alone


def test_log_probabilities_are_those_before_temperature() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), math.log(6.0)]])
    (entry,) = log_probabilities(logits, torch.tensor([1]), top=2)
    assert entry["token"] == 1
    assert entry["logprob"] == pytest.approx(math.log(0.3))
    assert [token for token, _ in entry["top"]] == [2, 1]
    assert [score for _, score in entry["top"]] == pytest.approx([math.log(0.6), math.log(0.3)])
    (all_of_them,) = log_probabilities(logits, torch.tensor([1]), top=20)
    assert len(all_of_them["top"]) == 3
