"""Certificates for tests, made on the spot by the ``openssl`` command: one authority, and a server on loopback."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificates(NamedTuple):
    """PEM files: an authority, its certificate for 127.0.0.1, ::1 and localhost with the key, another authority."""

    authority: Path
    certificate: Path
    key: Path
    stranger: Path


def make_certificates(directory: Path) -> Certificates:
    """Make all files in ``directory``; skips the test where there is no ``openssl``."""
    if shutil.which("openssl") is None:
        pytest.skip("TLS is not tested: the openssl command, which makes the certificates, is not installed")
    for name in ("authority", "stranger"):
        _run(
            directory,
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    _run(
        directory,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"),
    )
    (directory / "server.ext").write_text(
        "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost\nextendedKeyUsage=serverAuth\n"
    )
    _run(
        directory,
        *("x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"),
        *("-days", "2", "-extfile", "server.ext", "-out", "server.pem"),
    )
    return Certificates(*(directory / name for name in ("authority.pem", "server.pem", "server.key", "stranger.pem")))


def _run(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=30)
