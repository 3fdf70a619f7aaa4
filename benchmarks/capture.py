"""Compare the throughput of a capture with that of a bare forward over the same batches.

    python benchmarks/capture.py [--steps 64] [--width 512] [--blocks 4] [--device cpu]

A capture reads the run, finds the sites, checks itself against the library's hidden states, keeps six positions of
three layers (the last block among them, so that nothing is saved by stopping early), writes and syncs its files and
their index. The bare forward runs the base model over the very same batches and keeps nothing. Pairs are interleaved in
one process and the order within a pair alternates; the table shows the median of the pairs' ratios.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents import Observation
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.decode import fitting_threads
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations import CaptureSettings, Site, capture
from goalscope.inside.activations.capture import ReplayCounts, shards, windows
from goalscope.inside.activations.hooks import thirds
from goalscope.inside.activations.sites import SiteFinder
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store
from goalscope.worlds import ACTIONS, generate
from goalscope.worlds.dynamics import State
from goalscope.worlds.gridworld import GridView

SITES: tuple[Site, ...] = ("pre", "post")
SETTINGS = CaptureSettings(share_prefix=False)


def build(width: int, blocks: int, device: str) -> LocalModel:
    """Return a random Llama that reads the vocabulary of the bundled model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = LocalModel("theseus").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=blocks,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=1024,
        eos_token_id=words.eos_token_id,
        bos_token_id=None,
        pad_token_id=0,
    )
    model: Any = LlamaForCausalLM(config)
    return LocalModel.from_parts(model.to(device), words, name="random")


def record(directory: Path, model: LocalModel, steps: int) -> str:
    """Write a run of many grids, one step each, with reasoning of several lengths; return the agent's id."""
    agent = ChatAgent(model=model)
    identity = agent_id(agent)

    def episodes() -> Iterator[Episode]:
        for number in range(steps):
            rng = stream(0, "benchmark", number)
            world = GridWorld(grid=generate(size=(9, 11)[number % 2], density=0.4, rng=rng))
            state = State(world.grid.start or (1, 1))
            action = ACTIONS[number % 4]
            moves = " UP" * (4 * (number // 2 % 3))
            said = (
                f"<|channel|>analysis<|message|>to (3,4) from (5,1):{moves}<|end|><|start|>assistant<|channel|>final"
                f'<|message|>{{"action": "{action.name}"}}<|return|>'
            )
            asked = agent.messages(Observation(view=GridView(grid=world.grid)))
            step = Step(
                index=0,
                state=state,
                action=action,
                prompt_tokens=tuple(model.encode(model.render(asked, agent.sampling))),
                output_tokens=tuple(model.encode(said)),
            )
            spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=0, seed=0, horizon=1)
            yield Episode(spec=spec, world=world, agent=agent.name, steps=(step,), final=state, outcome="horizon")

    with Store(directory, "w") as store:
        store.put_agents([(identity, agent.name, agent.describe())])
        store.put_episodes(episodes())
    return identity


def planned(directory: Path, model: LocalModel, identity: str, layers: tuple[int, ...]) -> list[Any]:
    """Return the batches ``[B, T]`` of the capture."""
    finder = SiteFinder(model, SITES)
    kind = model.model.device.type
    width = model.model.config.hidden_size
    found = []
    with Store(directory) as store:
        for window in windows(store, identity, "all", finder, SITES, SETTINGS.window, ReplayCounts()):
            for shard in shards(
                window,
                0,
                settings=SETTINGS.on(kind),
                item_bytes=4 * width * len(layers),
                shares_prefix=False,
                by_shape=False,
            ):
                found += [np.stack([group[0].ids for group in batch]) for batch in shard.batches]
    return found


def bare(model: LocalModel, batches: list[Any]) -> None:
    """Run the base model over the batches and keep nothing."""
    import torch

    with fitting_threads(model.model), torch.inference_mode():
        for batch in batches:
            model.model.base_model(input_ids=torch.from_numpy(batch).to(model.model.device), use_cache=False)
        if model.model.device.type == "cuda":
            torch.cuda.synchronize()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return wall-clock and processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--directory", type=Path, default=None, help="where the runs are written")
    arguments = parser.parse_args()
    model = build(arguments.width, arguments.blocks, arguments.device)
    layers = thirds(arguments.blocks)
    walls, processors, times = [], [], []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        identity = record(folder / "run", model, arguments.steps)
        batches = planned(folder / "run", model, identity, layers)
        tokens = sum(batch.size for batch in batches)
        for pair in range(-1, arguments.pairs):
            target = folder / f"run-{pair}"
            shutil.copytree(folder / "run", target)

            def full(target: Path = target) -> None:
                capture(target, model, sites=SITES, layers=layers, settings=SETTINGS)

            def plain() -> None:
                bare(model, batches)

            first, second = (full, plain) if pair % 2 else (plain, full)
            one, other = timed(first), timed(second)
            captured, forward = (one, other) if pair % 2 else (other, one)
            written = sum(path.stat().st_size for path in target.rglob("*.safetensors"))
            shutil.rmtree(target)
            if pair < 0:
                continue  # warms up
            times.append((captured[0], forward[0]))
            walls.append(forward[0] / captured[0])
            processors.append(forward[1] / captured[1])
    print(
        f"{arguments.steps} steps, {tokens:,} tokens in {len(batches)} batches, width {arguments.width}, "
        f"{arguments.blocks} blocks, layers {layers}, six positions, {written / 1e6:.1f} MB written, {arguments.device}"
    )
    print(f"{'':<34}{'median':>10}{'least':>10}{'most':>10}")
    for what, values in (
        ("capture, seconds", [one for one, _ in times]),
        ("bare forward, seconds", [other for _, other in times]),
        ("throughput ratio, wall clock", walls),
        ("throughput ratio, processor", processors),
    ):
        print(f"{what:<34}{statistics.median(values):>10.3f}{min(values):>10.3f}{max(values):>10.3f}")
    print(f"target: at least 0.9 in the median of {len(walls)} pairs")


if __name__ == "__main__":
    main()
