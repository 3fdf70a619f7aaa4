"""Studies as a paper has them: its sampling, and copies of its prompts or the prompts of ours that are closest."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.prompts import PAPER, TASKS, PrintedPrompt, read_text, recognised, with_our_slots
from goalscope.papers.contract import blocks
from goalscope.papers.item import Item
from goalscope.runs import Study

_KINDS: Final = (CHAT, TASK_CHAT)
_BROKEN: Final = re.compile(r"([^\W\d_]+)[-\u2010\u2011\u00ad]\n\s*([^\W\d_]+)")  # a word over the end of a line
_SCHEMA: Final = "schema"  # variant of the bundled prompts that describes the answer without an example


def as_printed(item: Item, study: Study, templates: Sequence[Path]) -> Study:
    """Give a study's chat agents the sampling settings of an item's paper and copies of its prompts.

    Args:
        item: the item.
        study: its study.
        templates: the user's copies of prompts. Each is used for the agents for which the paper prints it.

    Raises:
        FileNotFoundError, ValueError: a file that is not a copy of one of the item's prompts, or fits none of its
            agents.
    """
    plain = study.dump()
    copies = {path: _copy(item, path) for path in templates}
    declared = blocks().get(item.basis, {})
    sampling = {name: float(declared[name][0]) for name in ("temperature", "top_p") if name in declared}
    used_copies = set()
    for entry in plain["agents"]:
        if entry["kind"] not in _KINDS:
            continue
        entry |= sampling
        for path, printed in copies.items():
            if entry["kind"] == TASK_CHAT and _arm(entry) == (printed.strategy, printed.memory, False):
                entry["template"] = str(path.resolve())
                used_copies.add(path)
            elif entry["kind"] == CHAT and not printed.strategy:
                entry |= {"task": str(path.resolve())}
                entry.pop("template", None)
                used_copies.add(path)
    for path, printed in copies.items():
        if path not in used_copies:
            raise ValueError(
                f"{path} is a copy of {printed.name} ({printed.title}), but {item.name} runs no agent with "
                "that prompt: leave this --template out"
            )
    return Study.assemble(plain)


def with_nearest_prompts(study: Study) -> Study:
    """Give chat agents without a prompt the bundled prompts that are closest to the printed prompts.

    These prompts show no example move and, in task worlds, only the facts in the paper. A model whose card names a
    prompt variant keeps it, because it was trained only on that variant.
    """
    plain = study.dump()
    for entry, agent in zip(plain["agents"], study.agents(), strict=True):
        if not isinstance(agent, ChatAgent) or agent.template or agent.card_form is not None:
            continue
        if isinstance(agent, TaskChatAgent):
            entry["template"] = PAPER
        elif agent.task in TASKS:
            entry["template"] = _SCHEMA
    return Study.assemble(plain)


def _copy(item: Item, path: Path) -> PrintedPrompt:
    text = with_our_slots(read_text(path, "--template must be"))
    broken = _BROKEN.search(text)
    if broken is not None:
        line = text.count("\n", 0, broken.start()) + 1
        raise ValueError(
            f"{path}, line {line}, breaks the word {broken[1]}-{broken[2]}, as a PDF does, and would be sent so: "
            "join the two lines, and also those that the PDF breaks inside a paragraph"
        )
    printed = recognised(text)
    if printed is None or printed.name not in item.prompts:
        template = "another text" if printed is None else f"{printed.name}, {printed.title}"
        prompts = " or ".join(item.prompts) or "no prompt"
        raise ValueError(
            f"{path} is not a copy of a prompt that the paper prints for {item.name} ({prompts}), got "
            f"{template}: words, symbols and their order must agree; line breaks, quotation marks and "
            "names of slots may differ. For a prompt of your own use --set agents.0.task=FILE"
        )
    return printed


def _arm(entry: Mapping[str, Any]) -> tuple[str, bool, bool]:
    return entry.get("strategy", "base"), entry.get("memory", False), entry.get("reasoned", False)
