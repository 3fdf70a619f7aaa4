"""`goalscope doctor --model NAME` reports on a model, `doctor --server URL` on the abilities of a server."""

import math
from dataclasses import asdict

from goalscope.cli.console import json_text, safe, say, table
from goalscope.verdict.preflight.model_report import SIZES, ModelReport, Sample, report_model
from goalscope.verdict.preflight.server_report import report_server

_MAX_CHARACTERS = 300  # characters of a sample answer


def doctor_model(model: str, *, device: str, chat_template: str | None, as_json: bool) -> None:
    """Load a model, ask it for a move on three grids, and print a report."""
    report = report_model(model, device=device, chat_template=chat_template, step=lambda text: say(text, error=True))
    if as_json:
        say(json_text(asdict(report)))
        return
    table(("what", "found"), _rows(report), title=f"goalscope doctor: {report.name}")
    for number, sample in enumerate(report.samples, 1):
        say(f"sample {number}, a grid of {sample.size}x{sample.size}: {_verdict(sample)}")
        if sample.reasoning:
            say(f"  reasoning: {_brief(sample.reasoning)}")
        say(f"  answer: {_brief(sample.text)}")
    for line in report.meaning:
        say(line)


def _rows(report: ModelReport) -> list[tuple[str, str]]:
    cache = "" if report.token_octets is None else f", and {report.token_octets / 1e3:.3g} kB per token and row"
    rate = report.write_rate
    write_speed = "too short to be measured" if math.isnan(rate) else f"{rate:.3g} per second"
    counts = {symbol: len(tokens) for symbol, tokens in report.cells.items()}
    cells = ", ".join(
        f"{symbol} {'one token' if n == 1 else f'{n} tokens with its blank'}" for symbol, n in counts.items()
    )
    return [
        ("read from", report.source + (f", {report.quantisation}" if report.quantisation else "")),
        ("architecture", report.architecture),
        ("tokenizer", report.tokenizer),
        ("chat template", "yes" if report.chat_template else "none: a base model"),
        ("reasoning", report.reasoning),
        ("cells", cells + (f"; {len(report.cell_problems)} problems" if report.cell_problems else "")),
        ("parameters", f"{report.parameters:,}"),
        ("type, device", f"{report.dtype}, {report.device}"),
        ("memory", f"{report.weight_octets / 1e9:.3g} GB of weights{cache}"),
        ("positions", "no limit" if report.positions is None else f"{report.positions:,}"),
        ("prompt tokens", ", ".join(f"{report.prompt_tokens[size]} at {size}x{size}" for size in SIZES)),
        ("tokens read", f"{report.read_rate:,.0f} per second"),
        ("tokens written", write_speed + (f", {len(report.samples)} answers at a time" if report.samples else "")),
    ]


def _verdict(sample: Sample) -> str:
    mass_note = "" if sample.mass is None else f"; the four moves together have probability {sample.mass:.3f}"
    if not sample.valid:
        return f"no action ({sample.verdict}){mass_note}"
    return f"{sample.verdict}, {'on' if sample.optimal else 'not on'} a shortest path{mass_note}"


def _brief(text: str) -> str:
    """Return the text of an answer on one line, truncated if it is long."""
    line = safe(text.replace("\n", " ⏎ "))
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} … ({len(text)} characters)"


def doctor_server(url: str, model: str | None, *, as_json: bool = False, **settings: str | None) -> None:
    """Test the abilities of a server and print them, see `report_server`."""
    step = (lambda text: None) if as_json else (lambda text: say(text, error=True))
    served, report = report_server(url, model, step=step, **settings)
    if as_json:
        say(json_text({"model": served.name, "mode": served.server.mode, **report.model_dump(mode="json")}))
        return
    metadata = ", ".join(f"{name} {text}" for name, text in report.told.server.items()) or "nothing"
    rows = [("reported by the server", "", metadata)]
    rows += [(ability.name, ability.state, ability.detail) for ability in report.abilities]
    table(("what", "state", "seen"), rows, title=f"{served.name} at {url}, mode {served.server.mode}")
    say(f"{served.budget.calls} requests, {served.budget.tokens} tokens")
