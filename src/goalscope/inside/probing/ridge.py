"""Ridge-penalised linear heads in closed form, where one decomposition gives the fits for all penalties and targets.

A fit is the minimum of ``sum_n w_n |y_n - x_n W - b|^2 + penalty |W|^2`` over N steps whose weights ``w`` sum to 1,
with the same total weight per grid; ``b`` has no penalty. With rows ``sqrt(w_n) (x_n - mean)`` in X and those of the
targets in Y, ``X'X = Q diag(d) Q'`` gives ``W = Q diag(1 / (d + penalty)) Q'X'Y``; with fewer steps than inputs
``XX' = U diag(d) U'`` gives the same as ``W = X'U diag(1 / (d + penalty)) U'Y``.

The penalty is chosen on held-out grids, and then all steps are fitted with it. For numbers, it minimises the squared
error. Classes are coded as indicators, each with its own penalty, which maximises the correlation of prediction and
truth over all cells, each cell in units of its standard deviation. Squared error of indicators would shrink a rare
class until its ranking suffers. Among equally good penalties, the strongest is chosen.

Classes are then calibrated on the same grids. With ``f`` the (smoothed) frequency of class k in a cell among the
training grids and ``z`` the deviation from ``f`` that the linear map predicts, divided by ``sqrt(f (1 - f))`` and
scaled to a mean square of 1, the log-probabilities are

    ``slope_k z + weight_k log f + offset_k``      slope_k >= 0.01

up to the normalisation: multinomial logistic regression with three numbers per class, a standard normal prior at (0,
1, 0), Newton's method. The result is linear in the inputs, so it is stored as weights and biases of the head. If the
inputs predict nothing, the frequencies alone decide; the minimum slope still orders cells with equal frequencies,
because average precision would count a tie as a miss. For both choices the predictions for each held-out step and
class are scaled down to at most three times the median step's: if a signal is weak, weights are large, and a few
outlying steps would otherwise lower the slope for all steps until only the frequencies decide.

Source: Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, sections 3.4.1 and 4.2, exercise 18.4;
Platt 1999, Probabilistic outputs for support vector machines (calibration on held-back predictions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.inside.probing.heads import Solution

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[np.float64]
PENALTIES: Final = tuple(float(10 ** (step / 2)) for step in range(-18, 9))
"""Penalties that are tried, in units of one standardised input: half decades from 1e-9 to 1e4."""
_TIE_TOLERANCE: Final = 1e-4  # relative difference below which two criteria count as equal
_ROUNDING: Final = 1e-13  # eigenvalues below this share of the largest are rounding errors
_TINY: Final = 1e-30  # stands for frequencies of 0
_MIN_SLOPE: Final = 0.01  # minimum slope in logits per standard deviation
_REACH: Final = 3.0
"""Bound on the predictions for a held-back step, in units of the median step's."""
_MAX_STEPS: Final = 50  # of Newton's method


class RidgePath:
    """Weighted ridge regression of T targets on N steps, solved by one decomposition for any penalty.

    Attributes mean and level are the weighted means of inputs ``[F]`` and targets ``[T]``.

    Args:
        vectors: ``[N, F]`` float64 inputs: steps by numbers.
        targets: ``[N, T]`` float64 targets.
        steps: ``[N]`` float64 weights of the steps, in any unit.
    """

    def __init__(self, vectors: Tensor, targets: Tensor, steps: Tensor) -> None:
        import torch

        weight = (steps / steps.sum())[:, None]
        self.mean, self.level = (weight * vectors).sum(dim=0), (weight * targets).sum(dim=0)
        inputs, outputs = weight.sqrt() * (vectors - self.mean), weight.sqrt() * (targets - self.level)
        if inputs.shape[1] <= inputs.shape[0]:
            values, self._basis = torch.linalg.eigh(inputs.T @ inputs)
            self._projection = self._basis.T @ (inputs.T @ outputs)
        else:
            values, left = torch.linalg.eigh(inputs @ inputs.T)
            self._basis, self._projection = inputs.T @ left, left.T @ outputs
        self._values = values.clamp(min=0)
        # Slightly above 0, so that constant or duplicate inputs have a solution.
        self._min_eigenvalue = max(float(values.max()) * _ROUNDING, np.finfo(np.float64).tiny)

    def _shrunk(self, penalty: Any) -> Tensor:
        """Return the weights of T targets in the R coordinates of the decomposition, ``[R, T]``.

        The penalty is one number, or one for each target ``[T]``.
        """
        import torch

        floor = torch.as_tensor(penalty, dtype=torch.float64, device=self._values.device).clamp(
            min=self._min_eigenvalue
        )
        coefficients: Tensor = self._projection / (self._values[:, None] + floor)
        return coefficients

    def weights(self, penalty: Any) -> Tensor:
        """Return the regression weights ``[F, T]`` (inputs by targets) for one penalty, or for one penalty per target,
        ``[T]``.
        """
        weights: Tensor = self._basis @ self._shrunk(penalty)
        return weights

    def deviations(self, vectors: Tensor, penalties: Sequence[Any]) -> Iterator[Tensor]:
        """Yield, for each penalty, what the regression predicts at other steps: deviations of the targets from their
        means.

        ``vectors`` are the inputs ``[M, F]`` at M steps. Each result is ``[M, T]``, steps by targets.
        """
        coordinates = (vectors - self.mean) @ self._basis
        for penalty in penalties:
            yield coordinates @ self._shrunk(penalty)


