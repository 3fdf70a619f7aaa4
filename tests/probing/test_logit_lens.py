"""The logit lens: equal to the model's own logits at the end, to loops by hand elsewhere, and found where planted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import CONFIGS, tiny
from insides import rooms
from replays import local, record

from goalscope.inside.activations import capture, load_activations
from goalscope.inside.activations.hooks import DecoderBlocks
from goalscope.inside.probing import label_cells
from goalscope.inside.probing.labels import NO_ACTION
from goalscope.inside.probing.logit_lens import (
    AMONG,
    BLIND,
    HEAD,
    MEASURES,
    OPTIMAL,
    PROBABILITY,
    RANK,
    RANK_AMONG,
    TAKEN,
    Lens,
    LensSteps,
    label_tokens,
)
from goalscope.report.sections.decoded import logit_lens_section
from goalscope.runs import Store
from goalscope.stats.rows import Rows
from goalscope.worlds import ACTIONS
from goalscope.worlds.planning import optimal_actions


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_the_lens_of_the_last_block_is_the_models_own_prediction(kind: str) -> None:
    model = tiny(kind, 0)
    ids = torch.arange(3, 20)[None]
    kept: list[torch.Tensor] = []
    block = DecoderBlocks(model).list[-1]
    handle = block.register_forward_hook(
        lambda module, given, output: kept.append(output[0] if isinstance(output, tuple) else output)
    )
    with torch.inference_mode():
        own = model(input_ids=ids, use_cache=False).logits[0].float()
    handle.remove()
    said = torch.cat(list(Lens(model).logits(kept[0][0].numpy())))
    torch.testing.assert_close(said, own, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    model = local(seed=0)
    directory = record(tmp_path_factory.mktemp("lens") / "run", model, grids=rooms(4), trajectories=1, steps=3)
    capture(directory, model, sites=("pre", "action"), layers=(0, 2))
    return directory, model


def held(run: tuple[Path, Any], site: str, layer: int) -> tuple[Any, LensSteps, dict[tuple[str, int], Any]]:
    directory, model = run
    with Store(directory) as store:
        given = load_activations(store, site=site, layer=layer)
        cells = label_cells(given, store.episodes())
        steps = label_tokens(cells, store.episodes(), model)
        known = {(one.id, step.index): (one, step) for one in store.episodes() for step in one.steps}
    return given, steps, known


def test_tokens_and_truth_are_those_of_the_answers(run: tuple[Path, Any]) -> None:
    given, steps, known = held(run, "pre", 2)
    model = run[1]
    # One token a character: the words begin with their first letters; LEFT was never answered.
    assert [model.tokenizer.decode(list(mine)) for mine in steps.tokens] == [one.name[0] for one in ACTIONS]
    taken = set()
    for row in range(len(given)):
        episode, step = known[given.episode_id[row], int(given.step[row])]
        assert steps.action[row] == int(step.action) and steps.token[row] in steps.tokens[int(step.action)]
        grid = episode.world.grid
        assert set(np.flatnonzero(steps.optimal[row])) == {
            int(one) for one in optimal_actions(grid, step.state.position)
        }
        taken.add(step.action)
    assert len(taken) < 4


@pytest.mark.parametrize("layer", [0, 2])
def test_what_the_lens_reads_is_what_a_loop_by_hand_finds(run: tuple[Path, Any], layer: int) -> None:
    given, steps, known = held(run, "action", layer)
    model = run[1].model
    found = Lens(model).read(given, steps)
    assert set(found) == set(MEASURES)
    for row in range(len(given)):
        with torch.inference_mode():
            if layer == 2:  # the last block: the model itself, run on the sequence up to there
                step = known[given.episode_id[row], int(given.step[row])][1]
                ids = [*step.prompt_tokens, *step.output_tokens][: int(given.positions[row, -1]) + 1]
                scores = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
            else:
                last = torch.tensor(given.vectors[row, -1])
                scores = model.get_output_embeddings()(model.base_model.norm(last))
        chance = np.exp(scores.double().numpy() - scores.double().logsumexp(0).item())
        four = [sum(chance[token] for token in mine) for mine in steps.tokens]
        token, action = int(steps.token[row]), int(steps.action[row])
        by_hand = {
            PROBABILITY: chance[token],
            RANK: 1 + sum(one > chance[token] for one in chance),
            AMONG: four[action] / sum(four),
            RANK_AMONG: 1 + sum(one > four[action] for one in four),
            TAKEN: float(max(range(4), key=four.__getitem__) == action),
            OPTIMAL: float(steps.optimal[row, max(range(4), key=four.__getitem__)]),
        }
        assert {name: values[row] for name, values in found.items()} == pytest.approx(by_hand, rel=1e-4)


def test_a_step_without_an_action_has_no_value() -> None:
    model, count = tiny("llama", 0), 3
    text = np.array(["a"] * count, dtype=object)
    steps = LensSteps(
        action=np.array([0, NO_ACTION, 3]),
        token=np.array([10, NO_ACTION, 13]),
        optimal=np.ones((count, 4), dtype=bool),
        tokens=((10,), (11,), (12, 14), (13,)),
        episode_id=text,
        step=np.arange(count),
        cluster=text,
    )
    from types import SimpleNamespace

    vectors = np.random.default_rng(0).standard_normal((count, 1, 32)).astype(np.float32)
    given: Any = SimpleNamespace(vectors=vectors)
    read = Lens(model).read(given, steps)
    for values in read.values():
        assert np.isnan(values).tolist() == [False, True, False]
    assert read[OPTIMAL][[0, 2]].tolist() == [1, 1]
    with pytest.raises(ValueError, match="different tokens"):
        LensSteps(**{name: getattr(steps, name) for name in LensSteps.SHAPES}, tokens=((1,), (1,), (2,), (3,)))


def test_the_section_of_the_report_names_every_network_and_the_blind_baseline() -> None:
    tags = {"head": HEAD, "site": "pre", "layer": 1}
    parts = [
        Rows.from_columns(
            measure=name,
            unit=unit,
            value=[0.1 + at / 10, 0.3, 0.2, 0.4] if unit == "share" else [1.0, 2.0, 4.0, 9.0 + at],
            cluster=[f"g{grid}" for grid in range(4)],
            tags={**tags, "control": control, "draw": draw},
        )
        for name, unit in MEASURES.items()
        for at, (control, draw) in enumerate([("none", None), ("permuted", 0), ("permuted", 1)])
    ]
    blind = Rows.from_columns(
        measure=TAKEN,
        unit="share",
        value=[0.0, 1.0, 0.0, 0.5],
        cluster=[f"g{grid}" for grid in range(4)],
        tags={"head": BLIND, "control": "none", "draw": None, "site": None, "layer": None},
    )
    (shown,) = logit_lens_section(Rows.concatenate([*parts, blind]))
    (table,) = shown.tables
    titles = [line.title for line in table.lines]
    assert titles == [
        "pre, layer 1: logit lens",
        "pre, layer 1: logit lens, permuted weights",
        "commonest action of the training grids",
    ]
    own = table.estimates.get({**tags, "control": "none", "measure": TAKEN})
    assert own is not None and own.value == pytest.approx(0.25) and own.low < 0.25 < own.high
