"""Trials of a server: requests whose answers show what it does with a parameter, whatever it accepts.

Few servers reject what they cannot do: one that ignores the temperature answers as if it drew, one that leaves
reasoning in the answer answers too. Each ability is therefore seen in an answer, not in a promise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

from goalscope.models.base import Message, NotSentError, Request, Sampling
from goalscope.models.http import HttpModel
from goalscope.models.http_answers import Answer
from goalscope.models.http_budget import most_prompt_tokens
from goalscope.models.http_errors import RejectedError, rejection
from goalscope.models.http_settings import CONSTRAINTS, Constraint, Server, constraint, constraint_name, kept_to

DRAWS: Final = 8
"""Draws that show whether the temperature acts."""

GREEDY_DRAWS: Final = 4
"""Answers at temperature 0, of which two must be equal."""

HOT: Final = 1.5
"""Temperature of these draws."""

MOST_LETTERS: Final = 48
"""Most output tokens of a draw."""

MOST_PLAIN: Final = 1024
"""Most output tokens of the answer to a prompt of the study."""

_LETTERS: Final = "Write eight random letters of the alphabet, one after the other, and nothing else."
_SEA: Final = "Write one short sentence about the sea. Write plain words and no JSON."
_IDS: Final = "return_token_ids"
_COLD: Final[Mapping[str, float]] = {"temperature": 0.0, "top_p": 1.0}
_SHOWN: Final = 60  # characters of an answer in a sentence
_SENT: Final = ("temperature", "top_p", "seed", *CONSTRAINTS)  # what the trials set themselves

State = Literal["yes", "no", "unknown"]


class Ability(BaseModel):
    """One thing that a server does, does not do, or of which that cannot be told; and what was seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    state: State
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a study needs of its server.

    Attributes:
        sampling: how outputs are drawn.
        messages: a prompt of the study.
        answers: the complete answers that state an action.
        written: whether the model writes; where only the likelihoods of answers are read, nothing is drawn by it.
        scored: whether log-probabilities of prompts are read.
        everything: whether to try what the study does not need, too.
    """

    sampling: Sampling
    messages: tuple[Message, ...] = ()
    answers: tuple[str, ...] = ()
    written: bool = True
    scored: bool = False
    everything: bool = False

    def settings(self, server: Server) -> dict[str, Any]:
        """Return what decides which trials are made and what comes out; neither a prompt nor waiting times."""
        told = {"base_url", "mode", "tokenizer", "body", "constrained", "unsupported", "token_ids"}
        own = {name: getattr(self, name) for name in ("written", "scored", "everything")}
        return {**server.model_dump(include=told), **self.sampling.describe(), **own}


def most_trial_tokens(wanted: Wanted, server: Server, most_prompt: int | None = None) -> tuple[int, int, int]:
    """Return what the trials of a study take at most; requests that are rejected or fail are not in it.

    Args:
        wanted: what the study needs.
        server: how the server is treated.
        most_prompt: most tokens of a prompt of the study, counted here where it is None.

    Returns:
        Requests, prompt tokens and output tokens of all of them.
    """
    sampling, ours = wanted.sampling, most_prompt_tokens([Message(role="user", content=_LETTERS)], 1)
    own = most_prompt_tokens(wanted.messages, sampling.max_tokens) if most_prompt is None else most_prompt
    short = 2 * ("stop" in server.body) + (server.constrained is not None)
    if wanted.written:
        short += DRAWS + 1 if sampling.temperature > 0 else GREEDY_DRAWS
    scored = 2 * wanted.scored
    outputs = min(sampling.max_tokens, MOST_PLAIN) * wanted.written + short * MOST_LETTERS + scored
    return wanted.written + short + scored, own * wanted.written + ours * (short + scored), outputs


@dataclass(slots=True)
class Trials:
    """The trials of one server, and what was found by them."""

    model: HttpModel
    wanted: Wanted
    found: list[Ability] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    seen: list[Answer] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether the server answers at all."""
        return bool(self.seen)

    @contextmanager
    def _trying(self, name: str, *failures: type[Exception], most: int = 200) -> Iterator[None]:
        """Take some failures for a no; before a run, a server that cannot be reached is no answer to anything."""
        failures = failures or ((ValueError, ConnectionError) if self.wanted.everything else (ValueError,))
        try:
            yield
        except NotSentError:
            raise
        except failures as error:
            self.add(name, "no", _shown(str(error), most))

    def add(self, name: str, state: State | bool, detail: str) -> None:
        """Take note of what was seen."""
        told: State = state if isinstance(state, str) else "yes" if state else "no"
        self.found.append(Ability(name=name, state=told, detail=detail))

    def ask(
        self, messages: Sequence[Message], most: int, parameters: Mapping[str, Any], *, wait: bool = True
    ) -> Answer:
        """Ask as the study does, with other parameters; what is rejected by name is taken note of and left out."""
        dialect, sampling = self.model.dialect, self.wanted.sampling
        request = Request(messages=tuple(messages), key=(0, "check", 0, 0), answers=())
        usual = self.model.parameters(request, sampling)
        kept = {name: value for name, value in usual.items() if name not in _SENT} | dict(parameters)
        if dialect is None:
            asked: dict[str, Any] = {"messages": [{"role": one.role, "content": one.content} for one in messages]}
        else:
            asked = {"prompt": dialect.encode(dialect.render(messages, sampling))}
        while True:
            sent = {name: value for name, value in kept.items() if name not in self.rejected}
            try:
                answer = self.model.trial(asked, most, sent, wait=wait)
            except RejectedError as rejected:
                named = rejected.named(sent) or (_IDS if dialect is None and _IDS in sent else None)
                if named is None:
                    raise
                self.rejected[named] = str(rejected)
                continue
            self.seen.append(answer)
            return answer

    def plain(self) -> None:
        """See what the server makes of a prompt of the study: whether it answers, with ids, with reasoning apart."""
        model, sampling = self.model, self.wanted.sampling
        request = Request(messages=self.wanted.messages, key=(0, "check", 0, 0), answers=self.wanted.answers)
        own = {name: value for name, value in model.parameters(request, sampling).items() if name in _SENT}
        try:
            answer = self.ask(self.wanted.messages, min(sampling.max_tokens, MOST_PLAIN), own)
        except RejectedError as rejected:
            if model.dialect is None:
                raise rejection(model.served, model.server, str(rejected), as_ids=False) from None
            self.add("prompts as token ids", "no", f"it says: {rejected}")
            return
        self.add("model", "yes", f"answers as {self.model.name}")
        if model.dialect is not None:
            self.add("prompts as token ids", "yes", "taken")
        ids = answer.output_tokens
        told = "returned" if answer.prompt_tokens is not None or model.dialect is not None else "of the output alone"
        lacking = "not returned: such a run can be measured, its activations cannot be captured"
        if _IDS in self.rejected:
            lacking = f"rejected: {self.rejected[_IDS]}"
        self.add("token ids", ids is not None, told if ids is not None else lacking)
        counted = answer.prompt_count is not None and answer.output_count is not None
        self.add("usage", counted, "reported" if counted else "not reported: caps count the most that a call can take")
        self._reasoning(answer)
        if sampling.top_logprobs:
            self._logprobs(answer)

    def _reasoning(self, answer: Answer) -> None:
        shown = _shown(answer.text)
        if self.model.dialect is not None:
            self.add("reasoning", "yes", "told apart here, by the tokens of the output")
        elif answer.marked:
            self.add("reasoning", "no", f"markers are left in the answer that do not take it apart ({shown})")
        elif answer.divided:
            self.add("reasoning", "yes", "merged into the answer, taken apart by the model's own markers")
        elif answer.reasoning:
            self.add("reasoning", "yes", "kept apart by the server")
        elif answer.reasoning_count:
            self.add("reasoning", "yes", f"kept by the server, {answer.reasoning_count} tokens")
        else:
            self.add("reasoning", "unknown", f"none was seen beside the answer ({shown})")

    def draws(self) -> None:
        """See whether the temperature acts, and the seed."""
        letters = [Message(role="user", content=_LETTERS)]
        if self.wanted.sampling.temperature == 0:
            said = [_said(self.ask(letters, MOST_LETTERS, _COLD)) for _ in range(GREEDY_DRAWS)]
            kinds = len(set(said))
            detail = f"{kinds} different texts of {GREEDY_DRAWS} at temperature 0"
            self.add("temperature", kinds < GREEDY_DRAWS or not any(map(any, said)), detail)
            return
        hot = {"temperature": HOT, "top_p": 1.0}
        said = [_said(self.ask(letters, MOST_LETTERS, {**hot, "seed": seed})) for seed in range(DRAWS)]
        again = _said(self.ask(letters, MOST_LETTERS, {**hot, "seed": 0}))
        kinds = len({*said})
        if "temperature" in self.rejected:
            self.add("temperature", "no", f"rejected: {self.rejected['temperature']}")
        elif not any(map(any, said)):
            self.add("temperature", "unknown", f"the model wrote nothing within {MOST_LETTERS} tokens")
        else:
            same = f"the same text {DRAWS} times ({_shown(said[0][1] or said[0][0])})"
            detail = f"{kinds} different texts of {DRAWS}" if kinds > 1 else same
            self.add("temperature", kinds > 1, f"{detail} at temperature {HOT:g}, asked for random letters")
        if "seed" in self.rejected:
            self.add("seed", "no", f"rejected: {self.rejected['seed']}")
        elif kinds == 1:
            self.add("seed", "unknown", "nothing is drawn")
        else:
            twice = "the same seed twice gave the same text"
            other = "the same seed twice gave two texts: answers cannot be drawn again, those stored stay"
            self.add("seed", again == said[0], twice if again == said[0] else other)

    def stop(self) -> None:
        """See whether a stop string ends an answer: one out of the middle of an answer that was just given."""
        if not self.wanted.everything and "stop" not in self.model.server.body:
            return
        sea = [Message(role="user", content=_SEA)]
        text = self.ask(sea, MOST_LETTERS, _COLD).text
        middle = text[len(text) // 2 :].lstrip()[:3].rstrip()
        if len(text) < 8 or not middle:
            self.add("stop strings", "unknown", f"the answer is too short to be cut ({_shown(text)})")
            return
        with self._trying("stop strings", RejectedError, ConnectionError):
            cut = self.ask(sea, MOST_LETTERS, {**_COLD, "stop": [middle]}, wait=False).text
            acts = len(cut) < len(text)  # some servers keep the whole token that held it
            detail = f"{middle!r} {'ends' if acts else 'does not end'} an answer that holds it"
            if "stop" in self.rejected:
                acts, detail = False, f"rejected: {self.rejected.pop('stop')}"
            self.add("stop strings", acts, detail)

    def constraints(self) -> None:
        """See whether an answer is kept to actions where it is asked for plain words."""
        if self.model.dialect is not None or not self.wanted.answers:
            return
        own, everything = self.model.server.constrained, self.wanted.everything
        for how in get_args(Constraint) if everything else (own,) * bool(own):
            with self._trying(f"constrained: {how}"):
                acts = constraint_acts(self.model, self.wanted.answers, how, wait=not everything)
                detail = "keeps the answer to an action" if acts else "taken, and the answer is another text"
                self.add(f"constrained: {how}", acts, detail)

    def logprobs(self) -> None:
        """See whether log-probabilities of the output come with an answer, where that was not seen yet."""
        if not self.wanted.everything or self.wanted.sampling.top_logprobs:
            return
        extra = {"logprobs": True, "top_logprobs": 2} if self.model.dialect is None else {"logprobs": 2}
        with self._trying("log-probabilities", RejectedError, ConnectionError):
            self._logprobs(self.ask([Message(role="user", content=_SEA)], 8, {**_COLD, **extra}, wait=False))

    def _logprobs(self, answer: Answer) -> None:
        told = bool(answer.logprobs)
        rejected = next((self.rejected[name] for name in ("top_logprobs", "logprobs") if name in self.rejected), "")
        self.add("log-probabilities", told, "returned" if told else f"rejected: {rejected}" if rejected else "ignored")

    def scores(self) -> None:
        """See whether the tokens of a prompt are scored."""
        if self.model.dialect is None:
            self.add("log-probabilities of prompts", "unknown", "tried in mode completions, with the model's tokenizer")
            return
        ids = self.model.dialect.encode(_SEA)
        with self._trying("log-probabilities of prompts", most=300):
            with self.model.budget.reserve(len(ids), 1) as reservation:
                answer, _ = self.model.score([ids], reservation)
                reservation.settle(answer.prompt_count, answer.output_count)
            self.add("log-probabilities of prompts", "yes", "returned")

    def token_prompts(self) -> None:
        """See whether mode completions would work, by the ids that the server returned or some small ones."""
        if self.model.dialect is not None:
            return
        known = next((one.prompt_tokens for one in self.seen if one.prompt_tokens), None)
        with self._trying("prompts as token ids"):
            answer = self.model.trial({"prompt": [*(known or (10, 11, 12))]}, 1, {"temperature": 0.0}, wait=False)
            self.seen.append(answer)
            self.add("prompts as token ids", "yes", "mode completions works, with server.tokenizer")


def constraint_acts(model: HttpModel, answers: Sequence[str], how: str | None = None, *, wait: bool = True) -> bool:
    """Return whether a server keeps an answer to some texts when it is asked for another one; this is one call.

    Args:
        model: a model in mode chat.
        answers: the complete answers that it may give.
        how: as in `goalscope.models.Server.constrained`, what the model's server is set to by default.
        wait: see `HttpModel.trial`.

    Raises:
        ValueError: nothing is to be constrained, or the server rejects the parameter.
    """
    how = how or model.server.constrained
    if not constraint_name(how) or model.dialect is not None:
        raise ValueError("a constraint must be set to be tried, got none: set server.constrained in mode chat")
    asked = {"messages": [{"role": "user", "content": _SEA}]}
    answer = model.trial(asked, MOST_LETTERS, {"temperature": 0.0, **constraint(how, answers)}, wait=wait)
    return answer.finish == "stop" and kept_to(answer.text, answers)


def _said(answer: Answer) -> tuple[str, str]:
    return answer.reasoning or "", answer.text


def _shown(text: str, most: int = _SHOWN) -> str:
    """Return the beginning of a text as it may stand in a sentence."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    return repr(plain if len(plain) <= most else f"{plain[:most]}...") if most == _SHOWN else plain[:most]
