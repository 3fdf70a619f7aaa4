"""Compare the linear probe of cells with the penalised linear classifiers of scikit-learn, on the same split.

    python benchmarks/linear_heads.py [--train 900] [--test 300] [--size 9] [--layer 7] [--cells 16] [--cv] [--work DIR]

Data as in `controls.py`: worlds of one size, the first state of each, the residual stream after one block at the site
`pre`, three tokens side by side, of Theseus and of a random network (the library's default initialisation).

`percell` is one call of the library: one decomposition for all cells and classes, penalties from 1e-9 to 1e4. Beside it
stand, for each cell and class on its own, as a user would write them: standardised inputs, and the penalty that is best
for the class on the same held-back fifth of the training grids, then a fit to all of them:

* `LogisticRegression` (newton-cholesky), C from 1e-4 to 1e12 in decades, the one of highest average precision;
* `RidgeClassifier`, alpha from 1e-6 to 1e6 in decades, likewise;
* with `--cv` also `LogisticRegressionCV`, which chooses C for each cell by its own folds.

Average precision is that of the library's scores: over cells of one grid, the mean over tested grids. A classifier of
one cell gives log-odds; a cell that is always or never of a class in training gets the log-odds of its smoothed
frequency. Times are wall-clock seconds of one thread for all cells and classes, each fit beside its peer in one run.
The peers are fitted to `--cells` of the cells that vary, drawn at random for each class (0: all). All are scored on
these cells alone, and times of peers are scaled up to all cells.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from controls import labels, record, vectors, worlds
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier

from goalscope._ground.rng import stream
from goalscope.agents.models.local import LocalModel
from goalscope.inside.probing import CLASSES, PADDING, Features, FitSettings, ProbeKey, Problem, fit
from goalscope.inside.probing.fitting import validation_rows
from goalscope.inside.probing.scores import rank_scores
from goalscope.stats import estimate_mean

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
SETTINGS = FitSettings()


def precision(scores: Array, truth: Mask) -> Array:
    """Return the average precision of each grid, ``[N]``, from scores and truth of its cells ``[N, C]``."""
    codes = np.repeat(np.arange(len(scores)), scores.shape[1])
    return rank_scores(scores.ravel(), truth.ravel(), codes, len(scores))[1]


def peer(
    build: Callable[[float], Any], penalties: Array, inputs: Array, truth: Mask, held: Mask, tested: Array, varies: Any
) -> tuple[Array, float]:
    """Return scores ``[N, C]`` of tested grids for one class, and the penalty that is best on the held-back grids."""

    def scores(penalty: float, rows: Mask, shown: Array) -> Array:
        often = truth[rows].mean(axis=0)
        found = np.tile(np.log((often + 1e-3) / (1 - often + 1e-3)), (len(shown), 1))
        for cell in varies:
            if 0 < often[cell] < 1:
                found[:, cell] = build(penalty).fit(inputs[rows], truth[rows, cell]).decision_function(shown)
        return found

    best = penalties[0]
    if len(penalties) > 1:
        tried = [np.nanmean(precision(scores(one, ~held, inputs[held]), truth[held])) for one in penalties]
        best = penalties[int(np.argmax(tried))]
    return scores(best, np.ones(len(inputs), dtype=bool), tested), float(best)


def compare(name: str, given: Features, cells: Any, train: Mask, count: int, cross: bool) -> None:
    """Print a line for each class and the times."""
    own, shown = cells.labels[train], cells.labels[~train]
    began = time.perf_counter()
    problem = Problem(key=ProbeKey(head="percell", target="cells"), features=given.where(train), target=own)
    (probe,) = fit([problem], SETTINGS)
    seconds = {"percell": time.perf_counter() - began}
    said = probe.predict(given.where(~train)).natural.astype(np.float64)
    held = validation_rows(given.cluster[train], SETTINGS)
    mean, std = probe.mean.astype(np.float64), probe.std.astype(np.float64)
    scaled = (given.vectors - mean) / np.where(std > 0, std, np.inf)
    peers: dict[str, tuple[Callable[[float], Any], Array]] = {
        "LogisticRegression": (
            lambda one: LogisticRegression(C=one, solver="newton-cholesky"),
            np.logspace(-4, 12, 17),
        ),
        "RidgeClassifier": (lambda one: RidgeClassifier(alpha=one), np.logspace(-6, 6, 13)),
    }
    if cross:
        peers["LogisticRegressionCV"] = (lambda one: LogisticRegressionCV(solver="newton-cholesky"), np.ones(1))
    grids = given.cluster[~train]
    for label in range(PADDING):
        truth = own == label
        varies = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
        used = stream(0, "cells", label).permutation(varies)[: count or None]
        within = np.arange(truth.shape[1]) if not count else used
        mine = precision(said[:, within, label], (shown == label)[:, within])
        row = [name, CLASSES[label], f"{np.nanmean(mine):.3f}"]
        for title, (build, penalties) in peers.items():
            began = time.perf_counter()
            scores, best = peer(build, penalties, scaled[train], truth, held, scaled[~train], used)
            took = (time.perf_counter() - began) * len(varies) / max(len(used), 1)
            seconds[title] = seconds.get(title, 0.0) + took
            other = precision(scores[:, within], (shown == label)[:, within])
            less = estimate_mean(mine - other, grids, unit="average precision")
            row.append(f"{np.nanmean(other):.3f} ({best:g}); {less.value:+.3f} [{less.low:+.3f}, {less.high:+.3f}]")
        print(f"| {' | '.join(row)} |", flush=True)
    ratio = ", ".join(f"{title} {took:.1f} ({took / seconds['percell']:.0f})" for title, took in seconds.items())
    print(f"{name}, seconds (and their ratio to percell): {ratio}", file=sys.stderr, flush=True)


def main() -> None:
    """Capture, fit and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("train", 900), ("test", 300), ("size", 9), ("layer", 7), ("cells", 16), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--cv", action="store_true", help="LogisticRegressionCV, too: ten times as long")
    parser.add_argument("--work", type=Path, help="where states and vectors are kept (a temporary folder)")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        directory = (given.work or Path(folder)) / f"{given.size}-{given.train}-{given.test}-{given.seed}"
        if not directory.exists():
            part = directory.with_suffix(".part")
            record(part, LocalModel("theseus"), worlds(given.size, given.train, given.test, given.seed))
            part.rename(directory)
        titles = ["network", "class", "percell", "LogisticRegression (C); percell less it"]
        titles += ["RidgeClassifier (alpha); percell less it", *(["LogisticRegressionCV"] if given.cv else [])]
        print(f"| {' | '.join(titles)} |\n{'| --- ' * len(titles)}|", flush=True)
        for name, model in (
            ("Theseus", LocalModel("theseus")),
            ("default-init", LocalModel("theseus", untrained=0, random_weights="default-init")),
        ):
            found = vectors(directory, model, given.layer)
            cells, split = labels(directory, found, given.size)
            compare(name, Features.of(found), cells, split.train, given.cells, given.cv)


if __name__ == "__main__":
    main()
