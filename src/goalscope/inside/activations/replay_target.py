"""Choice of the agent whose steps are replayed, which must have token ids, and of the model that fits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goalscope._ground.ids import content_id
from goalscope.agents.agent import agent_id, build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import RANDOM_WEIGHTS, check_random_weights
from goalscope.agents.models.engine import EngineModel
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.sites import Site
from goalscope.runs import Store
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS
from goalscope.runs.packed_steps import step_cells

_CHECKED_STEPS = 100
_AGENT_ID, _AGENT = (EPISODE_COLUMNS.split(", ").index(name) for name in ("agent_id", "agent"))
_PROMPT, _OUTPUT = (STEP_COLUMNS.split(", ").index(name) for name in ("prompt_tokens", "output_tokens"))
_MODEL_KINDS = ("chat", "task-chat")  # agent kinds with a model; other kinds read no weights
_NOT_TOKENIZER_FILES = ("config.json", "generation_config.json", "hub", "revision", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """Agent of a run whose steps have token ids, with its name, content id, description and number of steps."""

    agent: str
    agent_id: str
    description: Mapping[str, Any]
    steps: int


def find_target(store: Store, agent: str | None, sites: Sequence[Site]) -> ReplayTarget:
    """Find the agent to replay.

    Args:
        store: the run.
        agent: short name or id of the agent; may be None if only one agent has token ids.
        sites: the requested sites. The sites `post` and `action` need token ids of the output.

    Raises:
        ValueError: if there is no such agent, there are several, or steps lack token ids (the message names the setting
            that stores them); or if the run is damaged.
    """
    agents, rows = store.agents(), _agents_with_steps(store)
    run_agents = ", ".join(sorted({row.agent for row in rows})) or "no agent with a step"
    if agent is not None:
        rows = [row for row in rows if agent in (row.agent_id, row.agent)]
        if not rows:
            raise ValueError(f"agent must be an agent of the run ({run_agents}), got {agent!r}")
    needs_output = any(site in ("post", "action") for site in sites)
    usable = [row for row in rows if row.prompts and (row.outputs or not needs_output)]
    if not usable:
        lacking = "outputs" if any(row.prompts for row in rows) else "prompts"
        advice = " ".join(dict.fromkeys(_advice(agents.get(row.agent_id, ("", {}))[1], row.agent) for row in rows))
        raise ValueError(
            f"activations are captured by replaying exact token ids, but the run {store.path} (agents: {run_agents}) "
            f"stored no token ids of {lacking}. {advice}".rstrip()
        )
    if len(usable) > 1:
        names = ", ".join(f"{row.agent} ({row.agent_id})" for row in usable)
        raise ValueError(f"several agents have token ids: choose one with --agent (agent=), one of {names}")
    (row,) = usable
    description = agents.get(row.agent_id, ("", {}))[1]
    return ReplayTarget(agent=row.agent, agent_id=row.agent_id, description=description, steps=row.steps)


@dataclass(slots=True, kw_only=True)
class _StepCounts:
    """Numbers of an agent's steps: all steps, those with token ids of the prompt, and those with ids of the output."""

    agent_id: str
    agent: str
    steps: int = 0
    prompts: int = 0
    outputs: int = 0


def _agents_with_steps(store: Store) -> list[_StepCounts]:
    """Count the steps of each agent, verifying the checksums of each episode."""
    by_agent: dict[str, _StepCounts] = {}
    for page in store.pages():
        packed = store.steps_of([row[0] for row in page])
        store.sums.check_episodes(page, packed)
        steps = {number: step_cells(packed_steps) for number, packed_steps in packed.items()}
        for number, *header in page:
            if not steps[number]:
                continue
            counts = by_agent.setdefault(
                header[_AGENT_ID], _StepCounts(agent_id=header[_AGENT_ID], agent=header[_AGENT])
            )
            counts.steps += len(steps[number])
            counts.prompts += sum(step[_PROMPT] is not None for step in steps[number])
            counts.outputs += sum(step[_OUTPUT] is not None for step in steps[number])
    return [by_agent[identity] for identity in sorted(by_agent)]


