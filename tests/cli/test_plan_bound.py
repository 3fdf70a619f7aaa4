"""What a plan says a study costs at most, held against runs whose server reports usage, and against long episodes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from families import long_after
from goalscope.agents import ChatAgent, RandomWalk, TaskChatAgent, WrongGoal
from goalscope.agents.models import Message
from goalscope.agents.models.http_budget import most_text_tokens
from goalscope.runs import EpisodeSpec, Store, Study, run
from goalscope.runs.episode import LiveEpisode
from goalscope.verdict.preflight import PromptMeasure, costs, frame, most_prompts
from goalscope.worlds.tasks import AgentKnowledge, TaskState, TaskWorld
from task_observations import task_observation

TEMPLATE = "{{grid}}\n{{history}}\nGo: "


@pytest.mark.parametrize(
    ("mode", "history"),
    long_after(
        3,
        [
            ("chat", "none"),
            ("completions", "conversation"),
            ("chat", "reasoning"),
            ("chat", "actions"),
            ("chat", "conversation"),
            ("completions", "none"),
            ("completions", "actions"),
            ("completions", "reasoning"),
        ],
        names=2,
    ),
)
def test_no_run_takes_more_than_its_plan_says(mode: str, history: str, tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text(TEMPLATE, encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        served: dict[str, Any] = {"base_url": server.url, "timeout": 20, "retries": 0, "mode": mode, "preflight": False}
        more = {}
        if mode == "completions":
            served["tokenizer"], more["reasoning"] = str(tmp_path / "tokenizer"), "none"
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7, 11], "densities": [0.3], "count": 1, "fog_radius": 2}],
                "agents": [
                    {
                        "kind": "chat",
                        "model": "speaker",
                        "task": str(template),
                        "temperature": 1.0,
                        "max_tokens": 4,
                        "reasoning_effort": None,
                        "server": served,
                        **more,
                    }
                ],
                "history": history,
                "failure": {"policy": "retry", "retries": 1},
                "trajectories": 1,
                "horizon": {"steps": 4},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        ((calls, read, said),) = store.query(
            "SELECT count(*), sum(json_extract(usage, '$.prompt_tokens')), "
            "sum(json_extract(usage, '$.output_tokens')) FROM calls"
        )
    assert cost.tokens is not None and cost.most_prompt is not None and cost.output == 4
    assert calls <= cost.calls and read + said <= cost.tokens
    assert cost.prompt is not None and read <= cost.most_prompt * cost.calls
    if mode == "chat" and history != "reasoning":
        assert read > cost.prompt * calls, "with one token a character, characters / 4 is far from the most"


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("history", ["none", "actions", "conversation"])
def test_no_episode_of_a_task_world_has_longer_prompts_than_planned(history: str, memory: bool) -> None:
    server = {"base_url": "http://192.0.2.1/v1"}
    study = Study.parse(
        {
            "worlds": [{"kind": "task-map", "presets": ["high-small", "low-large"], "count": 1}],
            "agents": [
                {
                    "kind": "task-chat",
                    "model": "away",
                    "max_tokens": 20,
                    "memory": memory,
                    "history": history,
                    "server": server,
                }
            ],
            "trajectories": 1,
        }
    )
    (agent,) = study.agents()
    assert isinstance(agent, TaskChatAgent)
    for world in study.worlds():
        assert isinstance(world, TaskWorld)
        lengths = []
        memory_, knowledge = AgentKnowledge(), TaskState(world.task_map)
        memory_.add(knowledge.report())
        while knowledge.ending is None:
            seen = task_observation(memory_, ("x" * 20,) * knowledge.steps, seed=1, history_as=study.history_of(agent))
            lengths.append(sum(most_text_tokens(message.content) - 1 for message in agent.messages(seen)))
            (turn,) = RandomWalk().act([seen])
            action = None if knowledge.steps % 7 == 6 else turn.action
            knowledge.move(action)
            memory_.add(knowledge.report(), action)
        bare = frame(agent, None)
        most = most_prompts(study, agent, world, len(lengths), type(bare)(chat=0, turn=0), PromptMeasure())
        assert most is not None and sum(lengths) <= most < 8 * sum(lengths)


def test_the_frame_of_a_known_template_holds_all_that_it_adds() -> None:
    from goalscope.agents.models.dialect import Dialect

    study = Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1}],
            "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 8}],
            "trajectories": 1,
        }
    )
    (agent,) = study.agents()
    dialect = Dialect("theseus")
    added = frame(agent, dialect)  # type: ignore[arg-type]
    for turns in range(5):
        chat = [Message(role="user", content="abc")]
        for _ in range(turns):
            chat += [Message(role="assistant", content="de"), Message(role="user", content="abc")]
        read = dialect.encode(dialect.render(chat, agent.sampling))  # type: ignore[attr-defined]
        said = sum(len(dialect.encode(message.content)) for message in chat)
        assert len(read) <= added.chat + turns * added.turn + said < len(read) + 12 * len(chat)
    (cost,) = costs(study)
    assert cost.prompt is not None and cost.most_prompt is not None and cost.prompt <= cost.most_prompt


def test_planning_with_a_bundled_model_imports_no_torch() -> None:
    code = (
        "import sys\nfrom goalscope.cli.program import app\n"
        "app(['estimate', 'cognitive-map', '--count', '1'], standalone_mode=False)\n"
        "sys.exit(9 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "most prompt" in done.stdout


def test_a_list_of_earlier_steps_counts_for_the_bound() -> None:
    study = Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1, "fog_radius": 2}],
            "agents": [{"kind": "chat", "model": "m", "task": "fog", "server": {"base_url": "http://localhost:1/v1"}}],
            "history": "actions",
        }
    )
    (agent,), (world,) = study.agents(), study.worlds()
    assert isinstance(agent, ChatAgent)
    spec = EpisodeSpec(world_id=world.id, agent_id="a", trajectory=0, seed=1, horizon=30)
    live, lengths = LiveEpisode(spec, world, study), list[int]()
    while live.outcome is None:
        seen = live.observe()
        lengths.append(most_text_tokens(agent.messages(seen)[-1].content))
        (turn,) = WrongGoal().act([seen])
        live.apply(turn)
    bare = type(frame(agent, None))(chat=0, turn=0)
    most = most_prompts(study, agent, world, len(lengths), bare, PromptMeasure())
    assert len(lengths) == 30 and most is not None and sum(lengths) <= most < 1.1 * sum(lengths)


@pytest.mark.parametrize("more", [{}, {"prior_symbol": "?"}])
def test_no_run_by_likelihood_takes_more_than_its_plan_says(more: dict[str, Any], tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text("{{grid}}\nGo: ", encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        address = {
            "base_url": server.url,
            "mode": "completions",
            "tokenizer": str(tmp_path / "tokenizer"),
            "preflight": False,
        }
        agent = {"kind": "chat", "model": "speaker", "task": str(template), "max_tokens": 4, "reasoning": "none"}
        agent |= {"reasoning_effort": None, "server": address, "answer": "likelihood", "least_mass": 0.0, **more}
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1, "minimum_distance": 6}],
                "agents": [agent],
                "history": "conversation",
                "trajectories": 1,
                "horizon": {"steps": 3},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        totals = dict(store.query("SELECT name, SUM(value) FROM usage GROUP BY name"))
    assert totals["requests"] <= cost.calls and totals["requests"] == len(server.log)
    assert cost.tokens is not None and totals["prompt_tokens"] + totals["output_tokens"] <= cost.tokens
    assert cost.output is not None and totals["output_tokens"] == cost.output * cost.calls, "a token for each answer"
