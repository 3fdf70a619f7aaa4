"""Constrained choice: an action drawn by how likely a model finds each complete answer, not parsed from what it writes.

The answers are ``{"action": "UP"}`` and so on, one an action of the view. Each is read after the same tokens; their
likelihoods are set to a sum of 1 and the action is drawn from them at the agent's temperature. What the model would
have written otherwise is not asked for, so that this is another agent than one whose answers are generated.

Source: scoring the complete string of each option and taking off what a content-free prompt gives them: Zhao et al.
(2021), Calibrate Before Use, section 4; the mass and its threshold: goalscope.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from goalscope.agents.agent import Observation, Turn
from goalscope.models.base import Likelihoods, Model, Sampling, Scoring
from goalscope.worlds.grid import SYMBOLS
from goalscope.worlds.gridworld import GridView

ANSWERS: Final = ("generated", "likelihood")
"""How a chat agent's action is found: read in what the model writes, or drawn by the likelihoods of all answers."""

AFTER: Final = ("prompt", "reasoning")
"""After what the likelihoods are read."""

LEAST_MASS: Final = 0.5
"""Mass of the actions below which a turn is invalid: in that place the model would rather write something that is no
action. The mass of each turn is stored, so that the share of invalid turns under another threshold can be read off."""

LITTLE_MASS: Final = "little mass"
"""Name of the failure of a turn whose actions have less mass than they must have."""

_GRID_SYMBOLS: Final = "".join(SYMBOLS)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How an action is drawn by the likelihoods of its answers.

    Attributes:
        after: "prompt", or "reasoning": the model reasons freely first.
        least_mass: probability that all answers must have together, after the beginning that they share, for the turn
            to be valid; in [0, 1].
        prior_symbol: one sign; the likelihoods are then divided by those after the same prompt with this sign in the
            place of each cell of its grids. "" divides by nothing.

    Raises:
        ValueError: a setting out of its range.
    """

    after: str = "prompt"
    least_mass: float = LEAST_MASS
    prior_symbol: str = ""

    def __post_init__(self) -> None:
        if self.after not in AFTER:
            raise ValueError(f"answer_after must be one of {', '.join(AFTER)}, got {self.after!r}")
        if not 0 <= self.least_mass <= 1:
            raise ValueError(f"least_mass must be a probability, 0 to 1, got {self.least_mass!r}")
        sign = self.prior_symbol
        if sign and (len(sign) > 1 or not sign.isprintable() or sign.isspace() or sign.isdigit()):
            raise ValueError(f"prior_symbol must be one printable sign that is no digit, got {sign!r}")
        if sign and sign in _GRID_SYMBOLS:
            raise ValueError(f"prior_symbol must mean nothing in a grid ({_GRID_SYMBOLS} do), got {sign!r}: use ?")
        if sign and self.after == "reasoning":
            raise ValueError(
                "prior_symbol must be left out where answer_after is reasoning, which says again what the grid holds"
            )

    def describe(self) -> Mapping[str, Any]:
        """Return the settings as plain values."""
        return {"kind": "likelihood", **asdict(self)}

    def check_model(self, model: Model, sampling: Sampling) -> None:
        """Raise a ValueError for a model that tells no likelihoods, or settings that have no place beside them."""
        if not isinstance(model, Scoring):
            raise ValueError(
                f"answer: likelihood needs a model that tells likelihoods, {model.name} does not: use a local "
                "model or a server in mode completions, or answer: generated"
            )
        if getattr(model, "dialect", self) is None:
            raise ValueError(
                "answer: likelihood needs a server in mode completions, got mode chat, which does not tell how likely "
                "it finds a given answer: set server.mode, or use answer: generated"
            )
        if sampling.top_logprobs:
            raise ValueError(
                "top_logprobs must be 0 with answer: likelihood, which keeps those of all actions: leave it out"
            )

    def reads(self, actions: int) -> int:
        """Return how many answers a turn reads, those of the prior included; each comes with its whole prompt."""
        return actions * (2 if self.prior_symbol else 1)

    @property
    def title(self) -> str:
        """How the default names of such agents end."""
        said = ["likelihood", *(["after reasoning"] if self.after == "reasoning" else [])]
        return f"{' '.join(said)}{', prior taken off' if self.prior_symbol else ''}"


_KEYS = {"answer_after": "after", "least_mass": "least_mass", "prior_symbol": "prior_symbol"}
CHOICE_KEYS: Final[Mapping[str, Any]] = {
    "answer": str,
    "answer_after": str,
    "least_mass": float,
    "prior_symbol": str,
}
"""The keys of a study that say how an answer is found, and their types."""


def take_choice(given: dict[str, Any]) -> Choice | None:
    """Return what the parameters of a chat agent say about choice, and take it out of them; None: it is generated.

    Raises:
        ValueError: an unknown kind of answer, or settings of a choice without one.
    """
    answer = given.pop("answer", ANSWERS[0])
    held = {name: given.pop(key) for key, name in _KEYS.items() if key in given}
    if answer not in ANSWERS:
        raise ValueError(f"answer must be one of {', '.join(ANSWERS)}, got {answer!r}")
    if answer == ANSWERS[0]:
        if held:
            keys = ", ".join(key for key, name in _KEYS.items() if name in held)
            raise ValueError(f"{keys} belongs to answer: likelihood, this agent's answers are generated: leave it out")
        return None
    return Choice(**held)


@lru_cache(maxsize=256)
def answers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the complete answer of each action, e.g. ``{"action": "UP"}``."""
    return tuple(json.dumps({"action": name}, ensure_ascii=False) for name in names)


