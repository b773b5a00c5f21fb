"""The identity of a device: kept, locked, or ephemeral (DESIGN 5.4)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.runtime.files.device_file import Device, default_state_dir


def test_a_device_is_itself_again(tmp_path: Path) -> None:
    first = Device(tmp_path / "a" / "b")
    first.close()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    second = Device(tmp_path / "a" / "b")
    second.close()
    assert first.uuid == second.uuid == str(uuid.UUID(first.uuid))
    assert not first.ephemeral
    assert not second.ephemeral


def test_a_directory_in_use_gives_an_ephemeral_device(tmp_path: Path) -> None:
    first, second = Device(tmp_path), Device(tmp_path)
    assert second.ephemeral
    assert second.uuid != first.uuid
    second.close()
    first.close()
    third = Device(tmp_path)
    third.close()
    assert (third.ephemeral, third.uuid) == (False, first.uuid)


def test_two_directories_are_two_devices(tmp_path: Path) -> None:
    one, other = Device(tmp_path / "one"), Device(tmp_path / "other")
    one.close()
    other.close()
    assert one.uuid != other.uuid


def test_a_file_that_holds_no_uuid_is_refused_and_let_go(tmp_path: Path) -> None:
    (tmp_path / "device").write_text("nonsense\n")
    for _ in range(2):
        with pytest.raises(StorageError, match="does not hold a UUID; delete it, and the agent becomes a new device"):
            Device(tmp_path)
    assert (tmp_path / "device").read_text() == "nonsense\n"


def test_a_byte_that_was_changed_makes_no_other_device(tmp_path: Path) -> None:
    whose = Device(tmp_path)
    whose.close()
    path = tmp_path / "device"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            again = Device(tmp_path)
        except StorageError as error:
            outcome = str(error)
        else:
            again.close()
            outcome = again.uuid
        assert outcome == whose.uuid or outcome.endswith("delete it, and the agent becomes a new device"), place
    path.write_bytes(whole)
    Device(tmp_path).close()


def test_a_file_of_an_earlier_version_gets_its_checksum(tmp_path: Path) -> None:
    identity = str(uuid.uuid4())
    (tmp_path / "device").write_text(f"{identity}\n")
    for _ in range(2):
        device = Device(tmp_path)
        device.close()
        assert device.uuid == identity
    assert len((tmp_path / "device").read_text().split()) == 2


def test_a_file_that_is_empty_makes_a_new_device_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Device(tmp_path).close()
    assert caplog.messages == []
    (tmp_path / "device").write_text("")
    Device(tmp_path).close()
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path / 'device'} is empty: this becomes a new device")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"state directory .*/file/state cannot be used .*set another state_dir"):
        Device(tmp_path / "file" / "state")


def test_the_default_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert default_state_dir("sip:alice@localhost") == Path("/var/state/wanderbus/alice@localhost")
    assert default_state_dir("sip:a/../b@localhost") == Path("/var/state/wanderbus/a_.._b@localhost")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_state_dir("sip:alice@localhost").parts[-4:] == (".local", "state", "wanderbus", "alice@localhost")


def belong_to_somebody_else(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make another user the owner of ``path``; without root, pretend that this process has another user."""
    if (user := os.geteuid()) == 0:
        os.chown(path, 65_534, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)


def test_an_identity_that_another_user_of_the_computer_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "device").write_text("00000000-0000-4000-8000-000000000000")
    belong_to_somebody_else(monkeypatch, tmp_path / "device")
    with pytest.raises(StorageError, match="device belongs to another user of this computer"):
        Device(tmp_path)


def test_a_link_of_another_user_leads_to_no_file_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir(0o700)
    ours = tmp_path / "empty_file_of_ours"
    ours.touch()
    for target in (ours, tmp_path / "not_there"):
        (state / "device").symlink_to(target)
        with monkeypatch.context() as patch:
            belong_to_somebody_else(patch, state / "device")
            with pytest.raises(StorageError, match="belongs to another user"):
                Device(state)
        (state / "device").unlink()
    assert ours.read_bytes() == b""
    assert not (tmp_path / "not_there").exists()


def test_a_link_of_our_own_is_followed(tmp_path: Path) -> None:
    first = Device(tmp_path / "one")
    first.close()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "device").symlink_to(tmp_path / "one" / "device")
    assert Device(tmp_path / "two").uuid == first.uuid


@pytest.mark.parametrize(("mode", "lines"), [(0o777, 1), (0o1777, 0), (0o755, 0)])
def test_a_directory_in_which_everybody_can_exchange_files_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, lines: int
) -> None:
    tmp_path.chmod(mode)
    Device(tmp_path).close()
    assert [line for line in caplog.messages if "can be written by others: chmod go-w" in line] == caplog.messages
    assert len(caplog.messages) == lines


def test_two_users_of_one_directory_at_once_are_two_devices_and_one_after_the_other_the_same(tmp_path: Path) -> None:
    """The broker keys its state of a device by user and device, so the same id does no harm."""
    alice = Device(tmp_path)
    bob = Device(tmp_path)
    assert (alice.ephemeral, bob.ephemeral) == (False, True)
    assert alice.uuid != bob.uuid
    alice.close()
    assert Device(tmp_path).uuid == alice.uuid


def test_a_full_disk_is_an_error_and_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError, match=r"/device cannot be written: No space left on device"):
            Device(tmp_path)
    assert os.listdir(tmp_path) == []
    device = Device(tmp_path)
    assert not device.ephemeral
    device.close()
