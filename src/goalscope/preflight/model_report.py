"""What a language model is like before it is trusted with a study: how it is asked, how fast it is, what it answers."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from goalscope.agents.agent import CHAT, Observation, build_agent
from goalscope.agents.chat import ChatAgent, turn
from goalscope.agents.choice import LEAST_MASS
from goalscope.models.base import Request, Sampling
from goalscope.models.folders import model_folder
from goalscope.models.gguf_files import read_header
from goalscope.models.grid_tokens import check_cell_tokens
from goalscope.models.local import LocalModel
from goalscope.planning.shortest import optimal_actions
from goalscope.preflight.model_defaults import find_out
from goalscope.rng import stream
from goalscope.worlds.generate import generate
from goalscope.worlds.grid import AGENT, GOAL, OPEN, WALL, Action, Grid
from goalscope.worlds.gridworld import GridView

SIZES: Final = (7, 9, 15)
"""Sizes of the grids of the three sample prompts, in cells."""

SAMPLE_TOKENS: Final = 512
"""Most output tokens of a sample answer."""

_DENSITY = 0.4
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer of the model.

    Attributes:
        size: rows and columns of the grid.
        prompt_tokens: tokens of its prompt.
        text: the answer as it was read, without reasoning.
        reasoning: the reasoning before it, None for none.
        finish: how it ended, "stop" or "length".
        verdict: the name of the action that the parser read, or what is wrong with the answer.
        valid: whether it holds an action.
        optimal: whether that action is on a shortest path; None without one.
        mass: probability of the four actions together where the answer would name one; None where not asked for.
    """

    size: int
    prompt_tokens: int
    text: str
    reasoning: str | None
    finish: str
    verdict: str
    valid: bool
    optimal: bool | None
    mass: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What was found out about a model.

    Attributes:
        name: short name.
        source: "folder", "GGUF file" or "hub".
        architecture: class of the model.
        quantisation: type of a GGUF file's quantisation, "" for none.
        parameters: number of weights.
        device, dtype: where it ran, and as what.
        weight_octets: memory of the weights.
        token_octets: memory of the keys and values of one token; None where the configuration does not tell.
        positions: most tokens of prompt and output, None for no limit.
        chat_template: whether there is one; a base model has none.
        reasoning: how reasoning and answer are told apart.
        cells: symbol of a grid -> the tokens that it becomes in a prompt.
        cell_problems: one sentence for each cell of the sample grids that is not one token of its own.
        prompt_tokens: size -> tokens of the prompt of a grid of that size.
        read_rate: prompt tokens a second, those that prompts share counted in each.
        write_rate: output tokens a second of three answers at the same time; NaN where they end at once.
        samples: three answers.
        meaning: what it means, in sentences.
    """

    name: str
    source: str
    architecture: str
    quantisation: str
    parameters: int
    device: str
    dtype: str
    weight_octets: int
    token_octets: int | None
    positions: int | None
    chat_template: bool
    reasoning: str
    cells: Mapping[str, tuple[str, ...]]
    cell_problems: tuple[str, ...]
    prompt_tokens: Mapping[int, int]
    read_rate: float
    write_rate: float
    samples: tuple[Sample, ...]
    meaning: tuple[str, ...]


def report_model(model: str, *, device: str = "auto", step: Step | None = None) -> ModelReport:
    """Load a model, ask it about three grids, and say what was found.

    Args:
        model: a folder, a GGUF file, a bundled model, or a name on the hub.
        device: where it runs, see `LocalModel`.
        step: is called with the name of each piece of work as it begins.

    Raises:
        FileNotFoundError, ValueError: no such model, or one that cannot be read.
        ImportError: torch, transformers, or what GGUF files need, is missing.
        OSError: the hub does not have it, or is not reached.
    """
    say = step or (lambda text: None)
    say("reading the tokenizer")
    found = find_out(model, network=True)
    agent: Any = build_agent(CHAT, {**found.parameters, "device": device})
    assert isinstance(agent, ChatAgent) and isinstance(agent.model, LocalModel)
    local = agent.model
    say("reading the weights")
    network = local.model
    grids = [generate(size, _DENSITY, rng=stream(0, "doctor", size)) for size in SIZES]
    seen = [
        Observation(view=GridView(grid=grid), episode_id=f"doctor {size}")
        for grid, size in zip(grids, SIZES, strict=True)
    ]
    requests = [agent.request(one) for one in seen]
    say(f"answering {len(requests)} prompts")
    samples, rates = _samples(agent, requests, grids)
    first = next(network.parameters())
    config = network.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    folder = model_folder(model)
    gguf = folder is not None and folder.is_file()
    cells, problems = _cells(local, agent, seen)
    told: dict[str, Any] = {
        "name": found.name,
        "source": "hub" if folder is None else "GGUF file" if gguf else "folder",
        "architecture": type(network).__name__,
        "quantisation": read_header(folder).quantisation if folder is not None and gguf else "",
        "parameters": sum(one.numel() for one in network.parameters()),
        "device": str(first.device),
        "dtype": str(first.dtype).removeprefix("torch."),
        "weight_octets": sum(one.numel() * one.element_size() for one in network.parameters()),
        "token_octets": _token_octets(config, first.element_size()),
        "positions": positions if isinstance(positions, int) and positions > 0 else None,
        "chat_template": not local.base,
        "reasoning": local.style,
        "cells": cells,
        "cell_problems": problems,
        "prompt_tokens": {size: one.prompt_tokens for size, one in zip(SIZES, samples, strict=True)},
        "read_rate": rates[0],
        "write_rate": rates[1],
        "samples": tuple(samples),
    }
    return ModelReport(**told, meaning=tuple(_meaning(told)))


def _samples(
    agent: ChatAgent, requests: Sequence[Request], grids: Sequence[Grid]
) -> tuple[list[Sample], tuple[float, float]]:
    """Return the answers, and how many tokens a second are read and written."""
    model: Any = agent.model
    asked = {entry.name: getattr(agent.sampling, entry.name) for entry in fields(Sampling)}
    started = time.perf_counter()
    read = model.complete(requests, Sampling(**{**asked, "max_tokens": 1}))
    reading = time.perf_counter() - started
    most = min(SAMPLE_TOKENS, agent.sampling.max_tokens)
    started = time.perf_counter()
    written = model.complete(requests, Sampling(**{**asked, "max_tokens": most}))
    writing = time.perf_counter() - started - reading
    masses: list[float | None] = [None] * len(requests)
    if model.style == "none":
        found = model.likelihoods(requests, agent.sampling, reasoned=False)
        masses = [math.fsum(map(math.exp, one.logprobs)) for one in found]
    samples = []
    for completion, grid, mass in zip(written, grids, masses, strict=True):
        answer = turn(completion)
        best = optimal_actions(grid, grid.start) if grid.start is not None else frozenset()
        samples.append(
            Sample(
                size=grid.height,
                prompt_tokens=len(completion.prompt_tokens or ()),
                text=completion.text,
                reasoning=completion.reasoning,
                finish=completion.finish,
                verdict=answer.failure or Action(answer.action or 0).name,
                valid=answer.failure is None,
                optimal=None if answer.failure is not None else answer.action in best,
                mass=mass,
            )
        )
    tokens = sum(len(one.output_tokens or ()) - 1 for one in written)
    rate = tokens / writing if writing > 0 and tokens > 0 else math.nan
    return samples, (sum(len(one.prompt_tokens or ()) for one in read) / reading, rate)


def _cells(
    model: LocalModel, agent: ChatAgent, seen: Sequence[Observation]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the tokens of each symbol after a blank, and one sentence for each cell that is not one token."""
    symbols = {}
    for symbol in (WALL, OPEN, AGENT, GOAL):
        before, whole = model.encode("0 _ _"), model.encode(f"0 _ _ {symbol}")
        same = next((at for at, (one, two) in enumerate(zip(before, whole, strict=False)) if one != two), len(before))
        symbols[symbol] = tuple(model.text([token]) for token in whole[same:])
    problems: list[str] = []
    for one in seen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they are returned, too
            problems += check_cell_tokens(model, one.grid.render(), prompt=agent.prompt(one)).problems
    return symbols, tuple(problems)


