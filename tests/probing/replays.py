"""Runs with exact token ids, made without generating anything: prompts as a model reads them, outputs as it might write
them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from architectures import tiny
from tiny_models import HARMONY, PLAIN_TEMPLATE, tokenizer

from goalscope.agents import ChatAgent, Observation, agent_id
from goalscope.agents.models import LocalModel
from goalscope.inside.activations.sites import grids_seen
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store
from goalscope.worlds import ACTIONS, Action, Grid, GridView, initial_state, step

TEMPLATE = "{{grid}}\nGo: "
THINK = ("<think>", "</think>")
THINK_TEMPLATE = (
    "{% for m in messages %}<u>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>:\n{% endif %}"
)
GRIDS = (
    "#####\n#A_G#\n#####",
    "######\n#A___#\n#_##_#\n#___G#\n######",
    "#####\n#A__#\n#__G#\n#####",
)
Answer = Callable[[int, Action], str]


def words(style: str = "harmony") -> Any:
    """A tokenizer with one token a character, beside the markers of its style."""
    if style == "harmony":
        return tokenizer(added=(*HARMONY, "assistant"))
    if style == "think":
        return tokenizer(THINK_TEMPLATE, added=THINK)
    return tokenizer(PLAIN_TEMPLATE, added=())


def local(kind: str = "llama", style: str = "harmony", seed: int = 0, **changes: Any) -> LocalModel:
    reasoning = style if style == "none" else "auto"
    return LocalModel.from_parts(tiny(kind, seed, **changes), words(style), name=f"{kind}-{seed}", reasoning=reasoning)


def harmony(number: int, action: Action) -> str:
    """Reasoning of a length that varies, then the answer."""
    thought = "x" * (number % 4)
    return (
        f"<|channel|>analysis<|message|>go {thought}{action.name}<|end|><|start|>assistant<|channel|>final<|message|>"
        f'{{"action": "{action.name}"}}<|return|>'
    )


def think(number: int, action: Action) -> str:
    return f'<think>go {"x" * (number % 4)}</think>\n{{"action": "{action.name}"}}<eos>'


def plain(number: int, action: Action) -> str:
    return f'{{"action": "{action.name.lower()}"}}<eos>'


ANSWERS: dict[str, Answer] = {"harmony": harmony, "think": think, "none": plain}


def record(
    directory: Path,
    model: LocalModel,
    *,
    style: str = "harmony",
    grids: tuple[str, ...] = GRIDS,
    trajectories: int = 2,
    steps: int = 4,
    fog: int | None = None,
    text: str = TEMPLATE,
    change: Callable[[Step], Step] | None = None,
) -> Path:
    """Write a run; return its directory. Agents walk in circles."""
    template = directory.parent / "template.txt"
    template.write_text(text, encoding="utf-8")
    agent = ChatAgent(model=model, task=template)
    identity = agent_id(agent)

    def episodes() -> Any:
        for text in grids:
            world = GridWorld(grid=Grid.parse(text), fog_radius=fog)
            for trajectory in range(trajectories):
                spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=trajectory, seed=0, horizon=steps)
                yield episode(agent, world, spec, style, change)

    with Store(directory, "w") as store:
        store.put_agents([(identity, agent.name, agent.describe())])
        store.put_episodes(episodes())
    return directory


def episode(
    agent: ChatAgent, world: GridWorld, spec: EpisodeSpec, style: str, change: Callable[[Step], Step] | None = None
) -> Episode:
    model: Any = agent.model
    state, bare = initial_state(world.grid), []
    for number in range(spec.horizon):
        action = ACTIONS[(number * 3 + spec.trajectory) % 4]
        bare.append(Step(index=number, state=state, action=action))
        state = step(world.grid, state, action)
    made = Episode(spec=spec, world=world, agent=agent.name, steps=tuple(bare), final=state, outcome="horizon")
    whole = []
    for one, grid in zip(bare, grids_seen(made), strict=True):
        assert one.action is not None
        asked = agent.messages(Observation(view=GridView(grid=grid), step=one.index))
        finished = Step(
            index=one.index,
            state=one.state,
            action=one.action,
            prompt_tokens=tuple(model.encode(model.render(asked, agent.sampling))),
            output_tokens=tuple(model.encode(ANSWERS[style](one.index + spec.trajectory, one.action))),
        )
        whole.append(finished if change is None else change(finished))
    return Episode(spec=spec, world=world, agent=agent.name, steps=tuple(whole), final=state, outcome="horizon")


def recorded_steps(directory: Path) -> dict[tuple[str, int], Step]:
    with Store(directory) as store:
        return {(episode.id, step.index): step for episode in store.episodes() for step in episode.steps}
