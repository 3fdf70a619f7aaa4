"""Items that need no agent: numbers that follow from a definition, and pictures of worlds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, nan
from pathlib import Path
from typing import Any, Final

from goalscope.ids import canonical_json
from goalscope.measures.exploration import StaleScore
from goalscope.measures.exploration.examples import EXAMPLES, counts
from goalscope.reproduction.items import Item
from goalscope.reproduction.readings import Line
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.stats import Estimate
from goalscope.worlds import Grid, generate, transform
from goalscope.worlds.fog import Fog
from goalscope.worlds.layouts import control, layout
from goalscope.worlds.transform import TRANSFORMS

_SEED: Final = 4101
_DENSITIES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Row = tuple[tuple[int, int], int, int, int, int]
TABLES: dict[int, list[Row]] = {
    4: [((-1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((-1, 0), 0, 0, 0, 0)],
    5: [((-1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((0, 1), 0, 0, 0, 0)],
    6: [
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 1, 1, 2),
        ((1, 0), 0, 2, 1, 3),
    ],
    7: [
        ((-1, -1), 0, 0, 0, 0),
        ((0, -1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((-1, -1), 1, 0, 0, 1),
        ((0, -1), 1, 0, 0, 1),
        ((0, 0), 1, 0, 0, 1),
        ((-1, 0), 1, 0, 0, 1),
        ((-1, -1), 1, 0, 1, 2),
    ],
    8: [
        ((0, 0), 0, 0, 0, 0),
        ((0, 1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((0, -1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 1, 1),
        ((0, 1), 0, 1, 1, 2),
        ((0, 0), 0, 2, 2, 4),
        ((0, -1), 0, 3, 2, 5),
    ],
    9: [
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((1, 1), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 1, 1, 2),
        ((0, 1), 0, 1, 1, 2),
    ],
}
"""Number of a table of Appendix B of the exploration paper -> for t = 0, 1, ...: cell (x, y), printed c, e, n and S."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an exact item comes to: its lines, the files that were written, and texts to be shown."""

    lines: tuple[Line, ...] = ()
    files: tuple[Path, ...] = ()
    texts: tuple[str, ...] = ()


def compute(item: Item, folder: Path) -> Found:
    """Compute an exact item and write its files into a folder, which must be there."""
    name, _, argument = item.exact.partition(" ")
    return _EXACT[name](folder, argument)


def exact_value(value: float, unit: str) -> Estimate:
    """Return a number that has no interval because nothing was sampled."""
    return Estimate(value=value, low=nan, high=nan, n=1, clusters=1, method="exact", unit=unit, note="exact")


def _line(label: str, value: Tag, printed: float | str | None, ours: float, unit: str, paper: str) -> Line:
    beside = {} if printed is None else {paper: printed}
    return Line(label=label, value=value, published=beside, ours=exact_value(ours, unit), percent=False)


def _cliff(folder: Path, experiment: str) -> Found:
    """Compute one experiment of the Cliff World; "known" and "unknown" MEG beside the printed values."""
    from goalscope.studies.cliff_figures import write_figures, write_json
    from goalscope.studies.cliff_world import cliff_study

    study = cliff_study()
    cases = study.by_goal_length if experiment == "k" else study.by_epsilon
    lines = []
    for case in cases:
        at = case.setting
        lines += [
            _line("known utility", at, case.printed_known, case.known, "nats", "paper"),
            _line("known utility, off by one", at, case.printed_known, case.off_by_one, "nats", "paper"),
            _line("unknown utility", at, case.printed_unknown, case.unknown, "nats", "paper"),
        ]
    write_json(study, folder / "cliff-world.json")
    written = [folder / "cliff-world.json", *write_figures(study, folder)]
    return Found(lines=tuple(lines), files=tuple(written))


