"""The arms that ask in words: task worlds, places that are named in the instruction, other wordings of the prompt."""

from typing import Final

from goalscope.agents.agent import TASK_CHAT
from goalscope.agents.prompts import NAMED, WORDINGS
from goalscope.evaluation.arms import Arm, arm
from goalscope.evaluation.evidence_asked import USUAL

_WORDS: Final = (
    "it does not read any text, only the prompts that it was made for: give a model that reads instructions, by its "
    "weights or a server"
)

arm(
    Arm(
        name="tasks",
        title="Task worlds",
        needs=frozenset({"tasks"}),
        why="it does not act in task worlds: give a model that reads text, ariadne, or an agent of task maps",
        worlds=lambda count: [
            {"kind": "task-map", "presets": ["low-small", "medium-medium", "high-large"], "count": count}
        ],
        recorded=lambda tags: tags.get("kind") in ("task-map", "cooking"),
        # A list of what was told and done, which is far shorter than the conversation with all answers.
        agent={"kind": TASK_CHAT, "history": "actions"},
        study={"trajectories": 1},
        quick=4,
        full=40,
    )
)
arm(
    Arm(
        name="competence",
        title="Places named in words",
        needs=frozenset({"grids", "text"}),
        why=_WORDS,
        worlds=lambda count: [{"kind": "named-place", "sizes": [7, 9], "densities": [0.2, 0.6], "count": count}],
        recorded=lambda tags: tags.get("kind") == "named-place",
        agent={"task": NAMED},
        study={"trajectories": 1, "horizon": {"factor": 1.5}},
        quick=4,
        full=12,
        varies="named",
    )
)
arm(
    Arm(
        name="wordings",
        title="Other wordings of the prompt",
        needs=frozenset({"grids", "text"}),
        why=_WORDS,
        worlds=lambda count: [{"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.6], "count": count}],
        recorded=lambda tags: tags.get("wording") is not None,
        agent={"task": "grid"},
        study={"trajectories": 1, "horizon": {"factor": 1.5}},
        quick=3,
        full=15,
        varies="wording",
        variants={USUAL: {}, **{name: {"wording": name} for name in WORDINGS}},
    )
)
