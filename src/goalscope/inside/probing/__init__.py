"""What can be read from activations: cognitive maps, beliefs, plans and distance, with controls.

`study_inside` does everything for one run; the functions that it consists of are available separately.
"""

from goalscope.inside.probing.arrays import from_arrays
from goalscope.inside.probing.beliefs import RECOVERY, TRUTH, belief_rows, read_beliefs, top_name
from goalscope.inside.probing.curves import (
    compression,
    curve_ends,
    description_length,
    learning_curve,
)
from goalscope.inside.probing.distances import cross_fitted, probe_distances, score_distance, summarise_distance
from goalscope.inside.probing.fitting import FitSettings, PlanSettings, Problem, fit
from goalscope.inside.probing.heads import HeadSizes, Solution, find_head, head
from goalscope.inside.probing.inputs import Features, ProbeInputs, Source, Split, known_walls, split_by_grid
from goalscope.inside.probing.labelled import LabelProbe, probe
from goalscope.inside.probing.labels import (
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
from goalscope.inside.probing.maps import (
    DecodedMaps,
    Prediction,
    decode_maps,
    likeliest,
    one_hot,
    place_weights,
    true_map,
)
from goalscope.inside.probing.pipeline import AnalysisReader, InsideSummary, Place, analysis, study_inside
from goalscope.inside.probing.plan_scores import plan_differences, summarise_plans
from goalscope.inside.probing.probe import Probe, ProbeKey, Target, stored_probes
from goalscope.inside.probing.scores import confusion, difference_rows, paired_rows, score_cells, summarise
from goalscope.inside.probing.suite import CORE, FULL, probe_cells, probe_cells_by_size, probe_plans, without
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
    "RECOVERY",
    "TRUTH",
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
    "top_name",
    "true_map",
    "undetermined",
    "without",
]
