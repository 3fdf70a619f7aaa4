"""Chat agents of task worlds: prompts, summary, what is sent and read, that nothing leaks; behind a server, too."""

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from http_studies import tokens, trajectories
from literal_tasks import neighbours, observed, unobserved
from server import MANY, Loopback, speaker
from task_run_agents import Parrot, task_study
from test_http_runs import kill_and_resume

from contents import hash_of
from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents import STRATEGIES, Observation, TaskChatAgent, build_agent
from goalscope.agents.models import LocalModel, Message
from goalscope.agents.parse import FAILURES
from goalscope.agents.prompts import PASSAGES, passage
from goalscope.cli.measuring import measured_rows
from goalscope.runs import Store, Study, content_hash, run
from goalscope.verdict.preflight.cost import costs
from goalscope.worlds import Action
from goalscope.worlds.tasks import (
    COOKING,
    RULES,
    AgentKnowledge,
    TaskMap,
    TaskNode,
    TaskState,
    TaskWorld,
    cooking_map,
    generate_task_map,
    memory_text,
    write_log,
)
from task_logs import memory_from_log
from task_observations import task_observation

ARMS = [
    (strategy, reasoned, memory) for strategy in STRATEGIES for reasoned in (False, True) for memory in (False, True)
]
HISTORIES = ("none", "actions", "conversation")


def arm(strategy: str = "base", reasoned: bool = False, memory: bool = False, **more: Any) -> TaskChatAgent:
    settings = {"template": "schema", **more}
    return TaskChatAgent(model=Parrot(), strategy=strategy, reasoned=reasoned, memory=memory, **settings)


def walk(task_map: TaskMap, seed: int) -> Iterator[tuple[AgentKnowledge, list[tuple[int, int]], list[Action | None]]]:
    """Walk at random with invalid turns; yields memory, cells and actions so far at every step."""
    rng = stream(seed, "chat walk")
    knowledge, memory = TaskState(task_map), AgentKnowledge()
    memory.add(knowledge.report())
    cells, actions = [task_map.start], list[Action | None]()
    yield memory, cells, actions
    while knowledge.ending is None:
        action = None if rng.random() < 0.1 else Action(int(rng.integers(4)))
        knowledge.move(action)
        memory.add(knowledge.report(), action)
        cells.append(knowledge.board.cell(knowledge.position))
        actions.append(action)
        yield memory, cells, actions


def shown(memory: AgentKnowledge, history: Any, answers: tuple[str, ...] = ()) -> Observation:
    return task_observation(memory, answers, history_as=history)


def text_of(messages: tuple[Message, ...]) -> str:
    return "\n".join(message.content for message in messages)


def test_the_four_prompts_differ_in_one_sentence_and_the_arms_in_what_they_say() -> None:
    base = arm().system
    assert RULES in base and passage("direct") in base
    for strategy in STRATEGIES[1:]:
        system = arm(strategy).system
        assert system.replace(f"{passage(strategy)}\n\n", "") == base != system
    assert arm(reasoned=True).system == base.replace(passage("direct"), passage("reasoned"))
    assert arm(memory=True).system.replace(f"{passage('summary')}\n\n", "") == base
    agents = [arm(*parts) for parts in ARMS]
    assert len({agent.system for agent in agents}) == len({agent.name for agent in agents}) == len(ARMS)
    assert len({str(agent.describe()) for agent in agents}) == len(ARMS)
    assert all("{{" not in agent.system and "\n\n\n" not in agent.system for agent in agents)
    assert arm("balance", True, True).tags == {"prompt": "balance", "reasoned": True, "memory": True}
    folder = files("goalscope.agents.prompts.tasks")
    assert {f"{name}.txt" for name in PASSAGES} == {
        entry.name for entry in folder.iterdir() if entry.name.endswith(".txt")
    }


