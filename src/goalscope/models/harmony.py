"""Tell the reasoning of a raw output from its final answer: harmony channels, think tags, or none."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Style = Literal["harmony", "think", "none"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

HARMONY_MARKERS: Final = (
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|return|>",
    "<|call|>",
    "<|constrain|>",
)
THINK_MARKERS: Final = ("<think>", "</think>")
MARKERS: Final[Mapping[str, tuple[str, ...]]] = {"harmony": HARMONY_MARKERS, "think": THINK_MARKERS, "none": ()}

_ENDS = ("<|end|>", "<|return|>", "<|call|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of an output.

    Attributes:
        text: the text, or the marker itself.
        marker: whether it is a marker.
    """

    text: str
    marker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An output taken apart.

    Attributes:
        text: the final answer, "" where the output never came to one.
        reasoning: the reasoning, None where there is none.
    """

    text: str
    reasoning: str | None = None


def text_segments(raw: str, style: Style) -> list[Segment]:
    """Cut a raw text at the markers of a style; text that spells a marker counts as one."""
    if not MARKERS[style]:
        return [Segment(text=raw)] if raw else []
    pattern = "(" + "|".join(re.escape(marker) for marker in MARKERS[style]) + ")"
    return [Segment(text=part, marker=index % 2 == 1) for index, part in enumerate(re.split(pattern, raw)) if part]


def token_segments(
    tokens: Sequence[int], markers: Mapping[int, str], decode: Callable[[Sequence[int]], str]
) -> list[Segment]:
    """Cut an output at its marker tokens.

    A model that spells a marker out of ordinary tokens does not make one: only the token itself counts.

    Args:
        tokens: ids of the output.
        markers: marker of each id that is one.
        decode: text of a run of ids.
    """
    found: list[Segment] = []
    run: list[int] = []
    for token in [*tokens, -1]:
        if token != -1 and token not in markers:
            run.append(token)
            continue
        if run:
            found.append(Segment(text=decode(run)))
            run = []
        if token != -1:
            found.append(Segment(text=markers[token], marker=True))
    return found


def split(segments: Sequence[Segment], style: Style, *, thinking: bool = False) -> Parts:
    """Return reasoning and final answer of an output.

    Args:
        segments: the output, cut at its markers.
        style: how the model tells them apart.
        thinking: whether the prompt ended inside a reasoning block (think tags only).

    Returns:
        The two texts. Several final messages are joined by line breaks, so that contradicting answers stay visible
        to the parser; what stands in no channel, or in one of a tool, counts as reasoning.

    Raises:
        ValueError: an unknown style.
    """
    if style == "harmony":
        return _harmony(segments)
    if style == "think":
        return _think(segments, thinking)
    if style == "none":
        return Parts(text="".join(segment.text for segment in segments))
    raise ValueError(f"the style of reasoning must be one of {', '.join(STYLES)}, got {style!r}")


def _harmony(segments: Sequence[Segment]) -> Parts:
    # The prompt ends with "<|start|>assistant": the output begins inside a header.
    answers: list[str] = []
    thoughts: list[str] = []
    header, body, inside = "", "", False

    def close() -> None:
        if inside and _channel(header) == "final":
            answers.append(body)
        elif body or (not inside and _channel(header) is None and header.strip()):
            thoughts.append(body if inside else header)

    for segment in segments:
        if not segment.marker:
            if inside:
                body += segment.text
            else:
                header += segment.text
        elif segment.text == "<|message|>" and not inside:
            inside = True
        elif segment.text == "<|start|>" or segment.text in _ENDS:
            close()
            header, body, inside = "", "", False
        elif inside:
            body += segment.text  # a marker that has no place in a message stays what it is: text
        else:
            header += segment.text
    close()
    kept = [thought for thought in thoughts if thought not in ("", "assistant")]
    return Parts(text="\n".join(answers), reasoning="\n".join(kept) if kept else None)


def _channel(header: str) -> str | None:
    """Return the channel that a message header names, e.g. ``final`` of ``assistant<|channel|>final``."""
    match = re.search(r"<\|channel\|>\s*(\w*)", header)
    return match[1] if match else None


def _think(segments: Sequence[Segment], thinking: bool) -> Parts:
    answer: list[str] = []
    thoughts: list[str] = []
    opened = thinking
    for segment in segments:
        if segment.marker and segment.text == "<think>":
            thinking = opened = True
        elif segment.marker:
            if not opened:
                # Many templates open the block in the prompt: what came before a lone closing tag is reasoning.
                thoughts, answer = [*thoughts, *answer], []
            thinking, opened = False, True
        else:
            (thoughts if thinking else answer).append(segment.text)
    reasoning = "".join(thoughts).strip()
    return Parts(text="".join(answer).strip(), reasoning=reasoning or None)


def split_said(text: str) -> Parts | None:
    """Return reasoning and answer of a text that a server should have taken apart and did not, by its markers.

    Known are harmony channels, also where a server has stripped their special tokens and only the names of roles and
    channels are left (``analysis...assistantfinal...``), and think tags, also a lone closing one.

    Args:
        text: what the server hands over as the answer.

    Returns:
        The parts; None where the text holds none of these markers, or they do not fit together (see `left_over`).
    """
    if any(marker in text for marker in HARMONY_MARKERS):
        # Without its channels it cannot be told what the markers set apart.
        return split(text_segments(text, "harmony"), "harmony") if "<|channel|>" in text else None
    thoughts = text_segments(text, "think")
    if any(segment.marker for segment in thoughts):
        return split(thoughts, "think") if _balanced(thoughts) else None
    return _stripped(text)


def left_over(text: str) -> bool:
    """Return whether an answer still holds markers of a model: it is no plain answer, whatever else it says."""
    return _MARKER.search(text) is not None


_CHANNELS = r"(?:analysis|commentary|final)"
_STRIPPED_HEAD = re.compile(rf"\s*({_CHANNELS})(?=[A-Z0-9\"'{{(\[<*`])")
_STRIPPED_NEXT = re.compile(rf"assistant({_CHANNELS})")
_MARKER = re.compile(
    r"<[|｜][^<>\s]{1,60}[|｜]>|</?(?:think|thinking|reasoning|thought)>|\[/?THINK\]|◁/?think▷"
    rf"|assistant{_CHANNELS}|^\s*{_CHANNELS}(?=[A-Z0-9\"'{{(\[<*`])"
)


def _balanced(segments: Sequence[Segment]) -> bool:
    """Return whether think tags come in pairs; the first may stand in the prompt, the last may be missing."""
    tags = [segment.text for segment in segments if segment.marker]
    pairs = tags if tags[0] == THINK_MARKERS[0] else [THINK_MARKERS[0], *tags]
    return all(tag == THINK_MARKERS[index % 2] for index, tag in enumerate(pairs))


def _stripped(text: str) -> Parts | None:
    """Return the parts of harmony messages whose special tokens are gone, None for any other text."""
    head = _STRIPPED_HEAD.match(text)
    if head is None:
        return None
    pieces = _STRIPPED_NEXT.split(text[head.end() :])
    channels, bodies = [head[1], *pieces[1::2]], pieces[::2]
    found = list(zip(channels, bodies, strict=True))
    thoughts = [body for channel, body in found if channel != "final" and body]
    return Parts(
        text="\n".join(body for channel, body in found if channel == "final"),
        reasoning="\n".join(thoughts) if thoughts else None,
    )


def choose_style(requested: str, vocabulary: Mapping[str, int], chat_template: str) -> Style:
    """Return how a model tells its reasoning from its answer.

    Args:
        requested: a style that the study names, or "auto": "none" where the tokenizer knows neither harmony channels
            nor think tags, and the whole output is the answer.
        vocabulary: the tokenizer's tokens and their ids.
        chat_template: the tokenizer's chat template.

    Raises:
        ValueError: an unknown style.
    """
    if requested in STYLES:
        return requested
    if requested != "auto":
        raise ValueError(f"reasoning must be one of auto, {', '.join(STYLES)}, got {requested!r}")
    if all(marker in vocabulary for marker in ("<|channel|>", "<|message|>", "<|start|>")):
        return "harmony"
    if all(marker in vocabulary or marker in chat_template for marker in THINK_MARKERS):
        return "think"
    return "none"
