"""Generation and scoring with changed activations. Rows that read from each other pass through the model together.

Edits apply only in the pass of the prompt. Later tokens read the changed keys and values from the cache; without a
cache, the prompt would be computed again, unchanged, and the edits would have no effect.

A batch whose keys and values do not fit into memory is divided into several passes, each with all rows that its rows
read from.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from goalscope._ground.rng import stream
from goalscope.agents.models.cache import token_octets
from goalscope.agents.models.decode import Decoded, Decoding, check_prompts, decode, score
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.threads import is_small, own_cores, work_on_cores
from goalscope.inside.interventions.edits import Edit, Editor

Output = TypeVar("Output")
LogProbabilities = Sequence[Sequence[float]]
"""``[A]`` for each of some answers, the log-probability of each of its tokens, in nats."""

_SHARE: Final = 2  # part of the memory without the weights that keys and values may take: one of so many


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
        batches: each passes through the model at once if it fits into memory; a small model computes one per core.
        max_tokens: maximum number of output tokens.

    Raises:
        ValueError: if an edit does not fit the model or its prompt; the message says why.
    """
    stop = model.stop

    def compute(network: Any, passes: "_Passes", number: int, rows: Sequence[int]) -> Sequence[Decoded]:
        settings = passes.settings(max_tokens=max_tokens, stop=stop, slots=max(1, len(rows)))
        rngs = [stream(0, "greedy")] * len(rows)  # at temperature 0 no random numbers are drawn
        return decode(network, settings, passes.batch.prompts, rngs)

    lengths = [[[len(prompt) + max_tokens] for prompt in batch.prompts] for batch in batches]
    return _outputs(model, batches, lengths, compute)


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

    def compute(network: Any, passes: "_Passes", number: int, rows: Sequence[int]) -> Sequence[LogProbabilities]:
        of_rows = [answers[number][row] for row in rows]
        slots = max(1, sum(map(len, of_rows)), len(rows) * max(map(len, of_rows), default=1))
        return score(network, passes.settings(slots=slots), passes.batch.prompts, of_rows)

    lengths = [
        [[len(prompt) + len(answer) for answer in row] for prompt, row in zip(batch.prompts, of_batch, strict=True)]
        for batch, of_batch in zip(batches, answers, strict=True)
    ]
    return _outputs(model, batches, lengths, compute)


def _outputs(
    model: LocalModel,
    batches: Sequence[Batch],
    lengths: Sequence[Sequence[Sequence[int]]],
    compute: Callable[[Any, "_Passes", int, Sequence[int]], Sequence[Output]],
) -> list[BatchOutputs[Output]]:
    """Compute the outputs of all batches, each in one pass, or in several if its tokens do not fit into memory.

    Args:
        model: a local model.
        batches: the batches.
        lengths: ``[batch, N, A]`` maximum number of tokens of each prompt with each of its outputs.
        compute: returns the outputs of a pass, given the network, the pass, the number of its batch, and its rows.
    """
    with model.alone() as network, _editing(network, batches) as editor:
        most, positions = most_tokens(network), check_prompts(network, ())
        parts: list[tuple[int, list[int]]] = []
        for number, batch in enumerate(batches):
            tokens = [sum(min(length, positions or length) for length in row) for row in lengths[number]]
            parts += [(number, rows) for rows in _parts(batch, tokens, most)]

        def run(part: tuple[int, list[int]]) -> list[tuple[Output, float | None]]:
            number, rows = part
            passes = _Passes(editor, _selected(batches[number], rows))
            return list(zip(compute(network, passes, number, rows), passes.rerouted, strict=True))

        results = work_on_cores(network, run, parts)
    by_row = [dict[int, tuple[Output, float | None]]() for _ in batches]
    for (number, rows), result in zip(parts, results, strict=True):
        for row, output in zip(rows, result, strict=True):
            by_row[number].setdefault(row, output)  # a row that several passes need counts in the first
    joined = [[of_batch[row] for row in sorted(of_batch)] for of_batch in by_row]
    return [
        BatchOutputs(outputs=[output for output, _ in part], rerouted=[share for _, share in part]) for part in joined
    ]


def most_tokens(network: Any) -> int:
    """Return how many tokens may be in memory in one pass of a model.

    Their keys and values may take half of the memory of the device without the weights; passes that are computed at the
    same time share it. The limit depends on the machine alone, so that results can be repeated.
    """
    parameter = next(network.parameters())
    weights = sum(value.numel() * value.element_size() for value in network.parameters())
    if network.device.type == "cuda":
        import torch

        memory = int(torch.cuda.get_device_properties(network.device).total_memory)
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    config = network.config.get_text_config(decoder=True)
    octets = token_octets(config, parameter.element_size()) or parameter.element_size()
    passes = own_cores() if is_small(network) else 1
    return int(max(0, memory - weights) // (_SHARE * passes * octets))


def _parts(batch: Batch, tokens: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the rows of each pass, with at most ``most`` tokens; a row is in every pass with rows that read from it."""
    needs = [{row} if batch.clean is None else {row, batch.clean[row]} for row in range(len(batch.prompts))]
    for edit in batch.edits:
        needs[edit.row] |= edit.reads
    while needs != (further := [set[int]().union(*(needs[other] for other in rows)) for rows in needs]):
        needs = further
    part = set[int]()
    for rows in needs:
        if part and sum(tokens[row] for row in part | rows) > most:
            yield sorted(part)
            part = set()
        part |= rows
    if part:
        yield sorted(part)


def _selected(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return some rows of a batch as a batch."""
    number = {row: index for index, row in enumerate(rows)}
    return Batch(
        prompts=[batch.prompts[row] for row in rows],
        edits=[edit.renumbered(number) for edit in batch.edits if edit.row in number],
        clean=None if batch.clean is None else [number[batch.clean[row]] for row in rows],
    )


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
        self._editor, self.batch = editor, batch
        self.rerouted: list[float | None] = [None] * len(batch.prompts)

    @contextmanager
    def __call__(self, rows: Sequence[int], begins: Sequence[int]) -> Iterator[None]:
        """Apply the edits in one pass."""
        with self._editor.applying(self.batch.edits, rows, begins) as chosen:
            yield
        self._compare(rows, begins, chosen)

    def settings(self, **limits: Any) -> Decoding:
        """Return the decoding settings of the batch: one pass, with no more shared tokens than its edits allow."""
        shared = min((edit.first for edit in self.batch.edits), default=None)
        tokens = len(self.batch.prompts) * max(map(len, self.batch.prompts), default=0)
        return Decoding(temperature=0.0, prefill_tokens=tokens, around=self, most_shared=shared, **limits)

    def _compare(self, rows: Sequence[int], begins: Sequence[int], chosen: dict[int, Any]) -> None:
        clean = self.batch.clean
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
