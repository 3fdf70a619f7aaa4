"""Separate the reasoning in an output from its final answer by the marks that a model writes around its reasoning.

There are two kinds of marks: the channels of the harmony format, and a pair of tags such as ``<think>`` and
``</think>``. A model's tags are read from its chat template or given by the study (`Marks.of`, `find_marks`).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from goalscope._ground.checks import check_choice
from goalscope.agents.models.base import Part, PartKind

Style = Literal["harmony", "tags", "none"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)
NAMES: Final = ("harmony", "think", "none")
"""Names of marks that a study may set; "auto" finds the model's own, and a mapping sets another pair of tags."""

MOST_MARK: Final = 200
"""Maximum number of characters of a tag that a study sets."""

_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
HARMONY_MARKERS: Final = ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", *_ENDS)
_RECIPIENT: Final = re.compile(r"\bto=\S")  # in the header of a message that is a tool call

_CHANNELS = r"(?:analysis|commentary|final)"
_OPENS = r"\"'{(\[<*`"
# No longer word begins with "analysis" or "commentary", but "finally" begins with "final". If the text contains a later
# header, a blank may follow the first header.
_HEAD = rf"(?:analysis|commentary)(?=[\w{_OPENS}]|\s[\s\S]*assistant{_CHANNELS})|final(?=[A-Z0-9{_OPENS}])"
_STRIPPED_HEAD = re.compile(rf"\s*({_HEAD})")
_STRIPPED_NEXT = re.compile(rf"assistant({_CHANNELS})")

_THOUGHT = r"(?:think|thought|reason|reflect|analy[sz]|scratch_?pad|rationale|monolog|ponder|deliberat|contemplat|mull)"
_SPECIAL = r"<[|｜][^<>\s]{1,60}>|<[^<>\s]{1,60}[|｜]>"  # <|im_end|>, <|channel>, <channel|>
_NAMED = (
    rf"</?[\w:.-]{{0,40}}{_THOUGHT}[\w:.-]{{0,40}}\s?/?>"  # <think>, </seed:think>, <reasoning_process>
    rf"|\[/?[\w:.-]{{0,40}}{_THOUGHT}[\w:.-]{{0,40}}\]"  # [THINK]
    r"|◁/?\w{1,40}▷"
)
_OF_CHATS = r"</?s>|<(?:eos|bos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]"  # tokens that end or separate turns
_MARKER = re.compile(
    rf"{_SPECIAL}|{_NAMED}|{_OF_CHATS}|(?-i:assistant{_CHANNELS})|(?-i:^\s*(?:{_HEAD}))", re.IGNORECASE
)
_REASONING_MARKER = re.compile(rf"{_SPECIAL}|{_NAMED}", re.IGNORECASE)
_END_TOKEN = re.compile(rf"{_OF_CHATS}|<[|｜](?:[^<>\s]*(?:end|eos|eot|return)[^<>\s]*)[|｜]>", re.IGNORECASE)

