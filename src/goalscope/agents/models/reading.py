"""Read prompts: compute their keys and values in few passes, and each beginning that prompts share only once.

Prompts that pass through the model together end at the same column and compute equally many tokens. A prompt of which
more is stored computes the last of these tokens again, so no padding token is needed. Which prompts pass together is
chosen so that such tokens and passes cost least.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from typing import Any, Final

import numpy as np

from goalscope._ground.progress import TALLY
from goalscope.agents.models._direct import direct, has_hooks
from goalscope.agents.models.cache import CacheRows, check_layers, columns_of, gathered
from goalscope.agents.models.prefixes import Prefixes

Prompts = Sequence[Sequence[int]]
Prompt = tuple[int, ...]
Lookup = tuple[int, list[Any]]
"""Number of tokens of a beginning that are stored, and their columns in pieces."""
Around = Callable[[Sequence[int], Sequence[int]], AbstractContextManager[None]]
"""Context around a forward pass of prompts, given each row's prompt index and the position of its first token."""

_TOKENS_PER_PASS: Final = 128  # an additional pass takes about as long as this many prompt tokens
_MOST_LEVELS: Final = 4  # of beginnings, each a part of the next
_MOST_OCTETS: Final = {"cpu": 1 << 28, "cuda": 1 << 32}  # maximum bytes of the cache of a pass


def common_prefix(prompts: Prompts) -> int:
    """Return the length of the longest common prefix that leaves at least one token of each prompt."""
    # All other prompts lie between these two in lexicographic order.
    low, high = min(prompts, key=tuple), max(prompts, key=tuple)
    limit = min(len(prompt) for prompt in prompts) - 1
    return next((index for index in range(limit) if low[index] != high[index]), limit)


