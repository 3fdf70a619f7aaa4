"""Language models that learn a planted goal from scratch: GPT-2 with two blocks that reads goalscope's own prompts.

The prompt is that of a `ChatAgent` for worlds with keys; each cell is one token. The answer is the JSON action, without
reasoning. A training example is a prompt with the move probabilities pi of the meant rule; its loss is

    - sum over a of pi(a | s) log p(a | prompt) - mean over i of log p(t_i | prompt, t_<i)

where t are the tokens of the answer other than the move. The learned probabilities are sharpened as in the other
organisms, here by scaling the final norm and thereby all logits. Sampled at temperature 1, the model acts as on its
card.
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
from goalscope.agents.models.local import initialise_gpt2
from goalscope.goals.hypotheses.definition import Array, Mask, Numbers
from goalscope.worlds.grid import ACTIONS, AGENT, GOAL, KEY, OPEN, WALL, Grid
from goalscope.worlds.gridworld import GridView

SIZE: Final = 7
"""Number of rows and columns of the grids that the models can read."""
TASK: Final = "key-door"
WIDTH: Final = 64
BLOCKS: Final = 2
HEADS: Final = 4
POSITIONS: Final = 160
VOCABULARY: Final = 512
BATCH: Final = 64
STEPS: Final = 1600
FEWER: Final = {"corner top-right": 800, "keep right": 400}
"""Training steps for rules that are learned faster than in `STEPS`."""
RATE: Final = 3e-3
DECAY: Final = 0.01
_WARM: Final = 50  # steps
_FALLS: Final = 0.7  # part of the steps, the last ones, over which the rate falls
_TOGETHER: Final = 512  # prompts of one pass

SOURCE: Final = "organism-goal"
"""The shipped organism; all others use its tokenizer, chat template and shape."""
FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "goalscope.json")
_NORM: Final = "transformer.ln_f"


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of the small language models that are trained here, by name.

    The names are those of ``GPT2LMHeadModel`` in transformers.

    The output layer shares its weights with the token embedding, so it has none of its own.
    """
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
    """Return the token ids of the prompts that a `ChatAgent` shows in N states of a grid, ``[N, P]``.

    Args:
        grid: the grid; a carried key may be missing from it.
        cells: ``[N, 2]`` cell (row, column) of the agent.
        carrying: ``[N]`` whether the agent holds the key.

    Raises:
        ValueError: the grid has another size.
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
    """Return prompts without and with a held key, ``[2, P]``, the positions of the cells, and token ids by symbol."""
    walls = np.zeros((SIZE, SIZE), dtype=bool)
    walls[[0, -1], :] = walls[:, [0, -1]] = True
    grid = Grid(walls=walls, start=(1, 1), goal=(1, 2), key=(2, 1))
    agent, encode = ChatAgent.build({"model": SOURCE, "task": TASK}), _dialect().encode
    ids = {symbol: encode(f" {symbol}")[0] for symbol in (WALL, OPEN, GOAL, AGENT, KEY)}
    views = [GridView(grid=grid), GridView(grid=grid.at(held=(KEY,)))]
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
    """Return the token ids of an answer before the move, of each move, and after the move."""
    encode = _dialect().encode
    opening = '{"action": "'
    whole = [encode(f'<|channel|>final<|message|>{opening}{action.name}"}}<|return|>') for action in ACTIONS]
    place = len(encode(f"<|channel|>final<|message|>{opening}"))
    return whole[0][:place], [ids[place] for ids in whole], whole[0][place + 1 :]


def answer_ids() -> tuple[list[int], list[int]]:
    """Return the token ids of the answer's beginning, which comes before its move, and the token id of each move."""
    head, moves, _ = _answer()
    return head, moves


def policy(weights: Mapping[str, Array], grid: Grid, cells: Numbers, carrying: Mask) -> Array:
    """Return the move probabilities of a language model in N states of a grid, ``[N, 4]``.

    Args:
        weights: its weights, by name.
        grid: the grid.
        cells: ``[N, 2]`` cell (row, column) of the agent.
        carrying: ``[N]`` whether the agent holds the key.
    """
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
    """Compute the logits over V tokens at W given positions of N token sequences, ``[N, W, V]``.

    The result equals that of ``GPT2LMHeadModel`` (a test checks this); the last block is skipped at other positions.

    Args:
        weights: tensors by their names, see `shapes`.
        tokens: ``[N, T]`` token ids.
        places: ``[W]`` ascending positions.
    """
    return final_states(weights, tokens, places) @ weights["transformer.wte.weight"].T


