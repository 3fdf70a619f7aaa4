"""The arms that look inside a model, and the rules of their claims."""

from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel

from goalscope.inside.interventions.patching import Patching
from goalscope.inside.interventions.reasoning import ReasoningEdits
from goalscope.runs.probing_config import Inside
from goalscope.verdict.arms import Arm, Look, arm
from goalscope.verdict.evidence_inside import (
    FIRST,
    MOVED,
    beliefs_read,
    beyond_networks,
    map_read,
    patch_beyond,
    plan_beyond,
    plan_followed,
)
from goalscope.verdict.rules import MARGIN, question
from goalscope.verdict.texts import TEXTS


def _probes(*reads: str, **more: Any) -> Callable[[str, int], Inside]:
    """Return a function from a number of random networks to the settings of probes before the reasoning, at the last
    layer of each third.
    """

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
    """Return the settings of the patches: at all cells and before the reasoning, in all layers and at the end of each
    third.
    """
    return Patching.model_validate(
        {
            "agent": agent,
            "pairs": {"moved": list(MOVED), "per_size": pairs, "controls": 0},
            "sites": ["grid", "pre"],
            "layers": "thirds",
            "windows": [],
            "components": ["residual"],
            "forced": False,
        }
    )


def _edits(agent: str, pairs: int) -> BaseModel:
    """Return the settings of the edits of the reasoning: the other grid's moves, and two edits that should not change
    the action.
    """
    return ReasoningEdits.model_validate(
        {
            "agent": agent,
            "pairs": {"moved": list(MOVED), "per_size": pairs, "controls": 0},
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
            why=TEXTS(f"needs/{needs}"),
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
    "Inside: activations patched between grids",
    Look(
        at="grids",
        settings=_patches,
        what="changes activations in pairs of grids with agent or goal moved",
        counts=_PAIR,
        turns=600,
    ),
    quick=0,
    full=16,
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
    full=16,
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

FIFTH: Final = 2 * MARGIN
"""Share of pairs, beyond every control, above which actions are said to follow a change."""

for _name, _content in (("holds a map of the walls", "wall"), ("holds the goal's place", "goal")):
    question(_name, arm="inside", threshold=0.0, section="cognitive-map", checked="codes")(
        lambda data, content=_content: beyond_networks(map_read(data, content), data)
    )

for _name, _site in (("uses what the cells hold", "grid"), ("uses what it holds before it reasons", "pre")):
    question(_name, arm="patching", threshold=FIFTH, section="patching", checked="patches")(
        lambda data, site=_site: patch_beyond(data, site, FIFTH)
    )

question("follows its written plan", arm="reasoning", threshold=FIFTH, section="reasoning-edits", checked="edits")(
    lambda data: plan_followed(data, FIFTH)
)

question("holds a plan", arm="plans", threshold=MARGIN, fields={"moves": FIRST}, section="plans", checked="plans")(
    lambda data: plan_beyond(data, FIRST, MARGIN)
)

question("holds what it has seen in fog", arm="beliefs", threshold=0.0, section="cognitive-map", checked="codes")(
    lambda data: beyond_networks(map_read(data, "wall", seen=True), data)
)

question("acts on what it believes in fog", arm="beliefs", threshold=0.0, section="beliefs", checked="codes")(
    lambda data: beyond_networks(beliefs_read(data), data)
)
