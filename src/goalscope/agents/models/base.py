"""The interface of language models (chat messages and sampling settings in, replies out) and a registry of backends.

The backend ``local`` runs a Hugging Face model in this process; ``server`` queries an OpenAI-compatible server. A chat
agent with the parameter ``server`` uses the latter unless it names another backend. Other packages can register
backends of their own.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    Protocol,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import check_choice, near_miss
from goalscope._ground.rng import stream

ModelFactory = TypeVar("ModelFactory", bound=Callable[..., Any])
Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "withheld", "failed", "called"]
"""The ways in which a reply can end, see `Reply`."""
PartKind = Literal["reasoning", "answer", "call"]
"""The kinds of parts of a reply, see `Part`."""
CallKey = tuple[int, str, int, int]
"""(root seed, episode id, step, attempt) of a call."""

ROLES: Final[tuple[str, ...]] = get_args(Role)
FINISHES: Final[tuple[Finish, ...]] = get_args(Finish)
PART_KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)
EFFORTS: Final = ("minimal", "low", "medium", "high")
MOST_LOGPROBS: Final = 20

MOST_USAGE: Final = 2**53
"""Largest number of tokens, seconds or USD that a call may cost; sums of such numbers are still exact."""

MOST_NUMBER: Final = 2**63 - 1
"""Largest absolute value of a whole number in a study."""

TEMPLATE_FORMS: Final = ("example", "schema")
"""How a prompt template shows the form of the answer: by a filled-in example, or by a schema."""

COMPLETION: Final = "completion"
"""Form of a prompt template for base models, which have no chat template: a text with worked examples to continue."""

ANSWER_CUE: Final = "\nAnswer:\n"
"""Text between a question and its answer for models without a chat template."""


_TYPE_NAMES: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "nothing",
}
_OTHER_BACKEND: Final = {"local": "server", "server": "local"}  # our two backends


RandomWeights = Literal["default-init", "initial", "permuted"]
"""The kinds of random weights that serve as a control, see `goalscope.agents.models.local`."""
RANDOM_WEIGHTS: Final = get_args(RandomWeights)


def check_random_weights(kind: str, untrained: int | None) -> None:
    """Check the settings of a model with random weights, which serves as a control for a trained model.

    Args:
        kind: how the weights are drawn, one of `RANDOM_WEIGHTS`.
        untrained: seed of the random weights; None if the model keeps its trained weights.

    Raises:
        ValueError: the kind is unknown, or it needs a seed and there is none.
    """
    check_choice("random_weights", kind, RANDOM_WEIGHTS)
    if untrained is None and kind != RANDOM_WEIGHTS[0]:
        raise ValueError(f"random_weights: {kind} needs the seed of the weights: set untrained, e.g. untrained: 0")


class ChatFormat(TypedDict, total=False):
    """A study's settings for how a model writes and reads chats, which all our backends accept.

    Attributes:
        reasoning: how reasoning and answer are separated: "harmony", "think", "none", or the model's own tags,
            ``{"open": ..., "close": ...}``. "auto" finds this in the tokenizer and its chat template; if neither marks
            reasoning, it is "none", with a warning.
        today: the date that chat templates show instead of the real date, ``YYYY-MM-DD``, because prompts must not
            change from day to day. None for the default date.
        template_options: further variables of the chat template.
        thinking: whether to switch thinking on or off through the chat template's variable for it; None to leave it to
            the template.
        chat_template: name of the chat template, for models with several. None for the only one, or the one named
            "default".
    """

    reasoning: str | Mapping[str, Any]
    today: str | None
    template_options: Mapping[str, Any] | None
    thinking: bool | None
    chat_template: str | None


class NotSentError(ValueError):
    """Error that is raised before anything is sent to a model, for example because a cap is reached.

    Nothing has been spent then, so the call is not counted as one whose answer was lost.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat.

    Attributes:
        role: who speaks.
        content: the text.

    Raises:
        ValueError: the role is unknown.
    """

    role: Role
    content: str

    def __post_init__(self) -> None:
        check_choice("the role of a message", self.role, ROLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Settings for drawing output tokens; the defaults are those of the paper.

    Attributes:
        temperature: 0 takes the most likely token; exact ties go to the lowest id.
        top_p: tokens are drawn from the most likely tokens whose total probability reaches this value, in (0, 1].
        max_tokens: maximum output tokens, including reasoning.
        reasoning_effort: passed to the chat template or the server, None to pass nothing.
        top_logprobs: number of alternatives whose log-probabilities are stored with each output token, 0 for none.

    Raises:
        ValueError: a setting is out of its range.

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
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p!r}: set 1 to draw from all tokens")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens!r}")
        if self.reasoning_effort is not None and self.reasoning_effort not in EFFORTS:
            raise ValueError(
                f"reasoning_effort must be one of {', '.join(EFFORTS)} or null, got {self.reasoning_effort!r}"
            )
        if not 0 <= self.top_logprobs <= MOST_LOGPROBS:
            raise ValueError(f"top_logprobs must lie in 0..{MOST_LOGPROBS}, got {self.top_logprobs!r}")

    def describe(self) -> dict[str, Any]:
        """Return the settings as a dictionary, field name -> value."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One chat for a model to complete.

    Attributes:
        messages: the chat so far.
        key: (root seed, episode id, step, attempt), from which the random numbers of the output are derived.
        answers: the complete texts of all answers that state an action, in the order of the actions; needed by
            `Scoring.likelihoods` and by servers that constrain answers.
        prefill: the required beginning of the output, in the model's own markup (channels, tags), which the model
            continues. A reply includes it as if the model had written it.

    Raises:
        ValueError: there is no message.
    """

    messages: tuple[Message, ...]
    key: CallKey
    answers: tuple[str, ...] = ()
    prefill: str = ""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("a request must have at least one message, got none")

    def rng(self) -> np.random.Generator:
        """Return the random number generator of this output, which depends only on the key and not on the batch."""
        seed, episode_id, step, attempt = self.key
        return stream(seed, "sample", episode_id, step, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a model's reply: reasoning, the answer, or a tool call.

    Attributes:
        kind: "reasoning" (written before the answer), "answer", or "call" (of a tool).
        text: the text of the part, without the marks around it.

    Raises:
        ValueError: the kind is unknown.
        TypeError: the text is not a string.
    """

    kind: PartKind
    text: str

    def __post_init__(self) -> None:
        check_choice("the kind of a part", self.kind, PART_KINDS)
        if not isinstance(self.text, str):
            raise TypeError(f"the text of a part must be a string, got {type(self.text).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to one request, from a local model, a server or an inference engine.

    Attributes:
        parts: the reasoning, answers and tool calls, in the order in which the model wrote them. Only parts of kind
            "answer" can state an action.
        finish: how the reply ended: "stop" (the model ended it), "length" (cut off at the token limit), "called" (it
            ended in a tool call), "withheld" (the server withheld the answer, for example because of a content filter),
            or "failed" (the server failed; such a reply never counts as a turn of the model).
        redraws: how many replies to the same request were discarded before this one.
        error: the server's message about a reply that was withheld or failed, else "".
        prompt_tokens: exact token ids of the prompt, if known.
        output_tokens: exact token ids of the output, if known, including the stop token.
        usage: name -> number of tokens, seconds or USD.
        logprobs: one mapping per output token: ``token`` and ``logprob`` of the token that was drawn, and ``top``, a
            list of [token, logprob] of the most likely tokens, in nats before temperature is applied. Tokens are ids,
            or texts if a server returns no ids. None if log-probabilities were not requested.
        reconstructed: whether the token ids were reconstructed from the text.
        unsupported: names of settings that the model does not support.
        raw: the whole output as one text, including special tokens; None if unknown.
        answered_by: the server's name for the model that answered, "" if it gives none.

    Raises:
        ValueError: ``finish`` is unknown, a failed reply has no error, a reply that neither failed nor was withheld has
            an error, a reply that ended in a tool call contains none, or ``redraws`` is negative.
        TypeError: ``parts`` is not a tuple of `Part`.
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
        check_choice("the finish of a reply", self.finish, FINISHES)
        if isinstance(self.redraws, bool) or not isinstance(self.redraws, int) or self.redraws < 0:
            raise ValueError(f"the redraws of a reply must be a whole number >= 0, got {self.redraws!r}")
        if self.finish == "failed" and not self.error:
            raise ValueError("a reply with the finish failed must have the server's error, got an empty error")
        if self.error and self.finish not in ("failed", "withheld"):
            raise ValueError(
                f"only a reply that failed or was withheld can have an error, got {self.error!r:.200} with the finish "
                f"{self.finish}"
            )
        if self.finish == "called" and not any(part.kind == "call" for part in self.parts):
            raise ValueError("a reply with the finish called must have a part of kind call, got none")

    @classmethod
    def of(cls, answer: str, *, reasoning: str | None = None, **others: Any) -> "Reply":
        """Make a reply that consists of one answer and, if given, reasoning before it.

        Args:
            answer: the text of the answer.
            reasoning: the text of the reasoning.
            others: further fields of the reply, by name.
        """
        thoughts = () if reasoning is None else (Part(kind="reasoning", text=reasoning),)
        return cls(parts=(*thoughts, Part(kind="answer", text=answer)), **others)

    @property
    def answer(self) -> str:
        """The text of the final answer; "" if the output never reached one.

        Several answers are joined by line breaks, so that the parser notices if they contradict each other.
        """
        return "\n".join(part.text for part in self.parts if part.kind == "answer")

    @property
    def reasoning(self) -> str | None:
        """The reasoning that the model wrote before its answer; None if there is none or it was not returned."""
        return self._joined("reasoning")

    @property
    def call(self) -> str | None:
        """The model's tool calls as text, joined by line breaks; None if there are none."""
        return self._joined("call")

    def _joined(self, kind: PartKind) -> str | None:
        texts = [part.text for part in self.parts if part.kind == kind]
        return "\n".join(texts) if texts else None


def finish_of(parts: Sequence[Part], finish: Finish) -> Finish:
    """Return how a reply ended, one of `FINISHES`: "called" if it stopped after a tool call, else ``finish``
    unchanged.
    """
    return "called" if finish == "stop" and parts and parts[-1].kind == "call" else finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihoods:
    """How likely a model finds each of the A answers of a request.

    All answers follow the same tokens: the prompt, the reasoning if there is any, the text that opens the final answer,
    and the beginning that all answers share, such as ``{"action": "``.

    Attributes:
        logprobs: ``[A]`` log-probability of the rest of each answer after these tokens, in nats at temperature 1,
            summed over its tokens; empty if no final answer began after the reasoning.
        beginning: log-probability of the beginning that all answers share, in nats; 0.0 if they share none.
        prompt_tokens: token ids of the prompt.
        outputs: ``[A]`` token ids of everything after the prompt, up to the end of each answer, without a stop token.
        reasoned: the reply with the reasoning, None if the model answers without reasoning.
        usage: name -> number of tokens, seconds or USD, including the reasoning.
        unsupported: names of settings that the model does not support.
        answered_by: the server's name for the model that answered, "" if it gives none.
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
    """Interface of a language model, which completes chats."""

    @property
    def name(self) -> str:
        """Short name of the model, as tables show it."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return everything that determines the model's outputs, in the types of JSON, without paths and devices.

        The description is part of an agent's description, whose hash is the agent's id.
        """
        ...

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        """Return the exact text that the model reads for a chat; None if only its server knows this text."""
        ...

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Complete each chat, and return the replies in the order of the requests.

        Each reply depends only on its own request, not on the others in the call.
        """
        ...


@dataclass(frozen=True)
class AskedElsewhere:
    """A placeholder for a model that another library queries, for episodes in which that library runs the model.

    Attributes:
        name: name of the model in that library, or of the library if no model is known.
        library: name of the library.
    """

    name: str
    library: str

    def describe(self) -> Mapping[str, Any]:
        """Return the names of the library and the model, as part of the agent's description; the library records its
        own settings.
        """
        return {"kind": self.library, **({} if self.name == self.library else {"model": self.name})}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> None:
        """Return None, because only the other library knows the text that the model reads."""

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Raise a TypeError, because only the other library can query this model."""
        raise TypeError(f"{self.name} can only be asked by {self.library}, which plays this episode: run it there")


@runtime_checkable
class Scoring(Model, Protocol):
    """Interface of a language model that also returns how likely it finds given answers."""

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        """Return how likely the model finds each answer of each request, in the order of the requests.

        The likelihood of an answer is conditional on the prompt and, with ``reasoned``, on reasoning that the model
        generates first. The result for a request depends only on this request, except that the last bits of a local
        model's likelihoods may vary with the batch.

        Args:
            requests: requests with ``answers``; no answer of a request may be the beginning of another one.
            sampling: settings for sampling the reasoning; they do not change the likelihoods after given reasoning.
            reasoned: whether the model reasons freely before its answer.

        Raises:
            ValueError: the tokenizer cannot distinguish the answers, the model does not separate its reasoning, or it
                returns no log-probabilities.
        """
        ...


def model_backend(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Register a backend, a way of running language models, so that chat agents of studies can name it; used as a
    decorator.

    The decorated function or class is called as ``make(model=..., name=..., **options)``, where ``model`` is the
    study's name of the model, and ``name`` the name for tables, or None. Its other keyword parameters are options that
    a study may set. It must return a `goalscope.agents.models.Model`.

    Args:
        name: the backend's name.

    Raises:
        ValueError: the name is taken.
    """
    return registry.register("model", name)


def _options(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    accepted = dict[str, inspect.Parameter]()
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and ChatFormat in get_args(parameter.annotation):
            for name, hint in get_type_hints(ChatFormat).items():
                accepted[name] = inspect.Parameter(name, parameter.KEYWORD_ONLY, default=None, annotation=hint)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            accepted[parameter.name] = parameter
    return {name: parameter for name, parameter in accepted.items() if name not in ("model", "name")}


def build_model(
    model: str, options: Mapping[str, Any], *, backend: str = "", name: str | None = None, others: Sequence[str] = ()
) -> Model:
    """Build a model from a study's settings; nothing is read or sent yet.

    Args:
        model: its name in the study.
        options: the options of its backend.
        backend: name of the backend; "" for ``server`` if the options include a server, else ``local``.
        name: short name for tables, None to let the backend choose.
        others: further parameters that the caller accepts, for the error message.

    Raises:
        ValueError: the backend or an option is unknown, an option is missing, or a value has the wrong type or is out
            of range.
        TypeError: the backend does not return a model.
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
        raise ValueError(f"the model backend {backend} needs {', '.join(missing)}: add it to the agent")
    built = maker(model=model, name=name, **options)
    if not isinstance(built, Model):
        raise TypeError(
            f"the model backend {backend!r} must return a model (name, describe(), complete(requests, sampling)), got "
            f"{type(built).__name__}"
        )
    return built


def check_type(parameter: str, value: Any, hint: Any) -> None:
    """Check that the value of a chat agent's parameter has the type that the parameter's annotation requires.

    Args:
        parameter: name of the parameter, for the error.
        value: its value in the study.
        hint: annotation of the constructor parameter.

    Raises:
        ValueError: the value has another type, or is a whole number that is too large.
    """
    types = [get_origin(type_) or type_ for type_ in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    fits = isinstance(value, tuple([*types, int] if float in types else types))
    if not fits or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(dict.fromkeys(_TYPE_NAMES.get(type_, "a mapping") for type_ in types))
        raise ValueError(f"the parameter {parameter} of a chat agent must be {expected}, got {value!r}")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise ValueError(f"the parameter {parameter} of a chat agent must be at most {MOST_NUMBER}, got a larger one")


def _unknown_option(option: str, backend: str, known: Sequence[str]) -> str:
    """Return the error message for an option that a backend does not have."""
    if backend in _OTHER_BACKEND and option in _options(registry.resolve("model", _OTHER_BACKEND[backend])):
        if backend == "local":
            return f"{option} works only for models behind a server: add server: {{base_url: ...}}, or leave it out"
        return f"{option} works only for local models, but this model has a server: leave it out"
    return f"a chat agent with the model backend {backend} has no parameter {option!r}{near_miss(option, known)}"
