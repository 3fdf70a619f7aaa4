"""The sentences and labels of reports, from the catalogue `texts.yaml` beside this file."""

from typing import Final

from goalscope._ground.words import Catalogue

TEXTS: Final = Catalogue.of_package("goalscope.report")
"""The explanations, rules, legends and notices of the sections of a report."""


def labels(branch: str) -> dict[str, str]:
    """Return the texts of one branch of the report's text catalogue by name, e.g. the labels of all axes for
    "labels/axes".
    """
    return {key.removeprefix(f"{branch}/"): TEXTS(key) for key in TEXTS.keys(branch)}
