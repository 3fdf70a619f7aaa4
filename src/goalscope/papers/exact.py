"""Items without an agent: numbers that follow from a definition, and pictures of worlds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any, Final

from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import canonical_json
from goalscope._ground.rng import stream
from goalscope.measures.exploration import StaleCounter
from goalscope.measures.exploration.examples import EXAMPLES, counts
from goalscope.papers.item import Item
from goalscope.papers.readings import OFF_BY_ONE, ItemLine
from goalscope.stats import Estimate
from goalscope.stats.rows import Tag
from goalscope.worlds import Grid, generate, transform
from goalscope.worlds.fog import Fog
from goalscope.worlds.generate import control, layout
from goalscope.worlds.transform import TRANSFORMS

_SEED: Final = 4101
_DENSITIES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Row = tuple[tuple[int, int], int, int, int, int]


def _rows(text: str) -> list[Row]:
    """Parse a table of steps written as ``x,y:cenS``."""
    steps = (step.replace(":", ",").split(",") for step in text.split())
    return [((int(x), int(y)), *map(int, counts)) for x, y, counts in steps]  # type: ignore[misc]


_WALKS: Final = {
    4: "-1,0:0000 0,0:0000 1,0:0000 0,0:0000 -1,0:0000",
    5: "-1,0:0000 0,0:0000 1,0:0000 0,0:0000 0,1:0000",
    6: "-1,0:0000 0,0:0000 1,0:0000 0,0:0000 -1,0:0000 0,0:0112 1,0:0213",
    7: "-1,-1:0000 0,-1:0000 0,0:0000 -1,0:0000 -1,-1:1001 0,-1:1001 0,0:1001 -1,0:1001 -1,-1:1012",
    8: "0,0:0000 0,1:0000 0,0:0000 0,-1:0000 0,0:0011 0,1:0112 0,0:0224 0,-1:0325",
    9: "-1,0:0000 0,0:0000 1,0:0000 1,1:0000 1,0:0000 0,0:0000 -1,0:0000 0,0:0112 0,1:0112",
}
TABLES: Final[dict[int, list[Row]]] = {number: _rows(text) for number, text in _WALKS.items()}
"""Number of a table of Appendix B of the exploration paper -> for t = 0, 1, ...: cell (x, y), printed c, e, n and S."""


Computed = tuple[Sequence[ItemLine], Sequence[Path], Sequence[str]]
"""Lines of an exact item, the written files, and texts to show."""


def compute(item: Item, folder: Path) -> Computed:
    """Compute a figure or table (an item) of a paper that follows from definitions, without running an agent.

    Args:
        item: the item.
        folder: existing folder for the files that belong to it.

    Returns:
        The computed numbers beside the printed ones, the paths of the written files, and texts to show.
    """
    name, _, argument = item.exact.partition(" ")
    return _EXACT[name](folder, argument)


def exact_value(value: float, unit: str) -> Estimate:
    """Return an exactly computed number in the form of an estimate, with NaN as the ends of its interval."""
    return Estimate(value=value, low=nan, high=nan, n=1, clusters=1, method="exact", unit=unit, note="exact")


def _line(label: str, value: Tag, printed: float | str | None, computed: float, unit: str, paper: str) -> ItemLine:
    published: dict[str, float | str | None] = {} if printed is None else {paper: printed}
    return ItemLine(label=label, value=value, published=published, ours=exact_value(computed, unit), percent=False)


def _cliff(folder: Path, experiment: str) -> Computed:
    """Compute "known" and "unknown" MEG in one experiment of the Cliff World, with the printed values."""
    from goalscope.papers.cliff_world import cliff_study, write_figures, write_json

    study = cliff_study()
    cases = study.by_goal_length if experiment == "k" else study.by_epsilon
    lines = []
    for case in cases:
        at, spread = case.setting, f"{case.printed_unknown:g} ± {case.printed_spread:g}"
        lines += [
            _line("known utility", at, case.printed_known, case.known, "nats", "paper"),
            _line(f"known utility{OFF_BY_ONE}", at, case.printed_known, case.off_by_one, "nats", "paper"),
            _line("unknown utility (± two standard deviations)", at, spread, case.unknown, "nats", "paper"),
        ]
    write_json(study, folder / "cliff-world.json")
    written = [folder / "cliff-world.json", *write_figures(study, folder)]
    return lines, written, ()


def _mouse(folder: Path, which: str) -> Computed:
    """Compute the MEG of the mouse in Fig. 1, or of the mouse in Fig. 2 that smells and moves twice."""
    from goalscope.goals.meg import meg_target
    from goalscope.papers.causal_examples import mouse, pomdp_mouse

    def value(model: Any, decisions: Sequence[str], target: str) -> float:
        return meg_target(model, decisions=decisions, target=target).value

    if which == "once":
        lines = [
            _line("p(towards the cheese)", chance, printed, value(mouse(chance), ["D"], "T"), "nats", "paper")
            for chance, printed in ((0.8, 0.19), (1.0, 0.69))
        ]
        return lines, (), ()
    model = pomdp_mouse(0.9, smell=0.9)
    lines = [
        _line(f"towards {target}", None, None, value(model, ["D1", "D2"], target), "nats", "")
        for target in ("S3", "U3")
    ]
    text = (
        "Theorem 4.1: not less towards S3 than towards U3, which it separates. The paper prints no probabilities and "
        "no values of this mouse; those here (it smells and moves rightly with .9 each) are ours."
    )
    return lines, (), (text,)


def counted(table: int) -> list[tuple[int, int, int, int]]:
    """Compute the counts c, e, n and S of the exploration paper for each step of the walk in one of its tables.

    c is the number of closed loops; e and n count visits of edges and cells beyond the second. S is their sum, the
    stale score.

    Args:
        table: number of the table in Appendix B, 4 to 9.

    Returns:
        (c, e, n, S) for each step, beginning with the start.
    """
    cells = [row[0] for row in TABLES[table]]
    number = {cell: index for index, cell in enumerate(dict.fromkeys(cells))}
    score = StaleCounter(number[cells[0]])
    per_step = [(score.loops, score.edge_reuse, score.cell_reuse, score.total)]
    for before, after in pairwise(cells):
        score.move(number[before], number[after])
        per_step.append((score.loops, score.edge_reuse, score.cell_reuse, score.total))
    return per_step


def _stale(folder: Path, table: str) -> Computed:
    """Compute the counts in a worked example of the stale score, step by step."""
    lines = []
    for t, (row, computed) in enumerate(zip(TABLES[int(table)], counted(int(table)), strict=True)):
        for label, printed, number in zip(("c", "e", "n", "S"), row[1:], computed, strict=True):
            if label == "S" or printed or number:
                lines.append(_line(f"{label} at t", t, float(printed), float(number), "count", "paper"))
    return lines, (), ()


def _examples(folder: Path, figure: str) -> Computed:
    """Compute the metric's counts on the examples in a figure of the exploration paper."""
    chosen = {name: example for name, example in EXAMPLES.items() if example.figure.startswith(figure)}
    lines = [
        _line(
            f"{example.figure} {name}, {walk}: {count.replace('_', ' ')}",
            None,
            None,
            getattr(counted_walk, count),
            "count",
            "",
        )
        for name, example in chosen.items()
        for walk in example.walks
        for counted_walk in (counts(example, walk),)
        for count in ("steps", "errors", "without_gain", "new_cells", "stale")
    ]
    return lines, (), [f"{example.figure} {name}: {example.shows}" for name, example in chosen.items()]


