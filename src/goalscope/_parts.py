"""Which modules register the built-in parts, and the one place that imports them by name.

It stands above all rooms, and the registry lies below them: that is why the registry is told (`registry.install`). What
the satellites offer is registered through entry points, as for any other package.
"""

from importlib import import_module
from typing import Final

from goalscope._ground import registry

_MODULES: Final = {
    "world": "runs.builtin_worlds goals.counterfactual.worlds runs.study_parts",
    "environment": "worlds.environments.stored",
    "thing": "worlds.objects",
    "head": "inside.probing.builtin_heads",
    "intervention": ("inside.interventions.patching inside.interventions.directions inside.interventions.reasoning"),
    "agent": "agents.scripted agents.chat agents.policies goals.hypotheses.twins",
    "model": "agents.models.local agents.models.http agents.models.engine",
    "measure": (
        "measures.performance measures.uncertainty measures.visits measures.key measures.things measures.fog "
        "measures.exploration.errors"
    ),
    "hypothesis": "goals.hypotheses.rules",
    "attribution": ("goals.attribution.methods inside.attribution goals.counterfactual.dependence"),
    "analysis": "inside.probing.pipeline",
    "claim": "verdict.questions",
    "arm": "verdict.arms",
    "section": (
        "report.sections.results report.sections.probing report.sections.cognitive_map report.sections.decoded "
        "report.sections.interventions report.sections.explanations report.sections.behaviour report.sections.tasks "
        "report.sections.meg report.sections.agents report.sections.about"
    ),
}
"""Kind -> modules below `goalscope`, in the order in which their parts are listed; those of sections as on the page."""


def _load(module: str) -> None:
    import_module(module)


registry.install(
    {kind: tuple(f"goalscope.{name}" for name in names.split()) for kind, names in _MODULES.items()}, _load
)
