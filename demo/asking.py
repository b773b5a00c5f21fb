"""Probe of a server that is starting: ``python -m demo.asking HOST PORT TEXT`` on a host that can reach it.

Sends ``TEXT`` over UDP again and again until it is answered, and reports the answer: ``{"answer": text}``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

from demo.reports import report

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
DATAGRAM_BYTES: Final = 65_536


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
                report(answer=asker.recv(DATAGRAM_BYTES).decode(errors="replace"))
                return
            with contextlib.suppress(TimeoutError):
                asker.recv(DATAGRAM_BYTES)


if __name__ == "__main__":
    main(sys.argv[1:])
