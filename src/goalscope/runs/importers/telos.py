"""Files of the TELOS authors other than trajectories: grid manifests, tables of metrics, labelled states.

Source: behavioural and representational evaluation, the authors' public records.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import MOST_LINE_BYTES, UntrustedError, decode_json, decode_text, shorten
from goalscope.runs.importers.problems import Context, ImportLog, log_lines, parse_grid
from goalscope.runs.importers.telos_trajectory import METRICS, Pair, Record, read_trajectory, unread_keys
from goalscope.runs.record import Episode
from goalscope.worlds import Action, Grid
from goalscope.worlds.dynamics import settle, step
from goalscope.worlds.planning import optimal_actions, shortest_length, solve


class GridRecord(Record):
    """One line of a grid manifest. Coordinates are x (column) and y (row)."""

    layout: list[list[str]]
    grid_text: str | None = None
    grid_id: str | None = None
    start_x: int | None = None
    start_y: int | None = None
    goal_x: int | None = None
    goal_y: int | None = None
    optimal_path_length: int | None = None
    observed_wall_fraction: float | None = None


class StateRecord(Record):
    """A state in a recorded key-and-door trajectory, with the recorded optimal moves. Positions are [x, y]."""

    example_id: str | None = None
    step_index: int | None = None
    grid_text: str
    carrying_key: bool
    observed_action: str | None = None
    optimal_actions: list[str]
    legacy_optimal_actions: list[str] | None = None
    is_optimal_action: bool | None = None
    wall_hit: bool | None = None
    current_position: Pair
    next_position: Pair | None = None
    current_optimal_distance: int | None = None
    next_optimal_distance: int | None = None


def holds_grid(value: object) -> bool:
    """Return whether a JSON value has the keys of a grid in the authors' manifests."""
    return isinstance(value, dict) and "layout" in value and "episode" not in value and "type" not in value


