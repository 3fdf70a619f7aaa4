"""What a server can do: one table of abilities, used by preflight, by `goalscope doctor --server` and by every run.

Few servers reject features that they do not support. A server that ignores the temperature still answers, and so does a
server that leaves reasoning in the answer. Each ability is therefore judged by answers and not by the server's
documentation. A row of `ABILITIES` contains the requests that test an ability and the function that judges their
answers. If a study can need the ability, the catalogue `agents/texts.yaml` says what to change without it. Rows with
the same requests share their answers.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from goalscope._ground.untrusted import printable, shorten
from goalscope.agents.models.base import Message, NotSentError, Request, Sampling
from goalscope.agents.models.http import (
    CHECK,
    HttpModel,
    LongPrompt,
    State,
    counts_credible,
    trial_words,
)
from goalscope.agents.models.http_answers import Served
from goalscope.agents.models.http_client import Client
from goalscope.agents.models.http_errors import MissingError, RejectedError, SilentServerError, other_names, rejection
from goalscope.agents.models.http_settings import (
    CONSTRAINTS,
    RECORDING,
    Constraint,
    Server,
    constraint,
    kept_to,
    most_prompt_tokens,
)
from goalscope.agents.models.marks import left_over
from goalscope.agents.parse import IN_REASONING, advice_text, cause_of, remedy, turn

# What a server says about itself on information pages that cost nothing: version, models and context lengths.

_MOST_NAMES: Final = 200
_LONGEST_ENTRY: Final = 200
_CONTEXT: Final = ("max_model_len", "context_length", "context_window", "n_ctx")
_VERSION: Final = {"version": "version", "build_info": "build", "sglang_version": "version"}
"""Key of a version on an information page -> our name for it."""


class ServerInfo(BaseModel):
    """A server's information about itself; only the context length affects runs, the rest is shown in messages.

    Attributes:
        server: name -> text, with names such as ``version`` and ``software``.
        models: names of the models that it serves.
        context: smallest maximum of prompt and answer tokens together that the server states; None if it states none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Mapping[str, str] = {}
    models: tuple[str, ...] = ()
    context: int | None = None


def read_server_info(client: Client) -> ServerInfo:
    """Read version, models and context length from a server's information pages, which cost nothing.

    The result is empty if the server has no such pages.

    Raises:
        PermissionError: the server's key is missing from the environment.
    """
    first_page = client.look("models")
    if first_page is None:
        return ServerInfo()
    listing, software = first_page
    texts: dict[str, str] = {"software": software} if software else {}
    entries = listing.get("data")
    model_entries = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    models = [entry["id"][:_LONGEST_ENTRY] for entry in model_entries if isinstance(entry.get("id"), str)]
    if model_entries and isinstance(model_entries[0].get("owned_by"), str):
        texts["owner"] = model_entries[0]["owned_by"]
    contexts = [size for entry in model_entries for size in _contexts(entry)] if len(model_entries) == 1 else []
    for path in ("/version", "/props", "/get_server_info"):
        page, _ = client.look(path) or ({}, "")
        texts |= {name: page[page_key] for page_key, name in _VERSION.items() if isinstance(page.get(page_key), str)}
        contexts += _contexts(page)
    printable = {name: "".join(filter(str.isprintable, text))[:_LONGEST_ENTRY] for name, text in texts.items()}
    return ServerInfo(
        server={name: text for name, text in printable.items() if text},
        models=tuple(models[:_MOST_NAMES]),
        context=min(contexts) if contexts else None,
    )


def _contexts(page: Mapping[str, Any]) -> Iterator[int]:
    """Yield the context lengths on a page and one level below."""
    for part in (page, page.get("default_generation_settings"), page.get("meta")):
        if not isinstance(part, Mapping):
            continue
        for size in map(part.get, _CONTEXT):
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**40:
                yield size


# The trials of a server, and what they show.

DRAWS: Final = 8
"""Number of answers drawn to test whether the temperature has an effect."""

