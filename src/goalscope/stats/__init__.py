"""Statistics that turn rows of measured values into estimates with intervals over clusters."""

from goalscope._ground.rng import stream
from goalscope.stats.compare import (
    Corrected,
    Equivalence,
    Family,
    PairedComparison,
    Sensitivity,
    SignedRank,
    UnpairedComparison,
    corrected,
    equivalence,
    holm,
    paired_difference,
    sensitivity,
    signed_rank,
    unpaired_difference,
)
from goalscope.stats.estimate import (
    FEWEST,
    UNBOUNDED,
    Estimate,
    crossed_difference,
    estimate_crossed,
    estimate_mean,
    estimate_pooled,
)
from goalscope.stats.groups import DIFFERENCES, DRAW, LESS, Grouped, clusters_of, distinct, estimate_rows, numbers_of
from goalscope.stats.intervals import exact_binomial
from goalscope.stats.power import Paired, PairedDesign, SimulatedPower, grids_needed, power, simulate_power
from goalscope.stats.regression import Regression, indicators, regress
from goalscope.stats.rows import Rows

__all__ = [
    "DIFFERENCES",
    "DRAW",
    "FEWEST",
    "LESS",
    "UNBOUNDED",
    "Corrected",
    "Equivalence",
    "Estimate",
    "Family",
    "Grouped",
    "Paired",
    "PairedComparison",
    "PairedDesign",
    "Regression",
    "Rows",
    "Sensitivity",
    "SignedRank",
    "SimulatedPower",
    "UnpairedComparison",
    "clusters_of",
    "corrected",
    "crossed_difference",
    "distinct",
    "equivalence",
    "estimate_crossed",
    "estimate_mean",
    "estimate_pooled",
    "estimate_rows",
    "exact_binomial",
    "grids_needed",
    "holm",
    "indicators",
    "numbers_of",
    "paired_difference",
    "power",
    "regress",
    "sensitivity",
    "signed_rank",
    "simulate_power",
    "stream",
    "unpaired_difference",
]
