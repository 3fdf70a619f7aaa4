"""The Cliff World study and its figures: MEG against the fraction of random actions and the length of the goal region.

The tables have three columns: the exact values, the values with an off-by-one error (occupancies over horizon + 1
states, but a backup over horizon states), and the values printed in the paper. The off-by-one error only serves to
explain the printed table; nothing else in goalscope uses it.

Source: MacDermott et al. 2024, Section 6 and Appendix D.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_probability, freeze
from goalscope._ground.folder import NamedFile
from goalscope._ground.version import __version__
from goalscope.goals.meg import RationalityCurve, meg_known, meg_unknown
from goalscope.report.exports import drawing_style
from goalscope.worlds.planning import TabularMDP, occupancy, value_iteration

Array = npt.NDArray[np.float64]

# multiple of the beta that gives one nat over the range of utility; above it the utilities never become equal
_DOUBLINGS = 24

MOVES = ((-1, -1), (-1, 1), (1, -1), (1, 1))
"""The actions as (rows down, columns right): the four diagonals."""

WIDTH, HEIGHT, HORIZON, WIND = 10, 4, 30, 0.3
"""Inferred from the printed numbers where the paper does not state them."""

EPSILONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
GOAL_LENGTHS = (1, 2, 3, 4)

PRINTED: Mapping[str, Mapping[float, tuple[float, float, float]]] = {
    "goal length": {1: (37.8, 34.3, 2.6), 2: (21.4, 32.1, 0.5), 3: (16.8, 33.6, 0.5), 4: (18.9, 35.4, 0.6)},
    "epsilon": {
        0.1: (2.4, 26.1, 0.11),
        0.2: (1.5, 17.4, 0.2),
        0.3: (0.95, 11.0, 0.25),
        0.4: (0.50, 6.2, 0.08),
        0.5: (0.20, 2.9, 0.06),
        0.6: (0.04, 1.0, 0.003),
        0.7: (0.003, 0.10, 0.002),
        0.8: (0.001, 0.10, 0.003),
        0.9: (0.008, 0.091, 0.007),
    },
}
"""The paper's Appendix D.1: known utility, unknown utility and its two standard deviations."""


def cliff_world(goal_length: int = 1, *, wind: float = WIND) -> TabularMDP:
    """Build the Cliff World, where an agent walks from the top left to the goal at the top right, past a cliff in
    between.

    The state is ``row * 10 + col``, with row 0 at the top. An action moves diagonally, clamped to the grid, and wind
    moves the agent one more row up with probability ``wind``. A decision yields +10 in the goal region, -10 on the
    cliff and -1 elsewhere.

    Args:
        goal_length: number k of goal squares along the top row and down the right column, 2 k - 1 in all.
        wind: probability of wind.

    Raises:
        ValueError: a goal region that does not fit into the grid, or wind outside [0, 1].

    Source: MacDermott et al. 2024, Section 6 and Appendix D.
    """
    if goal_length not in GOAL_LENGTHS:
        raise ValueError(
            f"goal_length must be 1 to {GOAL_LENGTHS[-1]} so that the goal region fits into the grid, got {goal_length}"
        )
    check_probability("wind", wind)
    moves = np.zeros((HEIGHT * WIDTH, len(MOVES), HEIGHT * WIDTH))
    for row, col in np.ndindex(HEIGHT, WIDTH):
        for action, (down, right) in enumerate(MOVES):
            for gust, chance in ((0, 1 - wind), (-1, wind)):
                target = min(max(row + down + gust, 0), HEIGHT - 1), min(max(col + right, 0), WIDTH - 1)
                moves[row * WIDTH + col, action, target[0] * WIDTH + target[1]] += chance
    utility = np.full((HEIGHT, WIDTH), -1.0)
    utility[0, 1:-1] = -10.0
    utility[0, WIDTH - goal_length :] = 10.0
    utility[:goal_length, -1] = 10.0
    return TabularMDP(transitions=moves, utility=utility.reshape(-1), horizon=HORIZON, start=np.eye(HEIGHT * WIDTH)[0])


