"""`goalscope doctor --model NAME`: what a model is like, and what that means for a study."""

import json
import math

from goalscope.cli.console import safe, say, table
from goalscope.preflight.model_report import SIZES, ModelReport, Sample, report_model

_SHOWN = 300  # characters of a sample answer


def doctor_model(model: str, *, device: str, as_json: bool) -> None:
    """Load a model, ask it about three grids, and print what was found."""
    found = report_model(model, device=device, step=lambda text: say(text, error=True))
    if as_json:
        say(json.dumps(found.to_plain(), indent=2, allow_nan=False))
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
