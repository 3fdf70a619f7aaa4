"""Estimate prompts, calls, USD and memory of a study before it runs.

Tokens are counted by the model's own tokenizer if it is available, otherwise estimated from the pieces of the text.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import decode_object
from goalscope.agents.agent import Agent, History, Observation, Past
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models._fast import MOST_MASK, MOST_SCORES, NAME
from goalscope.agents.models.abilities import most_trial_tokens
from goalscope.agents.models.base import Message
from goalscope.agents.models.decode import ROWS, SLOTS, own_cores
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder, read_json
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_settings import Prices
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import memory_limit, token_octets
from goalscope.agents.models.weight_files import read_header
from goalscope.agents.scripted import RandomWalk
from goalscope.inside.activations.capture import CaptureSettings
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.dispatch import wanted_by
from goalscope.runs.episode import LiveEpisode
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import AgentKnowledge, Report
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskSession, TaskView, TaskWorld
from goalscope.worlds.world import View, World

Counter = Callable[[tuple[Message, ...]], int]
"""Function that counts the tokens of a chat."""

# Pieces that are about a token each: words, numbers, symbols (a cell of a grid is one) and gaps wider than a blank.
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_|\s{2,}")
_WORD, _NUMBER = 8, 3  # characters of a word and of a number that are one token
_CONVERSATIONS: tuple[History, ...] = ("conversation", "reasoning")


# Token counters


def counter(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Counter, str]:
    """Return a function that counts the tokens of an agent's prompts, and a description of how it counts.

    It uses the model's own tokenizer and chat template if they are available here, and otherwise an estimate from the
    text (`count_pieces`).

    Args:
        agent: the agent.
        parameters: its parameters as the study gives them.
    """

    def pieces(messages: tuple[Message, ...]) -> int:
        return sum(count_pieces(message.content) for message in messages)

    dialect, problem = dialect_of(agent, parameters)
    if dialect is None:
        return pieces, f"from words, symbols and gaps, without the chat template: {problem}"

    def exact(messages: tuple[Message, ...]) -> int:
        return len(dialect.prompt_ids([dialect.render(messages, agent.sampling)])[0])

    return exact, "by the model's own tokenizer and chat template"


def count_pieces(text: str) -> int:
    """Estimate from words, numbers and symbols how many tokens a text has, if no tokenizer is available.

    On the prompts of grids of 7x7 to 15x15, it is 2 to 3 % below the count of the vocabulary o200k.
    """
    tokens = 0
    for piece in _PIECE.findall(text):
        size = _WORD if piece[0].isalpha() else _NUMBER if piece[0].isdigit() else len(piece)
        tokens += -(-len(piece) // size)
    return tokens


def dialect_of(agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[Dialect | None, str]:
    """Return the chat dialect of an agent's model: how messages become the text that the model reads.

    Args:
        agent: the agent.
        parameters: its parameters as the study gives them.

    Returns:
        The dialect and ""; or None and why it is unknown on this machine.
    """
    dialect = agent.model.dialect if isinstance(agent.model, HttpModel) else _local_dialect(parameters)
    if dialect is None:
        return None, "the tokenizer is not known"
    if dialect.on_hub:
        return None, "the tokenizer would come from the hub"
    try:
        dialect.render((Message(role="user", content="."),), agent.sampling)
    except ImportError as error:
        return None, f"the tokenizer cannot be read ({error})"
    return dialect, ""


def _local_dialect(parameters: Mapping[str, Any]) -> Dialect | None:
    """Return the chat dialect of a local model; None if the model is on the hub or behind a server."""
    source = str(parameters.get("model"))
    if "server" in parameters or model_folder(source) is None:
        return None
    names = ("reasoning", "today", "template_options", "thinking", "chat_template")
    options = {name: parameters[name] for name in names if name in parameters}
    return _read_dialect(source, json.dumps(options))


@lru_cache(maxsize=16)
def _read_dialect(source: str, options: str) -> Dialect:
    return Dialect(source, **json.loads(options))


# Estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Estimated numbers of tokens in the prompts of one episode that lasts to its horizon.

    Earlier answers in the prompts are assumed to be as long as the requested one, without reasoning.

    Attributes:
        total: tokens of all prompts together.
        first, last: tokens of the first and of the last prompt.
        reasoned: how many earlier answers with reasoning all prompts contain together; an answer is counted once for
            each prompt that contains it.
    """

    total: float
    first: int
    last: int
    reasoned: int