def solve_numbers(
    vectors: Tensor, target: Any, penalties: Sequence[float], is_held_out: npt.NDArray[np.bool_]
) -> Solution:
    """Fit a ridge regression to numbers, with the penalty of least squared error on held-out steps, then on all steps.

    Args:
        vectors: ``[N, F]`` normalised inputs: steps by numbers.
        target: N numbers with weights, see `goalscope.inside.probing.fitting`.
        penalties: candidates; with a single one, nothing is chosen.
        is_held_out: ``[N]`` which steps choose the penalty.

    Returns:
        The weights ``act`` and ``bias``; and as tags the penalty, and whether it is the smallest or largest candidate.
    """
    import torch

    inputs, steps = vectors.double(), torch.tensor(target.weights, device=vectors.device)
    outputs = torch.tensor(target.scaled, dtype=torch.float64, device=vectors.device).reshape(len(inputs), -1)
    candidates, best = sorted(penalties), 0
    if len(candidates) > 1:
        fitted, held_out = _parts(is_held_out, vectors)
        path = RidgePath(inputs[fitted], outputs[fitted], steps[fitted])
        deviations = outputs[held_out] - path.level
        error = [
            float((steps[held_out, None] * (deviations - predicted).square()).sum())
            for predicted in path.deviations(inputs[held_out], candidates)
        ]
        best = _strongest(-np.array(error))
    path = RidgePath(inputs, outputs, steps)
    act = path.weights(candidates[best])
    tags = {"penalty": candidates[best], "penalty at an end": len(candidates) > 1 and best in (0, len(candidates) - 1)}
    return Solution(weights=_folded(act, path.level, path.mean), tags=tags)


