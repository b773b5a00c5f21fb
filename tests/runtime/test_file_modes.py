"""Directories of state: nobody else may own one, or the link that leads to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.runtime.files.device_file import Device
from wanderbus.runtime.files.file_modes import make_own_directory, private_umask

SOMEBODY, ME = 12_345, 4_242


@pytest.fixture
def as_me(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process that of an ordinary user who owns nothing that the tests make."""
    monkeypatch.setattr(os, "geteuid", lambda: ME)


def of_somebody(path: Path) -> Path:
    """Give a file to somebody else, if we may; else it is ours, who are not the user of the test."""
    if os.getuid() == 0:
        os.chown(path, SOMEBODY, -1, follow_symlinks=False)
    return path


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    make_own_directory(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700] * 2


@pytest.mark.usefixtures("as_me")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(of_somebody(tmp_path / "theirs"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link of somebody else")
def test_a_link_of_somebody_else_is_refused_also_to_root(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    make_own_directory(tmp_path / "link")
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(of_somebody(tmp_path / "link"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may use everybody's directories")
def test_root_may_use_the_directory_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    make_own_directory(of_somebody(tmp_path / "theirs"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
@pytest.mark.usefixtures("as_me")
def test_a_link_of_ours_to_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    of_somebody(tmp_path / "theirs")
    (tmp_path / "link").symlink_to("theirs")
    os.chown(tmp_path / "link", ME, -1, follow_symlinks=False)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_own_directory(tmp_path / "link")


@pytest.mark.usefixtures("as_me")
def test_the_state_directory_of_somebody_else_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(StorageError, match=r"state cannot be used \(it belongs to another user of this computer\)"):
        Device(of_somebody(tmp_path / "state"))


def test_a_stricter_umask_stays(tmp_path: Path) -> None:
    before = os.umask(0o222)
    try:
        with private_umask():
            (tmp_path / "file").touch()
        assert os.umask(0o222) == 0o222
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o400
