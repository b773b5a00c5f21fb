"""examples/kamailio.cfg, and the pages that explain its use."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness.kamailio import CONFIGURATION, Kamailio

PAGES = ("docs/kamailio.md", "docs/rtpengine.md")
ROOT = Path(__file__).resolve().parents[2]

_SETTING = re.compile(r"\b(?:MY|WITH|WITHOUT)_[A-Z_]+\b")


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_of_a_page_is_one_of_the_file(page: str) -> None:
    named = set(_SETTING.findall((ROOT / page).read_text(encoding="utf-8")))
    assert named
    assert named <= set(_SETTING.findall(CONFIGURATION.read_text(encoding="utf-8")))


def test_every_setting_has_a_default_or_is_a_switch() -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    for setting in set(_SETTING.findall(text)):
        if setting.startswith("MY_"):
            assert len(re.findall(rf"(?m)^#!ifndef {setting}\n#!substdef \"!{setting}!.*!g\"\n#!endif$", text)) == 1
        else:
            assert re.search(rf"(?m)^#!ifn?def {setting}$", text)


def test_no_setting_begins_like_another() -> None:
    """Kamailio would put the value of the shorter one into the name of the longer."""
    names = {name for name in _SETTING.findall(CONFIGURATION.read_text(encoding="utf-8")) if name.startswith("MY_")}
    assert [(one, other) for one in names for other in names if one != other and other.startswith(one)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_of_a_page_is_one_of_the_command(page: str) -> None:
    known = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for line in re.findall(r"(?m)^ +wanderbus (.*)$", (ROOT / page).read_text(encoding="utf-8")):
        command = known.partition(f"## wanderbus {line.split()[0]}\n")[2].partition("\n## ")[0]
        for option in re.findall(r"(?<= )--[a-z-]+", line):
            assert f"  {option}" in command, line


def test_a_page_makes_the_users_of_kamailio_from_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"alice": 'a"b\\c:d&e', "bob": "sesame"}
    monkeypatch.setattr("harness.kamailio.PROGRAM", "kamailio")
    Kamailio(domain="example.org", users=users, address="127.0.0.1", port=5060).install(tmp_path)
    (tmp_path / "users.txt").write_text("".join(f"{name}:{password}\n" for name, password in users.items()))
    (command,) = re.findall(r"`(sed .*users\.txt)`", (ROOT / PAGES[0]).read_text(encoding="utf-8"))
    made = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert made == (tmp_path / "kamailio-users.cfg").read_text()
