"""The first day with GPT-OSS-20B, rehearsed: its vocabulary, its class with 24 blocks, a server, and every command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import o200k
import pytest
from server import Loopback
from server_modes import VALID, Asked, Sent
from tiny_models import HARMONY_TEMPLATE, gpt_oss

from command_line import call
from goalscope.inside.activations import load_activations
from goalscope.organisms.layouts import SIZES, TOKENS, tokens_of
from goalscope.runs import Store
from goalscope.verdict.preflight.cost import count_pieces
from goalscope.worlds import Grid, State, generate
from goalscope.worlds.encodings import written
from goalscope.worlds.grid import ACTIONS
from goalscope.worlds.planning import solve

pytestmark = pytest.mark.full
WITHOUT_ANALYSIS = 10
"""One answer in so many has no reasoning, as GPT-OSS's own sometimes have none."""
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


@pytest.fixture(scope="module")
def server(words: Any) -> Iterator[Loopback]:
    """A server in mode completions that takes token ids, and answers in harmony with an optimal move."""

    def speak(asked: Asked) -> Sent:
        prompt = asked.body["prompt"]
        lines = re.findall(r"^ *\d+(?: +[#_AG])+$", words.decode(prompt), re.MULTILINE)
        width = len(lines[-1].split()) - 1  # the last grid of the prompt; examples stand before it
        grid = Grid.parse("\n".join([" ".join(["", *map(str, range(width))]), *lines[-width:]]))
        action = ACTIONS[int(np.argmax(solve(grid).optimal_in(State(grid.start))))].name
        said = f"<|channel|>final<|message|>{json.dumps({'action': action})}<|return|>"
        if asked.number % WITHOUT_ANALYSIS:
            said = f"<|channel|>analysis<|message|>The goal is {action.lower()}.<|end|><|start|>assistant{said}"
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
        "server.preflight": "false",  # random moves cannot pass its trials of sampling
        "top_logprobs": "0",
        "revision": "null",
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


def test_the_day(server: Loopback, weights: Path, tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "table"
    call("run", "baseline", *options(server, weights, *SMALL), "--out", run)
    with Store(run) as store:
        steps = [step for episode in store.episodes() for step in episode.steps if step.output_tokens]
    assert len(steps) > 50 and all(step.failure is None for step in steps)
    without = sum(not step.reasoning for step in steps)
    assert without == pytest.approx(len(steps) / WITHOUT_ANALYSIS, abs=1)

    call("capture", run, "--model", weights, "--other-weights", "--scope", "first")
    with Store(run) as store:
        read = load_activations(store, site="pre", layer=23)
        assert load_activations(store, site="post", layer=7).vectors.shape[2] == 32
    assert len(read) == 16 and np.isfinite(read.vectors).all()

    random = ("--set", "random.seeds=1", "--set", "random.kinds=[permuted]", "--set", "probes.epochs=2")
    printed = call("probe", run, "--model", weights, "--reads", "cognitive-map", *random, "--set", "steps=2")
    assert "permuted" in printed and "23" in printed
