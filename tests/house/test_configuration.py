"""docs/configuration.md and the sample files match the settings structs (tools/configuration.py writes them)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from wanderbus.config import ServerSettings
from wanderbus.runtime.files.config_files import settings_in


def test_the_page_and_the_samples_are_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "configuration.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_settings_of_a_server_on_the_internet_can_be_used(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "internet.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "server.toml"
    file.write_text(text)
    settings = settings_in(ServerSettings, file)
    assert (settings["data_port"], settings["relay"].ports) == (5071, "30000-39999")
