"""What a reply is made of, and what of it the parser sees: families of marks, replies that were cut off, calls."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from server import Loopback
from server_modes import MODES
from tiny_models import PLAIN_TEMPLATE, llama, request, tokenizer

from goalscope.agents.agent import Turn
from goalscope.agents.models import HttpModel, LocalModel, Message, Part, Reply, Sampling, Server
from goalscope.agents.models.abilities import ServerNeeds, apply_report, check_server
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.http_errors import ending
from goalscope.agents.models.local import Answering
from goalscope.agents.parse import CALLED, END_TOKEN, IN_REASONING, TAGS, cause_of, turn
from goalscope.verdict.preflight.first_turns import FirstTurns, without_action
from goalscope.worlds import Action

UP = '{"action": "UP"}'
DOWN = '{"action": "DOWN"}'
NOT_THAT = f"If I say {UP} I hit the wall, so not that. Then"
COLD = Sampling(temperature=0.0, max_tokens=40, reasoning_effort=None)


def answered(
    content: Any,
    finish: Any = "stop",
    *,
    usage: Any = None,
    settings: Any = None,
    choice: Any = None,
    server: Any = None,
    **message: Any,
) -> Reply:
    """Return the reply of a server that answers with one message."""
    said = {"role": "assistant", "content": content, **message}
    body = {"choices": [{"message": said, "finish_reason": finish, **(choice or {})}], "usage": usage or {}}
    with Loopback(None, override=body, models=("speaker",)) as loopback:
        client = Server(base_url=loopback.url, timeout=5, **(server or {}))
        model = HttpModel("speaker", server=client, **(settings or {}))
        (reply,) = model.complete([request("#_")], COLD)
    return reply


# The type


def test_a_reply_is_read_by_its_parts() -> None:
    parts = (
        Part(kind="reasoning", text="a"),
        Part(kind="answer", text="b"),
        Part(kind="call", text="c"),
        Part(kind="answer", text="d"),
    )
    reply = Reply(parts=parts)
    assert (reply.reasoning, reply.answer, reply.call) == ("a", "b\nd", "c")
    assert (Reply().reasoning, Reply().answer, Reply().call) == (None, "", None)
    assert Reply.of("b", reasoning="a", finish="length") == Reply(parts=parts[:2], finish="length")


@pytest.mark.parametrize(
    "values",
    [
        {"finish": "ended"},
        {"finish": "failed"},
        {"finish": "called"},
        {"error": "no reason"},
        {"redraws": -1},
        {"redraws": True},
    ],
)
def test_values_that_do_not_fit_together_are_no_reply(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"repl|redraws"):
        Reply(**values)


def test_parts_of_a_reply_have_known_kinds_and_texts() -> None:
    with pytest.raises(ValueError, match="thought"):
        Part(kind="thought", text="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="NoneType"):
        Part(kind="answer", text=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Part"):
        Reply(parts=("a",))  # type: ignore[arg-type]


def test_a_failed_reply_is_no_turn() -> None:
    with pytest.raises(ValueError, match="the upstream is down"):
        turn(Reply(finish="failed", error="the upstream is down"))


# Servers


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize(
    "begin",
    [
        "<|channel>thought\n",
        "<seed:think>",
        "[THINK]",
        "◁think▷",
        "<|START_THINKING|>",
        "<thought>",
        "<ruminate>",
        "<think>",
    ],
)
def test_reasoning_in_marks_of_any_family_states_no_action(begin: str, finish: str) -> None:
    found = turn(answered(begin + NOT_THAT, finish))
    assert found.action is None and found.failure in ("markers", "truncated", "empty")


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
@pytest.mark.parametrize(
    ("text", "action"),
    [
        (NOT_THAT, None),
        (f"Okay. {UP}", None),
        (f"```json\n{UP}\n``` is what", Action.UP),
        (f"{UP} since the goal", Action.UP),
        (UP, Action.UP),
        (f"{UP}<think>no, since", None),
    ],
)
def test_a_reply_cut_at_the_limit_states_an_action_where_it_begins_with_it(
    text: str, action: Action | None, finish: str
) -> None:
    reply = answered(text, finish)
    assert (reply.finish, turn(reply).action) == ("length", action)


@pytest.mark.parametrize("finish", ["stop", None, "eos_token", "end_turn"])
def test_an_answer_before_reasoning_that_is_never_closed_states_no_action(finish: str | None) -> None:
    for text in (f"{UP}<think>no, since", f"<think>so</think>{UP}<think>wait:", f"{UP} <think> no: {DOWN}"):
        found = turn(answered(text, finish))
        assert (found.action, found.failure) == (None, "truncated")
    assert turn(answered(f"<think>so</think>{UP}", finish)).action == Action.UP


def test_a_reply_of_as_many_tokens_as_it_may_have_was_cut_off() -> None:
    full = {"prompt_tokens": 3, "completion_tokens": 40}
    assert (answered(NOT_THAT, usage=full).finish, turn(answered(NOT_THAT, usage=full)).failure) == (
        "length",
        "truncated",
    )
    assert turn(answered(UP, usage=full)).action == Action.UP, "the whole text is the action"
    stopped = answered(NOT_THAT, usage=full, choice={"stop_reason": 2})
    assert stopped.finish == "stop", "the server names the token that ended it"
    assert answered(NOT_THAT, usage={**full, "completion_tokens": 39}).finish == "stop"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        *((reason, None) for reason in (None, 7, "", "stop", "eos_token", "end_turn", "tool_calls", "COMPLETE")),
        *((reason, "length") for reason in ("length", "MAX_TOKENS", "model_length", "max_output_tokens")),
        *((reason, "length") for reason in ("model_context_window_exceeded", "ERROR_LIMIT", "token-limit")),
        *(
            (reason, "withheld")
            for reason in ("content_filter", "content-filter", "contentFilter", "SAFETY", "refusal")
        ),
        *((reason, "withheld") for reason in ("RECITATION", "PROHIBITED_CONTENT", "sensitive", "ERROR_TOXIC", "SPII")),
        *((reason, "withheld") for reason in ("guardrail_intervened", "IMAGE_SAFETY", "BLOCKLIST")),
        *((reason, "failed") for reason in ("error", "ERROR", "abort", "cancelled", "USER_CANCEL", "network_error")),
        *((reason, "failed") for reason in ("insufficient_system_resource", "TIMEOUT", "timed_out", "failed")),
    ],
)
def test_servers_say_in_words_of_their_own_how_a_reply_ended(reason: Any, expected: str | None) -> None:
    assert ending(reason) == expected


@pytest.mark.parametrize("reason", ["network_error", "TIMEOUT", "ERROR"])
def test_a_reply_that_the_server_did_not_finish_is_no_turn(reason: str) -> None:
    with pytest.raises(ConnectionError, match=f"finish_reason: {reason.lower()}"):
        answered('{"act', reason, server={"retries": 1, "backoff": 0.001})


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ({"detail": "The door is closed"}, ConnectionError),
        ({"detail": [{"loc": ["body"], "msg": "The door is closed"}]}, ConnectionError),
        ({"errors": [{"message": "The door is closed"}]}, ConnectionError),
        ({"errors": ["The door is closed"]}, ConnectionError),
        ({"status": 500, "title": "The door is closed"}, ConnectionError),
        ({"message": "The door is closed", "code": 429}, ConnectionError),
        ({"message": "The door is closed", "code": "403"}, PermissionError),
        ({"error": {"message": "The door is closed", "code": "404"}}, ValueError),
        ({"errors": [{"message": "The door is closed", "status": 404}]}, ValueError),
        ({"detail": {"message": "The door is closed", "code": 401}, "choices": None}, PermissionError),
    ],
)
def test_an_error_without_choices_is_quoted_wherever_it_stands(
    body: Mapping[str, Any], raised: type[Exception]
) -> None:
    with Loopback(None, override=body, models=("speaker",)) as server:
        settings = Server(base_url=server.url, timeout=5, retries=1, backoff=0.001)
        with pytest.raises(raised, match="The door is closed"):
            HttpModel("speaker", server=settings).complete([request("#_")], COLD)
        assert len(server.settled()) == (2 if raised is ConnectionError else 1)


def test_a_call_is_never_an_action() -> None:
    call = {"type": "function", "function": {"name": "move", "arguments": UP}}
    for finish in ("tool_calls", "stop"):
        reply = answered(None, finish, tool_calls=[call])
        assert (reply.finish, reply.answer, turn(reply).failure, turn(reply).action) == ("called", "", CALLED, None)
        assert json.loads(str(reply.call)) == {"name": "move", "arguments": UP}
    old = answered(None, "function_call", function_call={"name": "move", "arguments": UP})
    assert (turn(old).failure, turn(old).action) == (CALLED, None)
    assert turn(answered(f"I call. {DOWN}", "tool_calls", tool_calls=[call])).action is None


def test_thinking_in_parts_of_the_content_is_reasoning() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": f"Not {DOWN}."}]}
    reply = answered([thought, {"type": "text", "text": UP}])
    assert (reply.reasoning, reply.answer, turn(reply).action) == (f"Not {DOWN}.", UP, Action.UP)


@pytest.mark.parametrize(
    ("open_tag", "close_tag"),
    [
        ("<|channel>thought", "<channel|>"),
        ("[THINK]", "[/THINK]"),
        ("<ruminate>", "</ruminate>"),
        ("Thoughts:", "Answer:"),
    ],
)
def test_a_study_gives_the_tags_of_a_model_behind_a_server(open_tag: str, close_tag: str) -> None:
    settings = {"reasoning": {"open": open_tag, "close": close_tag}}
    reply = answered(f"{open_tag}\nNot {DOWN}.\n{close_tag}\n{UP}", settings=settings)
    assert (reply.reasoning, reply.answer, turn(reply).action) == (f"Not {DOWN}.", UP, Action.UP)
    cut = answered(f"{open_tag}\nNot {DOWN}.", "length", settings=settings)
    assert (cut.answer, turn(cut).failure) == ("", "truncated")


def http(**settings: Any) -> HttpModel:
    return HttpModel("speaker", server={"base_url": "http://127.0.0.1:9/v1"}, **settings)


def test_tags_are_part_of_the_identity_and_checked() -> None:
    tags = {"open": "<a>", "close": "</a>"}
    assert http(reasoning=tags).describe()["reasoning"] == tags != http().describe()["reasoning"]
    for wrong in (
        {"open": "<a>"},
        {"open": "<a>", "close": "<a>"},
        {"open": " ", "close": "b"},
        {"open": 1, "close": "b"},
    ):
        with pytest.raises(ValueError, match="reasoning"):
            http(reasoning=wrong)


def test_thinking_is_switched_through_a_server() -> None:
    with Loopback(None, mode=MODES["plain"], models=("speaker",)) as server:
        for thinking in (False, True, None):
            model = HttpModel("speaker", server={"base_url": server.url}, thinking=thinking)
            model.complete([request("#_")], COLD)
        kwargs = [entry.body.get("chat_template_kwargs") for entry in server.log if "messages" in entry.body]
    assert kwargs == [{"enable_thinking": False}, {"enable_thinking": True}, None]
    same = http(template_options={"enable_thinking": False}).describe()
    assert http(thinking=False).describe() == same != http().describe()
    with pytest.raises(ValueError, match=r"template_options\.enable_thinking"):
        http(thinking=False, template_options={"enable_thinking": True})


# Advice


NEEDS = ServerNeeds(sampling=COLD, messages=(Message(role="user", content="#_"),), answers=(UP, DOWN))


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        ({"content": None, "reasoning": UP}, ["--reasoning-parser", "enable_thinking: false"]),
        ({"content": "", "reasoning_content": f"So {UP}"}, ["--reasoning-parser", "thinking: false"]),
        ({"content": None, "tool_calls": [{"function": {"name": "move", "arguments": UP}}]}, ["tools"]),
        ({"content": f"{UP}<|im_end|>"}, ['stop: ["<|im_end|>"]']),
        ({"content": f"<|channel>thought\n{DOWN}?<channel|>{UP}"}, ['open: "<|channel>thought", close: "<channel|>"']),
        ({"content": f"[THINK]Not {DOWN}.[/THINK]{UP}"}, ['open: "[THINK]", close: "[/THINK]"']),
    ],
)  # fmt: skip
def test_a_server_is_refused_with_the_advice_that_helps(message: dict[str, Any], facts: list[str]) -> None:
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}}
    with Loopback(None, override=body, models=("speaker",)) as server:
        model = HttpModel("speaker", server={"base_url": server.url, "timeout": 5.0})
        report = check_server(model, NEEDS)
        with pytest.raises(ValueError, match="first call") as refused:
            apply_report(model, NEEDS, report)
    assert all(fact in str(refused.value) for fact in facts)


def failed(failure: str, text: str = "", **others: Any) -> Turn:
    return Turn(action=None, failure=failure, text=text, **others)


@pytest.mark.parametrize(
    ("found", "cause", "facts"),
    [
        (failed("empty", reasoning=UP), IN_REASONING, ["--reasoning-parser", "thinking=false"]),
        (failed("markers", f"{UP}</s>"), END_TOKEN, ['stop: ["</s>"]']),
        (failed("markers", f"<thought>a</thought>{UP}"), TAGS, ['open: "<thought>", close: "</']),
        (failed(CALLED), None, ["tools"]),
        (failed("empty", reasoning="We go up."), None, ["--answer likelihood"]),
    ],
)  # fmt: skip
def test_advice_follows_from_what_the_reply_was(found: Turn, cause: str | None, facts: list[str]) -> None:
    why = cause_of(found, ("UP", "DOWN", "LEFT", "RIGHT"))
    assert (why and why.name) == cause
    first = FirstTurns(
        asked=5,
        failures={str(found.failure): 5},
        causes={} if why is None else {why.name: 5},
        marks=() if why is None else why.marks,
    )
    said = without_action(first)
    assert all(fact in said for fact in facts)
    assert cause is None or "likelihood" not in said


def test_what_an_agent_uses_already_is_not_advised() -> None:
    first = FirstTurns(asked=5, failures={"no JSON": 5})
    assert "--template example" in without_action(first) and "--answer likelihood" in without_action(first)
    first = first.model_copy(update={"used": ("example",)})
    assert "--template example" not in without_action(first) and "--answer likelihood" in without_action(first)
    first = first.model_copy(update={"used": ("example", "likelihood")})
    assert "--template" not in without_action(first) and "--answer" not in without_action(first)


# Local models


FAMILIES = {  # a chat template's way to write reasoning, and the tokens of the vocabulary
    "gemma": ("<|channel>thought\n", "<channel|>", ("<|channel>", "<channel|>")),
    "seed": ("<seed:think>", "</seed:think>", ("<seed:think>", "</seed:think>")),
    "mistral": ("[THINK]", "[/THINK]", ("[THINK]", "[/THINK]")),
    "plain text": ("<ruminate>\n", "\n</ruminate>\n", ()),
}


def local(family: str, template: str = "", **settings: Any) -> LocalModel:
    open_text, close_text, added = FAMILIES[family]
    thought = f"{{% if m.reasoning_content %}}{open_text}{{{{ m.reasoning_content }}}}{close_text}{{% endif %}}"
    written = PLAIN_TEMPLATE.replace("{{ m.content }}", thought + "{{ m.content }}")
    return LocalModel.from_parts(llama(), tokenizer(written + template, added=added), name=family, **settings)


def replied(model: Answering, text: str, finish: Any = "stop") -> Reply:
    """Return the reply of a model that has decoded a text."""
    prompt = model.render([Message(role="user", content="go")], COLD)
    output = Decoded(tokens=[*model.encode(text), *([1] if finish == "stop" else [])], finish=finish)
    return model.reply(prompt, model.encode(prompt), output, COLD)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_local_model_is_read_by_the_marks_of_its_template(family: str) -> None:
    model, (open_text, close_text, _) = local(family), FAMILIES[family]
    assert (model.marks.open, model.marks.close) == (open_text.strip(), close_text.strip())
    whole = replied(model, f"{open_text}Not {DOWN}.{close_text}{UP}")
    assert (whole.reasoning, whole.answer, turn(whole).action) == (f"Not {DOWN}.", UP, Action.UP)
    for finish in ("length", "stop"):
        cut = replied(model, open_text + NOT_THAT, finish)
        assert (cut.answer, cut.reasoning, turn(cut).action) == ("", NOT_THAT, None)
    assert model.opening(model.render([Message(role="user", content="go")], COLD)) == open_text + close_text


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "plain text"])
def test_the_place_of_the_answer_is_found_by_the_closing_tag(family: str) -> None:
    model, (open_text, close_text, _) = local(family), FAMILIES[family]
    tokens = model.encode(f"{open_text}so{close_text}{UP}")
    place = model.answer_place("", tokens)
    assert place == (model.encode(f"{open_text}so"), close_text)
    assert model.answer_place("", model.encode(f"{open_text}so")) is None


def test_marks_of_another_family_are_no_answer_of_a_local_model() -> None:
    model = LocalModel.from_parts(llama(), tokenizer(PLAIN_TEMPLATE, added=()), reasoning="none")
    for text in ("<|channel>thought\n", "[THINK]", "<think>", "<|START_THINKING|>"):
        assert turn(replied(model, text + NOT_THAT)).failure == "markers"
    assert turn(replied(model, NOT_THAT, "length")).failure == "truncated"
    own = LocalModel.from_parts(
        llama(), tokenizer(PLAIN_TEMPLATE, added=()), reasoning={"open": "Thoughts:", "close": "Answer:"}
    )
    assert turn(replied(own, f"Thoughts: not {DOWN} Answer: {UP}")).action == Action.UP
    assert turn(replied(own, f"Thoughts: not {DOWN}")).action is None
    assert own.describe()["reasoning"] == {"open": "Thoughts:", "close": "Answer:"}


def test_a_call_in_harmony_ends_a_turn_without_an_action() -> None:
    model = LocalModel.from_parts(llama(), tokenizer())
    call = f"<|channel|>commentary to=functions.move<|constrain|>json<|message|>{UP}<|call|>"
    reply = replied(model, call)
    assert (reply.finish, reply.call, turn(reply).failure, turn(reply).action) == ("called", UP, CALLED, None)


@pytest.mark.parametrize("variable", ["enable_thinking", "thinking"])
def test_thinking_is_a_variable_of_the_template_of_a_local_model(variable: str) -> None:
    switch = f"{{% if {variable} is defined and not {variable} %}}(quick){{% endif %}}"
    go = [Message(role="user", content="go")]
    assert local("seed", switch, thinking=False).render(go, COLD).endswith("(quick)")
    assert "(quick)" not in local("seed", switch, thinking=True).render(go, COLD)
    assert "(quick)" not in local("seed", switch).render(go, COLD)
    assert local("seed", switch, thinking=False).describe() != local("seed", switch).describe()
    with pytest.raises(ValueError, match="leave thinking out"):
        local("seed", thinking=False).render(go, COLD)
    with pytest.raises(ValueError, match="template_options"):
        local("seed", switch, thinking=False, template_options={variable: True})
