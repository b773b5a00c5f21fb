"""`wanderbus check` against servers that run: its result, its exit status, and a server that is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.certificates import make_certificates
from tests.cli.fleet import Fleet
from tests.cli.shell import ROOT, Shell
from tests.cli.test_operations import asking, office, with_queue

pytestmark = pytest.mark.integration

__all__ = ["office"]

ROOM = ("--disk-free-mib", "0", "--disk-free-critical-mib", "0")
"""The disk of the tests may be small."""


def checked(shell: Shell, *words: str) -> tuple[int, dict[str, Any]]:
    status, out, err = shell.run("check", "--json", *ROOM, *words)
    assert err == ""
    result: dict[str, Any] = json.loads(out)
    assert {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}[result["status"]] == status
    return status, result


def test_server_that_is_well(office: Shell) -> None:
    address = f"127.0.0.1:{office.port}"
    nothing: dict[str, Any] = {"status": "ok", "servers": [address], "findings": []}
    assert checked(office, *asking(office, "olga")) == (0, nothing)
    assert checked(office, "--data-dir", "data") == (0, nothing)
    status, out, _ = office.run("check", *ROOM, "--data-dir", "data")
    assert (status, out) == (0, "OK: all is well, 1 server asked\n")


def test_queue_that_is_nearly_full_and_unread(office: Shell) -> None:
    with_queue(office, 1, 2)
    status, result = checked(office, *asking(office, "olga"), "--queue-share", "0.0002", "--unread-s", "0")
    assert status == 1
    assert sorted(each["kind"] for each in result["findings"]) == ["queue_bound", "unread"]
    assert all("alice@localhost sub.kept" in each["text"] for each in result["findings"])
    status, out, _ = office.run("check", *ROOM, *asking(office, "olga"), "--unread-s", "0")
    heading, line = out.splitlines()
    assert (status, heading) == (1, "WARNING: 1 finding, 1 server asked")
    assert line.startswith(
        f"warning: 127.0.0.1:{office.port}: nobody reads 2 notifications of alice@localhost sub.kept"
    )


def test_limit_that_was_applied(office: Shell) -> None:
    assert checked(office, "--user", "sip:bob@localhost", "--password", "no", *asking(office, "bob")[4:])[0] == 3
    status, result = checked(office, *asking(office, "olga"))
    assert (status, [each["kind"] for each in result["findings"]]) == (1, ["limit"])
    assert "sip:bob@localhost" in result["findings"][0]["text"]
    assert checked(office, *asking(office, "olga"), "--recent-s", "0")[0] == 0


def test_user_who_is_no_operator(office: Shell) -> None:
    status, result = checked(office, *asking(office, "alice"))
    assert (status, [each["kind"] for each in result["findings"]]) == (3, ["refused"])


def test_server_that_does_not_answer(office: Shell) -> None:
    office.kill()
    for words in (["--data-dir", "data"], [*asking(office, "olga"), "--timeout", "1"]):
        status, result = checked(office, *words)
        assert (status, [each["kind"] for each in result["findings"]]) == (2, ["no_answer"])


def test_status_of_what_cannot_be_found_out(office: Shell) -> None:
    assert office.run("check", "--nonsense")[0] == 3
    assert office.run("check", "--unread-s", "soon")[0] == 3
    assert checked(office)[0] == 3, "no server is named, and none is nearby"
    status, result = checked(office, "--data-dir", "data", "--lake", "nowhere", "--disk-free-mib", "999999999")
    assert (status, [each["kind"] for each in result["findings"]]) == (3, ["disk", "error"])
    assert "there is no lake nowhere" in result["findings"][1]["text"]


def test_certificate_that_expires_soon(shell: Shell) -> None:
    certificates = make_certificates(shell.directory)
    shell.write_users("olga:secret\n")
    (shell.directory / "roles.toml").write_text('[broker.roles]\n"sip:olga@localhost" = "operator"\n')
    tls = ("--tls-port", "0", "--tls-certificate", str(certificates.certificate), "--tls-key", str(certificates.key))
    shell.up("--config", "roles.toml", *tls)  # the port of TLS comes last
    words = [*asking(shell, "olga"), "--transport", "tls", "--ca-file", str(certificates.authority)]
    status, result = checked(shell, *words)
    assert (status, [each["kind"] for each in result["findings"]]) == (1, ["certificate"])
    assert checked(shell, *words, "--certificate-days", "1")[0] == 0


def test_domain_with_a_server_that_is_suspended(fleet: Fleet) -> None:
    status, result = checked(fleet, *fleet.operator())
    assert (status, len(result["servers"])) == (0, 3), result
    pid = fleet.pid("s2")
    os.kill(pid, signal.SIGSTOP)
    try:
        status, result = checked(fleet, *fleet.operator(), "--timeout", "2")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert status == 2
    assert "no_answer" in [each["kind"] for each in result["findings"] if each["server"].startswith("s2")]


def test_modules_without_the_packages_of_a_server() -> None:
    program = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"apsw", "dns", "numpy", "numba", "textual", "pyspark", "pyarrow"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
for name in ("bench.bench", "monitor.check", "monitor.top"):
    importlib.import_module(f"wanderbus.cli.{name}")
"""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