def greedy(mdp: TabularMDP, epsilon: float = 0.0, *, ties: Literal["computed", "true"] = "computed") -> Array:
    """Return the epsilon-greedy policy ``[n, S, A]`` of a world: action probabilities by time, state and action.

    The first of the best actions has probability 1 - epsilon; the other actions share epsilon equally.

    Args:
        mdp: the world, with n decisions, S states and A actions.
        epsilon: probability of an action other than the best.
        ties: "computed" compares floating-point numbers exactly, so rounding errors decide between equally good
            actions; "true" treats values that agree to 1e-9 as equal.

    Raises:
        ValueError: epsilon is outside [0, 1], or ties has another value.
    """
    check_probability("epsilon", epsilon)
    if ties not in ("computed", "true"):
        raise ValueError(f"ties must be 'computed' or 'true', got {ties!r}")
    solved = value_iteration(mdp)
    chosen = (solved.optimal if ties == "true" else solved.action_values).argmax(axis=-1)
    best = np.eye(mdp.actions)[chosen]
    return freeze((1 - epsilon) * best + epsilon / (mdp.actions - 1) * (1 - best))


def off_by_one(curve: RationalityCurve, policy: npt.NDArray[Any]) -> float:
    """Compute known-utility MEG (goal-directedness in nats) with the off-by-one error that explains a table of the
    paper.

    The soft policy is backed up over n states, which is correct. However, its rationality (inverse temperature) is
    fitted so that expected utilities agree over n + 1 states, including the state after the last decision. The value is
    the score of the prediction at this rationality, which is not the maximum.

    Args:
        curve: a world with utilities of states ``[S]``, and its soft policies by rationality.
        policy: action probabilities ``[S, A]`` by state and action, or ``[n, S, A]`` by time, too.

    Returns:
        The value; minus infinity if no rationality gives the policy's utility.

    Raises:
        ValueError: utilities that do not depend on states alone, or a terminal utility.
    """
    from scipy.optimize import brentq

    mdp = curve.mdp
    if mdp.utility.ndim != 1 or mdp.terminal_utility is not None:
        raise ValueError(
            "off_by_one needs utilities of states [S] without a terminal utility, got utilities of shape "
            f"{mdp.utility.shape}"
        )
    longer = float((occupancy(mdp, policy) @ mdp.utility).sum())

    def difference(beta: float) -> float:
        return longer - float((occupancy(mdp, curve.policy(beta)) @ mdp.utility).sum())

    utility = curve.utility_of(policy)
    side = math.copysign(1.0, difference(0.0))
    limit = side / curve.span if curve.span > 0 else side
    for _ in range(_DOUBLINGS):
        if difference(limit) * side <= 0:
            beta = float(brentq(difference, 0.0, limit, xtol=1e-12, rtol=1e-14))
            return beta * utility - curve.at(beta).log_normaliser
        limit *= 2
    end, value = (curve.highest, curve.bound) if side > 0 else (curve.lowest, curve.bound_lowest)
    return value if abs(utility - end) <= 1e-9 * curve.span else -math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CliffCase:
    """Results for one setting of the Cliff World: MEG (maximum-entropy goal-directedness, in nats) beside the printed
    values.

    Attributes:
        setting: epsilon, or the goal length.
        known, signed, beta: exact MEG in nats towards the world's utility, signed MEG, and the fitted rationality.
        known_true_ties: ``known`` for the policy that treats equally good actions as equal, see `greedy`.
        unknown: exact MEG with an unknown utility of states (the tabular optimum), an upper bound for every network.
        neural, neural_spread: greatest MEG of several networks and the standard deviation over networks; NaN if not
            computed.
        off_by_one: known-utility MEG with the off-by-one error.
        bound: greatest MEG that any policy has towards this utility.
        utility, uniform: expected utility of the policy and of uniform decisions.
        printed_known, printed_unknown, printed_spread: values printed in the paper; the spread is two standard
            deviations.
        occupancy: ``[H, W]`` (rows by columns) expected number of decisions in each cell.
        best_utility: ``[H, W]`` the best unknown utility in nats, or an approximation if the best utility is a limit.
    """

    setting: float
    known: float
    signed: float
    beta: float
    known_true_ties: float
    unknown: float
    neural: float
    neural_spread: float
    off_by_one: float
    bound: float
    utility: float
    uniform: float
    printed_known: float
    printed_unknown: float
    printed_spread: float
    occupancy: Array
    best_utility: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CliffStudy:
    """Results of both Cliff World experiments of the paper on maximum-entropy goal-directedness (MEG).

    Attributes:
        by_epsilon: results for each epsilon (probability of a random action), at goal length 1.
        by_goal_length: results for each goal length (number of goal squares along an edge), at epsilon 0.
    """

    by_epsilon: tuple[CliffCase, ...]
    by_goal_length: tuple[CliffCase, ...]


