"""What an agent believes and plans inside: activations captured at named sites, and what can be read from them.

`study_inside` is all of it, for one run; the functions that it is made of stand beside it.
"""

from goalscope.represent.artifacts import Artifact, artifacts
from goalscope.represent.belief_study import study_beliefs
from goalscope.represent.beliefs import belief_rows, read_beliefs
from goalscope.represent.capture import capture
from goalscope.represent.cells import Cells, Split, known_walls, label_cells, split_by_grid
from goalscope.represent.decisions import decisions_at
from goalscope.represent.distance import distance_matrix, label_distances, summarise_distance
from goalscope.represent.fitting import FitSettings
from goalscope.represent.inside import InsideSummary, study_inside
from goalscope.represent.map_reading import MapReading, true_map
from goalscope.represent.maps import DecodedMaps, decode_maps
from goalscope.represent.matrix import CORE, FULL, probe_matrix, probe_matrix_by_size
from goalscope.represent.plan_decoder import PlanDecoder
from goalscope.represent.plan_fitting import PlanSettings
from goalscope.represent.plan_matrix import plan_matrix
from goalscope.represent.plan_scores import plan_differences, summarise_plans
from goalscope.represent.plans import label_plans
from goalscope.represent.probe import CLASSES, Probe
from goalscope.represent.reading import Capture, captures, load_activations, stream_activations
from goalscope.represent.record import SITES, Activations, Site
from goalscope.represent.scores import difference_rows, score_cells, summarise
from goalscope.represent.settings import CaptureSettings
from goalscope.represent.shelf import stored_probes
from goalscope.runs.inside import Inside

__all__ = [
    "CLASSES",
    "CORE",
    "FULL",
    "SITES",
    "Activations",
    "Artifact",
    "Capture",
    "CaptureSettings",
    "Cells",
    "DecodedMaps",
    "FitSettings",
    "Inside",
    "InsideSummary",
    "MapReading",
    "PlanDecoder",
    "PlanSettings",
    "Probe",
    "Site",
    "Split",
    "artifacts",
    "belief_rows",
    "capture",
    "captures",
    "decisions_at",
    "decode_maps",
    "difference_rows",
    "distance_matrix",
    "known_walls",
    "label_cells",
    "label_distances",
    "label_plans",
    "load_activations",
    "plan_differences",
    "plan_matrix",
    "probe_matrix",
    "probe_matrix_by_size",
    "read_beliefs",
    "score_cells",
    "split_by_grid",
    "stored_probes",
    "stream_activations",
    "study_beliefs",
    "study_inside",
    "summarise",
    "summarise_distance",
    "summarise_plans",
    "true_map",
]
