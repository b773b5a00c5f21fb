"""Places of commands: one of a command at a time, for its owner alone, and one line where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus.cli.devices import free_place, named_place
from wanderbus.errors import ConfigurationError, StorageError


def test_commands_at_the_same_time_have_places_of_their_own(tmp_path: Path) -> None:
    base = tmp_path / "state" / "pub"
    with free_place(base) as first, free_place(base) as second:
        assert (first.directory, second.directory) == (base / "1", base / "2")
    with free_place(base) as again:
        assert again.directory == base / "1"
    directories = [base.parent, base, base / "1", base / "2"]
    assert [directory.stat().st_mode & 0o777 for directory in directories] == [0o700] * 4
    assert (base / "1" / "lock").stat().st_mode & 0o777 == 0o600


def test_a_named_place_is_one_commands_at_a_time(tmp_path: Path) -> None:
    with (
        named_place(tmp_path / "kept", "sub"),
        pytest.raises(ConfigurationError, match="another sub is running"),
        named_place(tmp_path / "kept", "sub"),
    ):
        pass


@pytest.mark.parametrize("broken", ["file", "lock"])
def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path, broken: str) -> None:
    base = tmp_path / "pub"
    if broken == "file":
        base.write_text("")
    else:
        (base / "1" / "lock").mkdir(parents=True)
    with (
        pytest.raises(StorageError, match=f"^the state directory {base / '1'} cannot be used") as caught,
        free_place(base),
    ):
        pass
    assert "\n" not in str(caught.value)
