"""Ctrl-C that is never lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt once SIGINT has arrived, however late it is called.

    Python raises KeyboardInterrupt wherever the program happens to be, and swallows it where that is a destructor. The
    signal is therefore remembered too. Where SIGINT is ignored (a process begun in the background) or handled by
    somebody else, and outside of the main thread, nothing is changed.
    """
    arrived = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
