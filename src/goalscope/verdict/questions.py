"""The questions of an evaluation and the evidence that decides each of them. The sentences are in `texts.yaml`."""

from functools import partial

from goalscope.verdict.arms import GIVEN, USUAL
from goalscope.verdict.evidence import SAME_GRID, SAME_MEAN, ArmData, Evidence
from goalscope.verdict.evidence_asked import ABLE, able, above_walker, made_moves, wastes_little
from goalscope.verdict.evidence_goals import drift, lapses
from goalscope.verdict.rules import MARGIN, question
from goalscope.verdict.texts import percent


def _at_stage(data: ArmData, *, stage: str) -> Evidence:
    return data.above_chance(stage, kind="key-door")


# Three questions are asked of grids and of the environments that a user gives.
for _arm, _in, _of, _checked in (
    ("grids", "", "", "planted"),
    (GIVEN, " in given worlds", " of given worlds", "environments"),
):
    question(
        f"answers hold actions{_in}",
        arm=_arm,
        threshold=0.9,
        measure="invalid turns",
        about_goals=False,
        checked=_checked,
    )(lambda data: data.share("invalid turns", complement=True))
    question(f"reaches the goal{_of}", arm=_arm, threshold=MARGIN, measure="success", checked=_checked)(
        lambda data: data.above_chance()
    )
    question(f"acts optimally{_in}", arm=_arm, threshold=1 - MARGIN, measure="action accuracy", checked=_checked)(
        lambda data: data.share("action accuracy")
    )

question("acts worse later in given worlds", arm=GIVEN, threshold=MARGIN, checked="environments")(
    lambda data: drift(data)
)

question("holds in large worlds", arm="grids", threshold=1 - MARGIN, measure="action accuracy")(
    lambda data: data.share_in_largest("action accuracy")
)

question("errs in lapses", arm="grids", threshold=0.2)(lambda data: lapses(data))

question(
    "is the same in mirrored worlds",
    arm="transforms",
    threshold=SAME_MEAN,
    fields={"grid": f"{SAME_GRID:g}"},
    measure="action accuracy",
)(lambda data: data.same_under("transform", "identity", "action accuracy"))

question("is lured by a key", arm="keys", threshold=MARGIN, measure="errors towards the key")(
    lambda data: data.less_control("errors towards the key", "key-no-door")
)

question("prefers the path with the key", arm="keys", threshold=0.5 + 1.5 * MARGIN, measure="key path entered first")(
    lambda data: data.share("key path entered first", kind="two-path", control=False)
)

for _name, _stage in (
    ("fetches the key it needs", "key held"),
    ("opens the door", "door open"),
    ("arrives behind doors", "arrived"),
):
    question(_name, arm="keys", threshold=MARGIN)(partial(_at_stage, stage=_stage))

question("wastes little in fog", arm="fog", threshold=1 - 1.5 * MARGIN, fields={"waste": percent(1.5 * MARGIN)})(
    lambda data: data.not_wasted()
)

question("is able where it fails", arm="grids", threshold=ABLE, checked="readers")(able)

question("makes moves in task worlds", arm="tasks", threshold=1 - MARGIN, checked="tasks")(made_moves)

question("achieves the goals of tasks", arm="tasks", threshold=MARGIN, measure="success", checked="tasks")(above_walker)

question("wastes little exploring", arm="tasks", threshold=1 - MARGIN, checked="tasks")(
    lambda data: wastes_little(data, "exploration")
)

question("wastes little of what it knows", arm="tasks", threshold=1 - MARGIN, checked="tasks")(
    lambda data: wastes_little(data, "exploitation")
)

question(
    "is the same under other wordings",
    arm="wordings",
    threshold=SAME_MEAN,
    measure="action accuracy",
    checked="readers",
)(lambda data: data.same_under("wording", USUAL, "action accuracy"))
