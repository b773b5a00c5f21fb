"""Kamailio as the SIP server of a domain, in place of our own: its files, and its command line.

The configuration is the shipped one, ``examples/kamailio.cfg``, unchanged; the settings of the site are written beside
it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import ROOT
from wanderbus.testbed import CannotRunError

CONFIGURATION: Final = ROOT / "examples" / "kamailio.cfg"

_WHERE: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
PROGRAM: Final = shutil.which("kamailio", path=_WHERE)
MISSING: Final = "Kamailio is not installed; on Debian: apt-get install --no-install-recommends kamailio"


@dataclass(frozen=True)
class Kamailio:
    """Settings of a site: users with their passwords (the broker among them), and its addresses."""

    domain: str
    users: Mapping[str, str]
    address: str
    port: int
    tls_port: int | None = None
    certificate: tuple[Path, Path] | None = None
    """PEM files of the certificate and its key; with them TLS is served at ``tls_port``."""
    algorithm: str = "SHA-256"
    """Digest algorithm; the other one is MD5."""
    ha1: bool = False
    """Flag: ``users`` has the digest of "name:domain:password" in place of passwords."""
    call_digest: bool = True
    """Flag: the server challenges calls too, instead of leaving that to the callee."""
    relays: Sequence[tuple[str, int]] = ()
    """Command addresses of the media relays."""
    relay_for_all: bool = False
    """Flag: every call uses a relay, not only calls of parties behind NAT."""
    relay_flags: str = ""
    """Relay flags in addition to those of the configuration."""
    peer: tuple[str, str, Path] | None = None
    """Another domain that users may call, its server as ``address:port``, and the authorities in PEM."""
    workers: int = 2

    def install(self, directory: Path) -> list[str]:
        """Write its files into ``directory``; return the command line that runs it in the foreground.

        Raises :class:`CannotRunError` where there is no Kamailio.
        """
        if PROGRAM is None:
            raise CannotRunError(MISSING)
        directory.mkdir(parents=True, exist_ok=True)
        main = directory / "kamailio.cfg"
        shutil.copyfile(CONFIGURATION, main)
        (directory / "kamailio-local.cfg").write_text("".join(f"#!{line}\n" for line in self._own()))
        users = (f'$sht(users=>{name}) = "{_quoted(password)}";\n' for name, password in self.users.items())
        (directory / "kamailio-users.cfg").write_text("".join(users))
        # -DD: the started process is the parent of all its children and ends them, also when its own parent is
        # killed; -E: it writes its errors to stderr.
        command = ["setpriv", "--pdeathsig", "TERM", PROGRAM, "-DD", "-E", "-f", str(main)]
        return [*command, "-m", "64", "-M", "8", "-Y", str(directory), "-w", str(directory)]

    def _own(self) -> list[str]:
        values = {
            "MY_DOMAIN": self.domain,
            "MY_ADDRESS": f"[{self.address}]" if ":" in self.address else self.address,
            "MY_PORT": self.port,
            "MY_ALGORITHM": self.algorithm,
            "MY_WORKERS": self.workers,
        }
        values |= {"MY_SECRETS": 1} if self.ha1 else {}
        flags = [] if self.call_digest else ["WITHOUT_CALL_DIGEST"]
        if self.certificate is not None:
            flags.append("WITH_TLS")
            values |= {"MY_TLS_PORT": self.tls_port, "MY_CERTIFICATE": self.certificate[0]}
            values["MY_TLS_KEY"] = self.certificate[1]
        if self.peer is not None:
            flags.append("WITH_PEER")
            names = ("MY_PEER_DOMAIN", "MY_PEER_ADDRESS", "MY_AUTHORITIES")
            values |= dict(zip(names, self.peer, strict=True))
        if self.relays:
            flags += ["WITH_RELAY", *(["WITH_RELAY_FOR_ALL"] if self.relay_for_all else [])]
            values["MY_FURTHER_FLAGS"] = self.relay_flags
            values["MY_RELAYS"] = " ".join(f"udp:{host}:{port}" for host, port in self.relays)
        return [f'substdef "!{name}!{value}!g"' for name, value in values.items()] + [
            f"define {name}" for name in flags
        ]


def _quoted(password: str) -> str:
    """Return ``password`` escaped for a Kamailio string."""
    return re.sub(r'(["\\])', r"\\\1", password)
