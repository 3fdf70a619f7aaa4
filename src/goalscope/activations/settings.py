"""How a capture is cut into pieces; what decides the bytes of its files enters its id."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """Sizes that bound the memory of a capture.

    Attributes:
        window: steps that are planned together: they are sorted by length, so larger windows make fuller batches.
        batch_tokens: most tokens of one forward pass; a single sequence may exceed it. None: 2,048 on a processor,
            32,768 on a GPU.
        shard_bytes: size at which a file of activations is full, bytes; a single batch may exceed it.
        share_prefix: whether the tokens that all sequences of a window begin with are computed once where that helps.

    Raises:
        ValueError: a size below 1.
    """

    window: int = 4096
    batch_tokens: int | None = None
    shard_bytes: int = 1 << 26
    share_prefix: bool = True

    def __post_init__(self) -> None:
        for name in ("window", "batch_tokens", "shard_bytes"):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ValueError(f"{name} of a capture must be a whole number >= 1, got {size!r}")

    def tokens_on(self, device: str) -> int:
        """Return the most tokens of one forward pass on a kind of device ("cpu", "cuda")."""
        if self.batch_tokens is not None:
            return self.batch_tokens
        return 2048 if device == "cpu" else 32_768

    def describe(self, device: str) -> dict[str, Any]:
        """Return the settings as plain values, as they hold on a kind of device."""
        return asdict(self) | {"batch_tokens": self.tokens_on(device)}
