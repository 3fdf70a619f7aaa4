"""Counterfactual pairs of hand-made models, whose prompts are no grids: what the experiments of the package work on.

The grids that a pair or a state shows are real, and say which class the token at the site is of. The prompts are those
of `handmade`: the site's token is the token of the cell that changes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from handmade import (
    CODE,
    CONSTANT,
    DOWN,
    FILLER,
    IS_INPUT,
    IS_LAST,
    IS_SITE,
    JUNK,
    LAST,
    READ,
    THIRD,
    UP,
    WIDTH,
    A,
    B,
    Move,
    Product,
    handmade,
)
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from goalscope.agents import ChatAgent
from goalscope.agents.models import Sampling
from goalscope.inside.activations.sites import Sites
from goalscope.inside.interventions import Batch, Pair, Side, generate
from goalscope.inside.interventions.reading import Passage, ReadStates
from goalscope.report import RivalsSentence
from goalscope.report.definitions import verdict
from goalscope.report.sections import interventions as section
from goalscope.stats.rows import Rows
from goalscope.worlds import Action, Grid, GridView, generate_batch

SITE_AT = 4
ACTIONS = {UP: Action.UP, DOWN: Action.DOWN}


def reader(size: int) -> Any:
    """Return a tokenizer of ids: each but those of the answers is written as its number in angle brackets."""
    answers = {UP + at: f'{{"action": "{name}"}}' for at, name in enumerate(("UP", "DOWN", "LEFT", "RIGHT"))}
    special = {0: "<pad>", 1: "<eos>", 2: "<unk>", 3: "<think>", 4: "</think>"}
    words = [{**answers, **special}.get(at, f"<{at}>") for at in range(size)]
    core = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    core.decoder = decoders.Fuse()
    core.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    found: Any = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    found.chat_template = f"{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}<{FILLER}><{LAST}>"
    return found


class SiteFinder:
    """Finds the site of hand-made prompts, whatever it is called."""

    def find(self, step: Any, grid: Any) -> Sites:
        at = np.array([SITE_AT])
        return Sites(positions={"grid": at, "pre": at, "post": at, "action": at}, missing={})


def moved_goals(count: int, seed: int) -> list[tuple[GridView, GridView, tuple[int, int]]]:
    """Return grids, each with the goal somewhere else, and the cell where it then is."""
    found = []
    rng = np.random.default_rng(seed)
    for grid in generate_batch(7, 0.6, seed=seed, count=count, name="grids of hand-made pairs"):
        free = [cell for cell in zip(*np.nonzero(~grid.walls), strict=True) if cell not in (grid.start, grid.goal)]
        row, col = free[int(rng.integers(len(free)))]
        other = Grid(walls=grid.walls, start=grid.start, goal=(int(row), int(col)))
        found.append((GridView(grid=grid), GridView(grid=other), (int(row), int(col))))
    return found


def pair_of(
    views: tuple[GridView, GridView], cell: tuple[int, int], prompts: Sequence[Sequence[int]], written: Sequence[int],
    cluster: str,
) -> Pair:  # fmt: skip
    """Return a pair whose goal moves to, or from, a cell, with what the model wrote on both sides."""
    sides = [
        Side(
            view=view,
            optimal=frozenset({ACTIONS[token]}),
            prompt=tuple(prompt),
            output=(token,),
            action=ACTIONS[token],
        )
        for view, prompt, token in zip(views, prompts, written, strict=True)
    ]
    return Pair(
        moved="goal", control=False, cluster=cluster, tags={"size": 7, "density": 0.6}, sides=(sides[0], sides[1]),
        cells=(cell,), changed=np.array([SITE_AT]), tokenizer="",
    )  # fmt: skip


def verdicts(kind: str, rows: Rows) -> dict[tuple[str, str], str]:
    """Return what the report's sentences say of an experiment: (sentence, what it is said of) -> verdict."""
    found: dict[tuple[str, str], str] = {}
    for claim in section.declared(kind, rows).sentences:
        assert isinstance(claim, RivalsSentence)
        for label, rivals in claim.differences:
            found[claim.title, label] = verdict(rivals, higher=claim.higher)
    return found


_FACTORS = 11  # dimensions of the site that the last token multiplies with those of a carrier
_SITE_FACTORS, _CARRIED = range(9, 9 + _FACTORS), range(9 + _FACTORS, 9 + 2 * _FACTORS)
_MARK = 8.0
_STATES = 40


