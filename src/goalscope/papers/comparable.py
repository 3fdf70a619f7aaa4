"""When a printed number may be compared with ours, and what stands in the way: model, prompt, sampling, worlds, sites.

A printed number lies in our interval or not only where both are of one quantity. Each difference that is known is named
beside the number, and then nothing is said about "within".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent
from goalscope.agents.printed_prompts import PrintedPrompt, recognised, with_our_slots
from goalscope.agents.prompts import PAPER, TASKS, read_text
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.papers.items import Item, ItemReading
from goalscope.runs import Study
from goalscope.stats import Estimate

LEAST_GRIDS: Final = 10
"""Minimum number of grids or maps behind an estimate that a printed number is compared with."""

SAMPLING: Final[Mapping[str, Mapping[str, float]]] = {
    "telos": {"temperature": 0.7, "top_p": 0.95},
    "exploration": {"temperature": 0.0, "top_p": 1.0},
}
"""Paper -> its sampling; that of exploration cuts no tail off (its section 5.1 names the temperature alone)."""

LIMITS: Final[Mapping[str, Mapping[str, Any]]] = {"telos": {"max_tokens": 10_000, "reasoning_effort": "low"}}
"""Paper -> further settings that it prints of its model (Table 6); they are compared where that very model was run."""

_KINDS: Final = (CHAT, TASK_CHAT)
_SCHEMA: Final = "schema"  # form of the bundled prompts that describes the answer and shows no example of one


def as_printed(item: Item, study: Study, templates: Sequence[Path]) -> Study:
    """Return a study whose chat agents have the sampling of an item's paper, and copies of its prompts.

    Args:
        item: the item.
        study: its study.
        templates: the reader's copies, each for the agents of the arm that it is printed for.

    Raises:
        FileNotFoundError, ValueError: a file that is no copy of a prompt of the item, or fits none of its agents.
    """
    plain = study.dump()
    copies = {path: _copy(item, path) for path in templates}
    used_reasons = set()
    for entry in plain["agents"]:
        if entry["kind"] not in _KINDS:
            continue
        entry |= SAMPLING[item.name.split()[0]]
        for path, printed in copies.items():
            if entry["kind"] == TASK_CHAT and _arm(entry) == (printed.strategy, printed.memory, False):
                entry["template"] = str(path.resolve())
                used_reasons.add(path)
            elif entry["kind"] == CHAT and not printed.strategy:
                entry |= {"task": str(path.resolve())}
                entry.pop("template", None)
                used_reasons.add(path)
    for path, printed in copies.items():
        if path not in used_reasons:
            raise ValueError(
                f"a template must be the prompt of an agent that is run, got {path} ({printed.name}, {printed.title}) "
                f"and no such agent in {item.name}: leave it out"
            )
    return Study.assemble(plain)


def with_nearest_prompts(study: Study) -> Study:
    """Return a study whose chat agents without a prompt of their own have those of ours nearest to the printed ones.

    They show no example move, and in task worlds the paper's facts alone. A model whose card names a form keeps it: it
    was trained on no other.
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
    printed = recognised(text)
    if printed is None or printed.name not in item.prompts:
        template = "another text" if printed is None else f"{printed.name}, {printed.title}"
        prompts = " or ".join(item.prompts) or "no prompt"
        raise ValueError(
            f"--template must be a copy of the prompt that the paper prints for {item.name} ({prompts}), "
            f"got {template} in "
            f"{path}: words, symbols and their order are compared, line breaks, quotation marks and names of slots are "
            "not; for a prompt of your own use --set agents.0.task=FILE"
        )
    return printed


def _arm(entry: Mapping[str, Any]) -> tuple[str, bool, bool]:
    return entry.get("strategy", "base"), entry.get("memory", False), entry.get("reasoned", False)


def differences(
    item: Item,
    reading: ItemReading,
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
    paper = item.name.split()[0]
    prompts, sampling = item.prompts, SAMPLING.get(paper, {})
    expected: dict[str, Any] = {**sampling, **(LIMITS.get(paper, {}) if model in published else {})}
    for description in descriptions.values():
        if description.get("kind") not in _KINDS:
            if prompts and model in published:
                yield "prompt and sampling of these logs are not recorded"
            continue
        if prompts and description.get("printed") not in prompts:
            yield f"own wording, the paper's is {' or '.join(prompts)} (--template)"
        if prompts and description["kind"] == TASK_CHAT:
            yield "observations in our words, the paper prints two forms of them, neither whole"
        drawn = description.get("sampling", {})
        for name, value in expected.items():
            if drawn.get(name) != value and (name != "top_p" or sampling["temperature"]):
                yield f"{name} {drawn.get(name, 'unknown')}, the paper's is {value}"
    yield from (*item.differs, *reading.differs)


def other_worlds(expected: Study, ran: Study | None, *, probed: bool) -> Iterator[str]:
    """Yield what of a run's worlds differs from those of an item's study; how many there are of each is no difference.

    Args:
        expected: the study at the published size.
        ran: that of the run, None where it has none (imported logs).
        probed: whether probes are fitted on the run: then the number of worlds and of steps counts, too.
    """
    if ran is None:
        yield f"other worlds: recorded ones, not those of the study {expected.name}"
        return
    for name, of_run, of_item in (
        ("worlds", _uncounted(ran), _uncounted(expected)),
        ("horizon", ran.dump().get("horizon"), expected.dump().get("horizon")),
    ):
        if of_run != of_item:
            yield f"other {name} than the study {expected.name} of the item has"
    if probed and (_fitted_on(ran) != _fitted_on(expected)):
        yield "probes of fewer or other grids, steps or settings than the item's"


def _uncounted(study: Study) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if name != "count"} for entry in study.dump()["worlds"]]


def _fitted_on(study: Study) -> tuple[Any, ...]:
    plain = study.dump()
    inside = dict((plain.get("analysis") or {}).get("inside") or {})
    inside.pop("agent", None)
    return [entry.get("count") for entry in plain["worlds"]], plain["trajectories"], inside


def too_few(ours: Estimate | None) -> Iterator[str]:
    """Yield the reason of an estimate over too few grids."""
    if ours is not None and ours.method != "exact" and ours.clusters < LEAST_GRIDS:
        yield f"fewer than {LEAST_GRIDS} grids"
