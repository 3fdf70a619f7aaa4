"""Turns without an action, and accuracy, of generated answers beside constrained choice: same model, same grids.

Usage: python benchmarks/answers.py [--model theseus] [--grids 40] [--steps 2] [--tokens 96] [--no-reasoning]
                                    [--out DIR]

The model is a folder, as docs/models.md says how to make one of a GGUF file. Half of the grids have wall density 0,
half 0.4; all are 7 x 7. An episode has few steps: what an answer looks like shows in each of them. Intervals go over
grids.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from goalscope.measures import measure_episodes
from goalscope.runs import Store, Study, run
from goalscope.stats import Estimate, estimate_mean

MEASURES = ("invalid turns", "action accuracy")


def study(model: str, grids: int, steps: int, tokens: int, *, reasoning: bool) -> Study:
    """Return a study of all ways to find an action that make sense for a model."""
    common: dict[str, Any] = {"kind": "chat", "model": model, "max_tokens": tokens, "reasoning_effort": None}
    likelihood = {**common, "answer": "likelihood"}
    agents = []
    for form in ("example", "schema"):
        agents += [
            {**common, "name": f"generated, {form}", "template": form},
            {**likelihood, "name": f"likelihood, {form}", "template": form},
        ]
    prior = {"template": "example", "prior_symbol": "?"}
    agents.append({**likelihood, **prior, "name": "likelihood, example, prior taken off"})
    if reasoning:
        after = {"template": "schema", "answer_after": "reasoning"}
        agents.append({**likelihood, **after, "name": "likelihood after reasoning, schema"})
    return Study.parse(
        {
            "seed": 17,
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0, 0.4], "count": grids // 2}],
            "agents": [*agents, {"kind": "random"}],
            "trajectories": 1,
            "horizon": {"steps": steps},
        }
    )


def written(estimate: Estimate) -> str:
    """Return value and interval."""
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def main() -> None:
    """Run every agent and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="theseus")
    parser.add_argument("--grids", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--no-reasoning", action="store_true", help="the model does not set its reasoning apart")
    parser.add_argument("--out", type=Path, help="where the runs stay")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="answers-"))
    asked = study(given.model, given.grids, given.steps, given.tokens, reasoning=not given.no_reasoning)
    columns = ("turns", "invalid turns", "action accuracy", "mass, mean", "seconds a turn")
    print(f"| {' | '.join((given.model.rstrip('/').rpartition('/')[2], *columns))} |")
    print("| --- | --- | --- | --- | --- | --- |")
    for agent in asked.agents():
        began = time.perf_counter()
        run(asked, out / agent.name, agents=[agent])
        seconds = time.perf_counter() - began
        with Store(out / agent.name) as store:
            episodes = list(store.episodes())
        rows = measure_episodes(episodes)
        steps = [step for episode in episodes for step in episode.steps]
        cells = []
        for measure in MEASURES:
            part = rows.select(measure=measure)
            cells.append(written(estimate_mean(part.value, part.cluster, unit="share", bounds=(0.0, 1.0))))
        masses = [step.extra["likelihood"]["mass"] for step in steps if "likelihood" in step.extra]
        mass = f"{sum(masses) / len(masses):.3f}" if masses else "–"
        print(
            f"| {agent.name} | {len(steps)} | {' | '.join(cells)} | {mass} | {seconds / len(steps):.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
