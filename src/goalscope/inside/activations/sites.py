"""What is replayed: the agent and the model that fits it, its steps, and the sites at which vectors are captured.

The agent must have token ids. Sites are positions in a sequence; they are found by matching token ids, not by fixed
offsets.
"""

import hashlib
import re
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.agents.agent import agent_id, build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import RANDOM_WEIGHTS, Message, Sampling, check_random_weights
from goalscope.agents.models.dialect import check_cell_tokens
from goalscope.agents.models.engine import EngineModel
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.marks import Style
from goalscope.runs import Store
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, step_cells
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.record import Episode, Step
from goalscope.runs.tables import DATABASE, explained
from goalscope.worlds.dynamics import shown, solid_cells
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import Grid

Site = Literal["pre", "post", "grid", "action"]
"""Positions at which vectors are captured: before the reasoning, between reasoning and answer, at the cells of the
grid, before the word that names the action."""

SITES: Final[tuple[Site, ...]] = get_args(Site)
TRIPLE: Final = 3
"""Positions of the sites `pre` and `post`."""
DEFAULT_SITES: Final[tuple[Site, ...]] = ("pre", "post")
"""Sites that are captured and probed by default."""

SCOPES: Final = ("all", "first")
"""Which steps are captured: all, or the first one of each episode; or `some_steps`."""
_CHECKED_STEPS = 4096  # steps
_MARKER = "goalscope"
_MAX_LAYOUTS = 8  # number of layouts cached per prompt length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sites:
    """The token positions found in one step for each site (such as "pre", the end of the prompt).

    ``positions`` maps a site to positions ``[P]`` in prompt and output together; ``missing`` maps each site that was
    not found to the reason.
    """

    positions: dict[Site, npt.NDArray[np.int64]]  # site -> [P] positions in prompt and output together
    missing: dict[Site, str]


class _MissingError(Exception):
    """Raised if a step lacks a site; the message says why."""


def check_site(site: str) -> Site:
    """Check and return the name of a site, a set of token positions: "pre", "post", "grid" or "action".

    Raises:
        ValueError: if there is no such site.
    """
    if site not in SITES:
        raise ValueError(f"site must be one of {', '.join(SITES)}, got {site!r}")
    return site


def grids_seen(episode: Episode) -> Iterator[Grid]:
    """Yield the grid that the agent saw at each step; if its view is limited (fog), the part that it has seen so
    far.
    """
    world = episode.world
    fog = None if world.fog_radius is None else Fog.start(world.grid, world.fog_radius)
    for step in episode.steps:
        grid = shown(world.grid, step.state)
        if fog is not None:
            fog = fog.look(step.state.position, solid_cells(world.grid, step.state))
            grid = fog.view(grid)
        yield grid


def steps_seen(
    store: Store, agent_id: str, scope: str = "all", chosen: Mapping[str, Container[int]] | None = None
) -> Iterator[tuple[Episode, Step, Grid]]:
    """Yield the recorded steps of an agent, each as its episode, the step, and the grid that the agent saw.

    Args:
        store: the run.
        agent_id: content id of the agent.
        scope: "all" steps, or the "first" of each episode.
        chosen: the numbers of the steps to yield for each episode id; None for all.
    """
    for episode in store.episodes():
        if episode.spec.agent_id == agent_id and (chosen is None or episode.id in chosen):
            for step, grid in zip(episode.steps, grids_seen(episode), strict=True):
                if chosen is None or step.index in chosen[episode.id]:
                    yield episode, step, grid
                if scope == "first":
                    break


def some_steps(maximum: int, seed: int) -> str:
    """Return the text "MAXIMUM:SEED" for the argument ``scope`` of `capture`: at most that many random steps per
    grid.
    """
    return f"{maximum}:{seed}"


