"""The lockstep engine: decode many requests in one batch with a shared cache, which they join and leave at any step.

Finished requests leave the batch and waiting requests enter it between two steps. Beginnings of prompts are computed
once (`goalscope.agents.models.reading`). The output of a request depends only on the request, up to rounding in matrix
products of different shapes, which `benchmarks/determinism.py` measures.

A batch is a `Lane`. The requests of all callers of a model are decoded together in its `Lanes`: one lane, or for a
small model on a CPU one for each core.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.progress import TALLY, Arrived, StoppedError
from goalscope.agents.models._fast import SMALL, all_experts
from goalscope.agents.models.base import Finish
from goalscope.agents.models.reading import (
    Around,
    CacheRows,
    Prefixes,
    Prompt,
    PromptReader,
    Prompts,
    device_memory,
    enter,
    memory_limit,
    rearrange,
    selected,
    token_octets,
)

# Draw tokens from logits, and compute their log-probabilities.

_LIKELY: Final = (32, 256)  # so many of the most likely tokens often, and nearly always, contain the mass top_p
_ROUNDING: Final = 1e-9  # far above rounding errors in sums of probabilities


class Draws(NamedTuple):
    """Tokens ``[B]`` drawn for a batch of B outputs, with the margin ``[B]`` of each draw.

    A margin says how close the draw was to another token. At temperature 0, it is the gap between the two largest
    logits (nats). Otherwise it is the smallest change of a cumulative probability that changes the draw.
    """

    tokens: Any
    margins: Any


def draw(logits: Any, *, temperature: float, top_p: float, uniforms: npt.NDArray[np.float64] | None) -> Draws:
    """Draw the next token of each of B outputs from the logits of a vocabulary of V tokens.

    The smallest set of most likely tokens whose probabilities reach ``top_p`` is kept. The uniform number is then
    looked up in their cumulative probabilities *in the order of the ids*. Between batch shapes, nearly equal
    probabilities can swap their order through rounding; ordering by id ensures that such swaps do not change a draw.

    Args:
        logits: ``[B, V]`` tensor.
        temperature: 0 takes the largest logit; exact ties go to the lowest id.
        top_p: in (0, 1].
        uniforms: ``[B]`` numbers in [0, 1), one per output; not used at temperature 0.

    Raises:
        ValueError: a logit is NaN or infinite.
    """
    import torch

    if not bool((logits.amax(dim=-1) < torch.inf).all()):  # the largest of numbers with NaN is NaN
        raise ValueError(
            "the logits of a model must be finite numbers, got NaN or infinity: check the weights, and set dtype to "
            "bfloat16 or float32 (float16 overflows in some models)"
        )
    if temperature == 0:
        best = torch.topk(logits, 2, dim=-1).values.double()
        return Draws(logits.argmax(dim=-1), best[:, 0] - best[:, 1])
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    numbers = torch.as_tensor(uniforms, dtype=torch.float64).to(logits.device)[:, None]
    return _among(probabilities, numbers, top_p, _LIKELY if top_p < 1 else ())


def _among(probabilities: Any, numbers: Any, top_p: float, counts: Sequence[int]) -> Draws:
    """Draw from the ``counts[0]`` most likely tokens, or from more tokens in rows where more would change the draw."""
    import torch

    if not counts or probabilities.shape[-1] <= counts[0]:
        # All probabilities, those that are equal by increasing id.
        ordered, order = torch.sort(probabilities, dim=-1, descending=True, stable=True)
        return _drawn(ordered, order, numbers, top_p)[0]
    drawn, enough = _drawn(*torch.topk(probabilities, counts[0], dim=-1), numbers, top_p)
    rest = (~enough).nonzero()[:, 0]
    if len(rest):
        other_draws = _among(probabilities[rest], numbers[rest], top_p, counts[1:])
        drawn.tokens[rest], drawn.margins[rest] = other_draws
    return drawn


def _drawn(ordered: Any, order: Any, numbers: Any, top_p: float) -> tuple[Draws, Any]:
    """Draw from the largest probabilities ``[B, K]`` of ids ``[B, K]``.

    Returns:
        The draws, and ``[B]`` whether neither smaller probabilities nor another order of ties would change them.
    """
    import torch

    mass_before = torch.cumsum(ordered, dim=-1) - ordered
    # The most likely token is kept whatever top_p is.
    dropped = mass_before >= top_p if top_p < 1 else torch.zeros_like(mass_before, dtype=torch.bool)
    dropped[:, 0] = False
    split_ties = (dropped[:, 1:] != dropped[:, :-1]) & (ordered[:, 1:] == ordered[:, :-1])
    enough = (mass_before[:, -1] > top_p + _ROUNDING) & ~split_ties.any(dim=-1)
    ids, by_id = torch.sort(order, dim=-1)
    probabilities_left = ordered.masked_fill(dropped, 0.0).gather(-1, by_id)
    cumulative, width = torch.cumsum(probabilities_left, dim=-1), probabilities_left.shape[-1]
    total = cumulative[:, -1:]
    target = numbers * total
    # The first id whose cumulative probability exceeds the target; it always has a probability above 0.
    places = torch.searchsorted(cumulative, target, right=True).clamp(max=width - 1)
    overshot = probabilities_left.gather(-1, places) == 0  # the target was rounded up to the total mass
    last = width - 1 - (probabilities_left.flip(-1) > 0).to(torch.int8).argmax(dim=-1, keepdim=True)
    places = torch.where(overshot, last, places)
    upper = cumulative.gather(-1, places)
    lower = upper - probabilities_left.gather(-1, places)
    margins = torch.minimum(target - lower, upper - target).clamp(min=0.0) / total
    if top_p < 1:
        margins = torch.minimum(margins, (mass_before[:, 1:] - top_p).abs().amin(dim=-1, keepdim=True))
    return Draws(ids.gather(-1, places)[:, 0], margins[:, 0]), enough


def log_probabilities(logits: Any, tokens: Any, top: int) -> list[dict[str, Any]]:
    """Return the log-probabilities of B drawn tokens and of the most likely tokens, in nats, before temperature is
    applied.

    Args:
        logits: ``[B, V]`` logits of a vocabulary of V tokens, from which each token was drawn.
        tokens: ``[B]`` ids of the drawn tokens.
        top: number of most likely tokens to include.

    Returns:
        For each drawn token a mapping with ``token``, ``logprob`` and ``top``, a list of [token, logprob].
    """
    import torch

    scores = torch.log_softmax(logits.float(), dim=-1)
    chosen = scores.gather(-1, tokens[:, None])[:, 0].tolist()
    best = torch.topk(scores, min(top, scores.shape[-1]), dim=-1)
    rows = zip(tokens.tolist(), chosen, best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        {"token": token, "logprob": score, "top": [list(pair) for pair in zip(ids, values, strict=True)]}
        for token, score, ids, values in rows
    ]


Streams = Sequence[np.random.Generator]

_MOST_LOGITS: Final = 1 << 26  # maximum logits that are normalised at once
_TOKENS_PER_STEP: Final = 96  # prompt tokens read per decoding step, which takes about as long as 15 prompt tokens
_PATIENCE: Final = 8  # maximum steps for which requests wait for others, so that they are read in one pass
_BEAT: Final = 0.2  # seconds between two checks whether a caller wants to stop
_AT_ONCE: Final = 256  # maximum prompts whose passes are planned together


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Settings for decoding a batch of prompts with a local model.

    A request is one prompt with its output. It enters the batch when the model reads its prompt, in a forward pass with
    others.

    Attributes:
        temperature: temperature of sampling; 0 takes the most likely token.
        top_p: tokens are drawn from the most likely tokens whose total probability reaches this value, in (0, 1].
        max_tokens: maximum output tokens, including reasoning.
        top_logprobs: number of alternatives whose log-probabilities are stored with each output token, 0 for none.
        stop: ids that end an output.
        slots: maximum number of requests decoded at the same time.
        share_prefix: whether to compute common beginnings of prompts only once.
        prefill_tokens: maximum number of prompt tokens per forward pass; a single prompt may exceed it.
        margins: whether to store for each drawn token how close the draw was to another token (see `Draws`).
        gradual: whether to decode between two passes that read prompts, so that the first outputs are complete long
            before the last prompt is read.
        around: context manager that is entered around each pass that reads prompts, e.g. to change activations; equal
            prompts are then not merged.
        most_shared: maximum number of tokens of the common beginning that are computed once, None for all.
        most_columns: maximum number of tokens, over all outputs that are decoded together, to hold in memory; None for
            no limit.
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
    most_columns: int | None = None


@dataclass(slots=True, kw_only=True)
class Decoded:
    """The output that a local model generated for one prompt.

    Attributes:
        tokens: token ids, including the stop token.
        finish: how the output ended, one of `FINISHES`.
        logprobs: one mapping per token if requested, else empty.
        margins: one number per token if requested, else empty; see `goalscope.agents.models.decode.Draws`.
    """

    tokens: list[int] = field(default_factory=list)
    finish: Finish = "length"
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)


def decode(
    model: Any, settings: Decoding, prompts: Prompts, rngs: Streams, arrived: Arrived[Decoded] = lambda outputs: None
) -> list[Decoded]:
    """Generate an output for each prompt with a local model, and return the outputs in the order of the prompts.

    All prompts are decoded in one batch.

    Args:
        model: a transformers model.
        settings: settings of sampling and of the batch.
        prompts: token ids of each prompt.
        rngs: random number generator of each output.
        arrived: called after each pass with (index, output) of the outputs that are newly complete.

    Raises:
        ValueError: a prompt is empty or too long for the model.
    """
    job = Job(model, settings, prompts, rngs, arrived)
    lane = Lane(model, settings, new_prefixes(model) if settings.share_prefix else None)
    if lane.submit(job.requests):
        lane.run()
    return job.result()


def new_prefixes(model: Any) -> Prefixes:
    """Return an empty cache for the beginnings that prompts share, with a memory limit that suits the model's
    device.
    """
    return Prefixes(memory_limit(next(model.parameters()).device))


def check_prompts(model: Any, prompts: Prompts) -> int | None:
    """Check that a model can read prompts, given as token ids, and return its number of token positions.

    The result is None if there is no limit.

    Raises:
        ValueError: a prompt is empty, or leaves no position for an output.
    """
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


@dataclass(slots=True, eq=False, kw_only=True)
class LaneRequest:
    """One prompt in a `Lane` (a batch that decodes), with its random numbers, its output limit and its output so far.

    ``job`` is the call that it belongs to, ``index`` its place in this call, ``most`` its maximum number of output
    tokens.
    """

    job: "Job"
    index: int
    prompt: Prompt
    rng: np.random.Generator | None
    most: int
    output: Decoded = field(default_factory=Decoded)


class Job:
    """One call to decode N prompts, whose requests one or several lanes (batches, see `Lane`) carry out.

    Args:
        model: a transformers model.
        settings: settings of sampling and of the batch.
        prompts: ``[N]`` token ids of each prompt.
        rngs: ``[N]`` random number generators, one per output.
        arrived: callback that is called with each output when it is complete; if it raises, the job ends.

    Raises:
        ValueError: a prompt is empty or too long.
    """

    def __init__(
        self, model: Any, settings: Decoding, prompts: Prompts, rngs: Streams, arrived: Arrived[Decoded]
    ) -> None:
        limit = check_prompts(model, prompts)
        self.settings, self._arrived = settings, arrived
        self.requests = list[LaneRequest]()
        for index, (prompt, rng) in enumerate(zip(prompts, rngs, strict=True)):
            most = min(settings.max_tokens, limit - len(prompt)) if limit else settings.max_tokens
            self.requests.append(LaneRequest(job=self, index=index, prompt=tuple(prompt), rng=rng, most=most))
        self.problem: BaseException | None = None
        self.done = threading.Event()
        self._left, self._lock = len(self.requests), threading.Lock()
        if not self._left:
            self.done.set()
        self.take([])

    def take(self, requests: Sequence[LaneRequest]) -> None:
        """Receive requests whose outputs are complete, and pass the outputs to the caller's callback.

        If the callback raises an error, the job ends with this error. Called without requests, it gives the callback a
        chance to stop the job.
        """
        if self.problem is None:
            try:
                self._arrived([(request.index, request.output) for request in requests])
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the caller
                self.problem = error
        self.leave(len(requests))

    def leave(self, count: int) -> None:
        """Record that ``count`` requests of the job are complete or were given up; after the last one, the job is
        done.
        """
        with self._lock:
            self._left -= count
            if self._left <= 0:
                self.done.set()

    def result(self) -> list[Decoded]:
        """Return the outputs of a finished job in the order of its prompts, or raise the error that ended the job."""
        if self.problem is not None:
            raise self.problem
        return [request.output for request in self.requests]


class Lane:
    """A batch in which a model decodes several outputs together: requests enter and leave the batch between two steps.

    Any thread may add requests at any time.

    Args:
        model: a transformers model.
        settings: settings of the whole batch, such as ``slots``, the maximum number of requests decoded at the same
            time. Settings of sampling, such as the temperature, are not taken from here, but from each request.
        prefixes: cache of the beginnings that prompts share, to be used and filled; None to compute each prompt whole.
    """

    def __init__(self, model: Any, settings: Decoding, prefixes: Prefixes | None) -> None:
        self._reader = _reader(model, settings, prefixes, settings.slots)
        self._config, self._settings = model.config, settings
        self._lock, self._waiting, self._live = threading.Lock(), list[LaneRequest](), list[LaneRequest]()
        self._rows: CacheRows | None = None
        self._running = False
        self._steps_due = 0  # decoding steps to make before further requests enter
        self._patience = _PATIENCE
        self._last_beat = time.monotonic()
        self.load = self.tokens = 0
        """Number of requests that wait or are decoded, and number of the tokens of their prompts."""

    def submit(self, requests: Sequence[LaneRequest]) -> bool:
        """Add requests to the batch, and return True if the caller must now call `run`, because no other thread runs
        the batch.
        """
        with self._lock:
            # Longer prompts first, so that the columns of the batch rarely have to be extended.
            self._waiting += sorted(requests, key=lambda request: -len(request.prompt))
            self._count(requests, 1)
            must_run, self._running = bool(requests) and not self._running, True
            return must_run

    def run(self) -> None:
        """Decode until no request of the batch is left.

        If an error occurs, all requests end, and the jobs to which they belong raise this error in their own threads.
        """
        import torch

        try:
            with torch.inference_mode():
                self._reader.begin()
                while self._goes_on():
                    self._drop()
                    if entering := self._entering():
                        self._enter(entering)
                    if self._live:
                        self._step()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def fail(self, error: BaseException) -> None:
        """End all requests of the batch; the jobs to which they belong then raise the given error."""
        with self._lock:
            lost, self._waiting, self._live = [*self._waiting, *self._live], [], []
            self._rows, self._running, self.load, self.tokens = None, False, 0, 0
        for request in lost:
            request.job.problem = request.job.problem or error
            request.job.leave(1)

    def _goes_on(self) -> bool:
        with self._lock:
            self._running = bool(self._waiting or self._live)
            return self._running

    def _count(self, requests: Sequence[LaneRequest], change: int) -> None:
        self.load += change * len(requests)
        self.tokens += change * sum(len(request.prompt) for request in requests)

    def _drop(self) -> None:
        """Give up the requests of jobs that have failed or were stopped."""
        if time.monotonic() - self._last_beat > _BEAT:
            self._last_beat = time.monotonic()
            for job in {request.job for request in [*self._live, *self._waiting]}:
                job.take([])
        with self._lock:
            given_up = [request for request in self._waiting if request.job.problem is not None]
            self._waiting = [request for request in self._waiting if request.job.problem is None]
        ended = [request.job.problem is not None for request in self._live]
        given_up += [request for request, is_over in zip(self._live, ended, strict=True) if is_over]
        self._leave(ended)
        with self._lock:
            self._count(given_up, -1)
        for request in given_up:
            request.job.leave(1)

    def _entering(self) -> list[LaneRequest]:
        """Return the waiting requests that enter before the next step."""
        free = self._settings.slots - len(self._live)
        if self._settings.around is None:
            free = min(free, _AT_ONCE)
        with self._lock:
            count = min(free, len(self._waiting))
            if self._settings.most_columns is not None and count > 0:
                longest = max(len(request.prompt) + request.most for request in [*self._live, *self._waiting[:count]])
                fitting = self._settings.most_columns // longest - len(self._live)
                count = min(count, fitting if self._live else max(1, fitting))
            if count <= 0 or (self._live and self._steps_due):
                return []
            self._patience -= 1
            if self._live and count < len(self._live) // 4 and self._patience > 0:
                return []
            self._patience = _PATIENCE
            entering, self._waiting = self._waiting[:count], self._waiting[count:]
        return entering

    def _enter(self, entering: Sequence[LaneRequest]) -> None:
        """Read the prompts of requests and draw their first tokens."""
        left, prompts = dict.fromkeys(range(len(entering))), [request.prompt for request in entering]
        try:
            for places, row_of, rows, logits in self._reader.read(prompts, [request.index for request in entering]):
                group = [entering[place] for place in places]
                ended = self._draw(logits if row_of == [*range(len(logits))] else logits[row_of], group)
                if staying := [place for place, is_over in enumerate(ended) if not is_over]:
                    self._rows = enter(self._config, self._rows, rows, [row_of[place] for place in staying])
                    self._live += [group[place] for place in staying]
                for place in places:
                    del left[place]
                if self._settings.gradual:
                    self._steps_due = self._reader.computed // _TOKENS_PER_STEP
                    break
        finally:
            with self._lock:
                self._waiting = [entering[place] for place in left] + self._waiting

    def _step(self) -> None:
        """Add one token to every live row."""
        assert self._rows is not None
        tokens = [request.output.tokens[-1:] for request in self._live]
        # The newest token is not in the cache yet, so its position equals the number of tokens before it.
        positions = [[len(request.prompt) + len(request.output.tokens) - 1] for request in self._live]
        logits, cache = self._reader.forward(tokens, self._rows, positions)
        self._rows.cache, self._rows.length = cache, self._rows.length + 1
        self._steps_due = max(0, self._steps_due - 1)
        self._leave(self._draw(logits, self._live))

    def _leave(self, ended: Sequence[bool]) -> None:
        """Remove rows; the last rows move into their places."""
        count = len(ended) - sum(ended)
        if not count:
            self._live, self._rows = [], None
        elif any(ended):
            assert self._rows is not None
            fillers = iter(row for row in range(count, len(ended)) if not ended[row])
            order = [next(fillers) if ended[row] else row for row in range(count)]
            rearrange(self._rows, order)
            self._live = [self._live[row] for row in order]

    def _draw(self, logits: Any, requests: Sequence[LaneRequest]) -> list[bool]:
        """Draw the next token of some outputs, hand out those that are now complete, and return which are complete."""
        by_settings: dict[Decoding, list[int]] = {}
        for row, request in enumerate(requests):
            by_settings.setdefault(request.job.settings, []).append(row)
        for settings, rows in by_settings.items():
            drawing = [requests[row] for row in rows]
            _draw(logits if len(by_settings) == 1 else logits[rows], drawing, settings)
        TALLY.add(computed_output=len(requests))
        ended, complete = [], dict[Job, list[LaneRequest]]()
        for request in requests:
            output = request.output
            output.finish = "stop" if output.tokens[-1] in request.job.settings.stop else "length"
            ended.append(output.finish == "stop" or len(output.tokens) >= request.most)
            if ended[-1]:
                complete.setdefault(request.job, []).append(request)
        with self._lock:
            self._count([request for its_requests in complete.values() for request in its_requests], -1)
        for job, its_requests in complete.items():
            job.take(its_requests)
        return ended


def _draw(logits: Any, requests: Sequence[LaneRequest], settings: Decoding) -> None:
    """Add the next token to some outputs."""
    uniforms = None
    if settings.temperature > 0:
        uniforms = np.array([request.rng.random() for request in requests if request.rng is not None])
    draws = draw(logits, temperature=settings.temperature, top_p=settings.top_p, uniforms=uniforms)
    scores = log_probabilities(logits, draws.tokens, settings.top_logprobs) if settings.top_logprobs else None
    margins = draws.margins.tolist() if settings.margins else None
    for row, (request, token) in enumerate(zip(requests, draws.tokens.tolist(), strict=True)):
        request.output.tokens.append(token)
        if scores is not None:
            request.output.logprobs.append(scores[row])
        if margins is not None:
            request.output.margins.append(margins[row])


def score(
    model: Any,
    settings: Decoding,
    prompts: Prompts,
    answers: Sequence[Prompts],
    arrived: Arrived[list[list[float]]] = lambda scores: None,
    prefixes: Prefixes | None = None,
) -> list[list[list[float]]]:
    """Compute the log-probability of each token of given answers after each prompt, with a local model.

    Nothing is drawn. Equal prompts with equal answers are computed once.

    Args:
        model: a transformers model.
        settings: settings of the batch, of which sampling settings are not used.
        prompts: ``[N]`` token ids of each prompt.
        answers: ``[N, A]`` token ids of the A answers to each prompt.
        arrived: called with (index, scores) of prompts as soon as they are computed.
        prefixes: cache of the beginnings that prompts share, to be used and filled; None for a new one.

    Returns:
        ``[N, A]`` lists with one number per token of the answer, in nats, before temperature is applied.
    """
    import torch

    if not prompts:
        return []
    most_rows = max(1, settings.slots // max(map(len, answers), default=1))
    if prefixes is None and settings.share_prefix:
        prefixes = new_prefixes(model)
    reader = _reader(model, settings, prefixes, most_rows)
    questions = [(tuple(prompt), tuple(map(tuple, its))) for prompt, its in zip(prompts, answers, strict=True)]
    # Edits may give equal prompts different scores.
    owners: dict[Any, list[int]] = {}
    for index, question in enumerate(questions):
        owners.setdefault(question if settings.around is None else index, []).append(index)
    firsts = sorted((indices[0] for indices in owners.values()), key=lambda index: -len(prompts[index]))
    if settings.around is not None:
        firsts = list(range(len(prompts)))
    groups = {indices[0]: indices for indices in owners.values()}
    scores: dict[int, list[list[float]]] = {}
    arrived([])
    at_once = _AT_ONCE if settings.around is None else len(firsts)
    with torch.inference_mode():
        for begin in range(0, len(firsts), at_once):
            part = firsts[begin : begin + at_once]
            for places, row_of, rows, logits in reader.read([questions[index][0] for index in part], part):
                for start in range(0, len(places), most_rows):
                    indices = [part[place] for place in places[start : start + most_rows]]
                    its_rows = row_of[start : start + most_rows]
                    part_scores = _scored(reader, [questions[index] for index in indices], its_rows, rows, logits)
                    new = [
                        (other, its) for index, its in zip(indices, part_scores, strict=True) for other in groups[index]
                    ]
                    scores.update(new)
                    arrived(new)
    return [scores[index] for index in range(len(answers))]


def _scored(
    reader: PromptReader, questions: Sequence[tuple[Prompt, Any]], row_of: Sequence[int], rows: CacheRows, logits: Any
) -> list[list[list[float]]]:
    """Return the log-probabilities of the answers to prompts that were read.

    The caches of the prompts are copied for each answer, and all answers pass in one batch. Shorter answers are padded
    on the right, where no later token attends to the padding.
    """
    import torch

    first = torch.log_softmax(logits.double(), dim=-1)
    owners = [place for place, (_, answers) in enumerate(questions) for _ in answers]
    answer_ids = [list(answer) for _, answers in questions for answer in answers]
    sources = [row_of[place] for place in owners]
    # Values leave the device in one transfer, and not one by one.
    scores = [[value] for value in first[sources, [answer[0] for answer in answer_ids]].tolist()]
    length = max(map(len, answer_ids)) - 1
    if length:
        tokens = [(answer[:-1] + answer[-1:] * length)[:length] for answer in answer_ids]
        starts = [len(questions[place][0]) for place in owners]
        positions = [list(range(start, start + length)) for start in starts]
        TALLY.add(computed_prompt=length * len(owners))
        later_logits, _ = reader.forward(tokens, selected(rows, sources), positions, all_columns=True)
        following = [(answer[1:] + answer[-1:] * length)[:length] for answer in answer_ids]
        next_ids = torch.tensor(following, device=later_logits.device).unsqueeze(-1)
        # A few rows at a time: in double precision the logits of a large vocabulary take gigabytes.
        at_once = max(1, _MOST_LOGITS // (length * later_logits.shape[-1]))
        for begin in range(0, len(owners), at_once):
            part = slice(begin, begin + at_once)
            log_probs = torch.log_softmax(later_logits[part].double(), dim=-1)
            values = log_probs.gather(-1, next_ids[part]).squeeze(-1).tolist()
            for row, row_values in enumerate(values, start=begin):
                scores[row] += row_values[: len(answer_ids[row]) - 1]
    ordered = iter(scores)
    return [[next(ordered) for _ in answers] for _, answers in questions]


def _reader(model: Any, settings: Decoding, prefixes: Prefixes | None, most_rows: int) -> PromptReader:
    return PromptReader(
        model,
        prefixes,
        most_tokens=settings.prefill_tokens,
        most_rows=most_rows,
        around=settings.around,
        most_shared=settings.most_shared,
    )


# Use of the processor's cores: one thread for a small model, and several batches of it in parallel.

ROWS: Final = 256
"""Maximum number of requests per batch for a small model on a CPU, or for a model on a GPU with enough memory."""

_PASS: Final = 3e11
"""Approximate number of floating-point operations in one pass of prompts through a larger model on a CPU.

