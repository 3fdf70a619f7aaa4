"""Probabilities from users: read from any array library, checked, and normalised if float32 rounded them.

Transition tables, policies and start distributions from PyTorch and JAX are float32, so their rows sum to 1 only up to
rounding. All such input passes through this module. A row whose sum is within float32 rounding of 1 is divided by its
sum, with one warning; any other row is an error that names its index and its sum.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, refuse_where

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = npt.NDArray[np.float64]

EXACT: Final = 1e-8
"""Maximum distance of a sum from 1 for which a row of float64 numbers is left unchanged."""
_UNIT: Final = float(np.finfo(np.float32).eps)
_LEAST_UNITS: Final = 16


def rounding_of(entries: npt.ArrayLike) -> Array:
    """Return the tolerance by which the sum of a row of probabilities may differ from 1 because of rounding to float32.

    Up to 256 positive entries, this is 16 units of float32 precision (1.9e-6); beyond that, the square root of their
    number in such units. For example, a softmax over 200,000 entries had an error of 3.4e-5, where this allows 5.3e-5.

    Args:
        entries: number of positive entries of each row.
    """
    return np.asarray(_UNIT * np.maximum(_LEAST_UNITS, np.sqrt(np.asarray(entries, dtype=np.float64))))


def to_array(name: str, values: Any, *, booleans: bool = False) -> npt.NDArray[Any]:
    """Convert real numbers from any array library to a numpy array, and keep their dtype.

    Args:
        name: the argument's name, for the error.
        values: nested lists, or an array of numpy, PyTorch (on any device, also with gradients) or JAX.
        booleans: whether True and False are accepted, as 1 and 0.

    Raises:
        ValueError: if lists have different lengths, or entries are not real numbers.
    """
    if callable(getattr(values, "detach", None)):  # a PyTorch tensor, which numpy accepts only without gradients
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be an array of real numbers, got a {type(values).__name__} that numpy cannot read: {error}"
        ) from error
    if booleans and array.dtype == np.bool_:
        array = array.astype(np.int8)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype} {list(array.shape)}")
    return array


def to_distributions(name: str, values: Any, axes: Sequence[str] = ()) -> Array:
    """Convert probabilities from any array library to a float64 array whose last axis sums to 1.

    Rows whose sum differs from 1 only by float32 rounding are divided by their sum, with a warning.

    Args:
        name: the argument's name, for the error and the warning.
        values: ``[..., K]`` probabilities of K outcomes.
        axes: names of the axes before the last one, such as "state" and "action", for the error.

    Raises:
        ValueError: if a number is negative or not finite, or the sum of a row differs from 1 by more than float32
            rounding.
    """
    array = to_array(name, values)
    if array.ndim == 0:
        raise ValueError(f"{name} must be an array of probabilities, got the number {array}")
    probabilities = array.astype(np.float64)
    check_finite(name, probabilities)
    refuse_where(probabilities < 0, probabilities, f"{name} must hold probabilities >= 0")
    sums = probabilities.sum(axis=-1)
    worst = _check_sums(name, sums, np.count_nonzero(probabilities, axis=-1), half=_is_half(array.dtype), axes=axes)
    if worst <= EXACT:
        return probabilities
    note_rounding(name, worst)
    # Rows that are exact already keep their bits.
    divisors = np.where(np.abs(sums - 1) > EXACT, sums, 1.0)
    return np.asarray(probabilities / divisors[..., None])


def to_sparse_distributions(name: str, matrix: Any, actions: int) -> "csr_array":
    """Convert a sparse matrix of probabilities to float64, with rows that sum to 1.

    Rows whose sum differs from 1 only by float32 rounding are divided by their sum, with a warning.

    Args:
        name: the argument's name, for the error and the warning.
        matrix: sparse matrix of scipy, ``[S * A, K]``: one row per pair of S states and A actions, with probabilities
            of K outcomes.
        actions: number A of actions, to name the state and the action of a bad row in errors.

    Raises:
        ValueError: if a number is negative or not finite, or the sum of a row differs from 1 by more than float32
            rounding.
    """
    rows: csr_array = matrix.tocsr().astype(np.float64)
    rows.sum_duplicates()
    check_finite(name, rows.data)
    if (rows.data < 0).any():
        raise ValueError(f"{name} must hold probabilities >= 0, got {rows.data.min()}")
    sums = np.asarray(rows.sum(axis=1)).reshape(-1)
    entries = np.diff(rows.indptr)
    by_action = sums.reshape(-1, actions), entries.reshape(-1, actions)
    worst = _check_sums(name, *by_action, half=_is_half(matrix.dtype), axes=("state", "action"))
    if worst <= EXACT:
        return rows
    note_rounding(name, worst)
    rows.data /= np.repeat(np.where(np.abs(sums - 1) > EXACT, sums, 1.0), entries)
    return rows


def to_chances(name: str, outcomes: Mapping[Any, Any]) -> tuple[dict[Any, float], float]:
    """Check the probabilities of the outcomes of something random, and normalise them.

    Args:
        name: what has these outcomes, for the error.
        outcomes: outcome -> probability, a number of Python, numpy, PyTorch or JAX.

    Returns:
        The outcomes with a probability above 0, with probabilities that sum to 1; and the distance of the original sum
        from 1. The caller passes the greatest distance of all its mappings to `note_rounding`, for a single warning.

    Raises:
        ValueError: if a probability is not a number from 0 to 1, or their sum differs from 1 by more than float32
            rounding.
    """
    chances = {}
    for outcome, chance in outcomes.items():
        number = float(chance)
        # A float32 probability may lie above 1 by its rounding, and its row then still sums to 1.
        if not 0 <= number <= 1 + _UNIT:
            raise ValueError(f"{name} must return chances from 0 to 1, got {chance!r} for {outcome!r:.200}")
        if number > 0:
            chances[outcome] = number
    total = math.fsum(chances.values())
    off = abs(total - 1)
    if off > rounding_of(len(chances)):
        raise ValueError(f"{name} must return chances with the sum 1, got {total:.12g}")
    return ({outcome: chance / total for outcome, chance in chances.items()} if off > EXACT else chances), off


def to_shares(name: str, weights: Any) -> Array:
    """Divide nonnegative weights by their sum, and return these shares as float64 numbers ``[K]`` that sum to 1.

    Args:
        name: the argument's name, for the error.
        weights: ``[K]`` numbers >= 0 from any array library.

    Raises:
        ValueError: if a number is negative or not finite, or the sum is not a normal positive number (0, infinite, or a
            denormal such as 1e-320, by which nothing can be divided exactly).
    """
    array = to_array(name, weights).astype(np.float64)
    check_finite(name, array)
    with np.errstate(over="ignore"):
        total = float(array.sum())
    if (array < 0).any() or not np.finfo(np.float64).tiny <= total < math.inf:
        raise ValueError(
            f"{name} must be >= 0 and their sum a normal number above 0, got a sum of {total} and a least entry of "
            f"{array.min(initial=math.inf)}"
        )
    return np.asarray(array / total)


def note_rounding(name: str, distance: float) -> None:
    """Warn that rows of probabilities summed to 1 only up to float32 rounding, and were divided by their sums.

    Args:
        name: the argument's name, for the warning.
        distance: greatest distance of a sum from 1; there is no warning if it is at most `EXACT` (1e-8).
    """
    if distance > EXACT:
        bound = 10.0 ** math.ceil(math.log10(distance))
        warnings.warn(
            f"{name}: rows sum to 1 only up to float32 rounding (off by less than {bound:.0e}), so each row was "
            "divided by its sum",
            stacklevel=1,
        )


def _is_half(dtype: Any) -> bool:
    return bool(np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize < np.dtype(np.float32).itemsize)


def _check_sums(name: str, sums: npt.NDArray[Any], entries: npt.ArrayLike, *, half: bool, axes: Sequence[str]) -> float:
    """Return the greatest distance of a sum from 1; raise an error if it exceeds rounding."""
    distances = np.abs(sums - 1.0)
    allowed = np.broadcast_to(EXACT if half else rounding_of(entries), distances.shape)
    if (distances > allowed).any():
        index = tuple(int(number) for number in np.argwhere(np.atleast_1d(distances > allowed))[0])
        reason = (
            "got half precision, whose rounding is too coarse (compute it in float32)"
            if half
            else f"to {float(np.atleast_1d(allowed)[index]):.1e}, the rounding of float32"
        )
        place = " and ".join(f"{axis} {number}" for axis, number in zip(axes, index, strict=False))
        raise ValueError(
            f"{name} must sum to 1 over its last axis ({reason}), got {np.atleast_1d(sums)[index]} "
            + (f"for {place}" if place else f"at index {index}")
        )
    return float(distances.max(initial=0.0))
