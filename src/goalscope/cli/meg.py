"""`goalscope meg FILE`: maximum-entropy goal-directedness in a decision process of the user's own."""

import json
import math
from pathlib import Path
from typing import Any

from goalscope.cli.console import say, table
from goalscope.meg import KnownMEG, UnknownMEG, chance_note, meg_known, meg_unknown
from goalscope.meg.file import MEGFile, read_meg_file


def meg_file(path: Path, *, unknown: bool, confidence: float, as_json: bool) -> None:
    """Print the MEG of the agent that a file describes.

    Args:
        path: a `.json` or `.npz` file (docs/meg.md).
        unknown: also with respect to an unknown utility over states; needs a policy.
        confidence: of the interval where the file holds returns or trajectories.
        as_json: print JSON in place of tables.

    Raises:
        ValueError: what the file, or what it says, is wrong with.
    """
    given = read_meg_file(path)
    if unknown and given.policy is None:
        raise ValueError(
            "--unknown needs a policy, got returns: from few episodes the supremum over utilities diverges"
        )
    known = meg_known(given.mdp, given.policy, given.returns, mean_return=given.mean_return, confidence=confidence)
    other = meg_unknown(given.mdp, given.policy) if unknown and given.policy is not None else None
    if as_json:
        content: dict[str, Any] = {"process": _process(given), "known": _known(known)}
        if other is not None:
            content["unknown"] = _unknown(other)
        say(json.dumps(content, indent=2, allow_nan=False))
        return
    process = _process(given)
    title = (
        f"MEG in {path.name}: {process['states']} states, {process['actions']} actions, {process['horizon']} decisions"
    )
    rows = [(label, _number(value), unit, meaning) for label, value, unit, meaning in _lines(known)]
    table(("figure", "value", "unit", "meaning"), rows, title=title, numbers=(1,))
    for note in filter(None, (known.note, _untold(known))):
        say(f"note: {note}")
    if other is not None:
        rows = [
            ("MEG", _number(other.value), "nats", "with the best utility over states" + _how(other)),
            ("upper bound", _number(other.upper), "nats", "of every class of utilities over states"),
            ("reachable bound", _number(other.bound), "nats", "log A for each decision that changes anything"),
        ]
        table(("figure", "value", "unit", "meaning"), rows, title="Utility unknown", numbers=(1,))


def _lines(known: KnownMEG) -> list[tuple[str, float, str, str]]:
    share, beta = (math.nan, math.nan) if _untold(known) else (known.share, known.beta)
    lines = [("MEG", known.value, "nats", "how much better than chance the utility predicts the agent")]
    if known.n:
        sampled = f"{100 * known.confidence:g} %, {known.method}, n = {known.n}"
        lines += [
            ("  from", known.low, "nats", sampled),
            ("  to", known.high, "nats", sampled),
            ("  bias", known.bias, "nats", "about how far MEG lies too high by maximisation"),
        ]
    return [
        *lines,
        ("signed MEG", known.signed, "nats", "below 0: the agent does worse than the uniform policy"),
        ("share", share, "share", "of the tight bound on its side"),
        ("beta", beta, "nats/utility", "the rationality that predicts best"),
        ("tight bound", known.bound, "nats", "of an optimal policy in this process"),
        ("tight bound below", known.bound_lowest, "nats", "of a policy that is optimal at avoiding"),
        ("reachable bound", known.reachable_bound, "nats", "log A for each decision that changes anything"),
        ("naive bound", known.naive_bound, "nats", "n log A"),
        ("utility", known.utility, "utility", "of the agent" + (", mean return" if known.n else "")),
        ("uniform utility", known.uniform_utility, "utility", "of the uniform policy"),
        ("lowest utility", known.lowest_utility, "utility", "least attainable"),
        ("highest utility", known.highest_utility, "utility", "greatest attainable"),
    ]


def _untold(known: KnownMEG) -> str:
    return chance_note(known.signed_low, known.signed_high) if known.n else ""


def _how(other: UnknownMEG) -> str:
    return "" if other.attained else ", a limit of ever larger utilities"


def _process(given: MEGFile) -> dict[str, int]:
    return {"states": given.mdp.states, "actions": given.mdp.actions, "horizon": given.mdp.horizon}


_FIELDS = (
    "value",
    "low",
    "high",
    "signed",
    "signed_low",
    "signed_high",
    "bias",
    "share",
    "beta",
    "bound",
    "bound_lowest",
    "reachable_bound",
    "naive_bound",
    "utility",
    "uniform_utility",
    "lowest_utility",
    "highest_utility",
    "n",
    "confidence",
    "method",
    "note",
)


def _known(known: KnownMEG) -> dict[str, Any]:
    found = {name: _plain(getattr(known, name)) for name in _FIELDS}
    if untold := _untold(known):
        found |= {"share": None, "beta": None, "note": "; ".join(filter(None, (known.note, untold)))}
    return found


def _unknown(other: UnknownMEG) -> dict[str, Any]:
    found = {name: _plain(getattr(other, name)) for name in ("value", "upper", "gap", "attained", "residual", "bound")}
    return found | {"utility": other.utility.tolist()}


def _plain(value: Any) -> Any:
    """Return a value that JSON has: infinities as text, NaN (undefined) as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}" if math.isfinite(value) else f"{value}"
