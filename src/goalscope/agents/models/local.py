"""Local models: any Hugging Face causal language model, given by path or name and decoded in lockstep.

`Answering` turns token ids into replies and likelihoods, for local models and for those in an engine. The weights of a
`LocalModel` are read from checked files, or drawn at random as a control.
"""

import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self, Unpack

from goalscope._ground.checks import check_choice
from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.ids import content_id
from goalscope._ground.progress import TALLY, Arrived
from goalscope._ground.rng import stream
from goalscope.agents.models._fast import SMALL, use_grouped_attention
from goalscope.agents.models.base import (
    MOST_NUMBER,
    RANDOM_WEIGHTS,
    ChatFormat,
    Likelihoods,
    Reply,
    Request,
    Sampling,
    check_random_weights,
    finish_of,
    model_backend,
)
from goalscope.agents.models.decode import Decoded, Decoding, Lanes, score_on_cores
from goalscope.agents.models.dialect import Dialect, Loaded, likelihoods, placed, unanswered
from goalscope.agents.models.folders import (
    ADVICE,
    check_folder,
    folder_identity,
    parts_identity,
    read_training,
    weight_octets,
)
from goalscope.agents.models.loading import explained, needed
from goalscope.agents.models.reading import Prefixes, Prompts
from goalscope.agents.models.weight_files import converted, keep

_DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?")
_PARAMETERS_PER_BYTE: Final = 4  # for weights of two bits
_DRIVERS: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, and either of them under WSL

_STARTING: Final = threading.Lock()  # held while the lanes of a model are looked up or made

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")


# Completions and likelihoods from token ids, shared by local models and models in an engine.
#
# A subclass decodes prompts and scores given answers. Texts, reasoning, usage and likelihoods follow from the ids
# alone.


