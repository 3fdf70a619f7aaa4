"""Trials of a server: requests whose answers show whether the server obeys a parameter or only accepts it.

Few servers reject what they do not support: one that ignores the temperature still answers, and so does one that leaves
reasoning in the answer. Each ability is therefore judged by an answer, not by the server's documentation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

from goalscope.agents.models.base import Message, NotSentError, Request, Sampling
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_answers import Served
from goalscope.agents.models.http_budget import most_prompt_tokens
from goalscope.agents.models.http_context import (
    counts_credible,
    draw_head_word,
    judge_long_prompt,
    long_prompt,
    trial_words,
)
from goalscope.agents.models.http_errors import RejectedError, rejection
from goalscope.agents.models.http_settings import CONSTRAINTS, Constraint, Server, constraint, constraint_name, kept_to
from goalscope.agents.models.marks import end_token, left_over, tags_in

DRAWS: Final = 8
"""Answers drawn to see whether the temperature has an effect."""

GREEDY_DRAWS: Final = 4
"""Answers at temperature 0, of which two must be equal."""

HOT: Final = 1.5
"""Temperature of these draws."""

MOST_LETTERS: Final = 48
"""Maximum output tokens of a draw."""

MOST_PLAIN: Final = 1024
"""Maximum output tokens of the answer to a prompt of the study."""

_LETTERS: Final = "Write eight random letters of the alphabet, one after the other, and nothing else."
_SEA: Final = "Write one short sentence about the sea. Write plain words and no JSON."
START_WITH_PARSER: Final = (
    "Start the server with the reasoning parser of this model (vLLM and SGLang: --reasoning-parser), or switch "
    "thinking off (thinking: false, which sends chat_template_kwargs: {enable_thinking: false})"
)
_IDS: Final = "return_token_ids"
_COLD: Final[Mapping[str, float]] = {"temperature": 0.0, "top_p": 1.0}
_EXCERPT_LENGTH: Final = 60  # characters of an answer quoted in a sentence
_TRIAL_PARAMETERS: Final = ("temperature", "top_p", "seed", *CONSTRAINTS)  # parameters that the trials set themselves

State = Literal["yes", "no", "unknown"]


class Ability(BaseModel):
    """Whether a server supports one feature ("unknown" where a trial cannot decide), and the evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    state: State
    detail: str
    advice: str = ""
    """What to change where it is missing; "" for the usual advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNeeds:
    """Requirements of a study on its server.

    Attributes:
        sampling: how outputs are drawn.
        messages: a prompt of the study.
        answers: the complete answers that state an action.
        written: whether the model generates text; False where only the likelihoods of answers are read.
        scored: whether log-probabilities of prompts are read.
        everything: whether to try features that the study does not need, too.
    """

    sampling: Sampling
    messages: tuple[Message, ...] = ()
    answers: tuple[str, ...] = ()
    written: bool = True
    scored: bool = False
    everything: bool = False

    @property
    def prompt_bytes(self) -> int:
        """Bytes of the prompt of the study."""
        return sum(len(message.content.encode("utf-8", "surrogatepass")) for message in self.messages)

    def settings(self, server: Server) -> dict[str, Any]:
        """Return the settings that determine the trials and their results; no prompts and no waiting times."""
        server_fields = {"base_url", "mode", "tokenizer", "body", "constrained", "unsupported", "token_ids"}
        own_fields = {name: getattr(self, name) for name in ("written", "scored", "everything")}
        return {**server.model_dump(include=server_fields), **self.sampling.describe(), **own_fields}


def most_trial_tokens(wanted: ServerNeeds, server: Server) -> tuple[int, int, int]:
    """Return upper bounds on the cost of a study's trials, not counting requests that are rejected or fail.

    Args:
        wanted: the study's requirements.
        server: the server's settings.

    Returns:
        Requests, prompt tokens and output tokens of all of them.
    """
    sampling, short_prompt = wanted.sampling, most_prompt_tokens([Message(role="user", content=_LETTERS)], 1)
    study_prompt = most_prompt_tokens(wanted.messages, sampling.max_tokens)
    trials = 2 * ("stop" in server.body) + (server.constrained is not None)
    long = 0
    if wanted.written and server.mode == "chat":
        # A token of a prompt stands for at least one byte, so that it has at most as many tokens as bytes.
        words = trial_words(wanted.prompt_bytes, sampling.max_tokens)
        long = most_prompt_tokens([Message(role="user", content=long_prompt(words, draw_head_word()))], 1)
    if wanted.written:
        trials += DRAWS + 1 if sampling.temperature > 0 else GREEDY_DRAWS
    scored = 2 * wanted.scored
    outputs = min(sampling.max_tokens, MOST_PLAIN) * wanted.written + (trials + bool(long)) * MOST_LETTERS + scored
    return (
        wanted.written + trials + bool(long) + scored,
        study_prompt * wanted.written + short_prompt * (trials + scored) + long,
        outputs,
    )


@dataclass(slots=True)
class Trials:
    """The trials of one server, and their results."""

    model: HttpModel
    needs: ServerNeeds
    abilities: list[Ability] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    responses: list[Served] = field(default_factory=list)

    @property
    def answered(self) -> bool:
        """Whether the server has answered at all."""
        return bool(self.responses)

    @contextmanager
    def _trying(
        self, name: str, *failures: type[Exception], max_characters: int = 200, state: State = "no"
    ) -> Iterator[None]:
        """Record some failures as "no" or another state; before a run, an unreachable server is an error instead."""
        failures = failures or ((ValueError, ConnectionError) if self.needs.everything else (ValueError,))
        try:
            yield
        except NotSentError:
            raise
        except failures as error:
            self.add(name, state, _excerpt(str(error), max_characters))

    def add(self, name: str, state: State | bool, detail: str, advice: str = "") -> None:
        """Record the result of a trial."""
        known_state: State = state if isinstance(state, str) else "yes" if state else "no"
        self.abilities.append(Ability(name=name, state=known_state, detail=detail, advice=advice))

    def ask(
        self, messages: Sequence[Message], max_tokens: int, parameters: Mapping[str, Any], *, wait: bool = True
    ) -> Served:
        """Send a request like the study's with other parameters; rejected parameters are recorded and left out."""
        dialect, sampling = self.model.dialect, self.needs.sampling
        request = Request(messages=tuple(messages), key=(0, "check", 0, 0), answers=())
        usual = self.model.parameters(request, sampling)
        optional = {name: value for name, value in usual.items() if name not in _TRIAL_PARAMETERS} | dict(parameters)
        if dialect is None:
            prompt_fields: dict[str, Any] = {
                "messages": [{"role": turn.role, "content": turn.content} for turn in messages]
            }
        else:
            prompt_fields = {"prompt": dialect.prompt_ids([dialect.render(messages, sampling)])[0]}
        while True:
            sent = {name: value for name, value in optional.items() if name not in self.rejected}
            try:
                answer = self.model.trial(prompt_fields, max_tokens, sent, wait=wait)
            except RejectedError as rejected:
                parameter = rejected.named(sent) or (_IDS if dialect is None and _IDS in sent else None)
                if parameter is None:
                    raise
                self.rejected[parameter] = str(rejected)
                continue
            self.responses.append(answer)
            return answer

    def study_prompt(self) -> None:
        """Try a prompt of the study: does the server answer, return token ids, and separate reasoning?"""
        model, sampling = self.model, self.needs.sampling
        request = Request(messages=self.needs.messages, key=(0, "check", 0, 0), answers=self.needs.answers)
        used = {name: value for name, value in model.parameters(request, sampling).items() if name in _TRIAL_PARAMETERS}
        try:
            answer = self.ask(self.needs.messages, min(sampling.max_tokens, MOST_PLAIN), used)
        except RejectedError as rejected:
            if model.dialect is None:
                raise rejection(model.served, model.server, str(rejected), as_ids=False) from None
            self.add("prompts as token ids", "no", f"it says: {rejected}")
            return
        self.add("model", "yes", "answers")
        if model.dialect is not None:
            self.add("prompts as token ids", "yes", "taken")
        ids = answer.reply.output_tokens
        extent = (
            "returned" if answer.reply.prompt_tokens is not None or model.dialect is not None else "of the output alone"
        )
        lacking = "not returned: such a run can be measured, its activations cannot be captured"
        if _IDS in self.rejected:
            lacking = f"rejected: {self.rejected[_IDS]}"
        self.add("token ids", ids is not None, extent if ids is not None else lacking)
        counted = bool(answer.prompt_count and answer.output_count)
        reported = answer.prompt_count is not None and answer.output_count is not None
        most = f"{'of 0 tokens' if reported else 'not reported'}: caps count the most that a call can take"
        self.add("usage", counted, "reported" if counted else most)
        self._reasoning(answer)
        if sampling.top_logprobs:
            self._logprobs(answer)

    def _reasoning(self, answer: Served) -> None:
        reply = answer.reply
        excerpt = _excerpt(reply.answer)
        if reply.call is not None and not reply.answer:
            detail = f"the answer came as a call of a tool ({_excerpt(reply.call)})"
            self.add("answers in text", "no", detail)
        if self.model.dialect is not None:
            self.add("reasoning", "yes", "told apart here, by the tokens of the output")
        elif left_over(reply.answer):
            detail = f"markers are left in the answer that do not take it apart ({excerpt})"
            self.add("reasoning", "no", detail, _advice_on_marks(reply.answer))
        elif not reply.answer and reply.finish == "stop" and _ends_in_answer(reply.reasoning or "", self.needs.answers):
            detail = f"the whole answer stands in the server's field for reasoning ({_excerpt(reply.reasoning or '')})"
            self.add("reasoning", "no", detail, START_WITH_PARSER)
        elif answer.divided:
            self.add("reasoning", "yes", "merged into the answer, taken apart by the model's own markers")
        elif reply.reasoning:
            self.add("reasoning", "yes", "kept apart by the server")
        elif answer.reasoning_count:
            self.add("reasoning", "yes", f"kept by the server, {answer.reasoning_count} tokens")
        else:
            self.add("reasoning", "unknown", f"none was seen beside the answer ({excerpt})")

    def whole_prompts(self, context: int | None) -> None:
        """Try whether a long prompt is read as a whole.

        Args:
            context: the tokens of prompt and answer together, by the server's own pages; None where they tell none.
        """
        if self.model.dialect is not None:
            return  # there the server's count of each prompt must be that of the token ids which are sent
        words = trial_words(self.needs.prompt_bytes, self.needs.sampling.max_tokens)
        if context is not None:
            words = min(words, context // 2)  # longer prompts are refused by name
        head = draw_head_word()
        with self._trying("whole prompts", RejectedError, state="unknown"):
            answer = self.ask([Message(role="user", content=long_prompt(words, head))], MOST_LETTERS, _COLD)
            counts = counts_credible(self.needs.prompt_bytes, self.responses[0].prompt_count)
            said = "".join(_output(answer))
            self.add("whole prompts", *judge_long_prompt(words, head, answer.prompt_count, said, counts=counts))

    def draws(self) -> None:
        """Try whether the temperature and the seed have an effect."""
        letters = [Message(role="user", content=_LETTERS)]
        if self.needs.sampling.temperature == 0:
            outputs = [_output(self.ask(letters, MOST_LETTERS, _COLD)) for _ in range(GREEDY_DRAWS)]
            distinct = len(set(outputs))
            detail = f"{distinct} different texts of {GREEDY_DRAWS} at temperature 0"
            self.add("temperature", distinct < GREEDY_DRAWS or not any(map(any, outputs)), detail)
            return
        parameters = {"temperature": HOT, "top_p": 1.0}
        outputs = [_output(self.ask(letters, MOST_LETTERS, {**parameters, "seed": seed})) for seed in range(DRAWS)]
        repeated = _output(self.ask(letters, MOST_LETTERS, {**parameters, "seed": 0}))
        distinct = len({*outputs})
        if "temperature" in self.rejected:
            self.add("temperature", "no", f"rejected: {self.rejected['temperature']}")
        elif not any(map(any, outputs)):
            self.add("temperature", "unknown", f"the model wrote nothing within {MOST_LETTERS} tokens")
        else:
            identical = f"the same text {DRAWS} times ({_excerpt(outputs[0][1] or outputs[0][0])})"
            detail = f"{distinct} different texts of {DRAWS}" if distinct > 1 else identical
            self.add("temperature", distinct > 1, f"{detail} at temperature {HOT:g}, asked for random letters")
        if "seed" in self.rejected:
            self.add("seed", "no", f"rejected: {self.rejected['seed']}")
        elif distinct == 1:
            self.add("seed", "unknown", "nothing is drawn")
        else:
            repeats = "the same seed twice gave the same text"
            differs = "the same seed twice gave two texts: answers cannot be drawn again, those stored stay"
            self.add("seed", repeated == outputs[0], repeats if repeated == outputs[0] else differs)

    def stop(self) -> None:
        """Try whether a stop string, taken from the middle of the previous answer, ends an answer."""
        if not self.needs.everything and "stop" not in self.model.server.body:
            return
        sea = [Message(role="user", content=_SEA)]
        text = _output(self.ask(sea, MOST_LETTERS, _COLD))[1]
        middle = text[len(text) // 2 :].lstrip()[:3].rstrip()
        if len(text) < 8 or not middle:
            self.add("stop strings", "unknown", f"the answer is too short to be cut ({_excerpt(text)})")
            return
        with self._trying("stop strings", RejectedError, ConnectionError):
            cut = _output(self.ask(sea, MOST_LETTERS, {**_COLD, "stop": [middle]}, wait=False))[1]
            effective = len(cut) < len(text)  # some servers keep the whole token that contains it
            detail = f"{middle!r} {'ends' if effective else 'does not end'} an answer that holds it"
            if "stop" in self.rejected:
                effective, detail = False, f"rejected: {self.rejected.pop('stop')}"
            self.add("stop strings", effective, detail)

    def constraints(self) -> None:
        """Try whether an answer is constrained to actions although the prompt asks for a sentence."""
        if self.model.dialect is not None or not self.needs.answers:
            return
        configured, everything = self.model.server.constrained, self.needs.everything
        for constraint_kind in get_args(Constraint) if everything else (configured,) * bool(configured):
            with self._trying(f"constrained: {constraint_kind}"):
                effective = constraint_acts(self.model, self.needs.answers, constraint_kind, wait=not everything)
                detail = "keeps the answer to an action" if effective else "taken, and the answer is another text"
                self.add(f"constrained: {constraint_kind}", effective, detail)

    def logprobs(self) -> None:
        """Try whether log-probabilities of the output are returned, where no earlier trial showed it."""
        if not self.needs.everything or self.needs.sampling.top_logprobs:
            return
        extra = {"logprobs": True, "top_logprobs": 2} if self.model.dialect is None else {"logprobs": 2}
        with self._trying("log-probabilities", RejectedError, ConnectionError):
            self._logprobs(self.ask([Message(role="user", content=_SEA)], 8, {**_COLD, **extra}, wait=False))

    def _logprobs(self, answer: Served) -> None:
        returned = bool(answer.reply.logprobs)
        rejected = next((self.rejected[name] for name in ("top_logprobs", "logprobs") if name in self.rejected), "")
        self.add(
            "log-probabilities",
            returned,
            "returned" if returned else f"rejected: {rejected}" if rejected else "ignored",
        )

    def scores(self) -> None:
        """Try whether the server scores the tokens of a prompt."""
        if self.model.dialect is None:
            self.add("log-probabilities of prompts", "unknown", "tried in mode completions, with the model's tokenizer")
            return
        ids = self.model.dialect.encode(_SEA)
        with self._trying("log-probabilities of prompts", max_characters=300):
            with self.model.budget.reserve(len(ids), 1) as reservation:
                answer, _ = self.model.score([ids], reservation)
                reservation.settle(**answer.reported)
            self.add("log-probabilities of prompts", "yes", "returned")

    def token_prompts(self) -> None:
        """Try whether mode completions would work, with token ids that the server returned or some small ones."""
        if self.model.dialect is not None:
            return
        prompt_ids = next((ids for answer in self.responses if (ids := answer.reply.prompt_tokens)), None)
        with self._trying("prompts as token ids"):
            answer = self.model.trial({"prompt": [*(prompt_ids or (10, 11, 12))]}, 1, {"temperature": 0.0}, wait=False)
            self.responses.append(answer)
            self.add("prompts as token ids", "yes", "mode completions works, with server.tokenizer")


def constraint_acts(model: HttpModel, answers: Sequence[str], how: str | None = None, *, wait: bool = True) -> bool:
    """Return whether a server constrains an answer to some texts when the prompt asks for another one; makes one call.

    Args:
        model: a model in mode chat.
        answers: the complete answers that it may give.
        how: as in `goalscope.agents.models.Server.constrained`; by default the setting of the model's server.
        wait: see `HttpModel.trial`.

    Raises:
        ValueError: nothing is to be constrained, or the server rejects the parameter.
    """
    how = how or model.server.constrained
    if not constraint_name(how) or model.dialect is not None:
        raise ValueError("a constraint must be set to be tried, got none: set server.constrained in mode chat")
    prompt_fields = {"messages": [{"role": "user", "content": _SEA}]}
    answer = model.trial(prompt_fields, MOST_LETTERS, {"temperature": 0.0, **constraint(how, answers)}, wait=wait)
    return answer.reply.finish == "stop" and kept_to(answer.reply.answer, answers)


def _ends_in_answer(reasoning: str, answers: Sequence[str]) -> bool:
    """Return whether a text of reasoning ends with one of the answers that state an action."""
    return kept_to(reasoning[reasoning.rfind("{") :], answers) if "{" in reasoning else False


def _advice_on_marks(text: str) -> str:
    """Return what to change where an answer holds marks, "" for the usual advice."""
    token = end_token(text)
    if token is not None:
        stop = json.dumps([token], ensure_ascii=False)
        return (
            f"Let the server stop at {token} (server: {{body: {{stop: {stop}}}}}), or start it with the model's own "
            "chat template"
        )
    tags = tags_in(text)
    if tags is None:
        return ""
    open_tag, close_tag = (json.dumps(tag, ensure_ascii=False) for tag in tags)
    return (
        f"Name the model's tags, reasoning: {{open: {open_tag}, close: {close_tag}}}, or start the server with the "
        "model's reasoning parser (vLLM and SGLang: --reasoning-parser)"
    )


def _output(answer: Served) -> tuple[str, str]:
    return answer.reply.reasoning or "", answer.reply.answer or answer.reply.raw or ""


def _excerpt(text: str, length: int = _EXCERPT_LENGTH) -> str:
    """Return the beginning of a text, printable, quoted unless another length is given."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return (
        repr(printable if len(printable) <= length else f"{printable[:length]}...")
        if length == _EXCERPT_LENGTH
        else printable[:length]
    )
