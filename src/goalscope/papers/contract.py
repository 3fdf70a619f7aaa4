"""What a printed number and ours were measured on, and the differences between the two declarations.

`measured_on.yaml` declares, for each item, what its printed numbers were measured on and where that is printed. Ours is
declared from the study and the agents of a run. Whether a printed number lies in our interval says something only if
both declarations agree, so every difference stands beside the number. What is unknown counts as different.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from goalscope._ground.folder import package_text
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.inside.probing.fitting import PlanSettings
from goalscope.papers.item import Item, ItemReading
from goalscope.runs import Study
from goalscope.runs.probing_config import Decoders, Inside, Probes
from goalscope.stats import Estimate
from goalscope.worlds.grid import COMPACT, MATRIX

UNKNOWN: Final = "unknown"
"""Beginning of a value that is not known. Two unknown values count as different."""

LEAST_GRIDS: Final = 10
"""Minimum number of grids or maps behind an estimate that a printed number is compared with."""

FIELDS: Final = (
    *("model", "worlds", "generator", "layout", "horizon", "training", "test", "probe", "subset", "label"),
    *("prompt", "observations", "temperature", "top_p", "max_tokens", "reasoning_effort", "n"),
)
"""What a declaration can say, in the order of the page. An item declares the fields that can change its numbers."""

SAMPLING: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
COUNTED: Final = "n"
"""The one field that changes no expectation; it decides only where a number depends on n, as a p-value does."""
_BY_N: Final = ("p-value", "effect")

_ENCODED: Final = {
    MATRIX: "matrix with labelled rows and columns, padded to the widest label",
    COMPACT: "matrix with labelled rows and columns, not padded",
}
_MAZE: Final = "mazes by depth-first search, of whose inner walls the share d is kept"
_ROOMS: Final = "this project's: rooms and the doors between them first, then start and goal"
_GENERATORS: Final[Mapping[str, str]] = {
    "grid": _MAZE,
    **dict.fromkeys(("key-door", "key-no-door", "two-path"), _ROOMS),
    "task-map": "this project's, after appendix C.1",
    "cooking": "this project's cooking maps",
}


class Term(StrictRecord):
    """One thing that both declarations say.

    Attributes:
        field: one of `FIELDS`.
        printed: what the printed numbers were measured on; begins with `UNKNOWN` if that is not known.
        place: where this is printed: a section, "not printed", or "authors' code".
        ours: the same for our numbers.
    """

    field: str
    printed: str
    place: str
    ours: str

    @property
    def equal(self) -> bool:
        """Whether both are known and the same."""
        return self.printed == self.ours and not self.printed.startswith(UNKNOWN)

    @property
    def difference(self) -> str:
        """The difference in words."""
        return f"{self.field}: {self.printed} ({self.place}), ours {self.ours}"


@cache
def blocks() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the declarations of `measured_on.yaml`: name -> field -> printed value, place, and ours if it is fixed.

    A block with the key `like` copies another block and changes some of its fields; null removes one.

    Raises:
        ValueError: a field is unknown or has too few or too many texts.
    """
    plain: dict[str, dict[str, Any]] = read_yaml_text(
        package_text("goalscope.papers", "measured_on.yaml"), "measured_on"
    )
    finished: dict[str, dict[str, Any]] = {}
    for name, block in plain.items():
        merged = finished.get(block.pop("like", ""), {}) | block
        finished[name] = {field: texts for field, texts in merged.items() if texts is not None}
        for field, texts in finished[name].items():
            if field not in FIELDS or len(texts) not in (2, 3):
                raise ValueError(
                    f"measured_on.yaml: {name}: {field} must be one of {', '.join(FIELDS)} with 2 or 3 texts"
                )
    return finished


def declare(item: Item, ours: Mapping[str, str], reading: ItemReading | None = None) -> list[Term]:
    """Return both declarations of an item, or of one of its readings, field by field.

    Args:
        item: the item.
        ours: field -> what our numbers were measured on, see `ours_of`; empty for an item that is computed.
        reading: the reading, whose own entries replace those of the item.
    """
    texts = {**blocks().get(item.basis, {}), **(reading.basis if reading is not None else {})}
    declared = []
    for field in (name for name in FIELDS if name in texts):
        printed, place, *fixed = texts[field]
        text = fixed[0] if fixed else ours.get(field, UNKNOWN)
        if field == "model" and item.model:
            # A table of several models has a number of each, so that one of them is enough.
            readings = item.readings if reading is None else (reading,)
            models = dict.fromkeys([item.model, *(name for other in readings for name in other.others)])
            printed = text if text in models else ", ".join(models)
        declared.append(Term(field=field, printed=printed, place=place, ours=printed if text == "same" else text))
    return declared


def differences(declared: Sequence[Term], reading: ItemReading) -> Iterator[str]:
    """Yield the differences that stand in the way of a comparison.

    Args:
        declared: both declarations.
        reading: the reading; only numbers that depend on n need the same n.
    """
    for entry in declared:
        if not entry.equal and (entry.field != COUNTED or reading.how in _BY_N):
            yield entry.difference


def too_few(ours: Estimate | None) -> Iterator[str]:
    """Yield a reason if the estimate rests on too few grids."""
    if ours is not None and ours.method != "exact" and ours.clusters < LEAST_GRIDS:
        yield f"fewer than {LEAST_GRIDS} grids"


