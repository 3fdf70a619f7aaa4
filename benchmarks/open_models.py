"""Run and analyse the preregistered study of four open models; docs/open-models.md shows its results.

``python benchmarks/open_models.py --models DIR --out RUNS`` plays what is still missing in RUNS and prints the tables.
DIR holds the GGUF files that open_models.yaml, the preregistration, names by their sha256. All models advance together
in blocks of worlds, so the command can be stopped at any time (or by ``--minutes``) and repeated to go on. ``--worlds``
gives the number of worlds of each size; a larger number adds worlds to those already played.

``--turns FILE`` writes every turn to a CSV file, and ``--from FILE`` analyses such a file without any model. Without
arguments, the published turns (open_models.csv) are analysed. The tables state the digest of the preregistration, and a
run that began under another preregistration is refused.
"""

import argparse
import csv
import hashlib
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from goalscope.agents.models.weight_files import digest_of
from goalscope.agents.prompts import example_action
from goalscope.goals.counterfactual.dependence import Asked, Dependence, WorldTurns, dependences
from goalscope.goals.hypotheses import Undefined, finite_world, parse
from goalscope.runs import Store, Study, run
from goalscope.runs.episode import Episode
from goalscope.runs.record import policy_of
from goalscope.runs.shards import grow
from goalscope.stats import Estimate, corrected, estimate_mean

HERE = Path(__file__).parent
PLAN = HERE / "open_models.yaml"
TEMPLATE = HERE / "open_models_reasoning.txt"
TURNS = HERE / "open_models.csv"
MOVES = "UDLR"
LEVEL = 0.05
TARGETS = ("goal", "corner top-left", "corner top-right", "corner bottom-left", "corner bottom-right")
Values = np.ndarray[Any, np.dtype[np.float64]]


class Cell:
    """The turns of one model in one way of asking, as arrays over turns.

    Attributes:
        model, asked: name of the model, and the encoding or "matrix, reasons first".
        world: ``[N]`` label of the unchanged world, the cluster of every interval.
        moved, example: ``[N]`` what was changed in it, and the move in the prompt's example of an answer.
        policy: ``[N, 4]`` probabilities of the moves; one-hot for a generated answer, NaN without one.
        valid: ``[N]`` probability that the whole answer is valid, of what the model would write on its own.
        mass: ``[N]`` the same after the common beginning of the answers.
        best: target -> ``[N, 4]`` moves on a shortest path to it, NaN where it is undefined or any move is.
        reads: whether the policies are exact.
    """

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        self.rows, self.model, self.asked = rows, rows[0]["model"], rows[0]["asked"]
        self.world = np.array([row["world"] for row in rows])
        self.moved, self.example = (np.array([row[name] for row in rows]) for name in ("moved", "example"))
        self.policy = np.array([[float(number) for number in row["policy"].split()] or [np.nan] * 4 for row in rows])
        self.valid, self.mass = (np.array([float(row[name]) for row in rows]) for name in ("valid", "mass"))
        self.best = {target: np.array([_moves(row[target]) for row in rows]) for target in TARGETS}
        self.reads = bool((self.policy.max(axis=1) < 1).any())

    def gain(self, target: str, baseline: str) -> tuple[Values, Values]:
        """Return ``[N]`` the probability of moves towards a target minus that of a baseline, and its worlds.

        Args:
            target: one of `TARGETS`.
            baseline: "chance" for uniform moves, "blind" for the model's mean policy in all other worlds whose prompt
                shows the same example of an answer.
        """
        kept = ~np.isnan(self.best[target][:, 0]) & ~np.isnan(self.policy[:, 0])
        policy, best, world = self.policy[kept], self.best[target][kept], self.world[kept]
        if baseline == "chance":
            return (policy * best).sum(axis=1) - best.mean(axis=1), world
        names, first = np.unique(world, return_index=True)
        means = np.array([policy[world == name].mean(axis=0) for name in names])
        alike = self.example[kept][first][:, None] == self.example[kept][first]
        np.fill_diagonal(alike, False)
        with np.errstate(invalid="ignore"):  # a world whose example no other world shows has no baseline
            blind = (alike @ means / alike.sum(axis=1, keepdims=True))[np.searchsorted(names, world)]
        return ((policy - blind) * best).sum(axis=1), world

    def asked_states(self) -> list[Asked]:
        """Return the answers in unchanged and changed states, for the package's rule on what moves depend on."""
        states: dict[str, Asked] = {}
        for moved in ("nothing", *sorted(set(self.moved) - {"nothing"})):
            for index in np.flatnonzero(self.moved == moved):
                policy = self.policy[index]
                side = WorldTurns(counts=policy, policy=policy)
                if moved == "nothing":
                    states[self.world[index]] = Asked(cluster=self.world[index], tags={}, side=side)
                else:
                    states[self.world[index]].changed.setdefault(moved, []).append(side)
        return list(states.values())


