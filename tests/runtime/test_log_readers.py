"""Registered readers of the log: atomic files, names, and what a program loads to register."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.log_readers import LogReader, load_reader, reader_files, register_reader, remove_reader
from wanderbus.segments import LogPlace


def test_the_last_registration_counts_and_its_end_is_final(tmp_path: Path) -> None:
    assert reader_files(tmp_path) == []
    for offset in (3, 8):
        register_reader(tmp_path, LogReader("lake", offset, 1_000, 60))
    register_reader(tmp_path, LogReader("other", 5, 1_000, 60))
    assert [load_reader(path) for path in reader_files(tmp_path)] == [
        LogReader("lake", 8, 1_000, 60),
        LogReader("other", 5, 1_000, 60),
    ]
    for _ in range(2):
        remove_reader(tmp_path, "lake")
    assert [path.name for path in reader_files(tmp_path)] == ["other.json"]
    assert (tmp_path / "readers").stat().st_mode & 0o777 == 0o700


def test_a_registration_expires(tmp_path: Path) -> None:
    reader = LogReader("lake", 3, 1_000_000, 60)
    assert not reader.is_expired(61_000_000)
    assert reader.is_expired(61_000_001)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"name":"x","offset":1,"updated_us":1,"expires_s":1}'])
def test_a_damaged_registration_is_noticed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lake.json"
    path.write_bytes(content)
    assert load_reader(path) is None


def test_a_registration_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    path = tmp_path / "lake.json"
    path.write_text('{"name":"lake","offset":8,"updated_us":1,"expires_s":60}')
    reader = load_reader(path)
    assert reader == LogReader("lake", 8, 1, 60)
    assert reader.place == LogPlace(8)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "x" * 101, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="use up to 100 letters"):
        register_reader(tmp_path, LogReader(name, 0, 0, 1))


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "readers").touch()
    with pytest.raises(StorageError, match=r"the reader lake cannot register in .*: File exists"):
        register_reader(tmp_path, LogReader("lake", 0, 0, 1))


def test_a_program_that_registers_loads_no_server() -> None:
    code = (
        "import sys, wanderbus.runtime.log_readers\n"
        "bad = {'broker', 'server', 'sip', 'domain', 'client', 'settings'}\n"
        "print([name for name in sys.modules if name.startswith('wanderbus.') and name.split('.')[1] in bad])\n"
        "print('apsw' in sys.modules, 'asyncio' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ)
    assert found.stdout == "[]\nFalse False\n"