@dataclass(frozen=True, slots=True)
class _ContentFree(GridView):
    """A grid of which nothing but its size can be seen."""

    symbol: str = "?"

    @property
    def text(self) -> str:
        return re.sub(r"[^\s\d]", lambda _: self.symbol, self.grid.render())


def content_free(observation: Observation, symbol: str) -> Observation:
    """Return an observation whose grids, those of earlier steps too, show one sign in place of each cell."""

    def blank(view: Any) -> GridView:
        return _ContentFree(grid=view.grid, carrying_key=view.carrying_key, symbol=symbol)

    history = tuple(replace(past, view=blank(past.view)) for past in observation.history)
    return replace(observation, view=blank(observation.seen(GridView)), history=history)


def policy_of(logprobs: Sequence[float], prior: Sequence[float] | None, temperature: float) -> list[float]:
    """Return the probabilities of actions ``[A]`` that they are drawn with.

    ``p(a)`` is proportional to ``exp((l(a) - l0(a)) / T)``, l the log-likelihoods and l0 those of the prior; at T = 0
    all of it lies on the largest one, the first of several.

    Args:
        logprobs: ``[A]`` in nats.
        prior: ``[A]`` in nats, None for none.
        temperature: T >= 0.
    """
    scores = np.asarray(logprobs, dtype=np.float64) - (0.0 if prior is None else np.asarray(prior, dtype=np.float64))
    if temperature == 0:
        return [float(index == scores.argmax()) for index in range(len(scores))]
    weights = np.exp((scores - scores.max()) / temperature)
    return [float(one) for one in weights / weights.sum()]


def chosen(
    choice: Choice, sampling: Sampling, found: Likelihoods, prior: Likelihoods | None, observation: Observation
) -> Turn:
    """Return the turn that the likelihoods of all answers amount to.

    The step keeps the probabilities that the action was drawn with (``policy``), and under ``likelihood`` the
    log-probabilities, their mass, and what the prior was.
    """
    reasoned = found.reasoned
    usage = dict(found.usage)
    for name, value in (prior.usage if prior is not None else {}).items():
        usage[name] = usage.get(name, 0.0) + value
    extra: dict[str, Any] = {} if reasoned is None else {"finish": reasoned.finish, "generated": reasoned.text}
    if found.unsupported:
        extra["unsupported"] = list(found.unsupported)
    action, text, output = None, "", None if reasoned is None else reasoned.output_tokens
    failure: str | None = None
    if not found.logprobs:
        failure = "truncated" if reasoned is not None and reasoned.finish == "length" else "empty"
    else:
        mass = math.fsum(map(math.exp, found.logprobs))
        extra["likelihood"] = {"logprobs": list(found.logprobs), "beginning": found.beginning, "mass": mass}
        if prior is not None:
            extra["likelihood"]["prior"] = list(prior.logprobs)
        failure = None if mass >= choice.least_mass else LITTLE_MASS
    if failure is None:
        policy = policy_of(found.logprobs, None if prior is None else prior.logprobs, sampling.temperature)
        drawn = int(np.searchsorted(np.cumsum(policy), observation.uniform("choice"), side="right"))
        action = policy.index(1.0) if sampling.temperature == 0 else min(drawn, len(policy) - 1)
        extra["policy"] = policy
        text, output = answers_of(observation.view.actions)[action], found.outputs[action]
    return Turn(
        action=action,
        failure=failure,
        text=text,
        reasoning=None if reasoned is None else reasoned.reasoning,
        prompt_tokens=found.prompt_tokens,
        output_tokens=output,
        usage=usage,
        extra=extra,
    )
