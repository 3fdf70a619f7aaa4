"""Reasoning and final answer are told apart, whatever the output looks like."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Template

from families import examples
from goalscope.agents.models import Part, Reply
from goalscope.agents.models.marks import (
    HARMONY_MARKERS,
    NONE,
    THINK,
    Marks,
    Segment,
    end_token,
    find_marks,
    left_over,
    split,
    text_segments,
    token_segments,
)

HARMONY_MARKS = Marks(style="harmony")
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"

HARMONY = {
    f'{ANALYSIS}up?<|end|>{FINAL}{{"action": "UP"}}<|return|>': ('{"action": "UP"}', "up?"),
    f"{ANALYSIS}up?": ("", "up?"),
    f"{ANALYSIS}up?<|end|>": ("", "up?"),
    f'{ANALYSIS}up?<|end|>{FINAL}{{"act': ('{"act', "up?"),
    '<|channel|>final<|message|>{"action": "UP"}<|return|>': ('{"action": "UP"}', None),
    f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|>{FINAL}c<|return|>": ("c", "a\nb"),
    f"{ANALYSIS}a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>{FINAL}c": ("c", "a\nb"),
    # Two answers stay two answers: the parser must see that they contradict each other.
    f"<|channel|>final<|message|>UP<|end|>{FINAL}DOWN<|return|>": ("UP\nDOWN", None),
    # A call of a tool is no answer, whatever it says.
    '<|channel|>commentary to=functions.go<|constrain|>json<|message|>{"action": "UP"}<|call|>': (
        "",
        None,
    ),
    # What stands in no channel is no answer.
    '{"action": "UP"}': ("", '{"action": "UP"}'),
    '<|message|>{"action": "UP"}<|return|>': ("", '{"action": "UP"}'),
    # A channel whose name only begins like the final one is another channel.
    "<|channel|>finally<|message|>UP<|end|>": ("", "UP"),
    "": ("", None),
    "<|channel|>final": ("", None),
    "<|channel|><|message|>x": ("", "x"),
    # A header may restrict the form of the answer.
    "<|channel|>final <|constrain|>json<|message|>UP<|return|>": ("UP", None),
}

TAGGED = {
    "<think>a</think>b": ("b", "a"),
    "<think>\na\n</think>\n\nb": ("b", "a"),
    "a</think>b": ("b", "a"),
    "<think>a": ("", "a"),
    "b": ("b", None),
    "": ("", None),
    "<think></think>b": ("b", None),
    "<think>a</think>b<think>c</think>d": ("bd", "ac"),
    # What stands before a lone closing tag is reasoning, in an answer that was begun, too.
    "<think>a</think>b</think>c": ("c", "ab"),
    "b<think>a": ("b", "a"),
}


@pytest.mark.parametrize("raw", HARMONY)
def test_harmony_channels(raw: str) -> None:
    reply = Reply(parts=split(text_segments(raw, HARMONY_MARKS), HARMONY_MARKS))
    assert (reply.answer, reply.reasoning) == HARMONY[raw]


@pytest.mark.parametrize("raw", TAGGED)
def test_think_tags(raw: str) -> None:
    reply = Reply(parts=split(text_segments(raw, THINK), THINK))
    assert (reply.answer, reply.reasoning) == TAGGED[raw]


def test_an_output_that_begins_inside_a_reasoning_block() -> None:
    for raw, expected in (("a</think>b", ("b", "a")), ("a", ("", "a"))):
        reply = Reply(parts=split(text_segments(raw, THINK), THINK, thinking=True))
        assert (reply.answer, reply.reasoning) == expected


def test_without_a_style_the_whole_output_is_the_answer() -> None:
    raw = "<think>a</think><|channel|>final<|message|>b"
    assert split(text_segments(raw, NONE), NONE) == (Part(kind="answer", text=raw),)


def test_a_marker_spelled_in_ordinary_tokens_makes_no_channel() -> None:
    letters = dict(enumerate("x<|channel|>final<|message|>UP", start=10))
    spelled = list(letters)
    markers = {1: "<|channel|>", 2: "<|message|>", 3: "<|end|>"}

    def decode(tokens: object) -> str:
        return "".join(letters.get(token, "analysis") for token in tokens)  # type: ignore[attr-defined]

    segments = token_segments([1, 5, 2, *spelled, 3], markers, decode)
    assert [segment.marker for segment in segments] == [True, False, True, False, True]
    parts = split(segments, HARMONY_MARKS)
    assert parts == (Part(kind="reasoning", text="x<|channel|>final<|message|>UP"),)


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([*HARMONY_MARKERS, "<think>", "</think>", "final"]), st.text(max_size=8))),
    st.sampled_from([HARMONY_MARKS, THINK, NONE]),
    st.booleans(),
)
def test_hostile_outputs_never_crash_and_lose_no_answer(pieces: list[str], marks: Marks, thinking: bool) -> None:
    raw = "".join(pieces)
    segments = text_segments(raw, marks)
    assert "".join(segment.text for segment in segments) == raw
    reply = Reply(parts=split(segments, marks, thinking=thinking))
    for line in reply.answer.split("\n"):
        assert line in raw or marks is THINK
    if marks is HARMONY_MARKS and "final" not in raw:
        assert reply.answer == ""


@pytest.mark.full
def test_megabytes_are_split_in_a_moment() -> None:
    raw = "<|channel|>final<|message|>x<|end|>" * 30_000
    assert len(split(text_segments(raw, HARMONY_MARKS), HARMONY_MARKS)) == 30_000
    assert split([Segment(text="y" * 3_000_000)], THINK) == (Part(kind="answer", text="y" * 3_000_000),)
    for piece in ("<a>", "<a>{action", "[THINK", "{", "<|", "<a></b>", "◁", "<think"):
        left_over(piece * 100_000)


def test_a_message_to_a_tool_is_a_call() -> None:
    raw = f'{ANALYSIS}up?<|end|><|start|>assistant<|channel|>commentary to=functions.go<|message|>{{"action": "UP"}}'
    assert split(text_segments(raw, HARMONY_MARKS), HARMONY_MARKS) == (
        Part(kind="reasoning", text="up?"),
        Part(kind="call", text='{"action": "UP"}'),
    )


UP = '{"action": "UP"}'


@pytest.mark.parametrize(
    "text",
    [
        f"<|channel>thought\nNot {UP}.",  # Gemma 4
        f"<seed:think>Not {UP}.",
        f"[THINK]Not {UP}.",
        f"◁think▷Not {UP}.",
        f"<|START_THINKING|>Not {UP}.",
        f"<reasoning_process>Not {UP}.</reasoning_process>",
        f"<ruminate>Not {UP}.</ruminate>",  # a name that nobody knows
        f"<ruminate>Not {UP}.",
        f"[INNER]Not {UP}.[/INNER]",
        f"{UP}<end_of_turn>",
    ],
)
def test_marks_of_any_family_are_left_over(text: str) -> None:
    assert left_over(text)


@pytest.mark.parametrize(
    "text",
    [UP, f"<answer>{UP}</answer>", f"<final_response>{UP}</final_response>", f"<grid> {UP}", f"[RIGHT] {UP} it is",
     f"I think {UP}", '{"reasoning": "up <- left", "action": "UP"}', "a < b, c > d", f"<b>so</b> {UP}"],
)  # fmt: skip
def test_ordinary_text_holds_no_marks(text: str) -> None:
    assert not left_over(text)


def test_an_end_token_alone_is_told_from_marks_of_reasoning() -> None:
    assert end_token(f"{UP}<|im_end|>") == "<|im_end|>" and end_token(f"{UP}</s>") == "</s>"
    assert end_token(f"<think>{UP}<|im_end|>") is None and end_token(UP) is None


# Chat templates in the manner of five families: what each writes around the reasoning of an answer.
_TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ BODY }}<|im_end|>\n{% endfor %}"
_ANSWERS = "{% if m.reasoning_content %}OPEN{{ m.reasoning_content }}CLOSE{% endif %}{{ m.content }}"


def _rendering(template: str) -> Any:
    def render(messages: Any, *, prompt: bool) -> str | None:
        return str(Template(template).render(messages=messages, add_generation_prompt=prompt))

    return render


def _template(open_: str, close: str, field: str = "reasoning_content") -> str:
    answers = _ANSWERS.replace("OPEN", open_).replace("CLOSE", close).replace("reasoning_content", field)
    return _TURNS.replace("{{ BODY }}", answers)


@pytest.mark.parametrize(
    ("open_", "close", "field", "tags"),
    [
        ("<|channel>thought\n", "<channel|>", "reasoning", ("<|channel>thought", "<channel|>")),  # Gemma 4
        ("<seed:think>\n", "\n</seed:think>\n", "reasoning_content", ("<seed:think>", "</seed:think>")),
        ("[THINK]", "[/THINK]", "thinking", ("[THINK]", "[/THINK]")),
        ("Here is my thought process: ", " Here is my response: ", "thinking",
         ("Here is my thought process:", "Here is my response:")),  # no tags at all
        ("<ruminate>", "</ruminate>", "reasoning_content", ("<ruminate>", "</ruminate>")),  # a name that nobody knows
    ],
)  # fmt: skip
def test_marks_are_read_from_what_a_template_writes(open_: str, close: str, field: str, tags: tuple[str, str]) -> None:
    template = _template(open_, close, field)
    marks = find_marks({}, template, _rendering(template))
    assert (marks.style, marks.open, marks.close) == ("tags", *tags)
    raw = f"{open_}Not {UP}.{close}{UP}"
    reply = Reply(parts=split(text_segments(raw, marks), marks))
    assert (reply.reasoning, reply.answer) == (f"Not {UP}.", UP)
    assert marks.empty == open_ + close, "reasoning that is closed at once looks as in the template"


def test_marks_around_the_answer_belong_to_no_text() -> None:
    template = (
        "{% for m in messages %}<|TURN|>{{ m.role }}{% if m.thinking %}<|START_THINKING|>{{ m.thinking }}"
        "<|END_THINKING|>{% endif %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% endfor %}"
    )
    marks = find_marks({}, template, _rendering(template))
    raw = f"<|START_THINKING|>Not {UP}.<|END_THINKING|><|START_RESPONSE|>{UP}<|END_RESPONSE|>"
    assert Reply(parts=split(text_segments(raw, marks), marks)).answer == UP


def test_a_template_that_always_opens_reasoning_is_read_by_its_last_tag() -> None:
    template = _TURNS.replace(
        "{{ BODY }}",
        "{% if m.role == 'assistant' %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}",
    )
    assert find_marks({}, template, _rendering(template)) == THINK


def test_marks_come_from_the_vocabulary_where_the_template_writes_no_reasoning() -> None:
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    harmony = {marker: number for number, marker in enumerate(HARMONY_MARKERS)}
    assert find_marks(harmony, plain, _rendering(plain)) == HARMONY_MARKS
    assert find_marks({"<think>": 1, "</think>": 2}, plain, _rendering(plain)) == THINK
    assert find_marks({}, f"{plain}{{# <think> </think> #}}", _rendering(plain)) == THINK
    mistral = find_marks({"[THINK]": 1, "[/THINK]": 2}, plain, _rendering(plain))
    assert (mistral.open, mistral.close) == ("[THINK]", "[/THINK]")
    assert find_marks({"a": 1, "<think>": 2}, plain, _rendering(plain)) == NONE, "half of a pair marks nothing"


def test_a_study_names_marks_or_gives_the_tags() -> None:
    assert Marks.of("auto") is None and Marks.of("think") == THINK and Marks.of("none") == NONE
    own = Marks.of({"open": "<|channel>thought", "close": "<channel|>"})
    assert own is not None and own.setting == {"open": "<|channel>thought", "close": "<channel|>"}
    assert THINK.setting == "think"
    for wrong in (
        "xml",
        {"open": "<a>"},
        {"open": "<a>", "close": "<a>"},
        {"open": "", "close": "b"},
        {"open": 1, "close": "b"},
    ):
        with pytest.raises(ValueError, match="reasoning"):
            Marks.of(wrong)
