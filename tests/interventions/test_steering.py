"""Steering and ablation: positive exactly where a code is still to be read; edits of reasoning."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handmade import DOWN, UP, A, B, linear, prompt, redundant, spread
from server import Loopback, speaker

from goalscope.agents import ChatAgent, Observation
from goalscope.agents.models import HttpModel, LocalModel, Message, Reply, Request, Sampling
from goalscope.inside.interventions import Batch, Edit, Original, Pair, find_pairs, generate, score_answers
from goalscope.inside.interventions.directions import FLIPPED, Steering, erase, removal, steer
from goalscope.inside.interventions.reading import (
    FOLLOWS,
    STAYS,
    Passage,
    action_of,
    fresh_views,
    read_activations,
    states_of,
    written_in,
)
from goalscope.inside.interventions.reasoning import CachedAgent, edits_of
from goalscope.runs import Store
from goalscope.stats import estimate_rows
from goalscope.worlds import Grid, GridView

SITE = np.array([4])
PLAIN = Grid.parse(["#######", "#_____#", "#_____#", "#__A__#", "#___G_#", "#_____#", "#######"])


def _first(model: LocalModel, edits: list[Edit]) -> int:
    """Return the token that follows A's prompt."""
    batch = Batch(prompts=[prompt(A)], edits=edits)
    return generate(model, [batch], max_tokens=1)[0].outputs[0].tokens[0]


def _odds(model: LocalModel, edits: list[Edit]) -> float:
    """Return by how much UP is likelier than DOWN after A's prompt, nats."""
    batch = Batch(prompts=[prompt(A)], edits=edits)
    (((up,), (down,)),) = score_answers(model, [batch], [[[(UP,), (DOWN,)]]])[0].outputs
    return up - down


def _vectors(model: LocalModel, layer: int) -> tuple[Any, Any]:
    own, other = read_activations(model, [prompt(A), prompt(B)], [SITE, SITE], [layer])[layer]
    return own, other


def _steered(model: LocalModel, layer: int, scale: float = 1.0) -> bool:
    own, other = _vectors(model, layer)
    added = torch.from_numpy(scale * (other - own))
    return _first(model, [Edit(row=0, layer=layer, positions=SITE, vectors=added, how="add")]) == DOWN


def _random(model: LocalModel, layer: int) -> bool:
    own, other = _vectors(model, layer)
    drawn = np.random.default_rng(layer).standard_normal(own.shape).astype(np.float32)
    drawn *= np.linalg.norm(other - own) / np.linalg.norm(drawn)
    return _first(model, [Edit(row=0, layer=layer, positions=SITE, vectors=torch.from_numpy(drawn), how="add")]) != UP


def _ablated(model: LocalModel, layer: int) -> bool:
    own, other = _vectors(model, layer)
    vectors = np.concatenate([own, other] * 32).astype(np.float64)
    targets, held = np.array([[1.0], [0.0]] * 32), np.arange(64) >= 40
    found = erase(vectors, targets, held, max_rank=4)
    assert found.fallen and found.rank <= 1
    passage = Passage(ids=tuple(prompt(A)), replayed=0, places=SITE)
    odds = [_odds(model, edits) for edits in ([], removal(passage, layer, found.basis, found.mean, own))]
    assert odds[0] > 0.1
    return abs(odds[1]) < 1e-3


@pytest.mark.parametrize(
    ("made", "layers", "window"),
    [(linear, 6, [1, 2, 3]), (spread, 6, [2, 3]), (redundant, 8, [])],
    ids=["linear", "spread", "redundant"],
)
@pytest.mark.parametrize("changes", [_steered, _ablated], ids=["steering", "ablation"])
def test_positive_from_where_a_code_is_written_to_where_it_is_read(
    changes: Callable[[LocalModel, int], bool], made: Callable[[], LocalModel], layers: int, window: list[int]
) -> None:
    """Half of a spread code turns nothing; of a redundant one a single layer turns one vote of three."""
    model = made()
    assert [layer for layer in range(layers) if changes(model, layer)] == window


def test_random_directions_of_the_same_length_do_not_steer() -> None:
    assert not any(_random(linear(), layer) for layer in range(6))


