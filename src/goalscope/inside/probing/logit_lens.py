"""The logit lens, which applies a model's final norm and unembedding to its residual stream at earlier layers.

No probe is fitted. The lens is scored on the action that was taken and on the optimal actions; the control is the same
lens on networks with random weights.

Source: nostalgebraist 2020, interpreting GPT: the logit lens; Belrose et al. 2023, Eliciting latent predictions from
transformers with the tuned lens (where it fails: early layers may write in another basis).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.hooks import DecoderBlocks
from goalscope.inside.activations.shards import Activations
from goalscope.inside.activations.sites import SiteFinder
from goalscope.inside.probing.fitting import grid_weights
from goalscope.inside.probing.inputs import NOWHERE, ProbeInputs
from goalscope.inside.probing.labels import NO_ACTION, Cells, Steps, steps_of
from goalscope.inside.probing.scores import Grids, Measured
from goalscope.runs import Episode
from goalscope.runs.record import Step
from goalscope.stats.rows import Rows
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.planning import solve

if TYPE_CHECKING:
    from torch import Tensor

PROBABILITY: Final = "lens, probability of the token"
RANK: Final = "lens, rank of the token"
AMONG: Final = "lens, probability among actions"
RANK_AMONG: Final = "lens, rank among actions"
TAKEN: Final = "lens, action taken"
OPTIMAL: Final = "lens, optimal action"
MEASURES: Final = {
    PROBABILITY: "share",
    RANK: "rank",
    AMONG: "share",
    RANK_AMONG: "rank",
    TAKEN: "share",
    OPTIMAL: "share",
}
"""Measures and their units; a rank counts from 1, the likeliest."""
HEAD: Final = "logit-lens"
BLIND: Final = "commonest action"
"""The baseline without input: the action most often taken, or optimal, on the training grids."""
_BATCH: Final = 64
_WORD: Final = r"""(["']?action["']?\s*:\s*["']?\s*){}\b"""

Network = tuple[str, int | None]
"""The agent's model (`OWN`), or kind and seed of a random network."""
OWN: Final[Network] = ("none", None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LensSteps(Steps):
    """What the logit lens should read at each of N steps: the agent's action, as a token of its answer.

    Attributes:
        action: ``[N]`` int64, the action taken, `NO_ACTION` if the answer names none.
        token: ``[N]`` int64, id of the token with which the name of that action begins in the answer.
        optimal: ``[N, 4]`` bool, whether an action is truly optimal.
        tokens: for each of the four actions, the ids of the tokens with which its name begins in the answers of the
            run.

    Raises:
        ValueError: if two actions begin with the same token.
    """

    SHAPES: ClassVar = {"action": "N", "token": "N", "optimal": "N 4", **Steps.SHAPES}

    action: npt.NDArray[np.int64]
    token: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.bool_]
    tokens: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        self._accept()
        all_tokens = [item for ids in self.tokens for item in ids]
        if len(self.tokens) != len(ACTIONS) or not all(self.tokens) or len(set(all_tokens)) < len(all_tokens):
            described = ", ".join(f"{item.name} {ids}" for item, ids in zip(ACTIONS, self.tokens, strict=False))
            raise ValueError(
                f"the words of the four actions must begin with different tokens, got {described}: leave the "
                "reading logit-lens out"
            )


