"""Check of a server before the first call of a run, which is stored with the run and counts towards its caps."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import printable
from goalscope.agents.agent import ANSWERED_BY, REDRAWS, WITHHELD, Agent, Observation, agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.abilities import (
    ServerInfo,
    ServerNeeds,
    ServerReport,
    apply_report,
    check_server,
    most_trial_tokens,
    other_names,
    read_server_info,
)
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_settings import BELIEVED, DOUBTED
from goalscope.agents.parse import CALLED, IN_REASONING, remedy
from goalscope.runs.store import Store

INFO: Final = "servers"
"""Key of the setting with the checks of servers, one entry per trial."""

_ANSWERS: Final = f"""
    SELECT name, count(*), total(doubted IS NOT NULL AND doubted), total(redraws > 0), total(redraws),
        total(failure = '{WITHHELD}'), total(failure = 'empty' AND reasoned), total(failure = '{CALLED}')
    FROM (
        SELECT CASE WHEN json_valid(extra) THEN json_extract(extra, '$.{ANSWERED_BY}') END AS name,
            CASE WHEN json_valid(usage) THEN json_extract(usage, '$.{DOUBTED}') END AS doubted,
            CASE WHEN json_valid(extra) AND json_type(extra, '$.{REDRAWS}') = 'integer'
                THEN max(0, json_extract(extra, '$.{REDRAWS}')) END AS redraws,
            failure, coalesce(reasoning, '') != '' AS reasoned
        FROM calls WHERE agent_id = ? AND state = 'done'
    ) GROUP BY name"""
"""The model names that a server reported to an agent, and the number of answers for each sentence of `_NOTES`."""

_NOTES: Final = (
    "{0} of {total} answers report numbers of tokens that their requests should not have: 0, which counts at the most "
    f"that a call can take, or more than that, which counts up to {BELIEVED} times it",
    "{0} of {total} answers were drawn again ({redraws} earlier replies to the same requests were lost, broken off or "
    "unreadable): if that depended on what the model wrote, the answers are a selection",
    "{0} of {total} answers were withheld by the server (a content filter, or a refusal): they are turns without an "
    "action, and no failures of the model to keep to the form",
    "{0} of {total} answers were empty, although the server's field for reasoning held text. If the answer stands "
    "there: {parser}",
    "{0} of {total} answers were calls of a tool, which are turns without an action: {tools}",
)
"""What is said of some answers, if there are any."""


def wanted_by(agent: ChatAgent, observation: Observation) -> ServerNeeds:
    """Return what an agent requires of its server, with the prompt for an observation."""
    request, choice = agent.request(observation), agent.choice
    return ServerNeeds(
        sampling=agent.sampling,
        messages=request.messages,
        answers=request.answers,
        written=choice is None or choice.after == "reasoning",
        scored=choice is not None,
    )


def spent_on_checks(store: Store, identity: str) -> dict[str, float]:
    """Return the cost of an agent's trials of its server, by name of the quantity; an interrupted trial counts with its
    maximum cost.
    """
    total: dict[str, float] = {}
    for entry in _entries(store):
        if entry.get("agent") == identity:
            for name, value in entry.get("usage", {}).items():
                total[name] = total.get(name, 0.0) + value
    return total


def noted_of_answers(store: Store) -> list[str]:
    """Return notices about the answers of each agent behind a server, one line per agent and fact.

    The facts are answers by another model, implausible token counts, answers that were drawn again, answers that the
    server withheld, and answers that came in the field for reasoning or as a tool call; each comes with advice.
    """
    lines = []
    for identity, (agent, description) in sorted(store.agents().items()):
        model = description.get("model")
        if not isinstance(model, Mapping) or model.get("kind") != "http":
            continue
        names, columns = Counter[str](), Counter[int]()
        for name, count, *counts in store.query(_ANSWERS, (identity,)):
            names[printable(str(name or ""))] += count
            columns.update(dict(enumerate(map(int, counts))))
        doubted, redrawn, redraws, *further_columns = (columns[column] for column in range(len(_NOTES) + 1))
        facts = {"total": names.total(), "redraws": redraws, "parser": remedy(IN_REASONING), "tools": remedy(CALLED)}
        pairs = zip((doubted, redrawn, *further_columns), _NOTES, strict=True)
        notes = [note.format(count, **facts) for count, note in pairs if count]
        lines += [f"{agent}: {line}" for line in (other_names(str(model.get("model")), names), *notes) if line]
    return lines


def check_before_calls(store: Store, agent: Agent, observation: Observation) -> None:
    """Check the abilities of an agent's server, unless this run did so before, and configure its model accordingly.

    Agents without a server pass. The server's metadata are stored in each session with calls.

    Raises:
        NotSentError: if a cap leaves no room for the trials.
        ValueError: if the study cannot be run on this server.
        ConnectionError, PermissionError: see `goalscope.agents.models.abilities.check_server`.
    """
    model = getattr(agent, "model", None)
    if not isinstance(agent, ChatAgent) or not isinstance(model, HttpModel):
        return
    if not model.server.preflight:
        _note(store, model, read_server_info(model.client))
        return
    needs, identity = wanted_by(agent, observation), agent_id(agent)
    settings = content_id("server", {"model": dict(model.describe()), **needs.settings(model.server)})
    accepted = [entry for entry in _entries(store) if entry.get("settings") == settings and entry.get("accepted")]
    if accepted:
        apply_report(model, needs, ServerReport.model_validate(accepted[-1]["report"]))
        _note(store, model, read_server_info(model.client))
        return
    budget = model.budget
    before = budget.calls, budget.tokens, budget.usd
    requests, prompts, outputs = most_trial_tokens(needs, model.server)
    cost_limit: dict[str, float] = {"requests": requests, "tokens_at_most": prompts + outputs}
    if budget.priced:
        cost_limit["usd"] = budget.usd_of(prompts, outputs)
    entry: dict[str, Any] = {
        "address": model.server.base_url,
        "model": model.served,
        "agent": identity,
        "settings": settings,
        "accepted": False,
    }
    entries = _entries(store)
    # Store the maximum cost first, in case the process is killed during the trials.
    store.put_info(INFO, [*entries, {**entry, "usage": cost_limit}])
    try:
        report = check_server(model, needs)
        entry |= {"server": dict(report.told.server), "report": report.model_dump(mode="json")}
        apply_report(model, needs, report)
        entry["accepted"] = True
    finally:
        requests_made, tokens, usd = budget.calls - before[0], budget.tokens - before[1], budget.usd - before[2]
        entry["usage"] = {"requests": requests_made, "prompt_tokens": tokens, **({"usd": usd} if budget.priced else {})}
        store.put_info(INFO, [*entries, entry])


def _entries(store: Store) -> list[Mapping[str, Any]]:
    entries = store.info().get(INFO, [])
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _note(store: Store, model: HttpModel, metadata: ServerInfo) -> None:
    """Store a server's metadata unless the run has them already."""
    entries = _entries(store)
    report = {"address": model.server.base_url, "model": model.served, "server": dict(metadata.server)}
    # Only answers contain the fingerprint; the server's other pages do not.
    stored = [
        {**entry, "server": {name: text for name, text in entry.get("server", {}).items() if name != "fingerprint"}}
        for entry in entries
    ]
    if metadata.server and not any(report.items() <= entry.items() for entry in stored):
        store.put_info(INFO, [*entries, report])