Such a pass takes a few seconds. The amount of work is fixed, since a measured time would change the shapes of batches
and thus the last bits of results.
"""

SLOTS: Final = 64
"""Maximum number of requests that a larger model decodes at once if memory does not determine it."""

_GRADUAL: Final = 8_000_000  # models with more parameters take long to read all prompts of a batch on a CPU

_FEWEST: Final = 12  # minimum requests per batch; two smaller batches would take longer than one batch

_CHANGING: Final = ("dynamic", "longrope")  # kinds of rotary positions that a forward pass rewrites in the model

_SHARE: Final = "GOALSCOPE_CORES"
"""Environment variable that limits the cores of a process that shares a machine with other workers of its run."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[int]:
    """Let PyTorch compute with a single thread inside this context; yield the previous number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


@contextmanager
def fitting_threads(model: Any) -> Iterator[bool]:
    """Let PyTorch compute with one thread inside this context if the model is small and on a CPU; yield whether it is.

    The operations of a small model take microseconds, so a second thread gains little. If another process occupies the
    second thread's core, the model waits at every operation (we measured 20 times fewer answers per second). Larger
    models keep PyTorch's number of threads.
    """
    small = is_small(model)
    with one_thread() if small else nullcontext():
        yield small


def is_small(model: Any) -> bool:
    """Return whether a model runs on a CPU and has so few parameters that one thread computes it best."""
    return bool(model.device.type == "cpu" and sum(value.numel() for value in model.parameters()) < SMALL)


def own_cores() -> int:
    """Return how many CPU cores this process may use; a process that shares the machine with other workers uses only a
    part.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get(_SHARE, "")
    return min(available, int(limit)) if limit.isdecimal() and int(limit) else available


