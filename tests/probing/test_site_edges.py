"""Sites in outputs that close or open their reasoning in odd ways, and files that name steps twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replays import GRIDS, local

from goalscope.activations import Shard, SiteFinder, write_shard
from goalscope.activations.shards import ShardFile
from goalscope.activations.sites import Sites
from goalscope.models import LocalModel
from goalscope.runs import Step
from goalscope.worlds import Action, Grid, State


def found(model: LocalModel, output: str) -> Sites:
    step = Step(
        index=0,
        state=State((1, 1)),
        action=Action.UP,
        prompt_tokens=(3, 4, 5, 6),
        output_tokens=tuple(model.encode(output)),
    )
    return SiteFinder(model, ("post", "action")).find(step, Grid.parse(GRIDS[0]))


def test_reasoning_that_is_closed_twice_ends_where_it_is_closed_last() -> None:
    model = local("qwen3", "think")
    said = 'a</think>b {"action": "UP"}</think>'
    one = found(model, f'{said}\n{{"action": "UP"}}<eos>')
    end = 4 + len(model.encode(said))
    assert one.positions["post"].tolist() == [end - 3, end - 2, end - 1]
    # The answer is what follows it: the action before it is no answer.
    assert one.positions["action"].tolist() == [end + len(model.encode('\n{"action": "')) - 1]


def test_a_final_answer_with_nothing_but_its_opening_before_it_has_no_reasoning() -> None:
    model = local()
    opening, answer = "<|end|><|start|>assistant", '<|channel|>final<|message|>{"action": "UP"}<|return|>'
    assert found(model, opening + answer).missing == {"post": "no reasoning before the final answer"}
    assert found(model, f"x{opening}{answer}").positions["post"].tolist() == [5, 6, 7]
    assert found(model, f"<|end|>{answer}").missing == {"post": "no reasoning before the final answer"}


@pytest.mark.parametrize("rows", [[0, 0], [1, 0], [0, 2], [-1, 0]])
def test_a_file_whose_rows_do_not_rise_within_its_steps_is_refused(tmp_path: Path, rows: list[int]) -> None:
    def size_of(given: list[int]) -> int:
        arrays: dict[str, Any] = {"pre.rows": np.array(given, dtype=np.int64)}
        header = {"capture": "capture-a", "episodes": [["episode", "world", "grid"]]}
        return write_shard(tmp_path / "a.safetensors", Shard(header=header, arrays=arrays))

    with ShardFile(tmp_path / "a.safetensors", size=size_of([0, 1]), capture="capture-a") as sound:
        assert sound.rows("pre", 2).tolist() == [0, 1]
    with (
        ShardFile(tmp_path / "a.safetensors", size=size_of(rows), capture="capture-a") as broken,
        pytest.raises(ValueError, match="the rows of site pre must rise within its 2 steps"),
    ):
        broken.rows("pre", 2)
