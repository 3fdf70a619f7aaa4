"""What is asked about a model's inside: the arms that look there, and the rules that decide what follows."""

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
from goalscope.verdict.rules import MARGIN, claim

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
    """Return the edits of the reasoning: the counterfactual's moves, and two after which the action must stay."""
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
            why=_WEIGHTS if needs == "weights" else _REASONING,
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
"""Share of pairs beyond every control above which an action is said to follow a change."""

_PLANTED: Final = "200 nulls and planted codes (docs/statistics.md)"
_HANDMADE: Final = "hand-made models whose code is known, by layer, and 200 null models (docs/interventions.md)"
_RANDOM: Final = "the same architecture with permuted weights, its own initialisation, the library's"
_SO_MANY: Final = "Fitted on so many grids of these sizes"
_PATCHED_BESIDE: Final = "noise of the same norm, isotropic and with the activations' covariance; another pair's source"


def _map(name: str, what: str, thing: str) -> None:
    claim(
        name,
        arm="inside",
        question=f"Is {thing} more readable inside it, before it reasons, than in random networks of its architecture?",
        yes=f"{_SO_MANY}, a linear probe reads {thing} better than in every kind of random network. From more grids of "
        "one size the two can be equal (docs/inside.md). That it is used, a probe never shows.",
        no=f"{_SO_MANY}, a linear probe reads {thing} worse than in every kind of random network.",
        quantity="area under the curve on undetermined cells less that of the strictest random network",
        threshold=0.0,
        compared=_RANDOM,
        section="cognitive-map",
        validity=_PLANTED,
    )(lambda data: beyond_networks(map_read(data, what), data))


_map("holds a map of the walls", "wall", "a map of the walls")
_map("holds the goal's place", "goal", "the goal's place")

claim(
    "uses what the cells hold",
    arm="patching",
    question="Are its actions made from what its activations hold at the grid's cells?",
    yes="With another grid's activations at the cells after a third of the layers, its action is one that is optimal "
    "there, in more than a fifth of the pairs beyond every control, with the agent moved and with the goal moved.",
    no="With another grid's activations at the cells after a third of the layers, its action becomes one that is "
    "optimal there in less than a fifth of the pairs beyond the strictest control, with the agent moved and with the "
    "goal moved.",
    quantity="share of runs whose action follows the source, less that of the strictest control patch",
    threshold=FIFTH,
    compared=_PATCHED_BESIDE,
    section="patching",
    validity=_HANDMADE,
)(lambda data: patch_beyond(data, "grid", FIFTH))

claim(
    "uses what it holds before it reasons",
    arm="patching",
    question="Are its actions made from what the tokens before the reasoning hold, which the probes read?",
    yes="With another grid's activations at these tokens, in all layers, its action is one that is optimal in that "
    "grid, in more than a fifth of the pairs beyond every control, with the agent moved and with the goal moved.",
    no="With another grid's activations at these tokens, in all layers, its action becomes one that is optimal in "
    "that grid in less than a fifth of the pairs beyond the strictest control, with the agent moved and with the goal "
    "moved; those of all cells do move it. That what is read there is used nowhere is not said.",
    quantity="share of runs whose action follows the source, less that of the strictest control patch",
    threshold=FIFTH,
    compared=_PATCHED_BESIDE,
    section="patching",
    validity=_HANDMADE,
)(lambda data: patch_beyond(data, "pre", FIFTH))

claim(
    "follows its written plan",
    arm="reasoning",
    question="Does its action follow the moves that stand in its reasoning, when they are exchanged?",
    yes="With another grid's moves in its reasoning it takes an action that is optimal there, in more than a fifth of "
    "the pairs beyond edits that say the same, with the agent moved and with the goal moved.",
    no="With another grid's moves in its reasoning it takes an action that is optimal there in less than a fifth of "
    "the pairs beyond edits that say the same, with the agent moved and with the goal moved.",
    quantity="share of pairs whose action follows the edited moves, less that under the strictest control edit",
    threshold=FIFTH,
    compared="the own reasoning given back, and a paraphrase of it: actions that are optimal in the other grid then",
    section="reasoning-edits",
    validity="a model that reads its answer off the text, and pairs whose text is unchanged (docs/interventions.md)",
)(lambda data: plan_followed(data, FIFTH))

claim(
    "holds a plan",
    arm="plans",
    question="Is a plan of several actions readable inside, before it reasons?",
    yes=f"A decoder reads its next {FIRST} actions in a tenth of the steps more than in every random network, than "
    "the plans of other grids and the commonest plan, and than what its first action alone gives. That a map and a "
    "planner do not give as much is not said.",
    no=f"A decoder reads its next {FIRST} actions in less than a tenth of the steps more than its strictest baseline.",
    quantity=f"share of plans whose first {FIRST} actions are decoded, less that of the strictest baseline",
    threshold=MARGIN,
    compared="random networks of three kinds; plans of other grids; the commonest plan; the first action continued",
    section="plans",
    validity="planted plans and nulls (docs/beliefs-and-plans.md)",
)(lambda data: plan_beyond(data, FIRST, MARGIN))

claim(
    "holds what it has seen in fog",
    arm="beliefs",
    question="Where it sees only what is near, are the walls it has seen more readable inside than in random networks?",
    yes=f"{_SO_MANY}, a linear probe reads the walls that it has seen better than in every kind of random network.",
    no=f"{_SO_MANY}, a linear probe reads the walls that it has seen worse than in every kind of random network.",
    quantity="area under the curve on undetermined cells that were seen, less that of the strictest random network",
    threshold=0.0,
    compared=_RANDOM,
    section="cognitive-map",
    validity=_PLANTED,
)(lambda data: beyond_networks(map_read(data, "wall", seen=True), data))

claim(
    "acts on what it believes in fog",
    arm="beliefs",
    question="Do its actions under fog fit the map that is decoded at their step?",
    yes="They fit it better than maps decoded elsewhere, and by more than in every kind of random network.",
    no="They fit it better than maps decoded elsewhere by less than in every kind of random network.",
    quantity="share of actions optimal on the decoded map less that on maps of other states, less the same of the "
    "strictest random network",
    threshold=0.0,
    compared=_RANDOM,
    section="beliefs",
    validity=_PLANTED,
)(lambda data: beyond_networks(beliefs_read(data), data))