_GREEDY_DRAWS: Final = 4  # number of answers at temperature 0, of which at least two must be equal
_HOT: Final = 1.5  # temperature at which these answers are drawn
_MOST_DRAWN: Final = 48  # maximum output tokens of a short answer
_MOST_PLAIN: Final = 1024  # maximum output tokens of the answer to a prompt of the study
_MOST_TEXT: Final = 300  # maximum characters of a quoted error
_LETTERS: Final = "Write eight random letters of the alphabet, one after the other, and nothing else."
_SEA: Final = "Write one short sentence about the sea. Write plain words and no JSON."
_COLD: Final[Mapping[str, Any]] = {"temperature": 0.0, "top_p": 1.0}
_OWN_PARAMETERS: Final = ("temperature", "top_p", "seed", *CONSTRAINTS)  # parameters that the trials set themselves
_SOME_IDS: Final = (10, 11, 12)  # token ids that every vocabulary has

Finding = tuple[State | bool, str] | tuple[State | bool, str, str]
"""The state of an ability, the evidence, and optionally advice that replaces the advice of its row."""


class Ability(BaseModel):
    """Result of testing one ability of a server, such as returning log-probabilities.

    The fields are the ability's name, its state ("yes", "no" or "unknown" if the test cannot decide), the evidence as
    text (``detail``), and what to change if the ability is missing (``advice``; "" for the default advice).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    state: State
    detail: str
    advice: str = ""
    """What to change if the feature is missing; "" for the default advice."""


class ServerReport(BaseModel):
    """Result of testing what a server can do before a run.

    Attributes:
        told: the server's information about itself.
        abilities: the tested abilities, in the order of the tests.
        rejected: parameter that the server rejected -> the server's message.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    told: ServerInfo
    abilities: tuple[Ability, ...]
    rejected: Mapping[str, str] = {}

    def of(self, name: str) -> Ability:
        """Return the test result for the named ability; its state is "unknown" if it was not tested."""
        untried = Ability(name=name, state="unknown", detail="")
        return next((ability for ability in self.abilities if ability.name == name), untried)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNeeds:
    """What a study requires of the server of its model, which determines the abilities to test.

    Attributes:
        sampling: settings for drawing outputs.
        messages: a prompt of the study.
        answers: the complete answers that state an action.
        written: whether the model generates text; False if only the likelihoods of answers are used.
        scored: whether log-probabilities of prompts are used.
        everything: whether to test features that the study does not need, too.
    """

    sampling: Sampling
    messages: tuple[Message, ...] = ()
    answers: tuple[str, ...] = ()
    written: bool = True
    scored: bool = False
    everything: bool = False

    @property
    def prompt_bytes(self) -> int:
        """Number of bytes of the study's sample prompt, in UTF-8."""
        return sum(len(message.content.encode("utf-8", "surrogatepass")) for message in self.messages)

    def settings(self, server: Server) -> dict[str, Any]:
        """Return the settings on which the results of the server's tests depend, name -> value.

        Equal settings allow stored results to be used again. Prompts and waiting times are left out.
        """
        server_fields = {"base_url", "mode", "tokenizer", "body", "constrained", "unsupported", "token_ids"}
        own_fields = {name: getattr(self, name) for name in ("written", "scored", "everything")}
        return {**server.model_dump(include=server_fields), **self.sampling.describe(), **own_fields}


class TrialRequest(NamedTuple):
    """One request of a trial, a test of what a server can do.

    Attributes:
        content: the prompt; None for the prompt of the study.
        max_tokens: maximum output tokens.
        parameters: parameters that replace those of the study, or a function that derives them from the earlier answers
            of the same trial and returns None if no request is needed.
        exact: whether the request tests a parameter or an endpoint, so that its rejection decides the test. For other
            requests, rejected parameters are recorded and left out.
        kind: "ids" sends token ids as the prompt; "scores" requests the log-probabilities of a prompt's tokens.
        long: the long prompt, if the request tests whether the server reads it completely.
    """

    content: str | None
    max_tokens: int = _MOST_DRAWN
    parameters: Mapping[str, Any] | Callable[[Sequence[Served]], Mapping[str, Any] | None] = _COLD
    exact: bool = False
    kind: Literal["text", "ids", "scores"] = "text"
    long: LongPrompt | None = None


