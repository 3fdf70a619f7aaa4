"""The history of an episode as a conversation: what is sent, that it resumes, that servers and local models agree."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from http_studies import study as served_study
from http_studies import template, trajectories
from server import Loopback, speaker

from families import long_after
from goalscope.agents import ChatAgent, Observation, Past, agent_id, build_agent
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.runs import EpisodeSpec, Store, Study, World, content_hash, run
from goalscope.runs.episode import LiveEpisode
from goalscope.verdict.preflight.cost import costs, count_pieces
from goalscope.worlds import Action, Grid, GridView

FOGGED = Grid.parse("#####\n#A_**\n#####")
MOVED = Grid.parse("#####\n#_A_*\n#####")
ACTIONS = ("RIGHT", "DOWN", "LEFT", "UP")


@dataclass
class Echo:
    """A model that walks in a circle, repeats in its reasoning how long the chat is, and may break down."""

    name: str = "echo"
    fails_at: int = -1
    asked: list[Request] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        return {"kind": "echo"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        found = []
        for request in requests:
            if len(self.asked) == self.fails_at:
                raise ConnectionError("the line is dead")
            self.asked.append(request)
            said = sum(message.role == "assistant" for message in request.messages)
            answer = json.dumps({"action": ACTIONS[said % 4]}) if said % 3 < 2 else "no idea"
            found.append(Reply.of(answer, reasoning=f"so far {said} answers, {request.key[1][-4:]}"))
        return found


def small(**changes: Any) -> Study:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 2, "minimum_distance": 4, "fog_radius": 3}]
    return Study.parse(
        {"worlds": worlds, "agents": [{"kind": "random"}], "trajectories": 2, "horizon": {"steps": 6}, **changes}
    )


def history(*texts: str) -> tuple[Past, ...]:
    return tuple(
        Past(view=GridView(grid=FOGGED), action=Action.RIGHT, text=text, reasoning=f"why {text}") for text in texts
    )


def test_a_conversation_repeats_each_prompt_as_it_was_with_its_answer() -> None:
    agent = ChatAgent(model=Echo(), task="fog")
    first = agent.messages(Observation(view=GridView(grid=FOGGED), history_as="conversation"))
    (past,) = (Past(view=GridView(grid=FOGGED), action=Action.RIGHT, text='{"action": "RIGHT"}'),)
    second = agent.messages(Observation(view=GridView(grid=MOVED), history=(past,), history_as="conversation"))
    assert [message.role for message in second] == ["user", "assistant", "user"]
    assert second[:1] == first and second[1].content == '{"action": "RIGHT"}'
    assert MOVED.render() in second[2].content and "\n(1,1) RIGHT\n" in second[2].content
    # A template without a place for a list of steps will do: the conversation is the history.
    plain = Grid.parse("A_G")
    talk = ChatAgent(model=Echo(), task="grid").messages(
        Observation(
            view=GridView(grid=plain),
            history=(Past(view=GridView(grid=plain), action=None, text="?"),),
            history_as="conversation",
        )
    )
    assert len(talk) == 3
    with pytest.raises(ValueError, match="conversation"):
        ChatAgent(model=Echo(), task="grid").messages(
            Observation(
                view=GridView(grid=plain), history=(Past(view=GridView(grid=plain), action=None),), history_as="actions"
            )
        )


def test_reasoning_stands_before_its_answer_where_it_is_kept() -> None:
    (past,) = history("go")
    assert past.answer == "why go\n\ngo"
    assert Past(view=GridView(grid=FOGGED), action=None).answer == ""
    chat = ChatAgent(model=Echo(), task="fog").messages(
        Observation(view=GridView(grid=MOVED), history=(past,), history_as="reasoning")
    )
    assert chat[1] == Message(role="assistant", content="why go\n\ngo")


@pytest.mark.parametrize("kind", ["none", "actions", "conversation", "reasoning"])
def test_an_agent_is_shown_what_it_wants_or_what_the_study_says(kind: str, tmp_path: Path) -> None:
    own, shared = Echo(), Echo()
    run(small(), tmp_path / "own", agents=[ChatAgent(model=own, task="fog", history=kind)])  # type: ignore[arg-type]
    run(small(history=kind), tmp_path / "shared", agents=[ChatAgent(model=shared, task="fog")])
    assert len(own.asked) > 6
    assert sorted(len(r.messages) for r in own.asked) == sorted(len(r.messages) for r in shared.asked)
    talks = kind in ("conversation", "reasoning")
    for request in own.asked:
        step = request.key[2]
        assert len(request.messages) == (2 * step + 1 if talks else 1)
        said = [message.content for message in request.messages if message.role == "assistant"]
        assert all(("so far" in text) == (kind == "reasoning") for text in said)
        if talks and step:
            assert said[-1].endswith("no idea") == ((step - 1) % 3 == 2)
    with Store(tmp_path / "own") as store:
        rules = {episode.spec.rules for episode in store.episodes()}
    assert rules == ({""} if kind == "none" else {json.dumps({"history": kind}, separators=(",", ":"))})


def test_the_history_is_part_of_the_agent_only_where_it_is_its_own() -> None:
    parameters = {"model": "theseus", "task": "fog", "max_tokens": 8}
    plain = build_agent("chat", parameters)
    arms = [build_agent("chat", {**parameters, "history": kind}) for kind in ("none", "actions", "conversation")]
    assert len({agent_id(agent) for agent in (plain, *arms)}) == 4
    assert "history" not in plain.describe()
    with pytest.raises(ValueError, match="none, actions, conversation, reasoning"):
        build_agent("chat", {**parameters, "history": "all"})
    with pytest.raises(ValueError, match="history"):
        small(history="everything")


@pytest.mark.parametrize("fails_at", [1, 7, 18])
def test_an_interrupted_conversation_goes_on_where_it_stopped(fails_at: int, tmp_path: Path) -> None:
    def agent(model: Echo) -> ChatAgent:
        return ChatAgent(model=model, task="fog", history="reasoning")

    whole, broken, rest = Echo(), Echo(fails_at=fails_at), Echo()
    run(small(), tmp_path / "whole", agents=[agent(whole)], batch=1)
    with pytest.raises(ConnectionError):
        run(small(), tmp_path / "broken", agents=[agent(broken)], batch=1)
    run(small(), tmp_path / "broken", agents=[agent(rest)], batch=1)
    assert [*broken.asked, *rest.asked] == whole.asked
    with Store(tmp_path / "whole") as one, Store(tmp_path / "broken") as other:
        assert content_hash(one) == content_hash(other)


@pytest.mark.parametrize("kind", long_after(1, ["conversation", "reasoning"]))
def test_a_server_is_sent_the_whole_chat_and_answers_as_the_local_model(kind: str, tmp_path: Path) -> None:
    model = speaker()
    with Loopback(model) as server:
        study = served_study(server.url, template(tmp_path), count=1, steps=3, history=kind, server={"timeout": 10})
        run(study, tmp_path / "served")
        bodies = [entry.body["messages"] for entry in server.log]
    (served,) = study.agents()
    assert isinstance(served, ChatAgent) and served.history == kind
    local = ChatAgent(model=model, task=served.task, sampling=served.sampling, history=served.history)
    run(study, tmp_path / "local", agents=[local])
    done, same = (list(trajectories(tmp_path / name).values()) for name in ("served", "local"))
    assert done == same
    assert max(len(messages) for messages in bodies) == 2 * max(map(len, done)) - 1 > 1
    texts = {step[3] for steps in done for step in steps}
    for messages in bodies:
        assert [message["role"] for message in messages] == ["user", *["assistant", "user"] * (len(messages) // 2)]
        assert {message["content"] for message in messages if message["role"] == "assistant"} <= texts


def test_a_plan_counts_prompts_as_they_grow() -> None:
    entry = {
        "kind": "chat",
        "model": "away",
        "task": "fog",
        "max_tokens": 50,
        "server": {"base_url": "http://192.0.2.1"},
    }
    arms = [{**entry, "history": kind, "name": kind} for kind in ("none", "actions", "conversation", "reasoning")]
    study = small(agents=arms)
    none, actions, talk, reasoned = costs(study)
    assert none.prompt and actions.prompt and talk.prompt and reasoned.prompt
    worlds = [(world, study.horizon.of(world)) for world in study.worlds()]
    # The same by building every prompt of an episode in which all steps look like the first.
    for cost, agent in zip((actions, talk), study.agents()[1:3], strict=True):
        lengths = []
        for world, horizon in worlds:
            grid = first_view(study, world).grid
            past = Past(view=GridView(grid=grid), action=Action.RIGHT, text='{"action": "RIGHT"}')
            for steps in range(horizon):
                seen = Observation(
                    view=GridView(grid=grid), history=(past,) * steps, history_as=study.history_of(agent)
                )
                assert isinstance(agent, ChatAgent)
                lengths.append(sum(count_pieces(message.content) for message in agent.messages(seen)))
        assert cost.prompt == pytest.approx(sum(lengths) / len(lengths), rel=0.01)
    assert reasoned.prompt - talk.prompt == pytest.approx(50 * 2.5)  # 0 to 5 earlier answers
    assert "grow from step to step" in talk.how and "short JSON" in talk.how and "reasoning of the 2.5" in reasoned.how


def first_view(study: Study, world: World) -> Observation:
    spec = EpisodeSpec(world_id=world.id, agent_id="x", trajectory=0, seed=0, horizon=6)
    return LiveEpisode(spec, world, study).observe()
