"""Inference of sample sizes from the numbers that a paper prints."""

from collections.abc import Mapping, Sequence


def sizes_that_fit(percentages: Sequence[str], *, means: Mapping[str, str] | None = None, most: int = 100) -> list[int]:
    """Infer a sample size that a paper does not state: return the sizes for which all printed numbers of a row are
    possible.

    Report such a size as inferred, because it is valid only if all numbers refer to the same cases. All numbers of a
    row must be consistent, because a few numbers fit many sizes by chance.

    Args:
        percentages: shares of the cases as printed ("17.0"), because the number of digits matters.
        means: printed mean of whole numbers ("131.5") -> printed share ("25.0") of the cases over which it was taken.
        most: the largest size to try.

    Raises:
        ValueError: there is no number, or a text is not a number.
    """
    printed = [*percentages, *(means or {}).values()]
    if not printed:
        raise ValueError("sizes_that_fit needs at least one printed number, got none")
    sizes = [size for size in range(1, most + 1) if all(_counts(text, size) for text in printed)]
    return [
        size
        for size in sizes
        if all(any(_is_mean(mean, count) for count in _counts(share, size)) for mean, share in (means or {}).items())
    ]


def _rounds_to(value: float, text: str) -> bool:
    return abs(value - float(text)) <= 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9


def _counts(percentage: str, size: int) -> list[int]:
    nearest = round(float(percentage) / 100 * size)
    near = range(max(0, nearest - 1), min(size, nearest + 1) + 1)
    return [count for count in near if _rounds_to(100 * count / size, percentage)]


def _is_mean(text: str, count: int) -> bool:
    return count > 0 and _rounds_to(round(float(text) * count) / count, text)
