"""Constrained choice: how an action is drawn by the likelihoods of answers, what is stored, what is refused."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_chat import FOGGED, GRID, KEYED, Scripted, text

from goalscope.agents import ChatAgent, Observation, Past, TaskChatAgent, agent_id, build_agent
from goalscope.agents.chat import Choice, answers_of, chosen, content_free, policy_of
from goalscope.agents.models import Likelihoods, Reply, Request, Sampling
from goalscope.agents.parse import LITTLE_MASS
from goalscope.runs import Store, Study, export_parquet, run
from goalscope.worlds import Action, GridView

LOGPROBS = (math.log(0.4), math.log(0.2), math.log(0.1), math.log(0.1))
VIEW = Observation(view=GridView(grid=GRID))
DEFAULT = Sampling(temperature=1.0)
CHAT: dict[str, Any] = {"model": "theseus", "answer": "likelihood"}


@dataclass
class Scoring(Scripted):
    """A model that finds answers as likely as it was told, less so where a grid shows nothing."""

    logprobs: tuple[float, ...] = LOGPROBS
    blank: tuple[float, ...] = LOGPROBS
    scored: list[Request] = field(default_factory=list)

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        self.scored += requests
        said = Reply.of("UP?", reasoning="hm", finish="stop") if reasoned else None
        return [
            Likelihoods(
                logprobs=self.blank if "? ?" in one.messages[-1].content else self.logprobs,
                beginning=-1.5,
                prompt_tokens=(1, 2),
                outputs=tuple((3, index) for index in range(len(one.answers))),
                reasoned=said,
                usage={"prompt_tokens": 2, "seconds": 0.5},
                unsupported=("reasoning_effort",),
            )
            for one in requests
        ]


def agent(model: Scoring | None = None, *, temperature: float = 1.0, **choice: Any) -> ChatAgent:
    return ChatAgent(
        model=model or Scoring(), sampling=Sampling(temperature=temperature), choice=Choice(**choice), template="schema"
    )


def test_a_policy_is_the_renormalised_likelihoods_at_the_temperature() -> None:
    assert policy_of(LOGPROBS, None, 1.0) == pytest.approx([0.5, 0.25, 0.125, 0.125])
    assert policy_of(LOGPROBS, None, 0.5) == pytest.approx(np.array([16, 4, 1, 1]) / 22)
    assert policy_of((0.0, 1.0, 1.0), None, 0.0) == [0.0, 1.0, 0.0], "the first of the most likely ones"
    assert policy_of(LOGPROBS, LOGPROBS, 0.7) == pytest.approx([0.25] * 4), "the prior is all there is"
    assert policy_of((-800.0, -801.0), None, 1.0) == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)])


def test_the_turn_holds_action_answer_policy_and_mass() -> None:
    (turn,) = agent(temperature=0.0).act([VIEW])
    assert turn.action == Action.UP and turn.text == '{"action": "UP"}'
    assert turn.prompt_tokens == (1, 2) and turn.output_tokens == (3, 0)
    assert turn.extra["policy"] == [1.0, 0.0, 0.0, 0.0]
    told = turn.extra["likelihood"]
    assert told["mass"] == pytest.approx(0.8) and told["beginning"] == -1.5 and told["logprobs"] == list(LOGPROBS)
    assert turn.extra["unsupported"] == ["reasoning_effort"]


def test_actions_are_drawn_with_the_frequencies_of_the_policy() -> None:
    draws = 2000
    seen = [replace(VIEW, episode_id=f"episode {number}") for number in range(draws)]
    counts = Counter(turn.action for turn in agent().act(seen))
    for action, wanted in zip(Action, (0.5, 0.25, 0.125, 0.125), strict=True):
        assert abs(counts[action] / draws - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / draws)
    assert agent().act(seen[:50]) == agent().act(seen)[:50], "a turn depends on itself alone"


def test_with_little_mass_a_turn_is_invalid_and_its_mass_is_stored() -> None:
    (turn,) = agent(least_mass=0.81).act([VIEW])
    assert (turn.action, turn.failure) == (None, LITTLE_MASS)
    assert turn.extra["likelihood"]["mass"] == pytest.approx(0.8) and "policy" not in turn.extra
    (turn,) = agent(least_mass=0.79).act([VIEW])
    assert turn.failure is None


def test_the_prior_is_read_where_the_grid_shows_nothing() -> None:
    model = Scoring(blank=(LOGPROBS[0], *LOGPROBS[2:], LOGPROBS[1]))
    (turn,) = agent(model, prior_symbol="?").act([VIEW])
    assert turn.extra["policy"] == pytest.approx(np.array([1, 2, 1, 0.5]) / 4.5)
    assert turn.extra["likelihood"]["prior"] == list(model.blank)
    assert turn.usage == {"prompt_tokens": 4, "seconds": 1.0}
    plain, blank = (one.messages[-1].content for one in model.scored)
    shown, hidden = GRID.render(), "  0 1 2 3 4\n0 ? ? ? ? ?\n1 ? ? ? ? ?\n2 ? ? ? ? ?"
    assert plain.count(shown) == 1 and plain.replace(shown, hidden) == blank, "nothing else differs"
    past = Past(view=GridView(grid=FOGGED), action=Action.UP)
    seen = content_free(Observation(view=GridView(grid=KEYED.at(held=("K",))), history=(past,)), ".")
    assert set(seen.view.text + seen.history[0].view.text) <= set(" \n0123456789.")
    assert seen.carrying_key and seen.history[0].action == Action.UP


def test_after_reasoning_the_generated_answer_is_kept_beside_the_choice() -> None:
    (turn,) = agent(after="reasoning", temperature=0.0).act([VIEW])
    assert (turn.reasoning, turn.extra["generated"], turn.text) == ("hm", "UP?", '{"action": "UP"}')
    cut = Reply.of("", reasoning="hm", finish="length", output_tokens=(5,))
    ended = replace(cut, finish="stop")
    for reasoned, failure in ((cut, "truncated"), (ended, "empty")):
        found = Likelihoods(logprobs=(), reasoned=reasoned)
        turn = chosen(Choice(after="reasoning"), DEFAULT, found, None, VIEW)
        assert (turn.action, turn.failure, turn.output_tokens) == (None, failure, (5,))


def test_a_choice_is_another_agent_by_id_name_and_tag() -> None:
    generated = build_agent("chat", {"model": "theseus"})
    made = [build_agent("chat", {**CHAT, **more}) for more in ({}, {"least_mass": 0.2}, {"answer_after": "reasoning"})]
    made.append(build_agent("chat", {**CHAT, "prior_symbol": "?"}))
    assert len({agent_id(one) for one in (generated, *made)}) == 5
    assert build_agent("chat", {"model": "theseus", "answer": "generated"}).describe() == generated.describe()
    assert "answer" not in generated.describe(), "agents of earlier versions keep their ids"
    assert [one.name.removeprefix(generated.name) for one in made] == [
        " (likelihood)",
        " (likelihood)",
        " (likelihood after reasoning)",
        " (likelihood, prior taken off)",
    ]
    assert {one.tags["answer"] for one in made} == {"likelihood"} and "answer" not in generated.tags  # type: ignore[attr-defined]
    task = build_agent("task-chat", {"model": "ariadne", "answer": "likelihood", "memory": True})
    assert task.name.endswith("(base, memory, likelihood)")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"answer": "likely"}, "one of generated, likelihood"),
        ({"answer": "generated", "least_mass": 0.5}, "least_mass .*answer: likelihood"),
        ({"prior_symbol": "?", "answer": "generated"}, "prior_symbol works only"),
        ({"answer_after": "thought"}, "answer_after must be one of prompt, reasoning"),
        ({"least_mass": 1.5}, "least_mass must be a probability"),
        ({"least_mass": "much"}, "least_mass of a chat agent must be a number"),
        ({"prior_symbol": "??"}, "prior_symbol must be one"),
        ({"prior_symbol": "7"}, "not a digit"),
        ({"prior_symbol": "#"}, "prior_symbol must not be"),
        ({"prior_symbol": "?", "answer_after": "reasoning"}, "answer_after: reasoning"),
        ({"top_logprobs": 3}, "top_logprobs must be 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_agent("chat", {**CHAT, **parameters})


def test_models_and_worlds_that_cannot_be_chosen_in_are_refused() -> None:
    with pytest.raises(ValueError, match="returns likelihoods"):
        ChatAgent(model=Scripted(), choice=Choice())
    with pytest.raises(ValueError, match="reasoned"):
        TaskChatAgent(model=Scoring(), choice=Choice(), reasoned=True)
    with pytest.raises(ValueError, match="prior_symbol"):
        TaskChatAgent(model=Scoring(), choice=Choice(prior_symbol="?"))
    shown = text(agent(), VIEW)
    assert shown and agent(prior_symbol="?").needs is GridView


def study(worlds: dict[str, Any], **parameters: Any) -> Study:
    return Study.parse({"worlds": [worlds], "agents": [parameters], "trajectories": 1})


def test_policies_go_into_the_store_and_out_of_it(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    worlds = {"kind": "grid", "sizes": [7], "densities": [0.0], "count": 2}
    asked = study(worlds, kind="chat", template="schema", answer_after="reasoning", max_tokens=96, **CHAT)
    run(asked, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        steps = [step for episode in store.episodes() for step in episode.steps]
        assert {episode.tags["answer"] for episode in store.episodes()} == {"likelihood"}
        paths = export_parquet(store, tmp_path / "tables")
    table = parquet.read_table(paths["steps"]).to_pydict()
    assert table["policy"] == [step.extra["policy"] for step in steps] and len(steps) > 1
    for step, policy in zip(steps, table["policy"], strict=True):
        assert sum(policy) == pytest.approx(1.0) and policy[step.action] > 0
        assert step.extra["likelihood"]["mass"] > 0.99, "after its reasoning Theseus names an action"
        assert step.extra["generated"] in answers_of(("UP", "DOWN", "LEFT", "RIGHT"))


def test_task_worlds_are_chosen_in_by_the_names_of_directions(tmp_path: Path) -> None:
    asked = study(
        {"kind": "task-map", "presets": ["low-small"], "count": 1},
        kind="task-chat",
        model="ariadne",
        answer="likelihood",
        least_mass=0.0,
    )
    run(asked, tmp_path / "run", agents=[TaskChatAgent(model=Scoring(), choice=Choice())])
    with Store(tmp_path / "run") as store:
        (episode,) = store.episodes()
    assert {step.text for step in episode.steps} <= set(answers_of(("up", "down", "left", "right")))
    assert all(step.extra["policy"] == pytest.approx(policy_of(LOGPROBS, None, 0.7)) for step in episode.steps)