def label_tokens(cells: Cells, episodes: Iterable[Episode], model: LocalModel) -> LensSteps:
    """Find the token with which the agent's answer names its action at each labelled step, for scoring the logit lens.

    Args:
        cells: the steps.
        episodes: the run's episodes, with the token ids of their answers; read once.
        model: the agent's model; only its tokenizer and template are used.

    Returns:
        Actions, tokens and optimal actions, in the order of the steps.

    Raises:
        ValueError: if no answer with token ids names its action, or two actions start with the same token.
    """
    finder, count = SiteFinder(model, ("action",)), len(cells)
    action, token = np.full((2, count), NO_ACTION, dtype=np.int64)
    optimal = np.zeros((count, len(ACTIONS)), dtype=bool)
    tokens: list[set[int]] = [set() for _ in ACTIONS]
    example: tuple[Step, Episode] | None = None
    for row, episode, number in steps_of(cells, episodes):
        step = episode.steps[number]
        optimal[row] = solve(episode.world.grid).optimal_in(step.state)
        begins = _begins(finder, step, episode)
        if begins is not None and step.action is not None:
            action[row], token[row] = int(step.action), begins
            tokens[int(step.action)].add(begins)
            example = example or (step, episode)
    if example is None:
        raise ValueError(
            "the logit lens needs answers with token ids that name their action, but no step has one: "
            "capture a run that stores the ids of its outputs, or leave the reading logit-lens out"
        )
    for absent, ids in zip(ACTIONS, tokens, strict=True):
        if not ids:  # the action was never taken, so its word is put in place of another action's word
            token_id = _begins(finder, _exchanged(example[0], absent, model), example[1])
            ids |= set() if token_id is None else {token_id}
    step_fields = {name: getattr(cells, name) for name in Steps.SHAPES}
    return LensSteps(
        action=action, token=token, optimal=optimal, tokens=tuple(tuple(sorted(ids)) for ids in tokens), **step_fields
    )


def _begins(finder: SiteFinder, step: Step, episode: Episode) -> int | None:
    """Return the token with which the word of the action begins in the answer to a step, or None."""
    positions = finder.find(step, episode.world.grid).positions.get("action")
    if positions is None or not step.output_tokens or not step.prompt_tokens:
        return None
    return int(step.output_tokens[int(positions[0]) + 1 - len(step.prompt_tokens)])


def _exchanged(step: Step, action: Action, model: LocalModel) -> Step:
    """Return a copy of a step whose answer names another action in the same letter case."""
    assert step.action is not None
    tokenizer: Any = model.tokenizer
    text = str(tokenizer.decode(list(step.output_tokens or ()), skip_special_tokens=False))
    *_, last = re.finditer(_WORD.format(step.action.name), text, re.IGNORECASE)
    begin, end = last.end(1), last.end()
    name = action.name.lower() if text[begin:end].islower() else action.name
    return replace(step, action=action, output_tokens=tuple(model.encode(text[:begin] + name + text[end:])))


class Lens:
    """The logit lens of a transformers causal language model: copies of its last norm and its unembedding.

    They turn the residual stream after any layer into logits of tokens.
    """

    def __init__(self, model: Any) -> None:
        blocks = DecoderBlocks(model)
        self._norm: Any = copy.deepcopy(blocks.norm)
        self._unembedding: Any = copy.deepcopy(model.get_output_embeddings())
        self._cap: float | None = getattr(model.config, "final_logit_softcapping", None)
        parameter = next(self._unembedding.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype

    def logits(self, vectors: npt.NDArray[np.float32]) -> Iterator[Tensor]:
        """Yield the token logits of residual vectors ``[N, D]``, in batches ``[B, V]`` float32: vectors by
        vocabulary.
        """
        import torch

        for begin in range(0, len(vectors), _BATCH):
            with torch.inference_mode():
                batch = torch.tensor(vectors[begin : begin + _BATCH], device=self._device, dtype=self._dtype)
                logits = self._unembedding(self._norm(batch)).float()
                yield logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)

    def read(self, activations: Activations, steps: LensSteps) -> dict[str, npt.NDArray[np.float64]]:
        """Score the logit lens at N steps, from the last token position of the activations.

        Returns the values ``[N]`` of each of `MEASURES`, such as the probability of the token that begins the action;
        NaN for steps without an action.
        """
        import torch

        columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in MEASURES}
        offset = 0
        for logits in self.logits(activations.vectors[:, -1]):
            rows = slice(offset, offset + len(logits))
            offset += len(logits)
            action, token = (
                torch.tensor(np.maximum(values[rows], 0), device=logits.device)[:, None]
                for values in (steps.action, steps.token)
            )
            logs = logits.log_softmax(dim=1)
            action_logs = torch.stack(
                [logs[:, list(action_log)].logsumexp(dim=1) for action_log in steps.tokens], dim=1
            )  # [B, 4]
            best = action_logs.argmax(dim=1)
            token_log, action_log = logs.gather(1, token), action_logs.gather(1, action)
            optimal = torch.tensor(steps.optimal[rows], device=logits.device)
            for name, values in {
                PROBABILITY: token_log.exp()[:, 0],
                RANK: 1 + (logs > token_log).sum(dim=1),
                AMONG: (action_log - action_logs.logsumexp(dim=1, keepdim=True)).exp()[:, 0],
                RANK_AMONG: 1 + (action_logs > action_log).sum(dim=1),
                TAKEN: best == action[:, 0],
                OPTIMAL: optimal.gather(1, best[:, None])[:, 0],
            }.items():
                columns[name].append(values.double().cpu().numpy())
        has_action = steps.action != NO_ACTION
        return {name: np.where(has_action, np.concatenate(parts), np.nan) for name, parts in columns.items()}


