"""Rollouts of the bundled model beside transformers' `generate`, in batches and one call a step; same model, same run.

Usage: python benchmarks/rollouts.py [--states 256] [--single 16] [--slots 64] [--threads 1] [--size 11] [--grids 1]
                                     [--rounds 3]

The batches of `generate` are as large as the slots of lockstep, sorted by length, padded on the left, and stop at the
same tokens; its attention and its experts are ours. A size of 0 takes all sizes in turns.
Seconds are processor seconds (of all threads together), so that other jobs on the machine count little.

A second table runs a sample of the paper's behavioural grid as a study (5 sizes x 6 densities, journalled and stored)
and projects from it how long the whole of it would take: 10 grids a cell and 10 trajectories a grid. ``--grids 0``
leaves it out.

A third compares whole rollouts of mixed sizes: a study whose episodes go on as answers come, and `generate` on the
very prompts of that study, all of them sorted by length, in batches. Beside it stand the prompt tokens that were
computed and those of a tree of all prompts. ``--trajectories 0`` leaves it out.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from determinism import measure_determinism

from goalscope._ground.progress import TALLY
from goalscope._ground.rng import stream
from goalscope.agents import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models import Sampling
from goalscope.agents.models._fast import all_experts
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.local import LocalModel
from goalscope.runs import Store, Study, run
from goalscope.worlds import generate
from goalscope.worlds.gridworld import GridView

LIMIT = 96  # tokens of an output, as in the shipped studies
SIZES, DENSITIES = (7, 9, 11, 13, 15), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
GRIDS, TRAJECTORIES = 10, 10  # a cell, a grid: the paper's behavioural grid


def subject(given: argparse.Namespace) -> tuple[ChatAgent, LocalModel]:
    """Return the bundled model as an agent, loaded."""
    torch.set_num_threads(given.threads)
    model = LocalModel("theseus", device="cpu", slots=given.slots)
    agent = ChatAgent(model=model, sampling=Sampling(temperature=0.7, top_p=0.95, max_tokens=LIMIT))
    agent.act(states(given.size, 2))  # the first call of everything is slower
    return agent, model


def states(size: int, count: int) -> list[Observation]:
    """Return the first states of some generated grids; of all sizes in turns where the size is 0."""
    sizes = [size] if size else SIZES
    grids = (
        generate(size=sizes[index % len(sizes)], density=0.6, rng=stream(0, "bench", index)) for index in range(count)
    )
    return [Observation(view=GridView(grid=grid), episode_id=str(index)) for index, grid in enumerate(grids)]


def lockstep(given: argparse.Namespace) -> tuple[int, int, float]:
    """Answer all states in lockstep; return steps, tokens written, seconds."""
    agent, _ = subject(given)
    observations = states(given.size, given.states)
    began = time.process_time()
    turns = agent.act(observations)
    return len(turns), sum(len(turn.output_tokens or ()) for turn in turns), time.process_time() - began


def generated(given: argparse.Namespace, count: int, rows: int) -> tuple[int, int, float]:
    """Answer `count` states with `generate`, `rows` at a time; return steps, tokens written, seconds."""
    agent, model = subject(given)
    return answered(model, [model.encode(agent.prompt(seen)) for seen in states(given.size, count)], rows)


def answered(model: LocalModel, prompts: list[list[int]], rows: int) -> tuple[int, int, float]:
    """Answer prompts with `generate`, `rows` at a time, sorted by length; return steps, tokens written, seconds."""
    count = len(prompts)
    settings: dict[str, Any] = {"do_sample": True, "temperature": 0.7, "top_p": 0.95, "top_k": 0}
    stop = sorted(Dialect("theseus").stop)
    settings |= {"eos_token_id": stop, "pad_token_id": stop[0]}
    model.model.generate(torch.tensor([[1, 2]]), max_new_tokens=2, attention_mask=torch.ones(1, 2), **settings)
    written = 0
    began = time.process_time()
    encoded = sorted(prompts, key=len)
    for first in range(0, count, rows):
        prompts = encoded[first : first + rows]
        longest = max(map(len, prompts))
        ids = torch.tensor([[stop[0]] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with all_experts(model.model):
            answers = model.model.generate(ids, attention_mask=mask, max_new_tokens=LIMIT, **settings)[:, longest:]
        ended = torch.isin(answers, torch.tensor(stop))
        lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, answers.shape[1])
        written += int(lengths.sum())
    return count, written, time.process_time() - began


def one_by_one(given: argparse.Namespace) -> tuple[int, int, float]:
    """Answer some of the states with a `generate` call of their own each."""
    return generated(given, given.single, 1)


def batched(given: argparse.Namespace) -> tuple[int, int, float]:
    """Answer all states with `generate`, in batches."""
    return generated(given, given.states, given.slots)


def behavioural(given: argparse.Namespace) -> tuple[int, int, float]:
    """Run a sample of the behavioural grid as a study; return steps, tokens written, seconds."""
    subject(given)
    study = grid_study({"slots": given.slots}, given.grids, TRAJECTORIES)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        steps = run(study, folder).steps
        seconds = time.process_time() - began
        with Store(folder) as store:
            tokens = sum(len(step.output_tokens or ()) for episode in store.episodes() for step in episode.steps)
    return steps, tokens, seconds


def grid_study(options: dict[str, int], grids: int, trajectories: int) -> Study:
    """Return a sample of the behavioural grid."""
    worlds = {"kind": "grid", "sizes": list(SIZES), "densities": list(DENSITIES), "count": grids}
    agent = {"kind": "chat", "model": "theseus", "device": "cpu", "max_tokens": LIMIT, **options}
    return Study.parse({"seed": 1, "worlds": [worlds], "agents": [agent], "trajectories": trajectories})


def rollouts(given: argparse.Namespace) -> tuple[int, float, float, int, int, int]:
    """Run a study, and answer its prompts with `generate`.

    Returns:
        Steps, seconds of the run, seconds of `generate`; prompt tokens, those computed, and those of a tree.
    """
    os.environ["GOALSCOPE_CORES"] = str(given.threads)  # a core, as `generate` has
    _, model = subject(given)
    with tempfile.TemporaryDirectory() as folder:
        before, began = TALLY.read(), time.process_time()
        run(grid_study({}, 1, given.trajectories), folder)
        seconds, after = time.process_time() - began, TALLY.read()
        with Store(folder) as store:
            prompts = [list(step.prompt_tokens or ()) for episode in store.episodes() for step in episode.steps]
    tree: dict[int, Any] = {}
    nodes = 0
    for prompt in prompts:
        branch = tree
        for token in prompt:
            nodes += token not in branch
            branch = branch.setdefault(token, {})
    computed = after["computed_prompt"] - before["computed_prompt"]
    theirs = answered(model, prompts, given.slots)[2]
    return len(prompts), seconds, theirs, sum(map(len, prompts)), computed, nodes


WORK: dict[str, Callable[[argparse.Namespace], tuple[int, int, float]]] = {
    "lockstep": lockstep,
    "batches": batched,
    "one": one_by_one,
    "study": behavioural,
}


def measured(task: tuple[str, argparse.Namespace]) -> tuple[int, int, float, float]:
    """Return what a piece of work gives, and the peak memory of its process in MB."""
    name, given = task
    found = WORK[name](given)
    return (*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def show(name: str, found: tuple[int, int, float, float]) -> None:
    """Print a line of the table."""
    steps, tokens, seconds, memory = found
    speeds = f"{steps / seconds:>10.2f}{tokens / seconds:>10.0f}{tokens / steps:>15.1f}"
    print(f"{name:10}{steps:>8}{seconds:>9.1f}{speeds}{memory:>17.0f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=256, help="states answered in lockstep")
    parser.add_argument("--single", type=int, default=16, help="states answered one by one")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, default=11)
    parser.add_argument("--trajectories", type=int, default=4, help="a grid, of the rollouts")
    parser.add_argument("--rounds", type=int, default=3, help="times that the three are measured, in turns")
    parser.add_argument("--grids", type=int, default=1, help="grids a cell of the sample of the behavioural grid")
    given = parser.parse_args()
    # A process of its own for each, one after the other: peak memory is that of a process.
    pool = multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1)
    with pool:
        print(f"theseus, {given.size}x{given.size}, {given.threads} thread(s), {given.slots} slots, processor seconds")
        columns = (("steps", 8), ("seconds", 9), ("steps/s", 10), ("tokens/s", 10), ("tokens a step", 15))
        print(" " * 10 + "".join(f"{name:>{width}}" for name, width in (*columns, ("peak memory, MB", 17))))
        speed: dict[str, list[float]] = {"lockstep": [], "batches": [], "one": []}
        for _ in range(given.rounds):
            for name, speeds in speed.items():
                found = pool.map(measured, [(name, given)], chunksize=1)[0]
                show(name, found)
                speeds.append(found[0] / found[2])
        for name, words in (("batches", f"`generate`, {given.slots} at a time"), ("one", "`generate`, one at a time")):
            ratios = sorted(ours / theirs for ours, theirs in zip(speed["lockstep"], speed[name], strict=True))
            print(
                f"lockstep / {words}: {statistics.median(ratios):.2f} times the steps/s, median of {given.rounds} "
                f"rounds [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
            )
        ratios = []
        for _ in range(given.rounds if given.trajectories else 0):
            steps, ours, theirs, tokens, computed, nodes = pool.apply(rollouts, (given,))
            ratios.append(theirs / ours)
            text = (
                f"rollouts {steps} steps in {ours:.1f} s, `generate` {theirs:.1f} s: {ratios[-1]:.2f} times; of "
                f"{tokens} prompt tokens {computed} were computed, {computed / nodes:.2f} times the {nodes} of a tree"
            )
            print(text, flush=True)
        if ratios:
            print(f"median {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]", flush=True)
        if given.grids:
            sample = pool.map(measured, [("study", given)], chunksize=1)[0]
            show("study", sample)
            cells, factor = len(SIZES) * len(DENSITIES), GRIDS / given.grids
            print(
                f"projection, not measured: {cells * GRIDS} grids x {TRAJECTORIES} trajectories at these "
                f"{sample[0] / sample[2]:.1f} steps/s: {factor * sample[0]:,.0f} steps in "
                f"{factor * sample[2] / 60:.0f} minutes (sample: {cells * given.grids} grids)"
            )
    agent, model = subject(given)
    print(measure_determinism(model, [agent.request(seen) for seen in states(given.size, 16)], agent.sampling))


if __name__ == "__main__":
    main()