def cliff_study(*, neural_seeds: int = 0) -> CliffStudy:
    """Compute both Cliff World experiments of the paper: MEG against the share of random actions and against goal
    length.

    Args:
        neural_seeds: number of networks to train per setting for MEG with an unknown utility (needs the extra ``lm``);
            0 for none.

    Raises:
        ImportError: ``neural_seeds`` is above 0 and PyTorch is not installed.
    """
    by_epsilon, by_goal_length = (
        tuple(_case(experiment, setting, neural_seeds) for setting in settings)
        for experiment, settings in (("epsilon", EPSILONS), ("goal length", GOAL_LENGTHS))
    )
    return CliffStudy(by_epsilon=by_epsilon, by_goal_length=by_goal_length)


def _case(experiment: str, setting: float, neural_seeds: int) -> CliffCase:
    goal_length, epsilon = (1, setting) if experiment == "epsilon" else (int(setting), 0.0)
    mdp = cliff_world(goal_length)
    policy, curve = greedy(mdp, epsilon), RationalityCurve(mdp)
    known_meg, unknown = meg_known(curve, policy), meg_unknown(mdp, policy)
    neural, neural_spread = math.nan, math.nan
    if neural_seeds:
        climbed = meg_unknown(mdp, policy, utilities="neural", seeds=range(neural_seeds))
        neural, neural_spread = climbed.value, climbed.spread
    printed_known, printed_unknown, printed_spread = PRINTED[experiment][setting]
    shape = (HEIGHT, WIDTH)
    return CliffCase(
        setting=float(setting),
        known=known_meg.value,
        signed=known_meg.signed,
        beta=known_meg.beta,
        known_true_ties=meg_known(curve, greedy(mdp, epsilon, ties="true")).value,
        unknown=unknown.tabular,
        neural=neural,
        neural_spread=neural_spread,
        off_by_one=off_by_one(curve, policy),
        bound=known_meg.bound,
        utility=known_meg.utility,
        uniform=known_meg.uniform_utility,
        printed_known=printed_known,
        printed_unknown=printed_unknown,
        printed_spread=printed_spread,
        occupancy=freeze(occupancy(mdp, policy)[:-1].sum(axis=0).reshape(shape)),
        best_utility=freeze(unknown.utility.reshape(shape)),
    )


_BLUE, _RED, _GREEN, _GREY = "#4477aa", "#cc3311", "#228833", "#555555"


