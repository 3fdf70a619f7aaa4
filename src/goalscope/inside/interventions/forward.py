"""Edits of activations inside a forward pass, and generation and scoring with changed activations.

An edit copies activations from another row of the same pass or writes given vectors. Rows that read from each other
pass through the model together, because activations of two passes with different shapes differ by rounding. A patch
from a row to itself is therefore bit-identical.

Edits apply only in the pass of the prompt. Later tokens read the changed keys and values from the cache; without a
cache, the prompt would be computed again, unchanged, and the edits would have no effect.

A batch whose keys and values do not fit into memory is divided into several passes, each with all rows that its rows
read from.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.rng import stream
from goalscope.agents.models.decode import (
    Decoded,
    Decoding,
    check_prompts,
    decode,
    most_tokens,
    score,
    work_on_cores,
)
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.hooks import DecoderBlocks

EMBEDDING: Final = -1
"""Number of the layer whose output is what the first block reads."""

Component = Literal["residual", "attention", "mlp"]
"""The part of a layer that is changed: the residual stream after it, or the output of its attention or of its MLP."""
COMPONENTS: Final[tuple[Component, ...]] = get_args(Component)

How = Literal["replace", "add", "noise"]
Place = tuple[int, Component]

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "attention": ("self_attn", "attn", "attention", "self_attention"),
    "mlp": ("mlp", "block_sparse_moe", "feed_forward"),
}
_ROUTERS: Final = ("router", "gate")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edit:
    """A change to the activations of one prompt at one layer during a forward pass.

    Let x be the source vector. ``replace`` writes x and ``add`` adds x. ``noise`` writes ``c + |x - c| u``, where c is
    the vector of the prompt `clean` at the same position and u a given unit vector, i.e. a patch of the same size in
    another direction.

    Attributes:
        row: index of the prompt to change among the prompts of the call.
        layer: number of the block, 0-based; `EMBEDDING` for the input of the first block.
        positions: ``[P]`` int64 different token positions in that prompt.
        component: see `Component`; the embedding has only the residual.
        source: index of the prompt to read, or None if vectors are given.
        source_positions: ``[P]`` int64 positions in that prompt; the same positions by default.
        vectors: ``[P, D]`` tensor to write or add (positions by width). For `noise`, the unit vectors u or, with a bank
            (see below) of N positions, weights ``[P, N]`` of the bank's centred activations; normally distributed
            weights give u the covariance of the bank.
        how: kind of edit, see above.
        clean: for `noise`, index of the prompt with the vectors c, read at `positions`.
        bank: for `noise`, prompts and positions whose activations define the covariance of u.

    Raises:
        ValueError: inconsistent fields, which the message names.
    """

    row: int
    layer: int
    positions: npt.NDArray[np.int64]
    component: Component = "residual"
    source: int | None = None
    source_positions: npt.NDArray[np.int64] | None = None
    vectors: Any = None
    how: How = "replace"
    clean: int | None = None
    bank: tuple[tuple[int, npt.NDArray[np.int64]], ...] = ()

    def __post_init__(self) -> None:
        positions = _position_array(self.positions, "positions")
        object.__setattr__(self, "positions", positions)
        if len(set(positions.tolist())) < len(positions):
            raise ValueError(f"the positions of an edit must be different, got {positions.tolist()}")
        if self.component not in COMPONENTS:
            raise ValueError(f"component must be one of {', '.join(COMPONENTS)}, got {self.component!r}")
        if self.layer == EMBEDDING and self.component != "residual":
            raise ValueError(f"the embedding (layer {EMBEDDING}) has no {self.component}: set component to residual")
        if self.how not in get_args(How):
            raise ValueError(f"how must be one of {', '.join(get_args(How))}, got {self.how!r}")
        present = {name for name in ("source", "vectors", "clean") if getattr(self, name) is not None}
        if present not in ([{"source", "vectors", "clean"}] if self.how == "noise" else [{"source"}, {"vectors"}]):
            raise ValueError(
                "an edit needs either source or vectors, and noise needs source, vectors and clean; got "
                f"how={self.how!r} with {', '.join(sorted(present)) or 'none of them'}"
            )
        source_positions = self.positions if self.source_positions is None else self.source_positions
        object.__setattr__(self, "source_positions", _position_array(source_positions, "source_positions"))
        for name, count in (("source_positions", len(source_positions)), ("vectors", _length(self.vectors))):
            if count not in (None, len(positions)):
                raise ValueError(f"an edit of {len(positions)} positions needs as many {name}, got {count}")

    @property
    def place(self) -> Place:
        """The layer and the component (residual stream, attention or MLP) whose activations the edit changes."""
        return self.layer, self.component

    @property
    def reads(self) -> set[int]:
        """Indices of the prompts whose activations the edit reads: those that it copies, and those that define
        noise.
        """
        return {row for row in (self.source, self.clean, *(row for row, _ in self.bank)) if row is not None}

    def renumbered(self, number: Mapping[int, int]) -> "Edit":
        """Return the edit for a call with only some of the prompts; ``number`` maps the old numbers of prompts to new
        ones.
        """
        return replace(
            self,
            row=number[self.row],
            source=None if self.source is None else number[self.source],
            clean=None if self.clean is None else number[self.clean],
            bank=tuple((number[row], positions) for row, positions in self.bank),
        )

    @property
    def first(self) -> int:
        """The first token position that the edit reads or writes. Prompts of a batch may share a cache only before
        it.
        """
        read = () if self.source is None or self.source_positions is None else self.source_positions
        return int(min((*self.positions, *read, *(position for _, positions in self.bank for position in positions))))


def _position_array(positions: Any, name: str) -> npt.NDArray[np.int64]:
    places = np.asarray(positions)
    if places.ndim != 1 or not len(places) or places.dtype.kind not in "iu" or places.min() < 0:
        raise ValueError(f"{name} of an edit must be a list of token positions >= 0, got {positions!r}")
    return freeze(places.astype(np.int64))


def _length(vectors: Any) -> int | None:
    return None if vectors is None else int(vectors.shape[0])


class Editor:
    """Applies edits to the activations of a model by forward hooks, without changing the model itself.

    Args:
        model: a transformers causal language model of a known type, see `goalscope.inside.activations.hooks.PLACES`.

    Raises:
        ValueError: the type of the model is unknown.
    """

    def __init__(self, model: Any) -> None:
        self.blocks = DecoderBlocks(model)
        self._active = threading.local()

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of all layers: `EMBEDDING` (the input of the first block), then the decoder blocks from 0."""
        return (EMBEDDING, *self.blocks.layers)

    def check(self, edits: Iterable[Edit], lengths: Sequence[int]) -> None:
        """Check that all edits fit the model and the prompts that they change.

        Args:
            edits: the edits.
            lengths: number of tokens of each prompt.

        Raises:
            ValueError: if a layer, prompt, position or width does not exist.
        """
        for edit in edits:
            if edit.layer not in self.layers:
                raise ValueError(
                    f"layer must be in {EMBEDDING}..{self.blocks.count - 1}, where {EMBEDDING} is the embedding, "
                    f"got {edit.layer!r}: the model has {self.blocks.count} blocks"
                )
            reads = edit.bank if edit.source is None else ((edit.source, edit.source_positions), *edit.bank)
            clean = () if edit.clean is None else ((edit.clean, edit.positions),)
            for row, positions in ((edit.row, edit.positions), *reads, *clean):
                if not 0 <= row < len(lengths):
                    raise ValueError(
                        f"the rows of an edit must be prompts 0..{len(lengths) - 1} of its call, got {row}"
                    )
                if positions is not None and positions.max() >= lengths[row]:
                    raise ValueError(
                        f"the positions of an edit of prompt {row} must be below its length {lengths[row]}, got "
                        f"{positions.max()}"
                    )
            vectors = None if edit.bank else edit.vectors
            if vectors is not None and (vectors.ndim != 2 or vectors.shape[-1] != self.blocks.width):
                raise ValueError(
                    f"vectors of an edit must have the width {self.blocks.width} of the model, got shape "
                    f"{list(vectors.shape)}: check that they belong to this model"
                )
            self._module(edit.place)

    @contextmanager
    def hooked(self, places: Iterable[Place], *, routing: bool = False) -> Iterator[None]:
        """Return a context manager that hooks modules of the model, so that `applying` can change their activations.

        The hooks are removed when the context ends, also after an error.

        Args:
            places: pairs of layer and component ("residual", "attention" or "mlp") to hook.
            routing: whether to record the experts that mixture-of-experts routers choose.
        """
        handles = []
        try:
            for place in sorted(set(places)):
                module, before = self._module(place)
                if before:
                    hook = self._before(place)
                    handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
                else:
                    handles.append(module.register_forward_hook(self._after(place)))
            for layer, router in self.routers() if routing else ():
                handles.append(router.register_forward_hook(self._routed(layer)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def applying(self, edits: Sequence[Edit], rows: Sequence[int], begins: Sequence[int]) -> Iterator[dict[int, Any]]:
        """Return a context manager within which forward passes of this thread have their activations edited.

        The places that the edits change must have been hooked with `hooked`.

        Args:
            edits: the edits, which refer to prompts by index.
            rows: ``[B]`` index of the prompt of each row of the pass.
            begins: ``[B]`` the position in its prompt of each row's first token.

        Yields:
            The experts that mixture-of-experts routers chose, so that the effect of an edit on them can be measured:
            layer -> ``[B, T, K]`` (rows, tokens, experts). Filled in at the end of the pass; empty for models without
            routers, and unless `hooked` was called with ``routing``.

        Raises:
            ValueError: an edit reads a prompt that is not in this pass, or a position that was computed before the
                pass.
        """
        row_of = {prompt: row for row, prompt in enumerate(rows)}
        operations: dict[Place, list[_Operation]] = {}
        for edit in edits:
            if edit.row in row_of:
                operations.setdefault(edit.place, []).append(_Operation.of(edit, row_of, begins))
        chosen: dict[int, Any] = {}
        self._active.operations = {place: _merged(group) for place, group in operations.items()}
        self._active.chosen, self._active.rows = chosen, len(rows)
        try:
            yield chosen
        finally:
            self._active.operations, self._active.chosen = {}, None

    def routers(self) -> list[tuple[int, Any]]:
        """Return the routers of mixture-of-experts layers, as (number of the layer, module); empty for a dense
        model.
        """
        routers = []
        for layer, block in enumerate(self.blocks.list):
            mlp = next((getattr(block, name) for name in _NAMES["mlp"] if hasattr(block, name)), None)
            gates = [getattr(mlp, name, None) for name in _ROUTERS]
            routers += [(layer, gate) for gate in gates if hasattr(gate, "top_k")][:1]
        return routers

    def _module(self, place: Place) -> tuple[Any, bool]:
        """Return the module to hook for a place, and whether the place is the input of this module, not its output."""
        layer, component = place
        if layer == EMBEDDING:
            return self.blocks.list[0], True
        block = self.blocks.list[layer]
        if component == "residual":
            return block, False
        names = _NAMES[component]
        module = next((getattr(block, name) for name in names if hasattr(block, name)), None)
        if module is None:
            raise ValueError(
                f"a block must have its {component} in one of {', '.join(names)}, but {type(block).__name__} "
                "has none of these: set component to residual"
            )
        return module, False

    def _before(self, place: Place) -> Any:
        def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            operations = getattr(self._active, "operations", {}).get(place)
            if not operations:
                return None
            if args:
                return (_changed(args[0], operations), *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": _changed(kwargs["hidden_states"], operations)}

        return change

    def _after(self, place: Place) -> Any:
        def change(module: Any, inputs: Any, output: Any) -> Any:
            operations = getattr(self._active, "operations", {}).get(place)
            if not operations:
                return None
            if isinstance(output, tuple):
                return (_changed(output[0], operations), *output[1:])
            return _changed(output, operations)

        return change

    def _routed(self, layer: int) -> Any:
        def keep(module: Any, inputs: Any, output: Any) -> None:
            chosen = getattr(self._active, "chosen", None)
            if chosen is not None:
                tensors = output if isinstance(output, tuple) else (output,)
                indices = next(tensor for tensor in reversed(tensors) if not tensor.is_floating_point())
                chosen[layer] = indices.reshape(self._active.rows, -1, indices.shape[-1])

        return keep


@dataclass(slots=True, kw_only=True)
class _Operation:
    """N edits of one kind at one place, stored as indices into the hidden states of a pass.

    The hidden states have the axes B (prompts), T (tokens) and D (width), ``[B, T, D]``.
    """

    rows: list[int]
    columns: list[int]
    how: How
    reads: tuple[list[int], list[int]] | None
    clean: list[int] | None
    vectors: list[Any]
    bank: list[tuple[list[int], list[int]]]

    @classmethod
    def of(cls, edit: Edit, row_of: Mapping[int, int], begins: Sequence[int]) -> "_Operation":
        def column(prompt: int, positions: Any) -> tuple[list[int], list[int]]:
            if prompt not in row_of:
                raise ValueError(
                    f"an edit of prompt {edit.row} reads prompt {prompt}, so both must be in one pass, but their "
                    "lengths differ by more tokens than they share at their beginning: read the vectors of "
                    f"prompt {prompt} first"
                )
            row = row_of[prompt]
            if positions.min() < begins[row]:
                raise ValueError(
                    f"an edit must not change positions before {begins[row]}, which are shared by several rows, "
                    f"got {positions.min()}"
                )
            return [row] * len(positions), (positions - begins[row]).tolist()

        rows, columns = column(edit.row, edit.positions)
        return cls(
            rows=rows,
            columns=columns,
            how=edit.how,
            reads=None if edit.source is None else column(edit.source, edit.source_positions),
            clean=None if edit.clean is None else column(edit.clean, edit.positions)[0],
            vectors=[] if edit.vectors is None else [edit.vectors],
            bank=[column(prompt, positions) for prompt, positions in edit.bank],
        )

    @property
    def kind(self) -> tuple[Any, ...]:
        return self.how, self.reads is None, bool(self.vectors), repr(self.bank)


def _merged(operations: Sequence[_Operation]) -> list[_Operation]:
    """Merge operations of the same kind: a few large operations are faster than many small ones."""
    by_kind: dict[tuple[Any, ...], _Operation] = {}
    for operation in operations:
        merged = by_kind.get(operation.kind)
        if merged is None:
            by_kind[operation.kind] = operation
            continue
        merged.rows += operation.rows
        merged.columns += operation.columns
        merged.vectors += operation.vectors
        if merged.reads is not None and operation.reads is not None:
            merged.reads = merged.reads[0] + operation.reads[0], merged.reads[1] + operation.reads[1]
        if merged.clean is not None and operation.clean is not None:
            merged.clean += operation.clean
    return list(by_kind.values())


def _changed(hidden: Any, operations: Sequence[_Operation]) -> Any:
    """Apply all operations to hidden states, ``[B, T, D]`` as in `_Operation`.

    Every operation reads the original states.
    """
    import torch

    values: Any
    after = hidden
    for operation in operations:
        cells = (
            torch.tensor(operation.rows, device=hidden.device),
            torch.tensor(operation.columns, device=hidden.device),
        )
        values = torch.cat([vectors.to(hidden) for vectors in operation.vectors]) if operation.vectors else None
        if operation.reads is not None:
            read = hidden[operation.reads[0], operation.reads[1]]
            if operation.clean is not None:
                clean = hidden[operation.clean, operation.columns]
                if operation.bank:
                    bank = torch.cat([hidden[rows, columns] for rows, columns in operation.bank])
                    values = torch.nn.functional.normalize(values @ (bank - bank.mean(dim=0)), dim=-1)
                values = clean + (read - clean).norm(dim=-1, keepdim=True) * values
            else:
                values = read
        if operation.how == "add":
            values = after[cells] + values
        after = after.index_put(cells, values)
    return after


Output = TypeVar("Output")
LogProbabilities = Sequence[Sequence[float]]
"""``[A]`` for each of some answers, the log-probability of each of its tokens, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Prompts that pass through the model together, and the edits of their activations.

    Attributes:
        prompts: token ids of each of N prompts, whose continuation is generated or scored.
        edits: the edits, which refer to prompts by their index in ``prompts``.
        clean: ``[N]`` for each prompt the index of the unchanged prompt with which its choice of experts is compared
            (in mixture-of-experts models); by default its own.
    """

    prompts: Sequence[Sequence[int]]
    edits: Sequence[Edit] = ()
    clean: Sequence[int] | None = None


def each_change(prompt: Sequence[int], changes: Sequence[Sequence[Edit]]) -> Batch:
    """Build a batch with one copy of a prompt per change, so that every change is applied to the prompt by itself.

    Args:
        prompt: token ids.
        changes: for each change its edits, which refer to the prompt as number 0.
    """
    edits = [replace(edit, row=row) for row, change in enumerate(changes) for edit in change]
    return Batch(prompts=[prompt] * len(changes), edits=edits)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchOutputs(Generic[Output]):
    """The outputs of a model after each prompt of a batch with edited activations.

    Attributes:
        outputs: ``[N]`` outputs.
        rerouted: ``[N]`` fraction of (token, layer) pairs of the pass with another set of experts than in the unchanged
            prompt; None for a model without experts, or prompts of another length.
    """

    outputs: Sequence[Output]
    rerouted: Sequence[float | None]


def generate(model: LocalModel, batches: Sequence[Batch], *, max_tokens: int) -> list[BatchOutputs[Decoded]]:
    """Generate greedily after each prompt of each batch, while the edits of the batch change activations in the
    prompts.

    Args:
        model: a local model.
        batches: each passes through the model at once if it fits into memory; a small model computes one per core.
        max_tokens: maximum number of output tokens.

    Returns:
        For each batch the generated token ids after each prompt.

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
    """Return the log-probabilities of the tokens of given answers, in nats, with edited activations in the prompts.

    Args:
        model: a local model.
        batches: as in `generate`.
        answers: token ids of each answer, by batch, prompt and answer.

    Returns:
        For each batch and prompt, the log-probability of each token of each answer.

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


def _parts(batch: Batch, tokens: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the rows of each pass, with at most ``most`` tokens.

    A row whose vectors other rows read is in every pass that contains one of these rows.
    """
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
    """Check all edits, and hook every place that one of them changes, before any thread begins."""
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
