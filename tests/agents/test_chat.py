"""Chat agents: templates, prompts, turns, parameters of a study, replay."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from goalscope.agents import Agent, ChatAgent, Observation, Past, agent_id, build_agent
from goalscope.agents.models import TEMPLATE_FORMS, Message, Reply, Request, Sampling
from goalscope.agents.parse import PARSER_VERSION
from goalscope.agents.prompts import example_action, read_template, render_history
from goalscope.worlds import ACTIONS, Action, Grid, GridView

GRID = Grid.parse("#####\n#A_G#\n#####")
KEYED = Grid.parse("#####\n#AKG#\n#####")
ANSWERS = {"example": '{"action": "EXAMPLE"}', "schema": '{"action": "<UP|DOWN|LEFT|RIGHT>"}'}
FOGGED = Grid.parse("#####\n#A_**\n#####")


@dataclass
class Scripted:
    """A model that says what it was told to say."""

    completions: list[Reply] = field(default_factory=list)
    name: str = "scripted"
    rendered: str | None = None
    asked: list[Request] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        return {"kind": "scripted"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return self.rendered and self.rendered + messages[0].content

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        self.asked += requests
        return self.completions[: len(requests)]


def text(agent: ChatAgent, observation: Observation) -> str:
    (message,) = agent.messages(observation)
    assert message.role == "user"
    return message.content


@pytest.mark.parametrize("form", TEMPLATE_FORMS)
@pytest.mark.parametrize("task", ["grid", "key-door", "fog"])
def test_bundled_templates_show_the_grid_the_legend_and_the_form_of_the_answer(task: str, form: str) -> None:
    grid = {"grid": GRID, "key-door": KEYED, "fog": FOGGED}[task]
    shown = text(ChatAgent(model=Scripted(), task=task, template=form), Observation(view=GridView(grid=grid)))
    assert shown.count(grid.render()) == 1
    assert "{{" not in shown
    example = example_action("", 0, ACTIONS).name
    assert ANSWERS[form].replace("EXAMPLE", example) in shown
    assert ("<UP|" in shown) == (form == "schema"), "a weak model copies a schema letter by letter"
    for symbol in sorted(set(grid.render()) - set("0123456789 \n")):
        assert f"\n{symbol} " in shown, f"the legend explains {symbol}"


def test_the_key_and_the_history_stand_in_the_prompt() -> None:
    keyed = ChatAgent(model=Scripted(), task="key-door")
    assert "carries the key: no" in text(keyed, Observation(view=GridView(grid=KEYED)))
    assert "carries the key: yes" in text(keyed, Observation(view=GridView(grid=GRID.at(held=("K",)))))
    fogged = ChatAgent(model=Scripted(), task="fog")
    history = (Past(view=GridView(grid=FOGGED), action=Action.UP), Past(view=GridView(grid=FOGGED), action=None))
    assert "\n(1,1) UP\n(1,1) none\n" in text(fogged, Observation(view=GridView(grid=FOGGED), history=history))
    assert render_history(()) == "none"
    with pytest.raises(ValueError, match="agent"):
        render_history([Past(view=GridView(grid=Grid.parse("_G")), action=Action.UP)])


@pytest.mark.parametrize(
    ("task", "observation", "words"),
    [
        ("grid", Observation(view=GridView(grid=KEYED)), "task to key-door"),
        ("grid", Observation(view=GridView(grid=GRID.at(held=("K",)))), "task to key-door"),
        ("grid", Observation(view=GridView(grid=FOGGED)), "task to fog"),
        ("key-door", Observation(view=GridView(grid=FOGGED)), "task to fog"),
        (
            "grid",
            Observation(view=GridView(grid=GRID), history=(Past(view=GridView(grid=GRID), action=Action.UP),)),
            "history",
        ),
    ],
)
def test_a_template_without_a_place_for_what_matters_is_refused(
    task: str, observation: Observation, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        ChatAgent(model=Scripted(), task=task).messages(observation)


def test_a_users_template_is_filled_by_plain_substitution(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("{% raw %} {0} {grid.walls} ${x} %s {{carrying_key}}\n{{grid}}\n")
    agent = ChatAgent(model=Scripted(), task=path)
    assert (
        text(agent, Observation(view=GridView(grid=GRID)))
        == f"{{% raw %}} {{0}} {{grid.walls}} ${{x}} %s no\n{GRID.render()}"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("no place", "no placeholder {{grid}}"),
        ("{{grid}} {{goal}}", "contains {{goal}}"),
        ("{{ grid }}", "contains {{ grid }}"),
        ("{{grid}} {{config.__class__}}", "contains {{config.__class__}}"),
    ],
)
def test_a_template_with_a_wrong_placeholder_is_refused_by_name(tmp_path: Path, template: str, words: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(template)
    with pytest.raises(ValueError) as caught:
        read_template(path)
    assert words in str(caught.value)
    assert "mine.txt" in str(caught.value)


def test_a_template_is_a_utf_8_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes("größe {{grid}}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"UTF-8.*mine\.txt"):
        read_template(path)
    path.write_bytes(b"\xef\xbb\xbf{{grid}}\n")
    assert read_template(path) == "{{grid}}", "the mark at the beginning of a file is none of its text"


def test_a_task_that_is_no_task_and_no_file_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match=r"grid, key-door, fog, named, things, text.* 'gird'"):
        read_template("gird")


def test_completions_become_turns() -> None:
    model = Scripted(
        [
            Reply.of(
                '{"action": "UP"}',
                reasoning="up",
                prompt_tokens=(1, 2),
                output_tokens=(3,),
                usage={"output_tokens": 1},
                logprobs=({"token": 3, "logprob": -0.5, "top": [[3, -0.5]]},),
                unsupported=("reasoning_effort",),
                raw="kept by its tokens",
            ),
            Reply.of("", finish="length", raw="and so on"),
            Reply.of('{"action": "JUMP"}', reconstructed=True, output_tokens=(9,)),
        ]
    )
    agent = ChatAgent(model=model, task="grid")
    observation = Observation(view=GridView(grid=GRID), episode_id="e", step=4, attempt=1, seed=9)
    first, second, third = agent.act([observation] * 3)
    assert model.asked[0].key == (9, "e", 4, 1)
    assert (first.action, first.failure, first.text, first.reasoning) == (Action.UP, None, '{"action": "UP"}', "up")
    assert (first.prompt_tokens, first.output_tokens, first.usage) == ((1, 2), (3,), {"output_tokens": 1})
    assert first.extra == {
        "finish": "stop",
        "parser": PARSER_VERSION,
        "logprobs": [{"token": 3, "logprob": -0.5, "top": [[3, -0.5]]}],
        "unsupported": ["reasoning_effort"],
    }
    assert (second.action, second.failure, second.extra) == (
        None,
        "truncated",
        {"finish": "length", "parser": PARSER_VERSION, "raw": "and so on"},
    )
    told = {"finish": "stop", "parser": PARSER_VERSION, "reconstructed": True}
    assert (third.failure, third.extra) == ("unknown action", told)
    assert agent.describe()["parser"] == 3, "the version that reads an answer does not decide how it is drawn"


def test_a_chat_agent_is_an_agent_known_by_what_determines_its_answers(tmp_path: Path) -> None:
    agent = ChatAgent(model=Scripted(), task="grid")
    assert isinstance(agent, Agent)
    assert agent.journalled
    assert agent.name == "scripted"
    assert agent.largest_batch > 10**6
    named = ChatAgent(model=Scripted(), task="grid", name="other")
    assert agent_id(named) == agent_id(agent)
    path = tmp_path / "same.txt"
    path.write_text(agent.text)
    assert agent_id(ChatAgent(model=Scripted(), task=path)) == agent_id(agent), "the text counts, not its place"
    others = [
        ChatAgent(model=Scripted(), task="fog"),
        ChatAgent(model=Scripted(), task="grid", template="schema"),
        ChatAgent(model=Scripted(), task="grid", sampling=Sampling(temperature=0)),
        ChatAgent(model=Scripted(), task="grid", sampling=Sampling(top_logprobs=5)),
    ]
    assert len({agent_id(other) for other in [agent, *others]}) == 5


def test_the_exact_prompt_is_what_the_model_reads() -> None:
    observation = Observation(view=GridView(grid=GRID))
    agent = ChatAgent(model=Scripted(rendered="<chat>"), task="grid")
    assert agent.prompt(observation) == "<chat>" + text(agent, observation)
    unknown = ChatAgent(model=Scripted(), task="grid")
    assert unknown.prompt(observation).startswith('[{"content":"You steer')


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "parameter model"),
        ({"model": "x", "temprature": 1}, "did you mean temperature?"),
        ({"model": "x", "backend": "locl"}, "did you mean local?"),
        ({"model": "x", "backend": "server"}, "needs server"),
        ({"model": " "}, "model must be a folder"),
        ({"model": "Theseus"}, "the bundled model is called theseus"),
        ({"model": "thesus"}, "the bundled model is called theseus"),
        ({"model": "x", "device": "toaster"}, "device must be auto, cpu, cuda"),
        ({"model": "x", "untrained": -1}, "untrained must be a seed"),
        ({"model": "x", "temperature": 2**2000}, "temperature of a chat agent must be at most"),
        ({"model": "x", "max_tokens": 2**63}, "max_tokens of a chat agent must be at most"),
        ({"model": "x", "server": {"timeout": 2**2000}}, "server.timeout must be a"),
        (
            {"model": "x", "template_options": {"tokenize": True, "messages": []}},
            "got messages, tokenize",
        ),
        ({"model": "x", "temperature": "hot"}, "temperature of a chat agent must be a number, got 'hot'"),
        (
            {"model": "x", "template": "none"},
            "form of a bundled template must be one of example, schema, completion, got 'none'",
        ),
        ({"model": "x", "slots": True}, "slots of a chat agent must be a whole number or nothing, got True"),
        ({"model": "x", "temperature": -1}, "finite number >= 0"),
        ({"model": "x", "top_p": 0}, "top_p must lie in"),
        ({"model": "x", "max_tokens": 0}, "at least 1"),
        ({"model": "x", "reasoning_effort": "some"}, "minimal, low, medium, high"),
        ({"model": "x", "top_logprobs": 99}, "0..20"),
        ({"model": "x", "dtype": "int4"}, "float32"),
        ({"model": "x", "today": "tomorrow"}, "today must be a date such as 2025-08-05"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        build_agent("chat", parameters)
    assert words in str(caught.value)


def test_parameters_of_a_study_reach_the_agent() -> None:
    agent = build_agent("chat", {"model": "org/name", "revision": "abc", "temperature": 0, "task": "fog", "name": "n"})
    assert isinstance(agent, ChatAgent)
    assert (agent.name, agent.task, agent.sampling.temperature, agent.sampling.top_p) == ("n", "fog", 0, 0.95)
    assert agent.describe()["model"]["files"] == {"hub": "org/name", "revision": "abc"}
    assert build_agent("chat", {"model": "org/name"}).name == "org/name"


def test_messages_and_requests_are_checked() -> None:
    with pytest.raises(ValueError, match="role"):
        Message(role="tool", content="")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one message"):
        Request(messages=(), key=(0, "e", 0, 0))
