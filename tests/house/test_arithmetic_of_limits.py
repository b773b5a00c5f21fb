"""The sums in docs/SECURITY.md are those of the default settings (tools/limits.py writes them)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wanderbus.settings.bounds import CONSTANTS, values_of
from wanderbus.settings.server import ServerSettings


def test_the_page_is_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "limits.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_limit_that_is_reported_is_a_setting_or_a_known_constant(root: Path) -> None:
    """Every limit that `wanderbus limits` can show has a value there, unless it is no number."""
    import re

    settings = ServerSettings(domain="example.org", users={}, data_dir=root)
    known = set(values_of(settings)) | set(CONSTANTS) | {"descriptors", "data_channel", "registrar"}
    reported = {
        name
        for path in (root / "src" / "wanderbus").rglob("*.py")
        for name in re.findall(r'(?:Limited|note)\(\s*"([a-z_]+\.[A-Za-z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(reported) > 3
    assert reported - known == set()