def _mouse(folder: Path, which: str) -> Found:
    """Compute the MEG of the mouse of Fig. 1, or of the one that smells and moves twice, of Fig. 2."""
    from goalscope.meg import meg_target
    from goalscope.meg.causal_examples import mouse, pomdp_mouse

    def value(model: Any, decisions: Sequence[str], target: str) -> float:
        return meg_target(model, decisions=decisions, target=target).value

    if which == "once":
        likely = 0.8 * log(1.6) + 0.2 * log(0.4)  # log 2 less the entropy of a choice with chances .8 and .2
        return Found(
            lines=(_line("p(towards the cheese) = 0.8", None, likely, value(mouse(0.8), ["D"], "T"), "nats", ""),)
        )
    model = pomdp_mouse(0.9, smell=0.9)
    lines = [
        _line(f"towards {target}", None, None, value(model, ["D1", "D2"], target), "nats", "")
        for target in ("S3", "U3")
    ]
    return Found(lines=tuple(lines), texts=("Theorem 4.1: not less towards S3 than towards U3, which it separates.",))


def counted(table: int) -> list[tuple[int, int, int, int]]:
    """Return c, e, n and S of each step of a table's walk, computed."""
    cells = [row[0] for row in TABLES[table]]
    number = {cell: at for at, cell in enumerate(dict.fromkeys(cells))}
    score = StaleScore(number[cells[0]])
    found = [(score.loops, score.edge_reuse, score.cell_reuse, score.total)]
    for before, after in pairwise(cells):
        score.move(number[before], number[after])
        found.append((score.loops, score.edge_reuse, score.cell_reuse, score.total))
    return found


def _stale(folder: Path, table: str) -> Found:
    """Compute the counts of one worked example of the stale score at each step."""
    lines = []
    for t, (row, ours) in enumerate(zip(TABLES[int(table)], counted(int(table)), strict=True)):
        for label, printed, number in zip(("c", "e", "n", "S"), row[1:], ours, strict=True):
            if label == "S" or printed or number:
                lines.append(_line(f"{label} at t", t, float(printed), float(number), "count", "paper"))
    return Found(lines=tuple(lines))


def _examples(folder: Path, figure: str) -> Found:
    """Compute what the metric counts on the named examples of a figure of the exploration paper."""
    chosen = {name: one for name, one in EXAMPLES.items() if one.figure.startswith(figure)}
    lines = [
        _line(f"{one.figure} {name}, {walk}: {what.replace('_', ' ')}", None, None, getattr(found, what), "count", "")
        for name, one in chosen.items()
        for walk in one.walks
        for found in (counts(one, walk),)
        for what in ("steps", "errors", "without_gain", "new_cells", "stale")
    ]
    return Found(lines=tuple(lines), texts=tuple(f"{one.figure} {name}: {one.shows}" for name, one in chosen.items()))


def _pictures(folder: Path, which: str) -> Found:
    """Draw the worlds of a figure as SVG and return their texts."""
    from goalscope.report.pictures import picture

    written, texts = [], []
    for name, grid in _GRIDS[which]():
        path = folder / f"{name.replace(' ', '-')}.svg"
        shown = picture(grid, label=name).svg
        path.write_text(shown, encoding="utf-8", newline="\n")
        written.append(path)
        texts.append(f"{name}\n{grid.render()}")
    return Found(files=tuple(written), texts=tuple(texts))


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


def _settings(folder: Path, model: str) -> Found:
    """Set the settings of a ready model and of the study baseline beside those of Table 6."""
    from goalscope.preflight.model_defaults import ready_models
    from goalscope.runs import Study
    from goalscope.studies import text
    from goalscope.untrusted import read_yaml_text

    study = Study.parse(read_yaml_text(text("baseline"), "baseline"))
    asked = study.agents_[0].parameters
    ready = ready_models()[model]
    ours = {
        "Max Tokens": (10000, ready["max_tokens"]),
        "Temperature": (0.7, asked["temperature"]),
        "Top P": (0.95, asked["top_p"]),
        "Top Logprobs": (5, ready["top_logprobs"]),
        "Num. Trajectories per Grid": (10, study.trajectories),
    }
    lines = [_line(name, None, float(printed), float(value), "", model) for name, (printed, value) in ours.items()]
    return Found(
        lines=tuple(lines),
        texts=(f"Reasoning Effort: printed low, ours {ready['reasoning_effort']}", canonical_json(ready)),
    )


_EXACT: Final[Mapping[str, Callable[[Path, str], Found]]] = {
    "cliff": _cliff,
    "mouse": _mouse,
    "stale": _stale,
    "examples": _examples,
    "pictures": _pictures,
    "settings": _settings,
}
