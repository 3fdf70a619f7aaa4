"""Constrained choice: draw the action by how likely the model finds each complete answer, instead of parsing a reply.

There is one answer per action of the view, such as ``{"action": "UP"}``. The model scores each answer after the same
tokens. The likelihoods are normalised to a sum of 1, and the action is drawn from them at the agent's temperature.
The model generates no answer, so such an agent differs from an agent that generates its answers.

Source: scoring the complete string of each option and dividing by its likelihood after a content-free prompt: Zhao et
al. (2021), Calibrate Before Use, section 4; the mass and its threshold: goalscope.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from goalscope._ground.checks import check_choice
from goalscope.agents.agent import ANSWERED_BY, REDRAWS, WITHHELD, Observation, Turn
from goalscope.agents.models.base import Likelihoods, Model, Sampling, Scoring
from goalscope.worlds.grid import SYMBOLS
from goalscope.worlds.gridworld import GridView

ANSWERS: Final = ("generated", "likelihood")
"""How a chat agent gets its action: by parsing generated text, or by drawing from the likelihoods of all answers."""

AFTER: Final = ("prompt", "reasoning")
"""The two texts after which answers can be scored: the prompt, or the prompt and the model's reasoning."""

LEAST_MASS: Final = 0.5
"""Default threshold on the mass, the total probability of all answers. A turn with less mass is invalid, since the
model would rather write something other than an action. Each turn stores its mass, so the fraction of invalid turns
under another threshold can be computed later."""

LITTLE_MASS: Final = "little mass"
"""Name of the failure of a turn whose answers have less mass than the threshold."""

_GRID_SYMBOLS: Final = "".join(SYMBOLS)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Settings for drawing an action by the likelihoods of its answers.

    Attributes:
        after: "prompt", or "reasoning" to let the model reason freely first.
        least_mass: minimum total probability of all answers, after their common beginning, for the turn to be valid; in
            [0, 1].
        prior_symbol: one character. The likelihoods are divided by the likelihoods after the same prompt with this
            character in every cell of its grids. "" for no division.

    Raises:
        ValueError: a setting is out of its range.
    """

    after: str = "prompt"
    least_mass: float = LEAST_MASS
    prior_symbol: str = ""

    def __post_init__(self) -> None:
        check_choice("answer_after", self.after, AFTER)
        if not 0 <= self.least_mass <= 1:
            raise ValueError(f"least_mass must be a probability, 0 to 1, got {self.least_mass!r}")
        symbol = self.prior_symbol
        if symbol and (len(symbol) > 1 or not symbol.isprintable() or symbol.isspace() or symbol.isdigit()):
            raise ValueError(f"prior_symbol must be one printable character that is not a digit, got {symbol!r}: use ?")
        if symbol and symbol in _GRID_SYMBOLS:
            raise ValueError(f"prior_symbol must not be a symbol of grids ({_GRID_SYMBOLS}), got {symbol!r}: use ?")
        if symbol and self.after == "reasoning":
            raise ValueError(
                "prior_symbol cannot be combined with answer_after: reasoning, because the reasoning repeats what the "
                "grid shows: leave one of the two out"
            )

    def describe(self) -> Mapping[str, Any]:
        """Return the settings as plain values."""
        return {"kind": "likelihood", **asdict(self)}

    def check_model(self, model: Model, sampling: Sampling) -> None:
        """Raise a ValueError if the model or the sampling settings cannot be used with likelihoods."""
        if not isinstance(model, Scoring):
            raise ValueError(
                f"answer: likelihood needs a model that returns likelihoods, and {model.name} does not: use a local "
                "model or a server in mode completions, or answer: generated"
            )
        if getattr(model, "dialect", self) is None:
            raise ValueError(
                "answer: likelihood needs a server in mode completions, got mode chat, which returns no likelihood "
                "of a given answer: set server.mode: completions, or use answer: generated"
            )
        if sampling.top_logprobs:
            raise ValueError(
                "top_logprobs must be 0 with answer: likelihood, which stores the log-probabilities of all actions: "
                "leave it out"
            )

    def reads(self, actions: int) -> int:
        """Return how many answers are scored per turn, including those for the prior; each reads its whole prompt."""
        return actions * (2 if self.prior_symbol else 1)

    @property
    def title(self) -> str:
        """Suffix that marks these settings in the default name of an agent."""
        words = ["likelihood", *(["after reasoning"] if self.after == "reasoning" else [])]
        return f"{' '.join(words)}{', prior taken off' if self.prior_symbol else ''}"


_KEYS = {"answer_after": "after", "least_mass": "least_mass", "prior_symbol": "prior_symbol"}
CHOICE_KEYS: Final[Mapping[str, Any]] = {
    "answer": str,
    "answer_after": str,
    "least_mass": float,
    "prior_symbol": str,
}
"""Keys of a study that determine how answers are obtained -> type of the value."""


def take_choice(parameters: dict[str, Any]) -> Choice | None:
    """Remove the choice settings from a chat agent's parameters and return them; None for generated answers.

    Raises:
        ValueError: the kind of answer is unknown, or there are choice settings although answers are generated.
    """
    answer = parameters.pop("answer", ANSWERS[0])
    settings = {name: parameters.pop(key) for key, name in _KEYS.items() if key in parameters}
    check_choice("answer", answer, ANSWERS)
    if answer == ANSWERS[0]:
        if settings:
            keys = ", ".join(key for key, name in _KEYS.items() if name in settings)
            raise ValueError(
                f"{keys} works only with answer: likelihood, but this agent's answers are generated: leave it out"
            )
        return None
    return Choice(**settings)


@lru_cache(maxsize=256)
def answers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the complete answer for each action, e.g. ``{"action": "UP"}``."""
    return tuple(json.dumps({"action": name}, ensure_ascii=False) for name in names)


