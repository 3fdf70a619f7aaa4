"""Sites in outputs that close or open their reasoning in odd ways."""

from replays import GRIDS, local

from goalscope.agents.models import LocalModel
from goalscope.inside.activations import SiteFinder
from goalscope.inside.activations.sites import Sites
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
