"""Lightweight client as one file, to be copied beside a program or to a device.

``python -m wanderbus.lightweight`` prints it; with ``--core`` without the socket, for MicroPython.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_OWN_IMPORT: Final = re.compile(r"^from wanderbus\.\S+ import (\([^)]*\)|[^(\n]*)\n", re.MULTILINE)

MODULES: Final = ("messagepack", "records", "core", "client")


def one_file(*, with_socket: bool = True) -> str:
    """Return the text of the client: its modules, one after the other, without imports from the package."""
    directory = Path(__file__).parent
    parts = []
    for name in MODULES if with_socket else MODULES[:-1]:
        text = (directory / f"{name}.py").read_text(encoding="utf-8")
        parts.append(_OWN_IMPORT.sub("", text))
    return "\n\n".join(parts) + "\n"
