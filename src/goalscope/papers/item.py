"""Items, i.e. figures and tables of the papers with their sources, and studies at a reduced size.

All items are declared in `items.yaml`, and `goalscope reproduce` runs them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.runs import Study
from goalscope.runs.study_parts import StudyPart, sequence
from goalscope.stats.rows import Tag

PAPERS: Final[Mapping[str, str]] = {
    "telos": "A Behavioural and Representational Evaluation of Goal-Directedness in Language Model Agents (Arghal et "
    "al. 2026), and the post on it",
    "exploration": "Measuring exploration and exploitation errors in language-model agents (Park et al. 2026)",
    "meg": "Measuring Goal-Directedness (MacDermott et al. 2024)",
}
"""First word of an item's name -> the paper."""

Needs = Literal["logs", "API", "weights", "nothing"]
"""Minimum access that an item needs: recorded logs, a model that can be asked, its weights; nothing: it is exact."""

How = Literal["mean", "steps", "beliefs", "cells", "plans", "distance", "p-value", "effect", "relation"]
"""How rows become a figure, see `goalscope.papers.readings`."""

Published = float | str | dict[Tag, float | str | None]
"""Printed value: a number, a text, or one for each value of a tag."""

_STEPS: Final = 3  # steps per grid to read at a reduced scale, if all steps are read at the published size
MARGINED: Final = (
    *("linear", "interaction", "unmoved", "unmoved on each", "one size equal"),
    *("equal but different", "moved differently"),
)
"""Names of tests whose answer depends on which deviations count as negligible; their claims must declare a margin."""
MIDDLE: Final = "middle"
"""Value of the tag "layer" that stands for the middle one of the layers that were read (15 of 7, 15 and 23)."""


class ItemReading(StudyPart):
    """Declares one number (or one per value of a tag) in a figure or table of a paper, and how it is computed from a
    run.

    A tag is a named value of the results, such as ``size: 7``, by which they are grouped.

    Attributes:
        label: name of the line in the paper.
        measure: the measure.
        where: tags of the results to use, in addition to those of `Item.where`.
        by: the tag with one line per value, "" for a single line.
        how: how a number is computed from the results.
        percent: whether the paper prints the number in per cent.
        published: printed values for the item's model.
        others: other model -> printed values.
        basis: field -> what this line was measured on and where that is printed, in place of the item's declaration.
        control: tags that are changed to select the results of the control; empty for a random agent in the same
            worlds.
        control_is: description of the control in words.
        called: value of the tag `by` -> the paper's name for the value.
    """

    label: str
    measure: str
    where: dict[str, Tag] = Field(default_factory=dict)
    by: str = ""
    how: How = "mean"
    percent: bool = False
    published: Published | None = None
    others: dict[str, Published] = Field(default_factory=dict)
    basis: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default_factory=dict)
    control: dict[str, Tag] = Field(default_factory=dict)
    control_is: str = ""
    called: dict[Tag, Tag] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for published in (self.published, *self.others.values()):
            if isinstance(published, dict) and not self.by:
                raise ValueError(f"published values by tag need the key by, which {self.label} lacks: add by")
        return self


class QuotedClaim(StudyPart):
    """Declares a sentence of a paper and how it is tested on the results of a run.

    A tag is a named value of the results, such as ``size: 7``, by which they are grouped.

    Attributes:
        quoted: the sentence or a part of it, as printed; "" for a statement of our own.
        place: section, figure or table that contains the sentence.
        said: the tested statement, in our words.
        about: the papers' names for the models that the sentence is about; by default those of the item.
        test: name of the test; see `goalscope.papers.claims.TESTS`.
        measure: the tested measure.
        where: tags of the results to use. None removes a condition that the item sets on a tag.
        over: the tag whose values are compared. A condition on this tag in `Item.where` is dropped.
        among: the values of the tag to compare, in this order; by default all values in ascending order.
        below: exclusive upper bound on the values of `over` to use.
        bound: for the tests "above" and "under", the number with which the mean is compared.
        at, to: for the test "crossing", the value of the tag "N" from which the second condition is higher, and the
            last value.
        factors: for the test "interaction", the numeric tags.
        than: for the test "lower", the other measure.
        margin: the largest deviation regarded as negligible, in the measure's unit.
        least: minimum number of grids or maps; at each value that is compared, half as many are needed.
        nulls: names of the null agents on which the claim is tested as well, because they lack the claimed property
            (see `goalscope.papers.claims.NullAgent`); all by default.
    """

    quoted: str = ""
    place: str = ""
    said: str
    about: tuple[str, ...] = sequence(default=())
    test: str
    measure: str
    where: dict[str, Tag] = Field(default_factory=dict)
    over: str = ""
    among: tuple[Tag, ...] = sequence(default=())
    below: float | None = None
    bound: float | None = None
    at: int | None = None
    to: int | None = None
    factors: tuple[str, ...] = sequence(default=())
    than: str = ""
    margin: float | None = Field(default=None, gt=0)
    least: int = Field(default=10, ge=1)
    nulls: tuple[str, ...] = sequence(default=())

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.test in MARGINED) != (self.margin is not None):
            raise ValueError(
                "margin must be set exactly for claims that state equality or linearity, which is violated "
                f"by: {self.said}"
            )
        return self


