"""Local models: any Hugging Face causal language model, given by path or name and decoded in lockstep."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, Unpack

from goalscope._ground.checks import check_choice
from goalscope._ground.folder import NamedFile, anything_at
from goalscope._ground.ids import content_id
from goalscope._ground.progress import TALLY, Arrived
from goalscope.agents.models._fast import SMALL
from goalscope.agents.models.answering import Answering
from goalscope.agents.models.base import MOST_NUMBER, ChatFormat, Request, Sampling, model_backend
from goalscope.agents.models.decode import Decoded, Decoding
from goalscope.agents.models.dialect import Loaded
from goalscope.agents.models.folders import check_folder, folder_identity, parts_identity, read_training, weight_octets
from goalscope.agents.models.initialisation import RANDOM_WEIGHTS, check_random_weights, permute, redraw
from goalscope.agents.models.loading import (
    check_device,
    check_device_name,
    draw_weights,
    load_weights,
    needed,
)
from goalscope.agents.models.reading import Prefixes, Prompts
from goalscope.agents.models.threads import Lanes, score_on_cores

_DRIVERS: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, and either of them under WSL

_STARTING: Final = threading.Lock()  # held while the lanes of a model are looked up or made

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")


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
                f"{super().name} are not: use permuted, or default-init, the library's initialisation"
            )
        weights_suffix = "" if untrained is None else f"-{'untrained' if default else random_weights}-{untrained}"
        self._name = name or f"{super().name}{weights_suffix}"
        self._device, self._dtype, self._device_map = device, dtype, device_map
        self._untrained, self._random_weights, self._slots = untrained, random_weights, slots
        self._identity: Mapping[str, Any] | None = None
        self._scored_prefixes = dict[int, Prefixes]()

    @classmethod
    def from_parts(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "model",
        slots: int | None = None,
        **chat: Unpack[ChatFormat],
    ) -> Self:
        """Wrap a model and a tokenizer that are already in memory; the model is neither copied nor moved.

        Raises:
            ValueError: see `LocalModel`.
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
    def name(self) -> str:
        """Short name for tables."""
        return self._name

    @property
    def has_recipe(self) -> bool:
        """Whether the initial weights of its training are known, so that ``random_weights`` can be "initial"."""
        return self._folder is not None and bool(read_training(self._folder))

    @property
    def model(self) -> Any:
        """The transformers model, which is loaded at first use."""
        return self._load().model

    def describe(self) -> Mapping[str, Any]:
        """Return the content identity, dtype, reasoning style and template settings, without importing torch."""
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
        """Whether the model runs on a CPU from local files and is small enough for one core."""
        if self._folder is None or self._device_map is not None or self._device not in ("auto", "cpu"):
            return False
        n_bytes = 0 if NamedFile(self._folder).is_there() else weight_octets(self._folder)
        small = 0 < n_bytes < 2 * SMALL  # at least two bytes per parameter
        return small and (self._device == "cpu" or not _may_have_gpu() or not needed("torch").cuda.is_available())

    @property
    def tags(self) -> Mapping[str, str]:
        """Id, planted goal and training data of a model whose configuration contains them, else nothing."""
        training = read_training(self._folder) if self._folder is not None and self._untrained is None else {}
        return {"model": content_id("model", self.describe()["files"]), **training} if training else {}

    @contextmanager
    def alone(self) -> Iterator[Any]:
        """Yield the transformers model for exclusive use inside the context."""
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
        """Return the prompt ids and the raw outputs of some chats; most callers want `complete` instead.

        The prefill of an output is at the end of its prompt.

        Args:
            requests: as in `complete`.
            sampling: as in `complete`.
            texts: the rendered prompts, None to render them here.
            slots: see `goalscope.agents.models.decode.Decoding`.
            share_prefix: see `goalscope.agents.models.decode.Decoding`.
            margins: see `goalscope.agents.models.decode.Decoding`.
            arrived: called with outputs as soon as they are complete.
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
        started = time.monotonic()
        TALLY.add(begun=1)
        TALLY.tell(f"loading the weights of {self.name}")
        loaded = self._read_weights()
        TALLY.tell(f"loaded the weights of {self.name} in {time.monotonic() - started:.0f} s")
        return loaded

    def _read_weights(self) -> Loaded:
        torch = needed("torch")
        source, arguments = self._where()
        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device != "cpu":
            check_device(torch, device)
        dtype: Any = self._dtype if self._dtype == "auto" else getattr(torch, self._dtype)
        if dtype == "auto" and device == "cpu" and self._device_map is None:
            dtype = torch.float32
        if self._folder is not None:
            check_folder(self._folder)
        tokenizer, file = self._read_tokenizer()
        device_map = None if self._untrained is not None else self._device_map
        if self._untrained is not None:
            model = self._random(source, arguments, torch.float32 if dtype == "auto" else dtype)
        elif device_map is not None:
            model = load_weights(source, {**arguments, "device_map": device_map}, folder=self._folder, dtype=dtype)
        else:
            model = load_weights(source, arguments, folder=self._folder, dtype=dtype)
        model = (model if device_map is not None else model.to(device)).eval()
        return self._prepare(model, tokenizer, getattr(model.generation_config, "eos_token_id", None), file)

    def _random(self, source: str, arguments: Mapping[str, Any], dtype: Any) -> Any:
        """Return the architecture with random weights, drawn on the CPU so that a seed always gives the same model."""
        seed = self._untrained or 0
        if self._random_weights == "permuted":
            model = load_weights(source, arguments, folder=self._folder, dtype=dtype)
            permute(model, seed=seed)
            return model
        model = draw_weights(source, arguments, folder=self._folder, dtype=dtype, seed=seed)
        if self._random_weights == "initial":
            redraw(model, seed=seed)
        return model


def _may_have_gpu() -> bool:
    """Return whether there may be a GPU, without importing torch if Linux has no GPU driver."""
    return sys.platform != "linux" or any(anything_at(driver) for driver in _DRIVERS)
