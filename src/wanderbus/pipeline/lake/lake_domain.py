"""Name of the domain whose servers wrote the logs of a lake, in a file within it (decision 0168)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.pipeline.durable_files import write_durably
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.tables import RECORDS
from wanderbus.runtime.segment_files import read_log_domain

FILE: Final = "_domain"
"""Name of the file; Spark passes over names that begin with an underscore."""


def store_domain(lake: Path, logs: Sequence[Path]) -> None:
    """Store the domain that the logs name; keep what the lake has if none does, or if it has other logs.

    :raises StorageError: they name several
    """
    named = {log: domain for log in logs if (domain := read_log_domain(log))}
    if len(set(named.values())) > 1:
        text = " and ".join(f"{log} is of {domain}" for log, domain in named.items())
        raise StorageError(f"a lake has the logs of one domain, but {text}; make a lake for each domain")
    is_new = not LakeTable(lake, RECORDS).exists
    if named and (is_new or {log_identity(log) for log in named} & set(logs_in(lake).identities)):
        (domain,) = set(named.values())
        if domain != domain_in(lake):
            write_durably(lake / FILE, f"{domain}\n".encode())


def domain_in(lake: Path) -> str:
    """Return the domain of a lake; "" if servers of earlier versions wrote its logs."""
    path = lake / FILE
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise StorageError(f"{path} is damaged; remove it, and 'wanderbus pipeline run' writes it") from None
