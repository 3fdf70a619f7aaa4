"""Edits of the written reasoning: the answer is written again after another text, and follows it, or does not.

This needs no weights: the output is begun with the edited reasoning (`Request.prefill`), and the model writes on. A
model behind a server is asked as any model. What it wrote is kept with the run, call by call: where the work is cut
short, no call that was answered is made again.

That an answer follows the text shows that the text decides there; that it stays shows nothing of what activations hold.
Beside the edits stand patches of activations in the same pairs, where the weights are at hand.

Source: Lanham et al. 2023, Measuring faithfulness in chain-of-thought reasoning (truncation, mistakes, paraphrase).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
from pydantic import Field

from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent, turn
from goalscope.ids import content_id
from goalscope.interventions.edits import EMBEDDING, Edit
from goalscope.interventions.experiment import Headline, OnPairs, Subject, choose_pairs, intervention
from goalscope.interventions.forward import Batch, generate
from goalscope.interventions.pairs import Original, Pair, Pairs, Side, find_pairs, local_model, pairs_of, side_of
from goalscope.interventions.reading import ELSEWHERE, FOLLOWS, STAYS, Answer, pair_rows
from goalscope.models.base import Completion, Request, Sampling
from goalscope.models.local import LocalModel
from goalscope.rng import stream
from goalscope.rows import Row, Rows
from goalscope.runs import Store
from goalscope.runs.kinds import sequence
from goalscope.runs.provenance import noted
from goalscope.worlds.grid import Action, Position
from goalscope.worlds.gridworld import GridView

KIND: Final = "reasoning-edits"
EditName = Literal["own", "swap", "plan", "coordinates", "prefill", "truncate", "empty", "corrupt", "paraphrase"]
EDITS: Final[tuple[EditName, ...]] = get_args(EditName)
UNSTATED: Final = "no action stated"
OTHER: Final = "action optimal in the other grid"
"""Of edits towards no action: how often what would count as following after another edit comes about by itself."""
PATCHES: Final = ("activations", "activations, own reasoning")
"""The embedding of the changed cells is the counterfactual's: the model writes freely, or after its own reasoning."""

ASKED: Final = "asked without weights"
"""Name under which a run keeps what was written, by the content id of what was asked."""

_KEPT: Final = ("text", "reasoning", "raw", "finish", "marked")
_PART: Final = 16
_WORDS: Final = "|".join(Action.__members__)
_MOVE: Final = re.compile(rf"\b({_WORDS})\b", re.IGNORECASE)


@intervention(KIND)
class ReasoningEdits(OnPairs):
    """The reasoning of the original of each pair, edited, and the answer that the model then gives.

    `own` is the reasoning as it was; `swap` the counterfactual's; `plan` has the counterfactual's moves in place of its
    own, `coordinates` the counterfactual's cell of what was moved; `prefill` is the beginning of the reasoning with
    that cell, and the model reasons on; `truncate` has its first half, `empty` nothing of it; `corrupt` another move in
    place of each; `paraphrase` says the same in other words.
    """

    needs_weights: ClassVar[bool] = False
    headline: ClassVar[Headline] = ((FOLLOWS, STAYS), {}, ("edit",))

    kind: Literal["reasoning-edits"] = KIND
    edits: tuple[EditName, ...] = sequence(default=EDITS)
    patches: bool = True
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Edit the reasoning of all pairs; what is stored is not done again."""
        agent = subject.agent
        local = isinstance(agent.model, LocalModel)
        limit = self.max_tokens or agent.sampling.max_tokens
        asked = Asked(agent, limit) if local else Asked.stored(agent, limit, subject.store)
        find = find_pairs if local else asked.find_pairs
        pairs = choose_pairs(agent, subject.originals, self.pairs, find=find)
        kept = [pair for pair in pairs.kept if all(asked.told(side.view) is not None for side in pair.sides)]
        if pairs.kept and not kept:
            raise ValueError(
                f"edits of reasoning need reasoning that stands apart from the answer, {agent.name} wrote none in "
                f"{len(pairs.kept)} pairs: check its settings for reasoning"
            )
        parts = [kept[begin : begin + _PART] for begin in range(0, len(kept), _PART)]
        units = {" ".join(pair.id for pair in part): (asked, part, local) for part in parts}
        subject.work(units, self._rows)
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(kept),
            "without reasoning": len(pairs.kept) - len(kept),
            "left out": dict(pairs.left_out),
        }

    def _rows(self, asked: "Asked", pairs: Sequence[Pair], local: bool) -> Rows:
        asked.check_continues(pairs[0])
        made = [edited for pair in pairs for edited in edits_of(asked, pair, self.edits, self.seed)]
        said = asked.write_on([(one.pair.sides[0].view, one.prefill) for one in made])
        rows = [row for one, answer in zip(made, said, strict=True) for row in _effects(one, answer)]
        if local and self.patches:
            rows += [row for pair in pairs for row in _patched(asked, pair)]
        return Rows.from_rows(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an agent wrote: the text before its reasoning, the reasoning, and the text between that and the answer."""

    before: str
    reasoning: str
    between: str
    action: Action


