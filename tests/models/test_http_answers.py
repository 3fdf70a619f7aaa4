"""Answers in which a server left the model's own markers: taken apart by them, or a failure with that name."""

from typing import Any

import pytest
from server import Loopback, speaker
from tiny_models import request

from goalscope.agents.chat import turn
from goalscope.models import HttpModel, Sampling, Server
from goalscope.worlds import Action

UP = '{"action": "UP"}'
DOWN = '{"action": "DOWN"}'
CUT = [  # what the server says, and the answer and the reasoning in it
    (f"analysisNot {DOWN}, since that is a wall.assistantfinal{UP}", UP, f"Not {DOWN}, since that is a wall."),
    (f"analysisFirst.assistantanalysisSecond.assistantfinal{UP}", UP, "First.\nSecond."),
    (f"final{UP}", UP, None),
    (f"<|channel|>analysis<|message|>{DOWN}?<|end|><|start|>assistant<|channel|>final<|message|>{UP}", UP, f"{DOWN}?"),
    (f"<|channel|>final<|message|>{UP}<|return|>", UP, None),
    (f"<think>{DOWN}</think>\n\n{UP}", UP, DOWN),
    (f"\n{DOWN}</think>{UP}", UP, DOWN),
    (f"So. <think>{DOWN}</think>{UP}", f"So. {UP}", DOWN),
]
LEFT = [
    f"The analysisassistantfinal{UP}",
    f"{UP}<|im_end|>",
    f"<|start_header_id|>assistant{UP}",
    f"[THINK]{DOWN}[/THINK]{UP}",
    f"◁think▷{DOWN}◁/think▷{UP}",
    f"<｜Assistant｜>{UP}",
    f"{UP}<|end|>",
    f"{DOWN}</think>so</think>{UP}",
    f"<think>a<think>{DOWN}</think>{UP}",
]
PLAIN = [UP, f"The final answer is {UP}", f"analysis: none\n{UP}", f"Finally, as an assistant, {UP}", f"<grid> {UP}"]


def answered(said: dict[str, Any], **settings: Any) -> Any:
    body = {"choices": [{"message": said, "finish_reason": "stop"}]}
    with Loopback(speaker(), override=body) as server:
        model = HttpModel("speaker", server=Server(base_url=server.url, timeout=5), **settings)
        (found,) = model.complete([request("#_")], Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None))
    return found


@pytest.mark.parametrize(("said", "answer", "reasoning"), CUT)
def test_an_answer_is_taken_apart_by_the_models_own_markers(said: str, answer: str, reasoning: str | None) -> None:
    found = answered({"content": said})
    assert (found.text, found.reasoning, found.marked) == (answer, reasoning, False)
    act = turn(found)
    assert act.action is not None and act.action == Action.UP and act.failure is None


@pytest.mark.parametrize("said", LEFT)
def test_an_answer_whose_markers_do_not_take_it_apart_is_a_failure_with_that_name(said: str) -> None:
    found = answered({"content": said})
    assert found.text == said, "what arrived is kept as it is"
    assert (turn(found).action, turn(found).failure) == (None, "markers")


@pytest.mark.parametrize("said", PLAIN)
def test_an_answer_without_markers_stays_what_it_is(said: str) -> None:
    found = answered({"content": said})
    assert (found.text, found.reasoning, turn(found).failure) == (said, None, None)


def test_two_final_messages_contradict_each_other() -> None:
    found = answered({"content": f"analysisHm.assistantfinal{UP}assistantfinal{DOWN}"})
    assert turn(found).failure == "two different actions"


def test_reasoning_that_the_server_keeps_apart_stands_before_what_it_left_in_the_text() -> None:
    found = answered({"content": f"b</think>{UP}", "reasoning_content": "a"})
    assert (found.text, found.reasoning) == (UP, "a\nb")


def test_a_study_that_says_there_is_no_reasoning_reads_no_action_beside_markers() -> None:
    found = answered({"content": f"<think>{DOWN}</think>{UP}"}, reasoning="none")
    assert found.reasoning is None and turn(found).failure == "markers"
