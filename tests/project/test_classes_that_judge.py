"""Few classes judge: a new claim, answer or piece of evidence is a field of one that exists, or a method of it."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "goalscope"
JUDGING = re.compile(
    "Claim|Evidence|Verdict|Finding|Score|Judge|Difference|Dependence|Attribut|Predicted|Stratum|Tested|Answer(?!ing)|Result|(?:Frozen|Kind)Prediction|Outlook"
)
"""What the name of a class that judges contains."""
MOST = 20


def names_in(text: str) -> list[str]:
    return re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE)  # as exact here as a parser, and much faster


def test_few_classes_judge() -> None:
    found = [
        (name, str(path.relative_to(SOURCE)))
        for path in sorted(SOURCE.rglob("*.py"))
        for name in names_in(path.read_text(encoding="utf-8"))
        if JUDGING.search(name)
    ]
    assert {"Finding", "Claim", "Evidence", "Judgement"} <= {name for name, _ in found}
    assert len(found) <= MOST, f"merge before you add, of {found}"
