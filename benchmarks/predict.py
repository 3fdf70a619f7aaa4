"""Measure how well behaviour in unseen kinds of worlds is predicted, on agents whose behaviour there is known exactly.

    python benchmarks/predict.py OUT --measure calibration   # resumable: one file for each agent and regime
    python benchmarks/predict.py OUT --calibrate             # prints the constants of goals/prediction/calibration.yaml
    python benchmarks/predict.py OUT --measure evaluation    # other agents, and the sealed families
    python benchmarks/predict.py OUT                         # the tables
    python benchmarks/predict.py OUT --page                  # how often a sentence on the page of evaluate is true

Each agent is seen in 42 worlds, one episode each with two answers per step, and predicted in the kinds of worlds that
come with goalscope, in two draws of worlds. In the regime "confounded" the goal lies top right in all worlds that were
seen. Truth is exact: the agents' own probabilities are propagated. Four families of agents are sealed: the
evaluation is refused if they, or the rules and constants that predict them, are not those whose digests are in
`predicted_agents.py`.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
from planted_answers import played
from predicted_agents import (
    CALIBRATION_RECIPES,
    CONFOUNDED,
    ORDINARY,
    RECIPES,
    Subject,
    calibration,
    check_seals,
    learned,
    scripted,
    sealed,
    worlds_of,
)

from goalscope.goals.attribution import KindPrediction
from goalscope.goals.attribution.claim import divergence
from goalscope.goals.hypotheses import FiniteWorld, Hypothesis, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.goals.prediction.expected import BASELINES, doubts_about, expect
from goalscope.goals.prediction.expected import calibration as shipped_calibration
from goalscope.goals.prediction.kinds import ELSEWHERE, SHIPPED, KindsOfWorlds, places_in, with_none
from goalscope.goals.prediction.mixture import RuleTables
from goalscope.goals.prediction.predictor import Predictor
from goalscope.verdict.page import predicted_from

REGIMES = {"ordinary": ORDINARY, "confounded": CONFOUNDED}
DRAWS = 2
Worlds = Mapping[str, Sequence[FiniteWorld]]
SEEN = 7
RESAMPLES = 2000
TRUSTED = 0.03
"""Greatest mean divergence of shares over the kinds that are trusted, among the agents of the calibration."""
RELEVANT = 0.02
"""Shares at least this large, true or predicted, count for the coverage; others would be covered without merit."""


def truth(subject: Subject, worlds: Sequence[FiniteWorld], places: Sequence[Hypothesis]) -> np.ndarray:
    """Return the probabilities of the places that an agent reaches first, ``[W, K + 1]``."""
    return np.array(
        [with_none(arrivals(world, places_in(world, places), subject.table(world)[None])[0]) for world in worlds]
    )


def compared(kind: KindPrediction, true: np.ndarray, home: np.ndarray, doubtful: bool) -> dict:
    """Return how a prediction in one kind of worlds compares with the truth."""
    return {
        "true": true.mean(axis=0).tolist(),
        "shares": [share for share, _, _ in kind.shares.values()],
        "scale": [*kind.scales.values()],
        "doubtful": doubtful,
        "world": float(divergence(true, np.array(kind.chances)).mean()),
        "moved": float(divergence(true.mean(axis=0), home)),
        "baselines": {
            name: [
                float(divergence(true, np.array(chances)).mean()),
                float(divergence(true.mean(axis=0), np.mean(chances, axis=0))),
            ]
            for name, chances in kind.baselines.items()
        },
    }


def measured(
    subject: Subject,
    seen: Sequence[FiniteWorld],
    draws: Sequence[Worlds],
    places: Sequence[Hypothesis],
    tables: RuleTables,
) -> list[dict]:
    """Return what was predicted and what is true, one record for each draw of worlds."""
    rng = np.random.default_rng([11, *subject.name.encode()])
    answers = [played(world, subject.table(world), rng) for world in seen]
    home, records, fitting = truth(subject, seen, places).mean(axis=0), [], 0.0
    predictor = Predictor(answers, places, tables=tables)
    for number, unseen in enumerate(draws):
        began = time.process_time()
        doubts = doubts_about(predictor, unseen)
        kinds = expect(predictor, unseen, doubts)
        seconds = time.process_time() - began + fitting
        fitting = fitting or seconds
        doubtful = {name for doubt in doubts for name in doubt.kinds}
        by_kind = {
            kind.kind: compared(kind, truth(subject, unseen[kind.kind], places), home, kind.kind in doubtful)
            for kind in kinds
        }
        records.append(
            {
                "agent": subject.name,
                "group": subject.group,
                "goal": subject.goal,
                "draw": number,
                "distance": predictor.distance,
                "seconds": seconds,
                "weights": predictor.weights,
                "kinds": by_kind,
            }
        )
    return records


def measure(out: Path, which: str, regimes: Sequence[str]) -> None:
    """Measure all agents that were not measured yet."""
    networks = out / "networks"
    if which == "calibration":
        subjects = [*calibration(), *learned(networks, CALIBRATION_RECIPES, "calibration", 2)]
    else:
        check_seals()
        subjects = [*scripted(), *sealed(), *learned(networks, RECIPES, "learned", 4)]
    design = KindsOfWorlds.load(SHIPPED)
    places = [parse(place) for place in design.places]
    seeds = range(DRAWS) if which == "evaluation" else range(100, 100 + DRAWS)
    draws = [design.model_copy(update={"seed": seed}).unseen() for seed in seeds]
    tables = RuleTables()
    for regime in regimes:
        seen = worlds_of(REGIMES[regime], SEEN, 7 if which == "evaluation" else 107)
        for subject in subjects:
            path = out / which / regime / f"{subject.name}.json"
            if not path.exists():
                records = measured(subject, seen, draws, places, tables)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(records))
                print(f"{regime} {subject.name}: {records[0]['seconds']:.1f} s", flush=True)
    (out / f"sisters-{which}.json").write_text(json.dumps(sister_floor(subjects, draws[0], places)))


def sister_floor(subjects: Sequence[Subject], unseen: Worlds, places: Sequence[Hypothesis]) -> list:
    """Return the mean divergence between networks of one recipe, a world and of shares."""
    pairs = []
    for recipe in dict.fromkeys(subject.recipe for subject in subjects if subject.recipe):
        true = [[truth(net, w, places) for w in unseen.values()] for net in subjects if net.recipe == recipe]
        pairs += [
            (divergence(first, second).mean(), divergence(first.mean(axis=0), second.mean(axis=0)))
            for sisters in permutations(true, 2)
            for first, second in zip(*sisters, strict=True)
        ]
    return np.mean(pairs, axis=0).tolist()


def records_of(out: Path, which: str, regime: str) -> list[dict]:
    """Return the stored records of a regime."""
    return [record for path in sorted((out / which / regime).glob("*.json")) for record in json.loads(path.read_text())]


def shares_kl(kind: dict) -> float:
    """Return the divergence of the predicted shares of a kind."""
    return float(divergence(np.array(kind["true"]), np.array(kind["shares"])))


def of_agents(records: Sequence[dict], value: Callable[[dict], float]) -> np.ndarray:
    """Return the mean over kinds for each record."""
    return np.array([np.mean([value(kind) for kind in record["kinds"].values()]) for record in records])


def with_interval(values: np.ndarray) -> str:
    """Return a mean over agents with its 95 % interval, from resampled agents."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    return "{:.3f} [{:.3f}, {:.3f}]".format(values.mean(), *np.quantile(means, [0.025, 0.975]))


