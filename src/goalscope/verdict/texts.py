"""The sentences of evaluations, from the catalogue `texts.yaml` beside this file."""

from typing import Final

from goalscope._ground.words import Catalogue

TEXTS: Final = Catalogue.of_package("goalscope.verdict")
"""The sentences of questions, answers, verdicts and pages of evaluations."""

WORDED: Final = ("question", "yes", "no", "quantity", "compared")
"""The fields of a claim's rule that come from the catalogue."""


def claim_texts(name: str, threshold: float, **fields: str | int) -> dict[str, str]:
    """Return the texts of a claim that comes with goalscope: its question, answers, quantity and comparison.

    Args:
        name: name of the claim.
        threshold: the applied threshold, which the sentences state.
        fields: values for further placeholders of the sentences.

    Returns:
        Field of `goalscope.verdict.rules.Rule` -> text. The placeholders {names} and {goal} remain, since each answer
        fills them in.
    """
    later = {"names": "{names}", "goal": "{goal}"}
    values = {**fields, **later, "threshold": f"{threshold:g}", "percent": percent(threshold)}
    return {part: filled(f"claims/{name}/{part}", **values) for part in WORDED}


def filled(key: str, **fields: str | int) -> str:
    """Return a sentence of the catalogue ``texts.yaml`` with its placeholders replaced.

    An entry of ``shared`` in the catalogue can be used as a placeholder.

    Args:
        key: key of the sentence in the catalogue.
        fields: placeholder -> value; values for placeholders that the sentence lacks are ignored.
    """
    needed = TEXTS.fields(key)
    shared = {name: filled(f"shared/{name}", **fields) for name in needed if TEXTS.has(f"shared/{name}")}
    return TEXTS(key, **{name: value for name, value in {**fields, **shared}.items() if name in needed})


def percent(share: float) -> str:
    """Write a share as a percentage, as "90 %" for 0.9."""
    return f"{100 * share:.3g} %"
