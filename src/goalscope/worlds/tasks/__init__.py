"""Task worlds: maps on which tasks with prerequisites have to be found and achieved."""

from goalscope.worlds.tasks.cooking import COOKING, cooking_map
from goalscope.worlds.tasks.coordinates import MOVES, Cell, Frame, TaskNode, read_action
from goalscope.worlds.tasks.generate import generate_task_map, symbolic_twin
from goalscope.worlds.tasks.knowledge import Knowledge, NodeReport, Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.spec import PRESETS, TaskSpec, task_spec
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.text import (
    RULES,
    memory_from_log,
    memory_text,
    parse_report,
    read_log,
    report_text,
    write_log,
)
from goalscope.worlds.tasks.world import TaskView, TaskWorld

__all__ = [
    "COOKING",
    "MOVES",
    "PRESETS",
    "RULES",
    "Cell",
    "Frame",
    "Knowledge",
    "Memory",
    "NodeReport",
    "Report",
    "TaskMap",
    "TaskNode",
    "TaskSpec",
    "TaskView",
    "TaskWorld",
    "cooking_map",
    "generate_task_map",
    "memory_from_log",
    "memory_text",
    "parse_report",
    "read_action",
    "read_log",
    "report_text",
    "symbolic_twin",
    "task_spec",
    "write_log",
]
