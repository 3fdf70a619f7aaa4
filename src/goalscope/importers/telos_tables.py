"""The authors' other files: grid manifests, tables of trajectory metrics, labelled key-and-door states."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from goalscope.importers.problems import Ledger
from goalscope.importers.reading import MOST_LINE_BYTES, UnreadableError, parse_grid, report_validation, show
from goalscope.importers.telos_records import METRICS, GridRecord, StateRecord, unread_keys
from goalscope.importers.telos_trajectory import Context
from goalscope.planning import optimal_actions, shortest_length, solve
from goalscope.worlds import Action, Grid
from goalscope.worlds.dynamics import settle, step


def read_grid(value: object, source: str, place: str, ledger: Ledger) -> Grid | None:
    """Check one grid of a manifest: its text, start, goal, path length and share of walls against the layout."""
    try:
        record = GridRecord.model_validate(value)
        grid = _checked_grid(record)
    except ValidationError as error:
        report_validation(ledger, source, place, error, ())
        return None
    except UnreadableError as error:
        ledger.report(source, f"{place} {error.where}".strip(), error.must, error.given)
        return None
    ledger.counts["grids"] += 1
    for _ in unread_keys(record):
        ledger.counts["keys not read"] += 1
    length = shortest_length(grid)
    inside = grid.walls[1:-1, 1:-1]
    walls = float(inside.mean()) if inside.size else 0.0
    stored, share = record.optimal_path_length, record.observed_wall_fraction
    if stored is not None and not ledger.check("grid path lengths", stored == length):
        ledger.report(source, f"{place} optimal_path_length", f"the shortest path has {length} steps", stored)
    if share is not None and not ledger.check("grid wall fractions", math.isclose(share, walls, rel_tol=1e-9)):
        must = f"{walls!r} of the cells inside the border are walls"
        ledger.report(source, f"{place} observed_wall_fraction", must, share)
    return grid


def _checked_grid(record: GridRecord) -> Grid:
    stated = {"start": (record.start_y, record.start_x), "goal": (record.goal_y, record.goal_x)}
    try:
        grid = parse_grid(record.layout)
    except ValueError as error:
        raise UnreadableError("a layout must be readable", str(error), "layout") from error
    if grid.start is None or grid.goal is None:
        raise UnreadableError("a layout must show agent (A) and goal (G)", "a layout without", "layout")
    for name, cell in stated.items():
        ours = getattr(grid, name)
        if cell != (None, None) and cell != ours:
            on_wall = None not in cell and 0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width and grid.walls[cell]  # type: ignore[operator]
            given = f"x {cell[1]}, y {cell[0]}{', a wall' if on_wall else ''}"
            raise UnreadableError(f"the {name} of the layout is x {ours[1]}, y {ours[0]}", given, f"{name}_x, {name}_y")
    if record.grid_text is not None:
        try:
            same = parse_grid(record.grid_text) == grid
        except ValueError as error:
            raise UnreadableError("grid_text must be readable", str(error), "grid_text") from error
        if not same:
            raise UnreadableError("grid_text must show the layout", "another grid", "grid_text")
    return grid


def read_metrics(path: Path, source: str, context: Context) -> bool:
    """Read a table of trajectory metrics into the context; return False where the file is some other table."""
    ledger = context.ledger
    try:
        with path.open("rb") as stream:
            octets = stream.read(MOST_LINE_BYTES + 1)
        if len(octets) > MOST_LINE_BYTES:
            raise UnreadableError(f"a table must have at most {MOST_LINE_BYTES} bytes", "a larger one")
        text = octets.decode("utf-8-sig")
        if not text.strip():
            raise UnreadableError("a table must have a header", "an empty file")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if "trajectory_id" not in (rows.fieldnames or ()):
            if path.name == "recorded_metrics.csv":
                raise UnreadableError("the header must name trajectory_id", show(text.split("\n", 1)[0]), "line 1")
            return False
        for row in rows:
            place = f"line {rows.line_num}"
            name = row["trajectory_id"]
            if not name or None in row or None in row.values():
                must = f"a row must have {len(rows.fieldnames or ())} cells, the trajectory's id among them"
                ledger.report(source, place, must, f"{sum(cell is not None for cell in row.values())} cells")
            elif name in context.table:
                ledger.report(source, place, "a trajectory must have one row", f"a second one for {name}")
            else:
                known = {key: cell for key, cell in row.items() if key in METRICS}
                context.table[name] = (source, f"{place} {name}", known)
    except OSError as error:
        ledger.report(source, "", "a file must be readable", error.strerror or error)
    except UnicodeDecodeError as error:
        ledger.report(source, "", "text must be UTF-8", f"byte 0x{error.object[error.start]:02x} at {error.start}")
    except csv.Error as error:
        ledger.report(source, "", "a table must be valid CSV", error)
    except UnreadableError as error:
        ledger.report(source, error.where, error.must, error.given)
    return True


def read_states(values: Sequence[object], source: str, ledger: Ledger) -> None:
    """Check labelled key-and-door states; they are single states, so no episode comes of them."""
    for index, value in enumerate(values):
        place = f"[{index}]"
        try:
            record = StateRecord.model_validate(value)
            _check_state(record, source, place, ledger)
        except ValidationError as error:
            report_validation(ledger, source, place, error, ())
        except UnreadableError as error:
            ledger.report(source, f"{place}.{error.where}" if error.where else place, error.must, error.given)
        else:
            ledger.counts["labelled states"] += 1
            for _ in unread_keys(record):
                ledger.counts["keys not read"] += 1


def _check_state(record: StateRecord, source: str, place: str, ledger: Ledger) -> None:
    try:
        grid = parse_grid(record.grid_text)
    except ValueError as error:
        raise UnreadableError("a grid must be readable", str(error).split("\n", 1)[0], "grid_text") from error
    if grid.start is None or grid.goal is None:
        raise UnreadableError("a grid must show agent (A) and goal (G)", "a grid without", "grid_text")
    if _xy(grid.start) != record.current_position:
        must = f"it must be {_xy(grid.start)} [x, y], where the grid shows the agent"
        raise UnreadableError(must, show(record.current_position), "current_position")
    try:
        here = settle(grid, grid.start, record.carrying_key)
        right = sorted(action.name for action in optimal_actions(grid, grid.start, record.carrying_key))
    except ValueError as error:
        raise UnreadableError("the state must be allowed by the rules", str(error), "grid_text") from error
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
            raise UnreadableError(must, show(record.observed_action), "observed_action") from error
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
            ledger.report(source, f"{place}.{key}", f"it must be {show(ours)}", show(given))
    legacy = record.legacy_optimal_actions
    if legacy is not None:
        # The authors' corrected labels say where their older, door-blind ones were wrong: we must say the same.
        wrong = sorted(legacy) != sorted(record.optimal_actions)
        ledger.counts["legacy labels that the file corrects"] += wrong
        # Where they disagree the corrected labels are wrong, which was reported above.
        ledger.check("corrections of legacy labels", wrong == (sorted(legacy) != right))


def _xy(position: tuple[int, int]) -> list[int]:
    return [position[1], position[0]]