def _moves(text: str) -> list[float]:
    return [float(move in text) for move in MOVES] if text and len(text) < len(MOVES) else [np.nan] * len(MOVES)


def main() -> None:
    """Play, analyse, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder of the GGUF files")
    parser.add_argument("--out", type=Path, help="folder of the runs; a second call goes on there")
    parser.add_argument("--worlds", type=int, default=24, help="worlds of each size")
    parser.add_argument("--minutes", type=float, default=480.0, help="no block begins after this time")
    parser.add_argument("--only", default="", help="names of models, separated by commas")
    parser.add_argument("--turns", type=Path, help="CSV file of all turns, written")
    parser.add_argument("--from", dest="source", type=Path, help="CSV file of all turns, read instead of runs")
    parser.add_argument("--figure", type=Path, help="SVG file of the contrast, written")
    parser.add_argument("--play", nargs=2, metavar=("MODEL", "WORLDS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    plan = read_plan()
    if given.play:
        play(plan, given.play[0], int(given.play[1]), given.models, given.out)
        return
    if given.models:
        check_models(plan, given.models)
        check_registration(given.out)
        play_all(plan, given)
    source = given.source or (None if given.out else TURNS)
    rows = list(turns(plan, given.out)) if source is None else list(csv.DictReader(source.open(encoding="utf-8")))
    if given.turns:
        with given.turns.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    cells = cells_of(rows)
    print_tables(plan, cells)
    if given.figure:
        draw(cells, given.figure)


def read_plan() -> dict[str, Any]:
    """Return the preregistration."""
    plan: dict[str, Any] = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    return plan


def registration() -> str:
    """Return the digest of the preregistration and of the prompt that asks for reasoning."""
    return hashlib.sha256(PLAN.read_bytes() + TEMPLATE.read_bytes()).hexdigest()


def check_registration(out: Path) -> None:
    """Write the digest beside the runs, or refuse runs that began under another preregistration."""
    out.mkdir(parents=True, exist_ok=True)
    stored = out / "preregistration.sha256"
    if not stored.exists():
        stored.write_text(registration(), encoding="utf-8")
    if stored.read_text(encoding="utf-8") != registration():
        raise SystemExit(f"{out} began under another preregistration than {PLAN}: choose another folder")


def check_models(plan: Mapping[str, Any], folder: Path) -> None:
    """Refuse a file that is not the one of the preregistration."""
    for model in plan["models"]:
        if (digest := digest_of(folder / model["file"])) != model["sha256"]:
            raise SystemExit(f"{folder / model['file']} has the sha256 {digest}, not {model['sha256']}")


def play_all(plan: Mapping[str, Any], given: argparse.Namespace) -> None:
    """Play all models in blocks of worlds, each in a process of its own, until the time is spent."""
    began = time.monotonic()
    names = given.only.split(",") if given.only else [model["name"] for model in plan["models"]]
    blocks = [*range(plan["block"], given.worlds, plan["block"]), given.worlds]
    for count in blocks:
        for name in names:
            spent = (time.monotonic() - began) / 60
            if spent > given.minutes:
                print(f"stopped after {spent:.0f} minutes, before {name} with {count} worlds of each size", flush=True)
                return
            options = ["--models", str(given.models), "--out", str(given.out), "--play", name, str(count)]
            subprocess.run([sys.executable, __file__, *options], check=True)
            print(f"{name}: {count} worlds of each size after {(time.monotonic() - began) / 60:.1f} min", flush=True)


def play(plan: Mapping[str, Any], name: str, count: int, models: Path, out: Path) -> None:
    """Play what is missing of the runs of a model."""
    [model] = [model for model in plan["models"] if model["name"] == name]
    for kind in ("direct", "reasoned"):
        agents = entries(plan, model, models / model["file"], kind)
        if not agents:
            continue
        worlds = {**plan["worlds"], "moved": plan["moved"][kind]}
        worlds["of"] = [{**grid, "count": count} for grid in worlds["of"]]
        settings = {"seed": plan["seed"], "trajectories": 1, "horizon": {"steps": 1}}
        study = Study.assemble({"name": f"{name}, {kind}", **settings, "worlds": [worlds], "agents": agents})
        with Store(out / f"{name}-{kind}", "w") as store:
            grow(store, study)
            run(study, store)


def entries(plan: Mapping[str, Any], model: Mapping[str, Any], file: Path, kind: str) -> list[dict[str, Any]]:
    """Return the ways in which a model is asked, as agents of a study."""
    common = {"kind": "chat", "model": str(file), "dtype": model["dtype"], **plan["asked"][kind]}
    if kind == "direct":
        return [{**common, "name": encoding, "encoding": encoding} for encoding in model["encodings"]]
    return [{**common, "name": "matrix, reasons first", "task": str(TEMPLATE)}] if model["reasons"] else []


def turns(plan: Mapping[str, Any], out: Path) -> Iterator[dict[str, Any]]:
    """Yield one row for each stored turn."""
    for model in plan["models"]:
        for path in sorted(out.glob(f"{model['name']}-*")):
            with Store(path) as store:
                for episode in sorted(store.episodes(), key=lambda episode: (episode.agent, episode.world.id)):
                    yield {"model": model["name"], "asked": episode.agent, **_turn(episode)}


def _turn(episode: Episode) -> dict[str, Any]:
    world, step = episode.world, episode.steps[0]
    policy, likelihood = policy_of(step.extra), step.extra.get("likelihood")
    if policy is None and step.action is not None:
        policy = np.eye(len(MOVES))[int(step.action)].tolist()
    mass = float(step.action is not None) if likelihood is None else likelihood["mass"]
    opens = 1.0 if likelihood is None else float(np.exp(likelihood["beginning"]))
    return {
        "world": world.original[-12:],
        "size": world.tags["size"],
        "moved": world.moved,
        "example": MOVES[example_action(world.shared_examples, 0, range(len(MOVES)))],
        "policy": " ".join(f"{number:.5f}" for number in policy or ()),
        "mass": f"{mass:.5f}",
        "valid": f"{mass * opens:.5f}",
        **{target: _towards(target, world) for target in TARGETS},
    }


def _towards(target: str, world: Any) -> str:
    """Return the letters of the first moves on shortest paths to a target; "" where it is undefined."""
    try:
        finite = finite_world(world, 40)
        [policy] = parse(target).solved(finite).policy
    except Undefined:
        return ""
    start = int(np.argmax(finite.process.start))
    return "".join(letter for letter, share in zip(MOVES, policy[start], strict=True) if share > 0)


def cells_of(rows: Iterable[Mapping[str, str]]) -> list[Cell]:
    """Return the cells of a study, in the order in which they first appear."""
    parts: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        parts.setdefault((row["model"], row["asked"]), []).append(row)
    return [Cell(part) for part in parts.values()]


def print_tables(plan: Mapping[str, Any], cells: Sequence[Cell]) -> None:
    """Print every table of the page."""
    print(f"preregistration {registration()}\n{sum(len(cell.rows) for cell in cells):,} turns\n")
    table("Validity", ("model", "asked in", "valid once begun", "valid as a whole", "worlds"), _validity(cells))
    names, competence = [f"{cell.model}, {cell.asked}" for cell in cells], [tested(cell, "goal") for cell in cells]
    tests = sum(not math.isnan(p) for _, p in competence)
    adjusted = corrected({name: p for name, (_, p) in zip(names, competence, strict=True)}, "competence")
    lines = []
    for name, cell, (blind, _) in zip(names, cells, competence, strict=True):
        values, worlds = cell.gain("goal", "chance")
        chance = estimate_mean(values, worlds, unit="share", bounds=(-1, 1))
        p = adjusted[name].adjusted
        competent = answer(blind, p, plan["smallest effect"])
        contrast = _contrast(cell)
        lines.append((cell.model, cell.asked, say(chance), say(blind), say(contrast), f"{p:.3f}", competent))
    heading = ("model", "asked in", "gain over chance", "gain over own baseline", "difference", "p (Holm)", "competent")
    table(f"Competence ({tests} tests)", heading, lines)
    lines = []
    for cell in cells:
        for found in dependences({cell.model: cell.asked_states()}) if cell.reads else ():
            lines.append((cell.model, cell.asked, *_dependence(found)))
    table("What moves depend on", ("model", "asked in", "changed", "share", "total variation", "depends"), lines)
    lines = []
    for cell in cells:
        gains = {target: tested(cell, target) for target in TARGETS}
        after = corrected({target: p for target, (_, p) in gains.items()}, "towards what")
        shown = [target for target in TARGETS if after[target].adjusted <= LEVEL and gains[target][0].value > 0]
        best = max(shown, key=lambda target: gains[target][0].value, default="nothing shown")
        lines.append((cell.model, cell.asked, *(say(gains[target][0]) for target in TARGETS), best))
    table("Towards what, above the own baseline", ("model", "asked in", *TARGETS, "towards"), lines)
    table(
        "Paired differences of the gain over the own baseline", ("difference", "estimate", "p (Holm)"), _paired(cells)
    )
    lines = [(cell.model, cell.asked, *_power(cell, len(cells))) for cell in cells]
    table("Power", ("model", "asked in", "worlds", "SD over worlds", "detected in 4 of 5 studies"), lines)


def table(title: str, heading: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    print(f"### {title}\n")
    for line in (heading, ["---"] * len(heading), *lines):
        print(f"| {' | '.join(line)} |")
    print()


def say(estimate: Estimate) -> str:
    """Write an estimate with its interval."""
    ends = f" [{estimate.low:+.3f}, {estimate.high:+.3f}]" if estimate.has_interval else ""
    return f"{estimate.value:+.3f}{ends}"


def _validity(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    lines = []
    for cell in cells:
        shares = (estimate_mean(part, cell.world, unit="share", bounds=(0, 1)) for part in (cell.mass, cell.valid))
        count = len(np.unique(cell.world))
        lines.append((cell.model, cell.asked, *(say(share).replace("+", "") for share in shares), str(count)))
    return lines


def _means(cell: Cell, target: str, baseline: str = "blind") -> dict[str, float]:
    values, worlds = cell.gain(target, baseline)
    return {str(name): float(values[worlds == name].mean()) for name in np.unique(worlds)}


def tested(cell: Cell, target: str) -> tuple[Estimate, float]:
    """Return the gain over the own baseline with its interval, and the p value of a t test over worlds."""
    values, worlds = cell.gain(target, "blind")
    means = [mean for mean in _means(cell, target).values() if not math.isnan(mean)]
    p = float(stats.ttest_1samp(means, 0.0).pvalue) if len(means) > 2 and np.ptp(means) > 1e-9 else math.nan
    return estimate_mean(values, worlds, unit="share", bounds=(-1, 1)), p


def _contrast(cell: Cell) -> Estimate:
    """Return the gain over chance minus the gain over the own baseline."""
    values, worlds = cell.gain("goal", "chance")
    return estimate_mean(values - cell.gain("goal", "blind")[0], worlds, unit="share", bounds=(-1, 1))


def answer(gain: Estimate, p: float, smallest: float) -> str:
    """Return whether a cell is competent, by the preregistered rule."""
    if p <= LEVEL:
        return "yes" if gain.value > 0 else "worse than its habit"
    return f"no (below {smallest:g})" if gain.high < smallest else "undecided"


def _dependence(found: Dependence) -> tuple[str, ...]:
    variation = "–" if found.variation is None else say(found.variation).replace("+", "")
    return found.moved, say(found.share), variation, found.answer


def _paired(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Compare cells that differ in one thing: the encoding, the reasoning, or the model."""
    by_name = {(cell.model, cell.asked): _means(cell, "goal") for cell in cells}
    pairs = [(first, second) for first in by_name for second in by_name if _comparable(first, second)]
    results: dict[str, tuple[Estimate, float]] = {}
    for first, second in pairs:
        worlds = sorted(by_name[first].keys() & by_name[second].keys())
        differences = np.array([by_name[first][world] - by_name[second][world] for world in worlds])
        p = float(stats.ttest_1samp(differences, 0.0).pvalue) if len(worlds) > 2 else math.nan
        name = f"{', '.join(first)} minus {', '.join(second)}"
        results[name] = estimate_mean(differences, worlds, unit="share", bounds=(-2, 2)), p
    adjusted = corrected({name: p for name, (_, p) in results.items()}, "paired differences")
    return [(name, say(estimate), f"{adjusted[name].adjusted:.3f}") for name, (estimate, _) in results.items()]


