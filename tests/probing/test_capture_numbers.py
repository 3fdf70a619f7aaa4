"""Numbers that a model cannot read, or that come out of it broken, stop a capture by the name of their episode."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from replays import GRIDS, TEMPLATE, local, record, recorded_steps

from goalscope.inside.activations import capture, load_activations


@pytest.mark.parametrize("weight", [torch.nan, torch.inf])
def test_a_broken_weight_stops_the_capture_by_the_name_of_an_episode_too(tmp_path: Path, weight: float) -> None:
    model = local()
    directory = record(tmp_path / "run", model, grids=GRIDS[:1], trajectories=1)
    with torch.no_grad():
        model.model.model.layers[1].mlp.down_proj.weight[0, 0] = weight  # no vector after it is finite, in no sequence
    (episode, _), *_ = recorded_steps(directory)
    with pytest.raises(ValueError, match=rf"finite, .* {episode} step \d, site pre, layer 1"):
        capture(directory, model, layers=[0, 1])
    assert load_activations(directory, site="pre", layer=capture(directory, model, layers=[0]).layers[0]).layer == 0


def test_sequences_that_the_model_cannot_read_are_refused_by_their_step(tmp_path: Path) -> None:
    gpt2 = local("gpt2")
    for name in ("long", "odd"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"episode-\w+ step 0: .* 512 positions"):
        capture(record(tmp_path / "long" / "run", gpt2, grids=GRIDS[:1], text="x" * 600 + TEMPLATE), gpt2)
    model = local()
    odd = record(
        tmp_path / "odd" / "run",
        model,
        grids=GRIDS[:1],
        change=lambda step: (
            replace(step, output_tokens=(9999, *(step.output_tokens or ()))) if step.index == 2 else step
        ),
    )
    with pytest.raises(ValueError, match=r"step 2: .*0\.\.127.*got 9999"):
        capture(odd, model)