def share_cores(workers: int) -> int:
    """Limit this process to an equal part of its CPU cores, when ``workers`` processes share the machine.

    Returns:
        The number of cores left, at least one.
    """
    cores = max(1, own_cores() // workers)
    os.environ[_SHARE] = str(cores)
    return cores


def batches(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Divide prompts into batches of similar lengths and about equal work.

    If there are enough prompts, there are at least two batches, for two cores; a process that is limited to one core
    makes only as many as ``rows`` requires. The division depends only on the lengths, so the number of cores changes no
    output.

    Args:
        lengths: ``[N]`` number of tokens of each prompt.
        rows: maximum number of prompts per batch on average.

    Returns:
        The indices of the prompts in each batch, longest prompt first; no batch is empty.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    single_core = os.environ.get(_SHARE) == "1"
    count = max(-(-len(lengths) // rows), 1 if single_core else min(2, len(lengths) // _FEWEST))
    groups: list[list[int]] = [[] for _ in range(count)]
    total = sum(lengths)
    tokens_before = accumulate((lengths[index] for index in order), initial=0)
    for index, tokens in zip(order, tokens_before, strict=False):
        groups[min(tokens * count // max(1, total), count - 1)].append(index)
    return [batch for batch in groups if batch]


def side_by_side(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply a function to each item in as many threads as there are CPU cores, and return the results in order.

    If the model's forward pass changes the model itself, one thread computes everything. An error in one thread stops
    the others and is raised.
    """
    cores = own_cores()
    if min(cores, len(items)) < 2 or _changes_itself(model):
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(min(cores, len(items)))
    try:
        begun = [pool.submit(work, item) for item in items]
        ended = wait(begun, return_when=FIRST_EXCEPTION).done
        if any(future.exception() is not None for future in ended):
            pool.shutdown(wait=True, cancel_futures=True)  # the other threads may still report finished results
            problems = [future.exception() for future in begun if not future.cancelled()]
            # When one batch fails, the others are stopped; raise the error of the batch that failed.
            raise min(filter(None, problems), key=lambda problem: isinstance(problem, StoppedError))
        return [future.result() for future in begun]
    finally:
        # An interrupt does not wait for the running batches.
        pool.shutdown(wait=False, cancel_futures=True)


def work_on_cores(model: Any, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply a function that uses a model to each item, and return the results in order.

    With a small model, each CPU core computes one item at a time; with a larger model, all cores compute the same item.
    """
    with fitting_threads(model) as small, all_experts(model):
        return side_by_side(model, work, items) if small else [work(item) for item in items]


class Lanes:
    """Decodes the requests of all callers of a model together, in one batch or, for a small model, one batch per CPU
    core.

    Each batch is a `Lane`. Callers may add requests from any thread at any time.

    Args:
        model: a transformers model.
        lock: held while a lane is at work.
        slots: maximum number of requests per lane; None for what suits the model.
        share_prefix: whether to compute common beginnings of prompts only once.
    """

    def __init__(self, model: Any, lock: threading.Lock, slots: int | None = None, share_prefix: bool = True) -> None:
        self._model, self._lock = model, lock
        self._settings = replace(_fitting(model, slots), share_prefix=share_prefix)
        # What such a model computes for a beginning may depend on the length of the prompt.
        self._prefixes = new_prefixes(model) if share_prefix and not _changes_itself(model) else None
        count = own_cores() if is_small(model) and not _changes_itself(model) else 1
        self._lanes = [Lane(model, self._settings, self._prefixes) for _ in range(count)]
        self._at_work, self._session = 0, ExitStack()
        self._choosing, self._changing = threading.Lock(), threading.Lock()

    def decode(
        self, settings: Decoding, prompts: Prompts, rngs: Streams, arrived: Arrived[Decoded] = lambda outputs: None
    ) -> list[Decoded]:
        """Generate an output for each prompt, and return the outputs in the order of the prompts.

        Args:
            settings: settings of sampling.
            prompts: token ids of each prompt.
            rngs: random number generator of each output.
            arrived: called with (index, output) of complete outputs, in one of the threads that decode.

        Raises:
            ValueError: a prompt is empty or too long for the model.
        """
        job = Job(self._model, settings, prompts, rngs, arrived)
        threads = list[threading.Thread]()
        try:
            with self._choosing:
                for number, requests in self._assign(job.requests).items():
                    lane = self._lanes[number]
                    if lane.submit(requests):
                        threads.append(threading.Thread(target=self._work, args=(lane,), daemon=True))
            for thread in threads:
                thread.start()
            job.done.wait()
        except BaseException as error:
            job.problem = job.problem or error  # the lanes give up its requests after their present pass
            raise
        with self._choosing:
            idle = not any(lane.load for lane in self._lanes)
        for thread in threads if idle else ():
            thread.join()
        return job.result()

    def _assign(self, requests: Sequence[LaneRequest]) -> dict[int, list[LaneRequest]]:
        """Return lane numbers with the requests that each shall decode.

        Few requests of all callers together are cheapest in one lane. Else each request has a lane with little to do,
        and of those the one whose prompts are most alike in length, since each row takes the time of the longest.
        """
        if len(self._lanes) == 1:
            return {0: list(requests)}
        lengths, assigned = [len(request.prompt) for request in requests], dict[int, list[LaneRequest]]()
        loads, tokens = ([getattr(lane, name) for lane in self._lanes] for name in ("load", "tokens"))
        few = sum(loads) + len(requests) < 2 * _FEWEST
        for part in (
            batches(lengths, ROWS) if len(requests) >= 2 * _FEWEST else [[index] for index in range(len(lengths))]
        ):
            if few:
                number = max(range(len(loads)), key=loads.__getitem__)
            else:
                mean = sum(lengths[index] for index in part) / len(part)
                able = [number for number, load in enumerate(loads) if load <= min(loads) + _FEWEST]
                distances = {
                    number: abs(tokens[number] / loads[number] - mean) if loads[number] else 0.0 for number in able
                }
                number = min(able, key=lambda number: (distances[number], loads[number]))
            assigned.setdefault(number, []).extend(requests[index] for index in part)
            loads[number] += len(part)
            tokens[number] += sum(lengths[index] for index in part)
        return assigned

    def _work(self, lane: Lane) -> None:
        try:
            with self._changing_model():
                lane.run()
        except BaseException as error:  # noqa: BLE001 - raised in the threads of the callers
            lane.fail(error)

    @contextmanager
    def _changing_model(self) -> Iterator[None]:
        """Hold the model's lock, and keep its settings, while at least one lane is decoding."""
        with self._changing:
            if not self._at_work:
                self._session.enter_context(self._lock)
                self._session.enter_context(fitting_threads(self._model))
                self._session.enter_context(all_experts(self._model))
            self._at_work += 1
        try:
            yield
        finally:
            with self._changing:
                self._at_work -= 1
                if not self._at_work:
                    self._session.close()


def score_on_cores(
    model: Any,
    prompts: Prompts,
    answers: Sequence[Prompts],
    *,
    slots: int | None = None,
    arrived: Arrived[list[list[float]]] = lambda scores: None,
    prefixes: dict[int, Prefixes] | None = None,
) -> list[list[list[float]]]:
    """Compute the log-probability of each token of given answers after each prompt, using all CPU cores.

    A small model on a CPU computes batches of prompts of similar lengths, one batch per core.

    Args:
        model: a transformers model.
        prompts: ``[N]`` ids of each prompt, at least one.
        answers: ``[N, A]`` ids of each of the A answers to each prompt, at least one.
        slots: maximum number of answers to compute at once.
        arrived: called with (index, scores) of prompts as soon as they are computed.
        prefixes: number of the batch -> cache of the beginnings that prompts share, to be used and filled. Each batch
            has its own, since what is stored changes the last bits of likelihoods, which must not depend on which batch
            is faster.

    Returns:
        ``[N, A]`` lists with one number per token of the answer, in nats, before temperature is applied.
    """
    if not prompts:
        return []
    longest_answers = [max(map(len, prompt_answers), default=1) - 1 for prompt_answers in answers]
    check_prompts(model, [[*prompt, *[0] * added] for prompt, added in zip(prompts, longest_answers, strict=True)])
    small, trees, failed = is_small(model), {} if prefixes is None else prefixes, threading.Event()
    parts = batches([len(prompt) for prompt in prompts], slots or ROWS) if small else [list(range(len(prompts)))]
    for number in range(0 if _changes_itself(model) else len(parts)):
        if number not in trees:
            trees[number] = new_prefixes(model)
    outputs: dict[int, list[list[float]]] = {}

    def work(number: int) -> None:
        part = parts[number]
        part_prompts, part_answers = [prompts[index] for index in part], [answers[index] for index in part]
        settings = _fitting(model, slots)
        if small:
            settings = replace(settings, slots=sum(map(len, part_answers)) or 1)

        def of_part(scores: Sequence[tuple[int, list[list[float]]]]) -> None:
            arrived([(part[index], its_scores) for index, its_scores in scores])
            if failed.is_set():
                raise StoppedError

        try:
            scores = score(model, settings, part_prompts, part_answers, of_part, trees.get(number))
        except BaseException:
            failed.set()  # the other parts stop after their next pass
            raise
        outputs.update(zip(part, scores, strict=True))

    work_on_cores(model, work, range(len(parts)))
    return [outputs[index] for index in range(len(prompts))]


def most_tokens(model: Any) -> int:
    """Return how many tokens may be in memory in one forward pass of a model (a PyTorch module).

    Their keys and values may take half of the memory of the device without the weights; passes that are computed at the
    same time share it. The limit depends on the machine alone, so that results can be repeated.
    """
    weights = sum(value.numel() * value.element_size() for value in model.parameters())
    itemsize = next(model.parameters()).element_size()
    octets = token_octets(model.config.get_text_config(decoder=True), itemsize) or itemsize
    passes = own_cores() if is_small(model) else 1
    return int(max(0, device_memory(model.device) - weights) // (2 * passes * octets))


def _fitting(model: Any, slots: int | None) -> Decoding:
    """Return the settings of batches that suit a model and its device.

    A larger model on a CPU then returns its first outputs after seconds instead of minutes. Half of the memory without
    the weights determines how many rows decode at once; on a GPU, half of what is free, since others may use it too.
    """
    if is_small(model):
        return Decoding(slots=slots or ROWS)
    if model.device.type == "cuda":
        import torch

        config, octets = model.config.get_text_config(decoder=True), next(model.parameters()).element_size()
        column = token_octets(config, octets)
        free = torch.cuda.mem_get_info(model.device)[0] // 2
        return Decoding(slots=slots or ROWS, most_columns=free // column) if column else Decoding(slots=slots or SLOTS)
    parameters = sum(value.numel() for value in model.parameters())
    settings = Decoding(slots=slots or SLOTS, most_columns=most_tokens(model))
    if model.device.type == "cpu" and parameters >= _GRADUAL:
        return replace(settings, prefill_tokens=min(4096, int(_PASS / 2 / parameters)), gradual=True)
    return settings


def _changes_itself(model: Any) -> bool:
    """Return whether a forward pass changes the model, so that one thread must compute everything."""
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return any(kind in repr(rope) for kind in _CHANGING)