def prompts_of(study: Study, agent: ChatAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Estimate the tokens that an agent reads in one episode that lasts to its horizon.

    Some prompts are counted and the others interpolated. With a list of steps, prompts grow linearly; in a conversation
    whose prompts all contain such a list, they grow quadratically.

    Args:
        study: the study.
        agent: the agent.
        world: the world of the episode.
        horizon: number of steps of the episode.
        count: function that counts tokens, from `counter`.
    """
    history = study.history_of(agent)
    observations = _SAMPLERS.get(study.view, _uniform_observations)(study, history, world, horizon)
    lengths = {observation.step: count(agent.messages(observation)) for observation in observations}
    points = list(lengths)
    curve = np.polynomial.Polynomial.fit(points, list(lengths.values()), min(2, len(points) - 1))
    return Prompts(
        total=float(curve(np.arange(horizon)).sum()) if len(points) > 1 else lengths[0] * horizon,
        first=lengths[0],
        last=round(float(curve(horizon - 1))) if len(points) > 1 else lengths[0],
        reasoned=horizon * (horizon - 1) // 2 if history == "reasoning" else 0,
    )


def _uniform_observations(study: Study, history: History, world: World, horizon: int) -> Iterator[Observation]:
    """Yield observations after none, half and all of the steps, repeating the first view."""
    view = LiveEpisode(planned(study, world, horizon), world, study, history).observe().view
    answer = '{"action": "RIGHT"}' if history in _CONVERSATIONS else None  # in place of each earlier answer
    past = Past(view=view, action=len(view.actions) - 1, text=answer)
    for steps in (0,) if history == "none" else sorted({0, (horizon - 1) // 2, horizon - 1}):
        yield Observation(view=view, step=steps, history=(past,) * steps, history_as=history)


def _walk_observations(study: Study, history: History, world: TaskWorld, horizon: int) -> Iterator[Observation]:
    """Yield the observations at five steps of a random walk.

    These observations and their summary, if any, are as long as those of an exploring agent.
    """
    turns = _walk(world.task_map, planned(study, world, horizon))
    sampled_steps = {round(fraction * (horizon - 1)) for fraction in np.linspace(0, 1, 5)}
    answer = '{"action": "right"}' if history in _CONVERSATIONS else None
    memory = AgentKnowledge()
    for step, (action, report) in enumerate(turns):
        memory.add(report, action)
        if step in sampled_steps:
            pasts = [Past(view=TaskView(memory=memory, report=told), action=0, text=answer) for _, told in turns[:step]]
            view = TaskView(memory=memory)
            yield Observation(view=view, step=step, seed=study.seed, history=tuple(pasts), history_as=history)


@lru_cache(maxsize=1024)
def _walk(task_map: TaskMap, spec: EpisodeSpec) -> tuple[tuple[Action | None, Report], ...]:
    """Return the turns of a random walk until its last observation."""
    walk, session = RandomWalk(), TaskSession(task_map)
    turns = tuple(session.view.memory.turns)
    for step in range(task_map.budget):
        if session.done:
            break
        turns = tuple(session.view.memory.turns)
        (turn,) = walk.act([Observation(view=session.view, step=step, episode_id=spec.id, seed=spec.seed)])
        session.step(turn.action)
    return turns


def planned(study: Study, world: World, horizon: int) -> EpisodeSpec:
    """Return the specification of a made-up episode in a world, from which the prompts of a study are estimated."""
    return EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)


# By the view of a world; a study pairs agents and worlds.
_SAMPLERS: Mapping[type[View], Callable[..., Iterator[Observation]]] = {TaskView: _walk_observations}


# The cost of a study (maximum calls, estimated tokens) and limits of its models. Needs neither network nor weights.

_MAX_WORLDS = 200
_LARGEST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the episodes of one agent of a study cost if every episode lasts to its horizon.

    Attributes:
        name: name of the agent.
        episodes: number of episodes.
        calls: maximum number of calls: every step, every retry after an answer without an action, and the trials of a
            server before the first call.
        turns: maximum number of turns; a turn has one call or more.
        written: maximum number of generated tokens per turn.
        prompt: estimated prompt tokens per call, averaged over worlds and, if a history makes prompts grow, over the
            steps of an episode that lasts to its horizon; kept reasoning counts with its maximum. None for agents
            without a model.
        how: method of this estimate.
        output: maximum number of output tokens per call.
        tokens: estimated prompt tokens and maximum output tokens of all calls, None for agents without a model.
        requests: maximum number of requests if each also fails as often as the server's settings allow. What a server
            charges for failed requests is not known.
        usd: USD for these tokens, None without prices.
        expected_usd: USD for estimated prompts and outputs of an expected length; None if no length is given.
        prices: prices of the tokens of the model, None if they are unknown.
    """

    name: str
    episodes: int
    calls: int
    turns: int = 0
    written: int = 0
    prompt: float | None = None
    how: str = ""
    output: int | None = None
    tokens: int | None = None
    requests: int | None = None
    usd: float | None = None
    expected_usd: float | None = None
    prices: Prices | None = None

    def gpu_hours(self, rate: float, output_tokens: int | None = None) -> float | None:
        """Return how many hours a GPU needs to generate the output of all calls; None for agents without a model.

        Args:
            rate: generated tokens per second, all requests together; reading the prompts is part of it.
            output_tokens: output tokens per call; by default the maximum.
        """
        if self.output is None:
            return None
        written = self.output if output_tokens is None else min(self.output, output_tokens)
        return self.calls * written / rate / 3600


def costs(
    study: Study, output_tokens: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Cost]:
    """Estimate what each agent of a study costs, without running anything.

    Args:
        study: the study.
        output_tokens: expected output tokens per call, for `Cost.expected_usd`.
        progress: called with (worlds done, all worlds), counted over all agents with a model and the worlds whose
            prompts are counted.

    Raises:
        ValueError: a template has no placeholder for the view of a world.
    """
    worlds = [(world, study.horizon.of(world)) for world in study.worlds()]
    agents = list(zip(study.agents(), study.agents_, strict=True))
    total = len(_sample(worlds)) * sum(isinstance(agent, ChatAgent) for agent, _ in agents)
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    return [_cost(study, agent, entry.parameters, worlds, output_tokens, report) for agent, entry in agents]


def _sample(worlds: list[tuple[World, int]]) -> list[tuple[World, int]]:
    """Return the worlds whose prompts are counted."""
    return worlds[:: -(-len(worlds) // _MAX_WORLDS)]


def _cost(
    study: Study,
    agent: Agent,
    parameters: Mapping[str, Any],
    worlds: list[tuple[World, int]],
    expected: int | None,
    report: Callable[[], None],
) -> Cost:
    steps = sum(horizon for _, horizon in worlds) * study.trajectories
    attempts = study.answers + study.failure_of(agent).retries  # a second answer is asked for once
    episodes = len(worlds) * study.trajectories
    if not isinstance(agent, ChatAgent):
        return Cost(name=agent.name, episodes=episodes, calls=steps * study.answers)
    calls = steps * attempts
    count, how = counter(agent, parameters)
    output = agent.sampling.max_tokens
    sampled, estimates = _sample(worlds), []
    for world, horizon in sampled:
        estimates.append(prompts_of(study, agent, world, horizon, count))
        report()
    sampled_steps = sum(horizon for _, horizon in sampled)
    reasoned = (
        sum(prompts.reasoned for prompts in estimates) / sampled_steps
    )  # earlier answers with reasoning in a prompt
    prompt = sum(prompts.total for prompts in estimates) / sampled_steps
    choice = agent.choice
    if choice is not None:
        # Reasoning is one call. Each answer is then scored after prompt and reasoning, with one generated token.
        reasoned_first = choice.after == "reasoning"
        scored_answers = choice.reads(len(worlds[0][0].begin_episode(study.seed, "").view.actions))
        turns, generated = calls, output * reasoned_first
        calls *= reasoned_first + (2 if choice.prior_symbol else 1)
        # A scored answer is read after the reasoning, which has at most `generated` tokens.
        prompt = (prompt * (reasoned_first + scored_answers) + scored_answers * generated) * turns / calls
        output = -(-(generated + scored_answers) * turns // calls)
        how += f"; each turn reads {scored_answers} answers, each with its whole prompt"
    if len(sampled) < len(worlds):
        how += f", on {len(sampled)} of {len(worlds)} worlds"
    if study.history_of(agent) != "none":
        longest = max(estimates, key=lambda prompts: prompts.last)
        how += (
            f"; they grow from step to step, from about {longest.first:,} to {longest.last:,} tokens in the longest "
            f"episode, {prompt:,.0f} on average"
        )
    if reasoned:
        how += (
            f", and the reasoning of the {reasoned:.1f} earlier answers that a prompt holds on average adds at most "
            f"{agent.sampling.max_tokens:,} tokens each"
        )
    elif study.history_of(agent) == "conversation":
        how += ", earlier answers counted as the short JSON object that is asked for"
    requests = None
    if isinstance(agent.model, HttpModel):
        requests = calls * (1 + agent.model.resent)
    prices = agent.model.prices if isinstance(agent.model, HttpModel) else None
    trial_calls, trial_prompts, trial_outputs = _trials(study, agent, *worlds[0])
    if trial_calls:
        how += f"; {trial_calls} calls before the first one try what the server does"
    mean_prompt = prompt + reasoned * agent.sampling.max_tokens
    prompt_tokens, output_tokens = round(mean_prompt * calls) + trial_prompts, output * calls + trial_outputs
    usd = None if prices is None else prices.usd(prompt_tokens, output_tokens)
    expected_usd = None
    if prices is not None and expected is not None:
        tokens = expected if choice is None else min(expected, output)
        expected_usd = prices.usd(round((prompt + reasoned * expected) * calls), tokens * calls)
    return Cost(
        name=agent.name,
        episodes=episodes,
        calls=calls + trial_calls,
        turns=steps * attempts,
        written=0 if choice is not None and choice.after != "reasoning" else agent.sampling.max_tokens,
        prompt=mean_prompt,
        how=how,
        output=output,
        tokens=prompt_tokens + output_tokens,
        requests=None if requests is None else requests + trial_calls,
        usd=usd,
        expected_usd=expected_usd,
        prices=prices,
    )


def _trials(study: Study, agent: ChatAgent, world: World, horizon: int) -> tuple[int, int, int]:
    """Return the maximum calls, prompt tokens and output tokens of the trials of an agent's server."""
    if not isinstance(agent.model, HttpModel) or not agent.model.server.preflight:
        return 0, 0, 0
    observation = LiveEpisode(planned(study, world, horizon), world, study, study.history_of(agent)).observe()
    return most_trial_tokens(wanted_by(agent, observation), agent.model.server)


def beyond_reach(study: Study) -> list[str]:
    """Return warnings about a study whose largest world exceeds what an agent's model can handle, one line per limit.

    The limits are the number of positions (the context) and, for models trained by this package, the sizes of the grids
    in training. Models without a configuration on this machine are skipped.
    """
    lines = []
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        if isinstance(agent, ChatAgent):
            lines += [f"{agent.name}: {line}" for line in _capacity_lines(study, agent, entry.parameters)]
    return lines


def longest_prompt(study: Study, agent: ChatAgent, parameters: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the tokens of the longest prompt that an agent can meet in a study, and the context of its model in
    tokens.

    The last prompts of episodes that last to their horizon are counted, in the largest worlds. None if either number is
    unknown on this machine.

    Args:
        study: the study.
        agent: one of its agents.
        parameters: the agent's parameters as the study gives them.
    """
    configuration = _configuration(parameters) or {}
    text_configuration = configuration.get("text_config")
    nested = text_configuration if isinstance(text_configuration, Mapping) else {}
    positions = nested.get("max_position_embeddings", configuration.get("max_position_embeddings"))
    if not isinstance(positions, int) or positions < 1:
        return None
    count, how = counter(agent, parameters)
    if not how.startswith("by"):
        return None
    horizons = [(world, study.horizon.of(world)) for world in study.worlds()]
    horizons.sort(key=lambda entry: (_cells(entry[0]), entry[1]), reverse=True)
    return max(prompts_of(study, agent, *entry, count).last for entry in horizons[:_LARGEST]), positions


def _capacity_lines(study: Study, agent: ChatAgent, parameters: Mapping[str, Any]) -> Iterator[str]:
    configuration = _configuration(parameters)
    if configuration is None:
        return
    last, positions = longest_prompt(study, agent, parameters) or (0, 1)
    if last >= positions:
        yield (
            f"a prompt of the largest world may take {last:,} tokens and the model has {positions:,} positions; "
            "an episode that comes so far stops the run: use smaller worlds, a shorter history or another model"
        )
    training_sizes = _training_sizes(configuration)
    world = max(study.worlds(), key=_cells)
    if training_sizes and "drawing" in world.offers:
        side = max(world.grid.height, world.grid.width)
        if side > max(training_sizes):
            yield (
                f"it was trained on grids of up to {max(training_sizes)}x{max(training_sizes)} and this study has "
                f"{world.grid.height}x{world.grid.width}: what it does there says how it copes with what it never saw"
            )


def _cells(world: World) -> int:
    return world.grid.height * world.grid.width if "drawing" in world.offers else 0


def _configuration(parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    folder = None if "server" in parameters else model_folder(parameters["model"])
    if folder is None:
        return None
    if NamedFile(folder).is_there():
        header = read_header(folder).values
        length = header.get(f"{header.get('general.architecture')}.context_length")
        return {"max_position_embeddings": length if isinstance(length, int) else None}
    try:
        return read_json(folder / "config.json")
    except (OSError, ValueError):
        return None  # reported when the model is loaded


def _training_sizes(configuration: Mapping[str, Any]) -> list[int]:
    """Return the grid sizes in the training of a model of this package; empty if they are unknown."""
    try:
        sizes = decode_object(configuration["goalscope"]["training_data"])["sizes"]
    except (KeyError, TypeError, ValueError):
        return []
    return [size for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []


_SINGLE: Final = 4  # bytes of a number in single precision
_BLOCK: Final = 14  # bytes of a score while it is normalised
_SCORE: Final = 12  # bytes of the score of a token: single precision, and double while it is normalised
_PARTS: Final = 8  # tokens of an answer whose likelihood is read


def more_memory(agent: Agent, prompt_tokens: float) -> float:
    """Return the maximum memory, in bytes, that a local model takes in addition to its weights when it answers.

    It holds keys and values of all prompts and answers that are decoded at the same time (the rows of a batch), and the
    scores of tokens.

    Args:
        agent: the agent. If it has a local model, its weights are read into memory, unless they are there already.
        prompt_tokens: number of tokens of the longest prompt.

    Returns:
        The number of bytes; 0 for agents without a local model, and if the configuration does not tell.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel):
        return 0.0
    network = agent.model.model
    config = network.config.get_text_config(decoder=True)
    cache = token_octets(config, next(network.parameters()).element_size()) or 0
    written = agent.sampling.max_tokens if agent.choice is None or agent.choice.after == "reasoning" else _PARTS
    columns = 1 if agent.choice is None else _PARTS
    # A small model on a processor decodes more rows. They are rearranged into a copy of the cache.
    rows = ROWS * own_cores() if agent.model.fits_a_core else SLOTS
    stored = memory_limit(network.device)
    return float(stored + rows * (2 * cache * (prompt_tokens + written) + columns * _SCORE * config.vocab_size))


def inside_memory(agent: Agent, prompt_tokens: float) -> float:
    """Estimate the memory, in bytes, that capturing the activations of a local model's longest turn takes; 0 for other
    agents.

    Args:
        agent: the agent. If it has a local model, its weights are read into memory, unless they are there already.
        prompt_tokens: number of tokens of the longest prompt.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel):
        return 0.0
    network = agent.model.model
    positions = getattr(network.config.get_text_config(decoder=True), "max_position_embeddings", None) or math.inf
    return capture_memory(network, min(prompt_tokens + agent.sampling.max_tokens, positions))


def capture_memory(network: Any, sequence_tokens: float, layers: int = 3) -> float:
    """Return the maximum memory, in bytes, that capturing a network's activations takes in addition to the weights.

    For each of its N tokens, in sequences of T, a pass stores hidden states and their norms, queries, keys, values,
    their mixture, and the activations of the feed-forward part. With eager attention it also stores one block of scores
    of all heads (`agents.models._fast`), N T per head; otherwise none. The vectors of a file are stored twice.

    Args:
        network: the transformers model.
        sequence_tokens: number of tokens of the longest sequence.
        layers: number of captured blocks.
    """
    config, device = network.config.get_text_config(decoder=True), network.device.type
    octets, settings = next(network.parameters()).element_size(), CaptureSettings().on(device)
    tokens = max(float(settings.batch_tokens or 0), sequence_tokens)
    width, heads = config.hidden_size, config.num_attention_heads
    head_width = getattr(config, "head_dim", None) or width // heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    chosen = getattr(config, "num_experts_per_tok", None) or 1
    experts = getattr(config, "num_local_experts", None) or chosen
    experts = experts if experts <= 2 * chosen else chosen
    octets_held = width * (4 * octets + 3 * _SINGLE) + 4 * (heads + groups) * head_width * octets
    octets_held += experts * (7 * inner + width) * octets
    entries, scores = heads * tokens * sequence_tokens, 0.0
    if network.config._attn_implementation == NAME and octets < _SINGLE:
        # At least one row of each sequence is attended to at once.
        scores = _BLOCK * min(entries, max(MOST_SCORES.get(device, MOST_SCORES["cuda"]), entries / sequence_tokens))
    elif network.config._attn_implementation == NAME:
        octets_held += 6 * heads * head_width * _SINGLE  # by the fused kernel, from wider copies
    elif network.config._attn_implementation == "eager":
        scores = _BLOCK * entries
    masks = 3 * _SINGLE * min(tokens * sequence_tokens, MOST_MASK)
    vectors = 2 * (settings.shard_bytes + tokens * width * layers * _SINGLE)
    return float(tokens * octets_held + scores + masks + vectors)


def taken(agent: Agent) -> int:
    """Return the peak memory so far, in bytes: of this process or, if the agent's model is on a GPU, there; 0 if
    unknown.
    """
    model = getattr(agent, "model", None)
    if isinstance(model, LocalModel) and (torch := sys.modules.get("torch")) is not None:
        device = next(model.model.parameters()).device
        if device.type == "cuda":
            return int(torch.cuda.max_memory_reserved(device))
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
