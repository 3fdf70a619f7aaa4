"""Memory and time of a capture against the length of a text, in bfloat16.

    python benchmarks/long_texts.py [--tokens 2048 4096 8192 16384] [--plain]

A random network of the GPT-OSS class (4 layers, width 256, 8 heads in 2 groups, every second layer with a window of
128, bfloat16) reads one text of each length in a process of its own, and the last block is captured. Memory is the
greatest resident one less that before the text was read. ``--plain``: with the attention of transformers.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def measured(tokens: int, plain: bool) -> dict[str, float]:
    """Capture a text of some tokens; return megabytes, those that are said beforehand, and processor seconds."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    from goalscope._ground.rng import stream
    from goalscope.agents import Observation
    from goalscope.agents.agent import agent_id
    from goalscope.agents.chat import ChatAgent
    from goalscope.agents.models._fast import use_grouped_attention
    from goalscope.agents.models.local import LocalModel
    from goalscope.inside.activations import capture
    from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store
    from goalscope.verdict.preflight.cost import capture_memory
    from goalscope.worlds import Action, generate
    from goalscope.worlds.dynamics import State
    from goalscope.worlds.gridworld import GridView

    words = LocalModel("theseus").tokenizer
    torch.manual_seed(0)
    network: Any = GptOssForCausalLM(
        GptOssConfig(
            vocab_size=len(words),
            num_hidden_layers=4,
            num_local_experts=4,
            num_experts_per_tok=2,
            hidden_size=256,
            intermediate_size=256,
            head_dim=32,
            num_attention_heads=8,
            num_key_value_heads=2,
            sliding_window=128,
            max_position_embeddings=2 * max(tokens, 4096),
            rope_parameters={"rope_type": "default", "rope_theta": 150_000.0},
            eos_token_id=words.eos_token_id,
            pad_token_id=0,
        )
    )
    network = network.to(torch.bfloat16).eval()
    if not plain:
        assert use_grouped_attention(network)
    model = LocalModel.from_parts(network, words, name="random")
    agent = ChatAgent(model=model)
    world = GridWorld(grid=generate(size=9, density=0.4, rng=stream(0, "long texts")))
    state = State(world.grid.start or (1, 1))
    asked = agent.messages(Observation(view=GridView(grid=world.grid)))
    prompt = tuple(model.encode(model.render(asked, agent.sampling)))
    end = tuple(model.encode('<|end|><|start|>assistant<|channel|>final<|message|>{"action": "UP"}<|return|>'))
    begin = tuple(model.encode("<|channel|>analysis<|message|>"))
    moves = tuple(model.encode(" UP" * tokens))[: tokens - len(prompt) - len(begin) - len(end)]
    step = Step(index=0, state=state, action=Action.UP, prompt_tokens=prompt, output_tokens=begin + moves + end)
    spec = EpisodeSpec(world_id=world.id, agent_id=agent_id(agent), trajectory=0, seed=0, horizon=1)
    episode = Episode(spec=spec, world=world, agent=agent.name, steps=(step,), final=state, outcome="horizon")
    with tempfile.TemporaryDirectory() as name:
        with Store(Path(name), "w") as store:
            store.put_agents([(spec.agent_id, agent.name, agent.describe())])
            store.put_episodes([episode])
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        capture(Path(name), model, sites=["post"], layers=[3])
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.process_time() - started
    return {
        "megabytes": (after - before) / 1024,
        "said": capture_memory(network, tokens, 1) / 2**20,
        "seconds": seconds,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096, 8192, 16_384])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.tokens[0], arguments.plain)))
        return
    print("| tokens | memory, MB | said before, MB | processor seconds |\n| --- | --- | --- | --- |")
    for tokens in arguments.tokens:
        command = [sys.executable, __file__, "--one", "--tokens", str(tokens), *["--plain"] * arguments.plain]
        told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        print(f"| {tokens:,} | {told['megabytes']:.0f} | {told['said']:.0f} | {told['seconds']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
