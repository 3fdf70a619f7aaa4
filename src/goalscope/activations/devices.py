"""Where probes and decoders compute: a processor, or a GPU that is there."""

from collections.abc import Iterator
from contextlib import contextmanager

from goalscope.models import loading


def check_device(device: str) -> None:
    """Raise a ValueError unless probes can compute there: "cpu", or a GPU ("cuda", "cuda:1") that PyTorch sees."""
    if device == "cpu":
        return
    if not isinstance(device, str) or device == "auto":
        raise ValueError(f"the device of probes must be cpu, or a GPU such as cuda or cuda:1, got {device!r}")
    loading.check_device_name(device)
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} must be there, PyTorch sees no GPU: fit with device='cpu'")
    loading.check_device(torch, device)


def trains_on(device: str) -> str:
    """Return where probes train beside a model on a device: at "auto" on a GPU where there is one.

    Raises:
        ValueError: see `check_device`.
    """
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device.partition(":")[0]


@contextmanager
def one_thread() -> Iterator[int]:
    """Compute with one thread for as long as the context lasts; yield how many there were."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