@pytest.mark.parametrize("history", HISTORIES)
def test_the_chat_is_the_episode_and_nothing_else(history: str) -> None:
    agent, with_memory = arm(), arm(memory=True)
    for memory, _, actions in walk(generate_task_map("high-small", seed=2), 1):
        answers = tuple(f"answer {index}" for index in range(len(actions))) if history == "conversation" else ()
        chat = agent.messages(shown(memory, history, answers))
        assert chat[0] == Message(role="system", content=agent.system)
        assert chat[-1].role == "user"
        if history == "conversation":
            assert [message.content for message in chat[2::2]] == list(answers)
            log = [message.content for message in chat[1::2]]
            assert len(log) == len(memory.turns)
        elif history == "actions":
            rebuilt = memory_from_log(f"{RULES}\n{chat[-1].content}\n")
            assert vars(rebuilt) == vars(memory)
        else:
            assert len(chat) == 2 and chat[-1].content.count("OBSERVATION") == 1
        more = with_memory.messages(shown(memory, history, answers))
        assert more[1:-1] == chat[1:-1]
        assert more[-1].content == f"{chat[-1].content}\n\nSUMMARY:\n{memory_text(memory)}"


def test_the_summary_follows_from_the_text_log_alone() -> None:
    agent = arm(memory=True)
    for number, name in enumerate(COOKING):
        for memory, _, _ in walk(cooking_map(name), number):
            last = agent.messages(shown(memory, "actions"))[-1].content
            log, _, summary = last.partition("\n\nSUMMARY:\n")
            assert memory_text(memory_from_log(f"{RULES}\n{log}\n")) == summary


def elsewhere(task_map: TaskMap, cells: list[tuple[int, int]]) -> TaskMap | None:
    """Return a map that differs in all that a walk cannot know: budget, unknown cells, places of unseen nodes."""
    known = observed(cells) | unobserved(frozenset(task_map.cells), cells)
    beyond = max(x for x, _ in task_map.cells) + 2
    hidden = [name for name, node in task_map.nodes.items() if node.cell not in observed(cells)]
    open_ends = sorted(known - observed(cells), key=lambda cell: (-cell[0], cell))
    if not open_ends:
        return None
    x, y = open_ends[0]
    kept = sorted(known)
    # A corridor of its own leads away from one open cell; every node that was not found stands somewhere along it.
    corridor = [(step, y) for step in range(x + 1, beyond + len(hidden) + 1)]
    if any(cell in observed(cells) or near in observed(cells) for cell in corridor for near in neighbours(cell)):
        return None
    places = dict(zip(hidden, reversed(corridor), strict=False))
    nodes = {
        name: TaskNode(cell=places.get(name, node.cell), options=node.options) for name, node in task_map.nodes.items()
    }
    extra = [cell for cell in corridor if cell not in kept]
    return TaskMap(cells=[*kept, *extra], start=task_map.start, goal=task_map.goal, nodes=nodes, alpha=7)


def test_no_prompt_depends_on_what_the_agent_cannot_know() -> None:
    agents = [arm(*parts) for parts in ARMS]
    compared = 0
    for seed in range(4):
        task_map = generate_task_map("medium-small", seed=seed)
        for _, cells, actions in walk(task_map, seed):
            if len(actions) > 25:
                break
            other = elsewhere(task_map, cells)
            if other is None or len(actions) % 3:
                continue
            assert other.budget != task_map.budget
            memories = []
            for world in (task_map, other):
                knowledge, memory = TaskState(world), AgentKnowledge()
                memory.add(knowledge.report())
                for action in actions:
                    knowledge.move(action)
                    memory.add(knowledge.report(), action)
                memories.append(memory)
            for agent in agents:
                for history in HISTORIES:
                    one, two = (text_of(agent.messages(shown(memory, history))) for memory in memories)
                    assert one == two
            compared += 1
    assert compared > 15


