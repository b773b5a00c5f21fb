"""Signals that end a job after its present step."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wanderbus.cli.output import EndedBySignal, print_progress


@contextmanager
def stopping_signals(present: str, *, is_endless: bool) -> Iterator[threading.Event]:
    """Yield the event that the first signal sets, also while Spark starts; a second signal ends the process.

    ``present`` names what ends first, for the message.
    A signal is the ordinary end of a job that ``is_endless``; at the end of another one, raise :class:`EndedBySignal`.
    """
    received: list[int] = []
    stop = threading.Event()

    def handle(number: int, _: object) -> None:
        if received:
            os._exit(EndedBySignal(number).status)
        received.append(number)
        print_progress(f"{signal.Signals(number).name}: ending after {present}")
        stop.set()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        if not received:  # else a second signal ends the process without a traceback, also while it exits
            for number, handler in previous.items():
                signal.signal(number, handler)
    if received and not is_endless:
        raise EndedBySignal(received[0])


def stop_with_stdin(stop: threading.Event) -> None:
    """Set ``stop`` when standard input ends, as it does when the process that started this one has ended."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4_096):  # without the lock of a buffer, which the interpreter needs to exit
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
