"""Whose steps are replayed, through which model: the agent of a run that has token ids, and the model that fits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goalscope.activations.sites import Site
from goalscope.agents.agent import agent_id, build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.ids import content_id
from goalscope.models.initialisation import RANDOM_WEIGHTS, check_random_weights
from goalscope.models.local import LocalModel
from goalscope.runs import Store
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS

_LOOKED = 100
_AGENT_ID, _AGENT = (EPISODE_COLUMNS.split(", ").index(name) for name in ("agent_id", "agent"))
_PROMPT, _OUTPUT = (STEP_COLUMNS.split(", ").index(name) for name in ("prompt_tokens", "output_tokens"))
_MODEL_KINDS = ("chat", "task-chat")  # of agents: the others read no weights
_NO_TOKENIZER = ("config.json", "generation_config.json", "hub", "revision", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """An agent of a run whose steps hold token ids: name, content id, what decides its answers, number of steps."""

    agent: str
    agent_id: str
    description: Mapping[str, Any]
    steps: int


def find_target(store: Store, agent: str | None, sites: Sequence[Site]) -> ReplayTarget:
    """Return the agent whose steps are to be replayed.

    Args:
        store: the run.
        agent: its short name or id; may be None where one agent alone has token ids.
        sites: the sites that are wanted: `post` and `action` need the ids of outputs.

    Raises:
        ValueError: no such agent, several, or steps without token ids; names the setting that stores them. A damaged
            run.
    """
    known, rows = store.agents(), _agents_with_steps(store)
    there = ", ".join(sorted({row.agent for row in rows})) or "no agent with a step"
    if agent is not None:
        rows = [row for row in rows if agent in (row.agent_id, row.agent)]
        if not rows:
            raise ValueError(f"the agent must be one of the run ({there}), got {agent!r}")
    output = any(site in ("post", "action") for site in sites)
    fits = [row for row in rows if row.prompts and (row.outputs or not output)]
    if not fits:
        what = "outputs" if any(row.prompts for row in rows) else "prompts"
        advice = " ".join(dict.fromkeys(_advice(known.get(row.agent_id, ("", {}))[1], row.agent) for row in rows))
        raise ValueError(
            f"activations are captured by replaying exact token ids, the steps of {store.path} ({there}) hold none of "
            f"their {what}. {advice}".rstrip()
        )
    if len(fits) > 1:
        names = ", ".join(f"{row.agent} ({row.agent_id})" for row in fits)
        raise ValueError(f"several agents have token ids, say which one with --agent (agent=): {names}")
    (row,) = fits
    description = known.get(row.agent_id, ("", {}))[1]
    return ReplayTarget(agent=row.agent, agent_id=row.agent_id, description=description, steps=row.steps)


@dataclass(slots=True, kw_only=True)
class _Steps:
    """The steps of an agent, and how many hold token ids of their prompt and of their output."""

    agent_id: str
    agent: str
    steps: int = 0
    prompts: int = 0
    outputs: int = 0


def _agents_with_steps(store: Store) -> list[_Steps]:
    """Return what the steps of each agent hold, each episode compared with its checksums."""
    found: dict[str, _Steps] = {}
    for page in store.pages():
        steps = store.steps_of([row[0] for row in page], STEP_COLUMNS)
        store.sums.check_episodes(page, steps)
        for number, *header in page:
            if not steps[number]:
                continue
            own = found.setdefault(header[_AGENT_ID], _Steps(agent_id=header[_AGENT_ID], agent=header[_AGENT]))
            own.steps += len(steps[number])
            own.prompts += sum(step[_PROMPT] is not None for step in steps[number])
            own.outputs += sum(step[_OUTPUT] is not None for step in steps[number])
    return [found[identity] for identity in sorted(found)]


def model_of(
    store: Store, target: ReplayTarget, untrained: int | None = None, random_weights: str = RANDOM_WEIGHTS[0]
) -> LocalModel:
    """Return the local model that an agent of the run's study is, or a copy of it with random weights.

    Raises:
        ValueError: random weights without a seed, a run without a study that says so (an import), or a model behind a
            server.
        FileNotFoundError: the model's folder is no longer there.
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
            raise ValueError(f"the model of {target.agent} ran behind a server, its weights are needed here: {advice}")
        if untrained is not None:
            # The default kind is not named, as in stored studies.
            kind = {} if random_weights == RANDOM_WEIGHTS[0] else {"random_weights": random_weights}
            agent = build_agent(entry.kind, {**entry.parameters, "untrained": untrained, **kind})
        if isinstance(agent, ChatAgent) and isinstance(agent.model, LocalModel):
            return agent.model
    raise ValueError(f"{store.path} does not say where the model of {target.agent} lies: {advice}")


def model_id(model: LocalModel) -> str:
    """Return the content id by which captures and probes know a model."""
    return content_id("model", dict(model.describe()))


def check_model(target: ReplayTarget, model: LocalModel, *, other_weights: bool) -> None:
    """Raise a ValueError where a model's tokenizer, or without ``other_weights`` its weights, are not the agent's."""
    told = target.description.get("model", {})
    described = told.get("dialect", told) if isinstance(told, Mapping) else {}
    theirs = described.get("files", {}) if isinstance(described, Mapping) else {}
    description = model.describe()
    ours: Mapping[str, Any] = description["files"]
    common = [name for name in ours if isinstance(theirs, Mapping) and name in theirs]
    differing = [name for name in common if ours[name] != theirs[name]]
    weights = [
        name
        for name in differing
        if name in ("weights", "hub", "revision", "gguf", "quantisation")
        or name.endswith((".safetensors", ".safetensors.index.json"))
    ]
    odd = [name for name in differing if name not in (*weights, *_NO_TOKENIZER)]
    if odd:
        raise ValueError(
            f"the token ids of {target.agent} must be those of the model's tokenizer, {model.name} has another one "
            f"({', '.join(odd)} differ): give the model that generated the run"
        )
    if weights and description.get("untrained") is None and not other_weights:
        raise ValueError(
            f"the run was generated with other weights than those of {model.name} ({', '.join(weights)} differ): "
            "give the model that generated it, an untrained copy as control (untrained=SEED), or say that other "
            "weights are meant (other_weights=True, --other-weights)"
        )


def check_ids(store: Store, target: ReplayTarget, model: LocalModel) -> None:
    """Raise a ValueError where token ids that a server returned in mode chat cannot be those of a model's tokenizer.

    Of such a run no tokenizer is known. The ids must stand for tokens of the model, and those of an output for the text
    that came with them; `_LOOKED` steps are looked at.
    """
    told = target.description.get("model", {})
    if not isinstance(told, Mapping) or told.get("kind") != "http" or told.get("mode") == "completions":
        return
    size = model.model.get_input_embeddings().num_embeddings
    ids = (episode.id for episode in store.episodes() if episode.spec.agent_id == target.agent_id)
    steps = (step for episode in store.episodes(islice(ids, _LOOKED)) for step in episode.steps)
    for step in islice(steps, _LOOKED):
        tokens = [*(step.prompt_tokens or ()), *(step.output_tokens or ())]
        text = "" if step.output_tokens is None else (step.text or "").strip()
        if max(tokens, default=0) >= size or text not in model.text(step.output_tokens or ()):
            raise ValueError(
                f"the token ids that the server of {target.agent} returned must be those of the model, those of a step "
                f"are not the text that came with them in {model.name}: give the model that was served"
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
        return f"{agent} stored none."
    return f"{agent} is no language model of this run: scripted agents and imported logs have no token ids."