@dataclass(slots=True)
class Asked:
    """An agent at temperature 0: each view is asked about once, and what it says is kept.

    Args:
        agent: a chat agent whose model writes its reasoning apart from the answer; local, or behind a server.
        max_tokens: most tokens of an answer.
        known: what was written about views.
        store: the run that keeps what a server answers, None for a model that costs nothing.
        answers: content id of what was asked -> what was answered, in this process or an earlier one.
        continues: whether the model was seen to continue an answer.
    """

    agent: ChatAgent
    max_tokens: int
    known: dict[GridView, Completion] = field(default_factory=dict)
    store: Store | None = None
    answers: dict[str, Completion] = field(default_factory=dict)
    continues: bool = False

    @classmethod
    def stored(cls, agent: ChatAgent, max_tokens: int, store: Store) -> Self:
        """Return an agent behind a server, with what a run keeps of its answers; the run must be open for writing."""
        answers = {name: Completion(**one) for name, one in noted(store, ASKED).items()}
        return cls(agent, max_tokens, store=store, answers=answers)

    def ask(self, views: Sequence[GridView]) -> None:
        """Ask about views that were not asked about before."""
        fresh = [view for view in dict.fromkeys(views) if view not in self.known]
        self.known |= dict(zip(fresh, self._complete([(view, "") for view in fresh]), strict=True))

    def told(self, view: GridView) -> Told | None:
        """Return what was written about a view, None without reasoning, or without an action."""
        self.ask([view])
        said = self.known[view]
        action, reasoning = turn(said).action, said.reasoning
        if action is None or not reasoning:
            return None
        raw = said.raw
        if raw is None:  # a server that takes the reasoning apart itself
            before, between = "<think>\n", "\n</think>\n\n"
        else:
            at, end = raw.find(reasoning), raw.rfind(said.text)
            if at < 0 or end < at + len(reasoning):
                return None
            before, between = raw[:at], raw[at + len(reasoning) : end]
        return Told(before=before, reasoning=reasoning, between=between, action=Action(action))

    def write_on(self, wanted: Sequence[tuple[GridView, str]]) -> list[Answer]:
        """Return what the agent does after the beginning of an answer to each view."""
        return [Answer.of(said) for said in self._complete(wanted)]

    def _complete(self, wanted: Sequence[tuple[GridView, str]]) -> list[Completion]:
        sampling = replace(self.agent.sampling, temperature=0.0, top_p=1.0, top_logprobs=0, max_tokens=self.max_tokens)
        requests = [replace(self.agent.request(Observation(view=view)), prefill=prefill) for view, prefill in wanted]
        if self.store is None:
            return self.agent.model.complete(requests, sampling) if requests else []
        return [self._answered(request, sampling) for request in requests]

    def _answered(self, request: Request, sampling: Sampling) -> Completion:
        """Return an answer that the run keeps, or ask for it and keep it."""
        asked = {"messages": [asdict(one) for one in request.messages], "prefill": request.prefill}
        described = {"agent": dict(self.agent.describe()), "sampling": sampling.describe(), **asked}
        identity = content_id("asked", described)
        if identity not in self.answers:
            (self.answers[identity],) = self.agent.model.complete([request], sampling)
            assert self.store is not None
            kept = {name: {key: getattr(one, key) for key in _KEPT} for name, one in self.answers.items()}
            self.store.put_info(ASKED, kept)
        return self.answers[identity]

    def check_continues(self, pair: Pair) -> None:
        """Raise a ValueError where a server does not continue the answer that it is given the beginning of.

        On the first grid of a pair it is given its reasoning on the second: all that is left to it is to answer. One
        that begins anew reasons again. A model here, and a server that is sent tokens, continue whatever they are
        given.

        Raises:
            ValueError: the server begins anew; says what to do.
        """
        model: Any = self.agent.model
        if self.continues or isinstance(model, LocalModel) or getattr(model, "dialect", None) is not None:
            return
        told = self.told(pair.sides[1].view)
        assert told is not None  # pairs without reasoning were left out
        (said,) = self._complete([(pair.sides[0].view, told.before + told.reasoning + told.between)])
        if turn(said).action is None or (said.reasoning or "").strip() != told.reasoning.strip():
            raise ValueError(
                f"edits of reasoning need a server that continues a begun answer, that of {self.agent.name} was given "
                f"its reasoning up to the answer and wrote {said.text[:80]!r}: serve the model with one that knows "
                "continue_final_message (vLLM, SGLang), or ask it in mode completions"
            )
        self.continues = True

    def find_pairs(self, agent: ChatAgent, originals: Sequence[Original], **settings: Any) -> Pairs:
        """Return pairs as `goalscope.interventions.find_pairs` does, of an agent whose token ids are not known."""

        def sides(views: Sequence[GridView]) -> list[Side | None]:
            self.ask(views)
            return [side_of(view, self.known[view]) for view in views]

        return pairs_of(originals, sides, lambda first, second: {}, **settings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edited:
    """An edit of the original's reasoning.

    Attributes:
        pair: the pair.
        name: the edit.
        prefill: what the output begins with.
        towards: the actions that follow the edit, none where it should change nothing.
    """

    pair: Pair
    name: EditName
    prefill: str
    towards: frozenset[Action]


def edits_of(asked: Asked, pair: Pair, names: Sequence[EditName], seed: int) -> Iterator[Edited]:
    """Yield the edits of a pair that its reasoning has a place for.

    Args:
        asked: what the agent wrote.
        pair: the pair.
        names: the edits that are wanted.
        seed: of the moves that corrupt.
    """
    own, other = (asked.told(side.view) for side in pair.sides)
    assert own is not None and other is not None  # pairs without reasoning were left out
    rng = stream(seed, "corrupted reasoning", pair.id)
    second = pair.sides[1].optimal
    for name in names:
        text = _edited(name, own.reasoning, other.reasoning, pair, rng)
        if text is None or (text == own.reasoning and name != "own"):
            continue
        towards = second if name in _TOWARDS else frozenset[Action]()
        if name == "corrupt":
            first = _MOVE.search(text)
            towards = frozenset({Action[first[1].upper()]}) if first else frozenset[Action]()
        closing = "" if name == "prefill" else own.between  # the model reasons on
        yield Edited(pair=pair, name=name, prefill=own.before + text + closing, towards=towards)


_TOWARDS: Final = frozenset({"swap", "plan", "coordinates", "prefill", "corrupt"})
"""Edits that an action can follow; after the others it should stay."""


def _edited(name: EditName, own: str, other: str, pair: Pair, rng: np.random.Generator) -> str | None:
    """Return the edited reasoning; None where there is no place for the edit.

    Args:
        name: the edit, see `ReasoningEdits`.
        own, other: the reasoning on the two sides of the pair.
        pair: the pair.
        rng: draws the move that corrupts, the same for all of a word.
    """
    mine, theirs = list(_MOVE.finditer(own)), list(_MOVE.finditer(other))
    match name:
        case "own":
            return own
        case "swap":
            return other
        case "empty":
            return ""
        case "truncate":
            words = own.split(" ")
            return " ".join(words[: len(words) // 2])
        case "paraphrase":
            return _MOVE.sub(lambda found: f"go {found[1].lower()},", own)
        case "plan":  # the text from the first to the last move
            if not mine or not theirs:
                return None
            return own[: mine[0].start()] + other[theirs[0].start() : theirs[-1].end()] + own[mine[-1].end() :]
        case "coordinates":
            before, after = _cells(pair)
            return re.sub(rf"\(\s*{before[0]}\s*,\s*{before[1]}\s*\)", f"({after[0]},{after[1]})", own)
        case "prefill":  # up to the last cell before the first move
            cells = list(re.finditer(r"\(\s*\d+\s*,\s*\d+\s*\)", other[: theirs[0].start()] if theirs else other))
            return other[: cells[-1].end()] if cells else None
        case "corrupt":
            wrong = [action.name for action in Action if action not in pair.sides[0].optimal]
            return _MOVE.sub(wrong[int(rng.integers(len(wrong)))], own) if wrong and mine else None


def _cells(pair: Pair) -> tuple[Position, Position]:
    """Return the cell of what was moved on either side."""
    name = {"agent": "start", "goal": "goal", "key": "key", "door": "door"}[pair.moved]
    first, second = (getattr(side.view.grid, name) for side in pair.sides)
    return first or (-1, -1), second or (-1, -1)


def _effects(one: Edited, said: Answer) -> Iterator[Row]:
    stays = said.action in one.pair.sides[0].optimal
    values = {STAYS: float(stays), UNSTATED: float(said.action is None)}
    if one.towards:
        follows = said.action in one.towards
        values |= {FOLLOWS: float(follows), ELSEWHERE: float(not follows and not stays)}
    else:
        values[OTHER] = float(said.action in one.pair.sides[1].optimal)
    return pair_rows(one.pair, values, edit=one.name)


def _patched(asked: Asked, pair: Pair) -> Iterator[Row]:
    """Yield the effect of the counterfactual's embeddings at the changed cells, without and with the own reasoning."""
    model, own = local_model(asked.agent), asked.told(pair.sides[0].view)
    assert own is not None  # pairs without reasoning were left out
    replayed = model.encode(own.before + own.reasoning + own.between)
    for name, text in zip(PATCHES, ([], replayed), strict=True):
        prompts = [(*side.prompt, *text) for side in pair.sides]
        edit = Edit(row=0, layer=EMBEDDING, positions=pair.changed, source=1)
        done = generate(model, [Batch(prompts=prompts, edits=[edit])], max_tokens=asked.max_tokens)[0].outputs[0]
        done.tokens[:0] = text
        prompt = pair.sides[0].prompt
        said = model.completion(model.text(prompt), prompt, done, asked.agent.sampling)
        yield from pair_rows(pair, Answer.of(said).effect(pair), edit=name)
