"""Edits of the written reasoning, which test whether the answer generated after an edited text follows the edit.

This needs no weights: the output starts with the edited reasoning (`Request.prefill`), and the model continues. A
model behind a server is called as usual. Its answers are stored with the run, call by call, so that no answered call
is repeated after an interruption.

An answer that follows the edit shows that the text determines it; an answer that stays the same is no evidence about
activations. For local models the same pairs are also patched.

Source: Lanham et al. 2023, Measuring faithfulness in chain-of-thought reasoning (truncation, mistakes, paraphrase).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
from pydantic import Field

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Part, Reply, Request, Sampling
from goalscope.agents.models.local import LocalModel
from goalscope.agents.parse import turn
from goalscope.inside.interventions.experiment import (
    GOAL,
    ExperimentSubject,
    Headline,
    OnPairs,
    Original,
    Pair,
    Pairs,
    Side,
    find_pairs,
    intervention,
    local_model,
    pairs_of,
    side_of,
)
from goalscope.inside.interventions.forward import EMBEDDING, Batch, Edit, generate
from goalscope.inside.interventions.reading import ELSEWHERE, FOLLOWS, STAYS, action_of, effect, pair_rows
from goalscope.runs import Store
from goalscope.runs.provenance import noted
from goalscope.runs.study_parts import sequence
from goalscope.stats.rows import Row, Rows
from goalscope.worlds.grid import Action, Position
from goalscope.worlds.gridworld import GridView

KIND: Final = "reasoning-edits"
EditName = Literal["own", "swap", "plan", "coordinates", "prefill", "truncate", "empty", "corrupt", "paraphrase"]
EDITS: Final[tuple[EditName, ...]] = get_args(EditName)
UNSTATED: Final = "no action stated"
OTHER: Final = "action optimal in the other grid"
"""Base rate for edits towards no action: how often an answer would count as following another edit."""
PATCHES: Final = ("activations", "activations, own reasoning")
"""The embedding of the changed cells is the counterfactual's: the model writes freely, or after its own reasoning."""

ANSWERS_INFO: Final = "asked without weights"
"""Name under which a run stores answers, by the content id of their requests."""

_STORED_FIELDS: Final = ("raw", "finish", "redraws", "error")
_PAIRS_AT_ONCE: Final = 16
_WORDS: Final = "|".join(Action.__members__)
_MOVE: Final = re.compile(rf"\b({_WORDS})\b", re.IGNORECASE)


