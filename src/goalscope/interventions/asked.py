"""What an agent writes without anybody reading its weights: asked once about each view, and given beginnings to end.

A model behind a server is asked as any model. What it wrote is kept with the run, call by call: where the work is cut
short, no call that was answered is made again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np

from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent, turn
from goalscope.ids import content_id
from goalscope.interventions.pairs import Original, Pair, Pairs, Side, best, counterfactuals
from goalscope.interventions.reading import Answer
from goalscope.models.base import Completion, Request, Sampling
from goalscope.models.local import LocalModel
from goalscope.rng import stream
from goalscope.runs import Store
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridView

INFO: Final = "asked without weights"
"""Name under which a run keeps what was written, by the content id of what was asked."""

_KEPT: Final = ("text", "reasoning", "raw", "finish", "marked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an agent wrote: the text before its reasoning, the reasoning, and the text between that and the answer."""

    before: str
    reasoning: str
    between: str
    answer: str
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
        kept = store.info().get(INFO)
        answers = {name: Completion(**one) for name, one in kept.items()} if isinstance(kept, dict) else {}
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
        return Told(before=before, reasoning=reasoning, between=between, answer=said.text, action=Action(action))

    def write_on(self, wanted: Sequence[tuple[GridView, str]]) -> list[Answer]:
        """Return what the agent does after the beginning of an answer to each view."""
        found = []
        for said in self._complete(wanted):
            action = turn(said).action
            text = said.raw if said.raw is not None else f"{said.reasoning or ''}{said.text}"
            found.append(Answer(action=None if action is None else Action(action), text=text))
        return found

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
            kept = {
                name: {key: getattr(one, key) for key in _KEPT} for name, one in self.answers.items()
            }  # fmt: skip
            self.store.put_info(INFO, kept)
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

    def find_pairs(
        self,
        agent: ChatAgent,
        originals: Sequence[Original],
        *,
        moved: Sequence[Any],
        control: bool,
        tries: int,
        seed: int,
    ) -> Pairs:
        """Return pairs as `goalscope.interventions.find_pairs` does, of an agent whose token ids are not known."""
        kept, left_out = [], 0
        for original in originals:
            for thing in moved:
                found = counterfactuals(original, thing, control=control)
                order = stream(seed, "pairs", original.cluster, original.view.text, thing, control)
                chosen = [found[index] for index in order.permutation(len(found))[:tries]] if found else []
                self.ask([original.view, *chosen])
                sides = [self._side(view) for view in (original.view, *chosen)]
                second = next((side for side in sides[1:] if side is not None), None)
                if sides[0] is None or second is None:
                    left_out += 1
                    continue
                kept.append(
                    Pair(
                        moved=thing,
                        control=control,
                        cluster=original.cluster,
                        tags=original.tags,
                        sides=(sides[0], second),
                        cells=(),
                        changed=np.zeros(0, dtype=np.int64),
                        tokenizer="",
                    )
                )
        return Pairs(kept=tuple(kept), left_out={"the agent does not act optimally on both sides": left_out})

    def _side(self, view: GridView) -> Side | None:
        action, optimal = turn(self.known[view]).action, best(view)
        if action not in optimal:
            return None
        return Side(view=view, optimal=optimal, prompt=(), output=(), action=Action(action))