# Pairs of tags with any other name. The names below mark an answer inside the tags, not reasoning.
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]{0,40})>|\[(?P<closes>/?)(?P<word>[A-Z][A-Z_]{1,40})\]")
_ANSWERS = re.compile(r"answer|final|response|output|result|action|solution|json|\b(?:code|pre)\b", re.IGNORECASE)
_ACTION = re.compile(r"\{[^{}]{0,200}?action", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks that separate a model's reasoning from its answer.

    Attributes:
        style: "harmony" (channels), "tags" (a pair of tags), or "none" (the whole output is the answer).
        open: the opening tag, "" for other styles.
        close: the closing tag, "" for other styles.
        lead: the text with which a model opens its reasoning: the tag and the white space around it.
        tail: the text between the reasoning and the answer.
        around: further marks that the model's template writes around the answer, which belong to neither text.

    Raises:
        ValueError: a style lacks its tags, or tags are blank, equal, or longer than `MOST_MARK` characters.
    """

    style: Style
    open: str = ""
    close: str = ""
    lead: str = ""
    tail: str = ""
    around: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("the style of reasoning", self.style, STYLES)
        if self.style != "tags":
            return
        for name, tag in (("open", self.open), ("close", self.close)):
            if not tag or tag != tag.strip() or len(tag) > MOST_MARK:
                raise ValueError(
                    f"reasoning.{name} must be the tag that the model writes, 1 to {MOST_MARK} characters without "
                    f"white space around them, got {tag!r:.220}"
                )
        if self.open == self.close:
            raise ValueError(f"the tags reasoning.open and reasoning.close must differ, got {self.open!r} twice")
        object.__setattr__(self, "lead", self.lead or f"{self.open}\n")
        object.__setattr__(self, "tail", self.tail or f"\n{self.close}\n\n")

    @classmethod
    def of(cls, setting: str | Mapping[str, Any]) -> "Marks | None":
        """Return the marks that a study's setting ``reasoning`` names.

        The result is None for "auto", where they are found in the tokenizer.

        Args:
            setting: "auto", one of `NAMES`, or the model's own tags, ``{"open": ..., "close": ...}``.

        Raises:
            ValueError: the setting is anything else.
        """
        if isinstance(setting, Mapping):
            if set(setting) != {"open", "close"} or not all(isinstance(tag, str) for tag in setting.values()):
                raise ValueError(
                    "reasoning must have the two tags that the model writes, such as {open: <think>, close: </think>}, "
                    f"got {dict(setting)!r:.300}"
                )
            return cls(style="tags", open=setting["open"], close=setting["close"])
        if setting == "auto":
            return None
        if setting not in NAMES:
            raise ValueError(
                f"reasoning must be one of auto, {', '.join(NAMES)}, or the model's own tags "
                f"{{open: ..., close: ...}}, got {setting!r}"
            )
        return THINK if setting == "think" else cls(style="harmony" if setting == "harmony" else "none")

    @property
    def setting(self) -> str | dict[str, str]:
        """The value of a study's setting ``reasoning`` that gives these marks, such as "think"."""
        if self.style != "tags":
            return self.style
        usual = (self.open, self.close) == (THINK.open, THINK.close)
        return "think" if usual else {"open": self.open, "close": self.close}

    @property
    def title(self) -> str:
        """A short description of the marks for readers, such as ``<think> ... </think>``."""
        return f"{self.open} ... {self.close}" if self.style == "tags" else self.style

    @property
    def markers(self) -> tuple[str, ...]:
        """All marks that an output may contain, as texts; empty if the model does not mark its reasoning."""
        if self.style == "harmony":
            return HARMONY_MARKERS
        return (self.open, self.close, *self.around) if self.style == "tags" else ()

    @property
    def empty(self) -> str:
        """The text of empty reasoning: the mark that opens it, followed at once by the mark that closes it."""
        return self.lead + self.tail

    def opened(self, prompt: str) -> bool:
        """Return whether a rendered prompt ends inside reasoning, so that the model's output begins there."""
        return self.style == "tags" and prompt.rfind(self.open) > prompt.rfind(self.close)


THINK: Final = Marks(style="tags", open="<think>", close="</think>")
NONE: Final = Marks(style="none")


class Segment(NamedTuple):
    """A piece of a model's output: ordinary text, or one mark such as ``<think>`` (``marker`` is then True)."""

    text: str
    marker: bool = False


def text_segments(raw: str, marks: Marks) -> list[Segment]:
    """Cut an output, given as text, into ordinary text and marks; any text that spells a mark counts as a mark."""
    if not marks.markers:
        return [Segment(raw)] if raw else []
    # The longest tag comes first, since one tag may be the beginning of another.
    ordered = sorted(marks.markers, key=len, reverse=True)
    pattern = "(" + "|".join(re.escape(marker) for marker in ordered) + ")"
    return [Segment(part, index % 2 == 1) for index, part in enumerate(re.split(pattern, raw)) if part]


def token_segments(
    tokens: Sequence[int], markers: Mapping[int, str], decode: Callable[[Sequence[int]], str]
) -> list[Segment]:
    """Cut an output, given as token ids, into ordinary text and marks.

    Only a mark's own token counts; ordinary tokens that spell the mark do not.

    Args:
        tokens: token ids of the output.
        markers: token id -> text of each mark.
        decode: function from token ids to text.
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


def split(segments: Sequence[Segment], marks: Marks, *, thinking: bool = False) -> tuple[Part, ...]:
    """Divide a segmented output into its parts: reasoning, answers and tool calls.

    Several final messages remain separate parts, so that the parser sees contradictory answers. A message to a tool is
    a call. With harmony channels, text outside every channel counts as reasoning.

    Args:
        segments: the output, cut at its marks.
        marks: the marks that the model uses.
        thinking: whether the prompt ended inside reasoning, so that the output begins there.
    """
    if marks.style == "harmony":
        return _harmony(segments)
    if marks.style == "tags":
        return _tags(segments, marks, thinking)
    text = "".join(segment.text for segment in segments)
    return (Part(kind="answer", text=text),) if text else ()


def _harmony(segments: Sequence[Segment]) -> tuple[Part, ...]:
    # The prompt ends with "<|start|>assistant", so the output begins inside a header.
    parts: list[Part] = []
    header, body, in_body = "", "", False
    for text, marker in [*segments, Segment("<|end|>", marker=True)]:
        if marker and text == "<|message|>" and not in_body:
            in_body = True
        elif marker and (text == "<|start|>" or text in _ENDS):
            match = re.search(r"<\|channel\|>\s*(\w*)", header)  # e.g. in assistant<|channel|>final
            if in_body and _RECIPIENT.search(header):
                parts.append(Part(kind="call", text=body))
            elif in_body and match and match[1] == "final":
                parts.append(Part(kind="answer", text=body))
            elif body or (not in_body and match is None and header.strip()):
                thought = body if in_body else header
                parts += [Part(kind="reasoning", text=thought)] if thought != "assistant" else []
            header, body, in_body = "", "", False
        elif in_body:
            body += text  # a marker that is out of place inside a message is kept as text
        else:
            header += text
    return tuple(parts)


def _tags(segments: Sequence[Segment], marks: Marks, thinking: bool) -> tuple[Part, ...]:
    answer: list[str] = []
    thoughts: list[str] = []
    unclosed: list[str] = []
    for text, marker in segments:
        if marker and text == marks.open:
            thinking = True
        elif marker and text == marks.close:
            # Many templates open the reasoning in the prompt, so text before a lone closing tag is reasoning.
            thoughts += unclosed if thinking else answer
            answer, unclosed, thinking = answer if thinking else [], [], False
        elif thinking or not marker:
            (unclosed if thinking else answer).append(text)
    # Reasoning that is never closed comes after the answer, which shows that the reply ends inside its reasoning.
    texts: tuple[tuple[PartKind, str], ...] = (
        ("reasoning", "".join(thoughts)),
        ("answer", "".join(answer)),
        ("reasoning", "".join(unclosed)),
    )
    return tuple(Part(kind=kind, text=text.strip()) for kind, text in texts if text.strip())


def split_said(text: str) -> tuple[Part, ...] | None:
    """Divide an answer at marks of reasoning that a server should have processed but left in the text.

    The known marks are harmony channels and think tags. Harmony channels are also recognised if a server stripped their
    special tokens and left only the names of roles and channels (``analysis...assistantfinal...``); think tags also if
    only the closing tag is left.

    Returns:
        The parts, reasoning and answer; None if the text contains no such marks, or if they do not fit together (see
        `left_over`).
    """
    if any(marker in text for marker in HARMONY_MARKERS):
        # Without channels, the markers do not show what is reasoning and what is the answer.
        harmony = Marks(style="harmony")
        return split(text_segments(text, harmony), harmony) if "<|channel|>" in text else None
    segments = text_segments(text, THINK)
    tags = [segment.text for segment in segments if segment.marker]
    if tags:
        # Tags come in pairs; the first may be in the prompt, and the last may be missing.
        pairs = tags if tags[0] == THINK.open else [THINK.open, *tags]
        well_formed = all(tag == (THINK.open, THINK.close)[index % 2] for index, tag in enumerate(pairs))
        return split(segments, THINK) if well_formed else None
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
    """Return whether an answer still contains marks of any family of models, and is therefore not a plain answer.

    Marks are special tokens (``<|...|>``, ``<|...>``), tags whose name refers to thinking, tokens that end a turn, and
    any other pair of tags around an action unless their name refers to an answer. A tag at the beginning of the text
    that is never closed, and that is followed by an action and then by more text, is a mark, too.
    """
    return _MARKER.search(text) is not None or _has_tag_around_action(text)


def end_token(text: str) -> str | None:
    """Return the token that should have ended an output but is part of its text, such as ``<|im_end|>``.

    The result is None if there is no such token, or if the text contains other marks, too.
    """
    match = _END_TOKEN.search(text)
    rest = _END_TOKEN.sub("", text)
    return match[0] if match is not None and not left_over(rest) else None


def tags_in(text: str) -> tuple[str, str] | None:
    """Return the opening and the closing tag around reasoning in a text, to suggest them as a setting.

    The result is None if there are none.
    """
    for match in _REASONING_MARKER.finditer(text):
        partner = next(iter(_partners(match[0])), None)
        if partner is not None:
            word = re.match(r"(?:thought|analysis|thinking)\b", text[match.end() :])
            return match[0] + (word[0] if word else ""), partner
    return None


def _has_tag_around_action(text: str) -> bool:
    """Return whether a tag encloses an action and its name does not refer to an answer."""
    actions = [match.start() for match in _ACTION.finditer(text)]
    if not actions:
        return False
    opened: dict[str, int] = {}
    leading: str | None = None  # name of a tag at the beginning of the text that is not closed yet
    for match in _TAG.finditer(text):
        name = match["name"] or match["word"]
        if _ANSWERS.search(name):
            continue
        if match["close"] or match["closes"]:
            begin = opened.pop(name, None)
            leading = None if leading == name else leading
            after = bisect_left(actions, begin) if begin is not None else len(actions)
            if after < len(actions) and actions[after] < match.start():
                return True
        else:
            opened[name] = match.end()
            if match["name"] and not text[: match.start()].strip():
                leading = name
    return leading is not None and not text.rstrip().endswith(("}", "```"))


def find_marks(vocabulary: Mapping[str, int], chat_template: str, render: "Callable[..., str | None]") -> Marks:
    """Find out how a model marks its reasoning, from its tokenizer and chat template.

    The following are tried in order: harmony channels in the vocabulary; what the chat template writes around the
    reasoning of an earlier answer; think tags; a tag with which prompts open the reasoning; any other pair of tags in
    the vocabulary or the template's source whose name refers to thinking.

    Args:
        vocabulary: the tokenizer's tokens and their ids.
        chat_template: the source of the chat template.
        render: called with messages and ``prompt``, which says whether the text continues to where an answer begins;
            returns the rendered text, or None if the template refuses these messages.

    Returns:
        The marks; `NONE` if nothing indicates marks.
    """
    if all(marker in vocabulary for marker in ("<|channel|>", "<|message|>", "<|start|>")):
        return Marks(style="harmony")

    def known(tag: str) -> bool:
        return tag in vocabulary or tag in chat_template

    written = _written_marks(chat_template, render)
    if written is not None:
        return written
    if known(THINK.open) and known(THINK.close):
        return THINK
    named = [tag for tag in _tags_of(vocabulary, chat_template) if re.search(_THOUGHT, tag, re.IGNORECASE)]
    prompt = (render([{"role": "user", "content": _QUESTION}], prompt=True) or "") if named else ""
    begun = [tag for tag in named if tag in prompt.rpartition(_QUESTION)[2]]
    for tag in [*begun, *named]:
        for partner in _partners(tag):
            if known(partner):
                return Marks(style="tags", open=tag, close=partner)
    return NONE


_QUESTION: Final = "goalscopequestion"
_THINKING: Final = "goalscopethinking"
_ANSWER: Final = "goalscopeanswer"


def _written_marks(chat_template: str, render: "Callable[..., str | None]") -> Marks | None:
    """Return the marks that a template writes around the reasoning of an answer, or None if it writes no marks."""
    if not re.search(r"reasoning|thinking|thought", chat_template):
        return None  # the template reads no field for reasoning
    question = {"role": "user", "content": _QUESTION}
    answer = {"role": "assistant", "content": _ANSWER}
    fields = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _THINKING)
    with_reasoning = render([question, {**answer, **fields}], prompt=False)
    if with_reasoning is None or _THINKING not in with_reasoning or _ANSWER not in with_reasoning:
        return None
    without = render([question, answer], prompt=False) or ""
    lead = with_reasoning.partition(_THINKING)[0].rpartition(_QUESTION)[2]
    tail, found, rest = with_reasoning.partition(_THINKING)[2].partition(_ANSWER)
    header = without.partition(_ANSWER)[0].rpartition(_QUESTION)[2]
    # The text before a plain answer is the header of the message, unless the template writes empty reasoning there.
    marks = [mark for mark in _MARK_LIKE.finditer(lead) if mark[0] not in with_reasoning.partition(_QUESTION)[0]]
    start = len(header) if header and lead.startswith(header) else marks[-1].start() if marks else len(lead)
    lead = lead[start:]
    close = _MARK_LIKE.match(tail.strip())
    open_, close_ = lead.strip(), close[0] if close else tail.strip()
    if not found or not open_ or not close_ or open_ == close_ or max(len(open_), len(close_)) > MOST_MARK:
        return None
    around = [mark[0] for mark in _MARK_LIKE.finditer(tail.strip()[len(close_) :])]
    if around and (end := _MARK_LIKE.match(rest.strip())):
        around.append(end[0])
    usual = (open_, close_) == (THINK.open, THINK.close) and not around
    return THINK if usual else Marks(style="tags", open=open_, close=close_, lead=lead, tail=tail, around=tuple(around))


_MARK_LIKE: Final = re.compile(rf"{_SPECIAL}|{_NAMED}|</?[A-Za-z][\w:.-]{{0,40}}>|\[/?[A-Z][A-Z_]{{1,40}}\]", re.I)


def _tags_of(vocabulary: Mapping[str, int], chat_template: str) -> list[str]:
    """Return the opening tags named after thinking: those of the vocabulary by id, then those of the template."""
    tokens = sorted((number, token) for token, number in vocabulary.items() if _REASONING_MARKER.fullmatch(token))
    return [token for _, token in tokens] + [match[0] for match in _REASONING_MARKER.finditer(chat_template)]


def _partners(tag: str) -> Iterator[str]:
    """Yield the possible closing tags for an opening tag."""
    if re.fullmatch(r"<[^/|｜<>][^<>]*>", tag):
        yield f"</{tag[1:]}"
    if re.fullmatch(r"\[[^/\]][^\]]*\]", tag):
        yield f"[/{tag[1:]}"
    if re.fullmatch(r"◁[^/▷]+▷", tag):
        yield f"◁/{tag[1:]}"
    if re.fullmatch(r"<\|[^|<>]+>", tag):
        yield f"<{tag[2:-1]}|>"
    for begin, end in (("START", "END"), ("start", "end"), ("begin", "end"), ("BEGIN", "END")):
        if begin in tag:
            yield tag.replace(begin, end)
    if re.fullmatch(r"<\|[^/|<>][^|<>]*\|>", tag):
        yield f"<|/{tag[2:]}"