def _token_octets(config: Any, octets: int) -> int | None:
    """Return the memory of the keys and values of one token in all layers."""
    layers, heads = getattr(config, "num_hidden_layers", None), getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    if not layers or not heads or not width:
        return None
    pairs = getattr(config, "num_key_value_heads", None) or heads
    each = getattr(config, "head_dim", None) or width // heads
    return int(2 * layers * pairs * each * octets)


def _meaning(told: Mapping[str, Any]) -> list[str]:
    """Return what was found in sentences: for `run`, for `probe`, and what may be changed."""
    samples: Sequence[Sample] = told["samples"]
    valid = sum(one.valid for one in samples)
    lines = [f"run: {valid} of {len(samples)} sample answers held an action."]
    masses = [one.mass for one in samples if one.mass is not None]
    if valid < len(samples):
        if masses and min(masses) >= LEAST_MASS:
            lines.append(
                f"Where an answer names its action, the four moves have {np.mean(masses):.2f} of the probability: with "
                "constrained choice these turns would be valid (--set agents.0.answer=likelihood; another agent, never "
                "pooled with generated answers)."
            )
        elif any(one.finish == "length" for one in samples):
            lines.append(
                f"Some answers had not ended after {SAMPLE_TOKENS} tokens or the model's own limit: in a study give "
                "max_tokens room for the reasoning."
            )
        else:
            lines.append("What is measured of invalid turns is about format, not goals: reports say so.")
    longest = max(told["prompt_tokens"].values())
    if told["positions"] is not None and longest >= told["positions"]:
        lines.append(
            f"A prompt of {longest} tokens does not fit the model's {told['positions']} positions: use smaller worlds."
        )
    if not told["chat_template"]:
        lines.append("It is a base model: prompts are texts with one worked example an action, which it goes on with.")
    if told["quantisation"]:
        lines.append(
            f"Its weights were quantised ({told['quantisation']}) and are taken apart into {told['dtype']}: an agent "
            "of its own, beside one with the original weights. Reading the file takes long each time; a folder that "
            "it was converted to does not (docs/models.md)."
        )
    if told["cell_problems"]:
        lines.append(
            f"probe: not every cell is one token of its own ({told['cell_problems'][0]}): the site grid cannot be "
            "captured."
        )
    else:
        lines.append("probe: each cell is one token, every site of the prompt can be captured.")
    if told["reasoning"] == "none":
        lines.append("Without marked reasoning there is no site post, which readings leave out with a notice.")
    else:
        lines.append(f"Reasoning is marked ({told['reasoning']}): sites before and after it can be read (pre, post).")
    if told["source"] == "hub":
        lines.append(
            "It is named by its place on the hub: name a commit (revision) in a study whose results must last."
        )
    return lines
