"""The lockstep engine: decode all current requests in one batch with a shared cache.

Finished requests leave the batch and waiting requests enter it. The longest common prefix of the prompts is computed
once and its cache is copied; the same holds for longer beginnings that the prompts of one pass share. The output of a
request depends only on the request, up to rounding in matrix products of different shapes, which
`benchmarks/determinism.py` measures.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from goalscope._ground.progress import TALLY, Arrived
from goalscope.agents.models._direct import direct
from goalscope.agents.models.base import Finish
from goalscope.agents.models.cache import CacheRows, check_layers, join, rearrange, shifted
from goalscope.agents.models.draws import draw, log_probabilities

Prompts = Sequence[Sequence[int]]
Streams = Sequence[np.random.Generator]
Around = Callable[[Sequence[int], Sequence[int]], AbstractContextManager[None]]
"""Context around a forward pass of prompts, given each row's prompt index and the position of its first token."""

_TOKENS_PER_PASS = 128  # an additional pass takes about as long as this many prompt tokens
_MOST_LOGITS = 1 << 26  # maximum logits that are normalised at once
_TOKENS_PER_STEP = 96  # prompt tokens read per decoding step, which takes about as long as 15 prompt tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Settings for decoding a batch.

    Attributes:
        temperature: see `Sampling`.
        top_p: see `Sampling`.
        max_tokens: see `Sampling`.
        top_logprobs: see `Sampling`.
        stop: ids that end an output.
        slots: maximum number of requests decoded at the same time.
        share_prefix: whether to compute the common prefix only once.
        prefill_tokens: maximum number of prompt tokens per forward pass; a single prompt may exceed it.
        margins: whether to store the margin of each draw.
        gradual: whether requests enter one pass at a time, with decoding steps in between, so that the first outputs
            are complete long before the last prompt is read.
        around: context around each pass of prompts, e.g. to change activations; equal prompts are then not merged.
        most_shared: maximum number of tokens of the common prefix that are computed once, None for all.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    max_tokens: int = 10_000
    top_logprobs: int = 0
    stop: frozenset[int] = frozenset()
    slots: int = 64
    share_prefix: bool = True
    prefill_tokens: int = 4096
    margins: bool = False
    gradual: bool = False
    around: Around | None = None
    most_shared: int | None = None


@dataclass(slots=True, kw_only=True)
class Decoded:
    """One output.

    Attributes:
        tokens: token ids, including the stop token.
        finish: how the output ended.
        logprobs: one mapping per token if requested, else empty.
        margins: one number per token if requested, else empty; see `goalscope.agents.models.draws.Draws`.
    """

    tokens: list[int] = field(default_factory=list)
    finish: Finish = "length"
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)


def common_prefix(prompts: Prompts) -> int:
    """Return the length of the longest common prefix that leaves at least one token of each prompt."""
    # All other prompts lie between these two in lexicographic order.
    low, high = min(prompts, key=tuple), max(prompts, key=tuple)
    limit = min(len(prompt) for prompt in prompts) - 1
    return next((index for index in range(limit) if low[index] != high[index]), limit)


def _parting(rows: Sequence[tuple[int, ...]]) -> int:
    """Return the length of row beginnings (see `_Batch._read`) that are worth computing once, 1 for none."""
    table = np.array(sorted(rows))
    first_difference = (table[1:] != table[:-1]).argmax(axis=1)  # between each row and the next
    saved = {
        int(end): (int(end) - 1) * int((first_difference >= end).sum())
        for end in set(first_difference.tolist())
        if end > 1
    }
    best = max(saved, key=saved.__getitem__, default=1)
    return best if saved.get(best, 0) > _TOKENS_PER_PASS else 1


def decode(
    model: Any, settings: Decoding, prompts: Prompts, rngs: Streams, arrived: Arrived[Decoded] = lambda outputs: None
) -> list[Decoded]:
    """Return the output of each prompt, in order; ``arrived`` is called after each pass with newly complete outputs."""
    import torch

    if not prompts:
        return []
    batch = _Batch(model, settings, prompts, rngs, arrived)
    with torch.inference_mode():
        return batch.run()


def score(
    model: Any,
    settings: Decoding,
    prompts: Prompts,
    answers: Sequence[Prompts],
    arrived: Arrived[list[list[float]]] = lambda scores: None,
) -> list[list[list[float]]]:
    """Return the log-probability of each token of some answers to each prompt, as `score_on_cores` does."""
    import torch

    if not prompts:
        return []
    with torch.inference_mode():
        return _Batch(model, settings, prompts, ()).score(answers, arrived)


