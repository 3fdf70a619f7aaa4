"""The protocol of language models: chat messages and sampling settings in, completions out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from goalscope.rng import stream

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]
"""How an output ended: by a stop token, or at the limit of tokens."""

ROLES: Final[tuple[str, ...]] = get_args(Role)
EFFORTS: Final = ("minimal", "low", "medium", "high")
MOST_LOGPROBS: Final = 20

MOST_USAGE: Final = 2**53
"""Largest number of tokens, seconds or USD that a call may have cost: sums of such are still exact."""

TEMPLATE_FORMS: Final = ("example", "schema")
"""How a prompt template shows the form of the answer: by a filled-in example, or by what may stand in it."""

COMPLETION: Final = "completion"
"""Form of a prompt template for base models, which have no chat template: a text with worked examples to go on with."""

ANSWER_CUE: Final = "\nAnswer:\n"
"""What stands between a question and its answer where no chat template sets them apart."""


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
        max_tokens: most output tokens, reasoning included.
        reasoning_effort: what the chat template or the server is told, None to tell it nothing.
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
        prefill: what the output must begin with, in the model's own markup (channels, think tags); the model writes on.
            A completion holds it like what the model wrote itself.

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
class Completion:
    """What a model answered.

    Attributes:
        text: the final answer, "" where the output never came to one.
        reasoning: the written reasoning before it, None where there is none or it is not handed over.
        prompt_tokens, output_tokens: exact token ids where they are known, the stop token included.
        finish: how the output ended.
        usage: tokens, seconds, USD: numbers by name.
        logprobs: one mapping an output token: ``token`` and ``logprob`` of what was drawn, ``top`` the list of
            [token, logprob] of the most likely ones, in nats and before temperature; tokens are ids, or texts where a
            server gives no ids; None where not asked for.
        reconstructed: whether the token ids were made again from the text.
        unsupported: settings that the model has no place for, by name.
        raw: the whole output as one text, special tokens included.
        marked: whether the answer still holds markers of the model's channels; no action is read out of it then.
    """

    text: str
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    finish: Finish = "stop"
    usage: Mapping[str, float] = field(default_factory=dict)
    logprobs: tuple[Mapping[str, Any], ...] | None = None
    reconstructed: bool = False
    unsupported: tuple[str, ...] = ()
    raw: str | None = None
    marked: bool = False


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
        reasoned: what the model wrote before, None where it was not let to reason.
        usage: tokens, seconds, USD: numbers by name, the reasoning included.
        unsupported: settings that the model has no place for, by name.
    """

    logprobs: tuple[float, ...]
    beginning: float = 0.0
    prompt_tokens: tuple[int, ...] | None = None
    outputs: tuple[tuple[int, ...], ...] = ()
    reasoned: Completion | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()


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

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Complete each chat, in order; an output depends on its own request alone."""
        ...


@runtime_checkable
class Scoring(Model, Protocol):
    """A model that also tells how likely it finds given answers."""

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        """Return the likelihoods of the answers of each request, in order; they depend on that request alone.

        Args:
            requests: with ``answers``, none the beginning of another one.
            sampling: how the reasoning is drawn; likelihoods do not depend on it.
            reasoned: whether the model reasons freely before its answer.

        Raises:
            ValueError: answers that the model's tokenizer cannot tell apart, a model that does not set its reasoning
                apart, or one that hands over no log-probabilities.
        """
        ...