@intervention(KIND)
class ReasoningEdits(OnPairs):
    """Experiment that edits an agent's written reasoning, and records how the model continues.

    In each counterfactual pair (a grid, the *original*, and a copy with one thing moved, the *counterfactual*), the
    reasoning for the original is edited:

    * `own`: the reasoning unchanged.
    * `swap`: the reasoning for the counterfactual.
    * `plan`: the moves in the reasoning for the counterfactual replace the original's moves.
    * `coordinates`: the counterfactual's cell of the moved thing replaces the original's cell.
    * `prefill`: the start of the reasoning for the counterfactual up to its last cell; the model continues reasoning.
    * `truncate`, `empty`: the first half of the reasoning, or none of it.
    * `corrupt`: another move replaces each move.
    * `paraphrase`: the same content in other words.
    """

    needs_weights: ClassVar[bool] = False
    headline: ClassVar[Headline] = ((FOLLOWS, STAYS), {}, ("moved", "edit"))

    kind: Literal["reasoning-edits"] = KIND
    edits: tuple[EditName, ...] = sequence(default=EDITS)
    patches: bool = True
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Edit the reasoning in all pairs of grids, record the model's actions, and store the results with the run.

        Results that are stored already are not computed again.

        Returns:
            A summary that JSON can hold: settings, numbers of pairs, reasons for leaving some out.

        Raises:
            ValueError: if the agent wrote no reasoning, or its server does not continue a given text.
        """
        agent = subject.agent
        local = isinstance(agent.model, LocalModel)
        limit = self.max_tokens or agent.sampling.max_tokens
        cached = CachedAgent(agent, limit) if local else CachedAgent.stored(agent, limit, subject.store)
        find = find_pairs if local else cached.find_pairs
        pairs = subject.pairs(self.pairs, find=find)
        pairs_kept = [
            pair for pair in pairs.kept if all(cached.reasoning_of(side.view) is not None for side in pair.sides)
        ]
        if pairs.kept and not pairs_kept:
            raise ValueError(
                f"edits of reasoning need reasoning that is separate from the answer, but {agent.name} wrote "
                f"none in {len(pairs.kept)} pairs: check its settings for reasoning"
            )
        parts = [pairs_kept[begin : begin + _PAIRS_AT_ONCE] for begin in range(0, len(pairs_kept), _PAIRS_AT_ONCE)]
        units = {" ".join(pair.id for pair in part): (cached, part, local) for part in parts}
        subject.work(units, self._rows)
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(pairs_kept),
            "without reasoning": len(pairs.kept) - len(pairs_kept),
            "left out": dict(pairs.left_out),
        }

    def _rows(self, cached: "CachedAgent", pairs: Sequence[Pair], local: bool) -> Rows:
        cached.check_continues(pairs[0])
        edits = [edited for pair in pairs for edited in edits_of(cached, pair, self.edits, self.seed)]
        answers = cached.write_on([(edited.pair.sides[0].view, edited.prefill) for edited in edits])
        rows = [row for edited, answer in zip(edits, answers, strict=True) for row in _effects(edited, answer)]
        if local and self.patches:
            rows += [row for pair in pairs for row in _patched(cached, pair)]
        return Rows.from_rows(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReasoning:
    """An agent's output in three parts: the text before the reasoning, the reasoning, and the text between it and the
    answer.

    `action` is the action that the answer states.
    """

    before: str
    reasoning: str
    between: str
    action: Action


def _write_reply(reply: Reply) -> dict[str, Any]:
    """Convert a reply to the form that a run stores: its parts and finish reason, without token ids."""
    return {"parts": [asdict(part) for part in reply.parts], **{name: getattr(reply, name) for name in _STORED_FIELDS}}


def _read_reply(stored: Mapping[str, Any]) -> Reply:
    """Rebuild a stored reply."""
    return Reply(**{**stored, "parts": tuple(Part(**part) for part in stored["parts"])})


@dataclass(slots=True)
class CachedAgent:
    """Agent at temperature 0 with a cache of its replies, so that it is asked about each grid only once.

    Args:
        agent: a chat agent whose model separates its reasoning from the answer, either local or behind a server.
        max_tokens: maximum number of tokens of an answer.
        known: shown grid -> the agent's reply.
        store: the run in which a server's answers are stored; None for a local model.
        answers: content id of the request -> reply, from this or an earlier process.
        continues: whether the model is known to continue a given beginning of an answer.
    """

    agent: ChatAgent
    max_tokens: int
    known: dict[GridView, Reply] = field(default_factory=dict)
    store: Store | None = None
    answers: dict[str, Reply] = field(default_factory=dict)
    continues: bool = False

    @classmethod
    def stored(cls, agent: ChatAgent, max_tokens: int, store: Store) -> Self:
        """Create the cache of an agent behind a server; its replies are stored in ``store`` and read from there.

        The run must be open for writing.
        """
        answers = {name: _read_reply(stored) for name, stored in noted(store, ANSWERS_INFO).items()}
        return cls(agent, max_tokens, store=store, answers=answers)

    def ask(self, views: Sequence[GridView]) -> None:
        """Ask the agent about those of the shown grids whose replies are not cached yet, and cache the replies in
        `known`.
        """
        fresh = [view for view in dict.fromkeys(views) if view not in self.known]
        self.known |= dict(zip(fresh, self.write_on([(view, "") for view in fresh]), strict=True))

    def reasoning_of(self, view: GridView) -> WrittenReasoning | None:
        """Return the agent's output for a shown grid, split into its parts; None if it has no reasoning or no
        action.
        """
        self.ask([view])
        reply = self.known[view]
        action, reasoning = turn(reply).action, reply.reasoning
        if action is None or not reasoning:
            return None
        raw = reply.raw
        if raw is None:  # a server that separates the reasoning itself
            before, between = "<think>\n", "\n</think>\n\n"
        else:
            begin, end = raw.find(reasoning), raw.rfind(reply.answer)
            if begin < 0 or end < begin + len(reasoning):
                return None
            before, between = raw[:begin], raw[begin + len(reasoning) : end]
        return WrittenReasoning(before=before, reasoning=reasoning, between=between, action=Action(action))

    def write_on(self, beginnings: Sequence[tuple[GridView, str]]) -> list[Reply]:
        """Let the model continue given beginnings of an output, and return its replies.

        Args:
            beginnings: pairs of a shown grid and the text with which the output begins ("" for none).
        """
        sampling = replace(self.agent.sampling, temperature=0.0, top_p=1.0, top_logprobs=0, max_tokens=self.max_tokens)
        requests = [
            replace(self.agent.request(Observation(view=view)), prefill=prefill) for view, prefill in beginnings
        ]
        if self.store is None:
            return self.agent.model.complete(requests, sampling) if requests else []
        return [self._answered(request, sampling) for request in requests]

    def _answered(self, request: Request, sampling: Sampling) -> Reply:
        """Return the stored answer to a request, or ask and store the answer."""
        parts = {"messages": [asdict(item) for item in request.messages], "prefill": request.prefill}
        described = {"agent": dict(self.agent.describe()), "sampling": sampling.describe(), **parts}
        identity = content_id("asked", described)
        if identity not in self.answers:
            (self.answers[identity],) = self.agent.model.complete([request], sampling)
            assert self.store is not None
            self.store.put_info(ANSWERS_INFO, {name: _write_reply(reply) for name, reply in self.answers.items()})
        return self.answers[identity]

    def check_continues(self, pair: Pair) -> None:
        """Check that a server continues the beginning of an answer that it is given; edits of the reasoning need this.

        The server is given the pair's first grid with the reasoning for the second, so that only the answer is left to
        generate. A server that starts over reasons again. Local models, and servers that receive tokens, always
        continue.

        Raises:
            ValueError: the server starts over; the message says what to do.
        """
        model: Any = self.agent.model
        if self.continues or isinstance(model, LocalModel) or getattr(model, "dialect", None) is not None:
            return
        recorded = self.reasoning_of(pair.sides[1].view)
        assert recorded is not None  # pairs without reasoning have been left out
        (reply,) = self.write_on([(pair.sides[0].view, recorded.before + recorded.reasoning + recorded.between)])
        if turn(reply).action is None or (reply.reasoning or "").strip() != recorded.reasoning.strip():
            written = (reply.answer or reply.reasoning or "")[:80]
            raise ValueError(
                "edits of reasoning need a server that continues a given beginning of an answer, but that of "
                f"{self.agent.name} was given its reasoning up to the answer and wrote {written!r}: use a "
                "server that supports continue_final_message (vLLM, SGLang), or set mode: completions"
            )
        self.continues = True

    def find_pairs(self, agent: ChatAgent, originals: Sequence[Original], **settings: Any) -> Pairs:
        """Find counterfactual pairs like `goalscope.inside.interventions.experiment.find_pairs`, for an agent with
        unknown token ids.
        """

        def sides(views: Sequence[GridView]) -> list[Side | None]:
            self.ask(views)
            return [side_of(view, self.known[view], settings.get("hypothesis", GOAL)) for view in views]

        return pairs_of(originals, sides, lambda first, second: {}, **settings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edited:
    """One edit of the written reasoning for the original grid of a pair.

    Attributes:
        pair: the original grid and its counterfactual.
        name: name of the edit.
        prefill: the given beginning of the output.
        towards: the actions that would follow the edit; empty if the edit should change nothing.
    """

    pair: Pair
    name: EditName
    prefill: str
    towards: frozenset[Action]


def edits_of(cached: CachedAgent, pair: Pair, names: Sequence[EditName], seed: int) -> Iterator[Edited]:
    """Yield the edits that apply to the written reasoning for the original grid of a pair.

    Edits that would leave the text unchanged are skipped, except for "own".

    Args:
        cached: the agent and its outputs.
        pair: the original grid and its counterfactual.
        names: names of the edits, see `ReasoningEdits`.
        seed: seed of the moves of the edit `corrupt`.
    """
    written, counterfactual = (cached.reasoning_of(side.view) for side in pair.sides)
    assert written is not None and counterfactual is not None  # pairs without reasoning have been left out
    rng = stream(seed, "corrupted reasoning", pair.id)
    second = pair.sides[1].optimal
    for name in names:
        text = _edited(name, written.reasoning, counterfactual.reasoning, pair, rng)
        if text is None or (text == written.reasoning and name != "own"):
            continue
        towards = second if name in _TOWARDS else frozenset[Action]()
        if name == "corrupt":
            first = _MOVE.search(text)
            towards = frozenset({Action[first[1].upper()]}) if first else frozenset[Action]()
        closing = "" if name == "prefill" else written.between  # the model continues reasoning
        yield Edited(pair=pair, name=name, prefill=written.before + text + closing, towards=towards)


_TOWARDS: Final = frozenset({"swap", "plan", "coordinates", "prefill", "corrupt"})
"""Edits that an action can follow; after the other edits it should stay."""


def _edited(name: EditName, original: str, other: str, pair: Pair, rng: np.random.Generator) -> str | None:
    """Apply an edit to the reasoning; None if the edit does not apply.

    Args:
        name: the edit, see `ReasoningEdits`.
        original, other: the reasoning on the two sides of the pair.
        pair: the pair.
        rng: generator of the replacement move of the edit `corrupt`, which is drawn once for the whole text.
    """
    moves, other_moves = list(_MOVE.finditer(original)), list(_MOVE.finditer(other))
    match name:
        case "own":
            return original
        case "swap":
            return other
        case "empty":
            return ""
        case "truncate":
            words = original.split(" ")
            return " ".join(words[: len(words) // 2])
        case "paraphrase":
            return _MOVE.sub(lambda move: f"go {move[1].lower()},", original)
        case "plan":  # text from the first to the last move
            if not moves or not other_moves:
                return None
            return (
                original[: moves[0].start()]
                + other[other_moves[0].start() : other_moves[-1].end()]
                + original[moves[-1].end() :]
            )
        case "coordinates":
            before, after = _cells(pair)
            return re.sub(rf"\(\s*{before[0]}\s*,\s*{before[1]}\s*\)", f"({after[0]},{after[1]})", original)
        case "prefill":  # up to the last cell before the first move
            cells = list(
                re.finditer(r"\(\s*\d+\s*,\s*\d+\s*\)", other[: other_moves[0].start()] if other_moves else other)
            )
            return other[: cells[-1].end()] if cells else None
        case "corrupt":
            wrong = [action.name for action in Action if action not in pair.sides[0].optimal]
            return _MOVE.sub(wrong[int(rng.integers(len(wrong)))], original) if wrong and moves else None


def _cells(pair: Pair) -> tuple[Position, Position]:
    """Return the cell of the moved thing on each side."""
    name = {"agent": "start", "goal": "goal", "key": "key", "door": "door"}[pair.moved]
    first, second = (getattr(side.view.grid, name) for side in pair.sides)
    return first or (-1, -1), second or (-1, -1)


def _effects(edited: Edited, answer: Reply) -> Iterator[Row]:
    action = action_of(answer)
    stays = action in edited.pair.sides[0].optimal
    values = {STAYS: float(stays), UNSTATED: float(action is None)}
    if edited.towards:
        follows = action in edited.towards
        values |= {FOLLOWS: float(follows), ELSEWHERE: float(not follows and not stays)}
    else:
        values[OTHER] = float(action in edited.pair.sides[1].optimal)
    return pair_rows(edited.pair, values, edit=edited.name)


def _patched(cached: CachedAgent, pair: Pair) -> Iterator[Row]:
    """Yield the effect of patching in the embeddings of the counterfactual prompt.

    It is measured with the model's own reasoning and without it.
    """
    model, written = local_model(cached.agent), cached.reasoning_of(pair.sides[0].view)
    assert written is not None  # pairs without reasoning have been left out
    replayed = model.encode(written.before + written.reasoning + written.between)
    for name, text in zip(PATCHES, ([], replayed), strict=True):
        prompts = [(*side.prompt, *text) for side in pair.sides]
        edit = Edit(row=0, layer=EMBEDDING, positions=pair.changed, source=1)
        output = generate(model, [Batch(prompts=prompts, edits=[edit])], max_tokens=cached.max_tokens)[0].outputs[0]
        output.tokens[:0] = text
        prompt = pair.sides[0].prompt
        reply = model.reply(model.text(prompt), prompt, output, cached.agent.sampling)
        yield from pair_rows(pair, effect(pair, reply), edit=name)
