"""Write docs/sip-conformance.md from the two indexes of test messages; with --check only report if it is up to date.

tests/sip/test_corpus.py and tests/sip/test_torture.py compare the indexes with the behaviour of the code.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "sip-conformance.md"
INDEXES = (ROOT / "tests" / "sip" / "torture.toml", ROOT / "tests" / "sip" / "corpus" / "index.toml")
TORTURE = "RFC 4475 "

HEADING = """# Responses to valid and malformed SIP messages

`./do fmt` writes this page from the indexes of the test messages; a test compares the three.
`wanderbus sip parse FILE --as uas|registrar|proxy` shows the result for any message.

*valid*: accepted. *valid 405*: the message is correct, but such an element answers 405; likewise 501 for an unknown
method and 401 for credentials of an unknown scheme. *400*: refused with that status. *drop*: neither accepted nor
answered, as for malformed responses, ACK and noise.

Some deviations are accepted and named in `warnings`: a missing branch, From tag or Max-Forwards that RFC 3261 requires
(RFC 2543 had none), a `Date` that is not in GMT (it is not used), bytes after the body of a datagram. Where RFC 4475
leaves a choice and two parsers could understand a message differently, the message is refused: spaces in the
Request-Line or in `<>`, a Contact with `?` outside of `<>`, and header fields in the Request-URI.

Over UDP, the answer to a sender that has not authenticated is never larger than the request, because its address may be
that of a victim: optional fields are left out, names are compact, and of several challenges the last one stays. A
request of less than about 300 bytes has no room for a challenge: `400 Use TCP` answers it, since over TCP there is no
such bound. The shortest requests, of less than about 150 bytes, have no room for any answer and get none. A few
optional fields in the request, such as User-Agent, make the room.

Whole messages before bytes that are none, on one TCP connection, are answered; the connection is closed a second later.
"""


def rows(cases: list[dict[str, str]]) -> list[str]:
    """Return a Markdown table of messages and each element's reaction."""
    lines = ["| RFC | message | uas | registrar | proxy |", "|---|---|---|---|---|"]
    for case in cases:
        says = case["says"].replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        lines.append(f"| {case['source']} | {says} | {case['uas']} | {case['registrar']} | {case['proxy']} |")
    return lines


def document() -> str:
    """Return the content for docs/sip-conformance.md."""
    cases = [case for path in INDEXES for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]
    messages = [case for case in cases if "uas" in case]
    torture = [case for case in messages if case["source"].startswith(TORTURE)]
    torture.sort(key=lambda case: [int(part) for part in case["source"].removeprefix(TORTURE).split(".")])
    others = sorted((case for case in messages if case not in torture), key=lambda case: case["file"])
    parts = sorted((case for case in cases if "expect" in case), key=lambda case: case["file"])
    lines = [HEADING, f"## RFC 4475, all {len(torture)} messages", "", *rows(torture), ""]
    lines += ["## Messages after other RFCs", "", *rows(others), ""]
    lines += ["## Session descriptions and digest values", "", "| RFC | value | |", "|---|---|---|"]
    lines += [f"| {case['source']} | {case['says']} | {case['expect']} |" for case in parts]
    return "\n".join(lines) + "\n"


def main() -> int:
    expected = document()
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(expected, encoding="utf-8")
        return 0
    if DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == expected:
        return 0
    print("docs/sip-conformance.md is not what the indexes say: run ./do fmt", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