def read_json(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Yield the episode of a trajectory file. A file with a grid or labelled states is only checked."""
    ledger = context.ledger
    ledger.counts["files read"] += 1
    with ledger.reporting(name):
        value = decode_json(NamedFile(path).load_bytes())
        if isinstance(value, dict) and "steps" not in value and ("grid_layout" in value or holds_grid(value)):
            grid = {"layout": value["grid_layout"]} if "grid_layout" in value else value
            _check_grid(GridRecord.model_validate(grid), name, "", ledger)
        elif isinstance(value, dict):
            episode = read_trajectory(value, name, context)
            if episode is not None:
                yield episode
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            # The file contains single states and no episode.
            for index, item in enumerate(value):
                with ledger.reporting(name, f"[{index}]"):
                    _check_state(StateRecord.model_validate(item), name, f"[{index}]", ledger)
        else:
            must = "a file must hold a trajectory, a grid, or a list of labelled states"
            raise UntrustedError(must, shorten(value))


def read_manifest(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Check the grids of a manifest, which has one grid per line and no episodes."""
    ledger = context.ledger
    ledger.counts["files read"] += 1
    with ledger.reporting(name), NamedFile(path).open_file() as stream:
        for line in log_lines(stream, name, ledger, lambda _: GridRecord):
            position = f"line {line.number}"
            with ledger.reporting(name, position):
                if line.record is not None:
                    _check_grid(line.record, name, position, ledger)
    yield from ()


def _check_grid(record: GridRecord, source: str, position: str, ledger: ImportLog) -> None:
    """Compare one grid of a manifest (text, start, goal, path length, fraction of walls) with its layout."""
    grid = parse_grid(record.layout, "a layout must be readable", "layout")
    start, goal = _start_and_goal(grid, "layout")
    for name, symbol_cell, cell in (
        ("start", start, (record.start_y, record.start_x)),
        ("goal", goal, (record.goal_y, record.goal_x)),
    ):
        if cell != (None, None) and cell != symbol_cell:
            on_wall = None not in cell and 0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width and grid.walls[cell]  # type: ignore[operator]
            recorded_cell = f"x {cell[1]}, y {cell[0]}{', a wall' if on_wall else ''}"
            must = f"the {name} of the layout is x {symbol_cell[1]}, y {symbol_cell[0]}"
            raise UntrustedError(must, recorded_cell, f"{name}_x, {name}_y")
    if record.grid_text is not None and parse_grid(record.grid_text, where="grid_text") != grid:
        raise UntrustedError("grid_text must show the layout", "another grid", "grid_text")
    _count(record, "grids", ledger)
    length, interior = shortest_length(grid), grid.walls[1:-1, 1:-1]
    walls = float(interior.mean()) if interior.size else 0.0
    stored, must = record.optimal_path_length, f"the shortest path has {length} steps"
    ledger.compare("grid path lengths", stored, length, source, f"{position} optimal_path_length", must)
    fraction, must = record.observed_wall_fraction, f"{walls!r} of the cells inside the border are walls"
    ledger.compare("grid wall fractions", fraction, walls, source, f"{position} observed_wall_fraction", must)


def read_metrics(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Keep a table of trajectory metrics in the context; skip other tables."""
    ledger, is_other_table = context.ledger, False
    with ledger.reporting(name):
        text = decode_text(NamedFile(path).load_bytes(MOST_LINE_BYTES))
        if not text.strip():
            raise UntrustedError("a table must have a header", "an empty file")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        try:
            has_ids = "trajectory_id" in (rows.fieldnames or ())
            if not has_ids and path.name == "recorded_metrics.csv":
                first_line = shorten(text.split("\n", 1)[0])
                raise UntrustedError("the header must name trajectory_id", first_line, "line 1")
            is_other_table = not has_ids
            for row in rows if has_ids else ():
                _store_metrics(row, name, f"line {rows.line_num}", context)
        except csv.Error as error:
            raise UntrustedError("a table must be valid CSV", str(error)) from error
    ledger.counts["other files left alone" if is_other_table else "files read"] += 1
    yield from ()


def _store_metrics(row: dict[str, Any], source: str, position: str, context: Context) -> None:
    name, filled = row["trajectory_id"], [cell is not None for cell in row.values()]
    if not name or None in row or not all(filled):
        must = f"a row must have {len(row) - (None in row)} cells, the trajectory's id among them"
        context.ledger.report(source, position, must, f"{sum(filled)} cells")
    elif name in context.metrics:
        context.ledger.report(source, position, "a trajectory must have one row", f"a second one for {name}")
    else:
        context.metrics[name] = (source, f"{position} {name}", {key: row[key] for key in METRICS if key in row})


def _check_state(record: StateRecord, source: str, position: str, ledger: ImportLog) -> None:
    """Check a labelled key-and-door state: its position, and the labels for its optimal actions and next state."""
    grid = parse_grid(record.grid_text, where="grid_text")
    start, _ = _start_and_goal(grid, "grid_text")
    if _xy(start) != record.current_position:
        must = f"it must be {_xy(start)} [x, y], where the grid shows the agent"
        raise UntrustedError(must, shorten(record.current_position), "current_position")
    try:
        world_here = settle(grid, start, record.carrying_key)
        expected = sorted(action.name for action in optimal_actions(grid, start, record.carrying_key))
    except ValueError as error:
        raise UntrustedError("the state must be allowed by the rules", str(error), "grid_text") from error
    paths, labels = solve(grid), sorted(record.optimal_actions)
    comparisons: list[tuple[str, str, object, object]] = [
        ("optimal-action labels of states", "optimal_actions", labels, expected),
        (
            "distances of states",
            "current_optimal_distance",
            record.current_optimal_distance,
            paths.steps_from(world_here),
        ),
    ]
    if record.observed_action is not None:
        name = record.observed_action.upper()
        if name not in Action.__members__:
            must = "an action must be UP, DOWN, LEFT or RIGHT"
            raise UntrustedError(must, shorten(record.observed_action), "observed_action")
        after = step(grid, world_here, Action[name])
        distance, hit_wall = paths.steps_from(after), after.position == world_here.position
        comparisons += [
            ("next positions of states", "next_position", record.next_position, _xy(after.position)),
            ("next distances of states", "next_optimal_distance", record.next_optimal_distance, distance),
            ("is-optimal labels of states", "is_optimal_action", record.is_optimal_action, name in expected),
            ("wall hits of states", "wall_hit", record.wall_hit, hit_wall),
        ]
    for name, key, recorded, computed in comparisons:
        ledger.compare(name, recorded, computed, source, f"{position}.{key}")
    legacy = record.legacy_optimal_actions
    if legacy is not None:
        # The corrected labels in the file replace older ones that ignored doors; the computed labels must agree.
        corrected = sorted(legacy) != labels
        ledger.counts["legacy labels that the file corrects"] += corrected
        # Where they disagree, the corrected labels are wrong, which was reported above.
        ledger.check("corrections of legacy labels", corrected == (sorted(legacy) != expected))
    _count(record, "labelled states", ledger)


def _count(record: Record, name: str, ledger: ImportLog) -> None:
    ledger.counts[name] += 1
    if unread := unread_keys(record):
        ledger.counts["keys not read"] += unread


def _start_and_goal(grid: Grid, where: str) -> tuple[tuple[int, int], tuple[int, int]]:
    if grid.start is None or grid.goal is None:
        raise UntrustedError("a grid must show agent (A) and goal (G)", "a grid without", where)
    return grid.start, grid.goal


def _xy(position: tuple[int, int]) -> list[int]:
    return [position[1], position[0]]
