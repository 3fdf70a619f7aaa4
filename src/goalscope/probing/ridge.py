"""Penalised linear heads in closed form: one decomposition of the inputs gives the fits of all penalties and targets.

A fit is the minimum of ``sum_n w_n |y_n - x_n W - b|^2 + penalty |W|^2`` over N steps whose weights ``w`` add up to 1,
the steps of one grid as much as those of another; ``b`` has no penalty. With rows ``sqrt(w_n) (x_n - mean)`` in X and
those of the targets in Y, ``X'X = Q diag(d) Q'`` gives ``W = Q diag(1 / (d + penalty)) Q'X'Y``; with fewer steps than
inputs ``XX' = U diag(d) U'`` gives the same as ``W = X'U diag(1 / (d + penalty)) U'Y``.

The penalty is chosen on grids that are held back, then all steps are fitted with it. For numbers it is the one of least
squared error. For classes (indicators, one against the rest) it is one for each class: that of the highest correlation
of what is predicted with what is true, over all cells, each in units of its own spread. Squared error of indicators
would shrink a rare class until its ranking suffers. Of penalties that are equally good the strongest one is taken.

Classes are then calibrated on the same grids. With ``f`` the (smoothed) frequency of class k in a cell among the
training grids and ``z`` its deviation from that by the linear map over ``sqrt(f (1 - f))``, scaled to a mean square of
1, the log-probabilities are

    ``slope_k z + weight_k log f + offset_k``      slope_k >= 0.01

up to the normalisation: multinomial logistic regression with three numbers a class, a standard normal prior at (0, 1,
0), Newton's method. All of it is linear in the inputs, so that it is written as weights and biases of the head. Where
nothing is found the frequencies alone speak; the least slope orders cells that are equally frequent, as average
precision would count a tie as a miss.

Source: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, sections 3.4.1 and 4.2, exercise 18.4;
Platt 1999, Probabilistic outputs for support vector machines (calibration on held-back predictions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.probing.heads import Solution

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[np.float64]
PENALTIES: Final = tuple(float(10 ** (step / 2)) for step in range(-18, 9))
"""Penalties that are tried, in units of one standardised input: half decades from 1e-9 to 1e4."""
_EQUAL: Final = 1e-4  # relative difference of two criteria that counts as none
_ROUNDING: Final = 1e-13  # eigenvalues below this share of the largest one are rounding
_TINY: Final = 1e-30  # stands for frequencies of 0
_LEAST_SLOPE: Final = 0.01  # logits for each standard deviation
_MOST_STEPS: Final = 50  # of Newton's method


class RidgePath:
    """The fits of all penalties to N steps.

    Args:
        vectors: ``[N, F]`` float64 inputs.
        targets: ``[N, T]`` float64, what each of T outputs is to predict.
        steps: ``[N]`` float64 weights of the steps, in any unit.
    """

    def __init__(self, vectors: Tensor, targets: Tensor, steps: Tensor) -> None:
        import torch

        share = (steps / steps.sum())[:, None]
        self.mean, self.level = (share * vectors).sum(dim=0), (share * targets).sum(dim=0)
        given, wanted = share.sqrt() * (vectors - self.mean), share.sqrt() * (targets - self.level)
        if given.shape[1] <= given.shape[0]:
            values, self._basis = torch.linalg.eigh(given.T @ given)
            self._along = self._basis.T @ (given.T @ wanted)
        else:
            values, left = torch.linalg.eigh(given @ given.T)
            self._basis, self._along = given.T @ left, left.T @ wanted
        self._values = values.clamp(min=0)
        # A little above 0, so that inputs which do not vary or repeat one another have a solution.
        self._least = max(float(values.max()) * _ROUNDING, np.finfo(np.float64).tiny)

    def _shrunk(self, penalty: Any) -> Tensor:
        """Return ``[R, T]`` weights in the coordinates of the decomposition; penalties are one or ``[T]``."""
        import torch

        floor = torch.as_tensor(penalty, dtype=torch.float64, device=self._values.device).clamp(min=self._least)
        found: Tensor = self._along / (self._values[:, None] + floor)
        return found

    def weights(self, penalty: Any) -> Tensor:
        """Return the weights ``[F, T]`` for one penalty, or one of each output ``[T]``."""
        found: Tensor = self._basis @ self._shrunk(penalty)
        return found

    def deviations(self, vectors: Tensor, penalties: Sequence[Any]) -> Iterator[Tensor]:
        """Yield by how much other steps ``[M, F]`` lie above the mean of each target, ``[M, T]`` for each penalty."""
        inside = (vectors - self.mean) @ self._basis
        for penalty in penalties:
            yield inside @ self._shrunk(penalty)


def solve_numbers(vectors: Tensor, target: Any, penalties: Sequence[float], held: npt.NDArray[np.bool_]) -> Solution:
    """Return the linear map to numbers: the penalty with the least squared error on held-back steps, fitted to all.

    Args:
        vectors: ``[N, F]`` normalised inputs.
        target: N numbers, see `goalscope.probing.problem`.
        penalties: those that are tried; of a single one nothing is chosen.
        held: ``[N]`` which steps choose.
    """
    import torch

    given, steps = vectors.double(), torch.tensor(target.weights, device=vectors.device)
    wanted = torch.tensor(target.scaled, dtype=torch.float64, device=vectors.device).reshape(len(given), -1)
    tried, at = sorted(penalties), 0
    if len(tried) > 1:
        inner, checked = _parts(held, vectors)
        path = RidgePath(given[inner], wanted[inner], steps[inner])
        apart = wanted[checked] - path.level
        error = [
            float((steps[checked, None] * (apart - one).square()).sum())
            for one in path.deviations(given[checked], tried)
        ]
        at = _strongest(-np.array(error))
    path = RidgePath(given, wanted, steps)
    act = path.weights(tried[at])
    tags = {"penalty": tried[at], "penalty at an end": len(tried) > 1 and at in (0, len(tried) - 1)}
    return Solution(weights=_folded(act, path.level, path.mean), tags=tags)


class ClassPath:
    """The path of the indicators of classes in cells, and how frequent they are.

    Args:
        vectors: ``[N, F]`` float64 inputs.
        labels: ``[N, C]`` int64 classes.
        steps: ``[N]`` float64 weights, one a grid in all.
        prior: ``[K]`` frequencies of the classes, of which half a grid is added to every cell.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, steps: Tensor, prior: Tensor) -> None:
        import torch

        indicators = torch.nn.functional.one_hot(labels, len(prior)).double()
        self.path, grids = RidgePath(vectors, indicators.flatten(1), steps), steps.sum()
        self.level = self.path.level.view(-1, len(prior))
        self.often = (grids * self.level + 0.5 * prior) / (grids + 0.5)
        self.spread = (self.often * (1 - self.often)).sqrt().clamp(min=_TINY)
        # Cells that are the same in all these steps tell nothing.
        self.varied = torch.nonzero(self.level.max(dim=1).values < 1 - 1e-12)[:, 0]

    def deviations(self, vectors: Tensor, penalties: Sequence[Any]) -> Iterator[Tensor]:
        """Yield the deviations z of other steps in the cells that vary, ``[M, varied, K]`` for each penalty."""
        for one in self.path.deviations(vectors, penalties):
            yield (one.view(len(one), *self.level.shape) / self.spread)[:, self.varied]

    def correlations(self, vectors: Tensor, labels: Tensor, steps: Tensor, penalties: Sequence[float]) -> Array:
        """Return the correlation of z with what is true at other steps, ``[P, K]``; 0 where either does not vary."""
        import torch

        indicators = torch.nn.functional.one_hot(labels, self.level.shape[1]).double()
        true, weight = ((indicators - self.level) / self.spread)[:, self.varied], steps[:, None, None]
        size, found = (weight * true.square()).sum(dim=(0, 1)).sqrt(), []
        for one in self.deviations(vectors, penalties):
            below = (weight * one.square()).sum(dim=(0, 1)).sqrt() * size
            found.append(torch.where(below > 0, (weight * one * true).sum(dim=(0, 1)) / below, 0.0))
        correlations: Array = torch.stack(found).cpu().numpy()
        return correlations


