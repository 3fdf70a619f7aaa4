"""Generation and scoring with changed activations. Rows that read from each other pass through the model together.

Edits apply only in the pass of the prompt. Later tokens read the changed keys and values from the cache; without a
cache, the prompt would be computed again, unchanged, and the edits would have no effect.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from goalscope._ground.rng import stream
from goalscope.agents.models.decode import Decoded, Decoding, decode, score
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.threads import work_on_cores
from goalscope.inside.interventions.edits import Edit, Editor

Output = TypeVar("Output")
LogProbabilities = Sequence[Sequence[float]]
"""``[A]`` for each of some answers, the log-probability of each of its tokens, in nats."""

_EVERYTHING = 2**62  # maximum tokens of a pass; rows that read from each other stay together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Prompts that pass through the model together, and their edits.

    Attributes:
        prompts: ``[N]`` token ids of each prompt, whose continuation is generated or scored.
        edits: the edits, which refer to prompts by their index in ``prompts``.
        clean: ``[N]`` index of the unchanged prompt with which the routing of each prompt is compared; by default its
            own.
    """

    prompts: Sequence[Sequence[int]]
    edits: Sequence[Edit] = ()
    clean: Sequence[int] | None = None


def each_change(prompt: Sequence[int], changes: Sequence[Sequence[Edit]]) -> Batch:
    """Build a batch with one copy of a prompt per change, whose edits refer to the prompt as prompt 0."""
    edits = [replace(edit, row=row) for row, change in enumerate(changes) for edit in change]
    return Batch(prompts=[prompt] * len(changes), edits=edits)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchOutputs(Generic[Output]):
    """The outputs after each prompt of a batch.

    Attributes:
        outputs: ``[N]`` outputs.
        rerouted: ``[N]`` fraction of (token, layer) pairs of the pass with another set of experts than in the unchanged
            prompt; None for a model without experts, or prompts of another length.
    """

    outputs: Sequence[Output]
    rerouted: Sequence[float | None]


def generate(model: LocalModel, batches: Sequence[Batch], *, max_tokens: int) -> list[BatchOutputs[Decoded]]:
    """Generate token ids freely (the most likely at each position) after each prompt, with changed activations in it.

    Args:
        model: a local model.
        batches: each passes through the model at once; a small model computes one per core.
        max_tokens: maximum number of output tokens.

    Raises:
        ValueError: if an edit does not fit the model or its prompt; the message says why.
    """
    stop = model.stop
    with model.alone() as network, _editing(network, batches) as editor:
        return work_on_cores(network, partial(_generated, network, editor, stop, max_tokens), list(batches))


def score_answers(
    model: LocalModel, batches: Sequence[Batch], answers: Sequence[Sequence[Sequence[Sequence[int]]]]
) -> list[BatchOutputs[LogProbabilities]]:
    """Return the log-probabilities of the tokens of given answers, in nats, with changed activations in the prompts.

    Args:
        model: a local model.
        batches: as in `generate`.
        answers: ``[batch, N, A]`` token ids of each answer.

    Raises:
        ValueError: see `generate`.
    """
    with model.alone() as network, _editing(network, batches) as editor:
        return work_on_cores(network, partial(_scored, network, editor), list(zip(batches, answers, strict=True)))


@contextmanager
def _editing(network: Any, batches: Sequence[Batch]) -> Iterator[Editor]:
    """Check all edits and hook every place that they change, before any thread begins."""
    editor = Editor(network)
    for batch in batches:
        editor.check(batch.edits, [len(prompt) for prompt in batch.prompts])
    places = {edit.place for batch in batches for edit in batch.edits}
    with editor.hooked(places, routing=any(batch.clean is not None for batch in batches)):
        yield editor


class _Passes:
    """Context factory that applies the edits of a batch in its prompt passes and records rerouted tokens."""

    def __init__(self, editor: Editor, batch: Batch) -> None:
        self._editor, self._batch = editor, batch
        self.rerouted: list[float | None] = [None] * len(batch.prompts)

    @contextmanager
    def __call__(self, rows: Sequence[int], begins: Sequence[int]) -> Iterator[None]:
        """Apply the edits in one pass."""
        with self._editor.applying(self._batch.edits, rows, begins) as chosen:
            yield
        self._compare(rows, begins, chosen)

    def settings(self, **limits: Any) -> Decoding:
        """Return the decoding settings of the batch: one pass, with no more shared tokens than its edits allow."""
        shared = min((edit.first for edit in self._batch.edits), default=None)
        return Decoding(temperature=0.0, prefill_tokens=_EVERYTHING, around=self, most_shared=shared, **limits)

    def _compare(self, rows: Sequence[int], begins: Sequence[int], chosen: dict[int, Any]) -> None:
        clean = self._batch.clean
        if not chosen or clean is None:
            return
        import torch

        row_of = {prompt: row for row, prompt in enumerate(rows)}
        pairs = [(row, row_of[clean[prompt]]) for prompt, row in row_of.items() if clean[prompt] in row_of]
        pairs = [(row, clean_row) for row, clean_row in pairs if begins[row] == begins[clean_row]]
        if not pairs:
            return
        changed_rows, clean_rows = (torch.tensor(side) for side in zip(*pairs, strict=True))
        fractions = []
        for indices in chosen.values():
            order = indices.sort(dim=-1).values
            fractions.append((order[changed_rows] != order[clean_rows]).any(dim=-1).float().mean(dim=-1))
        for (row, _), fraction in zip(pairs, torch.stack(fractions).mean(dim=0).tolist(), strict=True):
            self.rerouted[rows[row]] = float(fraction)


def _generated(
    network: Any, editor: Editor, stop: frozenset[int], max_tokens: int, batch: Batch
) -> BatchOutputs[Decoded]:
    passes = _Passes(editor, batch)
    settings = passes.settings(max_tokens=max_tokens, stop=stop, slots=max(1, len(batch.prompts)))
    rngs = [stream(0, "greedy")] * len(batch.prompts)  # at temperature 0 no random numbers are drawn
    outputs = decode(network, settings, batch.prompts, rngs)
    return BatchOutputs(outputs=outputs, rerouted=passes.rerouted)


def _scored(
    network: Any, editor: Editor, work: tuple[Batch, Sequence[Sequence[Sequence[int]]]]
) -> BatchOutputs[LogProbabilities]:
    batch, answers = work
    passes = _Passes(editor, batch)
    settings = passes.settings(slots=max(1, sum(map(len, answers)), len(answers) * max(map(len, answers), default=1)))
    return BatchOutputs(outputs=score(network, settings, batch.prompts, answers), rerouted=passes.rerouted)
