"""Language models that learn a planted goal from scratch: GPT-2 of two blocks, which reads the project's own prompt.

The prompt is that of a `ChatAgent` for worlds with keys; each cell is one token. The answer is the JSON action, without
reasoning. A lesson is a prompt and the probabilities pi of moves that the meant rule gives there, its loss

    - sum over a of pi(a | s) log p(a | prompt) - mean over i of log p(t_i | prompt, t_<i)

with the tokens t of the answer besides the move. What was learned is sharpened as in the other organisms, here within
the weights: the final norm is scaled, and with it all logits. Sampled at temperature 1 it acts as its card says.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.initialisation import initialise_gpt2
from goalscope.goals.hypotheses.definition import Array, Mask, Numbers
from goalscope.worlds.grid import ACTIONS, AGENT, GOAL, KEY, OPEN, WALL, Grid
from goalscope.worlds.gridworld import GridView

SIZE: Final = 7
"""Rows and columns of the grids whose prompts it can read."""
TASK: Final = "key-door"
WIDTH: Final = 64
BLOCKS: Final = 2
HEADS: Final = 4
POSITIONS: Final = 160
VOCABULARY: Final = 512
BATCH: Final = 64
STEPS: Final = 1600
FEWER: Final = {"corner top-right": 800, "keep right": 400}
"""Steps of training, and those of rules that are learned sooner."""
RATE: Final = 3e-3
DECAY: Final = 0.01
_WARM: Final = 50  # steps
_FALLS: Final = 0.7  # part of the steps, the last ones, over which the rate falls
_TOGETHER: Final = 512  # prompts of one pass

SOURCE: Final = "organism-goal"
"""The shipped organism, whose tokenizer, template and shape all others have."""
FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "goalscope.json")
_NORM: Final = "transformer.ln_f"


def shapes() -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the weights, as ``GPT2LMHeadModel`` of transformers names them; its head is tied."""
    sizes: dict[str, tuple[int, ...]] = {"transformer.wte.weight": (VOCABULARY, WIDTH)}
    sizes["transformer.wpe.weight"] = (POSITIONS, WIDTH)
    maps = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    for block in range(BLOCKS):
        for name, (before, after) in maps.items():
            sizes[f"transformer.h.{block}.{name}.weight"] = (before * WIDTH, after * WIDTH)
            sizes[f"transformer.h.{block}.{name}.bias"] = (after * WIDTH,)
        for norm in ("ln_1", "ln_2"):
            sizes |= {f"transformer.h.{block}.{norm}.{part}": (WIDTH,) for part in ("weight", "bias")}
    return sizes | {f"{_NORM}.{part}": (WIDTH,) for part in ("weight", "bias")}


def prompts(grid: Grid, cells: Numbers, carrying: Mask) -> Numbers:
    """Return ``[N, P]`` the token ids of the prompts of some states, as a `ChatAgent` writes them.

    Args:
        grid: the grid; a key that is carried need not be in it.
        cells: ``[N, 2]`` where the agent stands.
        carrying: ``[N]`` whether it holds the key.

    Raises:
        ValueError: a grid of another size.
    """
    if grid.walls.shape != (SIZE, SIZE):
        raise ValueError(
            f"organisms that are language models read grids of {SIZE}x{SIZE} cells, got {grid.height}x{grid.width}"
        )
    templates, places, ids = _written()
    symbols = np.where(grid.walls, ids[WALL], ids[OPEN])
    if grid.goal is not None:
        symbols[grid.goal] = ids[GOAL]
    cells_shown = np.repeat(symbols[None], len(cells), axis=0)
    if grid.key is not None:
        cells_shown[~carrying, grid.key[0], grid.key[1]] = ids[KEY]
    cells_shown[np.arange(len(cells)), cells[:, 0], cells[:, 1]] = ids[AGENT]
    tokens = templates[carrying.astype(np.int64)]
    tokens[:, places] = cells_shown.reshape(len(cells), SIZE**2)
    return tokens