def solve_classes(vectors: Tensor, target: Any, penalties: Sequence[float], held: npt.NDArray[np.bool_]) -> Solution:
    """Return calibrated linear scores of classes: a penalty for each class, chosen on held-back steps, fitted to all.

    Args:
        vectors: ``[N, F]`` normalised inputs.
        target: ``[N, C]`` classes, see `goalscope.probing.problem`.
        penalties: those that are tried.
        held: ``[N]`` which steps choose and calibrate; some, but not all.

    Returns:
        weights ``act`` ``[F, C K]`` and ``bias`` ``[C K]`` of scores to which the log of the prior is added, and as
        tags the penalty of each class that occurs, and those at an end of what was tried.
    """
    import torch

    inner, checked = _parts(held, vectors)
    given, steps = vectors.double(), torch.tensor(target.weights, device=vectors.device)
    labels = torch.tensor(target.values, device=vectors.device).long()
    tried, prior = sorted(penalties), torch.tensor(target.prior, device=vectors.device)
    part = ClassPath(given[inner], labels[inner], steps[inner], prior)
    correlations = part.correlations(given[checked], labels[checked], steps[checked], tried)
    places = [_strongest(column) for column in correlations.T]
    each = torch.tensor([tried[place] for place in places], device=vectors.device, dtype=torch.float64)
    chosen = each.repeat(len(part.level))
    (scores,) = part.deviations(given[checked], [chosen])
    size = scores.square().mean(dim=(0, 1)).sqrt() if len(part.varied) else torch.zeros_like(prior)
    size = torch.where(size > 0, size, 1.0)
    fit = calibrate(
        (scores / size).cpu().numpy(),
        part.often[part.varied].log().cpu().numpy(),
        labels[checked][:, part.varied].cpu().numpy(),
        steps[checked].cpu().numpy(),
    )
    slope, weight, offset = torch.as_tensor(fit, device=vectors.device)
    whole = ClassPath(given, labels, steps, prior)
    act = whole.path.weights(chosen) * (slope / size / whole.spread).flatten()
    bias = weight * whole.often.clamp(min=_TINY).log() + offset
    seen = prior > 0
    bias = torch.where(seen, bias - prior.clamp(min=_TINY).log(), 0.0).flatten()
    act = torch.where(seen.repeat(len(whole.level)), act, 0.0)
    named = [(name, place) for name, place, there in zip(target.NAMES, places, seen.tolist(), strict=True) if there]
    tags: dict[str, Any] = {f"penalty {name}": tried[place] for name, place in named}
    ends = [name for name, place in named if place in (0, len(tried) - 1) and len(tried) > 1]
    return Solution(weights=_folded(act, bias, whole.path.mean), tags={**tags, "penalty at an end": ", ".join(ends)})