def write_json(study: CliffStudy, path: Path) -> None:
    """Write the results of both Cliff World experiments to a JSON file.

    Numbers that are not finite become "inf" or "nan".
    """

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return value if math.isfinite(value) else str(value)

    def table(cases: Sequence[CliffCase]) -> list[dict[str, Any]]:
        return [{field.name: plain(getattr(case, field.name)) for field in fields(case)} for case in cases]

    content = {
        "goalscope": __version__,
        "unit": "nats",
        "settings": {
            "width": WIDTH,
            "height": HEIGHT,
            "horizon": HORIZON,
            "wind": WIND,
            "moves": [list(move) for move in MOVES],
            "policy": "argmax by time, the first of equal floating-point values; others with epsilon / 3 each",
        },
        "by_epsilon": table(study.by_epsilon),
        "by_goal_length": table(study.by_goal_length),
    }
    NamedFile(path).save_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_figures(study: CliffStudy, folder: Path) -> list[Path]:
    """Draw goal-directedness (MEG) against epsilon and goal length, and maps of visited cells, as PNG and SVG files.

    Args:
        study: the results.
        folder: existing folder for the files.

    Returns:
        The paths of the files.

    Raises:
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    written = []
    drawings = (("meg", (9.6, 3.9), _draw_values), ("occupancy", (9.6, 4.9), _draw_maps))
    with drawing_style({"svg.hashsalt": "goalscope", "font.family": ["DejaVu Sans"], "font.size": 9.5}):
        from matplotlib.figure import Figure

        for name, size, draw in drawings:
            figure = Figure(figsize=size, layout="constrained")
            draw(study, figure)
            for ending in ("png", "svg"):
                path = folder / f"{name}.{ending}"
                with NamedFile(path).replacing() as partial:
                    metadata = {"Date": None} if ending == "svg" else None
                    figure.savefig(partial, dpi=160, metadata=metadata, format=ending)
                written.append(path)
    return written


def _draw_values(study: CliffStudy, figure: Any) -> None:
    tables = ((study.by_epsilon, "epsilon, chance of another action"), (study.by_goal_length, "goal length k, squares"))
    panels = figure.subplots(1, 2, sharey=True)
    for (cases, label), panel in zip(tables, panels, strict=True):
        x = [case.setting for case in cases]
        lines = (
            ("known utility, exact", [case.known for case in cases], _BLUE, "o", "-"),
            ("unknown utility, exact", [case.unknown for case in cases], _GREEN, "s", "-"),
            ("known utility, off by one", [case.off_by_one for case in cases], _GREY, "x", ":"),
            ("known utility, as printed", [case.printed_known for case in cases], _RED, "v", "none"),
            ("unknown utility, as printed", [case.printed_unknown for case in cases], _RED, "^", "none"),
            ("unknown utility, networks", [case.neural for case in cases], _GREEN, "D", "--"),
        )
        if panel is panels[0]:
            panel.axhline(cases[0].bound, color=_BLUE, linestyle="--", linewidth=1, label="most that any policy has")
        for name, values, colour, marker, dash in lines:
            hollow = {"markerfacecolor": "none"} if dash == "none" else {}
            if np.isfinite(values).any():
                panel.plot(x, values, label=name, color=colour, marker=marker, linestyle=dash, markersize=5, **hollow)
        panel.set_xlabel(label)
        panel.set_xticks(x)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e4e7eb")
    panels[0].set_ylabel("MEG, nats")
    panels[0].set_title("Goal length 1", loc="left", fontweight="bold")
    panels[1].set_title("Optimal policies (epsilon 0)", loc="left", fontweight="bold")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _draw_maps(study: CliffStudy, figure: Any) -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Rectangle

    cases = study.by_goal_length
    top = max(float(case.occupancy.max()) for case in cases)
    panels = figure.subplots(2, 2)
    for case, panel in zip(cases, panels.flat, strict=True):
        image = panel.imshow(case.occupancy, cmap="Blues", norm=PowerNorm(0.4, 0, top))
        utility = np.asarray(cliff_world(int(case.setting)).utility).reshape(HEIGHT, WIDTH)
        for (row, col), count in np.ndenumerate(case.occupancy):
            edge = {10.0: "#b8860b", -10.0: _RED}.get(float(utility[row, col]))
            if edge:
                box = Rectangle((col - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor=edge, linewidth=1.8)
                panel.add_patch(box)
            if count >= 0.05:
                ink = "white" if count > 0.3 * top else "#1f2328"
                panel.text(col, row, f"{count:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
        panel.set_title(f"k = {case.setting:.0f}: MEG {case.known:.2f} nats", loc="left", fontweight="bold")
        panel.set_xticks([])
        panel.set_yticks([])
    figure.colorbar(
        image,
        ax=panels,
        shrink=0.8,
        ticks=[0, 0.1, 0.5, 1, 2, 5, 10, 20],
        label=f"expected decisions in the cell, of {HORIZON}",
    )
    figure.suptitle("Optimal policies: gold goal region, red cliff, start at the top left", fontsize=9.5)
