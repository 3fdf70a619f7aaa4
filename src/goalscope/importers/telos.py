"""The authors' layout: a folder of trajectories, grid manifests, tables of metrics and labelled states, or one file.

Source: behavioural and representational evaluation, the authors' public records.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from goalscope.importers.problems import ImportResult, Ledger, files_below, parse_grid
from goalscope.importers.telos_records import METRICS, GridRecord, StateRecord, unread_keys
from goalscope.importers.telos_trajectory import Context, read_trajectory
from goalscope.planning import optimal_actions, shortest_length, solve
from goalscope.runs.record import Episode
from goalscope.untrusted import (
    MOST_LINE_BYTES,
    UntrustedError,
    decode_json,
    decode_line,
    decode_text,
    lines,
    read_octets,
    shorten,
)
from goalscope.worlds import Action, Grid
from goalscope.worlds.dynamics import settle, step

File = tuple[Path, str]
"""A file, and its name relative to what is imported."""


def read_telos(path: str | Path) -> ImportResult:
    """Read a folder or a file in the authors' layout, with every recorded label compared with ours.

    Args:
        path: a folder with ``trajectories/*.json``, ``grids*.jsonl``, tables of metrics and labelled states (any of
            them, at any depth), or one such file.

    Returns:
        The episodes, made while they are taken; problems and counts are complete after the last one.
    """
    ledger = Ledger()
    return ImportResult(
        episodes=telos_episodes(list(files_below(Path(path), ledger)), Context(ledger=ledger)), ledger=ledger
    )


def telos_episodes(files: Sequence[File], context: Context) -> Iterator[Episode]:
    """Read files of the authors' layout, tables first, and yield the episodes of the trajectory files."""
    ledger = context.ledger
    for path, name in files:
        if path.suffix.lower() == ".csv":
            known = _read_metrics(path, name, context)
            ledger.counts["files read" if known else "other files left alone"] += 1
        elif path.suffix.lower() == ".jsonl":
            ledger.counts["files read"] += 1
            _read_grids(path, name, ledger)
        elif path.suffix.lower() != ".json":
            ledger.counts["other files left alone"] += 1
    for path, name in files:
        if path.suffix.lower() == ".json":
            ledger.counts["files read"] += 1
            episode = _read_json(path, name, context)
            if episode is not None:
                yield episode
    if context.table:
        ledger.counts["rows of metrics without an imported trajectory"] += len(context.table)


def holds_grid(value: object) -> bool:
    """Return whether a JSON value looks like a grid of the authors' manifests."""
    return isinstance(value, dict) and "layout" in value and "episode" not in value and "type" not in value


def _read_json(path: Path, name: str, context: Context) -> Episode | None:
    ledger = context.ledger
    with ledger.reporting(name):
        value = decode_json(read_octets(path))
        if isinstance(value, dict) and "grid_layout" in value and "steps" not in value:
            _read_grid({"layout": value["grid_layout"]}, name, "", ledger)
        elif holds_grid(value) and "steps" not in value:
            _read_grid(value, name, "", ledger)
        elif isinstance(value, dict):
            return read_trajectory(value, name, context)
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            _read_states(value, name, ledger)
        else:
            must = "a file must hold a trajectory, a grid, or a list of labelled states"
            raise UntrustedError(must, shorten(value))
    return None


def _read_grids(path: Path, name: str, ledger: Ledger) -> None:
    found = 0
    with ledger.reporting(name), path.open("rb") as stream:
        for number, line in lines(stream):
            found += 1
            place = f"line {number}"
            with ledger.reporting(name, place):
                _read_grid(decode_line(line), name, place, ledger)
        if not found:
            raise UntrustedError("a manifest must hold at least one grid", "an empty file")


def _read_grid(value: object, source: str, place: str, ledger: Ledger) -> None:
    """Check one grid of a manifest: its text, start, goal, path length and fraction of walls against the layout."""
    with ledger.reporting(source, place):
        record = GridRecord.model_validate(value)
        grid = _checked_grid(record)
        ledger.counts["grids"] += 1
        for _ in unread_keys(record):
            ledger.counts["keys not read"] += 1
        length = shortest_length(grid)
        inside = grid.walls[1:-1, 1:-1]
        walls = float(inside.mean()) if inside.size else 0.0
        stored, fraction = record.optimal_path_length, record.observed_wall_fraction
        if stored is not None and not ledger.check("grid path lengths", stored == length):
            ledger.report(source, f"{place} optimal_path_length", f"the shortest path has {length} steps", stored)
        same = fraction is None or math.isclose(fraction, walls, rel_tol=1e-9)
        if fraction is not None and not ledger.check("grid wall fractions", same):
            must = f"{walls!r} of the cells inside the border are walls"
            ledger.report(source, f"{place} observed_wall_fraction", must, fraction)


def _checked_grid(record: GridRecord) -> Grid:
    stated = {"start": (record.start_y, record.start_x), "goal": (record.goal_y, record.goal_x)}
    grid = parse_grid(record.layout, "a layout must be readable", "layout")
    if grid.start is None or grid.goal is None:
        raise UntrustedError("a layout must show agent (A) and goal (G)", "a layout without", "layout")
    for name, cell in stated.items():
        ours = getattr(grid, name)
        if cell != (None, None) and cell != ours:
            on_wall = None not in cell and 0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width and grid.walls[cell]  # type: ignore[operator]
            given = f"x {cell[1]}, y {cell[0]}{', a wall' if on_wall else ''}"
            raise UntrustedError(f"the {name} of the layout is x {ours[1]}, y {ours[0]}", given, f"{name}_x, {name}_y")
    shown = grid if record.grid_text is None else parse_grid(record.grid_text, where="grid_text")
    if shown != grid:
        raise UntrustedError("grid_text must show the layout", "another grid", "grid_text")
    return grid


def _read_metrics(path: Path, source: str, context: Context) -> bool:
    """Read a table of trajectory metrics into the context; return False where the file is some other table."""
    ledger = context.ledger
    with ledger.reporting(source):
        text = decode_text(read_octets(path, MOST_LINE_BYTES))
        if not text.strip():
            raise UntrustedError("a table must have a header", "an empty file")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        try:
            if "trajectory_id" not in (rows.fieldnames or ()):
                if path.name == "recorded_metrics.csv":
                    raise UntrustedError(
                        "the header must name trajectory_id", shorten(text.split("\n", 1)[0]), "line 1"
                    )
                return False
            for row in rows:
                _take_metrics(row, f"line {rows.line_num}", source, context)
        except csv.Error as error:
            raise UntrustedError("a table must be valid CSV", str(error)) from error
    return True


def _take_metrics(row: dict[str, str], place: str, source: str, context: Context) -> None:
    name, cells = row["trajectory_id"], [cell is not None for cell in row.values()]
    if not name or None in row or None in row.values():
        must = f"a row must have {len(row) - (None in row)} cells, the trajectory's id among them"
        context.ledger.report(source, place, must, f"{sum(cells)} cells")
    elif name in context.table:
        context.ledger.report(source, place, "a trajectory must have one row", f"a second one for {name}")
    else:
        known = {key: cell for key, cell in row.items() if key in METRICS}
        context.table[name] = (source, f"{place} {name}", known)


def _read_states(values: Sequence[object], source: str, ledger: Ledger) -> None:
    """Check labelled key-and-door states; they are single states, so no episode comes of them."""
    for index, value in enumerate(values):
        place = f"[{index}]"
        with ledger.reporting(source, place):
            record = StateRecord.model_validate(value)
            _check_state(record, source, place, ledger)
            ledger.counts["labelled states"] += 1
            for _ in unread_keys(record):
                ledger.counts["keys not read"] += 1


def _check_state(record: StateRecord, source: str, place: str, ledger: Ledger) -> None:
    grid = parse_grid(record.grid_text, where="grid_text")
    if grid.start is None or grid.goal is None:
        raise UntrustedError("a grid must show agent (A) and goal (G)", "a grid without", "grid_text")
    if _xy(grid.start) != record.current_position:
        must = f"it must be {_xy(grid.start)} [x, y], where the grid shows the agent"
        raise UntrustedError(must, shorten(record.current_position), "current_position")
    try:
        here = settle(grid, grid.start, record.carrying_key)
        right = sorted(action.name for action in optimal_actions(grid, grid.start, record.carrying_key))
    except ValueError as error:
        raise UntrustedError("the state must be allowed by the rules", str(error), "grid_text") from error
    paths = solve(grid)
    compared: list[tuple[str, str, object, object]] = [
        ("optimal-action labels of states", "optimal_actions", right, sorted(record.optimal_actions)),
        ("distances of states", "current_optimal_distance", paths.steps_from(here), record.current_optimal_distance),
    ]
    if record.observed_action is not None:
        try:
            action = Action[record.observed_action.upper()]
        except KeyError as error:
            must = "an action must be UP, DOWN, LEFT or RIGHT"
            raise UntrustedError(must, shorten(record.observed_action), "observed_action") from error
        after = step(grid, here, action)
        left = paths.steps_from(after)
        compared += [
            ("next positions of states", "next_position", _xy(after.position), record.next_position),
            ("next distances of states", "next_optimal_distance", left, record.next_optimal_distance),
            ("is-optimal labels of states", "is_optimal_action", action.name in right, record.is_optimal_action),
            ("wall hits of states", "wall_hit", after.position == here.position, record.wall_hit),
        ]
    for name, key, ours, given in compared:
        if given is not None and not ledger.check(name, ours == given):
            ledger.report(source, f"{place}.{key}", f"it must be {shorten(ours)}", shorten(given))
    legacy = record.legacy_optimal_actions
    if legacy is not None:
        # The authors' corrected labels say where their older, door-blind ones were wrong: we must say the same.
        wrong = sorted(legacy) != sorted(record.optimal_actions)
        ledger.counts["legacy labels that the file corrects"] += wrong
        # Where they disagree the corrected labels are wrong, which was reported above.
        ledger.check("corrections of legacy labels", wrong == (sorted(legacy) != right))


def _xy(position: tuple[int, int]) -> list[int]:
    return [position[1], position[0]]