@lru_cache(maxsize=1)
def _written() -> tuple[Numbers, Numbers, dict[str, int]]:
    """Return a prompt without and one with the key held, ``[2, P]``, the places of its cells, and ids by symbol."""
    walls = np.zeros((SIZE, SIZE), dtype=bool)
    walls[[0, -1], :] = walls[:, [0, -1]] = True
    grid = Grid(walls=walls, start=(1, 1), goal=(1, 2), key=(2, 1))
    agent, encode = ChatAgent.build({"model": SOURCE, "task": TASK}), _dialect().encode
    ids = {symbol: encode(f" {symbol}")[0] for symbol in (WALL, OPEN, GOAL, AGENT, KEY)}
    views = [GridView(grid=grid, carrying_key=False), GridView(grid=grid, carrying_key=True)]
    chats = [agent.messages(Observation(view=view)) for view in views]
    templates = np.array([encode(_dialect().render(chat, agent.sampling)) for chat in chats])
    places = np.flatnonzero(np.isin(templates[0], list(ids.values())))
    assert len(places) == SIZE**2  # one token a cell, and these tokens nowhere else
    return templates, places, ids


@lru_cache(maxsize=1)
def _dialect() -> Dialect:
    """The tokenizer and the chat template, without weights."""
    return Dialect(SOURCE)


@lru_cache(maxsize=1)
def _answer() -> tuple[list[int], list[int], list[int]]:
    """Return the ids of an answer before the move, of each move, and after it."""
    encode = _dialect().encode
    opening = '{"action": "'
    whole = [encode(f'<|channel|>final<|message|>{opening}{action.name}"}}<|return|>') for action in ACTIONS]
    place = len(encode(f"<|channel|>final<|message|>{opening}"))
    return whole[0][:place], [ids[place] for ids in whole], whole[0][place + 1 :]


def answer_ids() -> tuple[list[int], list[int]]:
    """Return the token ids of an answer up to its move, and of each move."""
    head, moves, _ = _answer()
    return head, moves


def policy(weights: Mapping[str, Array], grid: Grid, cells: Numbers, carrying: Mask) -> Array:
    """Return ``[N, 4]`` the probabilities of moves in some states of a grid, see `prompts`."""
    torch = torch_needed()
    head, moves, _ = _answer()
    tokens = prompts(grid, cells, carrying)
    tokens = np.concatenate([tokens, np.tile(head, (len(tokens), 1))], axis=1)
    tensors = {name: torch.from_numpy(values.astype(np.float32)) for name, values in weights.items()}
    last = torch.tensor([tokens.shape[1] - 1])
    chunks = []
    with torch.no_grad():
        for begin in range(0, len(tokens), _TOGETHER):
            scores = logits(tensors, torch.from_numpy(tokens[begin : begin + _TOGETHER]), last)
            chunks.append(torch.softmax(scores[:, 0, moves].double(), dim=1).numpy())
    return np.concatenate(chunks)


