"""Print the rate of patched forwards beside bare ones of the same batch, and beside nnsight's where it is installed.

One batch: two sides of a pair and copies of the first, each with the second's vectors at the cells of the grid in one
layer. Bare: the model's own forward pass of the same ids. Processor seconds of one thread, measured in turns; a ratio
is the median of the rounds with the least and the greatest. The log-probabilities are compared with nnsight's.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from resource import getpagesize
from statistics import median
from typing import Any

import torch

from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Sampling
from goalscope.agents.models.decode import Decoding, score, work_on_cores
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.sites import SiteFinder
from goalscope.inside.interventions import Batch, Edit, Original, find_pairs, score_answers
from goalscope.inside.interventions.experiment import give_back
from goalscope.worlds import Grid, GridView

GRID = Grid.parse(["#######", "#_____#", "#_____#", "#__A__#", "#___G_#", "#_____#", "#######"])
LAYER = 3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64, help="patched rows of the batch")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = LocalModel("theseus")
    agent = ChatAgent(model=model, sampling=Sampling(max_tokens=64))
    (pair,) = find_pairs(agent, [Original(view=GridView(grid=GRID), cluster="one")], moved=["agent"]).kept
    one, other = pair.sides
    cells = SiteFinder(model, ("grid",)).find(one.step, one.view.grid).positions["grid"].reshape(-1)
    prompts = [one.prompt, other.prompt, *[one.prompt] * given.rows]
    ids, places = torch.tensor(prompts), torch.tensor(cells)
    edits = [Edit(row=row, layer=LAYER, positions=cells, source=1) for row in range(2, len(prompts))]
    words = [[[token] for token in range(8)]] * len(prompts)

    def bare() -> Any:
        with torch.inference_mode():
            return model.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]

    def engine(batch: Batch) -> Any:
        return torch.tensor(score_answers(model, [batch], [words])[0].outputs)[..., 0]

    def shared() -> Any:
        settings = Decoding(
            slots=8 * len(prompts), prefill_tokens=2**62, most_shared=int(cells[0]), around=lambda *rows: nullcontext()
        )
        return work_on_cores(model.model, lambda part: score(model.model, settings, prompts, part), [words])

    runs: dict[str, Callable[[], Any]] = {
        "bare, the model's own forward": bare,
        "goalscope, nothing patched": lambda: engine(Batch(prompts=prompts)),
        "goalscope, nothing patched, as much shared": shared,
        "goalscope, patched": lambda: engine(Batch(prompts=prompts, edits=edits)),
    }
    if find_spec("nnsight") is not None:
        sys.path.insert(0, str(Path(__file__).parent / "peers"))
        peer = import_module("nnsight_patching").Peer(model.model)
        runs["nnsight, patched"] = lambda: peer.patched(ids, LAYER, places)
        ours = runs["goalscope, patched"]().float()
        theirs = torch.log_softmax(runs["nnsight, patched"]().float(), dim=-1)[:, :8]
        print(f"largest difference of log-probabilities to nnsight's: {float((ours - theirs).abs().max()):.1g}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    base = seconds["bare, the model's own forward"][1:]
    print(f"| {len(prompts)} rows of {ids.shape[1]} tokens | rows a processor second | ratio to bare |")
    print("| --- | --- | --- |")
    for name, taken in seconds.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(base, taken[1:], strict=True))
        rate = len(prompts) / median(taken[1:])
        print(f"| {name} | {rate:.0f} | {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}] |")
    resident = []
    for count in (1, 8):
        for _ in range(count):
            engine(Batch(prompts=prompts, edits=edits))
        give_back()  # as an experiment does after each piece of work
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize() / 1e6)
    print(f"resident memory after 1 and 8 more passes: {resident[0]:.0f} and {resident[1]:.0f} MB")


if __name__ == "__main__":
    main()
