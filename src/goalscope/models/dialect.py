"""Chat format of a model, derived from its tokenizer alone: chat template, stop ids, reasoning channels."""

import json
import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from goalscope.folder import Folder, NamedFile
from goalscope.models.base import ANSWER_CUE, Message, Sampling
from goalscope.models.chat_templates import check_source, render_bounded
from goalscope.models.folder_checks import read_json
from goalscope.models.folders import (
    bundled_templates,
    model_folder,
    read_template_form,
    stamps,
    tokenizer_identity,
)
from goalscope.models.gguf_files import read_header
from goalscope.models.harmony import MARKERS, Parts, Style, choose_style, split, text_segments, token_segments
from goalscope.models.loading import explained, load_tokenizer, needed, quiet, token_ids
from goalscope.untrusted import shorten

DATE: Final = "2025-08-05"
"""The date that chat templates are told unless a study names another one."""

_NOW = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<form>[^'"]*)(?P=quote)\s*\)""")
_HARMONY_STOPS = ("<|return|>", "<|call|>")
_PLAIN = (
    "{% for message in messages %}{{ message.content }}{% if message.role == 'user' %}"
    + ANSWER_CUE.replace("\n", "{{ '\\n' }}")
    + "{% else %}{{ '\\n\\n' }}{% endif %}{% endfor %}"
)
"""Chat template of models without one: a single text, which they continue."""

# What chats are rendered with is settled by the project; a study adds variables of the template.
_SETTLED: Final = frozenset(
    (
        *("conversation", "messages", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message"),
        *("tools", "documents", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "reasoning_effort"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Loaded:
    """What was read: a model, None where its tokenizer is enough, and how the tokenizer writes and ends chats.

    ``base``: there is no chat template, an answer ends with its line. ``trusted``: the template comes with the package.
    """

    model: Any
    tokenizer: Any
    style: Style
    chat_template: str
    stop: frozenset[int]
    markers: Mapping[int, str]
    base: bool = False
    trusted: bool = False
    # Several threads may ask; the model works for one of them at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)


_SHARED: WeakValueDictionary[str, Loaded] = WeakValueDictionary()  # agents of the same weights share one copy
_RECENT: list[Loaded] = []  # what was read last with weights: one agent after another uses it
_LOADING = threading.Lock()


class Dialect:
    """Chat format and stop tokens of a model; completes nothing itself, and needs no weights.

    Args:
        path_or_name: a folder with the tokenizer, or the model's name on the hub.
        revision: commit, tag or branch on the hub.
        reasoning: how reasoning and answer are told apart: "harmony", "think", "none"; "auto" asks the tokenizer, and
            is "none", with a warning, where that knows neither.
        today: the date that chat templates are told instead of the real one, ``YYYY-MM-DD``: prompts must not
            change from day to day. None for the usual one.
        template_options: further variables of the chat template, e.g. ``{"enable_thinking": False}``.

    Raises:
        FileNotFoundError: a path that is not there.
        ValueError: an argument out of its range.
    """

    _needs: ClassVar[tuple[str, ...]] = ("transformers",)

    def __init__(
        self,
        path_or_name: str | Path,
        *,
        revision: str | None = None,
        reasoning: str = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._set(reasoning, today, template_options, model_folder(path_or_name))
        if self._folder is not None and revision is not None:
            raise ValueError(f"a revision names a state on the hub, {path_or_name} is a folder: leave it out")
        self._source, self._revision = str(path_or_name), revision

    def _set(
        self, reasoning: str, today: str | None, template_options: Mapping[str, Any] | None, folder: Path | None = None
    ) -> None:
        """Check and store a study's settings of the chat template; nothing is loaded yet."""
        if reasoning not in ("auto", *MARKERS):
            raise ValueError(f"reasoning must be one of auto, {', '.join(MARKERS)}, got {reasoning!r}")
        try:
            self._today = date.fromisoformat(DATE if today is None else today)
        except ValueError:
            raise ValueError(f"today must be a date such as {DATE}, got {today!r}") from None
        reserved = sorted(_SETTLED & set(template_options or {}))
        if reserved:
            raise ValueError(
                "template_options must hold further variables of the chat template, such as enable_thinking; got "
                f"{', '.join(reserved)}, set elsewhere: leave it out"
            )
        self._reasoning, self._options = reasoning, dict(template_options or {})
        self._folder = folder
        self._loaded: Loaded | None = None

    def describe(self) -> Mapping[str, Any]:
        """Return the content identity of the tokenizer and the template settings."""
        return {"files": self._files(), **self._settings()}

    def _files(self) -> Mapping[str, Any]:
        return self._on_hub() if self._folder is None else tokenizer_identity(self._folder)

    def _on_hub(self) -> Mapping[str, Any]:
        return {"hub": self._source, "revision": self._revision or "main"}

    def _settings(self) -> Mapping[str, Any]:
        return {
            "reasoning": self._reasoning,
            "today": self._today.isoformat(),
            "template_options": self._options,
        }

    @property
    def on_hub(self) -> bool:
        """Whether it is named by its place on the hub."""
        return self._folder is None

    @property
    def template(self) -> str | None:
        """Form of prompt templates that the model's card names, or that base models want; None for the usual one."""
        return read_template_form(self._folder) if self._folder is not None else None

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer, loaded now if it was not."""
        return self._load().tokenizer

    @property
    def style(self) -> Style:
        """How reasoning and answer are told apart."""
        return self._load().style

    @property
    def base(self) -> bool:
        """Whether it is a base model: one without a chat template."""
        return self._load().base

    @property
    def chat_template(self) -> str:
        """The chat template that prompts are rendered with; the same plain one for all base models."""
        return self._load().chat_template

    @property
    def stop(self) -> frozenset[int]:
        """The tokens that end an output."""
        return self._load().stop

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str:
        """Return the chat as the model's own template writes it, up to where the answer begins."""
        loaded = self._load()
        variables: dict[str, Any] = dict(self._options)
        if sampling.reasoning_effort is not None and "reasoning_effort" in loaded.chat_template:
            variables["reasoning_effort"] = sampling.reasoning_effort
        chat = [{"role": message.role, "content": message.content} for message in messages]
        with explained(self._folder or self._source, "a chat template that writes these messages"):
            if not loaded.trusted:
                return render_bounded(loaded.chat_template, chat, {**loaded.tokenizer.special_tokens_map, **variables})
            text = loaded.tokenizer.apply_chat_template(
                chat, chat_template=loaded.chat_template, tokenize=False, add_generation_prompt=True, **variables
            )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt; nothing is added to it."""
        # Whether a prompt fits is checked, and said, by the decoder.
        return token_ids(self.tokenizer, text, self._folder or self._source)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def unsupported(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the settings that the chat template does not use."""
        effort_supported = sampling.reasoning_effort is None or "reasoning_effort" in self._load().chat_template
        return () if effort_supported else ("reasoning_effort",)

    def parts(self, prompt: str, tokens: Sequence[int]) -> Parts:
        """Return reasoning and final answer of an output; a stop token at its end belongs to no text."""
        loaded = self._load()
        if loaded.base and loaded.style == "none":
            ended = tokens and tokens[-1] in loaded.stop and "\n" not in self.text(tokens[-1:])
            return Parts(text=self.text(tokens[:-1] if ended else tokens).partition("\n")[0])
        content = tokens[:-1] if tokens and tokens[-1] in loaded.stop else tokens
        if not loaded.markers and loaded.style != "none":
            return self.text_parts(prompt, self.text(content))
        return split(token_segments(content, loaded.markers, self.text), loaded.style, thinking=self._thinking(prompt))

    def text_parts(self, prompt: str, raw: str) -> Parts:
        """Return reasoning and final answer of an output whose ids are not known."""
        style = self._load().style
        if self._load().base and style == "none":
            return Parts(text=raw.partition("\n")[0])
        return split(text_segments(raw, style), style, thinking=self._thinking(prompt))

    def opening(self, prompt: str) -> str:
        """Return the text between a rendered prompt and a final answer that is given without reasoning."""
        style = self._load().style
        if style == "harmony":
            return "<|channel|>final<|message|>"
        if style == "none" or prompt.rstrip().endswith("</think>"):
            return ""
        return "\n</think>\n\n" if self._thinking(prompt) else "<think>\n\n</think>\n\n"

    def answer_place(self, prompt: str, tokens: Sequence[int]) -> tuple[list[int], str] | None:
        """Return where the final answer of an output begins: the ids before it, and the text between them and it.

        Args:
            prompt: the rendered prompt.
            tokens: ids of the output.

        Returns:
            None where no final answer began.

        Raises:
            ValueError: the model does not set its reasoning apart by tokens of their own.
        """
        loaded = self._load()
        if not loaded.markers:
            raise ValueError(
                f"an answer after free reasoning needs a model that sets its reasoning apart by tokens of their own "
                f"(harmony channels, think tags), {self.name} has none: leave answer_after out, or say prompt"
            )
        marked = [(index, loaded.markers[token]) for index, token in enumerate(tokens) if token in loaded.markers]
        if loaded.style == "think":
            ends = [index for index, marker in marked if marker == "</think>"]
            if ends:
                return list(tokens[: ends[0]]), "</think>\n\n"
            return None if marked or self._thinking(prompt) else ([], "")
        channel: int | None = None
        for index, marker in marked:
            if marker == "<|channel|>":
                channel = index
            elif marker == "<|message|>" and channel is not None:
                if self.text(tokens[channel + 1 : index]).split()[:1] == ["final"]:
                    return list(tokens[:index]), marker
                channel = None
        return None

    def _thinking(self, prompt: str) -> bool:
        """Return whether a prompt ends inside a reasoning block."""
        return self._load().style == "think" and prompt.rfind("<think>") > prompt.rfind("</think>")

    def _load(self) -> Loaded:
        if self._loaded is None:
            with _LOADING:
                loaded = _SHARED.get(self._key())
                if loaded is None:
                    for library in self._needs:
                        needed(library)
                    _RECENT[:] = [] if "torch" in self._needs else _RECENT  # before other weights take memory
                    with quiet(self._folder):
                        loaded = _SHARED[self._key()] = self._read()
                _RECENT[:] = _RECENT if loaded.model is None else [loaded]
            self._loaded = loaded
        return self._loaded

    def _key(self, *more: Any) -> str:
        """Return the key under which loaded models are shared in a process."""
        location = [self._source] if self._folder is None else [str(self._folder.resolve()), *stamps(self._folder)]
        return repr([location, self._revision, self._reasoning, self._today, *more])

    def _where(self) -> tuple[str, dict[str, Any]]:
        """Return the source to read, and the arguments of ``from_pretrained``."""
        where: dict[str, Any] = {"trust_remote_code": False}
        if self._folder is not None and NamedFile(self._folder).is_there():
            return str(self._folder.parent), {**where, "local_files_only": True, "gguf_file": self._folder.name}
        if self._folder is not None:
            return str(self._folder), {**where, "local_files_only": True}
        return self._source, where if self._revision is None else {**where, "revision": self._revision}

    def _read(self) -> Loaded:
        source, where = self._where()
        eos = None
        if self._folder is not None and NamedFile(self._folder).is_there():
            eos = read_header(self._folder).values.get("tokenizer.ggml.eos_token_id")
        elif self._folder is not None:
            for name in ("generation_config.json", "config.json"):
                if Folder(self._folder, links=True).has_file(name):
                    eos = read_json(self._folder / name).get("eos_token_id")
                    break
        else:
            from transformers import GenerationConfig

            try:
                eos = GenerationConfig.from_pretrained(source, revision=self._revision or "main").eos_token_id
            except OSError:
                eos = None  # the tokenizer names its own
        return self._prepare(None, load_tokenizer(source, where, folder=self._folder), eos)

    def _prepare(self, model: Any, tokenizer: Any, eos: Any) -> Loaded:
        """Find out how the tokenizer writes chats, ends outputs and marks reasoning."""
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        vocabulary = tokenizer.get_vocab()
        base = not template
        with explained(self._folder or self._source, "a chat template"):
            trusted = base or check_source(template) in bundled_templates()
        if base:
            template = _opened(tokenizer) + _PLAIN
            style: Style = "none" if self._reasoning == "auto" else choose_style(self._reasoning, vocabulary, template)
            if self._reasoning == "auto":
                advice = "; studies that name it on the hub must say template: completion to show worked examples"
                warnings.warn(
                    f"{self._source} has no chat template: it is taken for a base model, which goes on with a plain "
                    f"text; its answer ends with the line{'' if self._folder is not None else advice}",
                    stacklevel=2,
                )
        else:
            style = choose_style(self._reasoning, vocabulary, template)
        if self._reasoning == "auto" and style == "none" and not base:
            warnings.warn(
                f"{self._source} marks no reasoning (its tokenizer has neither harmony channels nor think tags): the "
                "whole output is read as the answer, as reasoning: none says",
                stacklevel=2,
            )
        markers = {vocabulary[marker]: marker for marker in MARKERS[style] if marker in vocabulary}
        if len(markers) < len(MARKERS[style]) and style == "think":
            markers = {}  # the tags are plain text to this tokenizer
        stop = _ids(eos) | _ids(tokenizer.eos_token_id)
        if style == "harmony":
            stop |= {vocabulary[marker] for marker in _HARMONY_STOPS if marker in vocabulary}
        if base:
            stop |= _line_ends(tokenizer, vocabulary)
        if not stop:
            raise ValueError(
                f"it must be known which token ends an output, neither the generation configuration nor the tokenizer "
                f"of {self.name} names one: set eos_token_id in its generation_config.json"
            )
        return Loaded(
            model=model,
            tokenizer=tokenizer,
            style=style,
            chat_template=_NOW.sub(lambda match: repr(self._today.strftime(match["form"])), template),
            stop=frozenset(stop),
            markers=markers,
            base=base,
            trusted=trusted,
        )

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        if self._folder is None:
            return self._source
        return self._folder.stem if NamedFile(self._folder).is_there() else Path(self._source).name


def _opened(tokenizer: Any) -> str:
    """Return what begins a text for a tokenizer that begins it with tokens of its own, as a part of a template."""
    leading = tokenizer("")["input_ids"]
    text = str(tokenizer.decode(leading, skip_special_tokens=False)) if leading else ""
    return "{{ " + json.dumps(text) + " }}" if text else ""


def _line_ends(tokenizer: Any, vocabulary: Mapping[str, int]) -> set[int]:
    """Return the tokens that hold the end of a line."""
    # Byte-level vocabularies write a line feed as U+010A, others as it is or as a byte.
    maybe = [number for piece, number in vocabulary.items() if "\n" in piece or "\u010a" in piece or piece == "<0x0A>"]
    return {number for number in maybe if "\n" in tokenizer.decode([number], clean_up_tokenization_spaces=False)}


def _ids(value: Any) -> set[int]:
    """Return the ids of tokens that a file names: one, several or none."""
    ids = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if not all(isinstance(number, int) for number in ids):
        raise ValueError(f"eos_token_id must be the number of a token, or a list of them, got {shorten(value)}")
    return set(ids)
