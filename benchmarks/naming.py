"""Print how agents with known aims are named: with fixed and random errors, in a part, and near the aim.

    python benchmarks/naming.py                    # 20 seeds of 18 worlds, 8 of 42
    python benchmarks/naming.py --worlds 7 --seeds 100 108

Each agent acts in generated grids of sizes 7 and 9 and is asked twice at each step, as in the arm *hypotheses* of
`goalscope evaluate`. The bank is the goal and the four corners. For each split of errors the table says how often the
agent is named after the goal, and what its two rates are estimated as; for each other agent, how often a name is false:
a name for the whole (*whole*), or a part that is none of the agent's (*part*).
"""

import argparse
import time
from collections import Counter

import numpy as np
from planted_answers import SPLITS, Construction, Planted, erring
from planted_constructions import CONSTRUCTIONS

from goalscope.goals.hypotheses.score import ScoreVerdict
from goalscope.stats.intervals import exact_binomial

SIZES = {3: range(20), 7: range(8)}


def false_name(construction: Construction, verdict: ScoreVerdict) -> str:
    """Return "whole" or "part" if the verdict has a false name of this kind, else ""."""
    if verdict.kind == "named" and not {*verdict.names} <= {*construction.whole}:
        return "whole"
    if verdict.kind == "partly" and verdict.part is not None:
        said = verdict.names[0], verdict.part.kind
        return "" if said in construction.parts or verdict.names[0] in construction.whole else "part"
    return ""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, choices=[*SIZES], help="worlds of each of six kinds; both by default")
    parser.add_argument(
        "--seeds", type=int, nargs=2, metavar=("FIRST", "END"), help="other seeds than those of the table"
    )
    arguments = parser.parse_args()
    for count in [arguments.worlds] if arguments.worlds else [*SIZES]:
        seeds = range(*arguments.seeds) if arguments.seeds else SIZES[count]
        began = time.process_time()
        splits = {split: list[ScoreVerdict]() for split in SPLITS}
        others = {construction.name: Counter[str]() for construction in CONSTRUCTIONS}
        for seed in seeds:
            planted = Planted(seed, count)
            for split, verdicts in splits.items():
                verdicts.append(planted.verdict(erring("goal", *split)))
            for construction in CONSTRUCTIONS:
                verdict = planted.verdict(construction.agent)
                others[construction.name][false_name(construction, verdict) or verdict.kind] += 1
        print(f"\n{6 * count} worlds, {len(seeds)} seeds")
        print("\n| fixed | random | named goal | otherwise | fixed found | random found |")
        print("| --- | --- | --- | --- | --- | --- |")
        for (fixed, random), verdicts in splits.items():
            kinds = Counter("goal" if v.kind == "named" and v.names == ("goal",) else v.kind for v in verdicts)
            named, rest = kinds.pop("goal", 0), ", ".join(f"{kind} {number}" for kind, number in kinds.items())
            rates = np.array([[rate[0] for rate in v.errors] for v in verdicts if v.errors]).reshape(-1, 2)
            found = " | ".join(f"{value:.2f}" for value in rates.mean(axis=0)) if len(rates) else "- | -"
            print(f"| {fixed:g} | {random:g} | {named} of {len(verdicts)} | {rest or '-'} | {found} |")
        print("\n| agent | answers |\n| --- | --- |")
        for name, counts in others.items():
            print(f"| {name} | {', '.join(f'{key} {number}' for key, number in counts.most_common())} |")
        total = sum(map(Counter.total, others.values()))
        for kind in ("whole", "part"):
            false = sum(counts[kind] for counts in others.values())
            high = exact_binomial(false, total, 0.9)[1]
            print(f"false names of a {kind}: {false} of {total}, one-sided 95 % bound {high:.4f}")
        print(f"{time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
