"""How a model acted with activations of a changed grid patched in, grid by grid, from the rows of a run."""

from collections.abc import Mapping
from typing import Any, Final

from goalscope.inside.interventions.experiment import TAG
from goalscope.inside.interventions.patching import FOLLOWS, KIND, PAIRS
from goalscope.stats.rows import Rows

_LINE: Final = ("moved", "site", "layers", "layer")
_PATCH: Final = "patch"
_CHOSEN: Final[Mapping[str, Any]] = {TAG: KIND, "reading": "free", "component": "residual", "pairs": PAIRS[False]}


def patched(rows: Rows) -> dict[str, list[list[Any]]]:
    """Return cluster of a grid -> for each place, [moved, site, layers, {patch: [share that follows the source,
    runs]}].

    Pairs with the same optimal actions in both grids are left out, as in the report.
    """
    tags = rows.tags
    if not {*_CHOSEN, *_LINE, _PATCH} <= set(tags):
        return {}
    selected = rows.measure == FOLLOWS
    for name, value in _CHOSEN.items():
        selected &= rows.among(name, [value])
    if "structural" in tags:  # places that cannot move anything, whatever the model does
        selected &= ~rows.known("structural")
    chosen = rows.where(selected)
    columns = [chosen[name].tolist() for name in (*_LINE, _PATCH)]
    entries = zip(chosen.cluster.tolist(), chosen.value.tolist(), *columns, strict=True)
    found: dict[str, dict[tuple[str, ...], dict[str, list[float]]]] = {}
    for cluster, value, moved, site, layers, layer, patch in entries:
        if value == value:  # not undefined
            place = (str(moved), str(site), str(layers) if layer is None else f"layer {layer}")
            found.setdefault(cluster, {}).setdefault(place, {}).setdefault(str(patch), []).append(value)
    return {
        cluster: [
            [*place, {patch: [round(sum(values) / len(values), 3), len(values)] for patch, values in by.items()}]
            for place, by in sorted(places.items())
        ]
        for cluster, places in found.items()
    }
