"""A study at a part of its size: fewer worlds first, then fewer trajectories, then fewer random networks."""

from typing import Any

from goalscope.runs import Study


def scaled(study: Study, scale: float, *, least: int = 1) -> Study:
    """Return a study at a part of its size.

    Args:
        study: the study at the published size.
        scale: part of it, in (0, 1].
        least: least number of worlds of each kind, size and density.

    Returns:
        The study itself for 1. Else the number of worlds of each entry is multiplied by ``scale``, but stays at least
        ``least``; what is then missing is taken from the trajectories, of which one stays. Random networks and pairs of
        interventions are multiplied, too, and where all steps of a grid are read, three are. Sizes, densities and
        agents stay, so that every cell of a table is there.

    Raises:
        ValueError: a scale outside of (0, 1].
    """
    if not 0 < scale <= 1:
        raise ValueError(f"--scale must lie in (0, 1], got {scale:g}: 1 is the published size")
    if scale == 1:
        return study
    plain = study.dump()
    counts = [entry["count"] for entry in plain["worlds"] if "count" in entry]
    rest = scale
    for entry in plain["worlds"]:
        if "count" in entry:
            count = entry["count"]
            entry["count"] = min(count, max(least, round(count * scale)))
            rest = min(1.0, scale * sum(counts) / sum(each.get("count", 0) for each in plain["worlds"]))
    plain["trajectories"] = max(1, round(plain["trajectories"] * rest))
    _thin(plain.get("analysis") or {}, scale)
    plain["name"] = f"{study.name} (scale {scale:g})"[:200]
    return Study.parse(plain)


_STEPS = 3  # of each grid that are read at a reduced scale, where all are at the published size


def _thin(analysis: dict[str, Any], scale: float) -> None:
    """Reduce random networks and pairs of interventions."""
    inside = analysis.get("inside")
    if inside:
        if inside["random"]:
            inside["random"]["seeds"] = max(1, round(inside["random"]["seeds"] * scale))
        inside["steps"] = _STEPS if inside["steps"] is None else inside["steps"]
    for entry in analysis.get("interventions", ()):
        for name, least in (("per_size", 1), ("controls", 1)):
            if name in entry.get("pairs", {}):
                entry["pairs"][name] = max(least, round(entry["pairs"][name] * scale))
