"""The whole demonstration, with others' servers in place of ours, and behind NATs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import kamailio, rtpengine

RUN_S_MAX = 600.0
"""More than the limits of the parts of a run together, so that a slow part is named."""
SCENARIO = "the whole demo"

NEEDS_KAMAILIO = pytest.mark.skipif(kamailio.PROGRAM is None, reason=kamailio.MISSING)
NEEDS_RTPENGINE = pytest.mark.skipif(rtpengine.PROGRAM is None, reason=rtpengine.MISSING)
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="networks behind NAT take root")


def _case(peer: str, options: str, *needs: pytest.MarkDecorator) -> object:
    return pytest.param(options, marks=[pytest.mark.interop(peer=peer, scenario=SCENARIO), *needs], id=peer)


@pytest.mark.skipif(shutil.which("java") is None and not os.environ.get("JAVA_HOME"), reason="Java is not installed")
@pytest.mark.parametrize(
    "options",
    [
        _case("Kamailio", "--sip kamailio", NEEDS_KAMAILIO),
        _case("Kamailio and rtpengine", "--sip kamailio --relay rtpengine", NEEDS_KAMAILIO, NEEDS_RTPENGINE),
        _case("Kamailio and our relay", "--sip kamailio --relay wanderbus --nat", NEEDS_KAMAILIO, NEEDS_ROOT),
        _case("NAT", "--nat", NEEDS_ROOT),
    ],
)
def test_the_demo(tmp_path: Path, options: str) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "demo", "--json", str(result), "--report", str(tmp_path / "report.html")]
    ran = subprocess.run([*command, *options.split()], capture_output=True, text=True, timeout=RUN_S_MAX)
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"
    found = json.loads(result.read_text())
    assert found["good"]
    assert found["sip"] == ("kamailio" if "--sip kamailio" in options else "wanderbus")
    assert (found["address_mode"] == "nat") == ("--nat" in options)
    relay = next((name for name in ("rtpengine", "wanderbus") if f"--relay {name}" in options), "none")
    assert found["relay"] == ("wanderbus" if options == "--nat" else relay)
    if relay != "none":  # the relay inside the server does not report its work
        assert found["relayed_datagrams"] > found["published"]
