"""Probe of a server that is starting: ``python -m harness.udp_probe HOST PORT TEXT`` on a host that can reach it.

Sends ``TEXT`` over UDP again and again until it is answered, and reports the answer: ``{"answer": text}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

_OPTIONS: Final = "\r\n".join(
    (
        "OPTIONS sip:{domain} SIP/2.0",
        "Via: SIP/2.0/UDP 127.0.0.1;rport;branch=z9hG4bK{token}",
        "Max-Forwards: 70",
        "From: <sip:nobody@{domain}>;tag={token}",
        "To: <sip:{domain}>",
        "Call-ID: {token}",
        "CSeq: 1 OPTIONS",
        "Content-Length: 0",
        "",
        "",
    )
)

AGAIN_S: Final = 0.1
ANSWER_S_MAX: Final = 1.0
DATAGRAM_BYTES: Final = 65_536
_PADDING: Final = f"\r\nUser-Agent: {'.' * 300}\r\n\r\n"


def sip_question(domain: str) -> str:
    """Return a request that a SIP server answers without authentication."""
    return _OPTIONS.format(domain=domain, token=secrets.token_hex(8))


def relay_question(command: str) -> str:
    """Return a command of a media relay that has no arguments; it is answered in JSON."""
    # A relay treats a repeated cookie as a retransmission and repeats its answer.
    return f"{secrets.token_hex(8)} {json.dumps({'command': command})}"


def relay_answer(text: str) -> dict[str, Any]:
    """Return the fields of a relay's answer."""
    fields: dict[str, Any] = json.loads(text.partition(" ")[2])
    return fields


def answers_there(within: Sequence[str], place: tuple[str, int], question: str) -> bool:
    """Return whether a server responds to this datagram, sent from the namespace ``within`` if one is named."""
    argv = [*within, *probe(place[0], place[1], question)]
    with Process("probe", argv, Path(os.devnull), read=True) as process, contextlib.suppress(CannotRunError):
        return bool(process.line(ANSWER_S_MAX))
    return False


def answers_options(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a SIP server responds to OPTIONS over UDP at ``port``, with any status."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(2 * AGAIN_S)
        # The padding leaves room for the answer: our server sends strangers no more bytes than it got.
        asker.sendto(sip_question(f"{host}:{port}").replace("\r\n\r\n", _PADDING).encode(), (host, port))
        with contextlib.suppress(OSError):
            return asker.recv(DATAGRAM_BYTES).startswith(b"SIP/2.0 ")
    return False


def probe(host: str, port: int, question: str) -> list[str]:
    """Return the command line that sends ``question`` until there is an answer."""
    return python("harness.udp_probe", host, str(port), question)


def main(argv: Sequence[str]) -> None:
    """Send until there is an answer; the process's owner ends it if there is none."""
    host, port, text = argv
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(AGAIN_S)
        asker.connect((host, int(port)))
        while True:
            # A closed port is refused at once; wait for the rest of this interval.
            with contextlib.suppress(OSError):
                asker.send(text.encode())
                print(json.dumps({"answer": asker.recv(DATAGRAM_BYTES).decode(errors="replace")}), flush=True)
                return
            with contextlib.suppress(TimeoutError):
                asker.recv(DATAGRAM_BYTES)


if __name__ == "__main__":
    main(sys.argv[1:])