class Answering(Dialect):
    """Base class of models that generate token ids on this machine: it turns the ids into replies and likelihoods.

    A subclass implements `_decoded` (generate ids) and `_scored` (log-probabilities of given ids).

    Attributes:
        joins: whether requests enter the batch of earlier calls that are still under way.
    """

    joins: ClassVar[bool] = True

    def prepare(self) -> None:
        """Read the weights now if they are not loaded yet, so that the time this takes is not charged to an answer."""
        self._load()

    def _decoded(
        self, requests: Sequence[Request], texts: Sequence[str], sampling: Sampling, arrived: Arrived[Decoded]
    ) -> None:
        """Decode each request, whose rendered prompt is its text, and pass each output to ``arrived`` once."""
        raise TypeError(f"{type(self).__name__} cannot generate text: it must implement _decoded")

    def _scored(
        self, contexts: Sequence[Sequence[int]], answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]
    ) -> None:
        """Compute the log-probability (nats) of each token of the answers ``[N, A]`` after their contexts."""
        raise TypeError(f"{type(self).__name__} cannot score answers: it must implement _scored")

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, arrived: Arrived[Reply] = lambda replies: None
    ) -> list[Reply]:
        """Complete each chat, and return the replies in the order of the requests.

        ``arrived`` is called with (index of the request, reply) as soon as a reply is complete.
        """
        texts = [self.render(request.messages, sampling) for request in requests]
        replies: dict[int, Reply] = {}
        prompts, share = self._prompts(requests, texts), _Shares()

        def take(outputs: Sequence[tuple[int, Decoded]]) -> None:
            new, seconds = [], share(len(outputs))
            for index, output in outputs:
                request, prompt = requests[index], prompts[index]
                prefilled = len(self.encode(request.prefill)) if request.prefill else 0
                output.tokens[:0] = prompt[len(prompt) - prefilled :]
                prompt = prompt[: len(prompt) - prefilled]
                new.append((index, self.reply(texts[index], prompt, output, sampling, seconds)))
            replies.update(new)
            arrived(new)

        self._decoded(requests, texts, sampling, take)
        return [replies[index] for index in range(len(requests))]

    def reply(
        self, text: str, prompt: Sequence[int], output: Decoded, sampling: Sampling, seconds: float = 0.0
    ) -> Reply:
        """Make a `Reply` from the token ids that the model generated: its parts, texts and costs.

        Args:
            text: the rendered prompt.
            prompt: token ids of the prompt.
            output: the decoded output.
            sampling: the sampling settings.
            seconds: the time that the output took.
        """
        parts = self.parts(text, output.tokens)
        return Reply(
            parts=parts,
            prompt_tokens=tuple(prompt),
            output_tokens=tuple(output.tokens),
            finish=finish_of(parts, output.finish),
            usage={"prompt_tokens": len(prompt), "output_tokens": len(output.tokens), "seconds": seconds},
            logprobs=tuple(output.logprobs) if sampling.top_logprobs else None,
            unsupported=self.unsupported(sampling),
            raw=self.text(output.tokens),
        )

    def likelihoods(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        reasoned: bool,
        arrived: Arrived[Likelihoods] = lambda scored: None,
    ) -> list[Likelihoods]:
        """Return how likely the model finds each answer of each request, in the order of the requests.

        All answers to one prompt are computed in one pass.

        Args:
            requests: requests with ``answers``.
            sampling: settings for drawing the reasoning.
            reasoned: whether the model reasons freely before its answer.
            arrived: called with (index of the request, likelihoods) as soon as they are computed.

        Raises:
            ValueError: the answers cannot be told apart by their tokens, or the model does not mark its reasoning.
        """
        written = self.complete(requests, sampling, lambda new: arrived([])) if reasoned else [None] * len(requests)
        share = _Shares()
        texts = [self.render(request.messages, sampling) for request in requests]
        alternatives = [
            placed(self, text, request.answers, reply)
            for text, request, reply in zip(texts, requests, written, strict=True)
        ]
        scorable = [(index, item) for index, item in enumerate(alternatives) if item is not None]
        results: dict[int, Likelihoods] = {}
        for index, (item, reply) in enumerate(zip(alternatives, written, strict=True)):
            if item is None:
                assert reply is not None  # without reasoning, the place of the answer is always known
                results[index] = unanswered(reply)
        arrived(list(results.items()))

        def take(scored: Sequence[tuple[int, list[list[float]]]]) -> None:
            new, seconds = [], share(len(scored))
            for number, scores in scored:
                index, item = scorable[number]
                reply = written[index]
                # The reasoning is already counted; the answers are scored, not generated.
                cost: dict[str, float] = {"prompt_tokens": len(item.context), "output_tokens": 0}
                cost |= reply.usage if reply is not None else {}
                cost["seconds"] = cost.get("seconds", 0.0) + seconds
                new.append((index, likelihoods(item, scores, cost, reply, self.unsupported(sampling))))
            results.update(new)
            arrived(new)

        self._scored([item.context for _, item in scorable], [item.answers for _, item in scorable], take)
        return [results[index] for index in range(len(requests))]

    def _prompts(self, requests: Sequence[Request], texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the rendered prompts, each followed by its prefill."""
        return [
            ids + (self.encode(request.prefill) if request.prefill else [])
            for ids, request in zip(self.prompt_ids(texts), requests, strict=True)
        ]


class _Shares:
    """Divide the time of a batch among its answers: new answers share the time since the previous ones arrived."""

    def __init__(self) -> None:
        self._lock, self._last = threading.Lock(), time.perf_counter()

    def __call__(self, count: int) -> float:
        with self._lock:
            now = time.perf_counter()
            seconds, self._last = now - self._last, now if count else self._last
        return seconds / max(1, count)


@model_backend("local")
class LocalModel(Answering):
    """A causal language model that runs in this process.

    Nothing is loaded before the model is first needed; describing a model in a folder only needs its files. Outputs are
    bit-identical for the same batch shape, device and number of threads. In float32, different batch shapes give the
    same tokens whenever the margin of a draw exceeds 1e-4, and likelihoods that differ only in their last bits
    (`benchmarks/determinism.py` measures both).

    Args:
        model: a folder as ``save_pretrained`` writes it, a GGUF file or a folder with one (its weights are
            dequantised), "theseus" for the bundled model, or a name on the Hugging Face hub. Files are read without any
            network access.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
        dtype: "auto" (float32 on a CPU, the checkpoint's own type elsewhere), "float32", "bfloat16" or "float16".
        revision: commit, tag or branch on the hub; use a commit if results must stay reproducible.
        slots: maximum number of requests decoded at once; None for 64, or for 256 in each of several parallel batches
            if a small model runs on a CPU.
        device_map: distribution of a model over several devices, as in transformers ("auto").
        untrained: seed of random weights for the same architecture, as a control; None for the trained weights.
        random_weights: with ``untrained``: "default-init" (the library's initialisation), "initial" (the initialisation
            of a bundled model's training) or "permuted" (the trained weights, with the entries of each tensor
            permuted).
        name: short name for tables.
        chat: see `goalscope.agents.models.base.ChatFormat`.

    Raises:
        FileNotFoundError: the path does not exist, or the folder has no configuration or no safetensors weights.
        ValueError: an argument is out of range.
    """

    _needs = ("torch", "transformers")

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        slots: int | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        untrained: int | None = None,
        random_weights: str = RANDOM_WEIGHTS[0],
        name: str | None = None,
        **chat: Unpack[ChatFormat],
    ) -> None:
        check_choice("dtype", dtype, DTYPES)
        if slots is not None and slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        check_device_name(device)
        if untrained is not None and not 0 <= untrained <= MOST_NUMBER:
            raise ValueError(f"untrained must be a seed from 0 to {MOST_NUMBER}, got {untrained}")
        check_random_weights(random_weights, untrained)
        default = random_weights == RANDOM_WEIGHTS[0]
        super().__init__(model, revision=revision, **chat)
        if random_weights == "initial" and not self.has_recipe:
            raise ValueError(
                "random_weights: initial needs a bundled model, whose initial weights are known. Those of "
                f"{self.name} are not: use permuted, or default-init, the library's initialisation"
            )
        weights_suffix = "" if untrained is None else f"-{'untrained' if default else random_weights}-{untrained}"
        self._name = name or f"{self.name}{weights_suffix}"
        self._device, self._dtype, self._device_map = device, dtype, device_map
        self._untrained, self._random_weights, self._slots = untrained, random_weights, slots
        self._identity: Mapping[str, Any] | None = None
        self._scored_prefixes = dict[int, Prefixes]()

    @classmethod
    def from_parts(
        cls, model: Any, tokenizer: Any, *, name: str = "model", slots: int | None = None, **chat: Unpack[ChatFormat]
    ) -> Self:
        """Wrap a model and a tokenizer that are already in memory; the model is neither copied nor moved.

        Args:
            model: a transformers model.
            tokenizer: its transformers tokenizer.
            name: short name for tables.
            slots: maximum number of requests decoded at once; None for what suits the model.
            chat: settings for writing and reading chats, see `goalscope.agents.models.base.ChatFormat`.

        Raises:
            ValueError: a setting is out of range.
        """
        self = cls.__new__(cls)
        self._set(None, **chat)
        self._source = self._name = name
        self._device, self._dtype, self._device_map = "auto", "auto", None
        self._revision, self._untrained, self._slots = None, None, slots
        self._random_weights, self._scored_prefixes = RANDOM_WEIGHTS[0], {}
        self._identity = parts_identity(model, tokenizer)
        self._loaded = self._prepare(model.eval(), tokenizer, getattr(model.generation_config, "eos_token_id", None))
        return self

    @property
    def has_recipe(self) -> bool:
        """Whether the initial weights of the model's training can be drawn again, as ``random_weights: initial``
        requires.

        This is so for models that goalscope's own training has written.
        """
        return self._folder is not None and bool(read_training(self._folder))

    @property
    def model(self) -> Any:
        """The transformers model, which is loaded at first use."""
        return self._load().model

    def describe(self) -> Mapping[str, Any]:
        """Return what determines the model's outputs: digests of its files, kind of weights, dtype and settings for
        chats.

        The description is part of an agent's description, whose hash is the agent's id. It is made without importing
        torch.
        """
        if self._identity is None:
            weights = self._untrained is None or self._random_weights == "permuted"
            self._identity = self._on_hub() if self._folder is None else folder_identity(self._folder, weights=weights)
        return {
            "kind": "local",
            "files": dict(self._identity),
            "untrained": self._untrained,
            **({} if self._random_weights == RANDOM_WEIGHTS[0] else {"random_weights": self._random_weights}),
            "dtype": self._dtype,
            **self._settings(),
        }

    @property
    def fits_a_core(self) -> bool:
        """Whether the model runs on a CPU from local files and is small enough that one CPU core computes it best."""
        if self._folder is None or self._device_map is not None or self._device not in ("auto", "cpu"):
            return False
        n_bytes = 0 if NamedFile(self._folder).is_there() else weight_octets(self._folder)
        small = 0 < n_bytes < 2 * SMALL  # at least two bytes per parameter
        return small and (self._device == "cpu" or not _may_have_gpu() or not needed("torch").cuda.is_available())

    @property
    def tags(self) -> Mapping[str, str]:
        """Named values by which results can be grouped: the model's id, its planted goal and its training data.

        Empty for a model whose configuration does not name a planted goal, and for random weights.
        """
        training = read_training(self._folder) if self._folder is not None and self._untrained is None else {}
        return {"model": content_id("model", self.describe()["files"]), **training} if training else {}

    @contextmanager
    def alone(self) -> Iterator[Any]:
        """Context in which the caller alone uses the transformers model, which it yields; other threads wait."""
        loaded = self._load()
        with loaded.lock:
            yield loaded.model

    def decode(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        texts: Sequence[str] | None = None,
        slots: int | None = None,
        share_prefix: bool = True,
        margins: bool = False,
        arrived: Arrived[Decoded] = lambda outputs: None,
    ) -> tuple[list[list[int]], list[Decoded]]:
        """Generate an output for each chat, as token ids; most callers want `complete` instead, which returns replies.

        Args:
            requests: the chats.
            sampling: sampling settings.
            texts: the rendered prompts, None to render them now.
            slots: maximum number of requests decoded at the same time, None for what suits the model.
            share_prefix: whether to compute common beginnings of prompts only once.
            margins: whether to store how close each draw was to another token.
            arrived: called with (index, output) of outputs as soon as they are complete.

        Returns:
            Token ids of each prompt, which end with its prefill if it has one, and the outputs.
        """
        loaded = self._load()
        rendered = texts if texts is not None else [self.render(request.messages, sampling) for request in requests]
        prompts = self._prompts(requests, rendered)
        settings = Decoding(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            top_logprobs=sampling.top_logprobs,
            stop=loaded.stop,
            margins=margins,
        )
        rngs = [request.rng() for request in requests]
        # Without earlier calls, so that the last bits of log-probabilities can be repeated.
        if slots or not share_prefix or sampling.top_logprobs:
            lanes = Lanes(loaded.model, loaded.lock, slots or self._slots, share_prefix)
        else:
            with _STARTING:
                lanes = loaded.lanes.get(self._slots) or Lanes(loaded.model, loaded.lock, self._slots)
                loaded.lanes[self._slots] = lanes
        return prompts, lanes.decode(settings, prompts, rngs, arrived)

    def _decoded(
        self, requests: Sequence[Request], texts: Sequence[str], sampling: Sampling, arrived: Arrived[Decoded]
    ) -> None:
        self.decode(requests, sampling, texts=texts, arrived=arrived)

    def _scored(
        self, contexts: Sequence[Sequence[int]], answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]
    ) -> None:
        loaded = self._load()
        with loaded.lock:
            score_on_cores(
                loaded.model, contexts, answers, slots=self._slots, arrived=arrived, prefixes=self._scored_prefixes
            )

    def _key(self, *more: Any) -> str:
        return super()._key(self._device, self._dtype, self._device_map, self._untrained, self._random_weights)

    def _read(self) -> Loaded:
        torch, started, seed = needed("torch"), time.monotonic(), self._untrained
        TALLY.add(begun=1)
        TALLY.tell(f"loading the weights of {self.name}")
        source, arguments = self._where()
        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device != "cpu":
            check_device(torch, device)
        dtype: Any = self._dtype if self._dtype == "auto" else getattr(torch, self._dtype)
        if dtype == "auto" and (seed is not None or (device == "cpu" and self._device_map is None)):
            dtype = torch.float32
        if self._folder is not None:
            check_folder(self._folder)
        tokenizer, file = self._read_tokenizer()
        if seed is None and self._device_map is not None:
            arguments |= {"device_map": self._device_map}
        if seed is None or self._random_weights == "permuted":
            model = load_weights(source, arguments, folder=self._folder, dtype=dtype)
        else:
            model = draw_weights(source, arguments, folder=self._folder, dtype=dtype, seed=seed)
        # Random weights are drawn on the CPU, so that a seed always gives the same model.
        if seed is not None and self._random_weights == "permuted":
            permute(model, seed=seed)
        elif seed is not None and self._random_weights == "initial":
            redraw(model, seed=seed)
        model = (model if "device_map" in arguments else model.to(device)).eval()
        loaded = self._prepare(model, tokenizer, getattr(model.generation_config, "eos_token_id", None), file)
        TALLY.tell(f"loaded the weights of {self.name} in {time.monotonic() - started:.0f} s")
        return loaded


def _may_have_gpu() -> bool:
    """Return whether there may be a GPU, without importing torch if Linux has no GPU driver."""
    return sys.platform != "linux" or any(anything_at(driver) for driver in _DRIVERS)


# Weights, read from checked files. A file that lacks weights is refused, because the library would fill the gap with
# random numbers.


def check_device_name(device: str) -> None:
    """Check that a text is the name of a device, such as "auto", "cpu" or "cuda:1".

    Raises:
        ValueError: it is not.
    """
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"device must be auto, cpu, cuda, a GPU by number such as cuda:1, xpu or mps, got {device!r}")


def check_device(torch: Any, device: str) -> None:
    """Check that this machine has a device, before any weights are read.

    Args:
        torch: the module torch.
        device: name of the device, such as "cuda:1".

    Raises:
        ValueError: the machine has no such device.
    """
    kind, _, number = device.partition(":")
    available = torch.backends.mps.is_available() if kind == "mps" else getattr(torch, kind).is_available()
    count = getattr(torch, kind).device_count() if available else 0
    if int(number or 0) >= count:
        raise ValueError(
            f"this machine has no device {device!r}: torch {torch.__version__} finds {count} devices of this "
            "kind. Set device: auto or device: cpu, or install a version of torch that is built for your GPU"
        )


def load_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any) -> Any:
    """Load a transformers model with its trained weights.

    Args:
        source: the folder, or the model's name on the hub.
        where: further arguments for ``from_pretrained``.
        folder: the folder, which `check_folder` must have accepted; None for the hub.
        dtype: type of the weights, such as ``torch.float32``, or "auto".

    Raises:
        ValueError: the weights cannot be read, or some are missing; the message says which.
    """
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained
    part = f"weights {dtype}".replace("torch.", "")
    cached = folder is not None and "gguf_file" in where and dtype != "auto" and "device_map" not in where
    place = converted(folder, part) if folder is not None and cached else None
    if place is not None:
        source, where = str(place), {name: value for name, value in where.items() if name != "gguf_file"}
    with explained(folder), _without_reports():
        model, info = read(source, dtype=dtype, use_safetensors=True, output_loading_info=True, **where)
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"the weights of {source} must be complete, but {len(missing)} are missing ({', '.join(missing)[:120]}): "
            f"{ADVICE}"
        )
    if folder is not None and cached and place is None:
        _keep_weights(model, folder, part)
    use_grouped_attention(model)
    return model


@contextmanager
def _without_reports() -> Iterator[None]:
    """Keep transformers from printing tables of weights, with codes for colours, where goalscope says what is wrong."""
    library = needed("transformers.utils.logging")
    before = library.get_verbosity()
    library.set_verbosity_error()
    try:
        yield
    finally:
        library.set_verbosity(before)


def _keep_weights(model: Any, file: Path, part: str) -> None:
    """Keep a converted copy of the weights of a GGUF file, whose numbers are unquantised once they are loaded."""
    from safetensors.torch import load_file

    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())

    def same(place: Path) -> bool:
        # Weights that are tied to others are stored once.
        state = model.state_dict()
        files = Folder(place).files("*.safetensors")
        return bool(files) and all(
            tensor.equal(state[name]) for stored in files for name, tensor in load_file(stored).items()
        )

    keep(file, part, model.save_pretrained, same, size)


def draw_weights(source: str, where: Mapping[str, Any], *, folder: Path | None, dtype: Any, seed: int) -> Any:
    """Build a transformers model of a given architecture with random weights, which depend only on the seed.

    Args:
        source: the folder, or the model's name on the hub, from which the configuration is read.
        where: further arguments for ``from_pretrained``.
        folder: the folder, None for the hub.
        dtype: type of the weights.
        seed: seed of the random weights.

    Raises:
        ValueError: the folder cannot be read, or its files are too small for a model of this size.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config
    with explained(folder):
        config = AutoConfig.from_pretrained(source, **where)
        if folder is not None:
            with torch.device("meta"):  # tensors have shapes but take no memory
                shapes_only = make(config, trust_remote_code=False)
            count = sum(parameter.numel() for parameter in shapes_only.parameters())
            n_bytes = weight_octets(folder)
            if count > _PARAMETERS_PER_BYTE * n_bytes:
                raise ValueError(
                    f"config.json describes a model of {count} weights, but its files have {n_bytes} bytes"
                )
        with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU, so that a seed always gives one model
            torch.manual_seed(seed)
            model = make(config, dtype=dtype, trust_remote_code=False)
    use_grouped_attention(model)
    return model


# Random networks of a model's architecture, which serve as controls for probes.
#
# ``default-init`` is the library's own initialisation for the architecture (mostly with standard deviation .02).
# Attention is then nearly uniform, so this is a weak control. ``initial`` is the initialisation that the training of
# the bundled models started from. ``permuted`` permutes the entries within each trained weight tensor, so that each
# tensor keeps its scale.

GAIN = 0.5
"""Standard deviation of embeddings, and of matrices after multiplication by the square root of their input width."""


def initialise(shapes: Mapping[str, tuple[int, ...]], *, layers: int, generator: Any) -> dict[str, Any]:
    """Return random parameters of a GPT-OSS model, as at the start of the training of the bundled models.

    Norms are 1; biases and attention sinks are 0. Embeddings have standard deviation 0.5, matrices 0.5 / sqrt(input
    width). Matrices that write to the residual stream are also divided by sqrt(2 L).

    Args:
        shapes: name of each parameter in transformers' ``GptOssForCausalLM`` -> its shape.
        layers: number of blocks L.
        generator: source of the random numbers; parameters are drawn in the order of their names.
    """
    import torch

    parameters = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith("norm.weight"):
            parameters[name] = torch.ones(shape)
        elif len(shape) == 1 or name.endswith("_bias"):
            parameters[name] = torch.zeros(shape)
        else:
            std = GAIN * (shape[-2] if "experts" in name else shape[-1]) ** -0.5
            if name.endswith(("o_proj.weight", "down_proj")):
                std /= (2 * layers) ** 0.5
            if name.endswith("embed_tokens.weight"):
                std = GAIN
            parameters[name] = torch.empty(shape).normal_(0.0, std, generator=generator)
    return parameters


SPREAD: Final = 0.1
"""Standard deviation of the weights of a GPT-2 model, except for the positions of cells."""
CODE: Final = 0.3
FIRST_CELL: Final = 6
CELLS: Final = 7


def initialise_gpt2(shapes: Mapping[str, tuple[int, ...]], *, layers: int, generator: Any) -> dict[str, Any]:
    """Return random parameters of a GPT-2 model, as at the start of the training of goalscope's model organisms.

    (These are small language models with planted goals.) Norms are 1 and biases 0. All other parameters have standard
    deviation .1; those that write to the residual stream are divided by sqrt(2 L). The positions of the cells of a 7x7
    grid start with a code of their place: the sum of a vector for the row and a vector for the column, each with
    standard deviation .3.

    Args:
        shapes: name of each parameter in transformers' ``GPT2LMHeadModel`` -> its shape.
        layers: number of blocks L.
        generator: source of the random numbers; parameters are drawn in the order of their names.
    """
    import torch

    parameters = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith(".bias"):
            parameters[name] = torch.zeros(shape)
        elif ".ln_" in name:
            parameters[name] = torch.ones(shape)
        else:
            std = SPREAD / ((2 * layers) ** 0.5 if name.endswith("c_proj.weight") else 1.0)
            parameters[name] = torch.empty(shape).normal_(0.0, std, generator=generator)
        if name.endswith("wpe.weight"):
            rows, columns = torch.empty((2, CELLS, shape[1])).normal_(0.0, CODE, generator=generator)
            for row in range(CELLS):  # a label precedes each row
                begin = FIRST_CELL + row * (CELLS + 1)
                parameters[name][begin : begin + CELLS] = rows[row] + columns
    return parameters


def redraw(model: Any, *, seed: int) -> None:
    """Replace the weights of a bundled model, or one of its kind, in place by initial weights as its training draws
    them.

    The result is an untrained model, which serves as a control.

    Args:
        model: a transformers model on the CPU, with weights in float32.
        seed: seed of the random numbers.
    """
    import torch

    with torch.no_grad():
        current = dict(model.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in current.items()}
        generator = torch.Generator().manual_seed(seed)
        recipe = initialise_gpt2 if model.config.model_type == "gpt2" else initialise
        drawn = recipe(shapes, layers=model.config.num_hidden_layers, generator=generator)
        for name, parameter in current.items():
            parameter.copy_(drawn[name])


def permute(model: Any, *, seed: int) -> None:
    """Permute the entries of each weight tensor of a transformers model at random, in place; tied tensors stay tied.

    The result keeps the scale of each tensor but nothing that was learned, and serves as a control.

    Args:
        model: a model on the CPU.
        seed: seed of the permutations, of which each tensor has its own.
    """
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            order = torch.from_numpy(stream(seed, "permuted", name).permutation(parameter.numel()))
            parameter.copy_(parameter.flatten()[order].view(parameter.shape))
