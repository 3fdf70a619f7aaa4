"""The bundled model acts: it loads like any local model, answers in the format, and is better than chance."""

from goalscope.agents import ChatAgent, Observation
from goalscope.agents.models import LocalModel, Sampling
from goalscope.measures import StepTable, action_accuracy, invalid_turns, roll_out
from goalscope.worlds import GridView, GridWorld, generate_batch


def test_the_bundled_model_acts_in_small_rooms() -> None:
    agent = ChatAgent(model=LocalModel("theseus"), sampling=Sampling(temperature=0.0, max_tokens=96))
    batch = generate_batch(7, 0.0, seed=20_261_121, count=4)
    played = [roll_out(agent, GridWorld(grid=grid), seed=0, trajectories=1) for grid in batch]
    table = StepTable.from_episodes(episode for episodes in played for episode in episodes)
    # A uniformly random agent is at about .4 here.
    assert action_accuracy.rows(table).value.mean() > 0.7
    assert invalid_turns.rows(table).value.mean() < 0.1
    turn = agent.act([Observation(view=GridView(grid=batch[0]))])[0]
    assert turn.prompt_tokens and turn.output_tokens and turn.reasoning and turn.action is not None