Asking = Callable[[ServerNeeds, Server, int | None], Sequence[TrialRequest]]
"""Function from requirements, settings and the server's stated context length to requests (none if not needed)."""


# Requests


def _study(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    return [TrialRequest(None, min(needs.sampling.max_tokens, _MOST_PLAIN), {})] * needs.written


def _long(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    words = trial_words(needs.prompt_bytes, needs.sampling.max_tokens)
    # A server would reject prompts that are longer than the context length it states.
    prompt = LongPrompt(words if context is None else min(words, context // 2))
    return [TrialRequest(prompt.text, long=prompt)] * needs.written


def _draws(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    if needs.sampling.temperature == 0:
        return [TrialRequest(_LETTERS)] * _GREEDY_DRAWS * needs.written
    seeds = (*range(DRAWS), 0)
    return [TrialRequest(_LETTERS, parameters={"temperature": _HOT, "top_p": 1.0, "seed": seed}) for seed in seeds] * (
        needs.written
    )


def _cut(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    def stop_in_the_middle(answers: Sequence[Served]) -> Mapping[str, Any] | None:
        middle = _middle(answers[0])
        return {**_COLD, "stop": [middle]} if middle else None

    trials = [TrialRequest(_SEA, parameters=_COLD), TrialRequest(_SEA, parameters=stop_in_the_middle, exact=True)]
    return trials * (needs.written and (needs.everything or "stop" in server.body))


def _constrained(how: Constraint, needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    is_needed = needs.written and bool(needs.answers) and (needs.everything or server.constrained == how)
    return [
        TrialRequest(_SEA, parameters={"temperature": 0.0, **constraint(how, needs.answers)}, exact=True)
    ] * is_needed


def _logprobs(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    extra = {"logprobs": True, "top_logprobs": 2} if server.mode == "chat" else {"logprobs": 2}
    is_needed = needs.written and needs.everything and not needs.sampling.top_logprobs
    return [TrialRequest(_SEA, 8, {**_COLD, **extra}, exact=True)] * is_needed


def _scores(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    return [TrialRequest(_SEA, 1, exact=True, kind="scores")] * (needs.scored or needs.everything)


def _some_ids(needs: ServerNeeds, server: Server, context: int | None) -> Sequence[TrialRequest]:
    return [TrialRequest(_SEA, 1, {"temperature": 0.0}, exact=True, kind="ids")] * needs.everything


# Functions that judge the answers


def _token_ids(trials: "Trials", answers: Sequence[Served]) -> Finding:
    reply, name = answers[0].reply, "return_token_ids"
    if reply.output_tokens is not None:
        whole = reply.prompt_tokens is not None or trials.model.dialect is not None
        return True, "returned" if whole else "returned only for the output"
    if name in trials.rejected:
        return False, f"rejected: {trials.rejected[name]}"
    return False, "not returned: runs can be measured, but their activations cannot be captured"


def _usage(trials: "Trials", answers: Sequence[Served]) -> Finding:
    counts = answers[0].prompt_count, answers[0].output_count
    if all(counts):
        return True, "reported"
    problem = "not reported" if None in counts else "reported as 0 tokens"
    return False, f"{problem}: caps count the maximum that a call can take"


def _in_text(trials: "Trials", answers: Sequence[Served]) -> Finding | None:
    reply = answers[0].reply
    called = reply.call is not None and not reply.answer
    return (False, f"the answer came as a tool call ({shorten(reply.call)})") if called else None


def _reasoning(trials: "Trials", answers: Sequence[Served]) -> Finding:
    (answer,) = answers
    reply, names = answer.reply, tuple(json.loads(text)["action"] for text in trials.needs.answers)
    if trials.model.dialect is not None:
        return True, "separated by goalscope, by the tokens of the output"
    cause = cause_of(turn(reply, names), names)
    advice = "" if cause is None else remedy(cause.name, cause.marks)
    if left_over(reply.answer):
        return False, f"the answer contains markers that do not separate it ({shorten(reply.answer)})", advice
    if cause is not None and cause.name == IN_REASONING:
        return (False, f"the whole answer is in the server's field for reasoning ({shorten(reply.reasoning)})", advice)
    if answer.divided:
        return True, "merged into the answer, and separated by the model's own markers"
    if reply.reasoning:
        return True, "separated by the server"
    if answer.reasoning_count:
        return True, f"not returned by the server, {answer.reasoning_count} tokens"
    return "unknown", f"the answer came without reasoning ({shorten(reply.answer)})"


def _whole(trials: "Trials", answers: Sequence[Served]) -> Finding:
    counts = counts_credible(trials.needs.prompt_bytes, trials.answers[_study][0].prompt_count)
    (trial,) = trials.asked[_long]
    assert trial.long is not None
    return trial.long.judge(answers[0], counts=counts)


def _temperature(trials: "Trials", answers: Sequence[Served]) -> Finding:
    outputs = [_output(answer) for answer in answers[:DRAWS]]
    distinct = len(set(outputs))
    if trials.needs.sampling.temperature == 0:
        is_deterministic = distinct < _GREEDY_DRAWS or not any(map(any, outputs))
        return is_deterministic, f"{distinct} different texts of {_GREEDY_DRAWS} at temperature 0"
    if "temperature" in trials.rejected:
        return False, f"rejected: {trials.rejected['temperature']}"
    if not any(map(any, outputs)):
        return "unknown", f"the model wrote nothing within {_MOST_DRAWN} tokens"
    identical = f"the same text {DRAWS} times ({shorten(outputs[0][1] or outputs[0][0])})"
    texts = f"{distinct} different texts of {DRAWS}" if distinct > 1 else identical
    return distinct > 1, f"{texts} at temperature {_HOT:g}, asked for random letters"


def _seed(trials: "Trials", answers: Sequence[Served]) -> Finding | None:
    outputs = [_output(answer) for answer in answers]
    if trials.needs.sampling.temperature == 0:
        return None
    if "seed" in trials.rejected:
        return False, f"rejected: {trials.rejected['seed']}"
    if len(set(outputs[:DRAWS])) == 1:
        return "unknown", "not tested, since nothing is drawn at temperature 0"
    if outputs[DRAWS] == outputs[0]:
        return True, "the same seed twice gave the same text"
    return False, "the same seed gave two different texts: answers cannot be reproduced, only stored"


def _stop(trials: "Trials", answers: Sequence[Served]) -> Finding:
    text = _output(answers[0])[1]
    if len(answers) < 2:
        return "unknown", f"the answer is too short for this test ({shorten(text)})"
    acts = len(_output(answers[1])[1]) < len(text)  # some servers keep the whole token that contains the stop string
    return acts, f"{_middle(answers[0])!r} {'ends' if acts else 'does not end'} an answer that contains it"


def _keeps_to_an_action(trials: "Trials", answers: Sequence[Served]) -> Finding:
    reply = answers[0].reply
    acts = reply.finish == "stop" and kept_to(reply.answer, trials.needs.answers)
    return acts, "constrains the answer to an action" if acts else "accepted, but the answer is another text"


def _has_logprobs(trials: "Trials", answers: Sequence[Served]) -> Finding:
    if answers[0].reply.logprobs:
        return True, "returned"
    rejected = next((trials.rejected[name] for name in ("top_logprobs", "logprobs") if name in trials.rejected), "")
    return False, f"rejected: {rejected}" if rejected else "ignored"


def _context(trials: "Trials", answers: Sequence[Served]) -> Finding | None:
    context = trials.info.context
    return None if context is None else (True, f"{context:,} tokens for prompt and answer together")


def _scores_untested(trials: "Trials", answers: Sequence[Served]) -> Finding | None:
    untested: Finding = ("unknown", "tested only in mode completions, with the model's tokenizer")
    return untested if trials.needs.everything else None


def _named(trials: "Trials", answers: Sequence[Served]) -> Finding | None:
    names = Counter(answer.reply.answered_by for answer in trials.responses)
    if others := other_names(trials.model.served, names):
        return False, others
    if not names:
        return None
    named = names[trials.model.served] == names.total()
    return ("yes", "yes") if named else ("unknown", "an answer does not name its model")


def _middle(answer: Served) -> str:
    """Return a text from the middle of an answer, "" if the answer is too short."""
    text = _output(answer)[1]
    return text[len(text) // 2 :].lstrip()[:3].rstrip() if len(text) >= 8 else ""


def _output(answer: Served) -> tuple[str, str]:
    return answer.reply.reasoning or "", answer.reply.answer or answer.reply.raw or ""


# The table


@dataclass(frozen=True, slots=True)
class AbilityTest:
    """The test of one ability of a model's server, such as returning log-probabilities.

    Attributes:
        name: name of the ability.
        asks: function that returns the requests of the test; None if the result follows from the answers to other
            requests.
        judge: function from the answers to the state of the ability ("yes", "no" or "unknown") and the evidence; its
            result is None if the answers do not decide.
        mode: the only mode in which the ability is tested, "" for both.
        needed: whether a study can need the ability. The file `texts.yaml` then says what it needs and what to change.
        recorded: the parameter that steps record as unsupported if the ability is missing; "" if the study cannot run
            without it.
        failure: state of the ability if a request fails; None if such an error ends the trials.
    """

    name: str
    asks: Asking | None
    judge: "Callable[[Trials, Sequence[Served]], Finding | None]"
    mode: str = ""
    needed: bool = False
    recorded: str = ""
    failure: State | None = None

    @property
    def problem(self) -> str:
        """What a study needs that the server lacks, as the beginning of an error message.

        It may contain the placeholder ``{temperature:g}``.
        """
        return advice_text(f"abilities/{self.name.partition(':')[0]}/problem")

    @property
    def advice(self) -> str:
        """What the user can change if the server lacks an ability that the study needs, as a sentence for an error
        message.
        """
        text = advice_text(f"abilities/{self.name.partition(':')[0]}/advice") or advice_text(f"instead/{self.recorded}")
        return text.replace("{longer_context}", advice_text("longer context"))


_IDS: Final = "prompts as token ids"
_SCORES: Final = "log-probabilities of prompts"

ABILITIES: Final = (
    AbilityTest(_IDS, _study, lambda trials, answers: (True, "taken"), mode="completions", needed=True, failure="no"),
    AbilityTest("model", _study, lambda trials, answers: (True, "answers")),
    AbilityTest("token ids", _study, _token_ids),
    AbilityTest("usage", _study, _usage),
    AbilityTest("answers in text", _study, _in_text, needed=True),
    AbilityTest("reasoning", _study, _reasoning, needed=True, recorded="reasoning"),
    AbilityTest(
        "log-probabilities",
        _study,
        lambda trials, answers: _has_logprobs(trials, answers) if trials.needs.sampling.top_logprobs else None,
        needed=True,
        recorded="top_logprobs",
    ),
    # In mode completions, each prompt's token count is compared with the token ids that are sent.
    AbilityTest("whole prompts", _long, _whole, mode="chat", needed=True, failure="unknown"),
    AbilityTest("temperature", _draws, _temperature, needed=True, recorded="temperature"),
    AbilityTest("seed", _draws, _seed),
    AbilityTest("stop strings", _cut, _stop, needed=True, recorded="stop", failure="no"),
    *(
        AbilityTest(
            f"constrained: {how}",
            partial(_constrained, how),
            _keeps_to_an_action,
            mode="chat",
            needed=True,
            recorded="constrained",
            failure="no",
        )
        for how in get_args(Constraint)
    ),
    AbilityTest("log-probabilities", _logprobs, _has_logprobs, failure="no"),
    AbilityTest(
        _SCORES, _scores, lambda trials, answers: (True, "returned"), mode="completions", needed=True, failure="no"
    ),
    AbilityTest(_SCORES, None, _scores_untested, mode="chat"),
    AbilityTest(
        _IDS,
        _some_ids,
        lambda trials, answers: (True, "mode completions works, with server.tokenizer"),
        mode="chat",
        failure="no",
    ),
    AbilityTest("context length", None, _context),
    AbilityTest("named as asked", None, _named),
)
"""All abilities, in the order in which they are tested."""


@dataclass(slots=True)
class Trials:
    """The tests of one server so far: the requests made, their answers, and the parameters that the server rejected.

    Attributes:
        model: a model behind the server.
        needs: the requirements of the study.
        info: the server's information about itself.
        asked: function of a test (`AbilityTest.asks`) -> its requests so far.
        answers: function of a test -> the answers to its requests.
        responses: all answers.
        rejected: rejected parameter -> the server's message.
    """

    model: HttpModel
    needs: ServerNeeds
    info: ServerInfo
    asked: dict[Asking, Sequence[TrialRequest]] = field(default_factory=dict)
    answers: dict[Asking, Sequence[Served]] = field(default_factory=dict)
    responses: list[Served] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)

    def finding(self, row: AbilityTest) -> Finding | None:
        """Test one ability and return its state with the evidence; None if the test does not apply or cannot decide.

        Requests that an earlier test made are not made again.

        Args:
            row: the test.

        Raises:
            NotSentError: a cap on costs does not allow a request.
            ValueError, ConnectionError: a request failed, and such a failure does not decide this test.
        """
        if row.mode not in ("", self.model.server.mode):
            return None
        if row.asks is None:
            return row.judge(self, ())
        # Before a run, it is an error if the server cannot be reached or does not have the model.
        failures: tuple[type[Exception], ...] = (ValueError,)
        if row.asks is _study:
            failures = (RejectedError,)
        elif self.needs.everything:
            failures = (ValueError, ConnectionError)
        try:
            if row.asks not in self.answers:
                self._ask_all(row.asks)
        except NotSentError:
            raise
        except failures as error:
            if row.failure is None:
                raise
            if isinstance(error, SilentServerError):  # its whole text advises a run that has stored answers
                return row.failure, f"failed: {printable(error.problem or str(error))[:_MOST_TEXT]}"
            message = printable(str(error))[:_MOST_TEXT]
            return row.failure, f"rejected: {message}" if isinstance(error, RejectedError) else message
        return row.judge(self, self.answers[row.asks]) if self.answers[row.asks] else None

    def _ask_all(self, asks: Asking) -> None:
        self.answers[asks] = answers = list[Served]()
        if self.needs.written and asks is not _study and not self.responses:
            return  # the server does not even accept a prompt of the study
        trials = self.asked[asks] = asks(self.needs, self.model.server, self.info.context)
        try:
            for trial in trials:
                parameters = trial.parameters(answers) if callable(trial.parameters) else trial.parameters
                if parameters is not None:
                    answers.append(self._ask(trial, parameters))
        except (OSError, ValueError):
            answers.clear()
            raise
        self.responses += answers

    def _ask(self, trial: TrialRequest, parameters: Mapping[str, Any]) -> Served:
        """Send a request like the study's own, but with other parameters."""
        model, dialect, sampling = self.model, self.model.dialect, self.needs.sampling
        wait = not (trial.exact and self.needs.everything)
        if trial.kind == "ids":
            ids = next((ids for answer in self.responses if (ids := answer.reply.prompt_tokens)), _SOME_IDS)
            return model.trial(list(ids), trial.max_tokens, parameters, wait=wait)
        if trial.kind == "scores":
            assert dialect is not None  # this ability is tested only in mode completions
            return model.score([dialect.encode(str(trial.content))])[0]
        request = Request(messages=self.needs.messages, key=CHECK, answers=self.needs.answers)
        if trial.content is not None:
            request = Request(messages=(Message(role="user", content=trial.content),), key=CHECK)
        replaced = () if trial.content is None else _OWN_PARAMETERS
        usual = model.parameters(request, sampling)
        sent = {name: value for name, value in usual.items() if name not in (*replaced, *self.rejected)}
        # Tested parameters are always sent; the temperature is only there to make answers comparable.
        sent |= {name: value for name, value in parameters.items() if name not in _COLD or name not in self.rejected}
        messages = request.messages
        prompt = messages if dialect is None else dialect.prompt_ids([dialect.render(messages, sampling)])[0]
        rejected = None if trial.exact else self.rejected
        return model.trial(prompt, trial.max_tokens, sent, wait=wait, rejected=rejected)


def most_trial_tokens(needs: ServerNeeds, server: Server) -> tuple[int, int, int]:
    """Return upper bounds on the cost of testing a server before a study.

    Requests that are rejected or fail are not counted.

    Args:
        needs: the study's requirements.
        server: the server's settings.

    Returns:
        Total numbers of requests, prompt tokens and output tokens.
    """
    groups = dict.fromkeys(row.asks for row in ABILITIES if row.asks and row.mode in ("", server.mode))
    requests = prompt_tokens = output_tokens = 0
    for trial in (trial for asks in groups for trial in asks(needs, server, None)):
        messages = needs.messages if trial.content is None else [Message(role="user", content=trial.content)]
        times = 2 if trial.kind == "scores" else 1  # there are two ways to request scores
        requests += times
        prompt_tokens += times * most_prompt_tokens(messages, needs.sampling.max_tokens)
        output_tokens += times * trial.max_tokens
    return requests, prompt_tokens, output_tokens


def check_server(model: HttpModel, needs: ServerNeeds) -> ServerReport:
    """Test whether a server can do what a study needs, and report each ability; `most_trial_tokens` bounds the cost.

    The server's information pages, which cost nothing, are read first.

    Raises:
        NotSentError: a cap does not allow the tests.
        MissingError: the model or the address does not exist.
        ConnectionError, PermissionError, ValueError: see `goalscope.agents.models.http_client.Client.ask`.
    """
    info = read_server_info(model.client)
    trials = Trials(model, needs, info)
    abilities = []
    try:
        for row in ABILITIES:
            finding = trials.finding(row)
            if finding is not None:
                state, detail, *advice = finding
                state = state if isinstance(state, str) else "yes" if state else "no"
                abilities.append(Ability(name=row.name, state=state, detail=detail, advice="".join(advice)))
    except MissingError as error:
        served_models = f"; it serves {', '.join(info.models[:10])}" if info.models else ""
        raise MissingError(f"{error}{served_models}") from None
    except RejectedError as rejected:
        raise rejection(model.served, model.server, str(rejected), as_ids=False) from None
    fingerprint = next((answer.fingerprint for answer in trials.responses if answer.fingerprint), "")
    if fingerprint:
        info = info.model_copy(update={"server": {**info.server, "fingerprint": fingerprint[:200]}})
    return ServerReport(told=info, abilities=tuple(abilities), rejected=trials.rejected)


def needing_record(report: ServerReport) -> list[str]:
    """Return the names of abilities that the server lacks and that a study can do without by ``unsupported: record``.

    With that setting, the run continues and records with each step that the setting had no effect. Without it, a study
    that needs one of these abilities does not start.
    """
    rows = {row.name: None for row in ABILITIES if row.recorded and report.of(row.name).state == "no"}
    return list(rows)


def apply_report(model: HttpModel, needs: ServerNeeds, report: ServerReport) -> None:
    """Adapt a model to what its server can do: unsupported parameters are left out, or the study is refused.

    Args:
        model: the model behind the server; changed in place.
        needs: the study's requirements.
        report: the tested abilities of the server.

    Raises:
        ValueError: the study cannot run on this server as configured; the message says what to change.
    """
    server, sampling = model.server, needs.sampling
    for parameter, message in report.rejected.items():
        model.drop(parameter, f"it reports: {message}")
    problems, ignored = [], []
    for row in ABILITIES:
        ability = report.of(row.name)
        if not row.needed or ability.state != "no" or row.recorded in report.rejected:
            continue
        if row.recorded and server.unsupported == "record":
            ignored.append(row.recorded)
            continue
        record = f", or {RECORDING} to continue and record this with each step"
        advice = f"{ability.advice or row.advice}{record if row.recorded else ''}"
        problem = row.problem.format(temperature=sampling.temperature)
        problems.append(f"{problem} {ability.detail}. {advice[0].upper()}{advice[1:]}")
    context = report.told.context
    if context is not None and needs.written and sampling.max_tokens >= context:
        problems.append(
            f"max_tokens ({sampling.max_tokens:,}) and the prompt must fit into the server's context of {context:,} "
            "tokens: lower max_tokens, or serve the model with a longer context"
        )
    if problems:
        raise ValueError(
            f"{server.base_url} failed tests before the first call of the study: {'; '.join(problems)}. "
            "(goalscope doctor --server ADDRESS shows everything that it supports)"
        )
    model.heed(ignored)
