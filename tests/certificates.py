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
    _request(directory, "server")
    _sign(directory, "server", "IP:127.0.0.1,IP:::1,DNS:localhost", "serverAuth")
    return Certificates(*(directory / name for name in ("authority.pem", "server.pem", "server.key", "stranger.pem")))


def certify(directory: Path, name: str, alternatives: str) -> Path:
    """Have the authority of :func:`make_certificates` in ``directory`` sign ``name``; return chain and key in one file.

    The certificate is for both ends of a connection, as a SIP server of a domain needs it.
    """
    _request(directory, name)
    _sign(directory, name, alternatives, "serverAuth,clientAuth")
    both = directory / f"{name}-both.pem"
    both.write_text((directory / f"{name}.pem").read_text() + (directory / f"{name}.key").read_text())
    return both


def _request(directory: Path, name: str) -> None:
    _run(
        directory,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=localhost", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
    )


def _sign(directory: Path, name: str, alternatives: str, use: str) -> None:
    (directory / f"{name}.ext").write_text(f"subjectAltName={alternatives}\nextendedKeyUsage={use}\n")
    _run(
        directory,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"),
        *("-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
    )


def _run(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=30)
