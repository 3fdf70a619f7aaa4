"""A model's chat format, derived from its tokenizer alone: chat template, stop ids and reasoning channels.

The tokenizer also decides after which tokens given answers are scored (`placed`), and which token stands for a cell of
a grid (`check_cell_tokens`).
"""

import json
import re
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Final, Unpack
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.untrusted import shorten
from goalscope.agents.models.base import ANSWER_CUE, ChatFormat, Likelihoods, Message, Part, Reply, Sampling
from goalscope.agents.models.folders import (
    brief,
    bundled_templates,
    has_bundled_tokenizer,
    model_folder,
    read_json,
    read_template_form,
    stamps,
    tokenizer_identity,
)
from goalscope.agents.models.loading import (
    ChatTemplateError,
    TokenizerContract,
    check_source,
    explained,
    hub_problem,
    load_tokenizer,
    needed,
    quiet,
    render_bounded,
    token_ids,
)
from goalscope.agents.models.marks import NONE, Marks, Style, find_marks, split, text_segments, token_segments
from goalscope.agents.models.reading import common_length
from goalscope.agents.models.weight_files import read_header
from goalscope.worlds.grid import Grid, cell_offsets

DATE: Final = "2025-08-05"
"""The date that chat templates show unless a study sets another date."""

_NOW = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<form>[^'"]*)(?P=quote)\s*\)""")
_DEFAULT = "default"
_TEMPLATE_JSON = "chat_template.json"
_HARMONY_STOPS = ("<|return|>", "<|call|>")
_PLAIN = (
    "{% for message in messages %}{{ message.content }}{% if message.role == 'user' %}"
    + ANSWER_CUE.replace("\n", "{{ '\\n' }}")
    + "{% else %}{{ '\\n\\n' }}{% endif %}{% endfor %}"
)
"""Chat template for models that have none: a single text, which the model continues."""

# Variables of chat templates that goalscope itself sets; a study may add others.
_SETTLED: Final = frozenset(
    (
        *("conversation", "messages", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message"),
        *("tools", "documents", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "reasoning_effort"),
    )
)


THINKING: Final = ("enable_thinking", "thinking")
"""Names of variables that switch thinking on and off in chat templates."""


def check_thinking(thinking: bool | None, template_options: Mapping[str, Any] | None) -> None:
    """Check that a study switches a model's thinking on or off in one place only.

    Args:
        thinking: the setting ``thinking``, None if it is not set.
        template_options: variables of the chat template, which may include one that switches thinking.

    Raises:
        ValueError: both switch thinking.
    """
    conflicting = [name for name in THINKING if name in (template_options or {})] if thinking is not None else []
    if conflicting:
        raise ValueError(
            f"thinking must be set in one place, got thinking: {str(thinking).lower()} and "
            f"template_options.{conflicting[0]}: leave {conflicting[0]} out of template_options"
        )


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Loaded:
    """A model in memory, with how its tokenizer writes and ends chats; several agents can share it.

    Attributes:
        model: the transformers model; None if only its tokenizer is needed.
        tokenizer: the tokenizer.
        marks: marks that separate reasoning from the answer.
        chat_template: source of the chat template.
        stop: ids of the tokens that end an output.
        markers: token id -> text of the markers that the chat format uses.
        contract: the checks of the tokenizer that each prompt must pass; None if the tokenizer comes with the package.
        template_names: names of all its chat templates.
        base: whether there is no chat template, so that an answer ends with its line.
        trusted: whether the chat template comes with the package.
        lock: held while the model computes, since several threads may use it.
        lanes: maximum number of requests decoded at once (slots) -> the batches of the model with this limit, see
            `goalscope.agents.models.decode.Lanes`.
    """

    model: Any
    tokenizer: Any
    marks: Marks
    chat_template: str
    stop: frozenset[int]
    markers: Mapping[int, str]
    contract: TokenizerContract | None = None
    template_names: tuple[str, ...] = ()
    base: bool = False
    trusted: bool = False
    # Several threads may call the model; it computes for one of them at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)
    lanes: dict[Any, Any] = field(default_factory=dict)


_SHARED: WeakValueDictionary[str, Loaded] = WeakValueDictionary()  # agents of the same weights share one copy
_RECENT: list[Loaded] = []  # the model whose weights were read last, kept because agents use it one after another
_LOADING = threading.Lock()


class Dialect:
    """The chat format of a model: chat template, tokenizer and stop tokens. It needs no weights and generates nothing.

    Args:
        path_or_name: a folder with the tokenizer, or the model's name on the Hugging Face hub.
        revision: commit, tag or branch on the hub.
        chat: settings for writing and reading chats, see `goalscope.agents.models.base.ChatFormat`.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: an argument is out of range.
    """

    _needs: ClassVar[tuple[str, ...]] = ("transformers",)

    def __init__(self, path_or_name: str | Path, *, revision: str | None = None, **chat: Unpack[ChatFormat]) -> None:
        self._set(model_folder(path_or_name), **chat)
        if self._folder is not None and revision is not None:
            raise ValueError(
                f"revision works only for models on the hub, but {path_or_name} is a folder: leave revision out"
            )
        self._source, self._revision = str(path_or_name), revision

    def _set(
        self,
        folder: Path | None,
        *,
        reasoning: str | Mapping[str, Any] = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Check and store a study's settings for the chat template; nothing is loaded yet."""
        self._marks = Marks.of(reasoning)
        try:
            self._today = date.fromisoformat(DATE if today is None else today)
        except ValueError:
            raise ValueError(f"today must be a date such as {DATE}, got {today!r}") from None
        reserved = sorted(_SETTLED & set(template_options or {}))
        if reserved:
            raise ValueError(
                "template_options must contain only further variables of the chat template, such as builtin_tools, got "
                f"{', '.join(reserved)}, which goalscope sets itself: leave it out"
            )
        self._reasoning = reasoning if isinstance(reasoning, str) else dict(reasoning)
        check_thinking(thinking, template_options)
        self._options, self._thinking_on = dict(template_options or {}), thinking
        self._template_name, self._folder = chat_template, folder
        self._loaded: Loaded | None = None
        self._name = ""

    def describe(self) -> Mapping[str, Any]:
        """Return what determines the chat format, as part of an agent's description: digests of the files, and the
        settings.
        """
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
            **({} if self._thinking_on is None else {"thinking": self._thinking_on}),
            **({} if self._template_name is None else {"chat_template": self._template_name}),
        }

    @property
    def on_hub(self) -> bool:
        """Whether the model was given by its name on the Hugging Face hub, not by a folder."""
        return self._folder is None

    @property
    def template(self) -> str | None:
        """Form of prompt templates that the model needs, such as "completion" for a base model; None for the default
        form.

        A file in the model's folder can name the form. Models on the hub have the default.
        """
        return read_template_form(self._folder) if self._folder is not None else None

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer, which is loaded at first use."""
        return self._load().tokenizer

    @property
    def marks(self) -> Marks:
        """The texts that separate the reasoning from the answer in the model's output, such as think tags."""
        return self._load().marks

    @property
    def style(self) -> Style:
        """How the model marks its reasoning: "harmony" (channels), "tags" (such as think tags) or "none"."""
        return self._load().marks.style

    @property
    def base(self) -> bool:
        """Whether this is a base model, that is, one without a chat template."""
        return self._load().base

    @property
    def chat_template(self) -> str:
        """The chat template that renders prompts; all base models share one plain template."""
        return self._load().chat_template

    @property
    def tokenizer_checks(self) -> str:
        """A sentence for the user that says which checks the tokenizer has passed, beginning with its number of
        tokens.
        """
        loaded = self._load()
        compared = "no tokenizer.json to compare ids with"
        if loaded.contract is None:
            compared = "its files come with goalscope"
        elif loaded.contract.file is not None:
            compared = "ids equal those of tokenizer.json"
        return f"{len(loaded.tokenizer):,} tokens; {compared}; decoding returns each text; a token ends each answer"

    @property
    def stop(self) -> frozenset[int]:
        """Ids of the tokens that end an output."""
        return self._load().stop

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str:
        """Write a chat as the text that the model reads, by its own chat template, up to where the answer begins."""
        loaded = self._load()
        variables: dict[str, Any] = dict(self._options)
        if self._thinking_on is not None:
            variables[self._thinking_switch(loaded.chat_template)] = self._thinking_on
        if sampling.reasoning_effort is not None and "reasoning_effort" in loaded.chat_template:
            variables["reasoning_effort"] = sampling.reasoning_effort
        chat = [{"role": message.role, "content": message.content} for message in messages]
        if not loaded.trusted:
            return self._render_bounded(loaded, chat, {**loaded.tokenizer.special_tokens_map, **variables})
        with explained(self._folder or self._source, "a chat template that writes these messages"):
            text = loaded.tokenizer.apply_chat_template(
                chat, chat_template=loaded.chat_template, tokenize=False, add_generation_prompt=True, **variables
            )
        return str(text)

    def _render_bounded(self, loaded: Loaded, chat: Sequence[Mapping[str, str]], variables: Mapping[str, Any]) -> str:
        """Render the chat with a template of unknown origin, in the bounded process."""
        try:
            return render_bounded(loaded.chat_template, chat, variables)
        except ChatTemplateError as error:
            if not re.search(r"\btools\b", loaded.chat_template):
                with explained(self._folder or self._source, "a chat template that writes these messages"):
                    raise
            other_names = [name for name in loaded.template_names if name != (self._template_name or _DEFAULT)]
            advice = "put a template without tools into its folder as chat_template.jinja"
            if other_names:
                advice = f"choose another template: {_how_to_choose(other_names, self._source)}"
            raise ValueError(
                f"{self._folder or self._source} must hold a chat template that writes these messages, but "
                f"{brief(error)}. It may require tools, which goalscope's prompts do not offer: {advice}"
            ) from error

    def _thinking_switch(self, template: str) -> str:
        """Return the name of the variable that switches thinking on and off in a chat template."""
        for name in THINKING:
            if re.search(rf"\b{name}\b", template):
                return name
        raise ValueError(
            f"thinking needs a chat template that can switch it, but that of {self.name} has no variable for it "
            f"({' or '.join(THINKING)}): leave thinking out, or set the template's own variable in template_options"
        )

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, which may be a fragment, without adding any special tokens."""
        # The decoder checks whether a prompt fits, so the tokenizer's own warning is silenced.
        loaded = self._load()
        if loaded.contract is not None:
            return loaded.contract.split([text])[0]
        return token_ids(loaded.tokenizer, text, self._folder or self._source)

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each rendered prompt, after checking that the tokenizer splits them correctly.

        Raises:
            ValueError: the tokenizer changes or loses text; see `goalscope.agents.models.loading`.
        """
        contract = self._load().contract
        return [self.encode(prompt) for prompt in prompts] if contract is None else contract.ids(prompts)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text that token ids stand for, including special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def unsupported(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of sampling settings that the chat template does not use: ``("reasoning_effort",)`` or
        nothing.
        """
        effort_supported = sampling.reasoning_effort is None or "reasoning_effort" in self._load().chat_template
        return () if effort_supported else ("reasoning_effort",)

    def parts(self, prompt: str, tokens: Sequence[int]) -> tuple[Part, ...]:
        """Divide a model's output into its parts: reasoning, answer and tool calls.

        A stop token at the end belongs to no part.

        Args:
            prompt: the rendered prompt, which may already open the reasoning.
            tokens: token ids of the output.
        """
        loaded = self._load()
        if loaded.base and loaded.marks.style == "none":
            ended = tokens and tokens[-1] in loaded.stop and "\n" not in self.text(tokens[-1:])
            return _line(self.text(tokens[:-1] if ended else tokens))
        content = tokens[:-1] if tokens and tokens[-1] in loaded.stop else tokens
        if len(loaded.markers) < len(loaded.marks.markers) and loaded.marks.style == "tags":
            return self.text_parts(prompt, self.text(content))  # this tokenizer has no special tokens for the tags
        segments = token_segments(content, loaded.markers, self.text)
        return split(segments, loaded.marks, thinking=loaded.marks.opened(prompt))

    def text_parts(self, prompt: str, raw: str) -> tuple[Part, ...]:
        """Divide a model's output into its parts (reasoning, answer and tool calls) when its token ids are unknown.

        Args:
            prompt: the rendered prompt, which may already open the reasoning.
            raw: the output as text.
        """
        loaded = self._load()
        if loaded.base and loaded.marks.style == "none":
            return _line(raw)
        return split(text_segments(raw, loaded.marks), loaded.marks, thinking=loaded.marks.opened(prompt))

    def opening(self, prompt: str) -> str:
        """Return the text between a prompt and a final answer without reasoning, such as the marks of empty reasoning;
        often "".

        It is needed to score given answers directly after the prompt.
        """
        marks = self._load().marks
        if marks.style == "harmony":
            return "<|channel|>final<|message|>"
        if marks.style == "none" or prompt.rstrip().endswith(marks.close):
            return ""
        return marks.tail if marks.opened(prompt) else marks.empty

    def answer_place(self, prompt: str, tokens: Sequence[int]) -> tuple[list[int], str] | None:
        """Find where the final answer begins in an output with reasoning.

        Args:
            prompt: the rendered prompt.
            tokens: token ids of the output.

        Returns:
            The token ids before the answer, and the text between these ids and the answer; None if no final answer
            began.

        Raises:
            ValueError: the model does not mark its reasoning by special tokens.
        """
        loaded = self._load()
        marks = loaded.marks
        if not loaded.markers or (marks.style == "tags" and marks.close not in loaded.markers.values()):
            raise ValueError(
                "answer_after: reasoning needs a model that marks its reasoning by special tokens (harmony channels or "
                f"tags), but {self.name} has none: leave answer_after out, or set answer_after: prompt"
            )
        marked = [(index, loaded.markers[token]) for index, token in enumerate(tokens) if token in loaded.markers]
        if marks.style == "tags":
            ends = [index for index, marker in marked if marker == marks.close]
            if ends:
                return list(tokens[: ends[0]]), marks.tail.lstrip()
            return None if marks.opened(prompt) or marks.open in self.text(tokens) else ([], "")
        channel: int | None = None
        for index, marker in marked:
            if marker == "<|channel|>":
                channel = index
            elif marker == "<|message|>" and channel is not None:
                if self.text(tokens[channel + 1 : index]).split()[:1] == ["final"]:
                    return list(tokens[:index]), marker
                channel = None
        return None

    def _load(self) -> Loaded:
        if self._loaded is None:
            with _LOADING:
                loaded = _SHARED.get(self._key())
                if loaded is None:
                    for library in self._needs:
                        needed(library)
                    _RECENT[:] = [] if "torch" in self._needs else _RECENT  # free memory before other weights are read
                    with quiet(self._folder):
                        loaded = _SHARED[self._key()] = self._read()
                _RECENT[:] = _RECENT if loaded.model is None else [loaded]
            self._loaded = loaded
        return self._loaded

    def _key(self, *more: Any) -> str:
        """Return the key under which the processes' agents share loaded models."""
        location = [self._source] if self._folder is None else [str(self._folder.resolve()), *stamps(self._folder)]
        return repr([location, self._revision, self._reasoning, self._today, self._template_name, *more])

    def _where(self) -> tuple[str, dict[str, Any]]:
        """Return the source to read from, and the arguments for ``from_pretrained``."""
        options: dict[str, Any] = {"trust_remote_code": False}
        if self._folder is not None and NamedFile(self._folder).is_there():
            return str(self._folder.parent), {**options, "local_files_only": True, "gguf_file": self._folder.name}
        if self._folder is not None:
            return str(self._folder), {**options, "local_files_only": True}
        if hub_problem():  # the library would retry each of its files for 23 s, and then look into its cache
            options |= {"local_files_only": True}
        return self._source, options if self._revision is None else {**options, "revision": self._revision}

    def _read(self) -> Loaded:
        tokenizer, file = self._read_tokenizer()
        return self._prepare(None, tokenizer, self._read_eos(), file)

    def _read_eos(self) -> Any:
        """Return eos_token_id from the model's files; None if only the tokenizer knows it."""
        if self._folder is not None and NamedFile(self._folder).is_there():
            return read_header(self._folder).values.get("tokenizer.ggml.eos_token_id")
        if self._folder is not None:
            for name in ("generation_config.json", "config.json"):
                if Folder(self._folder, links=True).has_file(name):
                    return read_json(self._folder / name).get("eos_token_id")
            return None
        from transformers import GenerationConfig

        try:
            source, options = self._where()
            return GenerationConfig.from_pretrained(source, **{"revision": "main", **options}).eos_token_id
        except OSError:
            return None

    def _read_tokenizer(self) -> tuple[Any, Path | None]:
        """Return the checked tokenizer, and the tokenizer.json that it must agree with.

        Everything that needs no weights is checked now, since reading the weights may take minutes.
        """
        source, where = self._where()
        tokenizer, file = load_tokenizer(source, where, folder=self._folder)
        template = self._choose_template(self._templates(tokenizer))
        contract = self._contract(tokenizer, file, None)
        contract.check_stop(_ids(self._read_eos()), tokenizer.eos_token_id)
        contract.check(template, ())
        return tokenizer, file

    def _prepare(self, model: Any, tokenizer: Any, eos: Any, file: Path | None = None) -> Loaded:
        """Find out how the tokenizer writes chats, ends outputs and marks reasoning, and check its contract.

        Args:
            model: the model, or None if its tokenizer is enough.
            tokenizer: the transformers tokenizer.
            eos: eos_token_id of the model's configuration.
            file: the tokenizer.json that the tokenizer must agree with.
        """
        templates = self._templates(tokenizer)
        template = self._choose_template(templates)
        vocabulary = tokenizer.get_vocab()
        base = not template
        with explained(self._folder or self._source, "a chat template"):
            trusted = base or check_source(template) in bundled_templates()
        if base:
            template = _opened(tokenizer) + _PLAIN
            marks = self._marks or NONE
            if self._marks is None:
                advice = "; to show it worked examples, studies that name it on the hub must set template: completion"
                warnings.warn(
                    f"{self._source} has no chat template, so it is treated as a base model, which continues a plain "
                    f"text and whose answer ends with the line{'' if self._folder is not None else advice}",
                    stacklevel=2,
                )
        else:
            marks = self._marks or find_marks(vocabulary, template, self._renders(template, tokenizer))
        if self._marks is None and marks.style == "none" and not base:
            warnings.warn(
                f"{self._source} does not mark reasoning (neither its tokenizer nor its chat template has channels or "
                "tags for it), so the whole output is read as the answer; set reasoning: none to confirm this",
                stacklevel=2,
            )
        markers = {vocabulary[marker]: marker for marker in marks.markers if marker in vocabulary}
        contract = self._contract(tokenizer, file, model)
        contract.check_stop(_ids(eos), tokenizer.eos_token_id)
        if self._folder is not None or file is not None:
            # A tokenizer that the caller built in memory may not know our samples, so only its prompts are checked.
            contract.check(template, marks.markers)
        bundled = self._folder is not None and has_bundled_tokenizer(self._folder)
        stop = _ids(eos) | _ids(tokenizer.eos_token_id)
        if marks.style == "harmony":
            stop |= {vocabulary[marker] for marker in _HARMONY_STOPS if marker in vocabulary}
        if base:
            stop |= _line_ends(tokenizer, vocabulary)
        if not stop:
            raise ValueError(
                "the token that ends an output is unknown: neither the generation configuration nor the tokenizer "
                f"of {self.name} names it. Set eos_token_id in its generation_config.json"
            )
        return Loaded(
            model=model,
            tokenizer=tokenizer,
            marks=marks,
            chat_template=_NOW.sub(lambda match: repr(self._today.strftime(match["form"])), template),
            stop=frozenset(stop),
            markers=markers,
            contract=None if bundled else contract,
            template_names=tuple(sorted(templates)),
            base=base,
            trusted=trusted,
        )

    def _templates(self, tokenizer: Any) -> dict[str, str]:
        """Return the chat templates of a model by name; a single template is called "default"."""
        value, folder = tokenizer.chat_template, self._folder
        with explained(folder or self._source, "chat templates"):
            if not value and folder is not None and not NamedFile(folder).is_there():
                value = None
                if Folder(folder, links=True).has_file(_TEMPLATE_JSON):  # which tokenizers ignore
                    value = read_json(folder / _TEMPLATE_JSON).get("chat_template")
            if isinstance(value, list):  # as in tokenizer_config.json; `check_tokenizer` has looked at its entries
                value = {entry["name"]: entry["template"] for entry in value}
            templates = value if isinstance(value, Mapping) else {_DEFAULT: value}
            return {str(name): template for name, template in templates.items() if template}

    def _contract(self, tokenizer: Any, file: Path | None, model: Any) -> TokenizerContract:
        source, rows = self._folder or self._source, self._embedding_rows(model)
        return TokenizerContract(source=source, tokenizer=tokenizer, file=file, rows=rows)

    def _choose_template(self, templates: Mapping[str, str]) -> str:
        """Return the chat template that the settings select; an empty text for a model without a template."""
        name = self._template_name
        if name is None and not templates:
            return ""
        if name is None and _DEFAULT not in templates:
            raise ValueError(
                f"{self.name} has no chat template called {_DEFAULT}, only {', '.join(sorted(templates))}, so a study "
                f"must choose: {_how_to_choose(templates, self._source)}"
            )
        if name is not None and name not in templates:
            names = ", ".join(sorted(templates)) or "none"
            advice = _how_to_choose(templates, self._source) if templates else "leave chat_template out"
            raise ValueError(
                f"chat_template must be the name of a chat template of {self.name}, which has {names}; got "
                f"{shorten(name)}: {advice}"
            )
        return templates[name or _DEFAULT]

    def _embedding_rows(self, model: Any) -> int | None:
        """Return the number of rows of the model's embedding; None if it is unknown without the weights."""
        rows = None
        if model is not None:
            rows = getattr(model.config.get_text_config(decoder=True), "vocab_size", None)
        elif self._folder is not None and not NamedFile(self._folder).is_there():
            configuration = self._folder / "config.json"
            settings = read_json(configuration) if NamedFile(configuration).is_there() else {}
            inner = settings.get("text_config")
            rows = settings.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
        return rows if isinstance(rows, int) and rows > 0 else None

    def _renders(self, template: str, tokenizer: Any) -> Callable[..., str | None]:
        """Return a function that renders messages with a template, or returns None if the template refuses them."""

        def render(messages: Sequence[Mapping[str, str]], *, prompt: bool) -> str | None:
            try:
                return render_bounded(template, messages, tokenizer.special_tokens_map, prompt=prompt)
            except ChatTemplateError:
                return None  # a template that refuses messages with reasoning does not mark reasoning

        return render

    @property
    def name(self) -> str:
        """Short name of the model, as tables show it."""
        if self._name or self._folder is None:
            return self._name or self._source
        return self._folder.stem if NamedFile(self._folder).is_there() else Path(self._source).name


def _how_to_choose(names: Collection[str], source: str) -> str:
    """Return what to type to choose one of a model's chat templates."""
    name = min(names)
    model = quote(f"chat:model={source},chat_template={name}")
    return (
        f"set chat_template to one of {', '.join(sorted(names))}, for example `goalscope evaluate {model} --out DIR` "
        f"or `goalscope doctor --model {quote(source)} --chat-template {quote(name)}`"
    )


def _line(text: str) -> tuple[Part, ...]:
    """Return the answer of a base model, which is the first line of its output."""
    return (Part(kind="answer", text=text.partition("\n")[0]),)


def _opened(tokenizer: Any) -> str:
    """Return the special tokens that begin a text for this tokenizer, in the form of a template fragment."""
    leading = tokenizer("")["input_ids"]
    text = str(tokenizer.decode(leading, skip_special_tokens=False)) if leading else ""
    return "{{ " + json.dumps(text) + " }}" if text else ""


def _line_ends(tokenizer: Any, vocabulary: Mapping[str, int]) -> set[int]:
    """Return the ids of tokens that contain the end of a line."""
    # Byte-level vocabularies write a line feed as U+010A, others as a plain line feed or as a byte.
    maybe = [number for piece, number in vocabulary.items() if "\n" in piece or "\u010a" in piece or piece == "<0x0A>"]
    return {number for number in maybe if "\n" in tokenizer.decode([number], clean_up_tokenization_spaces=False)}


def _ids(value: Any) -> set[int]:
    """Return the token ids that a file names: one, several or none."""
    ids = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if not all(isinstance(number, int) for number in ids):
        raise ValueError(f"eos_token_id must be the id of a token, or a list of such ids, got {shorten(value)}")
    return set(ids)


# Likelihoods of given answers.
#
# The likelihood of an answer is the product of the probabilities of its tokens, each given all tokens before it. An
# answer is tokenized together with the text before it, since a token may cross the boundary. The beginning that all
# answers share is counted once. Only the tokenizer's own tokenization of a text is scored, so a likelihood is a lower
# bound for the probability that the model writes this text.


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """Token ids of A alternative answers that all follow the same tokens (the context), for scoring their likelihoods.

    Attributes:
        context: ids before all answers, at least one.
        answers: ``[A]`` ids of each answer after the context; none is the beginning of another.
        shared: number of ids at the beginning of the answers that are the same in all of them.
        prompt: how many ids at the beginning of the context belong to the prompt.
    """

    context: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    shared: int
    prompt: int


def alternatives(
    dialect: Dialect, prompt: Sequence[int], text: str, answers: Sequence[str], *, ids: Sequence[int] = ()
) -> Alternatives:
    """Tokenize alternative answers together with the text before them, for scoring their likelihoods.

    If a token of some answer crosses the boundary, the context ends before this token for all answers.

    Args:
        dialect: how the model's texts become tokens.
        prompt: token ids of the prompt.
        text: the text before the answers; it must not begin inside a token.
        answers: the complete answers.
        ids: exact ids before the text.

    Raises:
        ValueError: there are fewer than two answers, or their tokens do not differ.
    """
    if len(answers) < 2:
        raise ValueError(f"likelihoods need at least two answers, got {len(answers)}: pass the answers of all actions")
    text_ids = [*ids, *dialect.encode(text)]
    answer_rows = [[*ids, *dialect.encode(text + answer)] for answer in answers]
    common = common_length(answer_rows)
    if not all(len(tokens) > common for tokens in answer_rows) or len(set(map(tuple, answer_rows))) < len(answer_rows):
        raise ValueError(
            "answers must differ in their tokens, and none may be the beginning of another, got "
            f"{', '.join(answers)}: rename the actions, or use answer: generated"
        )
    n_context = common_length([text_ids, *answer_rows])
    if not n_context:
        raise ValueError("a prompt must have at least one token before the answer: check the model's chat template")
    return Alternatives(
        context=tuple(answer_rows[0][:n_context]),
        answers=tuple(tuple(tokens[n_context:]) for tokens in answer_rows),
        shared=common - n_context,
        prompt=min(common_length([prompt, tokens]) for tokens in answer_rows),
    )


def likelihoods(
    alternatives: Alternatives,
    scores: Sequence[Sequence[float]],
    usage: Mapping[str, float],
    reasoned: Reply | None,
    unsupported: tuple[str, ...],
) -> Likelihoods:
    """Sum the log-probabilities of the tokens of each answer to the likelihoods of the A answers.

    Args:
        alternatives: the tokenized answers.
        scores: ``[A]`` lists with the log-probability of each token of the answer, in nats.
        usage: cost of the computation, name -> number of tokens, seconds or USD.
        reasoned: the reply with the reasoning before the answers, or None.
        unsupported: names of settings that the model does not support.
    """
    rows = [(*alternatives.context, *answer) for answer in alternatives.answers]
    return Likelihoods(
        logprobs=tuple(float(sum(answer_scores[alternatives.shared :])) for answer_scores in scores),
        beginning=float(sum(scores[0][: alternatives.shared])),
        prompt_tokens=rows[0][: alternatives.prompt],
        outputs=tuple(tokens[alternatives.prompt :] for tokens in rows),
        reasoned=reasoned,
        usage=usage,
        unsupported=unsupported,
    )


def unanswered(reasoned: Reply) -> Likelihoods:
    """Return the likelihoods, without any values, of a request whose reasoning never reached a final answer.

    Args:
        reasoned: the reply with the reasoning, whose tokens and costs are kept.
    """
    return Likelihoods(
        logprobs=(),
        prompt_tokens=reasoned.prompt_tokens,
        reasoned=reasoned,
        usage=dict(reasoned.usage),
        unsupported=reasoned.unsupported,
        answered_by=reasoned.answered_by,
    )


def placed(dialect: Dialect, prompt: str, answers: Sequence[str], reasoned: Reply | None) -> Alternatives | None:
    """Tokenize the answers of a request so that they follow its prompt, or the reasoning that the model wrote.

    Args:
        dialect: how the model writes chats.
        prompt: the rendered prompt.
        answers: the complete answers.
        reasoned: the model's reply with its reasoning; None to place the answers directly after the prompt.

    Returns:
        The tokenized answers, or None if no final answer began after the reasoning.

    Raises:
        ValueError: the answers cannot be told apart by their tokens, the model does not mark its reasoning, or the
            token ids of the reasoning are not exact.
    """
    [ids] = dialect.prompt_ids([prompt])
    if reasoned is None:
        return alternatives(dialect, ids, prompt + dialect.opening(prompt), answers)
    if reasoned.output_tokens is None or reasoned.reconstructed:
        raise ValueError(
            "answer_after: reasoning needs the exact token ids of the reasoning, which the server does not return: use "
            "vLLM or SGLang, a local model, or answer_after: prompt"
        )
    start = dialect.answer_place(prompt, reasoned.output_tokens)
    if start is None:
        return None
    before, text = start
    return alternatives(dialect, ids, text, answers, ids=(*ids, *before))


# Which token of a prompt stands for each grid cell.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellTokens:
    """Which token of a prompt stands for each cell of a grid, needed to read activations at cells.

    Attributes:
        positions: ``[H, W]`` (rows by columns) index of the cell's token in the prompt, -1 if the cell is not exactly
            one token.
        problems: one sentence for each cell with -1.
    """

    positions: npt.NDArray[np.int64]
    problems: tuple[str, ...]


def check_cell_tokens(
    model: Dialect, grid_text: str, *, prompt: str | None = None, capture: bool = False
) -> CellTokens:
    """Find the token of each cell of a grid in a prompt, and check that each cell is one token that contains no other
    cell.

    Args:
        model: the model whose tokenizer reads the grid.
        grid_text: a grid as `Grid.render` writes it.
        prompt: the rendered prompt that contains the grid, in any encoding; its last occurrence counts. By default a
            chat whose only message is the grid.
        capture: whether the study captures activations at the cells. If so, a problem is an error, else a warning.

    Returns:
        The token positions of the cells.

    Raises:
        ValueError: with ``capture``, a cell is not one token (the message names the cell and its tokens); the prompt
            does not contain the grid; or the tokenizer does not report the positions of its tokens.
    """
    text = model.render([Message(role="user", content=grid_text)], Sampling()) if prompt is None else prompt
    cells = cell_offsets(grid_text, text)
    if cells is None:
        raise ValueError(f"the prompt must contain the grid, but it does not contain:\n{grid_text}")
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"the tokenizer of {model.name} does not report the positions of its tokens in the text: use a model with "
            "a fast tokenizer (tokenizer.json)"
        )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans: list[tuple[int, int]] = [tuple(span) for span in encoded["offset_mapping"]]
    offsets = set(cells.values())
    grid = Grid.parse(grid_text)
    positions = np.full((grid.height, grid.width), -1, dtype=np.int64)
    problems = []
    for cell, offset in cells.items():
        tokens = [index for index, (first, last) in enumerate(spans) if first <= offset < last]
        if len(tokens) == 1 and len(offsets.intersection(range(*spans[tokens[0]]))) == 1:
            positions[cell] = tokens[0]
        else:
            pieces = ", ".join(repr(text[slice(*spans[index])]) for index in tokens)
            problems.append(f"cell {cell} {text[offset]!r} is split into or merged with the token(s) {pieces}")
    if problems:
        sentence = (
            f"each cell of a grid must be exactly one token for {model.name}, but {problems[0]}"
            f" ({len(problems)} of {len(cells)} cells)"
        )
        if capture:
            raise ValueError(
                f"{sentence}; activations at cells cannot be captured with this tokenizer: use another model"
            )
        warnings.warn(sentence, stacklevel=2)
    return CellTokens(positions=freeze(positions), problems=tuple(problems))