def score_lens(data: ProbeInputs, steps: LensSteps, lens: Callable[[Network], Lens]) -> Rows:
    """Score the logit lens of the agent's model and of random networks on the test grids, at each site and layer.

    Args:
        data: activations, of which the test part is used.
        steps: the agent's actions at the steps of the activations, see `label_tokens`.
        lens: function that returns the lens of a network. A network is a pair of control and seed, such as a kind of
            random weights with its seed; ("none", None) is the agent's own model.

    Returns:
        One row per measure (see `MEASURES`) and test grid, tagged by head ("logit-lens", or the baseline "commonest
        action"), control, draw (seed of the random network), site, layer, size and density.
    """
    data.cells.check_aligned(steps, "tokens of actions")
    tested, grids = data.split.test, Grids.of(data.cells.where(data.split.test))
    test_steps, rows = steps.where(tested), []

    def score(
        by_measure: Mapping[str, npt.NDArray[np.float64]], head: str, network: Network, place: tuple[Any, Any]
    ) -> Rows:
        measured: list[Measured] = [
            (name, MEASURES[name], grids.mean(values), {}) for name, values in by_measure.items()
        ]
        (control, draw), (site, layer) = network, place
        return grids.rows(measured, {"head": head, "control": control, "draw": draw, "site": site, "layer": layer})

    networks: list[tuple[Network, Iterable[Activations]]] = [(OWN, data.activations), *data.random.items()]
    for network, group in networks:
        network_lens = lens(network)
        for activations in group:
            by_measure = network_lens.read(activations.where(tested), test_steps)
            rows.append(score(by_measure, HEAD, network, activations.place))
    blind = _blind(steps.where(data.split.train), test_steps)
    return Rows.concatenate([*rows, score(blind, BLIND, OWN, NOWHERE)])


def _blind(train: LensSteps, test_steps: LensSteps) -> dict[str, npt.NDArray[np.float64]]:
    """Return the scores in N test steps ``[N]`` of always naming one action.

    This action is the best one in the training steps, in which all grids have equal weight.
    """
    train_known, test_known = train.action != NO_ACTION, test_steps.action != NO_ACTION
    if not train_known.any():
        return {}
    weights = grid_weights(train.cluster[train_known])
    commonest = np.bincount(train.action[train_known], weights, len(ACTIONS)).argmax()
    optimal = (weights @ train.optimal[train_known]).argmax()
    return {
        TAKEN: np.where(test_known, (test_steps.action == commonest).astype(np.float64), np.nan),
        OPTIMAL: np.where(test_known, test_steps.optimal[:, optimal].astype(np.float64), np.nan),
    }
