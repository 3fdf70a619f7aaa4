"""Reasoning and final answer are told apart, whatever the output looks like."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goalscope.models import Part, Reply
from goalscope.models.marks import (
    HARMONY_MARKERS,
    STYLES,
    Segment,
    Style,
    choose_style,
    split,
    text_segments,
    token_segments,
)

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

THINK = {
    "<think>a</think>b": ("b", "a"),
    "<think>\na\n</think>\n\nb": ("b", "a"),
    "a</think>b": ("b", "a"),
    "<think>a": ("", "a"),
    "b": ("b", None),
    "": ("", None),
    "<think></think>b": ("b", None),
    "<think>a</think>b<think>c</think>d": ("bd", "ac"),
    "<think>a</think>b</think>c": ("bc", "a"),
    "b<think>a": ("b", "a"),
}


@pytest.mark.parametrize("raw", HARMONY)
def test_harmony_channels(raw: str) -> None:
    reply = Reply(parts=split(text_segments(raw, "harmony"), "harmony"))
    assert (reply.answer, reply.reasoning) == HARMONY[raw]


@pytest.mark.parametrize("raw", THINK)
def test_think_tags(raw: str) -> None:
    reply = Reply(parts=split(text_segments(raw, "think"), "think"))
    assert (reply.answer, reply.reasoning) == THINK[raw]


def test_an_output_that_begins_inside_a_reasoning_block() -> None:
    for raw, expected in (("a</think>b", ("b", "a")), ("a", ("", "a"))):
        reply = Reply(parts=split(text_segments(raw, "think"), "think", thinking=True))
        assert (reply.answer, reply.reasoning) == expected


def test_without_a_style_the_whole_output_is_the_answer() -> None:
    raw = "<think>a</think><|channel|>final<|message|>b"
    assert split(text_segments(raw, "none"), "none") == (Part(kind="answer", text=raw),)
    with pytest.raises(ValueError, match="harmony, think, none"):
        split([], "xml")  # type: ignore[arg-type]


def test_a_marker_spelled_in_ordinary_tokens_makes_no_channel() -> None:
    letters = dict(enumerate("x<|channel|>final<|message|>UP", start=10))
    spelled = list(letters)
    markers = {1: "<|channel|>", 2: "<|message|>", 3: "<|end|>"}

    def decode(tokens: object) -> str:
        return "".join(letters.get(token, "analysis") for token in tokens)  # type: ignore[attr-defined]

    segments = token_segments([1, 5, 2, *spelled, 3], markers, decode)
    assert [segment.marker for segment in segments] == [True, False, True, False, True]
    parts = split(segments, "harmony")
    assert parts == (Part(kind="reasoning", text="x<|channel|>final<|message|>UP"),)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([*HARMONY_MARKERS, "<think>", "</think>", "final"]), st.text(max_size=8))),
    st.sampled_from(STYLES),
    st.booleans(),
)
def test_hostile_outputs_never_crash_and_lose_no_answer(pieces: list[str], style: Style, thinking: bool) -> None:
    raw = "".join(pieces)
    segments = text_segments(raw, style)
    assert "".join(segment.text for segment in segments) == raw
    reply = Reply(parts=split(segments, style, thinking=thinking))
    for line in reply.answer.split("\n"):
        assert line in raw or style == "think"
    if style == "harmony" and "final" not in raw:
        assert reply.answer == ""


def test_megabytes_are_split_in_a_moment() -> None:
    raw = "<|channel|>final<|message|>x<|end|>" * 30_000
    assert len(split(text_segments(raw, "harmony"), "harmony")) == 30_000
    assert split([Segment(text="y" * 3_000_000)], "think") == (Part(kind="answer", text="y" * 3_000_000),)


def test_the_style_comes_from_the_study_or_the_tokenizer() -> None:
    harmony = {marker: number for number, marker in enumerate(HARMONY_MARKERS)}
    assert choose_style("auto", harmony, "") == "harmony"
    assert choose_style("auto", {"<think>": 1, "</think>": 2}, "") == "think"
    assert choose_style("auto", {}, "... <think> ... </think>") == "think"
    assert choose_style("none", harmony, "") == "none"
    assert choose_style("auto", {"a": 1}, "{{ messages }}") == "none"
    with pytest.raises(ValueError, match="got 'xml'"):
        choose_style("xml", {}, "")
