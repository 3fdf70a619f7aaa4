"""GPT-OSS-20B by its shape: what is counted without memory, and what blocks of it with random weights take.

    python benchmarks/large_model.py                                # counted and by arithmetic: seconds
    python benchmarks/large_model.py --layers 2                     # and measured on the processor: 8 GB
    python benchmarks/large_model.py --layers 24 --device cuda      # all blocks on a GPU
    python benchmarks/large_model.py --layers 2 --evaluate WORK     # and a whole evaluation of it, kept in WORK

The shape is that of the published configuration. *Counted* numbers are of the network on PyTorch's meta device, which
has shapes and no memory; those *by arithmetic* follow from them and from the data sheet of a card. Measured are a bare
forward pass of the base model, and beside it capture, patched passes, likelihoods and written answers.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from capture import SETTINGS, bare, planned, record
from transformers import GptOssConfig, GptOssForCausalLM

from goalscope._ground.rng import stream
from goalscope.agents import Observation
from goalscope.agents.chat import ChatAgent, Choice
from goalscope.agents.models import Sampling
from goalscope.agents.models._fast import use_grouped_attention
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations import capture
from goalscope.inside.interventions import Batch, Edit, score_answers
from goalscope.verdict.preflight.cost import capture_memory, token_octets
from goalscope.worlds import generate
from goalscope.worlds.gridworld import GridView

BLOCKS: Final = 24
PACKED_BITS: Final = 4.25
"""Bits of a weight in MXFP4: four, and a scale of eight for 32 of them."""
CARD: Final = ("H100 SXM", 80e9, 3.35e12, 989e12)
"""A card: its name, bytes of memory, bytes a second, operations a second in bfloat16 without sparsity (data sheet)."""
ROWS: Final = 64
TOKENS: Final = (1_000, 4_096, 16_384)


def configuration(layers: int, words: Any = None) -> GptOssConfig:
    """Return the published configuration of openai/gpt-oss-20b with some of its blocks."""
    ends = {} if words is None else {"eos_token_id": words.eos_token_id, "pad_token_id": 0}
    return GptOssConfig(num_hidden_layers=layers, num_local_experts=32, vocab_size=201_088, **ends)


def counted() -> list[tuple[str, str, str]]:
    """Return what, figure and source of all that needs no weights."""
    config = configuration(BLOCKS)
    with torch.device("meta"):
        network: Any = GptOssForCausalLM(config)
    network = network.to(torch.bfloat16)
    use_grouped_attention(network)
    sizes = {name: value.numel() for name, value in network.named_parameters()}
    weights = sum(sizes.values())
    experts = sum(size for name, size in sizes.items() if name.endswith(("gate_up_proj", "down_proj")))
    embedding = sizes["model.embed_tokens.weight"]
    active = weights - embedding - experts * (1 - config.num_experts_per_tok / config.num_local_experts)
    packed = 2 * (weights - experts) + experts * PACKED_BITS / 8
    whole = token_octets(config, 2) or 0
    sliding = (config.layer_types or []).count("sliding_attention") / BLOCKS
    card, memory, speed, operations = CARD
    found = [
        ("weights", f"{weights / 1e9:.2f} billion", "counted"),
        ("of them used by a token", f"{active / 1e9:.2f} billion", "arithmetic"),
        ("their memory in bfloat16; in MXFP4", f"{2 * weights / 1e9:.1f}; {packed / 1e9:.1f} GB", "arithmetic"),
        ("keys and values of a token, all blocks", f"{whole:,} bytes", "counted"),
        ("of a token that has left the windows", f"{whole * (1 - sliding):,.0f} bytes", "arithmetic"),
    ]
    found += [
        (
            f"capture of a text of {tokens:,} tokens, beside the weights, at most",
            f"{capture_memory(network, tokens) / 1e9:.1f} GB",
            "arithmetic of `estimate`",
        )
        for tokens in (32_768, 65_536)
    ]
    for name, held in (("bfloat16", 2 * weights), ("MXFP4", packed)):
        room = memory - held
        rows = ", ".join(f"{room / (2 * whole * tokens):,.0f}" for tokens in TOKENS)
        found.append((f"rows of {', '.join(f'{t:,}' for t in TOKENS)} tokens in {card}, {name}", rows, "arithmetic"))
        floor = held - 2 * embedding
        found.append(
            (f"decode step of {ROWS} rows, weights read once, {name}", f">= {1e3 * floor / speed:.1f} ms", "arithmetic")
        )
    rate = operations / (2 * active)
    found.append((f"prompt tokens a second, {card}, bfloat16", f"<= {rate:,.0f}", "arithmetic"))
    return found


def peak(device: str) -> float:
    """Return the most memory so far, MB: of the process, or of the card."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(model: LocalModel, steps: int, device: str) -> None:
    """Print seconds, tokens a second and memory of each kind of work over the same prompts."""
    layers = len(model.model.base_model.layers)
    base: list[float] = []

    def show(what: str, tokens: int, work: Callable[[], Any]) -> None:
        began = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        base.append(tokens / seconds)
        print(
            f"| {what} | {tokens:,} | {seconds:.1f} | {base[-1]:,.0f} | {base[-1] / base[0]:.2f} | "
            f"{peak(device):,.0f} |",
            flush=True,
        )

    print("| work | tokens | seconds | tokens a second | ratio to bare | peak memory, MB |\n|" + " --- |" * 6)
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        identity = record(run, model, steps)
        batches = planned(run, model, identity, (layers - 1,))
        tokens = sum(batch.size for batch in batches)
        bare(model, batches[:1])  # the first call of everything is slower
        show("bare forward of the base model", tokens, lambda: bare(model, batches))
        show(
            "capture, last block",
            tokens,
            lambda: capture(run, model, sites=("pre", "post"), layers=(layers - 1,), settings=SETTINGS),
        )
    seen = [
        Observation(
            view=GridView(grid=generate(size=7, density=0.4, rng=stream(0, "large", index))), episode_id=str(index)
        )
        for index in range(steps)
    ]
    agent = ChatAgent(model=model, sampling=Sampling(max_tokens=16, temperature=0.7))
    prompts = [model.encode(agent.prompt(one)) for one in seen]
    read = sum(map(len, prompts))
    shared = min(map(len, prompts))
    edits = [
        Edit(row=row, layer=layers // 2, positions=np.arange(shared - 20, shared), source=row - 1)
        for row in range(1, steps)
    ]
    words = [[[token] for token in range(4)]] * steps
    show(
        "patched passes, 20 tokens of a block",
        read,
        lambda: score_answers(model, [Batch(prompts=prompts, edits=edits)], [words]),
    )
    choosing = ChatAgent(model=model, sampling=Sampling(temperature=0.7), choice=Choice())
    show("likelihoods of four actions", read, lambda: choosing.act(seen))
    show("16 written tokens each, prompts included", read + 16 * steps, lambda: agent.act(seen))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=0, help=f"blocks that are measured, of {BLOCKS}; 0 for none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=16, help="prompts")
    parser.add_argument("--evaluate", type=Path, help="evaluate the random model, too; its weights are written here")
    given = parser.parse_args(arguments)
    print("| openai/gpt-oss-20b, no weights | figure | source |\n| --- | --- | --- |")
    for row in counted():
        print("| " + " | ".join(row) + " |")
    if not given.layers:
        return
    words = LocalModel("theseus").tokenizer
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(given.device):
        network: Any = GptOssForCausalLM(configuration(given.layers, words))
    network.eval()
    torch.set_default_dtype(torch.float32)
    use_grouped_attention(network)
    print(
        f"\n{given.layers} of {BLOCKS} blocks, random weights, bfloat16, {given.device}, "
        f"{torch.get_num_threads()} threads\n"
    )
    measured(LocalModel.from_parts(network, words, name="random"), given.steps, given.device)
    if given.evaluate is not None:
        folder = given.evaluate / "model"
        network.save_pretrained(folder)
        words.save_pretrained(folder)
        del network
        command = [sys.executable, "-m", "goalscope", "evaluate", str(folder), "--arms", "grids", "--quick"]
        command += ["--answer", "likelihood", "--out", str(given.evaluate / "evaluation")]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
