"""The sentences of reports, from the catalogue `texts.yaml` beside this file."""

from typing import Final

from goalscope._ground.texts import Catalogue

TEXTS: Final = Catalogue.of_package("goalscope.report")
"""The explanations, rules, legends and notices of the sections of a report."""