class ClassPath:
    """Ridge regression on indicators of the class of each cell, for any penalty, with the frequencies of the classes.

    Args:
        vectors: ``[N, F]`` float64 inputs: steps by numbers.
        labels: ``[N, C]`` int64 classes: steps by cells.
        steps: ``[N]`` float64 weights, which sum to 1 per grid.
        prior: ``[K]`` frequencies of the classes, of which half a grid is added to every cell.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, steps: Tensor, prior: Tensor) -> None:
        import torch

        indicators = torch.nn.functional.one_hot(labels, len(prior)).double()
        self.path, grids = RidgePath(vectors, indicators.flatten(1), steps), steps.sum()
        self.level = self.path.level.view(-1, len(prior))
        self.frequency = (grids * self.level + 0.5 * prior) / (grids + 0.5)
        self.std = (self.frequency * (1 - self.frequency)).sqrt().clamp(min=_TINY)
        # Cells with the same class in all these steps carry no information.
        self.varied = torch.nonzero(self.level.max(dim=1).values < 1 - 1e-12)[:, 0]

    def deviations(self, vectors: Tensor, penalties: Sequence[Any]) -> Iterator[Tensor]:
        """Yield the predictions of the ridge regression for M steps, once for each of the penalties.

        For each cell of a grid and each class (such as wall), the prediction is the class's probability minus its
        frequency in this cell among the training steps, divided by the standard deviation of the class there.

        Args:
            vectors: ``[M, F]`` inputs: steps by numbers.
            penalties: ridge penalties.

        Yields:
            ``[M, V, K]``: steps, the V cells (``varied``) that do not have the same class in all training steps,
            classes.
        """
        for deviation in self.path.deviations(vectors, penalties):
            yield (deviation.view(len(deviation), *self.level.shape) / self.std)[:, self.varied]

    def correlations(self, vectors: Tensor, labels: Tensor, steps: Tensor, penalties: Sequence[float]) -> Array:
        """Return the correlation of prediction and truth for each penalty and class, ``[P, K]``; 0 if either does not
        vary.

        Args:
            vectors: ``[M, F]`` inputs at other steps than those of the fit.
            labels: ``[M, C]`` the true classes of the cells there.
            steps: ``[M]`` weights of these steps.
            penalties: the P penalties.
        """
        import torch

        indicators = torch.nn.functional.one_hot(labels, self.level.shape[1]).double()
        true, weight = ((indicators - self.level) / self.std)[:, self.varied], steps[:, None, None]
        true_norm, by_penalty = (weight * true.square()).sum(dim=(0, 1)).sqrt(), []
        for deviation in self.deviations(vectors, penalties):
            deviation = _bounded(deviation)
            norm = (weight * deviation.square()).sum(dim=(0, 1)).sqrt() * true_norm
            by_penalty.append(torch.where(norm > 0, (weight * deviation * true).sum(dim=(0, 1)) / norm, 0.0))
        correlations: Array = torch.stack(by_penalty).cpu().numpy()
        return correlations


def solve_classes(
    vectors: Tensor, target: Any, penalties: Sequence[float], is_held_out: npt.NDArray[np.bool_]
) -> Solution:
    """Fit linear scores of the classes of cells, with a ridge penalty per class, and calibrate them on held-out steps.

    Penalties are chosen and scores calibrated on held-out steps; then all steps are fitted.

    Args:
        vectors: ``[N, F]`` normalised inputs: steps by numbers.
        target: ``[N, C]`` classes (steps by cells) with weights, see `goalscope.inside.probing.fitting`.
        penalties: candidates.
        is_held_out: ``[N]`` which steps choose and calibrate; some, but not all.

    Returns:
        The weights ``act`` ``[F, C K]`` and ``bias`` ``[C K]`` of scores to which the log of the prior is added. As
        tags, the penalty of each class that occurs, and those at an end of the candidates.
    """
    import torch

    fitted, held_out = _parts(is_held_out, vectors)
    inputs, steps = vectors.double(), torch.tensor(target.weights, device=vectors.device)
    labels = torch.tensor(target.values, device=vectors.device).long()
    tried, prior = sorted(penalties), torch.tensor(target.prior, device=vectors.device)
    partial = ClassPath(inputs[fitted], labels[fitted], steps[fitted], prior)
    correlations = partial.correlations(inputs[held_out], labels[held_out], steps[held_out], tried)
    best_indices = [_strongest(column) for column in correlations.T]
    class_penalties = torch.tensor([tried[index] for index in best_indices], device=vectors.device, dtype=torch.float64)
    chosen = class_penalties.repeat(len(partial.level))
    scores = _bounded(*partial.deviations(inputs[held_out], [chosen]))
    size = scores.square().mean(dim=(0, 1)).sqrt() if len(partial.varied) else torch.zeros_like(prior)
    size = torch.where(size > 0, size, 1.0)
    fit = calibrate(
        (scores / size).cpu().numpy(),
        partial.frequency[partial.varied].log().cpu().numpy(),
        labels[held_out][:, partial.varied].cpu().numpy(),
        steps[held_out].cpu().numpy(),
    )
    slope, weight, offset = torch.as_tensor(fit, device=vectors.device)
    full = ClassPath(inputs, labels, steps, prior)
    act = full.path.weights(chosen) * (slope / size / full.std).flatten()
    bias = weight * full.frequency.clamp(min=_TINY).log() + offset
    occurs = prior > 0
    bias = torch.where(occurs, bias - prior.clamp(min=_TINY).log(), 0.0).flatten()
    act = torch.where(occurs.repeat(len(full.level)), act, 0.0)
    occurring = [
        (name, index)
        for name, index, present in zip(target.NAMES, best_indices, occurs.tolist(), strict=True)
        if present
    ]
    tags: dict[str, Any] = {f"penalty {name}": tried[index] for name, index in occurring}
    ends = [name for name, index in occurring if index in (0, len(tried) - 1) and len(tried) > 1]
    return Solution(weights=_folded(act, bias, full.path.mean), tags={**tags, "penalty at an end": ", ".join(ends)})


def calibrate(scores: Array, log_often: Array, labels: npt.NDArray[np.int64], steps: npt.NDArray[np.float64]) -> Array:
    """Calibrate linear scores z of K classes to log-probabilities ``slope_k z + weight_k log f + offset_k``.

    Here f is the frequency of the class in the cell. The three numbers of each class minimise the sum over steps and
    cells of the negative log-likelihood (nats), plus half their squared distance to (0, 1, 0), with slopes of at least
    0.01. The function is convex: Newton's method with a line search; a slope that ends below 0.01 is fixed there, and
    the others are fitted again.

    Args:
        scores: ``[M, C, K]`` z, predictions for steps that were not fitted: steps, cells, classes.
        log_often: ``[C, K]`` log f, -inf for a class that occurs nowhere.
        labels: ``[M, C]`` the true classes.
        steps: ``[M]`` weights of the steps, which sum to 1 per grid.

    Returns:
        ``[3, K]``: slope, weight and offset of each class.
    """
    classes = log_often.shape[1]
    occurs = np.isfinite(log_often).all(axis=0)
    log_frequency = np.broadcast_to(np.where(occurs, log_often, 0.0), scores.shape)
    inputs = np.stack([scores, log_frequency, np.ones_like(scores)], axis=2).reshape(-1, 3, classes)[..., occurs]
    compact_index = np.cumsum(occurs) - 1
    true, weight = compact_index[labels.ravel()], np.repeat(steps, labels.shape[1])
    start = np.repeat([[0.0], [1.0], [0.0]], int(occurs.sum()), axis=1)
    free, parameters = np.ones(start.shape, dtype=bool), start.copy()
    while True:
        parameters = _newton(inputs, true, weight, start, parameters, free)
        too_flat = (parameters[0] < _MIN_SLOPE) & free[0]
        if not too_flat.any():
            break
        free[0] &= ~too_flat
        parameters[0, too_flat] = _MIN_SLOPE
    full = np.zeros((3, classes))
    full[:, occurs] = parameters
    return full


def _newton(
    inputs: Array,
    true: npt.NDArray[np.int64],
    weight: Array,
    start: Array,
    parameters: Array,
    free: npt.NDArray[np.bool_],
) -> Array:
    """Minimise the loss over the free ones of 3 parameters for each of K classes, ``[3, K]``.

    The R rows have inputs ``[R, 3, K]`` and true classes ``[R]``.
    """
    rows, classes = np.arange(len(true)), parameters.shape[1]
    free_indices, flat_inputs = np.flatnonzero(free.ravel()), inputs.reshape(len(inputs), parameters.size)

    def loss(point: Array) -> tuple[float, Array]:
        logits = np.einsum("rjk,jk->rk", inputs, point)
        logits -= logits.max(axis=1, keepdims=True)
        probabilities = np.exp(logits)
        total = probabilities.sum(axis=1, keepdims=True)
        probabilities /= total
        nll = weight @ (np.log(total[:, 0]) - logits[rows, true])
        return float(nll + 0.5 * ((point - start) ** 2).sum()), probabilities

    value, probabilities = loss(parameters)
    for _ in range(_MAX_STEPS):
        error = probabilities.copy()
        error[rows, true] -= 1
        gradient = np.einsum("rjk,rk->jk", inputs, weight[:, None] * error) + parameters - start
        # Hessian: sum_r w_r (diag(p) - p p') with the inputs of each class, and the prior's 1.
        weighted = (inputs * probabilities[:, None]).reshape(flat_inputs.shape)
        hessian = -(weight[:, None] * weighted).T @ weighted + np.eye(flat_inputs.shape[1])
        blocks = np.einsum("rik,rjk->ijk", inputs, inputs * (weight[:, None] * probabilities)[:, None])
        for label in range(classes):
            indices = np.arange(3) * classes + label
            hessian[np.ix_(indices, indices)] += blocks[:, :, label]
        step = np.zeros(parameters.size)
        step[free_indices] = -np.linalg.solve(
            hessian[np.ix_(free_indices, free_indices)], gradient.ravel()[free_indices]
        )
        slope, length = float(gradient.ravel() @ step), 1.0
        if -slope < 1e-9 * max(1.0, abs(value)):
            break
        while length > 1e-6:
            candidate = parameters + length * step.reshape(parameters.shape)
            candidate_loss, candidate_probabilities = loss(candidate)
            if candidate_loss <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            break
        parameters, value, probabilities = candidate, candidate_loss, candidate_probabilities
    return parameters


def _bounded(deviations: Tensor) -> Tensor:
    """Scale down the deviations ``[M, C, K]`` of held-out steps to a bound per step and class.

    The bound is `_REACH` times the median over steps of the root mean square over cells.
    """
    if not deviations.numel():
        return deviations
    size = deviations.square().mean(dim=1, keepdim=True).sqrt()
    bound = _REACH * size.median(dim=0, keepdim=True).values
    return deviations * (bound / size.clamp(min=_TINY)).clamp(max=1.0).where(bound > 0, 1.0)


def _strongest(criterion: Array) -> int:
    """Return the index of the best criterion over ascending penalties; the last index among equally good ones."""
    best = float(np.max(criterion))
    return int(np.flatnonzero(criterion >= best - _TIE_TOLERANCE * abs(best))[-1])


def _parts(is_held_out: npt.NDArray[np.bool_], vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of the steps to fit and of the steps that choose the penalty."""
    import torch

    fitted, held_out = (
        torch.as_tensor(np.flatnonzero(mask), device=vectors.device) for mask in (~is_held_out, is_held_out)
    )
    return fitted, held_out


def _folded(act: Tensor, level: Tensor, mean: Tensor) -> dict[str, npt.NDArray[np.float32]]:
    """Convert weights of T targets for F centred inputs ``[F, T]``, and levels ``[T]``, to a head with biases."""
    bias = level - mean @ act
    return {name: tensor.cpu().numpy().astype(np.float32) for name, tensor in (("act", act), ("bias", bias))}
