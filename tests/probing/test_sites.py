"""Sites are where the text says they are, in every style of template."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replays import GRIDS, harmony, local, record

from goalscope.agents.models import LocalModel, Message, Sampling
from goalscope.inside.activations import SITES, SiteFinder
from goalscope.inside.activations.sites import grids_seen
from goalscope.runs import Step, Store
from goalscope.worlds import Action, Grid, State


def texts(model: LocalModel, step: Step, positions: Any) -> list[str]:
    whole = [*(step.prompt_tokens or ()), *(step.output_tokens or ())]
    return [str(model.tokenizer.decode([whole[place]], skip_special_tokens=False)) for place in positions]


def steps_of(directory: Path) -> list[tuple[Step, Grid]]:
    with Store(directory) as store:
        return [pair for episode in store.episodes() for pair in zip(episode.steps, grids_seen(episode), strict=True)]


@pytest.fixture(scope="module")
def theseus() -> LocalModel:
    return LocalModel("theseus")


def test_harmony_sites_are_the_tokens_that_the_paper_names(tmp_path: Path) -> None:
    model = local()
    listed = steps_of(record(tmp_path / "run", model))
    finder = SiteFinder(model, SITES)
    assert finder.style == "harmony"
    ends = set()
    for step, grid in listed:
        found = finder.find(step, grid)
        assert not found.missing
        prompt = len(step.prompt_tokens or ())
        for site in ("pre", "post"):
            assert texts(model, step, found.positions[site]) == ["<|end|>", "<|start|>", "assistant"]
        assert found.positions["pre"][-1] == prompt - 1
        assert found.positions["post"][0] > prompt
        ends.add(int(found.positions["post"][-1]) - prompt)
        # What follows the site: the final channel.
        after = texts(model, step, range(found.positions["post"][-1] + 1, found.positions["post"][-1] + 7))
        assert "".join(after) == "<|channel|>final"
        assert step.action is not None
        (place,) = found.positions["action"]
        assert "".join(texts(model, step, range(place - 11, place + 1))) == '{"action": "'
        assert texts(model, step, [place + 1]) == [step.action.name[0]]
    assert len(ends) > 3  # no fixed offset


@pytest.mark.parametrize("fog", [None, 1])
def test_grid_tokens_are_the_cells_of_the_grid_that_was_shown(tmp_path: Path, fog: int | None) -> None:
    model = local()
    listed = steps_of(record(tmp_path / "run", model, fog=fog, steps=6))
    finder = SiteFinder(model, ("grid",))
    drawn = set()
    for step, grid in listed:
        positions = finder.find(step, grid).positions["grid"]
        shown = "".join(texts(model, step, positions))
        lines = grid.render().split("\n")[1:]
        assert shown == "".join("".join(line.split()[1:]) for line in lines)
        # What is remembered of earlier prompts gives what a finder without a memory gives.
        assert np.array_equal(SiteFinder(model, ("grid",)).find(step, grid).positions["grid"], positions)
        drawn.add(shown)
    assert len(drawn) > 6 and any("*" in text for text in drawn) == (fog is not None)


def test_a_remembered_prompt_is_used_for_its_own_form_alone() -> None:
    model = local()
    finder = SiteFinder(model, ("grid",))
    grid = Grid.parse(GRIDS[0])

    def asked(text: str) -> Step:
        prompt = model.encode(model.render([Message(role="user", content=text)], Sampling()))
        return Step(index=0, state=State((1, 1)), action=Action.UP, prompt_tokens=tuple(prompt))

    first = finder.find(asked(f"ab{grid.render()}\nGo"), grid).positions["grid"]
    moved = finder.find(asked(f"a{grid.render()}\nGo!"), grid).positions["grid"]  # as long, one place earlier
    assert np.array_equal(moved, first - 1)
    assert np.array_equal(finder.find(asked(f"ab{grid.render()}\nGo"), grid).positions["grid"], first)
    # The last grid counts where a conversation shows several.
    before = grid.at(start=(1, 2)).render()
    twice = finder.find(asked(f"{before}\n{grid.render()}\nGo"), grid).positions["grid"]
    assert twice[0] > len(before)
    # A prompt that holds another grid than the state says is never taken for one that is known.
    with pytest.raises(ValueError, match="prompt"):
        finder.find(asked(f"ab{before}\nGo"), grid)


def test_sites_of_the_bundled_model(theseus: LocalModel) -> None:
    grid = Grid.parse("#######\n#A____#\n#_###_#\n#___#G#\n#######")
    prompt = theseus.encode(theseus.render([Message(role="user", content=f"x\n\n{grid.render()}\n")], Sampling()))
    said = harmony(0, Action.RIGHT).replace("go", "to (1,2) from (1,1):")
    step = Step(
        index=0,
        state=State((1, 1)),
        action=Action.RIGHT,
        prompt_tokens=tuple(prompt),
        output_tokens=tuple(theseus.encode(said)),
    )
    found = SiteFinder(theseus, SITES).find(step, grid)
    assert not found.missing
    assert texts(theseus, step, found.positions["pre"]) == ["<|end|>", "<|start|>", "assistant"]
    assert texts(theseus, step, found.positions["post"]) == ["<|end|>", "<|start|>", "assistant"]
    assert texts(theseus, step, found.positions["action"]) == ['{"action": "']
    cells = "".join(texts(theseus, step, found.positions["grid"])).replace(" ", "")
    assert cells == "########A____##_###_##___#G########"


def test_think_tags(tmp_path: Path) -> None:
    model = local("qwen3", "think")
    finder = SiteFinder(model, SITES)
    assert finder.style == "tags"
    for step, grid in steps_of(record(tmp_path / "run", model, style="think")):
        found = finder.find(step, grid)
        assert not found.missing
        assert texts(model, step, found.positions["pre"]) == [">", ":", "\n"]
        assert texts(model, step, found.positions["post"])[-1] == "</think>"
        (place,) = found.positions["action"]
        assert step.action is not None
        assert texts(model, step, [place, place + 1]) == ['"', step.action.name[0]]


def test_models_without_marked_reasoning_have_no_site_post(tmp_path: Path) -> None:
    model = local("gpt2", "none")
    with pytest.raises(ValueError, match=r"site post.*gpt2-0"):
        SiteFinder(model, ("pre", "post"))
    finder = SiteFinder(model, ("pre", "action"))
    for step, grid in steps_of(record(tmp_path / "run", model, style="none")):
        found = finder.find(step, grid)
        assert texts(model, step, found.positions["pre"]) == ["[", "a", "]"]
        (place,) = found.positions["action"]
        assert step.action is not None
        assert texts(model, step, [place + 1]) == [step.action.name[0].lower()]


def test_steps_without_a_site_say_why() -> None:
    model = local()
    finder = SiteFinder(model, ("pre", "post", "action"))
    grid = Grid.parse(GRIDS[0])
    prompt = tuple(model.encode(model.render([Message(role="user", content="x")], Sampling())))

    def why(site: Any, output: str | None, action: Action | None = Action.UP, asked: Any = prompt) -> str:
        ids = None if output is None else tuple(model.encode(output))
        step = Step(
            index=0,
            state=State((1, 1)),
            action=action,
            failure=None if action is not None else "no JSON",
            prompt_tokens=asked,
            output_tokens=ids,
        )
        return finder.find(step, grid).missing.get(site, "")

    cut = "<|channel|>analysis<|message|>go"
    direct = '<|channel|>final<|message|>{"action": "UP"}<|return|>'
    spelled = '<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>{"move": "UP"}'
    assert why("post", None) == "no token ids of the output"
    assert why("pre", None, asked=None) == "no token ids of the prompt"
    assert why("post", cut) == why("action", cut) == "no final answer"
    assert why("post", direct) == "no reasoning before the final answer" and why("action", direct) == ""
    assert why("action", spelled) == "the word of the action is not found in the answer" and why("post", spelled) == ""
    assert why("action", spelled.replace("move", "action"), Action.DOWN).startswith("the word of the action is not")
    assert why("action", spelled, None) == "the answer names no action"
    assert why("pre", None, asked=prompt[:-1]).startswith("the prompt does not end as the model's template")
    # A tool's channel before the answer is no end of the reasoning.
    tool = "<|channel|>commentary<|message|>x<|end|><|start|>assistant" + direct
    assert why("post", tool) == ""


def test_the_action_is_found_whatever_the_tokens_around_it_are() -> None:
    """Tokens that hold a quotation mark and the word's first letters, and a letter of several bytes before it."""
    model = local()
    model.tokenizer.add_tokens(['"DO', "é"])
    finder = SiteFinder(model, ("action",))
    opening = "<|channel|>final<|message|>"
    for said, before in (
        ('{"action": "DOWN"}', " "),
        ('é{"action":DOWN, "x": "é"}', ":"),
        ("{'action' : 'down'}", "'"),
    ):
        step = Step(
            index=0,
            state=State((1, 1)),
            action=Action.DOWN,
            prompt_tokens=(3,),
            output_tokens=tuple(model.encode(opening + said)),
        )
        found = finder.find(step, Grid.parse(GRIDS[0]))
        (place,) = found.positions["action"]
        assert texts(model, step, [place]) == [before]


def test_grids_whose_cells_are_no_tokens_of_their_own_are_refused(tmp_path: Path) -> None:
    model = local()
    listed = steps_of(record(tmp_path / "run", model))
    model.tokenizer.add_tokens(["# #"])
    changed = [
        replace(step, prompt_tokens=tuple(model.encode(model.tokenizer.decode(list(step.prompt_tokens or ())))))
        for step, _ in listed[:1]
    ]
    with pytest.raises(ValueError, match="one token"):
        SiteFinder(model, ("grid",)).find(changed[0], listed[0][1])
    # Ids that are not what the tokenizer makes of their text: another model's.
    with pytest.raises(ValueError, match="the model"):
        SiteFinder(model, ("grid",)).find(*listed[0])
