"""Which token of a prompt stands for each grid cell."""

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.agents.models.base import Message, Sampling
from goalscope.agents.models.local import LocalModel
from goalscope.worlds.encodings import cell_offsets
from goalscope.worlds.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellTokens:
    """Token positions of the cells of a grid in a prompt.

    Attributes:
        positions: ``[H, W]`` int, index of the cell's token in the prompt, -1 if the cell is not exactly one token.
        problems: one sentence for each cell with -1.
    """

    positions: npt.NDArray[np.int64]
    problems: tuple[str, ...]


def check_cell_tokens(
    model: LocalModel, grid_text: str, *, prompt: str | None = None, capture: bool = False
) -> CellTokens:
    """Check that each cell of a grid is exactly one token, and that this token contains no other cell.

    Args:
        model: the model whose tokenizer reads the grid.
        grid_text: a grid as `Grid.render` writes it.
        prompt: the rendered prompt that contains the grid, in any encoding; its last occurrence counts. By default a
            chat whose only message is the grid.
        capture: whether the study captures activations at the cells. If so, a problem is an error, else a warning.

    Raises:
        ValueError: with ``capture``, a cell is not one token (the message names the cell and its tokens); the prompt
            does not contain the grid; or the tokenizer does not report the positions of its tokens.
    """
    text = model.render([Message(role="user", content=grid_text)], Sampling()) if prompt is None else prompt
    cells = cell_offsets(grid_text, text)
    if cells is None:
        raise ValueError(f"the prompt must contain the grid, but it does not contain:\n{grid_text}")
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"the tokenizer of {model.name} does not report the positions of its tokens in the text: use a model with "
            "a fast tokenizer (tokenizer.json)"
        )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans: list[tuple[int, int]] = [tuple(span) for span in encoded["offset_mapping"]]
    offsets = set(cells.values())
    grid = Grid.parse(grid_text)
    positions = np.full((grid.height, grid.width), -1, dtype=np.int64)
    problems = []
    for cell, offset in cells.items():
        tokens = [index for index, (first, last) in enumerate(spans) if first <= offset < last]
        if len(tokens) == 1 and len(offsets.intersection(range(*spans[tokens[0]]))) == 1:
            positions[cell] = tokens[0]
        else:
            pieces = ", ".join(repr(text[slice(*spans[index])]) for index in tokens)
            problems.append(f"cell {cell} {text[offset]!r} is split into or merged with the token(s) {pieces}")
    if problems:
        sentence = (
            f"each cell of a grid must be exactly one token for {model.name}, but {problems[0]}"
            f" ({len(problems)} of {len(cells)} cells)"
        )
        if capture:
            raise ValueError(
                f"{sentence}; activations at cells cannot be captured with this tokenizer: use another model"
            )
        warnings.warn(sentence, stacklevel=2)
    return CellTokens(positions=freeze(positions), problems=tuple(problems))
