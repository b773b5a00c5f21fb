"""``wanderbus domain``: the file of an event domain."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from wanderbus.cli.application import run

Output = pytest.CaptureFixture[str]


def test_a_new_domain_has_a_file_and_private_keys(tmp_path: Path, capsys: Output) -> None:
    directory = tmp_path / "domain"
    file = directory / "domain.toml"
    assert run(["domain", "init", str(directory), "--size", "3", "--name", "example.org", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "servers": 3}
    keys = sorted((directory / "keys").iterdir())
    assert [key.name for key in keys] == ["s1.key", "s2.key", "s3.key"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (file, *keys))
    assert run(["domain", "servers", "--config", str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["address"] for row in rows] == ["127.0.0.1:5601", "127.0.0.2:5601", "127.0.0.3:5601"]
    assert [("directory" in row["roles"]) for row in rows] == [True, False, False]
    assert sum(row["groups"] for row in rows) == 64
    assert run(["domain", "channels", "Stock", "Flight", "--config", str(file), "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["subject"], row["epoch"], row["model"], row["merging"]) for row in shown] == [
        ("Stock", 1, "ordered", "perfect"),
        ("Flight", 1, "ordered", "perfect"),
    ]
    assert {row["leader"] for row in shown} <= {"s1", "s2", "s3"}
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 0
    assert capsys.readouterr().out.endswith("epoch 1, ordered, merging perfect\n")


def test_nothing_is_overwritten(tmp_path: Path, capsys: Output) -> None:
    assert run(["domain", "init", str(tmp_path)]) == 0
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) == 2
    assert run(["domain", "init", str(tmp_path)]) == 2
    assert "domain.toml exists and is not overwritten; choose another directory" in capsys.readouterr().err
    (tmp_path / "domain.toml").unlink()
    assert run(["domain", "init", str(tmp_path)]) == 2
    assert "s1.key exists and is not overwritten" in capsys.readouterr().err
    assert (tmp_path / "keys" / "s1.key").read_bytes() == files[tmp_path / "keys" / "s1.key"]


def test_an_unusable_file_is_named_with_its_key(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "domain.toml"
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 2
    assert "domain.toml cannot be read: No such file or directory" in capsys.readouterr().err
    assert run(["domain", "init", str(tmp_path)]) == 0
    file.write_text(file.read_text() + '\n[parents]\nStock = "Stock"\n')
    assert run(["domain", "channels", "Stock", "--config", str(file)]) == 2
    assert f"{file}: parents: 'Stock' is its own ancestor" in capsys.readouterr().err
