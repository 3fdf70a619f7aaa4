"""`goalscope cliff-world`: both experiments of the paper that defines MEG, exact and as printed."""

import math
from collections.abc import Sequence
from pathlib import Path

from goalscope.cli.console import progress, say, table
from goalscope.studies.cliff_figures import write_figures, write_json
from goalscope.studies.cliff_world import CliffCase, cliff_study

_NOTES = """\
known, unknown: exact MEG in nats, towards the world's utility and towards the best utility of states.
off by one: known-utility MEG with occupancies of horizon + 1 states against a backup over horizon states: not MEG, \
but where the printed 37.8 and 16.8 come from.
x 10: the printed known-utility column over epsilon is smaller than the exact one by a factor of ten throughout.
true ties: the exact value where actions that are equally good count as equal, not told apart by rounding errors.
Explained in docs/cliff-world.md."""


def cliff(out: Path, networks: int, *, figures: bool) -> None:
    """Compute the study, print its tables, write them as JSON and the figures.

    Raises:
        ImportError: matplotlib is missing for the figures, or PyTorch for the networks.
        OSError: the folder cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with progress("Cliff World") as show:
        study = cliff_study(neural_seeds=networks, progress=show)
    _table("epsilon", study.by_epsilon, title="Goal length 1: MEG (nats) against epsilon", scale=10)
    _table("k", study.by_goal_length, title="Optimal policies: MEG (nats) against the length k of the goal region")
    say(_NOTES)
    written = [out / "cliff-world.json"]
    write_json(study, written[0])
    if figures:
        written += write_figures(study, out)
    say("written: " + ", ".join(map(str, written)))


def _table(name: str, cases: Sequence[CliffCase], *, title: str, scale: int = 1) -> None:
    networks = any(math.isfinite(case.neural) for case in cases)
    columns = [name, "known", "beta", "true ties", "off by one", "printed"]
    columns += [f"x {scale}"] if scale != 1 else []
    columns += ["unknown"] + (["networks", "sd"] if networks else []) + ["printed", "bound", "utility", "uniform"]
    rows = []
    for case in cases:
        row = [f"{case.setting:g}", f"{case.known:.4f}", f"{case.beta:.4f}", f"{case.known_true_ties:.4f}"]
        row += [f"{case.off_by_one:.4f}", f"{case.printed_known:g}"]
        row += [f"{scale * case.printed_known:g}"] if scale != 1 else []
        row += [f"{case.unknown:.4f}"]
        row += [f"{case.neural:.4f}", f"{case.neural_spread:.2g}"] if networks else []
        row += [f"{case.printed_unknown:g} ± {case.printed_spread:g}", f"{case.bound:.4f}"]
        row += [f"{case.utility:.3f}", f"{case.uniform:.3f}"]
        rows.append(row)
    table(columns, rows, title=title, numbers=range(len(columns)))