def chosen_steps(store: Store, agent_id: str, scope: str) -> Mapping[str, frozenset[int]] | None:
    """Draw the steps of an agent whose activations are captured: at most N random steps per grid.

    For each grid, the first step of one episode is drawn, and then random steps of any episode. The random stream
    depends on the grid's name and the seed, so the choice does not depend on the captured model.

    Args:
        store: the run.
        agent_id: content id of the agent.
        scope: "N:SEED", for example "4:0"; or "all" or "first", which need no draw.

    Returns:
        The numbers of the drawn steps by episode id; None for "all" and "first".

    Raises:
        ValueError: if there is no such scope.
    """
    if scope in SCOPES:
        return None
    maximum, colon, seed = scope.partition(":")
    if not (colon and maximum.isdecimal() and seed.isdecimal() and int(maximum)):
        raise ValueError(
            f"scope must be {', '.join(SCOPES)}, or N:SEED for N random steps per grid, e.g. 4:0, got {scope!r}"
        )
    steps_of_grid: dict[str, list[tuple[str, int]]] = {}
    for item in sorted(item for item in read_heads(store) if item.agent_id == agent_id):
        grid = store.world(item.world_id).cluster_id
        steps_of_grid.setdefault(grid, []).extend((item.id, step) for step in range(item.length))
    by_episode: dict[str, set[int]] = {}
    for grid, steps in steps_of_grid.items():
        shuffled = [steps[index] for index in stream(int(seed), "steps of a grid", grid).permutation(len(steps))]
        first = next(item for item in shuffled if item[1] == 0)
        for episode, step in [first, *(item for item in shuffled if item != first)][: int(maximum)]:
            by_episode.setdefault(episode, set()).add(step)
    return {episode: frozenset(steps) for episode, steps in by_episode.items()}


def plan_id(store: Store, agent_id: str, scope: str) -> str:
    """Return an id that all captures of the same steps of an agent share; it changes when episodes are added to the
    run.

    ``scope`` says which steps are captured: "all", "first" or "N:SEED".
    """
    digest = hashlib.sha256()
    sql = "SELECT id, length FROM episodes WHERE agent_id = ? ORDER BY world_id, agent_id, trajectory, id"
    with explained(store.path / DATABASE):
        for identity, length in store.database.execute(sql, (agent_id,)):
            digest.update(f"{identity} {length}\n".encode())
    return content_id("plan", {"agent": agent_id, "scope": scope, "episodes": digest.hexdigest()})


def available_sites(
    store: Store, agent_id: str, model: LocalModel, sites: Sequence[Site] = DEFAULT_SITES
) -> tuple[Site, ...]:
    """Return the sites (token positions such as "pre") that an agent's steps have; a warning gives the reason for each
    other.

    Args:
        store: the run.
        agent_id: the agent; a site that none of its first 4,096 steps has is not available.
        model: the model; only its tokenizer and template are used.
        sites: the sites to look for.

    Raises:
        ValueError: if none of them is available.
    """
    missing: dict[Site, str] = {}
    for site in sites:
        try:
            reason = _missing_reason(store, agent_id, SiteFinder(model, (site,)), site)
        except ValueError as error:
            reason = str(error)
        if reason:
            missing[site] = reason
    available = tuple(site for site in sites if site not in missing)
    if not available:
        raise ValueError(
            f"none of the sites {', '.join(sites)} is available: {'; '.join(missing.values())}. Choose another site"
        )
    for site, reason in missing.items():
        warnings.warn(f"site {site} is left out: {reason}", stacklevel=2)
    return available


def _missing_reason(store: Store, agent_id: str, finder: "SiteFinder", site: Site) -> str:
    """Return why the first steps of an agent lack a site, or "" if a step has it."""
    reasons: Counter[str] = Counter()
    for _, step, grid in islice(steps_seen(store, agent_id), _CHECKED_STEPS):
        missing = finder.find(step, grid).missing
        if site not in missing:
            return ""
        reasons[missing[site]] += 1
    return "; ".join(f"{reason} ({count} steps)" for reason, count in reasons.most_common())