def test_a_prompt_names_known_cells_and_told_nodes_only() -> None:
    agent = arm("balance", True, True)
    for seed in range(3):
        task_map = generate_task_map("medium-medium", seed=seed)
        cells = frozenset(task_map.cells)
        for memory, went, _ in walk(task_map, seed):
            text = text_of(agent.messages(shown(memory, "actions"))[1:])
            said = {(int(x), int(y)) for x, y in re.findall(r"\[(-?\d+), (-?\d+)\]", text)}
            assert said <= observed(went) | {near for cell in went for near in neighbours(cell)}
            beside = {near for cell in went for near in neighbours(cell)}
            assert said & cells <= observed(went) | unobserved(cells, went) and said - cells <= beside
            stood_on = {name for name, node in task_map.nodes.items() if node.cell in went}
            told = set(stood_on)
            for name in stood_on:
                told |= set(task_map.children[name])
                told |= {parent for option in task_map.nodes[name].options for parent in option}
            assert set(re.findall(r'"([A-Z2-9]{4})"', text)) <= told


def test_answers_become_directions_or_named_failures(tmp_path: Path) -> None:
    answers = (
        '{"action": "up"}',
        'I go on.\n{"action":"Right"}',
        '{"action": "north"}',
        "up",
        "",
        '{"action": "up"} {"action": "down"}',
    )
    agent = replace(arm(reasoned=True), model=Parrot(answers=answers))
    run(task_study(trajectories=1), tmp_path, agents=[agent])
    with Store(tmp_path) as store:
        steps = [step for episode in store.episodes() for step in episode.steps]
        tags = {tuple(sorted(episode.tags.items())) for episode in store.episodes()}
    read = {step.text: (step.action, step.failure) for step in steps}
    assert read == {
        answers[0]: (Action.UP, None),
        answers[1]: (Action.RIGHT, None),
        answers[2]: (None, "unknown action"),
        answers[3]: (None, "no JSON"),
        answers[4]: (None, "empty"),
        answers[5]: (None, "two different actions"),
    }
    assert {failure for _, failure in read.values() if failure} <= set(FAILURES)
    assert tags == {(("memory", False), ("prompt", "base"), ("reasoned", True))}


@pytest.mark.parametrize("history", long_after(2, [*HISTORIES, "reasoning"]))
def test_batch_equals_single_and_runs_equal_each_other(history: Any, tmp_path: Path) -> None:
    hashes = set()
    for batch in (1, 4):
        parrot = Parrot()
        agent = replace(arm("exploration", memory=True, history=history), model=parrot)
        run(task_study(), tmp_path / str(batch), agents=[agent], batch=batch)
        with Store(tmp_path / str(batch)) as store:
            hashes.add(content_hash(store))
            episodes = list(store.episodes())
        last = max(parrot.asked, key=len)
        if history == "reasoning":
            assert last[2].content.startswith("well\n\n{")
        elif history == "conversation":
            assert last[2].content.startswith("{")
        else:
            assert len(last) == 2
        assert all(isinstance(episode.world, TaskWorld) for episode in episodes)
    assert len(hashes) == 1


