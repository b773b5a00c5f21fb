"""The identity of a device: kept, locked, or ephemeral (DESIGN 5.4)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.runtime.device import Device, default_state_dir


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
        with pytest.raises(StorageError, match="does not hold a UUID; delete it to become a new device"):
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
        assert outcome == whose.uuid or outcome.endswith("delete it to become a new device"), place
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
    assert line.startswith(f"{tmp_path / 'device'} is empty: this is a new device")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"state directory .*/file/state cannot be used .*give another as state_dir"):
        Device(tmp_path / "file" / "state")


def test_the_default_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert default_state_dir("sip:alice@localhost") == Path("/var/state/wanderbus/alice@localhost")
    assert default_state_dir("sip:a/../b@localhost") == Path("/var/state/wanderbus/a_.._b@localhost")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_state_dir("sip:alice@localhost").parts[-4:] == (".local", "state", "wanderbus", "alice@localhost")
