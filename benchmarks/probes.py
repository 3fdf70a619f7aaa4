"""Compare the factorised first layer of a probe with the materialised product of activations and cells.

    python benchmarks/probes.py [--activations 300] [--many 3000] [--width 8640] [--hidden 1024] [--cells 15]

The width is that of three tokens of GPT-OSS-20B (3 x 2,880 inputs), the frame 15 x 15. Both do one full pass of
training over the same activations with the same weights in the same batches, forward and backward: the product as one
input row for each pair of activation and cell, the factorised form as `fit` computes it. `--piece` is the batch, all
activations by default, which is best for both. They run in one process, one after the other, the factorised form before
and after the product; losses and gradients are compared. A process of its own fits a probe on `--many` activations with
`fit` and prints its peak memory beside the arithmetic of the product.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.inside.probing.fitting import FitSettings, Problem, cell_loss, fit
from goalscope.inside.probing.heads import HeadSizes, coordinates, find_head, initial_weights, scores
from goalscope.inside.probing.inputs import Features, Source
from goalscope.inside.probing.labels import CLASSES
from goalscope.inside.probing.probe import ProbeKey


def compare(count: int, width: int, hidden: int, frame: int, piece: int) -> None:
    """Print seconds of both forms and their ratio."""
    import torch

    rng = stream(0, "benchmark")
    cells = frame * frame
    sizes = HeadSizes(positions=1, width=width, outputs=cells, classes=len(CLASSES))
    module = find_head("mlp", "cells").module(sizes, {"hidden": hidden}, seed=0)
    weights = {name: torch.tensor(array).requires_grad_() for name, array in initial_weights(module, 0, "").items()}
    vectors = torch.tensor(rng.standard_normal((count, width), dtype=np.float32))
    labels = torch.tensor(rng.integers(len(CLASSES), size=(count, cells)))
    places = torch.tensor(coordinates(frame))
    even = torch.ones(1, len(CLASSES))

    def factorised(begin: int, end: int) -> Any:
        stacked = {name: tensor[None] for name, tensor in weights.items()}
        return scores(module, stacked, vectors[None, begin:end])

    def product(begin: int, end: int) -> Any:
        size = end - begin
        pairs = torch.empty(size, cells, width + 2)
        pairs[:, :, :width] = vectors[begin:end, None]
        pairs[:, :, width:] = places
        first = torch.cat([weights["act"], weights["cell"]])
        hid = torch.relu(torch.addmm(weights["bias"], pairs.view(size * cells, -1), first))
        return torch.addmm(weights["out_bias"], hid, weights["out"]).view(1, size, cells, -1)

    def run(form: Any, step: int) -> tuple[float, float]:
        for tensor in weights.values():
            tensor.grad = None
        began, total = time.perf_counter(), 0.0
        for begin in range(0, count, step):
            end = min(begin + step, count)
            loss = cell_loss(form(begin, end), labels[None, begin:end], even, torch.ones(end - begin))[0]
            loss = loss * ((end - begin) / count)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return time.perf_counter() - began, total

    run(factorised, piece)  # warm
    before = [run(factorised, piece) for _ in range(3)]
    gradient = weights["act"].grad
    assert gradient is not None
    own = gradient.clone()
    slow = run(product, piece)
    gradient = weights["act"].grad
    assert gradient is not None
    other = gradient.clone()
    fast = statistics.median(seconds for seconds, _ in (*before, *(run(factorised, piece) for _ in range(3))))
    apart = float((other - own).abs().max() / own.abs().max())
    print(
        f"{count} activations of {width} numbers, {cells} cells, hidden width {hidden}, "
        f"{torch.get_num_threads()} thread(s)"
    )
    print(f"{'form':<12} {'seconds a pass':>15} {'loss':>10} {'inputs of the first layer':>28}")
    print(f"{'product':<12} {slow[0]:>15.2f} {slow[1]:>10.6f} {size_of(count * cells * (width + 2)):>28}")
    print(f"{'factorised':<12} {fast:>15.2f} {before[0][1]:>10.6f} {size_of(count * width + 2 * cells):>28}")
    print(f"ratio {slow[0] / fast:.0f} (target 50); gradients of the first layer differ by {apart:.1e} of the largest")


def memory(count: int, width: int, hidden: int, frame: int) -> None:
    """Fit one probe for one pass and print the peak memory of this process."""
    import torch

    torch.zeros(1)
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    optimiser.zero_grad()
    before = peak()
    rng = stream(0, "benchmark")
    vectors = rng.standard_normal((count, width), dtype=np.float32)
    names = np.array([f"episode-{at}" for at in range(count)], dtype=object)
    features = Features(
        source=Source(site="pre", layer=0, model="benchmark", width=width),
        vectors=vectors,
        episode_id=names,
        step=np.zeros(count, dtype=np.int64),
        cluster=names,
    )
    labels = rng.integers(len(CLASSES), size=(count, frame * frame)).astype(np.int8)
    began = time.perf_counter()
    fit(
        [Problem(key=ProbeKey(head="mlp", target="cells"), features=features, target=labels)],
        FitSettings(epochs=1, hidden=hidden),
    )
    seconds = time.perf_counter() - began
    product = count * frame * frame * (width + 2) * 4
    print(
        f"{count} activations: fit, one pass in {seconds:.1f} s, peak memory {peak() / 1e9:.2f} GB "
        f"({before / 1e9:.2f} GB before), of which activations {vectors.nbytes / 1e9:.2f} GB; "
        f"the product alone would be {product / 1e9:.1f} GB"
    )


def peak() -> int:
    """Return the greatest memory of this process, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def size_of(numbers: int) -> str:
    """Return the size of float32 numbers for people."""
    return f"{numbers * 4 / 1e9:.3f} GB"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("activations", 300), ("many", 3000), ("width", 8640), ("hidden", 1024), ("cells", 15)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--piece", type=int, default=300, help="activations of one batch")
    parser.add_argument("--memory-only", action="store_true")
    given = parser.parse_args()
    if given.memory_only:
        memory(given.many, given.width, given.hidden, given.cells)
        return
    sizes = [f"--{name}={getattr(given, name)}" for name in ("many", "width", "hidden", "cells")]
    # First: a process begins with the peak of the one that starts it.
    subprocess.run([sys.executable, __file__, "--memory-only", *sizes], check=True)
    import torch

    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        compare(given.activations, given.width, given.hidden, given.cells, given.piece)


if __name__ == "__main__":
    main()
