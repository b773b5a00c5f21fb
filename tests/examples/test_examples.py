"""Every example runs as a program of its own with the expected output (SPEC Q-05, D-11)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUN_S_MAX = 60

EXPECTED = {
    "chat": [
        "sip:bob@localhost is in touch with sip:alice@localhost",
        "sip:alice@localhost is in touch with sip:bob@localhost",
        "bob receives: Are you there, Bob?",
        "alice receives: I am. How did you find me?",
        "bob receives: By your name: the proxy knew the rest.",
        "alice receives: And where do your words come from?",
        "bob receives: From where our session says, past every server.",
    ],
    "chat_moving": [
        "alice received 'And now?' and bob 'At 127.0.0.2.'",
        "alice received 'And now?' and bob 'At 127.0.0.3.'",
        "alice received 'And now?' and bob 'At 127.0.0.4.'",
        "still the same session",
        "8 messages delivered, each once",
    ],
    "compound": [
        "N11150 came 42 minutes late, and leaves 20 late",
        "2 events took part",
    ],
    "domain": [
        "the same order at both servers: True",
        "eve reads: Are you there?",
        "eve reads: Yes. You asked: Are you there?",
    ],
    "extending": [
        "Bob receives 24.40",
        "the broker is away",
        "stored 25.10",
        "stored 25.60",
        "the broker is back",
        "Bob receives 25.60",
        "Bob finds 26.70, the latest of 3",
    ],
    "light": [
        "an agent publishes, the device reads 21.5",
        "the device reboots; 22.5 is published meanwhile",
        "the device reads 22.5, and publishes",
        "the agent reads {'device': 'meter-7'}",
    ],
    "merged": [
        "{'Stock': 'PETR4', 'Price': 24.9}",
        "{'Text': 'the port is closed'}",
        "{'Stock': 'PETR4', 'Price': 22.7}",
        "{'Text': 'the port is open again'}",
        "sip:investor@localhost session default: 0 waiting, 0 gaps",
    ],
    "since": [
        "past {'Stock': 'PETR4', 'Price': 22.7}",
        "past {'Stock': 'PETR4', 'Price': 23.1}",
        "new {'Stock': 'PETR4', 'Price': 21.5}",
    ],
    "roaming": [
        "moved to 127.0.0.2",
        "moved to 127.0.0.3",
        "moved to 127.0.0.4",
        "90 quotes published, 90 received over 4 addresses",
        "each once and in order",
    ],
    "ticker": [
        "home, battery 90%, network wlan: phone",
        "train, battery 70%, network cellular: phone",
        "office, battery 60%, network wlan: desk",
        "tunnel, battery 40%, network none: desk",
        "train, battery 30%, network cellular: phone",
        "home, battery 10%, network wlan: kitchen",
        "80 ticks, each once and in order",
    ],
    "stock_exchange": [
        "PETR4 at 24.90, for both",
        "PETR4 at 23.15, for the first alone",
    ],
}
"""Output of each example, apart from its log."""


def results(output: str) -> list[str]:
    """The lines that the program itself prints; those of the log begin with a date."""
    return [line for line in output.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]


def test_every_example_is_tested() -> None:
    with_their_own = {"bulk", "eci_program"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*EXPECTED, *with_their_own}


def test_every_example_is_listed_in_the_readme() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = sorted(path.name for path in EXAMPLES.iterdir() if path.is_file())  # __pycache__ comes and goes
    assert [name for name in names if f"`{name}`" not in text] == ["README.md"]


@pytest.mark.integration
@pytest.mark.parametrize(("name", "words"), [*((name, []) for name in sorted(EXPECTED)), ("stock_exchange", ["eci"])])
def test_example(name: str, words: list[str], tmp_path: Path) -> None:
    """SPEC A-09: the stock exchange prints the same over the original ECI."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert results(done.stdout) == EXPECTED[name]
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"
