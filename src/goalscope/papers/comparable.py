"""Reasons why a printed number is not comparable with ours, such as another model, prompt, sampling, worlds or sites.

Whether a printed number lies in our interval is meaningful only if both measure the same quantity. Each known
difference is listed with the number, and then the number is not compared with the interval.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.prompts import PAPER, TASKS, PrintedPrompt, read_text, recognised, with_our_slots
from goalscope.papers.item import Item, ItemReading
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


def differences(
    item: Item,
    reading: ItemReading,
    descriptions: Mapping[str, Mapping[str, Any]],
    published: Mapping[str, Any],
    model: str,
) -> Iterator[str]:
    """Yield the known differences between a printed number and ours, apart from the number of grids.

    Args:
        item, reading: the item and reading to which the number belongs.
        descriptions: agent -> description of the agent in the run.
        published: model -> printed value.
        model: the papers' name for the model that was run, "" if the papers do not use it.
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
    """Yield differences between the worlds of a run and those of an item's study, ignoring the numbers of worlds.

    Args:
        expected: the study at the published size.
        ran: the study of the run, None if it has none (imported logs).
        probed: whether probes are fitted on the run. In that case, the numbers of worlds and steps matter too.
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
    """Yield a reason if the estimate rests on too few grids."""
    if ours is not None and ours.method != "exact" and ours.clusters < LEAST_GRIDS:
        yield f"fewer than {LEAST_GRIDS} grids"
