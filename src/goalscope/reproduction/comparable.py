"""When a printed number may be compared with ours, and what stands in the way: model, prompt, sampling, worlds, sites.

A printed number lies in our interval or not only where both are of one quantity. Each difference that is known is named
beside the number, and then nothing is said about "within".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.printed_prompts import PrintedPrompt, recognised, with_our_slots
from goalscope.agents.prompts import read_text
from goalscope.reproduction.items import Item, Reading
from goalscope.stats import Estimate

LEAST_GRIDS: Final = 10
"""Minimum number of grids or maps behind an estimate that a printed number is compared with."""

SAMPLING: Final[Mapping[str, Mapping[str, float]]] = {
    "telos": {"temperature": 0.7, "top_p": 0.95},
    "exploration": {"temperature": 0.0, "top_p": 1.0},
}
"""Paper -> its sampling; that of exploration cuts no tail off (its section 5.1 names the temperature alone)."""

_KINDS: Final = (CHAT, TASK_CHAT)


def as_printed(item: Item, plain: dict[str, Any], templates: Sequence[Path]) -> None:
    """Give the chat agents of a study the sampling of an item's paper, and copies of its prompts, in plain values.

    Args:
        item: the item.
        plain: the study; its entries of language models change.
        templates: the reader's copies, each for the agents of the arm that it is printed for.

    Raises:
        FileNotFoundError, ValueError: a file that is no copy of a prompt of the item, or fits none of its agents.
    """
    copies = {path: _copy(item, path) for path in templates}
    used = set()
    for entry in plain["agents"]:
        if entry["kind"] not in _KINDS:
            continue
        entry |= SAMPLING[item.name.split()[0]]
        for path, printed in copies.items():
            if entry["kind"] == TASK_CHAT and _arm(entry) == (printed.strategy, printed.memory, False):
                entry["template"] = str(path.resolve())
                used.add(path)
            elif entry["kind"] == CHAT and not printed.strategy:
                entry |= {"task": str(path.resolve())}
                entry.pop("template", None)
                used.add(path)
    for path, printed in copies.items():
        if path not in used:
            raise ValueError(
                f"a template must be the prompt of an agent that is run, got {path} ({printed.name}, {printed.title}) "
                f"and no such agent in {item.name}: leave it out"
            )


def _copy(item: Item, path: Path) -> PrintedPrompt:
    text = with_our_slots(read_text(path, "--template must be"))
    printed = recognised(text)
    if printed is None or printed.name not in item.prompts:
        what = "another text" if printed is None else f"{printed.name}, {printed.title}"
        wanted = " or ".join(item.prompts) or "no prompt"
        raise ValueError(
            f"--template must be a copy of the prompt that the paper prints for {item.name} ({wanted}), got {what} in "
            f"{path}: words, symbols and their order are compared, line breaks, quotation marks and names of slots are "
            "not; for a prompt of your own use --set agents.0.task=FILE"
        )
    return printed


def _arm(entry: Mapping[str, Any]) -> tuple[str, bool, bool]:
    return entry.get("strategy", "base"), entry.get("memory", False), entry.get("reasoned", False)


def differences(
    item: Item,
    reading: Reading,
    descriptions: Mapping[str, Mapping[str, Any]],
    published: Mapping[str, Any],
    model: str,
) -> Iterator[str]:
    """Yield what differs between a printed number and ours, apart from the number of grids.

    Args:
        item, reading: where the number is printed.
        descriptions: agent -> its description as the run stores it.
        published: model -> printed value.
        model: the papers' name of the model that was run, "" for none of theirs.
    """
    if model not in published:
        yield f"printed of {', '.join(published)}, ours of {model or ', '.join(descriptions)}"
    wanted, sampling = item.prompts, SAMPLING.get(item.name.split()[0], {})
    for description in descriptions.values():
        if description.get("kind") not in _KINDS:
            if wanted and model in published:
                yield "prompt and sampling of these logs are not recorded"
            continue
        if wanted and description.get("printed") not in wanted:
            yield f"own wording; the paper's is {' or '.join(wanted)} (--template)"
        if wanted and description["kind"] == TASK_CHAT:
            yield "observations in our words; the paper prints two forms of them, neither whole"
        drawn = description.get("sampling", {})
        for name, value in sampling.items():
            if drawn.get(name) != value and (name != "top_p" or sampling["temperature"]):
                yield f"{name} {drawn.get(name, 'unknown')}, the paper's is {value:g}"
    yield from (*item.differs, *reading.differs)


def too_few(ours: Estimate | None) -> Iterator[str]:
    """Yield the reason of an estimate over too few grids."""
    if ours is not None and ours.method != "exact" and ours.clusters < LEAST_GRIDS:
        yield f"{ours.clusters} grids, fewer than {LEAST_GRIDS}"
