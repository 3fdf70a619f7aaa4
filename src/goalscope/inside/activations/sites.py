"""Sites, i.e. positions in a sequence at which vectors are captured.

Sites are found by matching token ids, not by fixed offsets.
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
from goalscope.agents.models.base import Message, Sampling
from goalscope.agents.models.dialect import check_cell_tokens
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.marks import Style
from goalscope.runs import Store
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.record import Episode, Step
from goalscope.runs.sqlite_errors import explained
from goalscope.runs.tables import DATABASE
from goalscope.worlds.dynamics import opaque_cells, shown
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
    """The token positions of each site in one step, and the reasons why other sites are missing."""

    positions: dict[Site, npt.NDArray[np.int64]]  # site -> [P] positions in prompt and output together
    missing: dict[Site, str]


class _MissingError(Exception):
    """Raised if a step lacks a site; the message says why."""


def check_site(site: str) -> Site:
    """Check the name of a site and return it.

    Raises:
        ValueError: if there is no such site.
    """
    if site not in SITES:
        raise ValueError(f"site must be one of {', '.join(SITES)}, got {site!r}")
    return site


def grids_seen(episode: Episode) -> Iterator[Grid]:
    """Yield the grid that the agent saw at each step; under fog, the part seen so far."""
    world = episode.world
    fog = None if world.fog_radius is None else Fog.start(world.grid, world.fog_radius)
    for step in episode.steps:
        grid = shown(world.grid, step.state)
        if fog is not None:
            fog = fog.look(step.state.position, opaque_cells(world.grid, step.state))
            grid = fog.view(grid)
        yield grid


def steps_seen(
    store: Store, agent_id: str, scope: str = "all", chosen: Mapping[str, Container[int]] | None = None
) -> Iterator[tuple[Episode, Step, Grid]]:
    """Yield the steps of an agent ("all", or the "first" of each episode), with the grid that the agent saw.

    ``chosen`` contains the selected steps of each episode; None selects all.
    """
    for episode in store.episodes():
        if episode.spec.agent_id == agent_id and (chosen is None or episode.id in chosen):
            for step, grid in zip(episode.steps, grids_seen(episode), strict=True):
                if chosen is None or step.index in chosen[episode.id]:
                    yield episode, step, grid
                if scope == "first":
                    break


def some_steps(maximum: int, seed: int) -> str:
    """Return the scope that stands for at most ``maximum`` random steps per grid, e.g. "4:0" with root seed 0."""
    return f"{maximum}:{seed}"


def chosen_steps(store: Store, agent_id: str, scope: str) -> Mapping[str, frozenset[int]] | None:
    """Return the steps of each episode of an agent that a scope draws, or None if a scope draws none.

    For each grid, the choice is the first step of one episode and random steps of any episode. The random stream
    depends on the grid's name and the seed, so the choice does not depend on the captured model.

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
    """Return the id of the steps to capture; it changes when episodes are added to the run."""
    digest = hashlib.sha256()
    sql = "SELECT id, length FROM episodes WHERE agent_id = ? ORDER BY world_id, agent_id, trajectory, id"
    with explained(store.path / DATABASE):
        for identity, length in store.database.execute(sql, (agent_id,)):
            digest.update(f"{identity} {length}\n".encode())
    return content_id("plan", {"agent": agent_id, "scope": scope, "episodes": digest.hexdigest()})


def available_sites(
    store: Store, agent_id: str, model: LocalModel, sites: Sequence[Site] = DEFAULT_SITES
) -> tuple[Site, ...]:
    """Return the sites recorded in an agent's steps; a warning names each of the others and says why it is missing.

    Args:
        store: the run.
        agent_id: the agent; a site that none of its first `_CHECKED_STEPS` steps has is not available.
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
    """Finder of the sites in steps whose chats were rendered by a model's own template.

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
        """Find the sites of one step.

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
