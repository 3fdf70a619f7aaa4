"""What each measure means, in words, with its source, and which measures stand where in a report."""

from dataclasses import dataclass

from goalscope.stats import LESS

PAPER = "Arghal et al. (2026)"
CITED = (
    "Arghal et al. (2026): A Behavioural and Representational Evaluation of Goal-Directedness in Language Model "
    "Agents, Proceedings of the 43rd International Conference on Machine Learning. Anderson et al. (2018): On "
    "Evaluation of Embodied Navigation Agents."
)
POOLED = "accuracy pooled over steps"
"""A ratio of sums, not a mean of rows."""

KEY_STEPWISE = "error approaches the key"
KEY_POOLED = "key attraction bias, pooled"
"""The share of all non-optimal actions of an agent that approach the key, as the paper counts it: a ratio of sums."""

# The excess per visit, because its expectation is 0 for a perfect agent; the mean over states has a small bias.
HEADLINE = ("success", "action accuracy", "JSD from optimal, excess, per visit", "path ratio", "invalid turns")
SIZE_FIGURES = ("success", "action accuracy")
CURVES = ("action optimality", "JSD from optimal, excess, 5+ visits, by distance")
MAPS = ("action accuracy", "success")
UNCERTAINTY = (
    "policy entropy, 5+ visits",
    "policy entropy, excess, 5+ visits",
    "JSD from optimal, 5+ visits",
    "JSD from optimal, excess, 5+ visits",
    "calibration error, excess",
    "visits per state",
    "states under 5 visits",
)
UNCERTAINTY_FIGURES = ("policy entropy, excess, 5+ visits", "JSD from optimal, excess, 5+ visits")
KEY_MEASURES = (
    "accuracy on the way to the key",
    "accuracy on the way to the door",
    "accuracy on the way to the goal",
    "key pickup",
    "key attraction bias",
)
COMPARED = ("success", "action accuracy")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a measure is, and where it comes from."""

    text: str
    source: str


_B1, _B2, _KEYS = f"{PAPER}, Appendix B.1", f"{PAPER}, Appendix B.2", f"{PAPER}, section 4.3"
_FOG = f"{PAPER}, Appendix A.1 (defined here)"
_OURS = "goalscope"

_BASE = {
    "success": Definition("share of episodes that end at the goal", f"{_B1}, equation 1"),
    "action accuracy": Definition(
        "share of an episode's turns that took an action of a shortest path (any of them); a turn without an action "
        "counts as wrong. Averaged over the episodes of a grid, then over grids",
        f"{_B1}, equations 2 and 3",
    ),
    "action optimality": Definition(
        "whether a single turn took an action of a shortest path, by distance to the goal", f"{PAPER}, Fig. 4"
    ),
    POOLED: Definition("all optimal turns over all turns: long episodes weigh more", f"{_OURS}, ratio over grids"),
    "steps to goal": Definition("steps of an episode that arrived; undefined for one that did not", _OURS),
    "path ratio": Definition(
        "steps of an episode that arrived over the length of the shortest path (1 is best); undefined for one that did "
        "not arrive",
        _OURS,
    ),
    "success weighted by path length": Definition(
        "shortest path over steps taken, 0 for an episode that did not arrive", "Anderson et al. (2018)"
    ),
    "invalid turns": Definition("share of an episode's turns that held no action", _OURS),
    "wall bumps": Definition(
        "share of an episode's actions that changed nothing: into a wall, a locked door, the edge", _OURS
    ),
    "policy entropy": Definition(
        "entropy of the action frequencies in a state, pooled over a grid's trajectories; mean over visited states",
        f"{_B2}, equation 4",
    ),
    "JSD from optimal": Definition(
        "Jensen–Shannon divergence of the action frequencies in a state from the uniform distribution over its optimal "
        "actions; mean over visited states",
        f"{_B2}, equation 5",
    ),
    "calibration error": Definition(
        "expected calibration error of the action frequencies: |accuracy − confidence| over 10 bins, one entry a step",
        f"{_B2}, equations 6 to 8",
    ),
    "visits per state": Definition("mean number of visits of a visited state", _OURS),
    "states under 5 visits": Definition(
        "share of the visited states that figures over states with 5 and more visits leave out", _OURS
    ),
    "states without an optimal action": Definition(
        "visited states from which the goal cannot be reached; left out of the figures above", _OURS
    ),
    "Jaccard similarity": Definition("common over all visited states, mean over pairs of a grid's trajectories", _B2),
    "accuracy on the way to the key": Definition("action accuracy before the key is picked up", _KEYS),
    "accuracy on the way to the door": Definition("action accuracy with the key, the door locked", _KEYS),
    "accuracy on the way to the goal": Definition("action accuracy once the door is open", _KEYS),
    "key pickup": Definition("share of episodes that came to the key's cell (on a control: where it would lie)", _KEYS),
    "key attraction bias": Definition("share of the non-optimal actions that approach the key", _KEYS),
    KEY_STEPWISE: Definition("whether a non-optimal action before the key is reached approaches it", _KEYS),
    KEY_POOLED: Definition("all non-optimal actions that approach the key over all non-optimal actions", _KEYS),
    "errors towards the key": Definition(
        "share of the actions before the key is reached that are not optimal and approach it", _OURS
    ),
    "key path taken": Definition(
        "of two equal paths, whether the goal was entered over the one with the key; undefined for an episode that did "
        "not arrive over one of them",
        _KEYS,
    ),
    "key path entered first": Definition(
        "of two equal paths, whether the one with the key was entered first; undefined where none was entered",
        _OURS,
    ),
    "Jaccard similarity with control": Definition(
        "common over all visited cells of two paired trajectories, with the key and on the control without", _B2
    ),
    "redundant backtracking": Definition(
        "share of an episode's actions that lead back to a cell with nothing new seen since the last visit", _FOG
    ),
    "moves into known dead ends": Definition(
        "share of an episode's actions that enter a part of the grid behind which the agent has seen that there is "
        "nothing but the way back",
        _FOG,
    ),
    "repeated wall bumps": Definition(
        "share of an episode's actions that changed nothing where the same action changed nothing before", _FOG
    ),
}
_ERRORS_FOG = f"{_OURS}: the errors of task worlds in other words (docs/exploration.md)"
for _kind, _calls in (("exploration", "before a way to the goal is revealed"), ("exploitation", "once it is")):
    for _of, _words in (
        ("", "turns"),
        (" of valid moves", "moves (blocked ones and turns without an action left out)"),
    ):
        _BASE |= {
            f"{_kind} error{_of} under fog": Definition(
                f"share of an episode's {_words} {_calls} that lead nearer to no target or go in circles; undefined "
                "without such a turn, never 0",
                _ERRORS_FOG,
            ),
            f"{_kind} errors{_of} under fog": Definition(f"number of those errors among the {_words}", _ERRORS_FOG),
            f"{_kind} steps{_of} under fog": Definition(f"number of {_words} {_calls}", _ERRORS_FOG),
        }
_MEG = "MEG towards the "
_PARTS = {
    "optimal baseline": "; here what an agent that draws uniformly from the optimal actions would show with the same "
    "visits",
    "excess": "; here the observed value minus that of an agent that draws uniformly from the optimal actions with the "
    "same visits, so that 0 is what a perfect agent shows",
    "5+ visits": "; over states with at least 5 visits",
    "per visit": "; mean over visits in place of states: exactly 0 in expectation for a perfect agent",
    "by distance": "; by distance to the goal",
}
_TITLES = {
    "JSD from optimal, excess, 5+ visits": "Excess JSD (5+ visits)",
    "JSD from optimal, excess, per visit": "Excess JSD (per visit)",
    "JSD from optimal, 5+ visits": "JSD (5+ visits)",
    "policy entropy, excess, 5+ visits": "Excess entropy (5+ visits)",
    "policy entropy, 5+ visits": "Entropy (5+ visits)",
    "calibration error, excess": "Excess calibration error",
    "action optimality": "Action accuracy",
    "JSD from optimal, 5+ visits, by distance": "JSD (5+ visits)",
    "JSD from optimal, excess, 5+ visits, by distance": "Excess JSD (5+ visits)",
    "policy entropy, 5+ visits, by distance": "Entropy (5+ visits)",
    "policy entropy, excess, 5+ visits, by distance": "Excess entropy (5+ visits)",
    KEY_POOLED: "Key attraction bias",
    "key attraction bias": "Key attraction bias by grid",
    "Jaccard similarity with control": "Jaccard similarity of pairs",
    "Jaccard similarity": "Jaccard similarity within the condition",
    "redundant backtracking": "Redundant backtracking",
    "moves into known dead ends": "Known dead ends",
    "repeated wall bumps": "Repeated bumps",
    "accuracy on the way to the key": "Accuracy to the key",
    "accuracy on the way to the door": "Accuracy to the door",
    "accuracy on the way to the goal": "Accuracy to the goal",
}


def title_of(measure: str) -> str:
    """Return the heading of a measure, e.g. "Excess JSD (5+ visits)"."""
    return _TITLES.get(measure, measure[:1].upper() + measure[1:])


def in_sentence(measure: str) -> str:
    """Return the heading of a measure as it stands inside a sentence: abbreviations keep their capitals."""
    title = title_of(measure)
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def definition_of(measure: str) -> Definition | None:
    """Return the definition of a measure, put together from its quantity and its parts; None for a foreign one."""
    if measure in _BASE:
        return _BASE[measure]
    if measure.startswith(_MEG):
        less = "" if LESS not in measure else "difference on the same world of two figures, each "
        return Definition(
            f"{less}a world's part of the signed maximum-entropy goal-directedness at the agent's common rationality: "
            "beta times the agent's mean utility there less W(beta), nats an episode; the mean over grids is the "
            "figure of goalscope meg, whose interval also has beta refitted",
            "MacDermott et al. (2024), definition 3.2; one rationality over worlds: goalscope",
        )
    quantity, *parts = measure.split(", ")
    if quantity not in _BASE or any(part not in _PARTS for part in parts):
        return None
    base = _BASE[quantity]
    return Definition(base.text + "".join(_PARTS[part] for part in parts), base.source)