class Null:
    """A model whose action a site sways, though in no direction more than in others, and towards no source's action.

    The code of the input decides the action; the last token adds to it the product of what the site holds and what a
    carrier holds. The site's token is drawn isotropically, the carrier's anew for each pair: each change of the site
    changes some actions, and no direction is special in any of them. One direction of the site tells goals from other
    cells: probes find it. The carriers of sources hold nothing, so that their actions do not depend on their sites.

    Args:
        seed: draws all of it.
        pairs: pairs that are tried; about three quarters are kept.
        sway: how much the site counts beside the code.
    """

    def __init__(self, seed: int, pairs: int, *, sway: float = 2.5) -> None:
        self.rng = np.random.default_rng([seed, 5])
        self.seed, self.pairs = seed, pairs
        self.site = self.rng.standard_normal((7 * _STATES + 2 * pairs, WIDTH))
        self.order = self._order()
        self._mark()
        self.site[:, CONSTANT] += 1.0
        self.site[:, IS_SITE] += _MARK
        carriers = np.zeros((pairs + 1, WIDTH))
        carriers[:, [CONSTANT, THIRD]] = 1.0
        carriers[:pairs, _CARRIED] = self.rng.standard_normal((pairs, _FACTORS))
        table = np.concatenate([self.site, carriers])
        moves = [
            Move(layer=0, to=IS_LAST, source=IS_INPUT, dims={CODE: READ}),
            Move(layer=1, to=IS_LAST, source=THIRD, dims={dim: dim for dim in _CARRIED}),
            Move(layer=2, to=IS_LAST, source=IS_SITE, dims={dim: dim for dim in _SITE_FACTORS}),
        ]
        factors = list(zip(_SITE_FACTORS, _CARRIED, strict=True))
        self.model = handmade(
            moves,
            3,
            self._readout(),
            junk=torch.from_numpy(table).float(),
            products=[Product(layer=2, factors=factors, into=READ, weight=sway)],
            reader=reader(JUNK + len(table)),
        )
        self.agent = ChatAgent(model=self.model, sampling=Sampling(temperature=0.0, max_tokens=1))

    def _order(self) -> Any:
        """Return the tokens of states, those that are goals first: the ones that lie farthest along a direction."""
        along = self.rng.standard_normal(WIDTH)
        told = self.site[: 7 * _STATES] @ along / np.linalg.norm(along)
        return np.argsort(-(told + self.rng.standard_normal(len(told)) * 0.5))

    def _mark(self) -> None:
        """Change the tokens of the site; here, none."""

    def _readout(self) -> dict[int, float]:
        return {READ: 1.0}

    def _prompt(self, code: int, site: int, carrier: int) -> list[int]:
        return [FILLER, code, JUNK + len(self.site) + carrier, FILLER, JUNK + site, FILLER, LAST]

    def _tokens(self, pair: int) -> tuple[int, int]:
        """Return the tokens of a pair at the site."""
        first = 7 * _STATES + 2 * pair
        return first, first + 1

    def found(self) -> list[Pair]:
        """Return the pairs whose sides act differently, as a null's do where both do what their codes say."""
        views = moved_goals(self.pairs, self.seed)
        turned = self.rng.random(self.pairs) < 0.5
        prompts = []
        for pair in range(self.pairs):
            codes, sites = ((B, A) if turned[pair] else (A, B)), self._tokens(pair)
            sites = sites[::-1] if turned[pair] else sites
            prompts += [self._prompt(codes[0], sites[0], pair), self._prompt(codes[1], sites[1], self.pairs)]
        batches = [Batch(prompts=[one]) for one in prompts]
        written = [one.outputs[0].tokens[0] for one in generate(self.model, batches, max_tokens=1)]
        kept = []
        for pair, (before, after, cell) in enumerate(views):
            mine = slice(2 * pair, 2 * pair + 2)
            if written[mine][0] != written[mine][1]:
                shown = (after, before) if turned[pair] else (before, after)
                kept.append(pair_of(shown, cell, prompts[mine], written[mine], f"grid {pair}"))
        return kept

    def seen(self) -> ReadStates:
        """Return states whose cells' tokens are those of the site: goals, and others."""
        goals, others = self.order[:_STATES], self.order[_STATES:]
        views, passages = [], []
        for at, grid in enumerate(generate_batch(7, 0.6, seed=self.seed, count=_STATES, name="grids of states")):
            assert grid.goal is not None
            ids = JUNK + self.rng.choice(others, size=grid.height * grid.width)
            ids[grid.goal[0] * grid.width + grid.goal[1]] = JUNK + goals[at]
            views.append(GridView(grid=grid))
            passages.append(Passage(ids=tuple(ids.tolist()), replayed=0, places=np.arange(len(ids))))
        return ReadStates(views=views, clusters=[f"state {at}" for at in range(_STATES)], passages={"grid": passages})


_DECIDES = _SITE_FACTORS[0]


class Planted(Null):
    """A model whose action the site decides: by the dimension that tells goals from other cells."""

    def _order(self) -> Any:
        return self.rng.permutation(7 * _STATES)

    def _mark(self) -> None:
        goals = [*self.order[:_STATES], *(self._tokens(pair)[1] for pair in range(self.pairs))]
        self.site[:, _DECIDES] = -2.0
        self.site[goals, _DECIDES] = 2.0

    def _readout(self) -> dict[int, float]:
        return {_DECIDES: 1.0}
