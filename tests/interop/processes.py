"""Programs that a test or a benchmark starts, and always ends again, by their process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from demo.processes import ROOT, python

ENDING_S_MAX = 5.0
READY_S_MAX = 20.0


class NotReady(Exception):
    """A program ended, or made no progress, before it was ready; the text holds its output."""


@contextlib.contextmanager
def running(
    command: Sequence[str],
    said: Path,
    is_ready: Callable[[], bool],
    *,
    environment: Mapping[str, str] | None = None,
    processor: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` from the moment it is ready to the end of the block; its output goes to the file ``said``.

    ``processor`` is the only one that it and its children may use. Raises :class:`NotReady`.
    """
    pin = [] if processor is None else ["taskset", "--cpu-list", str(processor)]
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*pin, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        _await(process, is_ready, said)
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End ``process`` gently, and by force if it does not listen; then its children too, if it leads a session."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        # Worker processes such as Kamailio's sometimes wait for each other for ever while they end.
        if os.getsid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], said: Path) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotReady(f"{process.args!r} is not ready:\n{said.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of ``host`` that is free for UDP and TCP at present."""
    for _ in range(32):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
            stream.bind((host, 0))
            port: int = stream.getsockname()[1]
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.bind((host, port))
                return port
    raise OSError("no port is free for UDP and TCP alike")


def answers_options(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a SIP server responds to OPTIONS over UDP at ``port``, with any status."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(0.2)
        asker.bind((host, 0))
        own = f"{host}:{asker.getsockname()[1]}"
        lines = [
            f"OPTIONS sip:{host}:{port} SIP/2.0",
            f"Via: SIP/2.0/UDP {own};branch=z9hG4bKready{os.getpid()}{time.monotonic_ns()};rport",
            "Max-Forwards: 70",
            f"From: <sip:ready@{own}>;tag=ready",
            f"To: <sip:{host}:{port}>",
            f"Call-ID: {time.monotonic_ns()}@{own}",
            "CSeq: 1 OPTIONS",
            "User-Agent: waits until the server is ready, and leaves room for its answer " + "." * 200,
            "Content-Length: 0",
        ]
        asker.sendto("\r\n".join([*lines, "", ""]).encode(), (host, port))
        with contextlib.suppress(OSError):
            return asker.recv(65_536).startswith(b"SIP/2.0 ")
    return False


def answers_there(within: Sequence[str], place: tuple[str, int], question: str) -> bool:
    """Return whether a server responds to this datagram, sent from the namespace ``within`` if one is named."""
    asking = [*within, *python("demo.asking", place[0], str(place[1]), question)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        return bool(subprocess.run(asking, stdout=subprocess.PIPE, cwd=ROOT, timeout=1.0, check=False).stdout)
    return False


def processor_s(pids: Sequence[int]) -> float:
    """Return the processor seconds that these processes and their living children have used so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            ticks += round(processor_s([int(child) for child in children]) * os.sysconf("SC_CLK_TCK"))
    return ticks / os.sysconf("SC_CLK_TCK")