def logits(weights: Mapping[str, Any], tokens: Any, places: Any) -> Any:
    """Return ``[N, W, V]`` the logits at some places of token sequences ``[N, T]``.

    It is what ``GPT2LMHeadModel`` computes (a test holds them equal); the last block is left out at all other places.
    """
    from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

    def mapped(x: Any, name: str, part: slice = slice(None)) -> Any:
        return x @ weights[f"{name}.weight"][:, part] + weights[f"{name}.bias"][part]

    def normed(x: Any, name: str) -> Any:
        return layer_norm(x, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    count, length = tokens.shape
    x = weights["transformer.wte.weight"][tokens] + weights["transformer.wpe.weight"][:length]
    all_places = query_places = torch_needed().arange(length)
    for block in range(BLOCKS):
        at = f"transformer.h.{block}"
        read = normed(x, f"{at}.ln_1")
        parts = mapped(read, f"{at}.attn.c_attn", slice(WIDTH, None)).split(WIDTH, dim=-1)
        if block == BLOCKS - 1:
            x, read, query_places = x[:, places], read[:, places], places
        parts = (mapped(read, f"{at}.attn.c_attn", slice(WIDTH)), *parts)
        query, key, value = (part.view(count, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=query_places[:, None] >= all_places)
        x = x + mapped(mixed.transpose(1, 2).reshape(count, -1, WIDTH), f"{at}.attn.c_proj")
        x = x + mapped(gelu(mapped(normed(x, f"{at}.ln_2"), f"{at}.mlp.c_fc"), approximate="tanh"), f"{at}.mlp.c_proj")
    return normed(x, _NORM) @ weights["transformer.wte.weight"].T


def fit(
    lessons: Numbers,
    right: Array,
    ends: Sequence[int],
    counts: Sequence[int],
    *,
    steps: int,
    sharpness: float,
    rng: np.random.Generator,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Array]:
    """Return the weights of a model that imitates what it is taught; the same on each call.

    Args:
        lessons: ``[N, P]`` prompts, see `prompts`.
        right: ``[N, 4]`` probabilities of moves.
        ends: where each kind of lessons begins, and N.
        counts: lessons of each kind in a batch.
        steps: batches.
        sharpness: exponent of the learned probabilities by which it acts.
        rng: of first weights and batches.
        report: called with the steps done and their total.

    Raises:
        ImportError: PyTorch is not installed (it comes with the extra ``lm``).
    """
    torch = torch_needed()
    head, moves, tail = _answer()
    move_at = len(head)
    fixed = torch.tensor([place for place in range(move_at + 1 + len(tail)) if place != move_at])
    expected = torch.tensor([*head, *tail])[None, :, None]
    prompt_length = lessons.shape[1]
    positions = torch.arange(prompt_length - 1, prompt_length + move_at + len(tail))
    with one_thread(torch):
        drawn = initialise_gpt2(
            shapes(), layers=BLOCKS, generator=torch.Generator().manual_seed(int(rng.integers(2**62)))
        )
        weights = {name: tensor.requires_grad_() for name, tensor in drawn.items()}
        groups = [
            {
                "params": [tensor for tensor in weights.values() if (tensor.ndim > 1) == matrix],
                "weight_decay": DECAY * matrix,
            }
            for matrix in (True, False)
        ]
        optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min(1.0, (step + 1) / _WARM, (steps - step) / (_FALLS * steps))
        )
        for step in range(steps):
            rows = np.concatenate(
                [rng.integers(begin, end, count) for begin, end, count in zip(ends, ends[1:], counts, strict=False)]
            )
            targets = right[rows]
            moves_drawn = (targets.cumsum(axis=1) > rng.random((len(rows), 1))).argmax(axis=1)
            parts = [lessons[rows], np.tile(head, (len(rows), 1)), np.array(moves)[moves_drawn][:, None]]
            tokens = np.concatenate([*parts, np.tile(tail[:-1], (len(rows), 1))], axis=1)
            logs = torch.log_softmax(logits(weights, torch.from_numpy(tokens), positions), dim=-1)
            chances = torch.from_numpy(targets.astype(np.float32))
            loss = -(chances * logs[:, move_at, moves]).sum(dim=1).mean()
            loss = loss - logs[:, fixed].gather(-1, expected.expand(len(rows), -1, 1)).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
            optimiser.step()
            schedule.step()
            report(step + 1, steps)
    learned = {name: tensor.detach().numpy().astype(np.float64) for name, tensor in weights.items()}
    for part in ("weight", "bias"):
        learned[f"{_NORM}.{part}"] *= sharpness
    return learned


def write_files(folder: Path, source: str, planted: str, training: Mapping[str, Any]) -> None:
    """Write what a folder of a model needs besides its weights: configuration, tokenizer and chat template.

    Args:
        folder: of the model.
        source: bundled model that has the same.
        planted: the rule that was taught.
        training: what else the training follows from.
    """
    place = model_folder(source)
    assert place is not None
    base, made = Folder(place, links=True), Folder(folder)
    for name in FILES:
        made.save_text(base.load_text(name), name)
    config = base.load_object("config.json")
    config["goalscope"] = {"planted_goal": planted, "training_data": json.dumps(training, sort_keys=True)}
    made.save_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "config.json")


def torch_needed() -> Any:
    """Return PyTorch; an ImportError names the extra."""
    try:
        import torch
    except ImportError as error:
        raise lacking("organisms that are language models need PyTorch", "lm", error) from error
    return torch


@contextmanager
def one_thread(torch: Any) -> Any:
    """Compute on one thread: with several, sums are added in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