def _comparable(first: tuple[str, str], second: tuple[str, str]) -> bool:
    if first[0] == second[0]:
        return second[1] == "matrix" and first[1] != "matrix"
    return first[1] == second[1] and (first[0], second[0]) == ("qwen-1.5b", "qwen-0.5b")


def _power(cell: Cell, tests: int) -> tuple[str, ...]:
    """Return the worlds, their standard deviation, and the gain that Bonferroni's level detects with power .8."""
    means = np.array([mean for mean in _means(cell, "goal").values() if not math.isnan(mean)])
    spread = float(means.std(ddof=1)) if len(means) > 1 else math.nan
    effect = (stats.norm.ppf(1 - LEVEL / tests / 2) + stats.norm.ppf(0.8)) * spread / math.sqrt(len(means))
    return str(len(means)), f"{spread:.3f}", f"{effect:.3f}"


def draw(cells: Sequence[Cell], file: Path) -> None:
    """Draw the gain over chance beside the gain over the own baseline, for likelihood answers."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "goalscope", "font.size": 8})
    from matplotlib import pyplot

    cells = [cell for cell in cells if cell.reads]
    figure, axes = pyplot.subplots(figsize=(6.4, 0.28 * len(cells) + 1.1), layout="constrained")
    for baseline, colour, shift in (("chance", "#b5651d", -0.14), ("blind", "#1f5fa8", 0.14)):
        gains = [estimate_mean(*cell.gain("goal", baseline), unit="share", bounds=(-1, 1)) for cell in cells]
        middle = [gain.value for gain in gains]
        ends = [[gain.value - gain.low for gain in gains], [gain.high - gain.value for gain in gains]]
        label = "over chance" if baseline == "chance" else "over its own state-blind baseline"
        axes.errorbar(middle, np.arange(len(cells)) + shift, xerr=ends, fmt="o", ms=3, lw=1, color=colour, label=label)
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_yticks(range(len(cells)), [f"{cell.model}, {cell.asked}" for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel("gain in the probability of a move on a shortest path (95 % interval over worlds)")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
    figure.savefig(file, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
