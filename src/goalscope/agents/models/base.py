"""Interface of language models: chat messages and sampling settings in, replies out; a registry of backends.

``local`` runs a Hugging Face model here, ``server`` asks an OpenAI-compatible server; a chat agent with the parameter
``server`` has the latter unless it names another one. Other packages register backends of theirs.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, get_origin, runtime_checkable

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import near_miss
from goalscope._ground.rng import stream

ModelFactory = TypeVar("ModelFactory", bound=Callable[..., Any])
Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "withheld", "failed", "called"]
"""How a reply ended, see `Reply`."""
PartKind = Literal["reasoning", "answer", "call"]
"""What a part of a reply is, see `Part`."""

ROLES: Final[tuple[str, ...]] = get_args(Role)
FINISHES: Final[tuple[Finish, ...]] = get_args(Finish)
PART_KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)
EFFORTS: Final = ("minimal", "low", "medium", "high")
MOST_LOGPROBS: Final = 20

MOST_USAGE: Final = 2**53
"""Largest number of tokens, seconds or USD that a call may have cost: sums of such are still exact."""

MOST_NUMBER: Final = 2**63 - 1
"""The largest whole number that a study may hold, in size."""

TEMPLATE_FORMS: Final = ("example", "schema")
"""How a prompt template shows the form of the answer: by a filled-in example, or by what may stand in it."""

COMPLETION: Final = "completion"
"""Form of a prompt template for base models, which have no chat template: a text with worked examples to go on with."""

ANSWER_CUE: Final = "\nAnswer:\n"
"""Text between a question and its answer where there is no chat template."""


_TYPE_NAMES: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "nothing",
}
_OTHER_BACKEND: Final = {"local": "server", "server": "local"}  # our two backends


class NotSentError(ValueError):
    """Raised before anything is sent to a model; the call then does not count as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat.

    Attributes:
        role: who speaks.
        content: the text.

    Raises:
        ValueError: an unknown role.
    """

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"the role of a message must be one of {', '.join(ROLES)}, got {self.role!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How output tokens are drawn; the defaults are the paper's settings.

    Attributes:
        temperature: 0 takes the most likely token, the one with the lowest id on exact ties.
        top_p: mass of the most likely tokens that is drawn from, in (0, 1].
        max_tokens: maximum output tokens, reasoning included.
        reasoning_effort: passed to the chat template or the server, None to pass nothing.
        top_logprobs: number of alternatives whose log-probabilities are kept with each output token, 0 for none.

    Raises:
        ValueError: a setting out of its range.

    Source: behavioural and representational evaluation, Tab. 6.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    max_tokens: int = 10_000
    reasoning_effort: str | None = "low"
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"the temperature must be a finite number >= 0, got {self.temperature!r}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p!r}: 1 draws from all tokens")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens!r}")
        if self.reasoning_effort is not None and self.reasoning_effort not in EFFORTS:
            raise ValueError(
                f"reasoning_effort must be one of {', '.join(EFFORTS)} or empty, got {self.reasoning_effort!r}"
            )
        if not 0 <= self.top_logprobs <= MOST_LOGPROBS:
            raise ValueError(f"top_logprobs must lie in 0..{MOST_LOGPROBS}, got {self.top_logprobs!r}")

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One chat to be completed.

    Attributes:
        messages: the chat so far.
        key: (root seed, episode id, step, attempt); it names the random stream of the output.
        answers: the complete texts of all answers that state an action, in the order of the actions; needed by
            `Scoring.likelihoods` and by servers that are to constrain an answer.
        prefill: what the output must begin with, in the model's own markup (channels, tags); the model writes on.
            A reply holds it like what the model wrote itself.

    Raises:
        ValueError: no message.
    """

    messages: tuple[Message, ...]
    key: tuple[int, str, int, int]
    answers: tuple[str, ...] = ()
    prefill: str = ""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("a request must have at least one message, got none")

    def rng(self) -> np.random.Generator:
        """Return the random stream of this output; it depends on the key alone, not on who shares the batch."""
        seed, episode_id, step, attempt = self.key
        return stream(seed, "sample", episode_id, step, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a reply.

    Attributes:
        kind: "reasoning" that was written before the answer, the "answer" itself, or a "call" of a tool.
        text: the text of the part, without the marks around it.

    Raises:
        ValueError: an unknown kind.
        TypeError: a text that is not a string.
    """

    kind: PartKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in PART_KINDS:
            raise ValueError(f"the kind of a part must be one of {', '.join(PART_KINDS)}, got {self.kind!r}")
        if not isinstance(self.text, str):
            raise TypeError(f"the text of a part must be a string, got {type(self.text).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request, from a local model, a server or an inference engine.

    Attributes:
        parts: the reasoning, answer and calls of tools, in the order in which the model wrote them. Only the parts
            of kind "answer" may state an action.
        finish: how the reply ended: "stop" (the model ended it), "length" (cut off at the token limit), "called" (it
            ended in a call of a tool), "withheld" (the server kept the answer back, for example by a content filter),
            "failed" (the server failed; such a reply is never a turn of the model).
        redraws: how many replies to the same request were discarded before this one.
        error: the server's own sentence on a reply that was withheld or failed, "" for none.
        prompt_tokens, output_tokens: exact token ids where they are known, the stop token included.
        usage: tokens, seconds and USD: numbers by name.
        logprobs: one mapping per output token: ``token`` and ``logprob`` of the token that was drawn, ``top`` the list
            of [token, logprob] of the most likely ones, in nats and before the temperature is applied. Tokens are ids,
            or texts where a server gives no ids. None where they were not requested.
        reconstructed: whether the token ids were reconstructed from the text.
        unsupported: names of settings that the model does not support.
        raw: the whole output as one text, special tokens included; None where it is not known.
        answered_by: the name that a server gives the model that answered, "" where it gives none.

    Raises:
        ValueError: an unknown way of ending, a failed reply without an error, an error of a reply that neither failed
            nor was withheld, a reply that ended in a call and holds none, or a number of redraws below 0.
        TypeError: parts that are not a tuple of `Part`.
    """

    parts: tuple[Part, ...] = ()
    finish: Finish = "stop"
    redraws: int = 0
    error: str = ""
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    logprobs: tuple[Mapping[str, Any], ...] | None = None
    reconstructed: bool = False
    unsupported: tuple[str, ...] = ()
    raw: str | None = None
    answered_by: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not all(isinstance(part, Part) for part in self.parts):
            raise TypeError(
                f"the parts of a reply must be a tuple of goalscope.agents.models.Part, got {self.parts!r:.200}"
            )
        if self.finish not in FINISHES:
            raise ValueError(f"the finish of a reply must be one of {', '.join(FINISHES)}, got {self.finish!r}")
        if isinstance(self.redraws, bool) or not isinstance(self.redraws, int) or self.redraws < 0:
            raise ValueError(f"the redraws of a reply must be a whole number >= 0, got {self.redraws!r}")
        if self.finish == "failed" and not self.error:
            raise ValueError("a failed reply must hold the server's error, got an empty one")
        if self.error and self.finish not in ("failed", "withheld"):
            raise ValueError(
                f"only a reply that failed or was withheld has an error, got {self.error!r:.200} with the finish "
                f"{self.finish}"
            )
        if self.finish == "called" and not any(part.kind == "call" for part in self.parts):
            raise ValueError("a reply with the finish called must hold a part of kind call, got none")

    @classmethod
    def of(cls, answer: str, *, reasoning: str | None = None, **others: Any) -> "Reply":
        """Return a reply from one text of reasoning, None for none, and one answer; other fields by name."""
        thoughts = () if reasoning is None else (Part(kind="reasoning", text=reasoning),)
        return cls(parts=(*thoughts, Part(kind="answer", text=answer)), **others)

    @property
    def answer(self) -> str:
        """The final answer, "" where the output never reached one.

        Several answers are joined by line breaks, so that the parser sees when they contradict each other.
        """
        return "\n".join(part.text for part in self.parts if part.kind == "answer")

    @property
    def reasoning(self) -> str | None:
        """The written reasoning, None where there is none or where it is not returned."""
        return self._joined("reasoning")

    @property
    def call(self) -> str | None:
        """The calls of tools, None where there is none."""
        return self._joined("call")

    def _joined(self, kind: PartKind) -> str | None:
        texts = [part.text for part in self.parts if part.kind == kind]
        return "\n".join(texts) if texts else None


def finish_of(parts: Sequence[Part], finish: Finish) -> Finish:
    """Return "called" for a reply that stopped after a call of a tool, else the given way of ending."""
    return "called" if finish == "stop" and parts and parts[-1].kind == "call" else finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihoods:
    """How likely a model finds each answer of a request.

    All answers are read after the same tokens: the prompt, the reasoning where there is any, what opens the final
    answer, and the beginning that the answers share, such as ``{"action": "``.

    Attributes:
        logprobs: ``[A]`` log-probability of the rest of each answer after these tokens, nats, temperature 1, summed
            over its tokens; empty where no final answer began after the reasoning.
        beginning: log-probability of the beginning that the answers share, nats, 0.0 where they share none.
        prompt_tokens: token ids of the prompt.
        outputs: ``[A]`` token ids of everything after the prompt, up to the end of each answer; no stop token.
        reasoned: the reply with the reasoning, None where the model answers without reasoning.
        usage: tokens, seconds, USD: numbers by name, the reasoning included.
        unsupported: names of settings that the model does not support.
        answered_by: see `Reply`.
    """

    logprobs: tuple[float, ...]
    beginning: float = 0.0
    prompt_tokens: tuple[int, ...] | None = None
    outputs: tuple[tuple[int, ...], ...] = ()
    reasoned: Reply | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    answered_by: str = ""


@runtime_checkable
class Model(Protocol):
    """Anything that completes chats."""

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return all that determines the model's outputs as plain values; no path and no device enters."""
        ...

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        """Return the exact text that the model reads, None where only its server knows."""
        ...

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Complete each chat, in order; an output depends on its own request alone."""
        ...


@runtime_checkable
class Scoring(Model, Protocol):
    """A model that also returns the likelihoods of given answers."""

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        """Return the likelihoods of the answers of each request, in order.

        They depend on that request alone, but for the last bits of a model here.

        Args:
            requests: with ``answers``, none the beginning of another one.
            sampling: how the reasoning is drawn; likelihoods do not depend on it.
            reasoned: whether the model reasons freely before its answer.

        Raises:
            ValueError: answers that the model's tokenizer cannot distinguish, a model without separate reasoning, or
                one that returns no log-probabilities.
        """
        ...


def model_backend(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Return a decorator that registers how the models of a backend are made; chat agents of studies then name it.

    It stands above a function, or a class, that is called as ``make(model=..., name=..., **options)``: ``model`` is
    what the study calls the model, ``name`` what tables shall call it or None. Its other keyword parameters are the
    options that a study may give. What it returns is a `goalscope.agents.models.Model`.

    Args:
        name: the backend's name.

    Raises:
        ValueError: a name that is taken.
    """
    return registry.register("model", name)


def _options(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {
        parameter.name: parameter
        for parameter in inspect.signature(maker).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in ("model", "name")
    }


def build_model(
    model: str, options: Mapping[str, Any], *, backend: str = "", name: str | None = None, others: Sequence[str] = ()
) -> Model:
    """Build a model from a study's settings; nothing is read or sent yet.

    Args:
        model: its name in the study.
        options: the options of its backend.
        backend: name of the backend; "" for ``server`` where the options have a server, else ``local``.
        name: short name for tables, None for its own choice.
        others: further parameters that the caller accepts, listed in the error message.

    Raises:
        ValueError: an unknown backend or option, one that is missing, or a value of the wrong type or out of its range.
        TypeError: the backend's result is no model.
    """
    backend = backend or ("server" if "server" in options else "local")
    maker = registry.resolve("model", backend)
    accepted = _options(maker)
    for option, value in options.items():
        if option not in accepted:
            raise ValueError(_unknown_option(option, backend, [*others, *accepted]))
        if backend in _OTHER_BACKEND:
            check_type(option, value, accepted[option].annotation)
    missing = [
        parameter.name
        for parameter in accepted.values()
        if parameter.default is parameter.empty and parameter.name not in options
    ]
    if missing:
        raise ValueError(f"the model backend {backend} must be given {', '.join(missing)}")
    built = maker(model=model, name=name, **options)
    if not isinstance(built, Model):
        raise TypeError(
            f"the model backend {backend!r} must make a model (name, describe(), complete(requests, sampling)), got "
            f"{type(built).__name__}"
        )
    return built


def check_type(parameter: str, value: Any, hint: Any) -> None:
    """Check a chat agent's parameter against the annotation of its constructor parameter.

    Raises:
        ValueError: another type, or a whole number that no parameter takes.
    """
    types = [get_origin(type_) or type_ for type_ in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    fits = isinstance(value, tuple([*types, int] if float in types else types))
    if not fits or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(dict.fromkeys(_TYPE_NAMES.get(type_, "a mapping") for type_ in types))
        raise ValueError(f"the parameter {parameter} of a chat agent must be {expected}, got {value!r}")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise ValueError(f"the parameter {parameter} of a chat agent must be at most {MOST_NUMBER}, got a larger one")


def _unknown_option(option: str, backend: str, known: Sequence[str]) -> str:
    """Return the error sentence on an option that a backend does not have."""
    if backend in _OTHER_BACKEND and option in _options(registry.resolve("model", _OTHER_BACKEND[backend])):
        if backend == "local":
            return f"{option} belongs to models behind a server: give server: {{base_url: ...}}, or leave it out"
        return f"{option} belongs to local models, this one has a server: leave it out"
    return f"a chat agent with the model backend {backend} has no parameter {option!r}{near_miss(option, known)}"