class PromptReader:
    """The passes of a model that read prompts, and its other forward passes.

    Args:
        model: a transformers model.
        prefixes: where beginnings are looked up and stored; None to compute each prompt from its first token.
        most_tokens: maximum number of computed tokens per pass; a single prompt may exceed it.
        most_rows: maximum number of prompts per pass.
        around: see `goalscope.agents.models.decode.Decoding`; only the common prefix is then computed once.
        most_shared: see `goalscope.agents.models.decode.Decoding`.
    """

    def __init__(
        self,
        model: Any,
        prefixes: Prefixes | None,
        *,
        most_tokens: int,
        most_rows: int,
        around: Around | None = None,
        most_shared: int | None = None,
    ) -> None:
        check_layers(model.config)
        accepted = inspect.signature(model.forward).parameters
        if "position_ids" not in accepted:
            raise ValueError(
                "lockstep decoding passes position_ids to the model, which this model's forward pass does not accept: "
                "serve it (vLLM, SGLang, Ollama) and use it as an HTTP model"
            )
        self.model, self._prefixes, self._stored = model, prefixes, prefixes
        # Only the last position passes through the head, since logits of all prompt positions would take gigabytes.
        self._head = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._device = next(model.parameters()).device
        self._most_tokens, self._most_rows = most_tokens, most_rows
        self._around, self._most_shared = around, most_shared
        self.computed = 0  # tokens of the latest pass
        self._most_columns = 1 << 62  # maximum columns of all rows of a pass together
        self.begin()

    def begin(self) -> None:
        """Prepare for passes of the model as it is now: its weights may have changed, and its modules may have hooks.

        While hooks may change keys and values, what is stored is neither used nor extended.
        """
        self._direct = direct(self.model) if self._around is None else None
        if self._prefixes is None or self._stored is None:
            return
        self._prefixes = self._stored
        if has_hooks(self.model):
            self._prefixes = Prefixes(self._stored.limit)
        else:
            self._stored.keep_for(hash(tuple(_stamp(parameter) for parameter in self.model.parameters())))

    def read(
        self, prompts: Sequence[Prompt], numbers: Sequence[int]
    ) -> Iterator[tuple[list[int], list[int], CacheRows, Any]]:
        """Read prompts in passes; equal prompts are computed once. ``numbers`` are their indices for ``around``.

        Yields:
            After each pass: the indices of the prompts that were read, the row of each, the cache of the rows, and the
            logits after their last tokens.
        """
        distinct = list(dict.fromkeys(prompts)) if self._around is None else list(prompts)
        self._share(distinct)
        indices: dict[Prompt, list[int]] = {}
        for index, prompt in enumerate(prompts if self._around is None else ()):
            indices.setdefault(prompt, []).append(index)
        lookups = [self._find(prompt) for prompt in distinct]
        for group in self._groups(distinct, lookups):
            named = [numbers[place] for place in group]
            with nullcontext() if self._around is None else self._around(named, _begins(distinct, lookups, group)):
                rows, logits = self._pass(*_of(group, distinct, lookups), keep=self._around is None)
            if self._around is not None:
                yield group, list(range(len(group))), rows, logits
                continue
            readers = [(index, row) for row, place in enumerate(group) for index in indices[distinct[place]]]
            yield [index for index, _ in readers], [row for _, row in readers], rows, logits

    def forward(
        self, tokens: Sequence[Sequence[int]], rows: CacheRows | None, positions: Any, *, all_columns: bool = False
    ) -> tuple[Any, Any]:
        """Return logits after some tokens (``[B, V]`` of the last column, or ``[B, T, V]`` of all) and the cache."""
        import torch
        from transformers import DynamicCache

        ids = torch.tensor(tokens, device=self._device)
        # Without a configuration, no layer of the cache drops old columns; the mask still contains the sliding windows.
        cache: Any = DynamicCache() if rows is None else rows.cache
        if self._direct is not None:
            before, dead = (
                (0, None) if rows is None else (rows.length, torch.tensor(rows.dead) if any(rows.dead) else None)
            )
            logits = self._direct(ids, dead, torch.tensor(positions), cache, before, all_columns=all_columns)
            return logits, cache
        output = self.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids) if rows is None else rows.mask(ids.shape[1], self._device),
            position_ids=torch.tensor(positions, device=self._device),
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
            **({} if all_columns else self._head),
        )
        return output.logits if all_columns else output.logits[:, -1], output.past_key_values

    def _share(self, prompts: Sequence[Prompt]) -> None:
        """Compute and store the beginnings that several prompts share, before the prompts themselves are read."""
        if self._prefixes is None or len(prompts) < 2:
            return
        if self._around is not None:
            shared = min(common_prefix(prompts), len(prompts[0]) if self._most_shared is None else self._most_shared)
            self._store([prompts[0][:shared]] if shared else [])
            return
        for _ in range(_MOST_LEVELS):
            if not (beginnings := self._beginnings(prompts)):
                return
            self._share(beginnings)
            self._store(beginnings)

    def _store(self, beginnings: Sequence[Prompt]) -> None:
        lookups = [self._find(beginning) for beginning in beginnings]
        for group in self._groups(beginnings, lookups):
            self._pass(*_of(group, beginnings, lookups))

    def _beginnings(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the beginnings that save most tokens if each is computed once before the prompts; [] if few."""
        ordered = sorted(prompts)
        stored_counts = [self._find(prompt)[0] for prompt in ordered]
        table = np.full((len(ordered), max(map(len, ordered))), -1)
        for row, prompt in enumerate(ordered):
            table[row, : len(prompt) - 1] = prompt[:-1]
            table[row, len(prompt) - 1 :] = -1 - row  # leave one token of each prompt, and differ from all others
        common = (table[1:] != table[:-1]).argmax(axis=1).tolist()  # between each prompt and the next

        def best(begin: int, end: int) -> tuple[int, list[Prompt]]:
            if end - begin < 2:
                return 0, []
            shared = min(common[begin : end - 1])
            saved = (shared - min(stored_counts[begin], shared)) * (end - begin - 1)
            cuts = [place + 1 for place in range(begin, end - 1) if common[place] == shared]
            parts = [best(*part) for part in zip([begin, *cuts], [*cuts, end], strict=True)]
            saved_later = sum(part[0] for part in parts)
            if saved_later > saved:
                return saved_later, [beginning for part in parts for beginning in part[1]]
            return saved, [ordered[begin][:shared]] if saved else []

        saved, beginnings = best(0, len(ordered))
        # A first common beginning is also what lets prompts of different lengths pass together.
        return beginnings if saved >= (_TOKENS_PER_PASS if all(stored_counts) else 1) else []

    def _find(self, prompt: Prompt) -> Lookup:
        """Return how much of a prompt is stored, without its last token, and its columns."""
        limit = len(prompt) - 1
        if self._around is not None and self._most_shared is not None:
            limit = min(limit, self._most_shared)
        return (0, []) if self._prefixes is None else self._prefixes.find(prompt[:limit])

    def _groups(self, prompts: Sequence[Prompt], lookups: Sequence[Lookup]) -> list[list[int]]:
        """Divide prompts into passes that cost least; those with the longest prompts come first."""
        left = [len(prompt) - stored for prompt, (stored, _) in zip(prompts, lookups, strict=True)]
        order = sorted(range(len(prompts)), key=lambda place: (-left[place], -len(prompts[place]), prompts[place]))
        # Rows that read from each other stay together.
        cost = _TOKENS_PER_PASS if self._around is None else 1 << 40
        costs, begins = [0], [0]
        for end in range(1, len(order) + 1):
            shortest = longest = len(prompts[order[end - 1]])
            choices = []
            for begin in range(end - 1, -1, -1):
                length, count, computed = len(prompts[order[begin]]), end - begin, left[order[begin]]
                shortest, longest = min(shortest, length), max(longest, length)
                too_large = computed * count > self._most_tokens or longest * count > self._most_columns
                if count > 1 and (computed > shortest or too_large or count > self._most_rows):
                    break
                choices.append((costs[begin] + cost + computed * count, begin))
            best, begin = min(choices)
            costs.append(best)
            begins.append(begin)
        groups, end = [], len(order)
        while end:
            groups.append(order[begins[end] : end])
            end = begins[end]
        return sorted(groups, key=lambda group: -max(len(prompts[place]) for place in group))

    def _pass(self, prompts: Sequence[Prompt], lookups: Sequence[Lookup], keep: bool = True) -> tuple[CacheRows, Any]:
        """Compute prompts that fit together; return their cache and the logits after their last tokens."""
        # By now more may be stored than when the passes were planned, or less.
        lookups = [
            max(earlier, self._find(prompt), key=itemgetter(0))
            for prompt, earlier in zip(prompts, lookups, strict=True)
        ]
        longest = max(map(len, prompts))
        computed = max(len(prompt) - stored for prompt, (stored, _) in zip(prompts, lookups, strict=True))
        rows = None
        if longest > computed:
            assert self._prefixes is not None
            pieces = [
                _first(parts, len(prompt) - computed) for prompt, (_, parts) in zip(prompts, lookups, strict=True)
            ]
            rows = gathered(self._prefixes.shapes, pieces, longest - computed)
        positions = [list(range(len(prompt) - computed, len(prompt))) for prompt in prompts]
        logits, cache = self.forward([prompt[-computed:] for prompt in prompts], rows, positions)
        self.computed = computed * len(prompts)
        TALLY.add(computed_prompt=self.computed)
        if self._prefixes is not None and keep:
            columns, self._prefixes.shapes = columns_of(cache, computed)
            if self._around is None:
                most = _MOST_OCTETS.get(self._device.type, _MOST_OCTETS["cpu"])
                self._most_columns = most // (columns.shape[-1] * columns.element_size())
            for prompt, row in zip(prompts, columns, strict=True):
                self._prefixes.put(prompt, len(prompt) - computed, row)
        dead = [longest - len(prompt) for prompt in prompts]
        return CacheRows(cache=cache, length=longest, dead=dead), logits


def _stamp(parameter: Any) -> tuple[int, int]:
    """Return what changes when a parameter is replaced or changed in place."""
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


def _of(
    group: Sequence[int], prompts: Sequence[Prompt], lookups: Sequence[Lookup]
) -> tuple[list[Prompt], list[Lookup]]:
    return [prompts[place] for place in group], [lookups[place] for place in group]


def _begins(prompts: Sequence[Prompt], lookups: Sequence[Lookup], group: Sequence[int]) -> list[int]:
    """Return the position of the first token that each prompt of a pass computes."""
    computed = max(len(prompts[place]) - lookups[place][0] for place in group)
    return [len(prompts[place]) - computed for place in group]


def _first(pieces: Sequence[Any], count: int) -> list[Any]:
    """Return the first columns of some pieces."""
    cut = []
    for piece in pieces:
        if count <= 0:
            break
        cut.append(piece[:count])
        count -= len(cut[-1])
    return cut