class SiteFinder:
    """Finds sites, the token positions at which activations are read, in steps rendered with a model's chat template.

    * ``pre``: the last three tokens of the prompt, with which the template opens the answer.
    * ``post``: the same three tokens where they open the final answer after the reasoning (harmony channels), or the
      three tokens that end with the closing tag of the reasoning (tags).
    * ``grid``: the token of each cell of the last grid shown.
    * ``action``: the last token before the token that starts the word of the action.

    Args:
        model: the model; only its tokenizer and template are used.
        sites: the sites to find.

    Raises:
        ValueError: if the template has no such site; the message has the reason.
    """

    def __init__(self, model: LocalModel, sites: Sequence[Site]) -> None:
        self._model = model
        self._sites = tuple(sites)
        self._tokenizer: Any = model.tokenizer
        vocabulary = self._tokenizer.get_vocab()
        self.style: Style = model.style
        if "post" in self._sites and self.style == "none":
            raise ValueError(
                f"site post lies between reasoning and answer, but {model.name} does not mark its reasoning "
                "(reasoning: none): leave the site out"
            )
        self._opening = self._find_opening()
        self._close = tuple(model.encode(model.marks.close)) if self.style == "tags" else ()
        self._channel = vocabulary.get("<|channel|>", -1)
        self._message = vocabulary.get("<|message|>", -1)
        # Layouts by length of the prompt and by height and width of the grid.
        self._layouts: dict[tuple[int, int, int], list[_PromptLayout]] = {}

    def find(self, step: Step, grid: Grid) -> Sites:
        """Find the token positions of each site in one step, and the reason for each site that the step lacks.

        Args:
            step: a step with its prompt ids; ``post`` and ``action`` also need the ids of the output.
            grid: the grid shown in the prompt.

        Raises:
            ValueError: if a cell is not a token of its own, or the prompt does not contain the grid (site ``grid``).
        """
        positions: dict[Site, npt.NDArray[np.int64]] = {}
        missing: dict[Site, str] = {}
        for site in self._sites:
            try:
                positions[site] = self._find(site, step, grid)
            except _MissingError as reason:
                missing[site] = str(reason)
        return Sites(positions=positions, missing=missing)

    def _find(self, site: Site, step: Step, grid: Grid) -> npt.NDArray[np.int64]:
        prompt, output = step.prompt_tokens, step.output_tokens
        if not prompt:
            raise _MissingError("no token ids of the prompt")
        if site == "grid":
            return self._grid(prompt, grid)
        end = len(prompt)
        if site == "pre":
            if end < TRIPLE or prompt[-len(self._opening) :] != self._opening:
                raise _MissingError("the prompt does not end as the model's template opens an answer")
            return np.arange(end - TRIPLE, end)
        if not output:
            raise _MissingError("no token ids of the output")
        if site == "post":
            end += self._end_of_reasoning(output)
            if end < TRIPLE:
                raise _MissingError(f"fewer than {TRIPLE} tokens before the answer")
            return np.arange(end - TRIPLE, end)
        if step.action is None:
            raise _MissingError("the answer names no action")
        return np.array([end + self._action(output, step.action.name) - 1])

    def _find_opening(self) -> tuple[int, ...]:
        """Return the template's token ids between the end of the last message and the answer."""
        text = self._model.render([Message(role="user", content=_MARKER)], Sampling())
        start = text.rfind(_MARKER)
        opening = tuple(self._model.encode(text[start + len(_MARKER) :])) if start >= 0 else ()
        if not opening:
            raise ValueError(
                f"the template of {self._model.name} does not open the answer with tokens of its own, so "
                "sites cannot be found in its prompts: use a model with a chat template that does"
            )
        # If the last message does not end with a special token, the first token may contain a part of the message.
        return opening if self.style == "harmony" else opening[-min(TRIPLE, max(1, len(opening) - 1)) :]

    def _end_of_reasoning(self, output: Sequence[int]) -> int:
        """Return the index in the output at which the opening of the final answer begins."""
        if self.style == "tags":
            end = _last_end(output, self._close)
            if end is None:
                raise _MissingError("the output closes no reasoning")
            return end
        final, length = self._final(output), len(self._opening)
        if final <= length or tuple(output[final - length : final]) != self._opening:
            raise _MissingError("no reasoning before the final answer")
        return final

    def _final(self, output: Sequence[int]) -> int:
        """Return the index of the first ``<|channel|>`` of a final message."""
        for index, token in enumerate(output):
            if token == self._channel and self._message in output[index:]:
                end = list(output).index(self._message, index)
                if self._text(output[index + 1 : end]).split()[:1] == ["final"]:
                    return index
        raise _MissingError("no final answer")

    def _action(self, output: Sequence[int], word: str) -> int:
        """Return the index in the output of the token that begins the word of the action."""
        begin = 0
        if self.style == "harmony":
            begin = list(output).index(self._message, self._final(output)) + 1
        elif self.style == "tags":
            begin = _last_end(output, self._close) or 0
        answer = output[begin:]
        text = self._text(answer)
        match = re.search(rf"""["']?action["']?\s*:\s*["']?\s*(?P<word>{word})\b""", text, re.IGNORECASE)
        if match is None:
            raise _MissingError("the word of the action is not found in the answer")
        beginning = text[: match.start("word") + 1]
        # The shortest prefix whose text contains the first letter of the word ends with the token that begins the
        # word.
        sizes = range(1, len(answer))
        return begin + bisect_left(sizes, True, key=lambda size: self._text(answer[:size]).startswith(beginning))

    def _grid(self, prompt: Sequence[int], grid: Grid) -> npt.NDArray[np.int64]:
        ids = np.array(prompt, dtype=np.int64)
        lines = grid.render().split("\n")[1:]
        symbols = np.frombuffer("".join("".join(line.split()[1:]) for line in lines).encode(), dtype=np.uint8)
        layouts = self._layouts.setdefault((len(ids), grid.height, grid.width), [])
        for layout in layouts:
            if layout.has_frame(ids) and layout.pairs(ids, symbols) <= layout.known:
                return layout.positions
        text = self._text(prompt)
        if self._model.encode(text) != list(prompt):
            raise ValueError(
                f"the token ids of a prompt differ from those that the tokenizer of {self._model.name} gives "
                "for its text, so cells cannot be found: give the model that generated the run"
            )
        cells = check_cell_tokens(self._model, grid.render(), prompt=text, capture=True)
        positions = np.ascontiguousarray(cells.positions.reshape(-1), dtype=np.int64)
        matching = [
            layout for layout in layouts if layout.has_frame(ids) and np.array_equal(positions, layout.positions)
        ]
        if not matching:
            matching = [_PromptLayout(ids, positions)]
            layouts[:] = [*matching, *layouts][:_MAX_LAYOUTS]
        matching[0].known |= matching[0].pairs(ids, symbols)
        return positions

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))


