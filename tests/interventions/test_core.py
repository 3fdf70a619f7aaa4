"""Counterfactual pairs and changed forward passes on the bundled model."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel, Sampling, decode
from goalscope.inside.activations import SiteFinder
from goalscope.inside.interventions import (
    EMBEDDING,
    Batch,
    Edit,
    Editor,
    Original,
    Pair,
    counterfactuals,
    find_pairs,
    forward,
    generate,
    score_answers,
)
from goalscope.inside.interventions.experiment import (
    Moved,
    Pairs,
    PairSettings,
    Side,
    best,
    choose_pairs,
    pairs_of,
    study_interventions,
)
from goalscope.runs import Study, run
from goalscope.runs.study_parts import UnknownSettings
from goalscope.worlds import Action, Grid, GridView
from goalscope.worlds.planning import optimal_actions
from goalscope.worlds.planning.shortest import distances_to

PLAIN = Grid.parse(["#######", "#_____#", "#_____#", "#__A__#", "#___G_#", "#_____#", "#######"])
KEYED = Grid.parse(["#######", "#A__#_#", "#___D_#", "#___#G#", "#K__#_#", "#___#_#", "#######"])


@pytest.fixture(scope="module")
def agent() -> ChatAgent:
    return ChatAgent(model=LocalModel("theseus"), sampling=Sampling(max_tokens=64))


@pytest.fixture(scope="module")
def pair(agent: ChatAgent) -> Pair:
    found = find_pairs(agent, [Original(view=GridView(grid=PLAIN), cluster="plain")], moved=["agent"], tries=2)
    assert len(found.kept) == 1, found.left_out
    return found.kept[0]


def _model(agent: ChatAgent) -> LocalModel:
    assert isinstance(agent.model, LocalModel)
    return agent.model


def _originals(grid: Grid, count: int, size: int = 7) -> list[Original]:
    return [Original(view=GridView(grid=grid), cluster=f"{size}-{at}", tags={"size": size}) for at in range(count)]


def _finder(pair: Pair, works: Callable[[Moved, int], bool]) -> Any:
    """Return what finds the pairs of those originals, by number, in which an agent acts optimally."""

    def find(agent: ChatAgent, originals: Sequence[Original], *, moved: Sequence[Moved], **options: Any) -> Pairs:
        (thing,) = moved
        fits = [original for original in originals if works(thing, int(original.cluster.split("-")[1]))]
        kept = tuple(replace(pair, moved=thing, cluster=one.cluster, tags=one.tags) for one in fits)
        return Pairs(kept=kept, left_out={"failed": len(originals) - len(kept)})

    return find


def _counts(pairs: Pairs) -> Counter[tuple[Any, str]]:
    clusters = [one.cluster for one in pairs.kept]
    assert len(set(clusters)) == len(clusters)  # one pair of a grid
    return Counter((one.tags["size"], one.moved) for one in pairs.kept)


@pytest.mark.parametrize("per_size", [1, 8, 13])
def test_each_thing_moved_has_an_equal_share_of_the_pairs(agent: ChatAgent, pair: Pair, per_size: int) -> None:
    settings, share = PairSettings(per_size=per_size), (per_size + 1) // 2
    originals = [*_originals(PLAIN, 40), *_originals(PLAIN, 40, 9)]
    found = choose_pairs(agent, originals, settings, find=_finder(pair, lambda thing, at: at % 3 > 0))
    assert _counts(found) == dict.fromkeys([(size, thing) for size in (7, 9) for thing in ("agent", "goal")], share)


def test_no_thing_takes_the_place_of_one_with_too_few_pairs(agent: ChatAgent, pair: Pair) -> None:
    rare = _finder(pair, lambda thing, at: thing == "agent" or at % 10 == 0)
    found = choose_pairs(agent, _originals(PLAIN, 30), PairSettings(per_size=20), find=rare)
    counts = _counts(found)
    assert counts[7, "agent"] == 10 and counts[7, "goal"] <= 3
    assert {reason: count for reason, count in found.left_out.items() if "too few" in reason} == {
        "goal moved, size 7: pairs that too few grids have": 10 - counts[7, "goal"]
    }


def test_grids_with_a_key_go_to_the_key_where_others_lack_one(agent: ChatAgent, pair: Pair) -> None:
    settings = PairSettings(per_size=6, moved=("goal", "key"))
    originals = [*_originals(PLAIN, 30), *_originals(KEYED, 3)[::-1]]
    originals = [replace(one, cluster=f"7-{at}") for at, one in enumerate(originals)]
    found = choose_pairs(agent, originals, settings, find=_finder(pair, lambda thing, at: True))
    counts = _counts(found)
    assert counts[7, "goal"] == 3 and counts[7, "key"] >= 1
    none = choose_pairs(agent, originals[:30], settings, find=_finder(pair, lambda thing, at: True))
    assert _counts(none) == {(7, "goal"): 3} and none.left_out["key moved, size 7: pairs that too few grids have"] == 3


def test_counterfactuals_have_disjoint_optimal_sets_and_controls_the_same_one() -> None:
    cases: list[tuple[Grid, Moved]] = [(PLAIN, "agent"), (PLAIN, "goal"), (KEYED, "key")]
    for grid, moved in cases:
        original = Original(view=GridView(grid=grid), cluster="c")
        assert grid.start is not None
        before = optimal_actions(grid, grid.start)
        for control in (False, True):
            views = counterfactuals(original, moved, control=control)
            assert views
            for view in views:
                assert view.grid.start is not None
                after = optimal_actions(view.grid, view.grid.start)
                assert after == before if control else not after & before
                assert np.array_equal(view.grid.walls, grid.walls)


def _towards_corner(grid: Grid) -> frozenset[Action]:
    """The first moves of shortest ways to the top-right corner; the goal ends an episode, so none leads through it."""
    walls, corner = grid.walls.copy(), grid.corner("top-right")
    walls[grid.goal] = grid.goal != corner
    steps = distances_to(walls, [corner])
    assert grid.start is not None
    row, col = grid.start
    after = {action: steps[row + action.delta[0], col + action.delta[1]] for action in Action}
    return frozenset(action for action, left in after.items() if left >= 0 and left == steps[row, col] - 1)


def test_pairs_of_another_hypothesis_follow_it_and_its_controls_move_the_goal_alone() -> None:
    corner = "corner top-right"
    grid = PLAIN.at(start=(1, 3))  # in the top row, where one move alone leads to the corner
    original = Original(view=GridView(grid=grid), cluster="c")
    for moved in ("agent", "goal"):
        before = _towards_corner(grid)
        assert best(original.view, corner) == before
        for control in (False, True):
            for view in counterfactuals(original, moved, control=control, hypothesis=corner):
                after = _towards_corner(view.grid)
                assert after == before if control else not after & before
    # Where the goal lies says nothing to an agent that is after the corner, but on its only ways.
    null = counterfactuals(original, "goal", control=True, hypothesis=corner)
    differ = [view for view in null if not best(view) & best(original.view)]
    assert len(null) > 15 and len(differ) > 1
    assert best(GridView(grid=PLAIN.at(held=("K",))), corner) == frozenset()
    assert best(original.view, "corner top-right +9,+9") == frozenset()  # undefined here

    def acts(views: Sequence[GridView]) -> list[Side]:
        return [
            Side(view=view, optimal=best(view, corner), prompt=(1,), output=(1,), action=min(best(view, corner)))
            for view in views
        ]

    asked: dict[str, Any] = {"moved": ["agent", "goal"], "tries": 2, "seed": 0, "hypothesis": corner}
    found = pairs_of([original], acts, lambda first, second: {}, control=False, **asked)
    assert [one.moved for one in found.kept] == ["agent", "goal"]  # a goal on its way ends the episode there
    assert all(not one.sides[0].optimal & one.sides[1].optimal for one in found.kept)
    (null_pair,) = pairs_of(
        [original], acts, lambda first, second: {}, control=True, **{**asked, "moved": ["goal"]}
    ).kept
    first, second = null_pair.sides
    assert first.optimal == second.optimal and first.view != second.view


def test_settings_name_a_hypothesis_and_keep_their_ids_without_one() -> None:
    assert "hypothesis" not in PairSettings().model_dump()
    assert PairSettings(hypothesis="corner  top-right").model_dump()["hypothesis"] == "corner top-right"
    with pytest.raises(ValueError, match="goat"):
        PairSettings(hypothesis="goat")


def test_an_agent_that_is_not_after_it_has_no_pairs(agent: ChatAgent) -> None:
    originals = [Original(view=GridView(grid=PLAIN.at(start=(1, 3))), cluster="plain")]
    found = find_pairs(agent, originals, moved=["agent"], tries=2, hypothesis="corner top-left")
    assert not found.kept and "agent: the agent does not follow corner top-left" in next(iter(found.left_out))


def test_an_open_door_is_a_counterfactual_of_a_locked_one() -> None:
    grid = KEYED.at(start=(3, 3))
    (view,) = counterfactuals(Original(view=GridView(grid=grid), cluster="c"), "door")
    assert view.grid.door is None and view.grid.key == grid.key
    assert counterfactuals(Original(view=GridView(grid=PLAIN), cluster="c"), "door") == []


def test_identity_is_bit_equal_and_the_embedding_swap_equals_the_source(agent: ChatAgent, pair: Pair) -> None:
    """Oracles: the unchanged rows of the same pass."""
    model, (first, second) = _model(agent), pair.sides
    editor_layers = range(EMBEDDING, 8)
    grid = SiteFinder(model, ("grid",)).find(first.step, first.view.grid).positions["grid"]
    prompts = [first.prompt, second.prompt, *[first.prompt] * 4]
    edits = [Edit(row=2, layer=layer, positions=grid, source=0) for layer in editor_layers]
    edits += [Edit(row=3, layer=EMBEDDING, positions=pair.changed, source=1)]
    edits += [Edit(row=4, layer=7, positions=grid, source=1)]  # nothing reads the last layer there
    edits += [Edit(row=5, layer=3, positions=grid, source=1, component="mlp")]
    batch = Batch(prompts=prompts, edits=edits, clean=[0, 1, 0, 0, 0, 0])
    answers = [[[token] for token in range(40)]] * len(prompts)
    scored = score_answers(model, [batch], [answers])[0]
    own, source, identity, swapped, last, mlp = (np.array(row) for row in scored.outputs)
    assert np.array_equal(identity, own) and np.array_equal(swapped, source) and np.array_equal(last, own)
    assert not np.array_equal(own, source) and not np.array_equal(mlp, own)
    assert scored.rerouted[2] == 0 and (scored.rerouted[3] or 0) > 0

    written = generate(model, [batch], max_tokens=64)[0].outputs
    assert [tuple(one.tokens) for one in written[:4]] == [first.output, second.output, first.output, second.output]


def test_kept_pairs_are_acted_optimally_and_differ_in_the_changed_tokens_alone(agent: ChatAgent, pair: Pair) -> None:
    model = _model(agent)
    for side in pair.sides:
        assert side.action in side.optimal
        assert side.action.name in model.text(side.output)
    one, other = pair.sides
    differ = [at for at, (a, b) in enumerate(zip(one.prompt, other.prompt, strict=True)) if a != b]
    assert differ == pair.changed.tolist() and len(pair.cells) == 2


def test_edits_of_matched_norm_and_added_vectors(agent: ChatAgent, pair: Pair) -> None:
    """Oracle: the vectors themselves, by linear algebra in numpy."""
    import torch

    model, (first, second) = _model(agent), pair.sides
    editor = Editor(model.model)
    at, width = pair.changed[:1], editor.blocks.width
    noise = torch.nn.functional.normalize(torch.ones(1, width), dim=-1)
    edits = [
        Edit(row=2, layer=1, positions=at, source=1, clean=0, vectors=noise, how="noise"),
        Edit(row=3, layer=1, positions=at, vectors=2 * noise, how="add"),
    ]
    kept = []
    ids = torch.tensor([first.prompt, second.prompt, *[first.prompt] * 2])
    with torch.no_grad(), editor.hooked([edit.place for edit in edits]), editor.applying(edits, range(4), [0] * 4):
        handle = model.model.base_model.layers[1].register_forward_hook(lambda *parts: kept.append(parts[2]))
        model.model(input_ids=ids)
        handle.remove()
    own, source, matched, added = kept[0][:, int(at[0])].double().numpy()
    assert np.linalg.norm(matched - own) == pytest.approx(np.linalg.norm(source - own), rel=1e-4)
    assert added == pytest.approx(own + 2 / np.sqrt(width), abs=1e-5)


def test_a_batch_beyond_memory_passes_in_parts_with_the_same_outputs(
    agent: ChatAgent, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (first, second) = _model(agent), pair.sides
    copies = [Edit(row=row, layer=row - 3, positions=pair.changed, source=1) for row in range(2, 9)]
    chained = Edit(row=9, layer=3, positions=pair.changed, source=4)  # reads from a row that is changed itself
    prompts = [first.prompt, second.prompt, *[first.prompt] * 8]
    batch = Batch(prompts=prompts, edits=[*copies, chained], clean=[0, 1, *[0] * 8])
    answers = [[[[token] for token in range(20)]] * len(prompts)]
    scored, written = score_answers(model, [batch], answers)[0], generate(model, [batch], max_tokens=8)[0]

    sizes, applying = list[int](), Editor.applying

    def spy(self: Editor, edits: Sequence[Edit], rows: Sequence[int], begins: Sequence[int]) -> Any:
        sizes.append(len(rows))
        return applying(self, edits, rows, begins)

    monkeypatch.setattr(Editor, "applying", spy)
    for rows in (4, 1):  # a row passes with all rows that it needs, even if they exceed the limit
        monkeypatch.setattr(forward, "most_tokens", lambda network, rows=rows: rows * (len(first.prompt) + 8))
        sizes.clear()
        parts = generate(model, [batch], max_tokens=8)[0]
        assert [output.tokens for output in parts.outputs] == [output.tokens for output in written.outputs]
        assert parts.rerouted == pytest.approx(written.rerouted, abs=1e-6)
        assert len(sizes) > 2 and max(sizes) == 4
    monkeypatch.setattr(forward, "most_tokens", lambda network: 100 * len(first.prompt))
    of_answers = score_answers(model, [batch], answers)[0]
    assert np.array(of_answers.outputs) == pytest.approx(np.array(scored.outputs), abs=1e-4)


def test_keys_and_values_of_a_pass_take_half_of_the_memory_without_the_weights(
    agent: ChatAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the size of the cache of one token, as the library makes it."""
    import torch

    network, page = _model(agent).model, 4096
    cache = network(input_ids=torch.tensor([[1]]), use_cache=True).past_key_values
    octets = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    weights = sum(parameter.nbytes for parameter in network.parameters())
    monkeypatch.setattr(decode, "own_cores", lambda: 2)
    limits = []
    for memory in (weights // 2, weights + (1 << 20), weights + (1 << 30)):
        pages = {"SC_PAGE_SIZE": page, "SC_PHYS_PAGES": memory // page}
        monkeypatch.setattr(os, "sysconf", pages.__getitem__)
        limits.append(forward.most_tokens(network))
    assert limits == [0, pytest.approx((1 << 20) / (4 * octets), abs=1), pytest.approx((1 << 30) / (4 * octets), abs=1)]
    monkeypatch.setattr(decode, "is_small", lambda network: False)  # all cores then compute one pass
    assert decode._fitting(network, None).most_columns == pytest.approx((1 << 30) / (2 * octets), abs=1)


def test_wrong_use_is_refused_with_the_reason(agent: ChatAgent, pair: Pair) -> None:
    import torch

    model, (first, second) = _model(agent), pair.sides
    at = pair.changed

    def run(edit: Edit) -> None:
        generate(model, [Batch(prompts=[first.prompt, second.prompt], edits=[edit])], max_tokens=1)

    with pytest.raises(ValueError, match=r"-1\.\.7.* got 8"):
        run(Edit(row=0, layer=8, positions=at, source=1))
    with pytest.raises(ValueError, match=r"width 128"):
        run(Edit(row=0, layer=0, positions=at, vectors=torch.zeros(len(at), 64)))
    with pytest.raises(ValueError, match=r"prompt 0 .* got 5000"):
        run(Edit(row=0, layer=0, positions=np.array([5000]), source=1))
    with pytest.raises(ValueError, match=r"prompts 0\.\.1 .* got 2"):
        run(Edit(row=0, layer=0, positions=at, source=2))
    with pytest.raises(ValueError, match=r"embedding .* no mlp"):
        Edit(row=0, layer=EMBEDDING, positions=at, source=1, component="mlp")
    with pytest.raises(ValueError, match="vectors"):
        Edit(row=0, layer=0, positions=at)
    with pytest.raises(ValueError, match="fog"):
        corner = np.zeros((7, 7), dtype=bool)
        corner[1, 1] = True
        foggy = PLAIN.at(fog=corner)
        counterfactuals(Original(view=GridView(grid=foggy), cluster="c"), "goal")


def test_a_stored_study_with_an_intervention_that_is_gone_is_refused_by_its_name(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}]
    run(Study.parse({"worlds": worlds, "agents": [{"kind": "random"}], "trajectories": 1}), tmp_path)
    with pytest.raises(ValueError, match="'alignment'"):
        study_interventions(tmp_path, [UnknownSettings(kind="alignment")])
