"""How far apart the activations of a grid's steps lie, in the agent's model and in networks with random weights."""

import numpy as np

from goalscope.inside.activations import Activations
from goalscope.inside.probing import AnalysisReader, Place, ProbeInputs, analysis
from goalscope.stats import Rows

SPREAD = "spread of the activations"


@analysis("spread", title="Spread of the activations", headline=[("spread", {"measure": SPREAD})])
def spread(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """One row a grid and network: the root mean square distance of its steps from their mean, by the mean's length."""
    rows = [_of_network(data.activations[0], "none", None)]
    rows += [_of_network(one, kind, draw) for (kind, draw), [one] in data.random.items()]
    return Rows.concatenate(rows)


def _of_network(activations: Activations, control: str, draw: int | None) -> Rows:
    grids = list(dict.fromkeys(activations.cluster.tolist()))
    values = []
    for grid in grids:
        vectors = activations.vectors[activations.cluster == grid].mean(axis=1)  # over the positions of the site
        center = vectors.mean(axis=0)
        values.append(np.sqrt(np.mean(np.sum((vectors - center) ** 2, axis=1))) / np.linalg.norm(center))
    tags = {"control": control, "draw": draw}
    return Rows.from_columns(measure=SPREAD, unit="ratio", value=values, cluster=grids, tags=tags)