def calibrate(scores: Array, log_often: Array, labels: npt.NDArray[np.int64], steps: npt.NDArray[np.float64]) -> Array:
    """Return slope, weight and offset of each class, ``[3, K]``.

    The minimum over them of the sum over steps and cells of the negative log-likelihood (nats) of ``slope_k z +
    weight_k log f + offset_k``, plus half the squared distance of these numbers to (0, 1, 0), with slopes of at least
    0.01. The function is convex: Newton's method with a line search; a slope that ends below is fixed there, and the
    others are fitted again.

    Args:
        scores: ``[M, C, K]`` z, predictions for steps that were not fitted.
        log_often: ``[C, K]`` log f, -inf for a class that occurs nowhere.
        labels: ``[M, C]`` the true classes.
        steps: ``[M]`` weights of the steps, one a grid in all.
    """
    classes = log_often.shape[1]
    there = np.isfinite(log_often).all(axis=0)
    level = np.broadcast_to(np.where(there, log_often, 0.0), scores.shape)
    inputs = np.stack([scores, level, np.ones_like(scores)], axis=2).reshape(-1, 3, classes)[..., there]
    place = np.cumsum(there) - 1
    true, weight = place[labels.ravel()], np.repeat(steps, labels.shape[1])
    start = np.repeat([[0.0], [1.0], [0.0]], int(there.sum()), axis=1)
    free, found = np.ones(start.shape, dtype=bool), start.copy()
    while True:
        found = _newton(inputs, true, weight, start, found, free)
        below = (found[0] < _LEAST_SLOPE) & free[0]
        if not below.any():
            break
        free[0] &= ~below
        found[0, below] = _LEAST_SLOPE
    full = np.zeros((3, classes))
    full[:, there] = found
    return full


