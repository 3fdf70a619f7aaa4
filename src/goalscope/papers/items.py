"""The items: figures and tables of the papers, their sources, and studies at a reduced size.

All of them are data in `items.yaml`; `goalscope reproduce` is the one engine that runs them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.runs import Study
from goalscope.runs.kinds import StudyPart, sequence
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

_STEPS: Final = 3  # of each grid that are read at a reduced scale, where all are at the published size
MARGINED: Final = (
    *("linear", "interaction", "unmoved", "unmoved on each", "one size equal"),
    *("equal but different", "moved differently"),
)
"""Tests of claims that something is none, or that it is not: they need a margin for it."""
MIDDLE: Final = "middle"
"""As the value of the tag "layer": the middle one of those that were read (15 of 7, 15 and 23)."""


class ItemReading(StudyPart):
    """One line of an item, or one for each value of a tag.

    Attributes:
        label: its name in the paper.
        measure: the measure.
        where: tags of the rows; those of `Item.where` hold, too.
        by: the tag whose values make lines, "" for one line.
        how: how rows become a figure.
        percent: whether the paper prints it in per cent.
        published: printed values for the item's model.
        others: other model -> its printed values.
        differs: known differences between what is printed and ours, besides those of the item.
        control: changed tags of the rows that are its control, none for those of a random agent in the same worlds.
        control_is: what that control is, in words.
        called: value of the tag `by` -> the paper's name of it.
    """

    label: str
    measure: str
    where: dict[str, Tag] = Field(default_factory=dict)
    by: str = ""
    how: How = "mean"
    percent: bool = False
    published: Published | None = None
    others: dict[str, Published] = Field(default_factory=dict)
    differs: tuple[str, ...] = sequence(default=())
    control: dict[str, Tag] = Field(default_factory=dict)
    control_is: str = ""
    called: dict[Tag, Tag] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for published in (self.published, *self.others.values()):
            if isinstance(published, dict) and not self.by:
                raise ValueError(f"published numbers by a tag must come with that tag, {self.label} has none: add by")
        return self


class QuotedClaim(StudyPart):
    """A sentence of a paper that is tested.

    Attributes:
        quoted: the sentence or a part of it, as printed; "" where what is tested is ours.
        place: the section, figure or table of it.
        said: what is tested, in our words.
        about: the papers' names of the models that it is about, those of the item by default.
        test: name of the test, see `goalscope.papers.claims.TESTS`.
        measure: the tested measure.
        where: tags of its rows, None for any value of a tag that the item fixes.
        over: the tag whose values are compared; a fixed value of it in `Item.where` is dropped.
        among: those of its values that are compared, in this order; all in ascending order by default.
        below: only numbers of `over` below it.
        bound: of "above" and "under", what the mean is compared with.
        at, to: of "crossing", the value of the tag "N" from which the second is the higher one, and the last one.
        factors: of "interaction", the numeric tags.
        than: of "lower", the other measure.
        margin: the greatest departure that counts as none, in the measure's unit.
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

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.test in MARGINED) != (self.margin is not None):
            raise ValueError(f"a claim of no departure must declare a margin, and no other one: {self.said}")
        return self


class Item(StudyPart):
    """A figure, a table or a passage of a paper.

    Attributes:
        name: the paper's short name and what it is there: "telos table 2".
        title: what it shows.
        needs: minimum access.
        why_not: why it has no command; other fields are empty then.
        study: the shipped study that generates its data.
        changes: KEY=VALUE changes of that study, to the sizes as published.
        full: whether it is read with the settings of `--full`, as published.
        least: minimum worlds of each cell at a reduced scale; the probes need grids on both sides of their split.
        model: the model that the printed numbers are of.
        exact: name of the function that computes it, where no study does.
        section: the section of the report that shows it.
        where: tags of the rows of all readings.
        prompts: the printed prompts under which its numbers came out, see `goalscope.agents.printed_prompts`.
        differs: known differences between what is printed and ours (sites, worlds, decoding), for all readings.
        readings, claims: what is read, and what is tested.
        note: caveat on the numbers.
    """

    name: str
    title: str
    needs: Needs = "nothing"
    why_not: str = ""
    study: str = ""
    changes: tuple[str, ...] = sequence(default=())
    full: bool = False
    least: int = 1
    model: str = ""
    exact: str = ""
    section: str = ""
    where: dict[str, Tag] = Field(default_factory=dict)
    prompts: tuple[str, ...] = sequence(default=())
    differs: tuple[str, ...] = sequence(default=())
    readings: tuple[ItemReading, ...] = sequence(default=())
    claims: tuple[QuotedClaim, ...] = sequence(default=())
    note: str = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(map(bool, (self.why_not, self.study, self.exact))) != 1:
            raise ValueError(f"{self.name} must have exactly one of why_not, study and exact")
        if self.name.split()[0] not in PAPERS:
            raise ValueError(f"{self.name} must begin with one of {', '.join(PAPERS)}")
        return self


@cache
def items() -> Mapping[str, Item]:
    """Return all items by name, in the order of the papers; an entry that is `like` another one changes some keys."""
    text = package_text("goalscope.papers", "items.yaml")
    by_paper: dict[str, list[dict[str, Any]]] = read_yaml_text(text, "items")
    plain: dict[str, dict[str, Any]] = {}
    for entry in (entry for entries in by_paper.values() for entry in entries):
        plain[entry["name"]] = plain.get(entry.pop("like", ""), {}) | entry
    return {name: Item.model_validate(entry) for name, entry in plain.items()}


def find(name: str) -> Item:
    """Return an item by its name, in any case, "fig." for "figure".

    Raises:
        ValueError: there is none of that name.
    """
    key = " ".join(name.casefold().replace("fig.", "figure ").replace("tab.", "table ").split())
    if key not in items():
        raise ValueError(
            f"an item must be one of those that goalscope reproduce --list prints, got {name!r}"
            f"{near_miss(key, list(items()))}"
        )
    return items()[key]


def scaled(study: Study, scale: float, *, least: int = 1) -> Study:
    """Return a study at a reduced size.

    Args:
        study: the study at the published size.
        scale: fraction of the size, in (0, 1].
        least: minimum number of worlds of each kind, size and density.

    Returns:
        The study itself for 1. Else the number of worlds of each entry is multiplied by ``scale``, but stays at least
        ``least``; the rest is taken from the trajectories, of which one stays. Random networks and pairs of
        interventions are multiplied, too, and where all steps of a grid are read, three are. Sizes, densities and
        agents stay, so that every cell of a table is there.

    Raises:
        ValueError: a scale outside of (0, 1].
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
    _thin(settings.get("analysis") or {}, scale)
    settings["name"] = f"{study.name} (scale {scale:g})"[:200]
    return Study.assemble(settings)


def _thin(analysis: dict[str, Any], scale: float) -> None:
    """Reduce random networks and pairs of interventions."""
    inside = analysis.get("inside")
    if inside:
        if inside["random"]:
            inside["random"]["seeds"] = max(1, round(inside["random"]["seeds"] * scale))
        inside["steps"] = _STEPS if inside["steps"] is None else inside["steps"]
    for entry in analysis.get("interventions", ()):
        for name in {"per_size", "controls"} & set(entry.get("pairs", {})):
            entry["pairs"][name] = max(1, round(entry["pairs"][name] * scale))
