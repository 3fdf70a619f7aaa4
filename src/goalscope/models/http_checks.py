"""What a study needs of its server, tried before the first call that is paid for, and what follows from it.

Before that, the server is asked for the pages on which it tells of itself, which cost nothing: its version, the models
that it serves, their context.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from goalscope.models.http import HttpModel
from goalscope.models.http_errors import MissingError
from goalscope.models.http_transport import Client
from goalscope.models.http_trials import Ability, State, Trials, Wanted

_MOST_NAMES: Final = 200
_MOST_TEXT: Final = 200
_CONTEXT: Final = ("max_model_len", "context_length", "context_window", "n_ctx")
_VERSION: Final = {"version": "version", "build_info": "build", "sglang_version": "version"}
"""What a page calls a version, and what it is called here."""


class Told(BaseModel):
    """What a server says of itself; nothing of it is relied on but for sentences.

    Attributes:
        server: texts by name, such as ``version`` and ``software``.
        models: the names that it serves.
        context: most tokens of prompt and answer together, the least that it names; None where it names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Mapping[str, str] = {}
    models: tuple[str, ...] = ()
    context: int | None = None


class ServerReport(BaseModel):
    """What was seen of a server.

    Attributes:
        told: what it says of itself.
        abilities: in the order in which they were tried.
        rejected: parameters that it rejects, and what it says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    told: Told
    abilities: tuple[Ability, ...]
    rejected: Mapping[str, str] = {}

    def state(self, name: str) -> State:
        """Return the state of an ability, "unknown" where it was not tried."""
        return next((one.state for one in self.abilities if one.name == name), "unknown")

    def detail(self, name: str) -> str:
        """Return what was seen of an ability, "" where it was not tried."""
        return next((one.detail for one in self.abilities if one.name == name), "")


def check_server(model: HttpModel, wanted: Wanted) -> ServerReport:
    """Try what a study needs of its server; see `goalscope.models.http_trials.most_trial_tokens` for what that costs.

    Raises:
        NotSentError: a cap leaves no room for it.
        MissingError: there is no such model or address.
        ConnectionError, PermissionError, ValueError: see `goalscope.models.http_transport.Client.ask`.
    """
    told = told_by(model.client)
    trials = Trials(model, wanted)
    try:
        if wanted.written:
            trials.plain()
        if wanted.written and trials.answers:
            trials.draws()
            trials.stop()
            trials.constraints()
            trials.logprobs()
        if wanted.scored or (wanted.everything and trials.answers):
            trials.scores()
        if wanted.everything:
            trials.token_prompts()
    except MissingError as error:
        there = f"; it serves {', '.join(told.models[:10])}" if told.models else ""
        raise MissingError(f"{error}{there}") from None
    if told.context is not None:
        trials.add("context length", "yes", f"{told.context:,} tokens, prompt and answer together")
    fingerprint = next((one.fingerprint for one in trials.seen if one.fingerprint), "")
    if fingerprint:
        told = told.model_copy(update={"server": {**told.server, "fingerprint": fingerprint[:200]}})
    return ServerReport(told=told, abilities=tuple(trials.found), rejected=trials.rejected)


def apply_report(model: HttpModel, wanted: Wanted, report: ServerReport) -> None:
    """Let a model go by what was seen of its server.

    Raises:
        ValueError: the study cannot be run on it as it stands; says what to change.
    """
    server = model.server
    for parameter, said in report.rejected.items():
        model.drop(parameter, f"it says: {said}")
    refused, ignored = [], []
    for name, needed, recorded, sentence in _needs(model, wanted):
        if needed and report.state(name) == "no" and recorded not in report.rejected:
            if recorded and server.unsupported == "record":
                ignored.append(recorded)
            else:
                record = ", or say server: {unsupported: record} to go on and have that recorded with each step"
                refused.append(f"{sentence} {report.detail(name)}. {_instead(name)}{record if recorded else ''}")
    context = report.told.context
    if context is not None and wanted.written and wanted.sampling.max_tokens >= context:
        refused.append(
            f"max_tokens ({wanted.sampling.max_tokens:,}) and the prompt must fit into the {context:,} tokens that the "
            "server gives to both: lower max_tokens, or serve the model with a longer context"
        )
    if refused:
        raise ValueError(
            f"{server.base_url} was tried before the first call of the study: {'; '.join(refused)}. "
            "(goalscope doctor --server ADDRESS shows all that it does)"
        )
    model.heed(ignored)


def _needs(model: HttpModel, wanted: Wanted) -> list[tuple[str, bool, str, str]]:
    """Return each ability that matters: its name, whether the study needs it, how steps name its lack ("": the study
    cannot do without), and the beginning of the sentence about it."""
    sampling, constrained = wanted.sampling, model.server.constrained
    at = f"temperature: {sampling.temperature:g}"
    return [
        ("prompts as token ids", model.dialect is not None, "", "mode completions sends prompts as token ids:"),
        ("temperature", wanted.written, "temperature", f"the server must heed {at}:"),
        ("reasoning", wanted.written, "reasoning", "reasoning and answer must be told apart:"),
        ("log-probabilities", bool(sampling.top_logprobs), "top_logprobs", "top_logprobs needs log-probabilities:"),
        ("log-probabilities of prompts", wanted.scored, "", "answer: likelihood needs those of a prompt's tokens:"),
        (f"constrained: {constrained}", constrained is not None, "constrained", "server.constrained must act:"),
        ("stop strings", "stop" in model.server.body, "stop", "the stop strings of server.body must act:"),
    ]


def _instead(name: str) -> str:
    """Return the settings to use where an ability is missing."""
    return {
        "prompts as token ids": "Use mode: chat",
        "temperature": "transformers serve draws only where generation_config.json of the served folder says "
        '"do_sample": true; else serve the model with vLLM, SGLang or llama.cpp',
        "reasoning": "Start the server with the model's reasoning parser (vLLM and SGLang: --reasoning-parser), or use "
        "mode: completions",
        "log-probabilities": "Set top_logprobs: 0",
        "log-probabilities of prompts": "Use vLLM, SGLang or a local model, or answer: generated",
        "stop strings": "Take stop out of server.body",
    }.get(name, "Leave server.constrained out")


def told_by(client: Client) -> Told:
    """Ask a server for the pages on which it tells of itself; one that has none has told nothing.

    Raises:
        PermissionError: the key is missing.
    """
    first = client.look("models")
    if first is None:
        return Told()
    listing, software = first
    found: dict[str, str] = {"software": software} if software else {}
    entries = listing.get("data")
    kept = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
    models = [one["id"][:_MOST_TEXT] for one in kept if isinstance(one.get("id"), str)]
    if kept and isinstance(kept[0].get("owned_by"), str):
        found["owner"] = kept[0]["owned_by"]
    contexts = [size for entry in kept for size in _contexts(entry)] if len(kept) == 1 else []
    for path in ("/version", "/props", "/get_server_info"):
        page, _ = client.look(path) or ({}, "")
        found |= {ours: page[theirs] for theirs, ours in _VERSION.items() if isinstance(page.get(theirs), str)}
        contexts += _contexts(page)
    printable = {name: "".join(filter(str.isprintable, text))[:_MOST_TEXT] for name, text in found.items()}
    return Told(
        server={name: text for name, text in printable.items() if text},
        models=tuple(models[:_MOST_NAMES]),
        context=min(contexts) if contexts else None,
    )


def _contexts(page: Mapping[str, Any]) -> Iterator[int]:
    """Yield the lengths of context on a page, and those one level below."""
    for part in (page, page.get("default_generation_settings"), page.get("meta")):
        if not isinstance(part, Mapping):
            continue
        for size in map(part.get, _CONTEXT):
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**40:
                yield size
