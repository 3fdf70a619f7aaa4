"""What can be read from activations: cognitive maps, beliefs, plans and distance, with controls.

`study_inside` is all of it, for one run; the functions that it is made of stand beside it.
"""

from goalscope.probing.analyses import AnalysisReader, Place, analysis
from goalscope.probing.arrays import from_arrays
from goalscope.probing.beliefs import belief_rows, read_beliefs
from goalscope.probing.curves import (
    compression,
    curve_ends,
    description_length,
    learning_curve,
)
from goalscope.probing.distances import cross_fitted, probe_distances, score_distance, summarise_distance
from goalscope.probing.fitting import fit
from goalscope.probing.heads import HeadSizes, Solution, find_head, head
from goalscope.probing.inputs import Features, ProbeInputs, Source, Split, known_walls, split_by_grid
from goalscope.probing.labelled import LabelProbe, probe
from goalscope.probing.labels import (
    AGENT,
    CLASSES,
    END,
    GOAL,
    OPEN,
    PADDING,
    UNKNOWN,
    WALL,
    Cells,
    Decisions,
    Plans,
    decisions_at,
    label_cells,
    label_distances,
    label_grid,
    label_plans,
    undetermined,
)
from goalscope.probing.maps import DecodedMaps, Prediction, decode_maps, likeliest, one_hot, place_weights, true_map
from goalscope.probing.pipeline import InsideSummary, study_inside
from goalscope.probing.plan_scores import plan_differences, summarise_plans
from goalscope.probing.probe import Probe, ProbeKey, Target
from goalscope.probing.probe_store import stored_probes
from goalscope.probing.problem import FitSettings, PlanSettings, Problem
from goalscope.probing.scores import confusion, difference_rows, paired_rows, score_cells, summarise
from goalscope.probing.suite import CORE, FULL, probe_cells, probe_cells_by_size, probe_plans
from goalscope.runs.probing_config import Inside

__all__ = [
    "AGENT",
    "CLASSES",
    "CORE",
    "END",
    "FULL",
    "GOAL",
    "OPEN",
    "PADDING",
    "UNKNOWN",
    "WALL",
    "AnalysisReader",
    "Cells",
    "Decisions",
    "DecodedMaps",
    "Features",
    "FitSettings",
    "HeadSizes",
    "Inside",
    "InsideSummary",
    "LabelProbe",
    "Place",
    "PlanSettings",
    "Plans",
    "Prediction",
    "Probe",
    "ProbeInputs",
    "ProbeKey",
    "Problem",
    "Solution",
    "Source",
    "Split",
    "Target",
    "analysis",
    "belief_rows",
    "compression",
    "confusion",
    "cross_fitted",
    "curve_ends",
    "decisions_at",
    "decode_maps",
    "description_length",
    "difference_rows",
    "find_head",
    "fit",
    "from_arrays",
    "head",
    "known_walls",
    "label_cells",
    "label_distances",
    "label_grid",
    "label_plans",
    "learning_curve",
    "likeliest",
    "one_hot",
    "paired_rows",
    "place_weights",
    "plan_differences",
    "probe",
    "probe_cells",
    "probe_cells_by_size",
    "probe_distances",
    "probe_plans",
    "read_beliefs",
    "score_cells",
    "score_distance",
    "split_by_grid",
    "stored_probes",
    "study_inside",
    "summarise",
    "summarise_distance",
    "summarise_plans",
    "true_map",
    "undetermined",
]
