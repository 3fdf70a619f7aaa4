"""Findings and claims with given answers, for what is made of them."""

import re
from typing import Any

from goalscope._ground.words import Catalogue
from goalscope.goals.finding import Finding
from goalscope.stats.records import EstimateRecord
from goalscope.verdict.claims import AskedArm, Claim, ClaimLedger
from goalscope.verdict.texts import TEXTS

NOUNS = {"goal": "the goal", "corner top-right": "the top-right corner", "key held": "“key held”"}
THRESHOLDS = {"consistency": 0.5, "strength": 0.2, "share": 0.1, "predictable": 0.1, "meg": 1.0}


def estimate(value: float, low: float, high: float, unit: str = "share") -> EstimateRecord:
    return EstimateRecord(
        value=value,
        low=low,
        high=high,
        n=90,
        clusters=30,
        method="planted",
        unit=unit,
        confidence=0.96,
        note="",
        undefined=0,
        without=0,
    )


def finding(answer: str, reason: str, *names: str, ends: tuple[float, float, float], **more: Any) -> Finding:
    """Return a finding; ``ends`` are those of the number that decided, a consistency unless ``quantity`` is given."""
    quantity = more.pop("quantity", "consistency")
    subject = names[0] if names else more.pop("subject", "goal")
    about: dict[str, Any] = {"agent": "m", "arm": "grids", "worlds": 30, "covered": 1.0, "nouns": NOUNS}
    unit = "nats" if quantity == "meg" else "share"
    figures = {f"{quantity} {subject}": estimate(*ends, unit), f"meg {subject}": estimate(4.5, 3.5, 5.5, "nats")}
    decided: dict[str, Any] = {
        "estimate": estimate(*ends, unit),
        "threshold": THRESHOLDS[quantity],
        "evidence": figures,
    }
    method = {"share": "meg", "meg": "meg"}.get(quantity, "consistency")
    kind: dict[str, Any] = {"answer": answer, "reason": reason, "method": method, "quantity": quantity}
    return Finding(**{**about, **decided, **kind, "names": names, "subject": subject, **more})


def claim(name: str, answer: Any, value: float = 0.5, **more: Any) -> Claim:
    ends = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return Claim(**{"name": name, "arm": "grids", "question": "?", "answer": answer, "says": "", **ends, **more})


def ledger(
    *claims: Claim,
    findings: tuple[Finding, ...] = (),
    access: tuple[str, ...] = ("acts",),
    arms: tuple[AskedArm, ...] = (),
) -> ClaimLedger:
    return ClaimLedger(
        rules=1, model="m", access=access, look=1, level=0.04, arms=arms, findings=findings, claims=claims
    )


def stated(key: str, text: str, texts: Catalogue = TEXTS) -> bool:
    """Return whether a text contains a sentence of a catalogue (by default the verdict's), whatever its fields are."""
    pattern = "(.*?)".join(re.escape(part) for part in re.split(r"\{\w+\}", texts.text(key)))
    return re.search(pattern, text, re.DOTALL) is not None