def _newton(
    inputs: Array, true: npt.NDArray[np.int64], weight: Array, start: Array, found: Array, free: npt.NDArray[np.bool_]
) -> Array:
    """Return the minimum over the free parameters ``[3, K]``, from inputs ``[R, 3, K]`` and classes ``[R]``."""
    rows, classes = np.arange(len(true)), found.shape[1]
    moves, flat = np.flatnonzero(free.ravel()), inputs.reshape(len(inputs), found.size)

    def loss(at: Array) -> tuple[float, Array]:
        logits = np.einsum("rjk,jk->rk", inputs, at)
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        total = chances.sum(axis=1, keepdims=True)
        chances /= total
        nll = weight @ (np.log(total[:, 0]) - logits[rows, true])
        return float(nll + 0.5 * ((at - start) ** 2).sum()), chances

    value, chances = loss(found)
    for _ in range(_MOST_STEPS):
        apart = chances.copy()
        apart[rows, true] -= 1
        gradient = np.einsum("rjk,rk->jk", inputs, weight[:, None] * apart) + found - start
        # Hessian: sum_r w_r (diag(p) - p p') with the inputs of each class, and the prior's 1.
        spread = (inputs * chances[:, None]).reshape(flat.shape)
        hessian = -(weight[:, None] * spread).T @ spread + np.eye(flat.shape[1])
        own = np.einsum("rik,rjk->ijk", inputs, inputs * (weight[:, None] * chances)[:, None])
        for one in range(classes):
            at = np.arange(3) * classes + one
            hessian[np.ix_(at, at)] += own[:, :, one]
        step = np.zeros(found.size)
        step[moves] = -np.linalg.solve(hessian[np.ix_(moves, moves)], gradient.ravel()[moves])
        slope, length = float(gradient.ravel() @ step), 1.0
        if -slope < 1e-9 * max(1.0, abs(value)):
            break
        while length > 1e-6:
            tried = found + length * step.reshape(found.shape)
            now, its = loss(tried)
            if now <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break
        found, value, chances = tried, now, its
    return found


def _strongest(criterion: Array) -> int:
    """Return the place of the best criterion of rising penalties, of equally good ones the last."""
    best = float(np.max(criterion))
    return int(np.flatnonzero(criterion >= best - _EQUAL * abs(best))[-1])


def _parts(held: npt.NDArray[np.bool_], vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the steps that are fitted and those that choose, as indices."""
    import torch

    inner, checked = (torch.as_tensor(np.flatnonzero(part), device=vectors.device) for part in (~held, held))
    return inner, checked


def _folded(act: Tensor, level: Tensor, mean: Tensor) -> dict[str, npt.NDArray[np.float32]]:
    """Return weights ``[F, T]`` of inputs less their mean, and levels ``[T]``, as those of a linear head."""
    bias = level - mean @ act
    return {name: one.cpu().numpy().astype(np.float32) for name, one in (("act", act), ("bias", bias))}
