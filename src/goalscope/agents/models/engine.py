"""The backend ``vllm``: a model in vLLM's engine, which runs in a separate process and Python environment.

vLLM pins other versions of PyTorch and transformers than goalscope uses. The environment variable ``GOALSCOPE_VLLM``
names its Python interpreter. The engine receives and returns only token ids. Chat formats and likelihoods are computed
in goalscope's process, and activations are captured by passing the same ids through the same weights there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from goalscope._ground.folder import NamedFile
from goalscope._ground.progress import TALLY, Arrived
from goalscope.agents.models.answering import Answering
from goalscope.agents.models.base import MOST_NUMBER, Request, Sampling, model_backend
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.engine_link import ENGINES, Answer, Engine, LogProbabilities, Output
from goalscope.agents.models.folders import check_folder, folder_identity, read_json
from goalscope.agents.models.local import DTYPES, LocalModel
from goalscope.agents.models.reading import Prompts


@model_backend("vllm")
class EngineModel(Answering):
    """A causal language model in vLLM's engine on this machine.

    Outputs depend on the request's random stream through a seed, but vLLM draws them. They therefore differ from those
    of the backend ``local``, except at temperature 0, and may in rare ties depend on other requests that are computed
    at the same time. The backend is part of the model's identity.

    Args:
        model: a folder as ``save_pretrained`` writes it, or a name on the Hugging Face hub.
        dtype: "auto" (float32 on a CPU, the checkpoint's own type on a GPU), "float32", "bfloat16" or "float16".
        revision: commit, tag or branch on the hub.
        length: number of token positions for which the engine reserves memory; None for those of the model.
        memory: share of a GPU's memory that the engine reserves, in (0, 1]; None for vLLM's default.
        gpus: number of GPUs that share the model.
        reasoning: see `goalscope.agents.models.dialect.Dialect`.
        today: see `goalscope.agents.models.dialect.Dialect`.
        template_options: see `goalscope.agents.models.dialect.Dialect`.
        thinking: see `goalscope.agents.models.dialect.Dialect`.
        chat_template: see `goalscope.agents.models.dialect.Dialect`.
        name: short name for tables.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: an argument is out of range, the model is a GGUF file, or a bundled model has parts that vLLM does
            not support.
    """

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        revision: str | None = None,
        length: int | None = None,
        memory: float | None = None,
        gpus: int = 1,
        reasoning: str | Mapping[str, Any] = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        chat_template: str | None = None,
        name: str | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        if length is not None and not 1 <= length <= MOST_NUMBER:
            raise ValueError(f"length must be at least 1, got {length}")
        if memory is not None and not 0 < memory <= 1:
            raise ValueError(f"memory must be a share in (0, 1], got {memory}")
        if gpus < 1:
            raise ValueError(f"gpus must be at least 1, got {gpus}")
        super().__init__(
            model,
            revision=revision,
            reasoning=reasoning,
            today=today,
            template_options=template_options,
            thinking=thinking,
            chat_template=chat_template,
        )
        if self._folder is not None and NamedFile(self._folder).is_there():
            raise ValueError(
                f"the backend vllm needs a folder, but {self._folder.name} is a file: use the backend local"
            )
        self._name = name or f"{super().name}-vllm"
        self._dtype, self._length, self._memory, self._gpus = dtype, length, memory, gpus
        self._identity: Mapping[str, Any] | None = None
        self._engine: Engine | None = None

    @property
    def name(self) -> str:
        """Short name for tables."""
        return self._name

    def describe(self) -> Mapping[str, Any]:
        """Return the content identity, dtype, reasoning style and template settings, without starting an engine."""
        if self._identity is None:
            self._identity = self._on_hub() if self._folder is None else folder_identity(self._folder)
        return {"kind": "vllm", "files": dict(self._identity), "dtype": self._dtype, **self._settings()}

    def here(self, untrained: int | None = None, random_weights: str = "default-init") -> LocalModel:
        """Return a local model with the same weights, for capturing activations, or with random weights."""
        return LocalModel(
            self._source,
            dtype=self._dtype,
            revision=self._revision,
            reasoning=self._reasoning,
            today=self._today.isoformat(),
            template_options=self._options,
            thinking=self._thinking_on,
            chat_template=self._template_name,
            untrained=untrained,
            random_weights=random_weights,
        )

    def prepare(self) -> None:
        """Start the engine if it is not running."""
        loaded = self._load()
        with loaded.lock:
            self._running()

    def _decoded(
        self, requests: Sequence[Request], texts: Sequence[str], sampling: Sampling, arrived: Arrived[Decoded]
    ) -> None:
        prompts = self._prompts(requests, texts)
        settings = sampling.describe() | {"stop": sorted(self.stop)}
        calls = [
            {"ids": ids, "seed": int(request.rng().integers(2**63))}
            for ids, request in zip(prompts, requests, strict=True)
        ]

        def take(outputs: Sequence[tuple[int, Output]]) -> None:
            TALLY.add(computed_output=sum(len(output.tokens) for _, output in outputs))
            arrived(
                [
                    (index, Decoded(tokens=output.tokens, finish=output.finish, logprobs=output.logprobs))
                    for index, output in outputs
                ]
            )

        self._ask({"do": "complete", "sampling": settings}, calls, Output, take)

    def _scored(
        self, contexts: Sequence[Sequence[int]], answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]
    ) -> None:
        places = [(index, row) for index, rows in enumerate(answers) for row in range(len(rows))]
        texts = [[*contexts[index], *answers[index][row]] for index, row in places]
        likelihoods: dict[int, dict[int, list[float]]] = {}

        def take(all_scores: Sequence[tuple[int, LogProbabilities]]) -> None:
            new = []
            for number, scores in all_scores:
                index, row = places[number]
                rows = likelihoods.setdefault(index, {})
                rows[row] = scores.scores
                if len(rows) == len(answers[index]):
                    new.append((index, [rows[place] for place in range(len(rows))]))
            arrived(new)

        calls = [{"ids": ids, "given": len(contexts[index])} for ids, (index, _) in zip(texts, places, strict=True)]
        self._ask({"do": "score"}, calls, LogProbabilities, take)

    def _ask(
        self,
        order: Mapping[str, Any],
        calls: Sequence[Mapping[str, Any]],
        form: type[Answer],
        take: Callable[[list[tuple[int, Answer]]], None],
    ) -> None:
        """Let the engine carry out an order; the engine is started if it is not running."""
        if not calls:
            return
        loaded = self._load()
        with loaded.lock:
            engine = self._running()
        for index, call in enumerate(calls):
            if not 0 < len(call["ids"]) < engine.ready.length:
                raise ValueError(
                    f"a prompt must have at least one token and leave room for an output in the engine's "
                    f"{engine.ready.length} positions, but prompt {index} has {len(call['ids'])} tokens: use smaller "
                    "worlds, a shorter history or another model, or raise length"
                )
        TALLY.add(computed_prompt=sum(len(call["ids"]) for call in calls))
        engine.ask(order, calls, form, take)

    def _running(self) -> Engine:
        """Return an engine with the weights, started if necessary; agents with the same weights share it."""
        key = self._key()
        engine = self._engine or ENGINES.get(key)
        if engine is None or engine.ended:
            engine = ENGINES[key] = self._started()
        self._engine = engine
        return engine

    def _started(self) -> Engine:
        if self._folder is not None:
            check_folder(self._folder)
        settings = {
            "dtype": self._dtype,
            "revision": self._revision,
            "max_model_len": self._length,
            "gpu_memory_utilization": self._memory,
            "tensor_parallel_size": self._gpus,
            "hf_overrides": self._overrides(),
        }
        source = self._source if self._folder is None else str(self._folder.resolve())
        TALLY.add(begun=1)
        TALLY.tell(f"vLLM loads the weights of {self.name}")
        engine = Engine({"do": "open", "model": source, "settings": settings}, offline=self._folder is not None)
        TALLY.tell(f"vLLM {engine.ready.version} has loaded the weights of {self.name}")
        return engine

    def _overrides(self) -> dict[str, Any] | None:
        """Return settings that vLLM needs in place of the model's configuration, or None.

        vLLM builds the rotary positions of GPT-OSS with YaRN's parameters, and refuses a configuration without them. A
        factor of 1 leaves frequencies and attention unchanged.
        """
        config = read_json(self._folder / "config.json") if self._folder is not None else {}
        rope = config.get("rope_parameters")
        if config.get("model_type") != "gpt_oss" or not isinstance(rope, dict) or "factor" in rope:
            return None
        length = config.get("max_position_embeddings")
        yarn = {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": length}
        return {"rope_parameters": rope | yarn | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}

    def _key(self, *more: Any) -> str:
        return super()._key("vllm", self._dtype, self._length, self._memory, self._gpus)