def check_prompts(model: Any, prompts: Prompts) -> int | None:
    """Check that a model can read prompts, and return its number of token positions; None if it has no limit."""
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    limit = limit if isinstance(limit, int) and limit > 0 else None
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"a prompt must have at least one token, but prompt {index} has none")
        if limit is not None and len(prompt) >= limit:
            raise ValueError(
                f"a prompt must leave room for an output in the model's {limit} positions, but prompt {index} has "
                f"{len(prompt)} tokens: use smaller worlds, a shorter history or another model"
            )
    return limit


class _Batch:
    """The requests of one call of `decode`: waiting requests, and live requests in the rows of a cache."""

    def __init__(
        self,
        model: Any,
        settings: Decoding,
        prompts: Prompts,
        rngs: Streams,
        arrived: Arrived[Decoded] = lambda outputs: None,
    ) -> None:
        check_layers(model.config)
        accepted = inspect.signature(model.forward).parameters
        self._direct = direct(model) if settings.around is None else None
        if "position_ids" not in accepted:
            raise ValueError(
                "lockstep decoding passes position_ids to the model, which this model's forward pass does not accept: "
                "serve it (vLLM, SGLang, Ollama) and use it as an HTTP model"
            )
        self._model, self._config, self._settings = model, model.config, settings
        # Only the last position passes through the head, since logits of all prompt positions would take gigabytes.
        self._head = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._device = next(model.parameters()).device
        limit = check_prompts(model, prompts)
        # Maximum output tokens of each prompt.
        self._room = [min(settings.max_tokens, (limit or np.inf) - len(prompt)) for prompt in prompts]
        self._prompts, self._rngs, self._arrived = prompts, rngs, arrived
        self._outputs = [Decoded() for _ in prompts]
        self._waiting = list(range(len(prompts)))
        self._live: list[int] = []
        self._rows: CacheRows | None = None
        self._shared = common_prefix(prompts) if settings.share_prefix and len(prompts) > 1 else 0
        if settings.most_shared is not None:
            self._shared = min(self._shared, settings.most_shared)
        self._prefix: Any = None
        self._steps_due = 0  # decoding steps to make before further requests enter

    def run(self) -> list[Decoded]:
        self._arrived([])
        self._share()
        while self._waiting or self._live:
            free = self._settings.slots - len(self._live)
            # Requests enter in groups, since each entry copies the cache of all live rows.
            few = free < min(len(self._waiting), -(-self._settings.slots // 4))
            if self._waiting and (not self._live or not (few or self._steps_due)):
                self._enter(free)
            if self._live:
                self._step()
        return self._outputs

    def score(self, answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]) -> list[list[list[float]]]:
        """Return the log-probability of each token of the answers to each prompt; nothing is drawn."""
        arrived([])
        self._share()
        max_prompts = max(1, self._settings.slots // max(map(len, answers), default=1))
        scores: dict[int, list[list[float]]] = {}
        for group in self._groups(self._waiting):
            for begin in range(0, len(group), max_prompts):
                part = group[begin : begin + max_prompts]
                scored = list(zip(part, self._scored(part, [answers[index] for index in part]), strict=True))
                scores.update(scored)
                arrived(scored)
        return [scores[index] for index in range(len(answers))]

    def _scored(self, group: Sequence[int], answers: Sequence[Prompts]) -> list[list[list[float]]]:
        """Return the log-probabilities of the answers to prompts that pass through the model together.

        The prompts pass once. Their caches are then copied for each answer, and all answers pass in one batch. Shorter
        answers are padded on the right, where no later token attends to the padding.
        """
        import torch

        rows, logits = self._prefill(group)
        first = torch.log_softmax(logits.double(), dim=-1)
        owners = [row for row, prompt_answers in enumerate(answers) for _ in prompt_answers]
        answer_ids = [list(answer) for prompt_answers in answers for answer in prompt_answers]
        # Values leave the device in one transfer, and not one by one.
        begun = first[owners, [answer[0] for answer in answer_ids]].tolist()
        scores = [[value] for value in begun]
        length = max(map(len, answer_ids)) - 1
        if length:
            rearrange(rows, owners)
            tokens = [(answer[:-1] + answer[-1:] * length)[:length] for answer in answer_ids]
            starts = [len(self._prompts[group[row]]) for row in owners]
            positions = [list(range(start, start + length)) for start in starts]
            TALLY.add(computed_prompt=length * len(owners))
            later_logits, _ = self._forward(tokens, rows, positions, all_columns=True)
            following = [(answer[1:] + answer[-1:] * length)[:length] for answer in answer_ids]
            wanted = torch.tensor(following, device=later_logits.device).unsqueeze(-1)
            # A few rows at a time: in double precision the logits of a large vocabulary take gigabytes.
            at_once = max(1, _MOST_LOGITS // (length * later_logits.shape[-1]))
            for begin in range(0, len(owners), at_once):
                part = slice(begin, begin + at_once)
                log_probabilities = torch.log_softmax(later_logits[part].double(), dim=-1)
                values = log_probabilities.gather(-1, wanted[part]).squeeze(-1).tolist()
                for row, row_values in enumerate(values, start=begin):
                    scores[row] += row_values[: len(answer_ids[row]) - 1]
        ordered = iter(scores)
        return [[next(ordered) for _ in prompt_answers] for prompt_answers in answers]

    def _share(self) -> None:
        """Compute the common prefix of all prompts once."""
        from transformers import DynamicCache

        if self._shared:
            # Without a configuration, no layer of the cache drops old columns; the mask still contains the sliding
            # windows.
            tokens = [list(self._prompts[0][: self._shared])]
            _, self._prefix = self._forward(tokens, None, [list(range(self._shared))], DynamicCache())
            TALLY.add(computed_prompt=self._shared)

    def _forward(
        self,
        tokens: list[list[int]],
        rows: CacheRows | None,
        positions: list[list[int]],
        cache: Any = None,
        *,
        all_columns: bool = False,
    ) -> tuple[Any, Any]:
        """Return logits after some tokens (``[B, V]`` of the last column, or ``[B, T, V]`` of all) and the cache."""
        import torch
        from transformers import DynamicCache

        ids = torch.tensor(tokens, device=self._device)
        if rows is not None:
            cache = rows.cache
        elif cache is None:
            cache = DynamicCache(config=self._config)
        if self._direct is not None:
            before, dead = (
                (0, None) if rows is None else (rows.length, torch.tensor(rows.dead) if any(rows.dead) else None)
            )
            logits = self._direct(ids, dead, torch.tensor(positions), cache, before, all_columns=all_columns)
            return logits, cache
        output = self._model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids) if rows is None else rows.mask(ids.shape[1], self._device),
            position_ids=torch.tensor(positions, device=self._device),
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
            **({} if all_columns else self._head),
        )
        return output.logits if all_columns else output.logits[:, -1], output.past_key_values

    def _step(self) -> None:
        """Add one token to every live row."""
        assert self._rows is not None
        tokens = [[self._outputs[index].tokens[-1]] for index in self._live]
        # The newest token is not in the cache yet, so its position equals the number of tokens before it.
        positions = [[len(self._prompts[index]) + len(self._outputs[index].tokens) - 1] for index in self._live]
        logits, cache = self._forward(tokens, self._rows, positions)
        self._rows.cache, self._rows.length = cache, self._rows.length + 1
        self._steps_due = max(0, self._steps_due - 1)
        finished = self._draw(logits, self._live)
        count = len(finished) - sum(finished)
        if not count:
            self._live, self._rows = [], None
        elif any(finished):
            # The last rows move into the places of finished rows.
            fillers = iter(row for row in range(count, len(finished)) if not finished[row])
            order = [next(fillers) if finished[row] else row for row in range(count)]
            rearrange(self._rows, order)
            self._live = [self._live[row] for row in order]

    def _draw(self, logits: Any, indices: Sequence[int]) -> list[bool]:
        """Draw the next token of some outputs, report outputs that are now complete, and return which are complete."""
        settings = self._settings
        uniforms = np.array([self._rngs[index].random() for index in indices]) if settings.temperature > 0 else None
        draws = draw(logits, temperature=settings.temperature, top_p=settings.top_p, uniforms=uniforms)
        tokens = draws.tokens.tolist()
        scores = log_probabilities(logits, draws.tokens, settings.top_logprobs) if settings.top_logprobs else None
        margins = draws.margins.tolist() if settings.margins else None
        finished = []
        for row, index in enumerate(indices):
            output = self._outputs[index]
            output.tokens.append(tokens[row])
            if scores is not None:
                output.logprobs.append(scores[row])
            if margins is not None:
                output.margins.append(margins[row])
            stopped = tokens[row] in settings.stop
            output.finish = "stop" if stopped else "length"
            finished.append(stopped or len(output.tokens) >= self._room[index])
        TALLY.add(computed_output=len(finished))
        self._arrived([(index, self._outputs[index]) for index, done in zip(indices, finished, strict=True) if done])
        return finished

    def _enter(self, free: int) -> None:
        """Fill free slots with waiting requests: compute their prompts and draw their first tokens."""
        groups = self._groups(self._waiting[:free])[: 1 if self._settings.gradual else None]
        entering = {index for group in groups for index in group}
        self._waiting = [index for index in self._waiting if index not in entering]
        length = max(0 if self._rows is None else self._rows.length, *(len(self._prompts[index]) for index in entering))
        self._rows = join(self._config, self._parts(groups), len(self._live) + len(entering), length)

    def _parts(self, groups: Sequence[Sequence[int]]) -> Iterator[CacheRows]:
        """Yield the caches of live rows and of entering groups, whose first tokens are drawn here."""
        if self._rows is not None:
            yield self._rows
            self._rows = None
        for group in groups:
            part, logits = self._prefill(group)
            if self._settings.gradual:
                self._steps_due = (part.length - self._shared) * len(group) // _TOKENS_PER_STEP
            finished = self._draw(logits, group)
            keep = [row for row, done in enumerate(finished) if not done]
            self._live += [group[row] for row in keep]
            if keep:
                if len(keep) < len(group):
                    rearrange(part, keep)
                yield part

    def _groups(self, entering: Sequence[int]) -> list[list[int]]:
        """Divide requests into groups that can pass through the model together without padding tokens.

        With a shared prefix of S tokens, the lengths in a group may differ by up to S, since shorter rows compute some
        tokens of the prefix again. Without a prefix, the lengths must be equal.
        """
        groups: list[list[int]] = []
        by_length = sorted(entering, key=lambda index: (-len(self._prompts[index]), list(self._prompts[index])))
        for index in by_length:
            longest = len(self._prompts[groups[-1][0]]) if groups else 0
            computed = (longest - self._shared) * (len(groups[-1]) + 1) if groups else 0
            near = groups and longest - len(self._prompts[index]) <= self._shared
            if near and computed <= self._settings.prefill_tokens:
                groups[-1].append(index)
            else:
                groups.append([index])
        return groups

    def _prefill(self, group: Sequence[int]) -> tuple[CacheRows, Any]:
        """Return the cache of some prompts and the logits after their last tokens; equal prompts are computed once."""
        group_prompts = [tuple(self._prompts[index]) for index in group]
        around = self._settings.around
        prompts = list(dict.fromkeys(group_prompts)) if around is None else group_prompts
        longest = max(len(prompt) for prompt in prompts)
        begins = [len(prompt) - longest + self._shared for prompt in prompts]  # earlier tokens come from the prefix
        read = [(longest - len(prompt), *prompt[begin:]) for prompt, begin in zip(prompts, begins, strict=True)]
        with nullcontext() if around is None else around(group, begins):
            logits, rows = self._read(read)
        if len(prompts) < len(group_prompts):
            row_of = {prompt: row for row, prompt in enumerate(prompts)}
            order = [row_of[prompt] for prompt in group_prompts]
            rearrange(rows, order)
            logits = logits[order]
        return rows, logits

    def _read(self, read: Sequence[tuple[int, ...]]) -> tuple[Any, CacheRows]:
        """Compute rows of equal length after the common prefix; return the last logits and the cache.

        Each row is a tuple: its number of dead columns, then its tokens. Beginnings that several rows share are
        computed once.
        """
        dead = [row[0] for row in read]
        together = self._settings.share_prefix and self._settings.around is None
        parting = _parting(read) if together else 1
        rows = shifted(self._config, self._prefix, dead) if self._prefix is not None and parting == 1 else None
        if parting > 1:
            number_of = {row: number for number, row in enumerate(dict.fromkeys(row[:parting] for row in read))}
            _, rows = self._read(list(number_of))
            rearrange(rows, [number_of[row[:parting]] for row in read])
        first, end = (self._shared + length - 1 for length in (parting, len(read[0])))
        positions = [list(range(first - count, end - count)) for count in dead]
        logits, cache = self._forward([list(row[parting:]) for row in read], rows, positions)
        TALLY.add(computed_prompt=(end - first) * len(read))
        return logits, CacheRows(cache=cache, length=end, dead=dead)
