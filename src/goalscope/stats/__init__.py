"""Statistics that turn rows of measured values into estimates with intervals over clusters."""

from goalscope._ground.rng import stream
from goalscope.stats.compare import PairedComparison, SignedRank, paired_difference, signed_rank
from goalscope.stats.crossed import crossed_difference, estimate_crossed, estimate_table
from goalscope.stats.equivalence import Equivalence, equivalence
from goalscope.stats.estimate import FEWEST, UNBOUNDED, Estimate, estimate_mean, estimate_pooled
from goalscope.stats.family import Corrected, Family, corrected, holm
from goalscope.stats.groups import DIFFERENCES, DRAW, LESS, Grouped, clusters_of, distinct, estimate_rows, numbers_of
from goalscope.stats.intervals import exact_binomial
from goalscope.stats.power import (
    Paired,
    PairedDesign,
    SimulatedPower,
    grids_needed,
    power,
    simulate_power,
)
from goalscope.stats.regression import Regression, indicators, regress
from goalscope.stats.rows import Rows
from goalscope.stats.sensitivity import Sensitivity, sensitivity
from goalscope.stats.unpaired import UnpairedComparison, unpaired_difference

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
    "estimate_table",
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