def ratios(record: dict) -> Iterator[tuple[bool, float, float, float]]:
    """Yield for each relevant share whether its kind is doubtful, its error in scales, its scale, and its share."""
    for kind in record["kinds"].values():
        for true, share, scale in zip(kind["true"], kind["shares"], kind["scale"], strict=True):
            if max(true, share) >= RELEVANT:
                yield kind["doubtful"], abs(true - share) / scale, scale, share


def calibrate(out: Path) -> None:
    """Print the constants: the trusted distance, and the multiples of the scale."""
    records = [record for regime in REGIMES for record in records_of(out, "calibration", regime)]
    trusted = sorted(
        (record["distance"], shares_kl(kind))
        for record in records
        for kind in record["kinds"].values()
        if not kind["doubtful"]
    )
    means = np.cumsum([error for _, error in trusted]) / np.arange(1, len(trusted) + 1)
    distance = trusted[int(np.flatnonzero(means <= TRUSTED)[-1])][0]
    share = np.mean([record["distance"] <= distance for record in records])
    print(f"# {len({record['agent'] for record in records})} agents, {share:.0%} of the predictions trusted")
    print(f"distance: {distance:.3f}")
    width = multiples_of(records, distance)
    print(f"width: {{good: {width['good']:.2f}, poor: {width['poor']:.2f}}}")


