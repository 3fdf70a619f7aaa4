"""The decision rules about what a model holds inside, and about what its actions follow when that is changed."""

from typing import Final

from goalscope.evaluation import evidence_inside as inside
from goalscope.evaluation.arms_inside import PREFIX
from goalscope.evaluation.evidence import ArmData, Evidence
from goalscope.evaluation.rules import MARGIN, claim

FIFTH: Final = 2 * MARGIN
"""Share of pairs beyond every control above which an action is said to follow a change."""

_PROBES: Final = "200 nulls and planted codes (docs/statistics.md)"
_PATCHES: Final = "hand-made models whose code is known, by layer, and 200 null models (docs/interventions.md)"
_NETWORKS: Final = "the same architecture with permuted weights, its own initialisation, the library's"
_NOISE: Final = "noise of the same norm, isotropic and with the activations' covariance; another pair's source"


def _map(name: str, what: str, thing: str) -> None:
    @claim(
        name,
        arm="inside",
        question=f"Did training make {thing} readable inside, before it reasons?",
        yes=f"A linear probe reads {thing} better than in every kind of random network. That it is used, a probe never "
        "shows.",
        no=f"A linear probe reads {thing} worse than in every kind of random network.",
        quantity="area under the curve on undetermined cells less that of the strictest random network",
        threshold=0.0,
        compared=_NETWORKS,
        section="grids-cognitive-map",
        validity=_PROBES,
    )
    def evidence(data: ArmData) -> Evidence:
        return inside.made_readable(data, what)


_map("holds a map of the walls", "wall", "a map of the walls")
_map("holds the goal's place", "goal", "the goal's place")


@claim(
    "uses what the cells hold",
    arm="patching",
    question="Are its actions made from what its activations hold at the grid's cells?",
    yes="With another grid's activations at the cells after a third of the layers, its action is one that is optimal "
    "there, in more than a fifth of the pairs beyond every control.",
    no="With another grid's activations at the cells after a third of the layers, its action becomes one that is "
    "optimal there in less than a fifth of the pairs beyond the strictest control.",
    quantity="share of runs whose action follows the source, less that of the strictest control patch",
    threshold=FIFTH,
    compared=_NOISE,
    section="grids-patching",
    validity=_PATCHES,
)
def _cells(data: ArmData) -> Evidence:
    return inside.patch_beyond(data, "grid", FIFTH)


@claim(
    "uses what it holds before it reasons",
    arm="patching",
    question="Are its actions made from what the tokens before the reasoning hold, which the probes read?",
    yes="With another grid's activations at these tokens, in all layers, its action is one that is optimal in that "
    "grid, in more than a fifth of the pairs beyond every control.",
    no="With another grid's activations at these tokens, in all layers, its action becomes one that is optimal in "
    "that grid in less than a fifth of the pairs beyond the strictest control; those of all cells do move it. That "
    "what is read there is used nowhere is not said.",
    quantity="share of runs whose action follows the source, less that of the strictest control patch",
    threshold=FIFTH,
    compared=_NOISE,
    section="grids-patching",
    validity=_PATCHES,
)
def _before(data: ArmData) -> Evidence:
    return inside.patch_beyond(data, "pre", FIFTH)


@claim(
    "follows its written plan",
    arm="reasoning",
    question="Does its action follow the moves that stand in its reasoning, when they are exchanged?",
    yes="With another grid's moves in its reasoning it takes an action that is optimal there, in more than a fifth of "
    "the pairs beyond edits that say the same.",
    no="With another grid's moves in its reasoning it takes an action that is optimal there in less than a fifth of "
    "the pairs beyond edits that say the same.",
    quantity="share of pairs whose action follows the edited moves, less that under the strictest control edit",
    threshold=FIFTH,
    compared="the own reasoning given back, and a paraphrase of it: actions that are optimal in the other grid then",
    section="grids-reasoning-edits",
    validity="a model that reads its answer off the text, and pairs whose text is unchanged (docs/steering.md)",
)
def _plan_followed(data: ArmData) -> Evidence:
    return inside.plan_followed(data, FIFTH)


@claim(
    "holds a plan",
    arm="plans",
    question="Is a plan of several actions readable inside, before it reasons?",
    yes=f"A decoder reads its next {PREFIX} actions in a tenth of the steps more than in every random network, than "
    "the plans of other grids and the commonest plan, and than what its first action alone gives. That a map and a "
    "planner do not give as much is not said.",
    no=f"A decoder reads its next {PREFIX} actions in less than a tenth of the steps more than its strictest baseline.",
    quantity=f"share of plans whose first {PREFIX} actions are decoded, less that of the strictest baseline",
    threshold=MARGIN,
    compared="random networks of three kinds; plans of other grids; the commonest plan; the first action continued",
    section="grids-plans",
    validity="planted plans and nulls (docs/plans.md)",
)
def _plan(data: ArmData) -> Evidence:
    return inside.plan_beyond(data, PREFIX, MARGIN)


@claim(
    "holds what it has seen in fog",
    arm="beliefs",
    question="Where it sees only what is near, did training make the walls it has seen readable inside?",
    yes="A linear probe reads the walls that it has seen better than in every kind of random network.",
    no="A linear probe reads the walls that it has seen worse than in every kind of random network.",
    quantity="area under the curve on undetermined cells that were seen, less that of the strictest random network",
    threshold=0.0,
    compared=_NETWORKS,
    section="fog-cognitive-map",
    validity=_PROBES,
)
def _seen(data: ArmData) -> Evidence:
    return inside.made_readable(data, "wall", seen=True)


@claim(
    "acts on what it believes in fog",
    arm="beliefs",
    question="Do its actions under fog fit the map that is decoded at their step?",
    yes="They fit it better than maps decoded elsewhere, and by more than in every kind of random network.",
    no="They fit it better than maps decoded elsewhere by less than in every kind of random network.",
    quantity="share of actions optimal on the decoded map less that on maps of other states, less the same of the "
    "strictest random network",
    threshold=0.0,
    compared=_NETWORKS,
    section="fog-beliefs",
    validity=_PROBES,
)
def _believed(data: ArmData) -> Evidence:
    return inside.acts_on_beliefs(data)
