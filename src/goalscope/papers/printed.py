"""Numbers as a paper prints them: the sizes of a sample that they allow."""

from collections.abc import Mapping, Sequence


def sizes_that_fit(percentages: Sequence[str], *, means: Mapping[str, str] | None = None, most: int = 100) -> list[int]:
    """Return each size up to ``most`` of which every printed number of a row can be.

    A size that is inferred so is no printed one: it holds if all numbers are of the same cases, and it is to be called
    inferred. It is tried against every number of its row, since a few fit many sizes by chance.

    Args:
        percentages: printed shares of the cases, as printed ("17.0"): their digits count.
        means: printed mean of whole numbers ("131.5") -> the printed share ("25.0") of the cases it is taken over.
        most: the largest size that is tried.

    Raises:
        ValueError: no number, or a text that is none.
    """
    printed = [*percentages, *(means or {}).values()]
    if not printed:
        raise ValueError("an inferred size must have printed numbers to fit, got none")
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