def multiples_of(records: Sequence[dict], limit: float) -> dict[str, float]:
    """Return by trust the multiple of the scale that holds nine of ten relevant shares."""
    by_trust: dict[str, list[float]] = {"good": [], "poor": []}
    for record in records:
        for doubtful, ratio, _, _ in ratios(record):
            by_trust["poor" if doubtful or record["distance"] > limit else "good"].append(ratio)
    return {trust: float(np.quantile(values, 0.9)) for trust, values in by_trust.items()}


def crossed(out: Path) -> str:
    """Return the coverage among the agents of the calibration if it is made on the other half of them."""
    records = [record for regime in REGIMES for record in records_of(out, "calibration", regime)]
    names, limit = sorted({record["agent"] for record in records}), shipped_calibration()[0]
    halves = [[r for r in records if names.index(r["agent"]) % 4 // 2 == half] for half in (0, 1)]
    covers = [coverage(half, multiples_of(other, limit)) for half, other in (halves, halves[::-1])]
    return "covered {:.2f}, width {:.2f}".format(*np.mean(covers, axis=0))


def coverage(records: Sequence[dict], multiples: Mapping[str, float] | None = None) -> tuple[float, float]:
    """Return how many intervals hold the true share, and their mean width."""
    limit, usual = shipped_calibration()
    multiples = multiples or usual
    covered, widths = [], []
    for record in records:
        for doubtful, ratio, scale, share in ratios(record):
            half = multiples["poor" if doubtful or record["distance"] > limit else "good"] * scale
            covered.append(ratio * scale <= half + 1e-9)
            widths.append(min(share + half, 1.0) - max(share - half, 0.0))
    return float(np.mean(covered)), float(np.mean(widths))


def rightly_named(records: Sequence[dict]) -> str:
    """Say how well networks are predicted in which the imitated rule has the greatest weight, at least one half."""
    rules = {recipe: rule for recipe, (rule, _, _) in {**RECIPES, **CALIBRATION_RECIPES}.items()}
    chosen = [
        record
        for record in records
        for rule in [rules.get(record["agent"].rpartition(" ")[0])]
        if record["draw"] == 0 and record["weights"].get(rule, 0.0) >= 0.5
    ]
    errors = of_agents(chosen, shares_kl)
    return f"networks with a right name: {len(chosen)}, of which {(errors > 0.1).sum()} have shares above .1"


def undecided(records: Sequence[dict]) -> str:
    """Say how wide the interval of the goal's share is where goal and corner each have a fifth of the weight."""
    multiples, widths = shipped_calibration()[1], []
    for record in records:
        if min(record["weights"].get(rule, 0.0) for rule in ("goal", "corner top-right")) >= 0.2:
            for kind in record["kinds"].values():
                half, share = multiples["poor"] * kind["scale"][0], kind["shares"][0]
                widths.append(min(share + half, 1.0) - max(share - half, 0.0))
    wide = np.mean(np.array(widths) >= 0.5) if widths else np.nan
    return f"goal or corner: {len(widths)} intervals of the goal's share, {wide:.0%} of them at least .5 wide"


def tables(out: Path, which: str) -> None:
    """Print the tables."""
    if which == "evaluation":
        check_seals()
    limit = shipped_calibration()[0]
    for regime in REGIMES:
        for draw in range(DRAWS):
            records = [record for record in records_of(out, which, regime) if record["draw"] == draw]
            if not records:
                continue
            seconds = [record["seconds"] for record in records]
            print(f"\n## {regime}, draw {draw}: {len(records)} agents")
            print(f"{np.mean(seconds):.1f} CPU s each, at most {max(seconds):.1f}")
            chosen = {"all": records} | {
                group: [record for record in records if record["group"] == group]
                for group in dict.fromkeys(record["group"] for record in records)
            }
            chosen["trusted"] = [record for record in records if record["distance"] <= limit]
            chosen["networks"] = [record for record in records if " net " in f" {record['agent']} "]
            chosen["goal"] = [record for record in records if record["goal"]]
            for group, some in chosen.items():
                if some:
                    others = ", ".join(
                        "{} {:.3f}/{:.3f}".format(
                            name,
                            *(
                                of_agents(some, lambda kind, n=name, c=column: kind["baselines"][n][c]).mean()
                                for column in (0, 1)
                            ),
                        )
                        for name in BASELINES
                    )
                    print(
                        f"{group:11} n={len(some):3} "
                        f"world {with_interval(of_agents(some, lambda kind: kind['world']))} "
                        f"shares {with_interval(of_agents(some, shares_kl))} | {others} | "
                        "covered {:.2f}, width {:.2f}".format(*coverage(some))
                    )
            trusted = [
                shares_kl(kind)
                for record in records
                for kind in record["kinds"].values()
                if record["distance"] <= limit and not kind["doubtful"]
            ]
            print(f"kinds with good trust: {len(trusted)}, shares {np.mean(trusted) if trusted else np.nan:.3f}")
            for name in records[0]["kinds"]:
                kinds = [record["kinds"][name] for record in records]
                print(
                    f"   {name:24} moved {np.mean([kind['moved'] for kind in kinds]):.2f}, "
                    f"shares {np.mean([shares_kl(kind) for kind in kinds]):.3f}, "
                    f"world {np.mean([kind['world'] for kind in kinds]):.3f}"
                )
            errors = of_agents(records, shares_kl)
            for number in np.argsort(-errors)[:15]:
                record = records[number]
                heaviest = {name: round(weight, 2) for name, weight in list(record["weights"].items())[:3]}
                print(
                    f"   worst: {record['agent']} {errors[number]:.2f}, distance {record['distance']:.3f}, {heaviest}"
                )
            ranks = [np.argsort(np.argsort(values)) for values in (errors, [r["distance"] for r in records])]
            print(f"rank correlation of error and distance {np.corrcoef(*ranks)[0, 1]:.2f}")
    print(rightly_named(records_of(out, which, "ordinary")))
    print(undecided(records_of(out, which, "confounded")))
    if which == "calibration":
        print("calibrated on the other half of the agents:", crossed(out))
    floor = out / f"sisters-{which}.json"
    if floor.exists():
        print("sister floor, a world and of shares:", json.loads(floor.read_text()))


def on_pages(out: Path) -> None:
    """Print how often the interval of the main place holds in kinds that the page of an evaluation trusts."""
    subjects = [*scripted(), *learned(out / "networks", RECIPES, "learned", 1)]
    design = KindsOfWorlds.load(ELSEWHERE)
    unseen, places, tables = design.unseen(), [parse(place) for place in design.places], RuleTables()
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.4, 0.6]}
    for count in (3, SEEN):
        seen, holds, errors, seconds = worlds_of(entry, count, 5, factor=1.5), [], [], []
        for subject in subjects:
            rng = np.random.default_rng([3, *subject.name.encode()])
            answers = [played(world, subject.table(world), rng) for world in seen]
            began = time.process_time()
            _, kinds = predicted_from(answers, tables)
            seconds.append(time.process_time() - began)
            for kind in (kind for kind in kinds if kind.trust == "good"):
                true = dict(zip(kind.shares, truth(subject, unseen[kind.kind], places).mean(axis=0), strict=True))
                _, low, high = kind.shares[kind.main]
                holds.append(low <= true[kind.main] <= high)
                shares = np.array([share for share, _, _ in kind.shares.values()])
                errors.append(float(divergence(np.array([*true.values()]), shares)))
        print(
            f"{len(seen)} worlds: {np.mean(holds):.2f} of {len(holds)} intervals hold, {len(subjects)} agents, shares "
            f"{np.mean(errors):.3f}, {np.mean(seconds):.1f} CPU s each, at most {max(seconds):.1f}"
        )


def main() -> None:
    """Measure, calibrate, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--measure", choices=("calibration", "evaluation"), help="agents to measure")
    parser.add_argument("--regime", choices=tuple(REGIMES), help="measure only in this regime")
    parser.add_argument("--calibrate", action="store_true", help="print constants from the calibration agents")
    parser.add_argument("--page", action="store_true", help="measure what the page of an evaluation states")
    parser.add_argument("--table", choices=("calibration", "evaluation"), default="evaluation")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.out, arguments.measure, [arguments.regime] if arguments.regime else list(REGIMES))
    elif arguments.calibrate:
        calibrate(arguments.out)
    elif arguments.page:
        on_pages(arguments.out)
    else:
        tables(arguments.out, arguments.table)


if __name__ == "__main__":
    main()
