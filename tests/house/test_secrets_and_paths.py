"""No file of the project holds a secret, a path of somebody's machine, or the address of a package registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.\-])/(?:home|root|work|Users|mnt|opt)/[\w.]"),
    "the address of a package registry": re.compile(
        r"pypi\.(?:org|python)|pythonhosted\.org|npmjs\.(?:org|com)|anaconda\.(?:org|com)|/simple/?(?=[\s\"'])"
    ),
    "an option that names a registry": re.compile(r"--(?:extra-)?index-url|--find-links|--trusted-host"),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY"),
    "an access token": re.compile(r"\b(?:gh[pousr]_\w{20}|AKIA[0-9A-Z]{16}|xox[bp]-\w{10}|sk-\w{20})"),
}


def faults(text: str) -> list[str]:
    return [f"{kind}: {match[0]!r}" for kind, pattern in FORBIDDEN.items() if (match := pattern.search(text))]


def test_no_file_holds_any(files: list[Path], root: Path) -> None:
    found = []
    for path in files:
        if path == Path(__file__).resolve():
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found += [f"{path.relative_to(root)}: {fault}" for fault in faults(data.decode(errors="replace"))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["see /home/me/x", "'/root/.cache'", "--find-links x", "https://pypi.org/project", "-----BEGIN PRIVATE KEY-----"],
)
def test_the_checker_sees_a_fault(text: str) -> None:
    assert len(faults(text)) == 1


def test_lock_holds_pins_and_hashes_alone(root: Path) -> None:
    """Every line is a pin, its hash or a comment; no line names a source of packages."""
    line = re.compile(r"[\w.-]+==[\w.!+-]+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|#.*|")
    for number, text in enumerate((root / "requirements.lock").read_text(encoding="utf-8").splitlines(), start=1):
        assert line.fullmatch(text), f"line {number}: {text}"
