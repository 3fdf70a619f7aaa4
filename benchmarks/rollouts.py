"""Rollouts of a local model: lockstep against one `generate` call a step, same model, same states, same run.

Usage: python benchmarks/rollouts.py [--states 256] [--single 8] [--slots 64] [--threads 1] [--size 11]

The model is Theseus where its weights are installed, else a random model of its shape that writes 40 tokens a step.
"""

import argparse
import resource
import time
from typing import Any

import torch

from goalscope.agents import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models import Sampling
from goalscope.agents.models.attention import use_grouped_attention
from goalscope.agents.models.determinism import measure_determinism
from goalscope.agents.models.local import LocalModel
from goalscope.rng import stream
from goalscope.worlds import generate

RANDOM_LENGTH = 40  # about what Theseus writes


def subject(slots: int) -> tuple[LocalModel, int]:
    """Return the model and the most tokens it may write."""
    try:
        return LocalModel("theseus", device="cpu", slots=slots), 200
    except FileNotFoundError:
        pass
    from transformers import GptOssConfig, GptOssForCausalLM

    from goalscope.theseus.network import Shape
    from goalscope.theseus.vocabulary import build_tokenizer

    torch.manual_seed(0)
    model = GptOssForCausalLM(GptOssConfig(**Shape().config()))
    use_grouped_attention(model)  # as models read from a folder do
    return LocalModel.from_parts(model, build_tokenizer(), name="random", slots=slots), RANDOM_LENGTH


def one_by_one(model: LocalModel, agent: ChatAgent, observations: list[Observation], limit: int) -> int:
    """Answer each state with a `generate` call of its own; return the number of tokens written."""
    written = 0
    settings: dict[str, Any] = {"do_sample": True, "temperature": 0.7, "top_p": 0.95, "top_k": 0}
    for observation in observations:
        ids = torch.tensor([model.encode(agent.prompt(observation))])
        answer = model.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, **settings)
        written += answer.shape[1] - ids.shape[1]
    return written


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=256, help="states answered in lockstep")
    parser.add_argument("--single", type=int, default=8, help="states answered one by one")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, default=11)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model, limit = subject(given.slots)
    agent = ChatAgent(model=model, task="grid", sampling=Sampling(temperature=0.7, top_p=0.95, max_tokens=limit))
    observations = [
        Observation(grid=generate(size=given.size, density=0.6, rng=stream(0, "bench", index)), episode_id=str(index))
        for index in range(given.states)
    ]
    agent.act(observations[:2])  # the first call of everything is slower
    started = time.perf_counter()
    turns = agent.act(observations)
    lockstep = time.perf_counter() - started
    tokens = sum(len(turn.output_tokens or ()) for turn in turns)
    started = time.perf_counter()
    single_tokens = one_by_one(model, agent, observations[: given.single], limit)
    single = time.perf_counter() - started
    per_step = {"lockstep": given.states / lockstep, "generate": given.single / single}
    print(f"{model.name}, {given.size}x{given.size}, {given.threads} thread(s), {given.slots} slots")
    print(f"{'':10}{'steps':>8}{'steps/s':>10}{'tokens/s':>10}{'tokens a step':>15}")
    for name, steps, written, seconds in (
        ("lockstep", given.states, tokens, lockstep),
        ("generate", given.single, single_tokens, single),
    ):
        print(f"{name:10}{steps:>8}{steps / seconds:>10.2f}{written / seconds:>10.0f}{written / steps:>15.1f}")
    print(f"lockstep / generate: {per_step['lockstep'] / per_step['generate']:.1f} times the steps/s")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    requests = [agent.request(observation) for observation in observations[:16]]
    print(measure_determinism(model, requests, agent.sampling))


if __name__ == "__main__":
    main()
