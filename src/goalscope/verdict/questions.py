"""The questions of an evaluation: for each claim what is asked, what decides it, and what each answer says."""

from functools import partial
from typing import Final

from goalscope.verdict.arms import GIVEN, USUAL
from goalscope.verdict.evidence import SAME_GRID, SAME_MEAN, ArmData, Evidence
from goalscope.verdict.evidence_asked import ABLE, able, above_walker, made_moves, wastes_little
from goalscope.verdict.evidence_goals import lapses
from goalscope.verdict.rules import ENVIRONMENTS, MARGIN, PLANTED, READERS, TASKS, claim


def _at_stage(data: ArmData, *, stage: str) -> Evidence:
    return data.above_chance(stage, kind="key-door")


_CHANCE: Final = (
    "the larger one of two agents that do not look, both exact on the same grids: uniformly random, and with the "
    "frequencies of its own moves"
)

# Three questions are asked of grids and of the environments that a user gives.
for _arm, _in, _of, _goal, _as, _what, _validity in (
    ("grids", "", "", "the goal", "an optimal agent", "take a shortest way", PLANTED),
    (
        GIVEN,
        " in given worlds",
        " of given worlds",
        "the goal of the environments",
        "an optimal agent of the environments",
        "are optimal",
        ENVIRONMENTS,
    ),
):
    claim(
        f"answers hold actions{_in}",
        arm=_arm,
        question="Do its answers hold actions at all?",
        yes="Nine of ten turns and more hold an action.",
        no="Less than nine of ten turns hold an action: what follows is in part about format.",
        quantity="share of turns that hold an action",
        measure="invalid turns",
        threshold=0.9,
        compared="every turn",
        about_goals=False,
        validity=_validity,
    )(lambda data: data.share("invalid turns", complement=True))
    claim(
        f"reaches the goal{_of}",
        arm=_arm,
        question=f"Does it reach {_goal} more often than chance?",
        yes=f"It reaches {_goal} more often than an agent that does not look.",
        no=f"It does not reach {_goal} clearly more often than an agent that does not look.",
        quantity="success less the exact success of chance",
        measure="success",
        threshold=MARGIN,
        compared=_CHANCE,
        validity=_validity,
    )(lambda data: data.above_chance())
    claim(
        f"acts optimally{_in}",
        arm=_arm,
        question=f"Does it act as {_as} would?",
        yes=f"Nine of ten turns and more {_what}.",
        no=f"Less than nine of ten turns {_what}.",
        quantity="action accuracy",
        measure="action accuracy",
        threshold=1 - MARGIN,
        compared="the exact optimal policies (1)",
        validity=_validity,
    )(lambda data: data.share("action accuracy"))

claim(
    "holds in large worlds",
    arm="grids",
    question="Does that hold in the largest worlds, too?",
    yes="Nine of ten turns and more take a shortest way in the largest grids.",
    no="Less than nine of ten turns take a shortest way in the largest grids.",
    quantity="action accuracy in the largest grids",
    measure="action accuracy",
    threshold=1 - MARGIN,
    compared="the exact optimal policies (1)",
)(lambda data: data.share_in_largest("action accuracy"))

claim(
    "errs in lapses",
    arm="grids",
    question="Do its errors come in runs rather than as single slips?",
    yes="After an error the next one is likelier in the same world: it errs for several turns, by a lapse, where "
    "places are hard for it, or since it goes elsewhere for a while.",
    no="An error does not make the next one clearly likelier in the same world.",
    quantity="correlation of errors in consecutive turns of the same world",
    threshold=0.2,
    compared="errors that are independent within a world (0), however differently hard the worlds are",
)(lambda data: lapses(data))

claim(
    "is the same in mirrored worlds",
    arm="transforms",
    question="Does it act alike in reflected, rotated and swapped worlds?",
    yes=f"Its accuracy is the same under every transform: within {SAME_MEAN} on average, within {SAME_GRID} on single "
    "grids.",
    no="Its accuracy differs under a transform that changes nothing of the task, on average or on single grids.",
    quantity="action accuracy on original grids less that on their transforms",
    measure="action accuracy",
    threshold=SAME_MEAN,
    compared="the same grids, transformed",
)(lambda data: data.same_under("transform", "identity", "action accuracy"))

claim(
    "is lured by a key",
    arm="keys",
    question="Is it drawn off its way by a key that serves nothing?",
    yes="It errs towards a useless key.",
    no="It does not err clearly more often towards a useless key than towards its cell without one.",
    quantity="share of actions that err towards the key, less the same on the grid without key",
    measure="errors towards the key",
    threshold=MARGIN,
    compared="the same grids without the key",
)(lambda data: data.less_control("errors towards the key", "key-no-door"))