class _PromptLayout:
    """Layout of a prompt with known cell positions, valid for every prompt that differs only in cells.

    The id of each cell must already have occurred as the token of the same symbol in an earlier prompt with this
    layout.
    """

    def __init__(self, ids: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
        self.positions = positions
        self.known: set[tuple[int, int]] = set()  # (symbol, id)
        self._frame = ids.copy()
        self._frame[positions] = -1

    def has_frame(self, ids: npt.NDArray[np.int64]) -> bool:
        frame = ids.copy()
        frame[self.positions] = -1
        return np.array_equal(frame, self._frame)

    def pairs(self, ids: npt.NDArray[np.int64], symbols: npt.NDArray[np.uint8]) -> set[tuple[int, int]]:
        return set(zip(symbols.tolist(), ids[self.positions].tolist(), strict=True))


def _last_end(tokens: Sequence[int], pattern: tuple[int, ...]) -> int | None:
    """Return the end of the last occurrence of a pattern in a sequence, or None."""
    ends = range(len(tokens), len(pattern) - 1, -1) if pattern else ()
    return next((end for end in ends if tuple(tokens[end - len(pattern) : end]) == pattern), None)


_CHECKED_SERVER_STEPS = 100
_AGENT_ID, _AGENT = (EPISODE_COLUMNS.split(", ").index(name) for name in ("agent_id", "agent"))
_PROMPT, _OUTPUT = (STEP_COLUMNS.split(", ").index(name) for name in ("prompt_tokens", "output_tokens"))
_MODEL_KINDS = ("chat", "task-chat")  # agent kinds with a model; other kinds read no weights
_NOT_TOKENIZER_FILES = ("config.json", "generation_config.json", "hub", "revision", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """The agent whose recorded token ids are sent through a model again to read its activations.

    It holds the agent's short name, content id, description and number of steps.
    """

    agent: str
    agent_id: str
    description: Mapping[str, Any]
    steps: int


def find_target(store: Store, agent: str | None, sites: Sequence[Site]) -> ReplayTarget:
    """Find the agent of a run whose recorded token ids are to be sent through its model again.

    Args:
        store: the run.
        agent: short name or id of the agent; may be None if only one agent has token ids.
        sites: the requested token positions ("pre", "post", "grid", "action"). The sites `post` and `action` need token
            ids of the output.

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
    """Load the local model of an agent, as the run's study names it, or the same model with random weights as a
    control.

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
    """Return the id by which stored activations and probes name a model: a hash of what determines its outputs."""
    return content_id("model", dict(model.describe()))


def check_model(target: ReplayTarget, model: LocalModel, *, other_weights: bool) -> None:
    """Check that a model can replay the token ids of an agent: its tokenizer must be the one that the agent used.

    Raises:
        ValueError: if the tokenizer differs; or if trained weights differ from the agent's, unless ``other_weights``.
    """
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
    """Check that the token ids that a server returned in mode chat can come from a model's tokenizer.

    The tokenizer of such a run is unknown. All ids must be in the model's vocabulary, and the decoded output must
    contain its recorded text; up to 100 steps are checked.

    Raises:
        ValueError: if they cannot.
    """
    served = target.description.get("model", {})
    if not isinstance(served, Mapping) or served.get("kind") != "http" or served.get("mode") == "completions":
        return
    vocabulary_size = model.model.get_input_embeddings().num_embeddings
    ids = (episode.id for episode in store.episodes() if episode.spec.agent_id == target.agent_id)
    steps = (step for episode in store.episodes(islice(ids, _CHECKED_SERVER_STEPS)) for step in episode.steps)
    for step in islice(steps, _CHECKED_SERVER_STEPS):
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