def _pictures(folder: Path, which: str) -> Computed:
    """Draw the worlds of a figure as SVG, and return them as text too."""
    from goalscope.report.figures import picture

    written, texts = [], []
    for name, grid in _GRIDS[which]():
        path = folder / f"{name.replace(' ', '-')}.svg"
        svg = picture(grid, label=name).svg
        NamedFile(path).save_text(svg)
        written.append(path)
        texts.append(f"{name}\n{grid.render()}")
    return (), written, texts


def _fogged() -> Iterator[tuple[str, Grid]]:
    grid = generate(7, 1.0, rng=stream(_SEED, "figure", "fog"))
    yield "whole grid", grid
    yield "seen from the start", Fog.start(grid, 3).view(grid)


def _transforms() -> Iterator[tuple[str, Grid]]:
    grid = generate(9, 0.6, rng=stream(_SEED, "figure", "transforms"))
    return ((name, transform(grid, name)) for name in TRANSFORMS)


_GRIDS: Final[Mapping[str, Callable[[], Iterable[tuple[str, Grid]]]]] = {
    "densities": lambda: (
        (f"density {density:g}", generate(9, density, rng=stream(_SEED, "figure", "density", density)))
        for density in _DENSITIES
    ),
    "text": lambda: [("grid", generate(7, 0.6, rng=stream(_SEED, "figure", "text")))],
    "environments": lambda: [
        *((kind, layout(kind, seed=_SEED, index=0)) for kind in ("key-door", "key-no-door", "two-path")),
        ("two-path control", control(layout("two-path", seed=_SEED, index=0))),
    ],
    "fog": _fogged,
    "transforms": _transforms,
}


def _settings(folder: Path, model: str) -> Computed:
    """Compare the settings of a ready-made model and of the study baseline with those in Table 6."""
    from goalscope._ground.yaml_text import read_yaml_text
    from goalscope.runs import Study
    from goalscope.verdict.preflight.study_files import text
    from goalscope.verdict.subject import ready_models

    study = Study.assemble(read_yaml_text(text("baseline"), "baseline"))
    parameters = study.agents_[0].parameters
    ready = ready_models()[model]
    values = {
        "Max Tokens": (10000, ready["max_tokens"]),
        "Temperature": (0.7, parameters["temperature"]),
        "Top P": (0.95, parameters["top_p"]),
        "Top Logprobs": (5, ready["top_logprobs"]),
        "Num. Trajectories per Grid": (10, study.trajectories),
    }
    lines = [_line(name, None, float(printed), float(value), "", model) for name, (printed, value) in values.items()]
    return lines, (), (f"Reasoning Effort: printed low, ours {ready['reasoning_effort']}", canonical_json(ready))


_EXACT: Final[Mapping[str, Callable[[Path, str], Computed]]] = {
    "cliff": _cliff,
    "mouse": _mouse,
    "stale": _stale,
    "examples": _examples,
    "pictures": _pictures,
    "settings": _settings,
}
