"""The first day with GPT-OSS-20B, rehearsed: its vocabulary, its class with 24 blocks, a server, and every command."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import o200k
import pytest
import torch
from server import Loopback
from server_modes import VALID, Asked, Sent
from tiny_models import HARMONY_TEMPLATE, gpt_oss
from transformers import AutoModelForCausalLM

from command_line import call
from goalscope.inside.activations import load_activations
from goalscope.organisms.layouts import SIZES, TOKENS, tokens_of
from goalscope.papers.page import read_result
from goalscope.runs import Store
from goalscope.stats import Rows
from goalscope.verdict.preflight.cost import count_pieces
from goalscope.worlds import Grid, State, generate
from goalscope.worlds.grid import ACTIONS, written
from goalscope.worlds.planning import solve

pytestmark = pytest.mark.full
WITHOUT_ANALYSIS = 10
"""One answer in so many has no reasoning, as GPT-OSS's own sometimes have none."""
YES = ("answers hold actions", "reaches the goal", "acts optimally", "is directed at the goal", "follows a hypothesis")
"""Claims about an agent that acts optimally and answers with valid moves."""
SMALL = ("worlds.0.sizes=[7,9]", "worlds.0.densities=[0.2,0.6]", "worlds.0.count=4", "trajectories=1")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[bytes, int], str]:
    return o200k.ranks(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def words(vocabulary: tuple[dict[bytes, int], str]) -> Any:
    return o200k.tokenizer(*vocabulary, HARMONY_TEMPLATE)


@pytest.fixture(scope="module")
def weights(words: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with random weights of GPT-OSS's class and depth."""
    folder = tmp_path_factory.mktemp("weights") / "gpt-oss"
    model = gpt_oss(128, layers=24, positions=4096, words=o200k.SIZE, ends=o200k.SPECIAL["<|return|>"])
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def speaking(weights: Path, words: Any, prompts: Sequence[Sequence[int]], folder: Path) -> Path:
    """Change random weights so that they answer with a move, which depends on what the blocks read of the prompt."""
    texts = [f'assistant<|channel|>final<|message|>{{"action": "{move.name}"}}<|return|>' for move in ACTIONS]
    answers = [words.encode(text, add_special_tokens=False) for text in texts]
    branch = next(at for at, tokens in enumerate(zip(*answers, strict=False)) if len(set(tokens)) > 1)
    model = AutoModelForCausalLM.from_pretrained(weights).eval()
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    follows = sorted({pair for answer in answers for pair in pairwise(answer)})
    axes = dict(zip({first for first, _ in follows}, torch.eye(embedding.shape[1]), strict=False))
    with torch.no_grad():
        head[[second for _, second in follows]] = 0
        for first, second in follows:
            embedding[first] = 1000 * axes[first]  # far more than the blocks add, which still see it at length 1
            head[second] += 10 * axes[first]
        asked = [[*prompt, *answers[0][1:branch]] for prompt in prompts]
        middle = torch.stack([model.model(torch.tensor([ids])).last_hidden_state[0, -1] for ids in asked]).mean(dim=0)
        axis = axes[answers[0][branch - 1]]
        reads = torch.randn(4, len(axis), generator=torch.manual_seed(0))
        reads[:, : len(axes)] = 0  # no other token of an answer leads to a move
        for answer, read in zip(answers, reads, strict=True):
            head[answer[branch]] += 10 * (read - read @ middle / (axis @ middle) * axis)  # none is preferred overall
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def best(text: str) -> str:
    """Return an optimal move in the last grid of a prompt, a key being an open cell; UP where there is none."""
    lines = re.findall(r"^ *\d+(?: +[#_AGK])+$", text.replace(" K", " _"), re.MULTILINE)
    width = len(lines[-1].split()) - 1 if lines else 0  # examples stand before the last grid
    try:
        grid = Grid.parse("\n".join([" ".join(["", *map(str, range(width))]), *lines[-width:]]))
        assert grid.start is not None
        return ACTIONS[int(np.argmax(solve(grid).optimal_in(State(grid.start))))].name
    except (AssertionError, ValueError):  # doors, fog and other worlds
        return "UP"


@pytest.fixture(scope="module")
def server(words: Any) -> Iterator[Loopback]:
    """A server in mode completions that takes token ids, and answers in harmony with an optimal move."""

    def speak(asked: Asked) -> Sent:
        prompt = asked.body["prompt"]
        said = f"<|channel|>final<|message|>{json.dumps({'action': best(words.decode(prompt))})}<|return|>"
        if asked.number % WITHOUT_ANALYSIS:
            said = f"<|channel|>analysis<|message|>That is nearest to the goal.<|end|><|start|>assistant{said}"
        tokens = words.encode(said, add_special_tokens=False)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "stop_reason": tokens[-1],
            "text": words.decode(tokens[:-1]),
            "token_ids": tokens,
            "prompt_token_ids": prompt,
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        body = {"id": "x", "object": "text_completion", "model": asked.body["model"], "choices": [choice]}
        return Sent(kind=VALID, body={**body, "usage": {**usage, "total_tokens": sum(usage.values())}})

    with Loopback(None, mode=speak, models=("openai/gpt-oss-20b",)) as running:
        yield running


def options(server: Loopback, weights: Path, *more: str) -> list[str]:
    """Return the options by which a ready model is asked at this server, with the tokenizer of the weights."""
    agent = {
        "server.base_url": server.url,
        "server.tokenizer": str(weights),
        "server.preflight": "false",  # a server that answers from the grid cannot pass its trials of sampling
        "top_logprobs": "0",
        "revision": "null",
        "max_tokens": "40",  # what the random weights write in place of a move is no longer
    }
    settings = [*(f"agents.0.{key}={value}" for key, value in agent.items()), *more]
    return ["--model", "GPT-OSS-20B", *(part for setting in settings for part in ("--set", setting))]


@pytest.mark.parametrize("layout", ["matrix", "compact"])
def test_grids_have_the_tokens_that_learners_and_estimates_assume(
    layout: str, vocabulary: tuple[dict[bytes, int], str], words: Any
) -> None:
    letters = {number: piece.decode() for piece, number in vocabulary[0].items() if len(piece) < 5 and piece.isascii()}
    for size in SIZES:
        text = written(layout, generate(size, 0.6, rng=np.random.default_rng(size)).render())
        pieces = [letters[number] for number in words.encode(text, add_special_tokens=False)]
        assert pieces == [TOKENS[number] for number in tokens_of(text)]
        assert count_pieces(text) == pytest.approx(len(pieces), rel=0.15)


def test_the_day(server: Loopback, weights: Path, words: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("run", "baseline", *options(server, weights, *SMALL), "--out", run)
    with Store(run) as store:
        steps = [step for episode in store.episodes() for step in episode.steps if step.output_tokens]
    assert len(steps) > 50 and all(step.failure is None for step in steps)
    without = sum(not step.reasoning for step in steps)
    assert without == pytest.approx(len(steps) / WITHOUT_ANALYSIS, abs=1)

    call("capture", run, "--model", weights, "--other-weights", "--scope", "first")
    with Store(run) as store:
        read = load_activations(store, site="pre", layer=23)
        after = load_activations(store, site="post", layer=7)
    assert len(read) == 16 and len(after) < 16, "answers without reasoning have no place after it"
    assert np.isfinite(read.vectors).all() and read.vectors.shape[1:] == (3, 32)

    random = ("--set", "random.seeds=1", "--set", "random.kinds=[permuted]", "--set", "probes.epochs=2")
    call("probe", run, "--model", weights, "--reads", "cognitive-map", *random, "--set", "steps=2")
    with Store(run) as store:
        rows = Rows.concatenate(store.rows_of("cognitive-map"))
    assert {7, 15, 23} <= set(rows["layer"].tolist()) and {"none", "permuted"} <= set(rows["control"].tolist())

    refused = call("patch", run, "--model", weights, "--pairs", 2, "--set", "pairs.tries=1", status=2)
    assert "acts optimally on both sides, but found none" in refused, "random weights write no move"

    prompts = [step.prompt_tokens for step in steps[::4] if step.prompt_tokens]
    spoken = speaking(weights, words, prompts, tmp_path / "speaking")
    patched = ("--pairs", 2, "--sites", "grid,pre,action", "--layers", "7,15,23", "--set", "pairs.tries=8")
    call("patch", run, "--model", spoken, *patched)
    with Store(run) as store:
        rows = store.rows().select(measure="action changed", pairs="counterfactual", patch="source")
    last = rows.select(reading="free", component="residual", layer=23)
    assert len(last.select(site="action")) >= 2 and last.select(site="action").value.all(), "nothing comes after it"
    assert len(last.select(site="grid")) >= 2 and not last.select(site="grid").value.any(), "nothing reads it any more"

    table = tmp_path / "figure-4"
    call("reproduce", "telos figure 4", *options(server, weights), "--scale", "small", "--out", table)
    result = read_result(table)
    assert result is not None and result.agents == ("GPT-OSS-20B",)
    (accuracy,) = {line.ours.value for line in result.lines if line.label == "Action accuracy" and line.ours}
    assert accuracy == 1.0, "the server answers with optimal moves"

    agent = f"chat:model=openai/gpt-oss-20b,server.base_url={server.url},server.mode=completions"
    agent += f",server.tokenizer={weights},server.preflight=false,max_tokens=40"
    call("evaluate", agent, "--quick", "--out", tmp_path / "verdict")
    (model,) = json.loads((tmp_path / "verdict" / "ledger.json").read_text())["models"]
    answers = {claim["name"]: claim["answer"] for claim in model["claims"]}
    assert {answers[name] for name in YES} == {"yes"}
