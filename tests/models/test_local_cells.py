"""Each cell of a grid is one token, or the offending cell is named."""

import warnings

import pytest
from tiny_models import llama, tokenizer
from tokenizers import AddedToken

from goalscope._ground.rng import stream
from goalscope.agents.models import LocalModel, Message, Sampling
from goalscope.agents.models.dialect import check_cell_tokens
from goalscope.worlds import generate


def model(*merged: str) -> LocalModel:
    pieces = tokenizer()
    pieces.add_tokens([AddedToken(piece, normalized=False) for piece in merged])
    return LocalModel.from_parts(llama(), pieces, name="tiny")


@pytest.mark.parametrize("size", [7, 11])
def test_positions_are_those_of_the_cells(size: int) -> None:
    grid = generate(size=size, density=0.6, rng=stream(0, "cells", size))
    reader = model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_cell_tokens(reader, grid.render(), capture=True)
    assert found.problems == ()
    ids = reader.encode(reader.render([Message(role="user", content=grid.render())], Sampling()))
    read = [[reader.tokenizer.decode([ids[place]]).strip() for place in row] for row in found.positions]
    assert type(grid).parse(read) == grid


def test_the_last_occurrence_in_a_prompt_counts() -> None:
    grid = generate(size=5, density=1.0, rng=stream(0, "cells")).render()
    reader = model()
    once, twice = f"<|start|>{grid}", f"{grid}\nand\n{grid}"
    first = check_cell_tokens(reader, grid, prompt=once).positions
    second = check_cell_tokens(reader, grid, prompt=twice).positions
    assert (second - first == len(grid) + len("\nand\n") - 1).all()
    with pytest.raises(ValueError, match="grid"):
        check_cell_tokens(reader, grid, prompt="nothing")


@pytest.mark.parametrize(("merged", "named"), [(" # #", "' # #'"), ("_ G", "'_ G'")])
def test_cells_that_share_a_token_are_named(merged: str, named: str) -> None:
    grid = "  0 1 2 3 4\n0 # # # # #\n1 # A _ G #\n2 # # # # #"
    reader = model(merged)
    with pytest.warns(UserWarning, match=r"cell \(\d, \d\)") as record:
        found = check_cell_tokens(reader, grid)
    assert named in str(record[0].message)
    assert (found.positions == -1).sum() == len(found.problems) > 0
    with pytest.raises(ValueError, match="captured"):
        check_cell_tokens(reader, grid, capture=True)


def test_a_label_may_share_the_token_of_the_first_cell_of_its_row() -> None:
    grid = "  0 1 2\n0 # # #\n1 A _ G\n2 # # #"
    assert check_cell_tokens(model("\n2 #"), grid, capture=True).problems == ()
