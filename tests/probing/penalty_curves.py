"""The scores of the linear head of cells over its penalties, as an oracle of the penalty that a fit chooses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from goalscope.inside.probing import Features, FitSettings, Problem
from goalscope.inside.probing.fitting import normalisation, validation_rows
from goalscope.inside.probing.heads import normalised
from goalscope.inside.probing.ridge import PENALTIES, ClassPath


def penalty_curve(
    problem: Problem, tested: Features, truth: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return `[P, K]` correlations of prediction and truth on the held-back grids, and on the tested ones."""
    test_problem = Problem(key=problem.key, features=tested, target=truth)
    norm = normalisation(problem.features.vectors)
    held_out = validation_rows(problem.features.cluster, FitSettings())
    parts = []
    for source, rows in ((problem, ~held_out), (problem, held_out), (test_problem, slice(None))):
        arrays = (normalised(source.features.vectors, *norm), source.target.values, source.target.weights)
        vectors, labels, steps = (torch.tensor(array[rows]) for array in arrays)
        parts.append((vectors.double(), labels.long(), steps))
    path = ClassPath(*parts[0], torch.tensor(problem.target.prior))
    held_back, tested_scores = (path.correlations(*part, sorted(PENALTIES)) for part in parts[1:])
    return held_back, tested_scores
