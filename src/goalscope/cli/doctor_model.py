"""`goalscope doctor --model NAME`: what a model is like, for a study; `doctor --server URL`: what a server can do."""

import math
from dataclasses import asdict

from goalscope.agents import ChatAgent
from goalscope.agents.agent import Observation
from goalscope.cli.console import json_text, safe, say, table
from goalscope.models import HttpModel, Sampling, Server
from goalscope.models.http_checks import ServerReport, check_server, read_server_info
from goalscope.models.http_transport import Client
from goalscope.models.http_trials import ServerNeeds
from goalscope.preflight.model_report import SIZES, ModelReport, Sample, report_model
from goalscope.worlds import Grid
from goalscope.worlds.gridworld import GridWorld

_SHOWN = 300  # characters of a sample answer
_GRID = "#####\n#A__#\n###_#\n#G__#\n#####"
_SAMPLING = Sampling(max_tokens=256, reasoning_effort=None)


def doctor_model(model: str, *, device: str, as_json: bool) -> None:
    """Load a model, ask it about three grids, and print what was found."""
    found = report_model(model, device=device, step=lambda text: say(text, error=True))
    if as_json:
        say(json_text(asdict(found)))
        return
    table(("what", "found"), _rows(found), title=f"goalscope doctor: {found.name}")
    for number, sample in enumerate(found.samples, 1):
        say(f"sample {number}, a grid of {sample.size}x{sample.size}: {_verdict(sample)}")
        if sample.reasoning:
            say(f"  reasoning: {_brief(sample.reasoning)}")
        say(f"  answer: {_brief(sample.text)}")
    for line in found.meaning:
        say(line)


def _rows(found: ModelReport) -> list[tuple[str, str]]:
    kept = "" if found.token_octets is None else f", and {found.token_octets / 1e3:.3g} kB a token and row"
    rate = found.write_rate
    written = "not measured, the answers end at once" if math.isnan(rate) else f"{rate:.3g} a second"
    counts = {symbol: len(tokens) for symbol, tokens in found.cells.items()}
    cells = ", ".join(f"{symbol} {'one token' if n == 1 else f'{n} tokens'}" for symbol, n in counts.items())
    return [
        ("read from", found.source + (f", {found.quantisation}" if found.quantisation else "")),
        ("architecture", found.architecture),
        ("chat template", "yes" if found.chat_template else "none: a base model"),
        ("reasoning", found.reasoning),
        ("cells", cells + (f"; {len(found.cell_problems)} problems" if found.cell_problems else "")),
        ("parameters", f"{found.parameters:,}"),
        ("type, device", f"{found.dtype}, {found.device}"),
        ("memory", f"{found.weight_octets / 1e9:.3g} GB of weights{kept}"),
        ("positions", "no limit" if found.positions is None else f"{found.positions:,}"),
        ("prompt tokens", ", ".join(f"{found.prompt_tokens[size]} at {size}x{size}" for size in SIZES)),
        ("tokens read", f"{found.read_rate:,.0f} a second"),
        ("tokens written", written + (f", {len(found.samples)} answers at a time" if found.samples else "")),
    ]


def _verdict(sample: Sample) -> str:
    held = "" if sample.mass is None else f"; the four moves have {sample.mass:.3f} of the probability there"
    if not sample.valid:
        return f"no action ({sample.verdict}){held}"
    return f"{sample.verdict}, {'on' if sample.optimal else 'not on'} a shortest path{held}"


def _brief(text: str) -> str:
    """Return a text of the model on one line, cut where it is long."""
    plain = safe(text.replace("\n", " ⏎ "))
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]} … ({len(text)} characters)"


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
        say(json_text({"model": served.name, "mode": mode, **report.model_dump(mode="json")}))
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
        model, ServerNeeds(sampling=_SAMPLING, messages=asked.messages, answers=asked.answers, everything=True)
    )


def _only_model(server: Server) -> str:
    """Return the name of the model that a server serves; a ValueError where it names none or several."""
    names = read_server_info(Client(server)).models
    if len(names) == 1:
        return names[0]
    there = f"it names {', '.join(names[:20])}" if names else "the server names none"
    raise ValueError(f"the model must be known, {there}: give --model NAME")
