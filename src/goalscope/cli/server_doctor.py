"""What a server can do: the trials of a run, all of them, as a table or as JSON."""

import json

from goalscope.agents import ChatAgent
from goalscope.agents.agent import Observation
from goalscope.cli.console import say, table
from goalscope.models import HttpModel, Sampling, Server
from goalscope.models.http_checks import ServerReport, check_server, told_by
from goalscope.models.http_transport import Client
from goalscope.models.http_trials import Wanted
from goalscope.worlds import Grid
from goalscope.worlds.gridworld import GridWorld

_GRID = "#####\n#A__#\n###_#\n#G__#\n#####"
_SAMPLING = Sampling(max_tokens=256, reasoning_effort=None)


def doctor_server(
    url: str,
    model: str | None,
    *,
    mode: str = "chat",
    tokenizer: str | None = None,
    key_env: str | None = None,
    as_json: bool = False,
) -> None:
    """Try what a server does and print it.

    Args:
        url: its address, up to and including ``/v1``.
        model: the name that it serves; may be left out where it serves one.
        mode, tokenizer, key_env: as in `goalscope.models.Server`.
        as_json: whether to print one JSON object in place of the table.
    """
    settings = {"base_url": url, "mode": mode, "tokenizer": tokenizer, "key_env": key_env, "retries": 2}
    server = Server.of({name: value for name, value in settings.items() if value is not None})
    served = HttpModel(model or _only_model(server), server=server)
    if not as_json:
        say(f"trying {served.name} at {url}", error=True)
    report = examine_server(served)
    if as_json:
        say(json.dumps({"model": served.name, "mode": mode, **report.model_dump(mode="json")}, indent=2))
        return
    told = ", ".join(f"{name} {text}" for name, text in report.told.server.items()) or "nothing"
    rows = [("the server says of itself", "", told)]
    rows += [(one.name, one.state, one.detail) for one in report.abilities]
    table(("what", "state", "seen"), rows, title=f"{served.name} at {url}, mode {mode}")
    say(f"{served.budget.calls} requests, {served.budget.tokens} tokens")


def examine_server(model: HttpModel, template: str = "") -> ServerReport:
    """Return all that is seen of a server; the prompt is that of a small grid, in the given form of the template."""
    world = GridWorld(grid=Grid.parse(_GRID))
    asked = ChatAgent(model=model, sampling=_SAMPLING, template=template).request(Observation(view=world.begin().view))
    return check_server(
        model, Wanted(sampling=_SAMPLING, messages=asked.messages, answers=asked.answers, everything=True)
    )


def _only_model(server: Server) -> str:
    """Return the name of the model that a server serves; a ValueError where it names none or several."""
    names = told_by(Client(server)).models
    if len(names) == 1:
        return names[0]
    there = f"it names {', '.join(names[:20])}" if names else "the server names none"
    raise ValueError(f"the model must be known, {there}: give --model NAME")
