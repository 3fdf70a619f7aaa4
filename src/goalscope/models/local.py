"""Local models: any Hugging Face causal language model, by path or name, decoded in lockstep."""

import re
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakValueDictionary

from goalscope.ids import content_id
from goalscope.models.base import Completion, Message, Request, Sampling
from goalscope.models.decode import Decoded, Settings, decode_on_cores
from goalscope.models.devices import check_device, check_device_name, checked_options, model_folder
from goalscope.models.harmony import MARKERS, Parts, Style, choose_style, split, text_segments, token_segments
from goalscope.models.identity import folder_identity, parts_identity, read_template_form, read_training
from goalscope.models.loading import (
    check_folder,
    draw_weights,
    explained,
    load_tokenizer,
    load_weights,
    needed,
    quiet,
)

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
MOST_SEED: Final = 2**63 - 1
DATE: Final = "2025-08-05"
_NOW = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<form>[^'"]*)(?P=quote)\s*\)""")
_HARMONY_STOPS = ("<|return|>", "<|call|>")


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class _Loaded:
    model: Any
    tokenizer: Any
    style: Style
    chat_template: str
    stop: frozenset[int]
    markers: Mapping[int, str]
    # Several threads may ask; the model works for one of them at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)


# Agents that differ in their sampling or task alone share one copy of the weights.
_SHARED: WeakValueDictionary[str, _Loaded] = WeakValueDictionary()
_LOADING = threading.Lock()


class LocalModel:
    """A causal language model that runs in this process.

    Nothing is loaded before the model is first needed; describing one that lies in a folder needs its files alone.
    Outputs are bit-equal for the same batch shape, device and number of threads; across batch shapes they have the same
    tokens in float32 wherever the margin of a draw exceeds 1e-4 (`goalscope.models.determinism` measures it).

    Args:
        path_or_name: a folder as ``save_pretrained`` writes it, "theseus" for the bundled model, or a name on the
            Hugging Face hub. A folder is read without any access to a network.
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1", ...
        dtype: "auto" (float32 on a processor, the checkpoint's own type elsewhere), "float32", "bfloat16", "float16".
        revision: commit, tag or branch on the hub; name a commit where results must last.
        slots: most requests that are decoded at once; None for 64, or for 256 in each of several batches side by side
            (`goalscope.models.threads`) where a small model runs on a processor.
        reasoning: how reasoning and answer are told apart: "harmony", "think", "none"; "auto" asks the tokenizer, and
            is "none", with a warning, where that knows neither.
        device_map: how a model that needs more than one device is spread, as transformers understands it ("auto").
        untrained: seed of weights drawn anew for the same architecture, a control; None reads the trained ones.
        today: the date that chat templates are told instead of the real one, ``YYYY-MM-DD``: prompts must not
            change from day to day.
        template_options: further variables of the chat template, e.g. ``{"enable_thinking": False}``.
        name: short name for tables.

    Raises:
        FileNotFoundError: a path that is not there, or a folder without configuration or safetensors weights.
        ValueError: an argument out of its range.
    """

    _needs: ClassVar[tuple[str, ...]] = ("torch", "transformers")

    def __init__(
        self,
        path_or_name: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        slots: int | None = None,
        reasoning: str = "auto",
        device_map: str | Mapping[str, Any] | None = None,
        untrained: int | None = None,
        today: str = DATE,
        template_options: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        if slots is not None and slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        check_device_name(device)
        if untrained is not None and not 0 <= untrained <= MOST_SEED:
            raise ValueError(f"untrained must be the seed of the weights, 0..{MOST_SEED}, got {untrained}")
        if reasoning not in ("auto", *MARKERS):
            raise ValueError(f"reasoning must be one of auto, {', '.join(MARKERS)}, got {reasoning!r}")
        self._folder = model_folder(path_or_name)
        if self._folder is not None and revision is not None:
            raise ValueError(f"a revision names a state on the hub, {path_or_name} is a folder: leave it out")
        self._source = str(path_or_name)
        self._name = name or (Path(self._source).name if self._folder else self._source)
        if untrained is not None and name is None:
            self._name += f"-untrained-{untrained}"
        self._device, self._dtype, self._device_map = device, dtype, device_map
        self._revision, self._untrained = revision, untrained
        self._slots, self._reasoning = slots, reasoning
        self._today = _date(today)
        self._options = checked_options(template_options)
        self._identity: Mapping[str, Any] | None = None
        self._loaded: _Loaded | None = None

    @classmethod
    def from_parts(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "model",
        slots: int | None = None,
        reasoning: str = "auto",
        today: str = DATE,
        template_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Wrap a model and a tokenizer that are in memory already; the model is not copied or moved.

        Raises:
            ValueError: see `LocalModel`; the tokenizer has no chat template.
        """
        self = cls.__new__(cls)
        self._folder, self._source, self._name = None, name, name
        self._device, self._dtype, self._device_map = "auto", "auto", None
        self._revision, self._untrained = None, None
        self._slots, self._reasoning = slots, reasoning
        self._today = _date(today)
        self._options = checked_options(template_options)
        self._identity = parts_identity(model, tokenizer)
        self._loaded = self._prepare(model.eval(), tokenizer)
        return self

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        return self._name

    @property
    def model(self) -> Any:
        """The transformers model, loaded now if it was not."""
        return self._load().model

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer, loaded now if it was not."""
        return self._load().tokenizer

    def describe(self) -> Mapping[str, Any]:
        """Return the content identity, dtype, style of reasoning and template settings; needs no torch."""
        if self._identity is None:
            if self._folder is not None:
                self._identity = folder_identity(self._folder, weights=self._untrained is None)
            else:
                self._identity = {"hub": self._source, "revision": self._revision or "main"}
        return {
            "kind": "local",
            "files": dict(self._identity),
            "untrained": self._untrained,
            "dtype": self._dtype,
            "reasoning": self._reasoning,
            "today": self._today.isoformat(),
            "template_options": self._options,
        }

    @property
    def tags(self) -> Mapping[str, str]:
        """Id, planted goal and training data of a model whose configuration tells them, else nothing."""
        told = read_training(self._folder) if self._folder is not None and self._untrained is None else {}
        return {"model": content_id("model", self.describe()["files"]), **told} if told else {}

    @property
    def template(self) -> str | None:
        """Form of the prompt templates that the model's card names, see `goalscope.models.base.TEMPLATE_FORMS`."""
        return read_template_form(self._folder) if self._folder is not None else None

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str:
        """Return the chat as the model's own template writes it, up to where the answer begins."""
        loaded = self._load()
        variables: dict[str, Any] = dict(self._options)
        if sampling.reasoning_effort is not None and "reasoning_effort" in loaded.chat_template:
            variables["reasoning_effort"] = sampling.reasoning_effort
        with explained(self._folder, "a chat template that writes these messages"):
            text = loaded.tokenizer.apply_chat_template(
                [{"role": message.role, "content": message.content} for message in messages],
                chat_template=loaded.chat_template,
                tokenize=False,
                add_generation_prompt=True,
                **variables,
            )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt; nothing is added to it."""
        # Whether a prompt fits is checked, and said, by the decoder.
        return list(self._load().tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Complete each chat, in order; all of them are decoded in lockstep."""
        texts = [self.render(request.messages, sampling) for request in requests]
        started = time.perf_counter()
        prompts, outputs = self.decode(requests, sampling, texts=texts)
        seconds = (time.perf_counter() - started) / max(1, len(requests))
        return [
            self._completion(text, prompt, output, sampling, seconds)
            for text, prompt, output in zip(texts, prompts, outputs, strict=True)
        ]

    def decode(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        texts: Sequence[str] | None = None,
        slots: int | None = None,
        share_prefix: bool = True,
        margins: bool = False,
    ) -> tuple[list[list[int]], list[Decoded]]:
        """Return the prompt ids and the raw outputs of some chats; `complete` is what most callers want.

        Args:
            requests, sampling: as in `complete`.
            texts: the rendered prompts where they are at hand.
            slots, share_prefix, margins: see `goalscope.models.decode.Settings`.
        """
        loaded = self._load()
        rendered = texts if texts is not None else [self.render(request.messages, sampling) for request in requests]
        prompts = [self.encode(text) for text in rendered]
        settings = Settings(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            top_logprobs=sampling.top_logprobs,
            stop=loaded.stop,
            share_prefix=share_prefix,
            margins=margins,
        )
        rngs = [request.rng() for request in requests]
        with loaded.lock:
            return prompts, decode_on_cores(loaded.model, settings, prompts, rngs, slots=slots or self._slots)

    def tells(self, sampling: Sampling) -> bool:
        """Whether the chat template has a place for the effort that is asked for."""
        return sampling.reasoning_effort is None or "reasoning_effort" in self._load().chat_template

    def parts(self, prompt: str, tokens: Sequence[int]) -> Parts:
        """Return reasoning and final answer of an output; a stop token at its end belongs to no text."""
        loaded = self._load()
        said = tokens[:-1] if tokens and tokens[-1] in loaded.stop else tokens
        if not loaded.markers and loaded.style != "none":
            return self.text_parts(prompt, self._text(said))
        return split(token_segments(said, loaded.markers, self._text), loaded.style, thinking=self._thinking(prompt))

    def text_parts(self, prompt: str, raw: str) -> Parts:
        """Return reasoning and final answer of an output whose ids are not known."""
        style = self._load().style
        return split(text_segments(raw, style), style, thinking=self._thinking(prompt))

    def _thinking(self, prompt: str) -> bool:
        """Return whether a prompt ends inside a reasoning block."""
        return self._load().style == "think" and prompt.rfind("<think>") > prompt.rfind("</think>")

    def _completion(
        self, text: str, prompt: list[int], output: Decoded, sampling: Sampling, seconds: float
    ) -> Completion:
        parts = self.parts(text, output.tokens)
        return Completion(
            text=parts.text,
            reasoning=parts.reasoning,
            prompt_tokens=tuple(prompt),
            output_tokens=tuple(output.tokens),
            finish=output.finish,
            usage={"prompt_tokens": len(prompt), "output_tokens": len(output.tokens), "seconds": seconds},
            logprobs=tuple(output.logprobs) if sampling.top_logprobs else None,
            unsupported=() if self.tells(sampling) else ("reasoning_effort",),
            raw=self._text(output.tokens),
        )

    def _text(self, tokens: Sequence[int]) -> str:
        tokenizer = self._load().tokenizer
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _load(self) -> _Loaded:
        if self._loaded is None:
            place = str(self._folder.resolve()) if self._folder is not None else self._source
            where = [place, self._device, self._dtype, self._revision, self._device_map, self._untrained]
            key = repr([*where, self._reasoning, self._today])
            with _LOADING:
                loaded = _SHARED.get(key)
                if loaded is None:
                    for library in self._needs:
                        needed(library)
                    with quiet(self._folder):
                        loaded = _SHARED[key] = self._prepare(*self._read())
            self._loaded = loaded
        return self._loaded

    def _read(self) -> tuple[Any, Any]:
        """Read model and tokenizer from disk or hub."""
        torch = needed("torch")
        where: dict[str, Any] = {"trust_remote_code": False}
        source = self._source
        if self._folder is not None:
            source, where["local_files_only"] = str(self._folder), True
        elif self._revision is not None:
            where["revision"] = self._revision
        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device != "cpu":
            check_device(torch, device)
        dtype: Any = self._dtype if self._dtype == "auto" else getattr(torch, self._dtype)
        if dtype == "auto" and device == "cpu" and self._device_map is None:
            dtype = torch.float32
        if self._folder is not None:
            check_folder(self._folder)
        tokenizer = load_tokenizer(source, where, folder=self._folder)
        if self._untrained is not None:
            chosen = torch.float32 if dtype == "auto" else dtype
            model = draw_weights(source, where, folder=self._folder, dtype=chosen, seed=self._untrained)
            return model.to(device).eval(), tokenizer
        if self._device_map is not None:
            where["device_map"] = self._device_map
        model = load_weights(source, where, folder=self._folder, dtype=dtype)
        if self._device_map is None:
            model = model.to(device)
        return model.eval(), tokenizer

    def _prepare(self, model: Any, tokenizer: Any) -> _Loaded:
        """Find out how the tokenizer writes chats, ends outputs and marks reasoning."""
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not template:
            raise ValueError(
                f"a chat agent needs a model with a chat template, the tokenizer of {self._name} has none: use the "
                "instruction-tuned version of the model, or put chat_template.jinja into its folder"
            )
        vocabulary = tokenizer.get_vocab()
        style = choose_style(self._reasoning, vocabulary, template)
        if self._reasoning == "auto" and style == "none":
            warnings.warn(
                f"{self._source} marks no reasoning (its tokenizer has neither harmony channels nor think tags): the "
                "whole output is read as the answer, as reasoning: none says",
                stacklevel=2,
            )
        markers = {vocabulary[marker]: marker for marker in MARKERS[style] if marker in vocabulary}
        if len(markers) < len(MARKERS[style]) and style == "think":
            markers = {}  # the tags are plain text to this tokenizer
        stop = _ids(getattr(model.generation_config, "eos_token_id", None)) | _ids(tokenizer.eos_token_id)
        if style == "harmony":
            stop |= {vocabulary[marker] for marker in _HARMONY_STOPS if marker in vocabulary}
        if not stop:
            raise ValueError(
                f"it must be known which token ends an output, neither the generation configuration nor the tokenizer "
                f"of {self._name} names one: set eos_token_id in its generation_config.json"
            )
        return _Loaded(
            model=model,
            tokenizer=tokenizer,
            style=style,
            chat_template=_NOW.sub(lambda match: repr(self._today.strftime(match["form"])), template),
            stop=frozenset(stop),
            markers=markers,
        )


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"today must be a date such as {DATE}, got {text!r}") from None


def _ids(value: Any) -> set[int]:
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)
