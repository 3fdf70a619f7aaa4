"""The arm *depends*: one thing in a state is changed, everything else stays, and one move is requested.

The states lie in the first turns of an episode (`TURNS`), after walks of earlier moves.
"""

from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from goalscope.goals.counterfactual.dependence import ENOUGH, LEAST, NOISE, Dependence, asked_of, dependences
from goalscope.goals.counterfactual.worlds import TURNS
from goalscope.verdict.arms import CHANGED, NO_GRIDS, Arm, arm
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence
from goalscope.verdict.rules import question
from goalscope.verdict.sentences import OWN_THINGS, THINGS
from goalscope.verdict.texts import TEXTS

ARM: Final = "depends"

arm(
    Arm(
        name=ARM,
        title="One thing changed",
        needs=frozenset({"grids"}),
        why=NO_GRIDS,
        worlds=lambda count: [
            {
                "kind": "changed",
                "of": [
                    {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.6], "count": count, "minimum_distance": 3}
                ],
                "turns": list(TURNS),
            }
        ],
        recorded=lambda tags: tags.get("kind") == "changed",
        agent={"task": "grid"},
        study={"trajectories": 2, "horizon": {"steps": 1}},
        quick=4,
        full=40,
        sections=("dependence",),
        core=True,
    )
)


@lru_cache(maxsize=4)
def found_in(run: ArmRun) -> tuple[Dependence, ...]:
    """Return what the moves of a run's agents depend on, at the error level of the look."""
    turns = asked_of(run.store.episodes())
    return tuple(dependences(turns, level=1 - run.confidence, confidence=run.confidence))


def depends_on(data: ArmData, thing: str) -> Evidence:
    """Return the evidence on whether an agent's moves depend on a thing."""
    dependence = next(
        (candidate for candidate in found_in(data.run) if (candidate.agent, candidate.moved) == (data.agent, thing)),
        None,
    )
    if dependence is None:
        return Evidence(why="it could not be changed in any of the worlds")
    part = dependence.change.value / dependence.share.value if dependence.share.value else float("nan")
    detail = f"change {dependence.change.value:.2f}, predictable part {part:.2f}, {dependence.versions} changed worlds"
    if dependence.answer == "untestable" and not dependence.predictable.has_interval:
        return Evidence(why=f"too few worlds allow this change ({detail})", detail=detail)
    if dependence.answer == "untestable":
        return Evidence(why=f"its two answers in the same state may be unrelated ({detail})", detail=detail)
    evidence = Evidence.of(dependence.share, side=dependence.answer, detail=detail)
    if evidence.why:
        return evidence
    rule = ""
    if dependence.answer == "undecided" and dependence.share.low > LEAST:
        level = f"{1 - data.run.confidence:.3g}"
        rule = TEXTS("page/dependence not shown", enough=f"{ENOUGH:g}", level=level, p=f"{dependence.adjusted:.3g}")
    return replace(evidence, p=dependence.adjusted, threshold_rule=rule)


for _thing, _name in THINGS.items():
    question(
        f"depends on {_name}",
        arm=ARM,
        threshold=LEAST,
        fields={"thing": _name, "enough": f"{ENOUGH:g}", "noise": f"{NOISE:g}"},
        section="dependence",
        checked="dependence",
    )(partial(depends_on, thing=_thing))


@question(
    OWN_THINGS,
    arm=CHANGED,
    threshold=LEAST,
    fields={"thing": "{names}", "enough": f"{ENOUGH:g}", "noise": f"{NOISE:g}"},
    section="dependence",
    checked="environments",
)
def depends_on_own(data: ArmData) -> dict[str, Evidence]:
    """Return for each thing of the user's environments what `depends_on` returns."""
    things = dict.fromkeys(found.moved for found in found_in(data.run) if found.agent == data.agent)
    return {thing: replace(depends_on(data, thing), names=f"“{thing}”") for thing in things}
