"""Check that a server meets a study's requirements before the first call of the study, and apply the result.

First the server's information pages are read, which cost nothing: its version, the models that it serves, their context
lengths.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from goalscope._ground.untrusted import printable, shorten
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_context import RAISE
from goalscope.agents.models.http_errors import MissingError
from goalscope.agents.models.http_transport import Client
from goalscope.agents.models.http_trials import Ability, ServerNeeds, State, Trials

_MOST_NAMES: Final = 200
_MOST_TEXT: Final = 200
_MOST_LISTED: Final = 5
_CONTEXT: Final = ("max_model_len", "context_length", "context_window", "n_ctx")
_VERSION: Final = {"version": "version", "build_info": "build", "sglang_version": "version"}
"""Keys of versions on a page, and their names here."""


class ServerInfo(BaseModel):
    """A server's information about itself; used in messages, otherwise only its context length is used.

    Attributes:
        server: texts by name, such as ``version`` and ``software``.
        models: the names that it serves.
        context: maximum tokens of prompt and answer together, the smallest that it states; None where it states none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Mapping[str, str] = {}
    models: tuple[str, ...] = ()
    context: int | None = None


class ServerReport(BaseModel):
    """Result of the trials of a server.

    Attributes:
        told: the server's information about itself.
        abilities: in the order in which they were tried.
        rejected: parameters that it rejects, and its messages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    told: ServerInfo
    abilities: tuple[Ability, ...]
    rejected: Mapping[str, str] = {}

    def state(self, name: str) -> State:
        """Return the state of an ability, "unknown" where it was not tried."""
        return next((ability.state for ability in self.abilities if ability.name == name), "unknown")

    def advice(self, name: str) -> str:
        """Return what to change where an ability is missing, "" for the usual advice or where it was not tried."""
        return next((ability.advice for ability in self.abilities if ability.name == name), "")

    def detail(self, name: str) -> str:
        """Return the evidence on an ability, "" where it was not tried."""
        return next((ability.detail for ability in self.abilities if ability.name == name), "")


def check_server(model: HttpModel, needs: ServerNeeds) -> ServerReport:
    """Try what a study needs of its server; `goalscope.agents.models.http_trials.most_trial_tokens` bounds the cost.

    Raises:
        NotSentError: a cap leaves no room for it.
        MissingError: there is no such model or address.
        ConnectionError, PermissionError, ValueError: see `goalscope.agents.models.http_transport.Client.ask`.
    """
    info = read_server_info(model.client)
    trials = Trials(model, needs)
    try:
        if needs.written:
            trials.study_prompt()
        if needs.written and trials.answered:
            trials.whole_prompts(info.context)
            trials.draws()
            trials.stop()
            trials.constraints()
            trials.logprobs()
        if needs.scored or (needs.everything and trials.answered):
            trials.scores()
        if needs.everything:
            trials.token_prompts()
    except MissingError as error:
        served_models = f"; it serves {', '.join(info.models[:10])}" if info.models else ""
        raise MissingError(f"{error}{served_models}") from None
    if info.context is not None:
        trials.add("context length", "yes", f"{info.context:,} tokens, prompt and answer together")
    names = Counter(answer.reply.answered_by for answer in trials.responses)
    if others := other_names(model.served, names):
        trials.add("named as asked", "no", others)
    elif trials.answered:
        named = names[model.served] == names.total()
        trials.add("named as asked", "yes" if named else "unknown", "yes" if named else "an answer names no model")
    fingerprint = next((answer.fingerprint for answer in trials.responses if answer.fingerprint), "")
    if fingerprint:
        info = info.model_copy(update={"server": {**info.server, "fingerprint": fingerprint[:200]}})
    return ServerReport(told=info, abilities=tuple(trials.abilities), rejected=trials.rejected)


def other_names(asked: str, names: Mapping[str, int]) -> str:
    """Return which other names than the one asked for a server gives the model in its answers, "" for none.

    Args:
        asked: the name asked for.
        names: numbers of answers by name, "" for those without one.
    """
    others = Counter({name: count for name, count in names.items() if name not in ("", printable(asked))})
    if not others:
        return ""
    listed = ", ".join(f"{shorten(name)} ({count})" for name, count in others.most_common(_MOST_LISTED))
    more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
    share = f"{others.total()} of {sum(names.values())} answers"
    return f"{share} give the model another name than {shorten(asked)}: {listed}{more}"


def apply_report(model: HttpModel, needs: ServerNeeds, report: ServerReport) -> None:
    """Adapt a model to the abilities of its server.

    Raises:
        ValueError: the study cannot be run on this server as configured; the message says what to change.
    """
    server = model.server
    for parameter, message in report.rejected.items():
        model.drop(parameter, f"it says: {message}")
    problems, ignored = [], []
    for name, needed, recorded, sentence in _needs(model, needs):
        if needed and report.state(name) == "no" and recorded not in report.rejected:
            if recorded and server.unsupported == "record":
                ignored.append(recorded)
            else:
                record = ", or say server: {unsupported: record} to go on and have that recorded with each step"
                advice = report.advice(name) or _instead(name)
                problems.append(f"{sentence} {report.detail(name)}. {advice}{record if recorded else ''}")
    context = report.told.context
    if context is not None and needs.written and needs.sampling.max_tokens >= context:
        problems.append(
            f"max_tokens ({needs.sampling.max_tokens:,}) and the prompt must fit into the {context:,} tokens that the "
            "server gives to both: lower max_tokens, or serve the model with a longer context"
        )
    if problems:
        raise ValueError(
            f"{server.base_url} was tried before the first call of the study: {'; '.join(problems)}. "
            "(goalscope doctor --server ADDRESS shows all that it does)"
        )
    model.heed(ignored)


def _needs(model: HttpModel, needs: ServerNeeds) -> list[tuple[str, bool, str, str]]:
    """Return each relevant ability: its name, whether the study needs it, the parameter that steps record as
    unsupported without it ("": the study cannot do without), and the beginning of the error sentence."""
    sampling, constrained = needs.sampling, model.server.constrained
    temperature = f"temperature: {sampling.temperature:g}"
    return [
        ("prompts as token ids", model.dialect is not None, "", "mode completions sends prompts as token ids:"),
        ("whole prompts", needs.written, "", "the server must read prompts as a whole:"),
        ("temperature", needs.written, "temperature", f"the server must heed {temperature}:"),
        ("reasoning", needs.written, "reasoning", "reasoning and answer must be told apart:"),
        ("answers in text", needs.written, "", "the model must answer in text:"),
        ("log-probabilities", bool(sampling.top_logprobs), "top_logprobs", "top_logprobs needs log-probabilities:"),
        ("log-probabilities of prompts", needs.scored, "", "answer: likelihood needs those of a prompt's tokens:"),
        (f"constrained: {constrained}", constrained is not None, "constrained", "server.constrained must act:"),
        ("stop strings", "stop" in model.server.body, "stop", "the stop strings of server.body must act:"),
    ]


def _instead(name: str) -> str:
    """Return the settings to use where an ability is missing."""
    return {
        "prompts as token ids": "Use mode: chat",
        "whole prompts": f"{RAISE}; or lower max_tokens, for which the context must have room, too",
        "temperature": "transformers serve draws only where generation_config.json of the served folder says "
        '"do_sample": true; else serve the model with vLLM, SGLang or llama.cpp',
        "reasoning": "Start the server with the model's reasoning parser (vLLM and SGLang: --reasoning-parser), or use "
        "mode: completions",
        "answers in text": "Leave tools out of server.body, and start the server without its automatic choice of tools",
        "log-probabilities": "Set top_logprobs: 0",
        "log-probabilities of prompts": "Use vLLM, SGLang or a local model, or answer: generated",
        "stop strings": "Take stop out of server.body",
    }.get(name, "Leave server.constrained out")


def read_server_info(client: Client) -> ServerInfo:
    """Read the information pages of a server; the result is empty where it has none.

    Raises:
        PermissionError: the key is missing.
    """
    first_page = client.look("models")
    if first_page is None:
        return ServerInfo()
    listing, software = first_page
    texts: dict[str, str] = {"software": software} if software else {}
    entries = listing.get("data")
    model_entries = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    models = [entry["id"][:_MOST_TEXT] for entry in model_entries if isinstance(entry.get("id"), str)]
    if model_entries and isinstance(model_entries[0].get("owned_by"), str):
        texts["owner"] = model_entries[0]["owned_by"]
    contexts = [size for entry in model_entries for size in _contexts(entry)] if len(model_entries) == 1 else []
    for path in ("/version", "/props", "/get_server_info"):
        page, _ = client.look(path) or ({}, "")
        texts |= {name: page[page_key] for page_key, name in _VERSION.items() if isinstance(page.get(page_key), str)}
        contexts += _contexts(page)
    printable = {name: "".join(filter(str.isprintable, text))[:_MOST_TEXT] for name, text in texts.items()}
    return ServerInfo(
        server={name: text for name, text in printable.items() if text},
        models=tuple(models[:_MOST_NAMES]),
        context=min(contexts) if contexts else None,
    )


def _contexts(page: Mapping[str, Any]) -> Iterator[int]:
    """Yield the context lengths on a page, and those one level below."""
    for part in (page, page.get("default_generation_settings"), page.get("meta")):
        if not isinstance(part, Mapping):
            continue
        for size in map(part.get, _CONTEXT):
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**40:
                yield size
