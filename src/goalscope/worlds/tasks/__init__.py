"""Task worlds: maps on which an agent has to find tasks and achieve them in an order that respects prerequisites."""

from goalscope.worlds.tasks.generate import (
    COOKING,
    PRESETS,
    WIDE_COOKING,
    TaskSpec,
    cooking_map,
    generate_task_map,
    preset_tags,
    symbolic_twin,
    task_spec,
)
from goalscope.worlds.tasks.knowledge import (
    RULES,
    AgentKnowledge,
    NodeReport,
    Report,
    memory_text,
    report_text,
    write_log,
)
from goalscope.worlds.tasks.taskmap import MOVES, Cell, Frame, TaskMap, TaskNode, TaskPlan, plan_task, read_action
from goalscope.worlds.tasks.world import TaskState, TaskView, TaskWorld

__all__ = [
    "COOKING",
    "MOVES",
    "PRESETS",
    "RULES",
    "WIDE_COOKING",
    "AgentKnowledge",
    "Cell",
    "Frame",
    "NodeReport",
    "Report",
    "TaskMap",
    "TaskNode",
    "TaskPlan",
    "TaskSpec",
    "TaskState",
    "TaskView",
    "TaskWorld",
    "cooking_map",
    "generate_task_map",
    "memory_text",
    "plan_task",
    "preset_tags",
    "read_action",
    "report_text",
    "symbolic_twin",
    "task_spec",
    "write_log",
]
