"""State utilities from a network with one hidden layer, fitted to what a policy occupies. Needs PyTorch."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.extras import lacking
from goalscope.meg.dual import OccupancyDual

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Climb:
    """Where one seed arrived: the value in nats, the utilities ``[M]`` of the kept states, what is left to match."""

    value: float
    weights: Array
    residual: float


def climb(dual: OccupancyDual, features: Array, *, seed: int, hidden: int, steps: int) -> Climb:
    """Climb from the start that belongs to a seed.

    The gradient of the utilities is exact, the occupancy of the agent less that of the soft policy; PyTorch carries it
    on to the parameters, and a quasi-Newton search takes the steps. The last layer holds the rationality.

    Args:
        dual: the problem, without a free terminal utility.
        features: ``[M, F]`` input for each kept state.
        seed: of the first parameters.
        hidden: units of the hidden layer.
        steps: most steps.

    Raises:
        ImportError: PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise lacking("the neural class of utilities needs torch", "lm", error) from error
    from scipy.optimize import minimize

    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(np.ascontiguousarray(features))
    width = inputs.shape[1]
    shapes = [(width, hidden), (hidden,), (hidden,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    reach = [width**-0.5, width**-0.5, hidden**-0.5]
    start = np.concatenate(
        [
            ((2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1) * limit).numpy()
            for size, limit in zip(sizes, reach, strict=True)
        ]
    )

    def utility(flat: torch.Tensor) -> torch.Tensor:
        first, bias, second = (part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True))
        found: torch.Tensor = torch.relu(inputs @ first + bias) @ second
        return found  # an output bias shifts all utilities: it changes nothing

    def negative(flat: Array) -> tuple[float, Array]:
        parameters = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        weights = utility(parameters)
        value, gradient = dual.value(weights.detach().numpy())
        weights.backward(torch.from_numpy(-gradient))  # type: ignore[no-untyped-call]
        assert parameters.grad is not None
        return -value, parameters.grad.numpy()

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a small network: a second thread waits more than it works
    try:
        found = minimize(negative, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxfun": 2 * steps})
    finally:
        torch.set_num_threads(before)
    with torch.no_grad():
        weights = np.asarray(utility(torch.from_numpy(np.asarray(found.x))).numpy())
    value, gradient = dual.value(weights)
    return Climb(value=max(0.0, value), weights=weights, residual=float(np.abs(gradient).sum()))