def model_of(
    store: Store, target: ReplayTarget, untrained: int | None = None, random_weights: str = RANDOM_WEIGHTS[0]
) -> LocalModel:
    """Return the local model of an agent of the run's study, or a copy of it with random weights.

    Args:
        store: the run.
        target: the agent.
        untrained: seed of the random weights; None for the model's own weights.
        random_weights: how the weights are drawn, one of `RANDOM_WEIGHTS`; only together with a seed.

    Raises:
        ValueError: if another kind of random weights is chosen without a seed, the run has no study that names the
            model (an import), or the model is behind a server.
        FileNotFoundError: if the model's folder no longer exists.
    """
    check_random_weights(random_weights, untrained)
    study = store.study()
    advice = "give it: goalscope capture RUN --model FOLDER (or its name on the hub)"
    for entry in study.agents_ if study is not None else ():
        if entry.kind not in _MODEL_KINDS:
            continue
        agent = entry.build()
        if not isinstance(agent, ChatAgent) or agent_id(agent) != target.agent_id:
            continue
        if "server" in entry.parameters:
            raise ValueError(
                f"the model of {target.agent} ran behind a server, but its weights are needed here: {advice}"
            )
        if isinstance(agent.model, EngineModel):
            return agent.model.here(untrained, random_weights)
        if untrained is not None:
            # As in stored studies, the default kind is omitted.
            kind = {} if random_weights == RANDOM_WEIGHTS[0] else {"random_weights": random_weights}
            agent = build_agent(entry.kind, {**entry.parameters, "untrained": untrained, **kind})
        if isinstance(agent, ChatAgent) and isinstance(agent.model, LocalModel):
            return agent.model
    raise ValueError(f"{store.path} does not record where the model of {target.agent} is: {advice}")


def model_id(model: LocalModel) -> str:
    """Return the content id of a model in captures and probes."""
    return content_id("model", dict(model.describe()))


def check_model(target: ReplayTarget, model: LocalModel, *, other_weights: bool) -> None:
    """Raise a ValueError if a model's tokenizer, or without ``other_weights`` its weights, differ from the agent's."""
    model_description = target.description.get("model", {})
    described = model_description.get("dialect", model_description) if isinstance(model_description, Mapping) else {}
    run_files = described.get("files", {}) if isinstance(described, Mapping) else {}
    description = model.describe()
    model_files: Mapping[str, Any] = description["files"]
    common = [name for name in model_files if isinstance(run_files, Mapping) and name in run_files]
    differing = [name for name in common if model_files[name] != run_files[name]]
    weights = [
        name
        for name in differing
        if name in ("weights", "hub", "revision", "gguf", "quantisation")
        or name.endswith((".safetensors", ".safetensors.index.json"))
    ]
    tokenizer_files = [name for name in differing if name not in (*weights, *_NOT_TOKENIZER_FILES)]
    if tokenizer_files:
        raise ValueError(
            f"the token ids of {target.agent} come from another tokenizer than that of {model.name} "
            f"({', '.join(tokenizer_files)} differ): give the model that generated the run"
        )
    if weights and description.get("untrained") is None and not other_weights:
        raise ValueError(
            f"the run was generated with other weights than those of {model.name} ({', '.join(weights)} "
            "differ): give the model that generated it, an untrained copy as a control (untrained=SEED), "
            "or allow other weights (other_weights=True, --other-weights)"
        )


def check_ids(store: Store, target: ReplayTarget, model: LocalModel) -> None:
    """Raise a ValueError if token ids that a server returned in mode chat cannot come from a model's tokenizer.

    The tokenizer of such a run is unknown. All ids must be in the model's vocabulary, and the decoded output must
    contain its recorded text; `_CHECKED_STEPS` steps are checked.
    """
    served = target.description.get("model", {})
    if not isinstance(served, Mapping) or served.get("kind") != "http" or served.get("mode") == "completions":
        return
    vocabulary_size = model.model.get_input_embeddings().num_embeddings
    ids = (episode.id for episode in store.episodes() if episode.spec.agent_id == target.agent_id)
    steps = (step for episode in store.episodes(islice(ids, _CHECKED_STEPS)) for step in episode.steps)
    for step in islice(steps, _CHECKED_STEPS):
        tokens = [*(step.prompt_tokens or ()), *(step.output_tokens or ())]
        text = "" if step.output_tokens is None else (step.text or "").strip()
        if max(tokens, default=0) >= vocabulary_size or text not in model.text(step.output_tokens or ()):
            raise ValueError(
                f"the token ids that the server of {target.agent} returned do not decode to the recorded text "
                f"with {model.name}: give the model that was served"
            )


def _advice(description: Mapping[str, Any], agent: str) -> str:
    model = description.get("model")
    if isinstance(model, Mapping) and model.get("kind") == "http":
        if model.get("mode") == "completions":
            return (
                "The server returned no output ids: use one that does (vLLM with return_token_ids), or capture the "
                "sites pre and grid alone."
            )
        return (
            "The server returned no token ids: use one that does in mode chat (vLLM, SGLang), or set mode: completions "
            "under its server: and run again."
        )
    if description.get("kind") == "chat":
        return f"The run stored none for {agent}."
    return f"Only language models have token ids; {agent} is a scripted agent or comes from an imported log."
