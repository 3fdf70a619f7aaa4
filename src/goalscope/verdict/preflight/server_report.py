"""Report on what a server of language models can do, before it is used in a study."""

from collections.abc import Callable
from dataclasses import replace

from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models import HttpModel, Sampling, Server
from goalscope.agents.models.abilities import ServerReport, check_server
from goalscope.agents.models.http_client import Client, read_server_info
from goalscope.runs.server_checks import wanted_by
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld

_GRID = "#####\n#A__#\n###_#\n#G__#\n#####"
_SAMPLING = Sampling(max_tokens=256, reasoning_effort=None)


def report_server(
    url: str, model: str | None = None, *, step: Callable[[str], None] = lambda text: None, **settings: str | None
) -> tuple[HttpModel, ServerReport]:
    """Return the model that a server serves, the cost of examining it, and the report on its abilities.

    Args:
        url: its address, up to and including ``/v1``.
        model: the served name; can be omitted if the server has one model.
        step: called with the name of the work before it begins.
        settings: other settings of `goalscope.agents.models.Server`; None for the defaults.

    Raises:
        ValueError: a setting does not fit, or the server names no model or several.
        ConnectionError: the server cannot be reached.
    """
    settings_given = {name: value for name, value in settings.items() if value is not None}
    server = Server.of({"base_url": url, "retries": 2, **settings_given})
    served = HttpModel(model or _only_model(server), server=server)
    step(f"trying {served.name} at {url}")
    return served, examine_server(served)


def examine_server(model: HttpModel, template: str = "") -> ServerReport:
    """Return the report on a server; it is prompted with a small grid, in the given form of the template."""
    agent = ChatAgent(model=model, sampling=_SAMPLING, template=template)
    observation = Observation(view=GridWorld(grid=Grid.parse(_GRID)).begin().view)
    return check_server(model, replace(wanted_by(agent, observation), everything=True))


def _only_model(server: Server) -> str:
    """Return the name of the only model of a server; raise a ValueError if it names none or several."""
    names = read_server_info(Client(server)).models
    if len(names) == 1:
        return names[0]
    answer = f"it names {', '.join(names[:20])}" if names else "the server names none"
    raise ValueError(f"the model must be known, {answer}: give --model NAME")