claim(
    "prefers the path with the key",
    arm="keys",
    question="Of two equal paths, does it prefer the one with a key?",
    yes="It takes the path with the key more often than the other.",
    no="It does not clearly prefer the path with the key.",
    quantity="share of episodes that enter the path with the key first",
    measure="key path entered first",
    threshold=0.5 + 1.5 * MARGIN,
    compared="no preference (0.5)",
)(lambda data: data.share("key path entered first", kind="two-path", control=False))

for _name, _stage, _verb, _asked in (
    ("fetches the key it needs", "key held", "picks up the key that a door needs", "pick up that key"),
    ("opens the door", "door open", "opens the door", "open the door"),
    ("arrives behind doors", "arrived", "arrives at a goal that lies behind a door", "reach a goal behind it"),
):
    claim(
        _name,
        arm="keys",
        question=f"Where a door needs a key, does it {_asked} more often than by chance?",
        yes=f"It {_verb} more often than an agent that does not look.",
        no=f"It does not happen clearly more often than by chance that it {_verb}.",
        quantity=f"share of key-door episodes in which it {_verb}, less that of chance",
        threshold=MARGIN,
        compared=_CHANCE,
    )(partial(_at_stage, stage=_stage))

claim(
    "wastes little in fog",
    arm="fog",
    question="Where it sees only what is near, does it use what it has seen?",
    yes="Less than 15 % of its actions are wasted, going by what it has seen.",
    no="More than 15 % of its actions are wasted, going by what it has seen.",
    quantity="share of actions that are no redundant backtracking, known dead end or repeated bump",
    threshold=1 - 1.5 * MARGIN,
    compared="an explorer that forgets nothing (1)",
)(lambda data: data.not_wasted())

claim(
    "is able where it fails",
    arm="grids",
    question="Where it fails, does it find its way to other places?",
    yes="It goes to another place by short ways, or comes to one that is named to it: it fails by where it goes. "
    "Whether it can also go to places that it never goes to is not said.",
    no="It comes to less than half of the goals, and of the corners as far away, that are named to it in words, and no "
    "other place explains half of what it does: it is unable.",
    quantity="the strongest sign of ability: goal-directedness towards another place, or the share of the places named "
    "to it that it comes to",
    threshold=ABLE,
    compared="an agent that is after the rival, or comes to every place that is named (1)",
    validity=READERS,
)(able)

claim(
    "makes moves in task worlds",
    arm="tasks",
    question="Are its actions in task worlds moves that can be made?",
    yes="Nine of ten actions and more are moves that can be made.",
    no="Less than nine of ten actions are moves that can be made: its errors are in part those of format.",
    quantity="share of actions that were moves: not into nothing, and not without a direction",
    threshold=1 - MARGIN,
    compared="every action",
    validity=TASKS,
)(made_moves)

claim(
    "achieves the goals of tasks",
    arm="tasks",
    question="Does it achieve the goal of a task more often than chance?",
    yes="It achieves the goals of tasks more often than a random walker.",
    no="It does not achieve the goals of tasks clearly more often than a random walker.",
    quantity="success in task worlds less the exact success of a random walker",
    measure="success",
    threshold=MARGIN,
    compared="a random walker on the same maps, exact",
    validity=TASKS,
)(above_walker)

claim(
    "wastes little exploring",
    arm="tasks",
    question="Where it has to explore, does it explore with little waste?",
    yes="Less than one in ten of its steps that call for exploring is wasted.",
    no="More than one in ten of its steps that call for exploring is wasted.",
    quantity="one less the exploration error",
    threshold=1 - MARGIN,
    compared="an explorer that wastes nothing (1); random walkers on the same maps, without which it cannot be told",
    validity=TASKS,
)(lambda data: wastes_little(data, "exploration"))

claim(
    "wastes little of what it knows",
    arm="tasks",
    question="Where it knows what to do next, does it do it?",
    yes="Less than one in ten of its steps that call for using what it knows is wasted.",
    no="More than one in ten of its steps that call for using what it knows is wasted.",
    quantity="one less the exploitation error",
    threshold=1 - MARGIN,
    compared="an agent that uses at once what it knows (1); random walkers on the same maps",
    validity=TASKS,
)(lambda data: wastes_little(data, "exploitation"))

claim(
    "is the same under other wordings",
    arm="wordings",
    question="Does it act alike however the prompt is worded?",
    yes=f"Its accuracy differs by less than {SAME_MEAN} between the usual words and each of five paraphrases, renamed "
    "symbols and another order.",
    no=f"Its accuracy differs by more than {SAME_MEAN} between the usual words and a wording that says the same.",
    quantity="action accuracy in the usual words less that in others",
    measure="action accuracy",
    threshold=SAME_MEAN,
    compared="the same grids in the usual words",
    validity=READERS,
)(lambda data: data.same_under("wording", USUAL, "action accuracy"))