def ours_of(
    item: Item,
    study: Study | None,
    descriptions: Mapping[str, Mapping[str, Any]],
    model: str = "",
    inside: Inside | None = None,
) -> dict[str, str]:
    """Declare what the numbers of a run were measured on.

    Args:
        item: the item whose numbers come from the run.
        study: the study of the run, None for imported logs.
        descriptions: agent -> its description in the run.
        model: the papers' name for the model, "" if the papers do not use it.
        inside: the settings of the probes, if the item reads some.
    """
    fields = {"model": model or ", ".join(descriptions), **_of_agents(item, list(descriptions.values()))}
    if study is None:
        return fields
    plain = study.dump()
    entries = plain["worlds"]
    fields |= {
        "worlds": "; ".join(map(_world, entries)),
        "generator": "; ".join(dict.fromkeys(map(_generator, entries))),
        "horizon": _horizon(plain.get("horizon")),
        "n": f"{' and '.join(dict.fromkeys(map(_count, entries)))}, {_times(study.trajectories)}",
    }
    return fields | ({} if inside is None else _of_probes(item, entries, study.trajectories, inside))


def _of_agents(item: Item, descriptions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Declare layout, prompt and sampling; unknown for logs, and for agents that are asked nothing."""
    chat_agents = [description for description in descriptions if description.get("kind") in (CHAT, TASK_CHAT)]
    if not chat_agents or len(chat_agents) < len(descriptions):
        return {}
    prompts = [str(description.get("printed") or "own wording") for description in chat_agents]
    sampling = [description.get("sampling", {}) for description in chat_agents]
    encodings = [agent.get("encoding", MATRIX) for agent in chat_agents]
    printed = blocks().get(item.basis, {}).get("prompt", [""])[0]
    return {
        "layout": _joined(_ENCODED.get(name, name) for name in encodings),
        "prompt": printed if set(prompts) <= set(item.prompts) and prompts else _joined(prompts),
        "observations": "own wording",
        **{name: _joined(_text(settings.get(name, UNKNOWN)) for settings in sampling) for name in SAMPLING},
    }


def _joined(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, int | float) and abs(value) < 1000 else str(value)


def _world(entry: Mapping[str, Any]) -> str:
    """Describe the worlds of an entry by its settings, without their number, their generator and what is usual."""
    usual: dict[str, Any] = {"transforms": ["identity"], "minimum_distance": 1}
    left_out = ("kind", "count", "goal_side", "control")
    settings = {name: value for name, value in entry.items() if name not in left_out}
    parts = [
        f"{name.replace('_', ' ')} {_pairs(value) if isinstance(value, dict) else _text(value)}"
        for name, value in settings.items()
        if value not in (None, False, {}, usual.get(name, ()))
    ]
    return " ".join([entry["kind"], *parts])


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in mapping.items())


def _generator(entry: Mapping[str, Any]) -> str:
    generator = _GENERATORS.get(entry["kind"], f"worlds of kind {entry['kind']}")
    return f"{generator}, the goal in the {entry['goal_side']} half" if entry.get("goal_side") else generator


def _horizon(horizon: Mapping[str, Any] | None) -> str:
    if horizon is None:
        return "that of the map"
    steps = horizon.get("steps")
    return f"{steps} steps" if steps is not None else f"{horizon['factor']:g} times the shortest path"


def _count(entry: Mapping[str, Any]) -> str:
    return f"{entry['count']} of each kind" if "count" in entry else f"{entry.get('starts', 1)} starts of each map"


def _times(trajectories: int) -> str:
    return f"{trajectories} {'trajectory' if trajectories == 1 else 'trajectories'} each"


def count_tested_grids(item: Item, study: Study) -> int:
    """Return the number of grids or maps on which an item is measured, those of the test set if it has probes."""
    inside = study.analysis.inside if study.analysis is not None else None
    if inside is not None and item.full:
        return _grid_counts(study.dump()["worlds"], inside)[1]
    return len({world.cluster_id for world in study.worlds()})


def _grid_counts(entries: Sequence[Mapping[str, Any]], inside: Inside) -> tuple[int, int]:
    """Return the number of grids, and that of grids on which probes are tested."""
    tested = total = 0
    for entry in entries:
        kinds = len(entry.get("sizes", [0])) * len(entry.get("densities", [0]))
        count = int(entry.get("count", 1))
        total += kinds * count
        tested += kinds * min(max(1, round(inside.test * count)), count - 1)
    return total, tested


def _of_probes(item: Item, entries: Sequence[Mapping[str, Any]], trajectories: int, inside: Inside) -> dict[str, str]:
    """Declare the training and the test set, the fit, and the steps or plans that are scored."""
    total, tested = _grid_counts(entries, inside)
    steps = {None: "every step", 1: "first steps"}.get(inside.steps, f"{inside.steps} steps of each grid")
    fit: Probes | Decoders = inside.probes
    part, probe = inside.probes.validation, f"width {inside.probes.hidden}, "
    if any(reading.how == "plans" for reading in item.readings):
        fit, part = inside.decoders, PlanSettings().validation
        probe = f"width {fit.width}, feed-forward {fit.feedforward}, "
        steps += f", longer plans {fit.longer}"
        if item.where.get("plans") == "long":
            steps += ", at N those of at least N moves"
    validation = round(part * (total - tested))
    sizes = {"trained": total - tested - validation, "validation": validation, "tested": tested}
    sizes = {name: trajectories * grids for name, grids in sizes.items()}
    return {
        "training": "{trained} trajectories and {validation} for validation, on grids that are not tested".format(
            **sizes
        ),
        "test": "{tested} trajectories".format(**sizes),
        "probe": f"{probe}{fit.epochs} epochs, rate {fit.rate:g}, batch {fit.batch}",
        "subset": steps,
    }
