"""Options and signals of the commands that kill a process again and again."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

INTERRUPTED: Final = 130
"""Exit status of a command that the user interrupted, and that has found nothing broken."""

FEDERATED: Final = "share events with a foreign domain that is never there"
"""Help of ``--federated``."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def cancel_on_signals() -> None:
    """Let the first SIGINT or SIGTERM cancel the present task; the second one ends the program.

    SIGINT counts also where it is ignored, as it is for what a script starts with ``&``.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, cancel)


def kill_options(
    arguments: Sequence[str] | None,
    command: str,
    description: str | None,
    *,
    victim: str,
    cycles: int,
    limit_s: float,
    failures: str,
    servers: str = "",
    may_be_federated: bool = False,
) -> argparse.Namespace:
    """Parse ``arguments`` of ``command``: its defaults are ``cycles`` kills of ``victim`` within ``limit_s``.

    :param failures: what always ends the command with status 1
    :param may_be_federated: True for an option ``--federated``
    :param servers: meaning of the option ``--servers``, 1 by default; without it there is no such option
    """
    parser = argparse.ArgumentParser(
        prog=f"./do {command}",
        description=description,
        epilog=f"Ctrl-C ends the cycles, and what they have left is judged: the status is {INTERRUPTED}, or 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cycles", type=int, default=cycles, help=f"number of kills of the {victim} (default: %(default)s)"
    )
    if servers:
        parser.add_argument("--servers", type=int, default=1, metavar="N", help=f"{servers} (default: %(default)s)")
    if may_be_federated:
        parser.add_argument("--federated", action="store_true", help=FEDERATED)
    parser.add_argument("--seed", type=int, help="seed of the times of the kills (default: a new one)")
    parser.add_argument(
        "--limit-s", type=float, default=limit_s, help="start no cycle after this time (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--strict", action="store_true", help=f"exit with status 1 if a goal is not met; {failures} always do"
    )
    return parser.parse_args(arguments)