class Item(StudyPart):
    """Declares an item, i.e. a figure, a table or a passage of a paper, and how to reproduce it.

    A tag is a named value of the results, such as ``size: 7``, by which they are grouped.

    Attributes:
        name: the paper's short name and the place in it, e.g. "telos table 2".
        title: subject of the figure or table.
        needs: minimum access to the agent.
        why_not: why the item has no command; all other fields are then empty.
        study: name of the shipped study that generates the data.
        changes: KEY=VALUE changes that give that study the published sizes.
        full: whether the run is read with the settings of `--full`, as published.
        least: minimum number of worlds per size and density at a reduced scale, because probes need grids on both sides
            of their split.
        tested: minimum number of tested worlds per size and density at a reduced scale. Two are needed for the control
            of beliefs of other states of the same size and density.
        model: the model to which the printed numbers belong.
        exact: name of the function that computes the item without a study.
        section: section of the report that shows the item.
        where: tags of the results that all lines use.
        prompts: the printed prompts that the published numbers used, see `goalscope.agents.prompts`.
        nulls: tags that select the results of each null agent, which lacks the claimed property, such as a network with
            random weights. Empty for null agents that act in the same worlds, see `goalscope.papers.claims.NullAgent`.
        basis: declaration of what the printed numbers were measured on, see `goalscope.papers.readings`.
        readings, claims: numbers to compute and sentences to test.
        note: caveat about the numbers.
    """

    name: str
    title: str
    needs: Needs = "nothing"
    why_not: str = ""
    study: str = ""
    changes: tuple[str, ...] = sequence(default=())
    full: bool = False
    least: int = 1
    tested: int = 2
    model: str = ""
    exact: str = ""
    section: str = ""
    where: dict[str, Tag] = Field(default_factory=dict)
    prompts: tuple[str, ...] = sequence(default=())
    nulls: tuple[dict[str, Tag], ...] = sequence(default=())
    basis: str = ""
    readings: tuple[ItemReading, ...] = sequence(default=())
    claims: tuple[QuotedClaim, ...] = sequence(default=())
    note: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(map(bool, (self.why_not, self.study, self.exact))) != 1:
            raise ValueError(f"{self.name} must have exactly one of the keys why_not, study and exact")
        if self.name.split()[0] not in PAPERS:
            raise ValueError(f"the name {self.name} must begin with one of {', '.join(PAPERS)}")
        return self


@cache
def items() -> Mapping[str, Item]:
    """Return all items (figures, tables and passages of papers) by name, in the order of the papers.

    They are declared in ``items.yaml``, where an entry with the key `like` copies another entry and changes some of its
    keys.
    """
    text = package_text("goalscope.papers", "items.yaml")
    by_paper: dict[str, list[dict[str, Any]]] = read_yaml_text(text, "items")
    plain: dict[str, dict[str, Any]] = {}
    for entry in (entry for entries in by_paper.values() for entry in entries):
        plain[entry["name"]] = plain.get(entry.pop("like", ""), {}) | entry
    return {name: Item.model_validate(entry) for name, entry in plain.items()}


def find(name: str) -> Item:
    """Find a figure or table (an item) of a paper by name, ignoring case and accepting "fig." for "figure".

    Raises:
        ValueError: there is no item with this name.
    """
    key = " ".join(name.casefold().replace("fig.", "figure ").replace("tab.", "table ").split())
    if key not in items():
        raise ValueError(
            f"there is no item {name!r} (goalscope reproduce --list shows all items){near_miss(key, list(items()))}"
        )
    return items()[key]


def scaled(study: Study, scale: float, *, least: int = 1, tested: int = 1) -> Study:
    """Reduce a study to a fraction of its size, so that it runs faster but still fills every entry of its tables.

    Args:
        study: the study at the published size.
        scale: fraction of the size, in (0, 1].
        least: minimum number of worlds of each kind, size and density.
        tested: minimum number of them on which probes are tested.

    Returns:
        The study itself if ``scale`` is 1. Otherwise, the number of worlds of each entry is multiplied by ``scale`` but
        is at least ``least``; if that is not enough, the number of trajectories is reduced too, to at least one.
        Numbers of random networks and of intervention pairs are multiplied as well, and three steps per grid are read
        instead of all. Sizes, densities and agents do not change. The part of the worlds that is tested grows only as
        far as ``tested`` needs, and is at most a half.

    Raises:
        ValueError: a scale outside (0, 1].
    """
    if not 0 < scale <= 1:
        raise ValueError(f"--scale must lie in (0, 1], got {scale:g}: 1 is the published size")
    if scale == 1:
        return study
    settings = study.dump()
    counts = [entry["count"] for entry in settings["worlds"] if "count" in entry]
    remaining = scale
    for entry in settings["worlds"]:
        if "count" in entry:
            count = entry["count"]
            entry["count"] = min(count, max(least, round(count * scale)))
            remaining = min(1.0, scale * sum(counts) / sum(other.get("count", 0) for other in settings["worlds"]))
    settings["trajectories"] = max(1, round(settings["trajectories"] * remaining))
    fewest = min((entry["count"] for entry in settings["worlds"] if "count" in entry), default=1)
    _thin(settings.get("analysis") or {}, scale, tested / fewest)
    settings["name"] = f"{study.name} (scale {scale:g})"[:200]
    return Study.assemble(settings)


def _thin(analysis: dict[str, Any], scale: float, tested: float) -> None:
    """Reduce the numbers of random networks and intervention pairs in an analysis, and test enough grids."""
    inside = analysis.get("inside")
    if inside:
        inside["test"] = max(inside["test"], min(0.5, tested))
        if inside["random"]:
            inside["random"]["seeds"] = max(1, round(inside["random"]["seeds"] * scale))
        inside["steps"] = _STEPS if inside["steps"] is None else inside["steps"]
    for entry in analysis.get("interventions", ()):
        for name in {"per_size", "controls"} & set(entry.get("pairs", {})):
            entry["pairs"][name] = max(1, round(entry["pairs"][name] * scale))