@dataclass(frozen=True, slots=True)
class _ContentFree(GridView):
    """A grid that shows only its size."""

    symbol: str = "?"

    @property
    def text(self) -> str:
        return re.sub(r"[^\s\d]", lambda _: self.symbol, self.grid.render())


def content_free(observation: Observation, symbol: str) -> Observation:
    """Return an observation whose grids, including those of earlier steps, show the same character in every cell."""

    def blank(view: Any) -> GridView:
        return _ContentFree(grid=view.grid, symbol=symbol)

    history = tuple(replace(past, view=blank(past.view)) for past in observation.history)
    return replace(observation, view=blank(observation.seen(GridView)), history=history)


def policy_of(logprobs: Sequence[float], prior: Sequence[float] | None, temperature: float) -> list[float]:
    """Return the probabilities ``[A]`` with which actions are drawn.

    ``p(a)`` is proportional to ``exp((l(a) - l0(a)) / T)``, where l are the log-likelihoods and l0 those of the prior.
    At T = 0 the first action with the largest value has probability 1.

    Args:
        logprobs: ``[A]`` log-likelihoods in nats.
        prior: ``[A]`` log-likelihoods in nats, or None.
        temperature: T >= 0.
    """
    scores = np.asarray(logprobs, dtype=np.float64) - (0.0 if prior is None else np.asarray(prior, dtype=np.float64))
    if temperature == 0:
        return [float(index == scores.argmax()) for index in range(len(scores))]
    weights = np.exp((scores - scores.max()) / temperature)
    return [float(weight) for weight in weights / weights.sum()]


def chosen(
    choice: Choice, sampling: Sampling, scored: Likelihoods, prior: Likelihoods | None, observation: Observation
) -> Turn:
    """Draw the turn from the likelihoods of all answers.

    The step stores the probabilities that the action was drawn with (``policy``) and, under ``likelihood``, the
    log-probabilities, their mass, and the prior.
    """
    reasoned = scored.reasoned
    usage = dict(scored.usage)
    for name, value in (prior.usage if prior is not None else {}).items():
        usage[name] = usage.get(name, 0.0) + value
    extra: dict[str, Any] = {} if reasoned is None else {"finish": reasoned.finish, "generated": reasoned.answer}
    if reasoned is not None and reasoned.redraws:
        extra[REDRAWS] = reasoned.redraws
    if reasoned is not None and reasoned.error:
        extra["error"] = reasoned.error
    if scored.unsupported:
        extra["unsupported"] = list(scored.unsupported)
    if scored.answered_by:
        extra[ANSWERED_BY] = scored.answered_by
    action, text, output = None, "", None if reasoned is None else reasoned.output_tokens
    failure: str | None = None
    if not scored.logprobs:
        failures = {"length": "truncated", "withheld": WITHHELD}
        failure = "empty" if reasoned is None else failures.get(reasoned.finish, "empty")
    else:
        mass = math.fsum(map(math.exp, scored.logprobs))
        extra["likelihood"] = {"logprobs": list(scored.logprobs), "beginning": scored.beginning, "mass": mass}
        if prior is not None:
            extra["likelihood"]["prior"] = list(prior.logprobs)
        failure = None if mass >= choice.least_mass else LITTLE_MASS
    if failure is None:
        policy = policy_of(scored.logprobs, None if prior is None else prior.logprobs, sampling.temperature)
        index = int(np.searchsorted(np.cumsum(policy), observation.uniform("choice"), side="right"))
        action = policy.index(1.0) if sampling.temperature == 0 else min(index, len(policy) - 1)
        extra["policy"] = policy
        text, output = answers_of(observation.view.actions)[action], scored.outputs[action]
    return Turn(
        action=action,
        failure=failure,
        text=text,
        reasoning=None if reasoned is None else reasoned.reasoning,
        prompt_tokens=scored.prompt_tokens,
        output_tokens=output,
        usage=usage,
        extra=extra,
    )
