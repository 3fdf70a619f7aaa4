"""A local model acts in task worlds through the same layer, in a batch as alone; one without room says so."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from goalscope.agents import Observation, build_agent
from goalscope.worlds.tasks import AgentKnowledge, TaskState, TaskView, generate_task_map


def observations() -> list[Observation]:
    found = []
    for seed in range(3):
        knowledge, memory = TaskState(generate_task_map("high-small", seed=seed)), AgentKnowledge()
        memory.add(knowledge.report())
        for _ in range(seed):
            action = memory.available[0]
            knowledge.move(action)
            memory.add(knowledge.report(), action)
        found.append(Observation(view=TaskView(memory=memory), step=seed, episode_id=f"episode {seed}"))
    return found


def test_a_local_model_answers_a_batch_as_it_answers_alone(tmp_path: Path) -> None:
    llama(positions=8192).save_pretrained(tmp_path)
    tokenizer(PLAIN_TEMPLATE).save_pretrained(tmp_path)
    given = {"model": str(tmp_path), "strategy": "balance", "memory": True, "history": "none", "max_tokens": 6}
    agent: Any = build_agent("task-chat", given)
    seen = observations()
    together = agent.act(seen)
    alone = [agent.act([observation])[0] for observation in seen]
    assert [turn.output_tokens for turn in together] == [turn.output_tokens for turn in alone]
    assert all(turn.failure and turn.output_tokens for turn in together)  # random letters name no direction
    assert len({turn.prompt_tokens for turn in together}) == 3


def test_a_model_without_room_for_the_prompt_says_so() -> None:
    agent: Any = build_agent("task-chat", {"model": "theseus", "memory": True, "history": "none", "max_tokens": 4})
    with pytest.raises(ValueError, match="positions"):
        agent.act(observations())
