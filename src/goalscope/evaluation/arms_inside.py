"""The arms that look inside: what a model's activations hold, and whether its actions follow a change of them."""

from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel

from goalscope.evaluation.arms import Arm, Look, arm
from goalscope.runs.probing_config import Inside

PREFIX: Final = 3
"""First actions of a plan that must all be right."""

_WEIGHTS: Final = "its activations cannot be seen: give its weights, a folder or a name on the hub"
_REASONING: Final = (
    "it has no reasoning that can be edited: give a model that marks its reasoning, its weights or behind a server "
    "that continues a begun answer"
)


def _probes(*reads: str, **more: Any) -> Callable[[str, int], Inside]:
    """Return what is read before the reasoning at the layers that end each third, by the number of random networks."""

    def settings(agent: str, seeds: int) -> Inside:
        return Inside.parse(
            {
                "agent": agent,
                "reads": list(reads),
                "sites": ["pre"],
                "random": {"kinds": ["initial", "permuted", "default-init"], "seeds": seeds},
                "steps": 3,
                "test": 0.3,
                "by_size": False,
                **more,
            }
        )

    return settings


def _patches(agent: str, pairs: int) -> BaseModel:
    """Return the patches: at all cells of the grid and before the reasoning, all layers and the end of each third."""
    from goalscope.interventions.patching import Patching

    return Patching.model_validate(
        {
            "agent": agent,
            "pairs": {"per_size": pairs, "controls": 0},
            "sites": ["grid", "pre"],
            "layers": "thirds",
            "windows": [],
            "components": ["residual"],
            "forced": False,
        }
    )


def _edits(agent: str, pairs: int) -> BaseModel:
    """Return the edits of the reasoning: the counterfactual's moves, and two after which the action must stay."""
    from goalscope.interventions.reasoning import ReasoningEdits

    return ReasoningEdits.model_validate(
        {
            "agent": agent,
            "pairs": {"per_size": pairs, "controls": 0},
            "edits": ["own", "plan", "paraphrase"],
            "patches": False,
        }
    )


def _inside(name: str, title: str, looks: Look, *, quick: int, full: int, needs: str = "weights") -> None:
    arm(
        Arm(
            name=name,
            title=title,
            needs=frozenset({"grids", needs}),
            why=_WEIGHTS if needs == "weights" else _REASONING,
            worlds=lambda count: [],
            recorded=lambda tags: False,
            agent={},
            study={},
            quick=quick,
            full=full,
            looks=looks,
        )
    )


_NETWORK: Final = "random network of each kind"
_PAIR: Final = "pair of grids of each size"

_inside(
    "inside",
    "Inside: the map of the grid",
    Look(
        at="grids",
        settings=_probes("cognitive-map"),
        what="reads activations of the episodes in grids",
        counts=_NETWORK,
        turns=600,
    ),
    quick=1,
    full=5,
)
_inside(
    "patching",
    "Inside: activations of one grid put into another",
    Look(
        at="grids",
        settings=_patches,
        what="changes activations in pairs of grids with agent or goal moved",
        counts=_PAIR,
        turns=600,
    ),
    quick=0,
    full=8,
)
_inside(
    "reasoning",
    "Inside: edits of the written reasoning",
    Look(
        at="grids",
        settings=_edits,
        what="edits the reasoning in pairs of grids with agent or goal moved",
        counts=_PAIR,
        turns=60,
    ),
    quick=0,
    full=10,
    needs="reasoning",
)
_inside(
    "plans",
    "Inside: plans",
    Look(
        at="grids",
        settings=_probes(
            "plans",
            decoders={"layers": [2], "width": 64, "feedforward": 128, "epochs": 12, "rate": 0.003, "batch": 32},
        ),
        what="reads activations of the episodes in grids",
        counts=_NETWORK,
        turns=300,
    ),
    quick=0,
    full=5,
)
_inside(
    "beliefs",
    "Inside: beliefs under fog",
    Look(
        at="fog",
        settings=_probes("cognitive-map", "beliefs"),
        what="reads activations of the episodes under fog",
        counts=_NETWORK,
        turns=600,
    ),
    quick=0,
    full=5,
)