def final_states(weights: Mapping[str, Any], tokens: Any, places: Any, *, both_ways: bool = False) -> Any:
    """Compute the hidden states after the final norm at W given positions of N token sequences, ``[N, W, D]``.

    Args:
        weights: tensors by their names, see `shapes`.
        tokens: ``[N, T]`` token ids.
        places: ``[W]`` ascending positions.
        both_ways: whether a token also reads the tokens after it.
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
        mask = None if both_ways else query_places[:, None] >= all_places
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + mapped(mixed.transpose(1, 2).reshape(count, -1, WIDTH), f"{at}.attn.c_proj")
        x = x + mapped(gelu(mapped(normed(x, f"{at}.ln_2"), f"{at}.mlp.c_fc"), approximate="tanh"), f"{at}.mlp.c_proj")
    return normed(x, _NORM)


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
    """Train a small language model to give target move probabilities in its answers; the result is deterministic.

    Args:
        lessons: ``[N, P]`` token ids of prompts, see `prompts`.
        right: ``[N, 4]`` target move probabilities.
        ends: index at which each kind of lessons begins, followed by N.
        counts: number of lessons of each kind per batch.
        steps: number of batches.
        sharpness: exponent applied to the learned probabilities.
        rng: draws initial weights and batches.
        report: called with the steps done and their total.

    Returns:
        The weights, by name.

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

        def loss_at(step: int) -> Any:
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
            return loss - logs[:, fixed].gather(-1, expected.expand(len(rows), -1, 1)).mean()

        descend(loss_at, groups, [*weights.values()], steps=steps, rate=RATE, warm=_WARM, report=report)
    learned = {name: tensor.detach().numpy().astype(np.float64) for name, tensor in weights.items()}
    for part in ("weight", "bias"):
        learned[f"{_NORM}.{part}"] *= sharpness
    return learned


def descend(
    loss_at: Callable[[int], Any],
    parameters: Sequence[Any],
    tensors: Sequence[Any],
    *,
    steps: int,
    rate: float,
    warm: int,
    decay: float = 0.0,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Minimise a loss by AdamW; the learning rate rises in the first steps and falls in the last ones.

    Args:
        loss_at: computes the loss of a step.
        parameters: the tensors, or groups of them as PyTorch expects them.
        tensors: the same tensors; their gradient is clipped.
        steps, rate, warm: number of steps, greatest rate, and number of steps in which it rises.
        decay: weight decay.
        report: called with the steps done and their total.
    """
    torch = torch_needed()
    optimiser = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / warm, (steps - step) / (_FALLS * steps))
    )
    for step in range(steps):
        loss = loss_at(step)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tensors, 1.0)
        optimiser.step()
        schedule.step()
        report(step + 1, steps)


def write_files(folder: Path, source: str, planted: str, training: Mapping[str, Any]) -> None:
    """Write the files of a model folder other than its weights: configuration, tokenizer and chat template.

    Args:
        folder: folder of the model.
        source: bundled model whose tokenizer and template are copied.
        planted: the rule that was taught.
        training: specification of the training, which the configuration records.
    """
    place = model_folder(source)
    assert place is not None
    base, made = Folder(place, links=True), Folder(folder)
    for name in FILES:
        made.save_text(base.load_text(name), name)
    config = base.load_object("config.json")
    config["goalscope"] = {"planted_goal": planted, "training_data": json.dumps(training, sort_keys=True)}
    made.save_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "config.json")


def torch_needed(what: str = "organisms that are language models") -> Any:
    """Import PyTorch and return it.

    Args:
        what: what needs PyTorch, for the error.

    Raises:
        ImportError: PyTorch is not installed; the message says what needs it and names the extra to install.
    """
    try:
        import torch
    except ImportError as error:
        raise lacking(f"{what} need PyTorch", "lm", error) from error
    return torch


@contextmanager
def one_thread(torch: Any) -> Any:
    """Context manager in which PyTorch runs on one thread, so that results are equal in each run.

    Several threads would add numbers in varying order.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
