"""An interrupt that Python swallows still stops a run."""

import os
import signal
from collections.abc import Iterator

import pytest

from goalscope.runs.dispatch import interruptible


class Swallowing:
    """Interrupts the process inside of its destructor, where Python cannot raise."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))  # the signal is handled between two instructions


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_inside_a_destructor_is_raised_at_the_next_check() -> None:
    with interruptible() as check:
        check()
        Swallowing()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_elsewhere_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible() as check:
        os.kill(os.getpid(), signal.SIGINT)
        check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
