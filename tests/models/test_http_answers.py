"""Answers in which a server left the model's own markers: taken apart by them, or a failure with that name."""

from typing import Any

import pytest
from server import Loopback, speaker
from tiny_models import request

from goalscope.agents.models import HttpModel, Reply, Sampling, Server
from goalscope.agents.models.http_answers import Served, chat_answer, continued
from goalscope.agents.models.http_settings import GarbledError
from goalscope.agents.parse import turn
from goalscope.worlds import Action

UP = '{"action": "UP"}'
DOWN = '{"action": "DOWN"}'
CUT = [  # what the server says, and the answer and the reasoning in it
    (f"analysisNot {DOWN}, since that is a wall.assistantfinal{UP}", UP, f"Not {DOWN}, since that is a wall."),
    (f"analysisto (2,5) by {DOWN}.assistantfinal{UP}", UP, f"to (2,5) by {DOWN}."),
    (f"analysis so {DOWN}.assistantfinal{UP}", UP, f" so {DOWN}."),
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
PLAIN = [
    UP,
    f"finally {UP}",
    f"The final answer is {UP}",
    f"analysis: none\n{UP}",
    f"Finally, as an assistant, {UP}",
    f"<grid> {UP}",
]


def answered(said: dict[str, Any], **settings: Any) -> Any:
    body = {"choices": [{"message": said, "finish_reason": "stop"}]}
    with Loopback(speaker(), override=body) as server:
        model = HttpModel("speaker", server=Server(base_url=server.url, timeout=5), **settings)
        (found,) = model.complete([request("#_")], Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None))
    return found


@pytest.mark.parametrize(("said", "answer", "reasoning"), CUT)
def test_an_answer_is_taken_apart_by_the_models_own_markers(said: str, answer: str, reasoning: str | None) -> None:
    found = answered({"content": said})
    assert (found.answer, found.reasoning) == (answer, reasoning)
    act = turn(found)
    assert act.action is not None and act.action == Action.UP and act.failure is None


@pytest.mark.parametrize("said", LEFT)
def test_an_answer_whose_markers_do_not_take_it_apart_is_a_failure_with_that_name(said: str) -> None:
    found = answered({"content": said})
    assert found.answer == said, "what arrived is kept as it is"
    assert (turn(found).action, turn(found).failure) == (None, "markers")


@pytest.mark.parametrize("said", PLAIN)
def test_an_answer_without_markers_stays_what_it_is(said: str) -> None:
    found = answered({"content": said})
    assert (found.answer, found.reasoning, turn(found).failure) == (said, None, None)


def test_two_final_messages_contradict_each_other() -> None:
    found = answered({"content": f"analysisHm.assistantfinal{UP}assistantfinal{DOWN}"})
    assert turn(found).failure == "two different actions"


def test_reasoning_that_the_server_keeps_apart_stands_before_what_it_left_in_the_text() -> None:
    found = answered({"content": f"b</think>{UP}", "reasoning_content": "a"})
    assert (found.answer, found.reasoning) == (UP, "a\nb")


def test_a_study_that_says_there_is_no_reasoning_reads_no_action_beside_markers() -> None:
    found = answered({"content": f"<think>{DOWN}</think>{UP}"}, reasoning="none")
    assert found.reasoning is None and turn(found).failure == "markers"


@pytest.mark.parametrize("beside", [True, False], ids=["beside the choices", "in the choice"])
def test_token_ids_of_a_chat_are_read_where_servers_put_them_and_checked(beside: bool) -> None:
    def read(prompt: Any, output: Any, **usage: int) -> Any:
        choice = {"message": {"content": UP}, "finish_reason": "stop", "token_ids": output}
        body: dict[str, Any] = {"choices": [choice], "usage": usage}
        (body if beside else choice)["prompt_token_ids"] = prompt
        return chat_answer(body, None)

    found = read([7, 8], [1, 2, 3], prompt_tokens=2, completion_tokens=3)
    assert (found.reply.prompt_tokens, found.reply.output_tokens) == ((7, 8), (1, 2, 3))
    assert read(None, None, prompt_tokens=2).reply.output_tokens is None
    for prompt, output in (([-1], [1]), ([1.5], [1]), ([2**40], [1]), (["7"], [1]), ({"7": 8}, [1]), ([7], "12")):
        with pytest.raises(GarbledError):
            read(prompt, output)
    for counts in ({"prompt_tokens": 3, "completion_tokens": 1}, {"prompt_tokens": 2, "completion_tokens": 9}):
        with pytest.raises(ValueError, match="token ids"):
            read([7, 8], [1], **counts)


THOUGHT = "<think>\nby the wall\n</think>\n\n"


@pytest.mark.parametrize(
    ("reasoning", "text", "action", "thought"),
    [
        (None, UP, Action.UP, "by the wall"),  # the rest alone
        (None, THOUGHT + UP, Action.UP, "by the wall"),  # all of it again
        ("by the wall", UP, Action.UP, "by the wall"),  # all of it again, taken apart
        (UP, "", Action.UP, "by the wall"),  # the rest, taken for reasoning
        ("by the door", UP, None, "by the wall"),  # another answer
    ],
)
def test_a_continued_answer_is_read_however_it_is_handed_over_and_another_one_is_none(
    reasoning: str | None, text: str, action: Action | None, thought: str
) -> None:
    served = Served(reply=Reply.of(text, reasoning=reasoning), prompt_count=1, output_count=1, reasoning_count=None)
    said = Reply(**continued(THOUGHT, served))
    assert (turn(said).action, (said.reasoning or "").partition("\n")[0]) == (action, thought)