def test_prompt_and_strategy_can_be_files_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("{{rules}}\n\n{{strategy}}\n\nSay where: {{answer}}\n")
    (tmp_path / "hasty.txt").write_text("Hurry.\n")
    agent = arm(str(tmp_path / "hasty.txt"), template=str(tmp_path / "own.txt"))
    assert agent.system == f"{RULES}\n\nHurry.\n\nSay where: {passage('direct_example')}"
    assert agent.tags["prompt"] == "hasty" and agent.name == "parrot (hasty)"
    (tmp_path / "odd.txt").write_text("{{rules}} {{budget}}")
    (tmp_path / "bare.txt").write_text("{{rules}} Go.")
    for given, words in (
        ({"template": str(tmp_path / "odd.txt")}, "budget"),
        ({"template": str(tmp_path / "bare.txt"), "strategy": "balance"}, "placeholder {{strategy}}"),
        ({"template": str(tmp_path / "bare.txt"), "memory": True}, "placeholder {{summary}}"),
        ({"template": str(tmp_path / "none.txt")}, "no such file"),
        ({"strategy": "bold"}, "exploitation"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            arm(**given)


def test_the_papers_wording_tells_no_axes_and_asks_for_no_few_steps() -> None:
    ours = ("right adds 1", "as few steps", "leads to nothing further", "come back later", "Example of")
    for strategy in STRATEGIES:
        agent = arm(strategy, template="paper")
        told = agent.system.replace(passage(strategy), "") if strategy != "base" else agent.system
        assert not any(phrase in told for phrase in ours) and all(phrase in RULES for phrase in ours[:-1])
        assert all(word in told for word in ("goal state", "directions", "prerequisites are active", "hidden budget"))
        assert passage("direct") in told and agent.tags["wording"] == "paper" and "paper" in agent.name
        assert "wording" not in arm(strategy).tags and not agent.axes_told and arm(strategy).axes_told
    for memory, _, _ in walk(generate_task_map("high-small", seed=2), 1):
        asked = text_of(arm(template="paper").messages(shown(memory, "conversation", ("",) * (len(memory.turns) - 1))))
        assert not any(phrase in asked for phrase in ("right adds", "as few steps"))


def test_without_rules_the_summary_learns_the_axes_from_the_moves(tmp_path: Path) -> None:
    (tmp_path / "bare.txt").write_text("Go. {{summary}} {{answer}}")
    agents = [arm(memory=True, template=template) for template in ("paper", str(tmp_path / "bare.txt"), "schema")]
    differ = []
    for memory, _, _ in walk(generate_task_map("paper-medium-small", seed=2), 1):
        asked, own, with_axes = (agent.messages(shown(memory, "none"))[-1].content for agent in agents)
        log = write_log(memory.turns).removeprefix(f"{RULES}\n")
        summary = memory_text(memory_from_log(log))
        assert asked.endswith(summary) and own.split("\n\nExample")[0].endswith(summary)
        assert with_axes.endswith(memory_text(memory))
        cells = [sorted(re.findall(r"\[-?\d+, -?\d+\]", text)) for text in (asked, with_axes)]
        differ.append(cells[0] != cells[1])
    # Before the first move it is not known which cell beside the start is open; in the end all are.
    assert differ[0] and not differ[-1]


def test_a_study_builds_every_arm_and_refuses_what_it_does_not_know() -> None:
    built = build_agent("task-chat", {"model": "theseus", "strategy": "balance", "memory": True, "history": "none"})
    assert isinstance(built, TaskChatAgent)
    assert (built.strategy, built.memory, built.history, built.name) == (
        "balance",
        True,
        "none",
        "theseus (balance, memory)",
    )
    conversation = build_agent("task-chat", {"model": "theseus", "name": "T"})
    assert isinstance(conversation, TaskChatAgent) and (conversation.history, conversation.name) == (
        "conversation",
        "T",
    )
    for given, words in (
        ({"model": "theseus", "task": "grid"}, "no parameter task"),
        ({"model": "theseus", "memory": 1}, "true or false"),
        ({"model": "theseus", "mood": "good"}, "mood"),
        ({}, "model"),
    ):
        with pytest.raises(ValueError, match=words):
            build_agent("task-chat", given)


# Chat agents of task worlds behind a server: the same episodes as here, killed runs go on, and plans count them.


# A prompt of one's own: what is told, without the bundled words around it, so that a tiny model reads little.
TEMPLATE = "{{rules}}\n{{summary}}\n{{strategy}}\nGo."


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker(positions=16_384)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: LocalModel) -> Path:
    path = tmp_path_factory.mktemp("task-http")
    (path / "template.txt").write_text(TEMPLATE, encoding="utf-8")
    model.tokenizer.save_pretrained(path / "tokenizer")
    return path


def study(url: str, folder: Path, mode: str, *, count: int = 2, alpha: float = 2, **changes: Any) -> Study:
    """Maps of at most nine cells with three nodes; the agent's parameters can be changed."""
    served: dict[str, Any] = {
        "base_url": url,
        "timeout": 20,
        "backoff": 0.02,
        "retries": 20,
        "patience": 60,
        "preflight": False,
    }
    if mode == "completions":
        served |= {"mode": "completions", "tokenizer": str(folder / "tokenizer")}
        changes["reasoning"] = "none"
    agent = {
        "kind": "task-chat",
        "model": "speaker",
        "template": str(folder / "template.txt"),
        "temperature": 0.0,
        "max_tokens": 3,
        "server": served,
        **changes,
    }
    entry: dict[str, Any] = {
        "kind": "task-map",
        "presets": ["high-small"],
        "count": count,
        "generator": {"nodes": 3, "size": [3, 3], "alpha": alpha},
    }
    return Study.parse({"worlds": [entry], "agents": [agent], "trajectories": 1})


def local_agent(model: LocalModel, like: Study) -> TaskChatAgent:
    (served,) = like.agents()
    assert isinstance(served, TaskChatAgent)
    return replace(served, model=model, name="")


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [
        {"history": "actions", "strategy": "exploitation"},
        pytest.param({"history": "conversation", "strategy": "balance", "memory": True}, marks=pytest.mark.full),
    ],
    ids=lambda changes: str(changes["history"]),
)
def test_the_same_task_study_over_http_and_local_gives_the_same_episodes(
    changes: dict[str, Any], model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    with Loopback(model) as server:
        chat = study(server.url, folder, "chat", alpha=1, **changes)
        assert run(chat, tmp_path / "chat", workers=2).calls == len(server.log) > 8
        run(study(server.url, folder, "completions", alpha=1, **changes), tmp_path / "completions", workers=2)
        assert {entry.path for entry in server.log} == {"/v1/chat/completions", "/v1/completions"}
    run(chat, tmp_path / "local", agents=[local_agent(model, chat)])
    expected = trajectories(tmp_path / "local")
    assert trajectories(tmp_path / "chat") == trajectories(tmp_path / "completions") == expected
    assert len({step[1] for steps in expected.values() for step in steps}) > 1, "the model should do different things"
    assert tokens(tmp_path / "completions") == tokens(tmp_path / "local")
    rows = [measured_rows(tmp_path / name) for name in ("chat", "local")]
    for name in ("exploration error", "exploitation error", "success"):
        values = [sorted(found.select(measure=name).value.tolist(), key=str) for found in rows]
        assert str(values[0]) == str(values[1]) and len(values[0]) == 2


@pytest.mark.full
@pytest.mark.parametrize("mode", ["chat", "completions"])
def test_a_killed_task_run_asks_no_answer_twice_and_ends_the_same(
    mode: str, model: LocalModel, folder: Path, tmp_path: Path
) -> None:
    with Loopback(model, delay=0.02, faults=replace(MANY, hang=0)) as server:
        asked = study(server.url, folder, mode, count=3, history="conversation")
        kill_and_resume(server, asked, tmp_path, [12])


def test_a_plan_counts_the_calls_and_tokens_of_a_task_study(
    model: LocalModel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for history, memory in (("none", True), ("conversation", False)):
        with Loopback(model) as server:
            asked = study(server.url, folder, "completions", history=history, memory=memory, alpha=1)
            budgets = [world.task_map.budget for world in asked.worlds() if isinstance(world, TaskWorld)]
            with monkeypatch.context() as offline:
                offline.setattr(socket.socket, "connect", lambda *_: pytest.fail("a plan must not connect"))
                (cost,) = costs(asked)
            assert not server.log and cost.calls == sum(budgets) and cost.episodes == len(budgets) == 2
            assert "by the model's own tokenizer" in cost.how and cost.output == 3 and cost.prompt is not None
            run(asked, tmp_path / history, workers=2)
        with Store(tmp_path / history) as store:
            steps = [step for episode in store.episodes() for step in episode.steps]
        read = [len(step.prompt_tokens or ()) for step in steps]
        said = [len(step.output_tokens or ()) for step in steps]
        assert len(steps) <= cost.calls and cost.tokens is not None and sum(read) + sum(said) <= cost.tokens
        # A random walk stands in for the model: near what was read where no episode ended before its budget.
        assert len(steps) == cost.calls and sum(read) == pytest.approx(cost.prompt * cost.calls, rel=0.25)
    assert hash_of(tmp_path / "none") != hash_of(tmp_path / "conversation")