def test_what_is_erased_is_orthogonal_and_no_longer_found() -> None:
    """Oracle: least squares in numpy on what is left."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((400, 2))
    vectors = rng.standard_normal((400, 12))
    vectors[:, :3] += truth @ rng.standard_normal((2, 3)) * 3
    held = np.arange(400) >= 250
    found = erase(vectors, truth, held, max_rank=12)
    assert found.fallen and found.initial_correlation > 0.8 and 2 <= found.rank <= 6
    assert found.basis.T @ found.basis == pytest.approx(np.eye(found.rank), abs=1e-9)
    left = (vectors - found.mean) @ (np.eye(12) - found.basis @ found.basis.T)
    weights = np.linalg.lstsq(left[~held], truth[~held], rcond=None)[0]
    errors = ((left[held] @ weights - truth[held]) ** 2).mean()
    assert errors > 0.9 * truth[held].var()
    assert not erase(vectors, truth, held, max_rank=1).fallen


@pytest.fixture(scope="module")
def agent() -> ChatAgent:
    return ChatAgent(model=LocalModel("theseus"), sampling=Sampling(max_tokens=40))


@pytest.fixture(scope="module")
def pair(agent: ChatAgent) -> Pair:
    (found,) = find_pairs(agent, [Original(view=GridView(grid=PLAIN), cluster="plain")], moved=["goal"], tries=2).kept
    return found


def test_the_bundled_model_follows_the_difference_of_classes_and_no_random_direction(
    agent: ChatAgent, pair: Pair
) -> None:
    settings = Steering(doses=(1.0,), random=1, states=10)
    tagged = replace(pair, tags={"density": 0.0})
    views = fresh_views([tagged], count=10, seed=0)
    states = states_of(agent, views, ["changed"], max_tokens=1)
    rows = steer(agent, [tagged], states, settings, "changed", 0)
    found = {
        (one.key["direction"], one.key["measure"]): one.estimate.value for one in estimate_rows(rows, by=("direction",))
    }
    assert found["mean difference", FOLLOWS] == found["own difference", FOLLOWS] == 1
    assert found["random", FOLLOWS] == 0 and found["random", STAYS] == 1
    assert found["mean difference", FLIPPED] == 1


def test_answers_follow_the_edited_plan_here_and_behind_a_server(agent: ChatAgent, pair: Pair) -> None:
    own, other = pair.sides[0].optimal, pair.sides[1].optimal
    assert isinstance(agent.model, LocalModel)
    with Loopback(agent.model) as server:
        http = HttpModel("speaker", server={"base_url": server.url, "mode": "completions", "tokenizer": "theseus"})
        for one in (agent, replace(agent, model=http)):
            asked = CachedAgent(one, 40)
            edits = list(edits_of(asked, pair, ("own", "plan", "swap"), 0))
            said = asked.write_on([(pair.sides[0].view, edit.prefill) for edit in edits])
            assert [edit.name for edit in edits] == ["own", "plan", "swap"]
            assert action_of(said[0]) in own and action_of(said[1]) in other and action_of(said[2]) in other
            assert all(written_in(answer).startswith(edit.prefill) for answer, edit in zip(said, edits, strict=True))


@dataclass(frozen=True, kw_only=True)
class Thinker:
    """A model that hands its reasoning over apart and answers with the first move in it, as a server in mode chat does.

    Args:
        thoughts: prompt -> its reasoning.
        anew: whether it reasons again where it is given the beginning of an answer.
        asked: the requests that it was sent.
    """

    thoughts: Mapping[str, str]
    anew: bool = False
    asked: list[Request] = field(default_factory=list)
    name: str = "thinker"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "thinker"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        self.asked.extend(requests)
        return [self._said(request) for request in requests]

    def _said(self, request: Request) -> Reply:
        own = self.thoughts[request.messages[-1].content]
        begun = request.prefill.removeprefix("<think>\n").partition("\n</think>")[0]
        word = re.findall(r"UP|DOWN|LEFT|RIGHT", own if self.anew else begun or own)[0]
        anew = f"{own}</think>" if begun and self.anew else ""  # a server that reasons again after its reasoning
        return Reply.of(f'{anew}{{"action": "{word}"}}', reasoning=begun or own)


def _thinking(agent: ChatAgent, pair: Pair, *, anew: bool = False) -> tuple[ChatAgent, list[Request]]:
    """Return an agent that reasons about both sides of a pair as another one did, and what it is going to be asked."""
    told = {side.view: CachedAgent(agent, 40).reasoning_of(side.view) for side in pair.sides}
    blank = replace(agent, model=Thinker(thoughts={}))
    thoughts = {blank.messages(Observation(view=view))[-1].content: one.reasoning for view, one in told.items() if one}
    model = Thinker(thoughts=thoughts, anew=anew)
    return replace(agent, model=model), model.asked


def test_what_a_server_wrote_is_kept_and_one_that_begins_anew_is_refused(
    agent: ChatAgent, pair: Pair, tmp_path: Path
) -> None:
    behind, asked = _thinking(agent, pair)
    for _ in range(2):
        with Store(tmp_path, "w") as store:
            one = CachedAgent.stored(behind, 40, store)
            one.check_continues(pair)
            edits = edits_of(one, pair, ("own", "plan"), 0)
            own, plan = one.write_on([(pair.sides[0].view, edit.prefill) for edit in edits])
        assert action_of(own) in pair.sides[0].optimal and action_of(plan) in pair.sides[1].optimal
        assert len(asked) == 5, "what it thinks of both sides, the trial, two edits: none of them twice"
    with pytest.raises(ValueError, match="continue_final_message"):
        CachedAgent(_thinking(agent, pair, anew=True)[0], 40).check_continues(pair)


def test_a_chat_server_continues_the_last_message() -> None:
    model = speaker()
    begun = "<think>\nwest\n</think>\n\n"
    request = Request(messages=(Message(role="user", content="where"),), key=(0, "e", 0, 0), prefill=begun)
    with Loopback(model) as server:
        http = HttpModel("speaker", server={"base_url": server.url}, reasoning="none")
        (said,) = http.complete([request], Sampling(temperature=0.0, max_tokens=4, reasoning_effort=None))
        body = server.log[-1].body
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False
    assert body["messages"][-1] == {"role": "assistant", "content": begun}
    assert said.reasoning == "west"
