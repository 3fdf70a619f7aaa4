"""The trials of a server before the first call of a run: made once, kept with the run, counted in its caps."""

from collections.abc import Mapping
from typing import Any, Final

from goalscope.agents.agent import Agent, Observation, agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.ids import content_id
from goalscope.models.http import HttpModel
from goalscope.models.http_checks import ServerInfo, ServerReport, apply_report, check_server, read_server_info
from goalscope.models.http_trials import ServerNeeds, most_trial_tokens
from goalscope.runs.store import Store

INFO: Final = "servers"
"""Under which name a run keeps what was seen of its servers, one entry for each time that one was tried."""


def wanted_by(agent: ChatAgent, observation: Observation | None = None) -> ServerNeeds:
    """Return what an agent needs of its server, with the prompt of an observation where there is one."""
    asked = None if observation is None else agent.request(observation)
    choice = agent.choice
    return ServerNeeds(
        sampling=agent.sampling,
        messages=() if asked is None else asked.messages,
        answers=() if asked is None else asked.answers,
        written=choice is None or choice.after == "reasoning",
        scored=choice is not None,
    )


def spent_on_checks(store: Store, identity: str) -> dict[str, float]:
    """Return what the trials of an agent cost, by name; those that were cut short at the most that they can have."""
    total: dict[str, float] = {}
    for entry in _entries(store):
        if entry.get("agent") == identity:
            for name, value in entry.get("usage", {}).items():
                total[name] = total.get(name, 0.0) + value
    return total


def check_before_calls(store: Store, agent: Agent, observation: Observation) -> None:
    """Try what an agent's server does, unless this run did; let its model go by it.

    Agents without a server pass. What the server says of itself is noted in each session in which it is asked.

    Raises:
        NotSentError: a cap leaves no room for it.
        ValueError: the study cannot be run on this server as it stands.
        ConnectionError, PermissionError: see `goalscope.models.http_checks.check_server`.
    """
    model = getattr(agent, "model", None)
    if not isinstance(agent, ChatAgent) or not isinstance(model, HttpModel):
        return
    if not model.server.preflight:
        _note(store, model, read_server_info(model.client))
        return
    wanted, identity = wanted_by(agent, observation), agent_id(agent)
    settings = content_id("server", {"model": dict(model.describe()), **wanted.settings(model.server)})
    known = [entry for entry in _entries(store) if entry.get("settings") == settings and entry.get("accepted")]
    if known:
        apply_report(model, wanted, ServerReport.model_validate(known[-1]["report"]))
        _note(store, model, read_server_info(model.client))
        return
    budget = model.budget
    before = budget.calls, budget.tokens, budget.usd
    requests, prompts, outputs = most_trial_tokens(wanted, model.server)
    most: dict[str, float] = {"requests": requests, "tokens_at_most": prompts + outputs}
    if budget.priced:
        most["usd"] = budget.usd_of(prompts, outputs)
    entry: dict[str, Any] = {
        "address": model.server.base_url,
        "model": model.served,
        "agent": identity,
        "settings": settings,
        "accepted": False,
    }
    entries = _entries(store)
    # A process that is killed now has spent no more than this.
    store.put_info(INFO, [*entries, {**entry, "usage": most}])
    try:
        report = check_server(model, wanted)
        entry |= {"server": dict(report.told.server), "report": report.model_dump(mode="json")}
        apply_report(model, wanted, report)
        entry["accepted"] = True
    finally:
        made, tokens, usd = budget.calls - before[0], budget.tokens - before[1], budget.usd - before[2]
        entry["usage"] = {"requests": made, "prompt_tokens": tokens, **({"usd": usd} if budget.priced else {})}
        store.put_info(INFO, [*entries, entry])


def _entries(store: Store) -> list[Mapping[str, Any]]:
    held = store.info().get(INFO, [])
    return [entry for entry in held if isinstance(entry, Mapping)] if isinstance(held, list) else []


def _note(store: Store, model: HttpModel, info: ServerInfo) -> None:
    """Keep what a server says of itself where the run does not hold it yet."""
    entries = _entries(store)
    seen = {"address": model.server.base_url, "model": model.served, "server": dict(info.server)}
    same = [entry for entry in entries if all(_plain(entry).get(name) == value for name, value in seen.items())]
    if info.server and not same:
        store.put_info(INFO, [*entries, seen])


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without the fingerprint, which answers tell and pages do not."""
    server = entry.get("server", {})
    return {**entry, "server": {name: text for name, text in server.items() if name != "fingerprint"}}
