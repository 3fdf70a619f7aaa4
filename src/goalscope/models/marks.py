"""Separate the reasoning of a raw output from its final answer: harmony channels, think tags, or none."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from goalscope.models.base import Part, PartKind

Style = Literal["harmony", "think", "none"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

_RECIPIENT: Final = re.compile(r"\bto=\S")
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
HARMONY_MARKERS: Final = ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", *_ENDS)
THINK_MARKERS: Final = ("<think>", "</think>")
MARKERS: Final[Mapping[str, tuple[str, ...]]] = {"harmony": HARMONY_MARKERS, "think": THINK_MARKERS, "none": ()}

_CHANNELS = r"(?:analysis|commentary|final)"
_OPENS = r"\"'{(\[<*`"
# No word begins with "analysis" or "commentary"; "finally" does begin with "final". Where a later header stands in the
# text, a blank may follow the first one.
_HEAD = rf"(?:analysis|commentary)(?=[\w{_OPENS}]|\s[\s\S]*assistant{_CHANNELS})|final(?=[A-Z0-9{_OPENS}])"
_STRIPPED_HEAD = re.compile(rf"\s*({_HEAD})")
_STRIPPED_NEXT = re.compile(rf"assistant({_CHANNELS})")
_MARKER = re.compile(
    r"<[|｜][^<>\s]{1,60}[|｜]>|</?(?:think|thinking|reasoning|thought)>|\[/?THINK\]|◁/?think▷"
    rf"|assistant{_CHANNELS}|^\s*(?:{_HEAD})"
)


class Segment(NamedTuple):
    """A part of an output: a text, or a marker itself."""

    text: str
    marker: bool = False


def text_segments(raw: str, style: Style) -> list[Segment]:
    """Cut a raw text at the markers of a style; text that spells a marker counts as one."""
    if not MARKERS[style]:
        return [Segment(raw)] if raw else []
    pattern = "(" + "|".join(re.escape(marker) for marker in MARKERS[style]) + ")"
    return [Segment(part, index % 2 == 1) for index, part in enumerate(re.split(pattern, raw)) if part]


def token_segments(
    tokens: Sequence[int], markers: Mapping[int, str], decode: Callable[[Sequence[int]], str]
) -> list[Segment]:
    """Cut an output at its marker tokens.

    A model that spells a marker out of ordinary tokens does not make one: only the token itself counts.
    """
    segments: list[Segment] = []
    pending: list[int] = []
    for token in [*tokens, None]:
        if token is not None and token not in markers:
            pending.append(token)
            continue
        if pending:
            segments.append(Segment(decode(pending)))
            pending = []
        if token is not None:
            segments.append(Segment(markers[token], marker=True))
    return segments


def split(segments: Sequence[Segment], style: Style, *, thinking: bool = False) -> tuple[Part, ...]:
    """Return the parts of an output; ``thinking``: its prompt ended inside a reasoning block.

    Several final messages stay parts of their own, so that contradicting answers stay visible to the parser. A message
    to a tool is a call; what stands in no channel counts as reasoning.
    """
    if style == "harmony":
        return _harmony(segments)
    if style == "think":
        return _think(segments, thinking)
    if style == "none":
        return _parts("", "".join(segment.text for segment in segments))
    raise ValueError(f"the style of reasoning must be one of {', '.join(STYLES)}, got {style!r}")


def _harmony(segments: Sequence[Segment]) -> tuple[Part, ...]:
    # The prompt ends with "<|start|>assistant": the output begins inside a header.
    parts: list[Part] = []
    header, body, in_body = "", "", False
    for text, marker in [*segments, Segment("<|end|>", marker=True)]:
        if marker and text == "<|message|>" and not in_body:
            in_body = True
        elif marker and (text == "<|start|>" or text in _ENDS):
            match = re.search(r"<\|channel\|>\s*(\w*)", header)  # e.g. of assistant<|channel|>final
            if in_body and _RECIPIENT.search(header):
                parts.append(Part(kind="call", text=body))
            elif in_body and match and match[1] == "final":
                parts.append(Part(kind="answer", text=body))
            elif body or (not in_body and match is None and header.strip()):
                thought = body if in_body else header
                parts += [Part(kind="reasoning", text=thought)] if thought != "assistant" else []
            header, body, in_body = "", "", False
        elif in_body:
            body += text  # a marker that has no place in a message stays what it is: text
        else:
            header += text
    return tuple(parts)


def _think(segments: Sequence[Segment], thinking: bool) -> tuple[Part, ...]:
    answer: list[str] = []
    thoughts: list[str] = []
    opened = thinking
    for text, marker in segments:
        if marker and text == "<think>":
            thinking = opened = True
        elif marker:
            if not opened:
                # Many templates open the block in the prompt: what came before a lone closing tag is reasoning.
                thoughts, answer = [*thoughts, *answer], []
            thinking, opened = False, True
        else:
            (thoughts if thinking else answer).append(text)
    return _parts("".join(thoughts).strip(), "".join(answer).strip())


def _parts(reasoning: str, answer: str) -> tuple[Part, ...]:
    """Return the parts that are not empty."""
    kinds: tuple[tuple[PartKind, str], ...] = (("reasoning", reasoning), ("answer", answer))
    return tuple(Part(kind=kind, text=text) for kind, text in kinds if text)


def split_said(text: str) -> tuple[Part, ...] | None:
    """Return the parts of a text that a server should have taken apart and did not, by its markers.

    Known are harmony channels, also where a server has stripped their special tokens and only the names of roles and
    channels are left (``analysis...assistantfinal...``), and think tags, also a lone closing one. None where the text
    holds none of these markers, or they do not fit together (see `left_over`).
    """
    if any(marker in text for marker in HARMONY_MARKERS):
        # Without its channels it cannot be told what the markers set apart.
        return split(text_segments(text, "harmony"), "harmony") if "<|channel|>" in text else None
    segments = text_segments(text, "think")
    tags = [segment.text for segment in segments if segment.marker]
    if tags:
        # They come in pairs; the first may stand in the prompt, the last may be missing.
        pairs = tags if tags[0] == THINK_MARKERS[0] else [THINK_MARKERS[0], *tags]
        well_formed = all(tag == THINK_MARKERS[index % 2] for index, tag in enumerate(pairs))
        return split(segments, "think") if well_formed else None
    head = _STRIPPED_HEAD.match(text)
    if head is None:
        return None
    first, *rest = _STRIPPED_NEXT.split(text[head.end() :])
    channels = [(head[1], first), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple(
        Part(kind="answer" if channel == "final" else "reasoning", text=body)
        for channel, body in channels
        if channel == "final" or body
    )


def left_over(text: str) -> bool:
    """Return whether an answer still holds markers of a model: it is no plain answer, whatever else it says."""
    return _MARKER.search(text) is not None


def choose_style(requested: str, vocabulary: Mapping[str, int], chat_template: str) -> Style:
    """Return how a model separates its reasoning from its answer.

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
