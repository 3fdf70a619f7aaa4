"""Figures and JSON file of the Cliff World study."""

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from goalscope._ground.folder import NamedFile
from goalscope._ground.version import __version__
from goalscope.papers.cliff_world import HEIGHT, HORIZON, MOVES, WIDTH, WIND, CliffCase, CliffStudy, cliff_world
from goalscope.report.exports import drawing_style

_BLUE, _RED, _GREEN, _GREY = "#4477aa", "#cc3311", "#228833", "#555555"


def write_json(study: CliffStudy, path: Path) -> None:
    """Write both tables and the maps as JSON. Numbers that are not finite become strings ("inf", "nan")."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return value if math.isfinite(value) else str(value)

    def table(cases: Sequence[CliffCase]) -> list[dict[str, Any]]:
        return [{field.name: plain(getattr(case, field.name)) for field in fields(case)} for case in cases]

    content = {
        "goalscope": __version__,
        "unit": "nats",
        "settings": {
            "width": WIDTH,
            "height": HEIGHT,
            "horizon": HORIZON,
            "wind": WIND,
            "moves": [list(move) for move in MOVES],
            "policy": "argmax by time, the first of equal floating-point values; others with epsilon / 3 each",
        },
        "by_epsilon": table(study.by_epsilon),
        "by_goal_length": table(study.by_goal_length),
    }
    NamedFile(path).save_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_figures(study: CliffStudy, folder: Path) -> list[Path]:
    """Draw MEG against epsilon and goal length, and the occupancy maps, as PNG and SVG.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    written = []
    drawings = (("meg", (9.6, 3.9), _draw_values), ("occupancy", (9.6, 4.9), _draw_maps))
    with drawing_style({"svg.hashsalt": "goalscope", "font.family": ["DejaVu Sans"], "font.size": 9.5}):
        from matplotlib.figure import Figure

        for name, size, draw in drawings:
            figure = Figure(figsize=size, layout="constrained")
            draw(study, figure)
            for ending in ("png", "svg"):
                path = folder / f"{name}.{ending}"
                with NamedFile(path).replacing() as partial:
                    metadata = {"Date": None} if ending == "svg" else None
                    figure.savefig(partial, dpi=160, metadata=metadata, format=ending)
                written.append(path)
    return written


def _draw_values(study: CliffStudy, figure: Any) -> None:
    tables = ((study.by_epsilon, "epsilon, chance of another action"), (study.by_goal_length, "goal length k, squares"))
    panels = figure.subplots(1, 2, sharey=True)
    for (cases, label), panel in zip(tables, panels, strict=True):
        x = [case.setting for case in cases]
        lines = (
            ("known utility, exact", [case.known for case in cases], _BLUE, "o", "-"),
            ("unknown utility, exact", [case.unknown for case in cases], _GREEN, "s", "-"),
            ("known utility, off by one", [case.off_by_one for case in cases], _GREY, "x", ":"),
            ("known utility, as printed", [case.printed_known for case in cases], _RED, "v", "none"),
            ("unknown utility, as printed", [case.printed_unknown for case in cases], _RED, "^", "none"),
            ("unknown utility, networks", [case.neural for case in cases], _GREEN, "D", "--"),
        )
        if panel is panels[0]:
            panel.axhline(cases[0].bound, color=_BLUE, linestyle="--", linewidth=1, label="most that any policy has")
        for name, values, colour, marker, dash in lines:
            hollow = {"markerfacecolor": "none"} if dash == "none" else {}
            if np.isfinite(values).any():
                panel.plot(x, values, label=name, color=colour, marker=marker, linestyle=dash, markersize=5, **hollow)
        panel.set_xlabel(label)
        panel.set_xticks(x)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e4e7eb")
    panels[0].set_ylabel("MEG, nats")
    panels[0].set_title("Goal length 1", loc="left", fontweight="bold")
    panels[1].set_title("Optimal policies (epsilon 0)", loc="left", fontweight="bold")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _draw_maps(study: CliffStudy, figure: Any) -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Rectangle

    cases = study.by_goal_length
    top = max(float(case.occupancy.max()) for case in cases)
    panels = figure.subplots(2, 2)
    for case, panel in zip(cases, panels.flat, strict=True):
        image = panel.imshow(case.occupancy, cmap="Blues", norm=PowerNorm(0.4, 0, top))
        utility = np.asarray(cliff_world(int(case.setting)).utility).reshape(HEIGHT, WIDTH)
        for (row, col), count in np.ndenumerate(case.occupancy):
            edge = {10.0: "#b8860b", -10.0: _RED}.get(float(utility[row, col]))
            if edge:
                box = Rectangle((col - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor=edge, linewidth=1.8)
                panel.add_patch(box)
            if count >= 0.05:
                ink = "white" if count > 0.3 * top else "#1f2328"
                panel.text(col, row, f"{count:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
        panel.set_title(f"k = {case.setting:.0f}: MEG {case.known:.2f} nats", loc="left", fontweight="bold")
        panel.set_xticks([])
        panel.set_yticks([])
    figure.colorbar(
        image,
        ax=panels,
        shrink=0.8,
        ticks=[0, 0.1, 0.5, 1, 2, 5, 10, 20],
        label=f"expected decisions in the cell, of {HORIZON}",
    )
    figure.suptitle("Optimal policies: gold goal region, red cliff, start at the top left", fontsize=9.5)
