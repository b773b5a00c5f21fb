"""Lakes of several domains that share events, asked together (SPEC T-04, M-01; decision 0168).

Each domain has a lake of its own. An event of a foreign domain has a row there too, of the record with which the
gateway published it again: the publisher is ``sip:NAME@domains.OWN``, the device begins with the server that accepted
the event in NAME, and epoch and number are those of its id there. So all rows of an event have the same *key*: the
domain, the server, and the numbers of its id. The row of its own domain counts; without that, the first of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wanderbus.broker.servers.server_users import domain_of, domain_user
from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.pipeline.history.event_files import RowGroups, rows_of
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.lake_domain import domain_in
from wanderbus.pipeline.lake.logs import LakeLogs, logs_in
from wanderbus.pipeline.lake.reading import opened, require_lake
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LAKE
from wanderbus.pipeline.tables import named

LAKES_MAX: Final = 2**63 // OFFSETS_A_LAKE
"""Bound of the lakes that are asked together: offsets above the bases are numbers of 63 bits."""

KEY: Final = ("domain", "server", "incarnation", "number")
"""Columns that all rows of an event have in common."""

KEY_SOURCES: Final = ("offset", "server", "incarnation", "number", "user", "device", "device_epoch", "device_number")
"""Columns of the table of events that the key is made of."""

Array = np.ndarray[Any, Any]

_SCHEME: Final = "sip:"
_FOREIGN: Final = "@domains."


class DomainLake(NamedTuple):
    """The lake at ``path``, of the domain ``domain``, whose offsets begin at ``base`` among those of several lakes.

    ``domain`` is "" in a lake of earlier versions, if no foreign domain was ever seen there and none is given: no other
    lake has its events then.
    """

    path: Path
    domain: str
    name: str
    """Name for people, different from those of the other lakes."""
    base: int
    logs: LakeLogs

    @property
    def home(self) -> str:
        """Return the name of the domain in keys and in names of servers: its own, or else that for people."""
        return self.domain or self.name

    def publishing_domain(self, user: str) -> str:
        """Return the domain in which an event of this lake was published, by its publisher."""
        return domain_of(user, self.domain) or self.home


def domain_lakes(given: Sequence[Path]) -> tuple[DomainLake, ...]:
    """Return the lakes that are given, each by its directory or as ``DOMAIN=DIRECTORY``.

    :raises ConfigurationError: one is given twice, also as a copy, or they are too many
    :raises StorageError: one is no lake, or its domain is not clear
    """
    split = [_split(each) for each in given]
    paths = [path.resolve() for _, path in split]
    if len(set(paths)) < len(paths):
        raise ConfigurationError("--lake: a directory is given twice; give each lake once")
    if len(paths) > LAKES_MAX:
        raise ConfigurationError(f"--lake: {len(paths)} lakes are too many; give at most {LAKES_MAX}")
    for _, path in split:
        require_lake(path)
    logs = [logs_in(path) for _, path in split]
    # A lake that is asked alone needs no domain.
    domains = [_domain_of(path, domain) if len(split) > 1 else domain for domain, path in split]
    _require_different_logs(paths, domains, logs)
    names = [
        domain if domain and domains.count(domain) == 1 else str(path)
        for domain, (_, path) in zip(domains, split, strict=True)
    ]
    return tuple(
        DomainLake(path, domain, name, place * OFFSETS_A_LAKE, own)
        for place, ((_, path), domain, name, own) in enumerate(zip(split, domains, names, logs, strict=True))
    )


def lakes_of(given: Path | Sequence[DomainLake]) -> tuple[DomainLake, ...]:
    """Return lakes that are given by the directory of one, or as such; ``StorageError`` if there is none."""
    return domain_lakes([given]) if isinstance(given, Path) else tuple(given)


def require_server_of_one_lake(lakes: Sequence[DomainLake], server: str | None) -> None:
    """Return unless a server of several lakes is meant; ``ConfigurationError`` otherwise."""
    if server is not None and len(lakes) > 1:
        raise ConfigurationError(f"--server: {server} is a server of one domain; give the lake of that domain alone")


def _split(given: Path) -> tuple[str, Path]:
    """Return the domain that is named, or "", and the directory."""
    domain, separator, directory = str(given).partition("=")
    if not separator or "/" in domain or given.exists():
        return "", given
    return domain, Path(directory)


def _require_different_logs(paths: Sequence[Path], domains: Sequence[str], logs: Sequence[LakeLogs]) -> None:
    """Return if no log is in two lakes: what only one domain can have in its log would count twice.

    Logs of two domains may have the same name; a lake whose domain is not known may be of any.
    """
    for (path, domain, own), (other, its_domain, its) in combinations(zip(paths, domains, logs, strict=True), 2):
        both = set(own.identities) & set(its.identities)
        if both and (domain == its_domain or not (domain and its_domain)):
            raise ConfigurationError(
                f"--lake: {path} and {other} both have the log {min(both)}; give one of them, or if they are of two "
                "domains, each as DOMAIN=DIRECTORY"
            )


def passing_users(lake: DomainLake, lakes: Sequence[DomainLake]) -> list[str]:
    """Return the users that stand in a lake for the domains of the other ``lakes``.

    What they get is on the way to users of these domains, whose lakes have it too.
    """
    others = {each.domain for each in lakes} - {"", lake.domain}
    return [domain_user(each, lake.domain) for each in sorted(others)] if lake.domain else []


def _domain_of(lake: Path, given: str) -> str:
    """Return the domain of a lake: the one that the logs of its servers have named.

    In a lake of earlier versions, foreign domains that were attached there name it; "" if there are none. Users of a
    domain called ``domains.X`` look like foreign domains in X: the domain then has to be given.
    """
    if recorded := domain_in(lake):
        if given not in ("", recorded):
            raise ConfigurationError(f"--lake: {lake} is the lake of {recorded}, not of {given}")
        return recorded
    table = named("sessions")
    target = LakeTable(lake, table)
    if not target.exists:
        return given
    attached = (pc.field("kind") == "attached") & pc.match_substring(pc.field("user"), _FOREIGN)
    found: set[str] = set()
    for path in target.paths(opened(lake, table)):
        for batch in rows_of(RowGroups(str(path), 0, 1), lambda _: ["user"], attached):
            found |= {user.rpartition(_FOREIGN)[2] for user in batch.column("user").unique().to_pylist()}
    if found and given and given not in found:
        raise ConfigurationError(f"--lake: {lake} is the lake of {' or '.join(sorted(found))}, not of {given}")
    if len(found) > 1 and not given:
        raise StorageError(
            f"{lake} may be of the domain {' or '.join(sorted(found))}; give the right one as --lake DOMAIN={lake}"
        )
    return given or next(iter(found), "")


# Rows of the same event ----------------------------------------------------------------------------------------------


def keys_in(batch: pa.RecordBatch, lake: DomainLake) -> pa.Table:
    """Return the key of each row of a batch of the lake's events, with ``offset`` and ``is_foreign``."""
    table = pa.Table.from_batches([batch]).select(KEY_SOURCES)
    ending = f"{_FOREIGN}{lake.domain}"
    is_foreign = pc.ends_with(table["user"], ending) if lake.domain else pa.array([False] * len(table), pa.bool_())
    names = pc.utf8_slice_codeunits(table["user"], len(_SCHEME), -len(ending) if lake.domain else None)
    servers = pc.list_element(pc.split_pattern(pc.binary_join_element_wise(table["device"], "", "/"), "/"), 0)
    own = lake.home
    columns = {
        "domain": pc.if_else(is_foreign, names, own),
        "server": pc.if_else(is_foreign, servers, table["server"]),
        "incarnation": pc.if_else(is_foreign, table["device_epoch"], table["incarnation"]),
        "number": pc.if_else(is_foreign, table["device_number"], table["number"]),
        "offset": pc.add(table["offset"], lake.base),
        "is_foreign": is_foreign,
    }
    return pa.table(columns)


def repeated_offsets(keys: Sequence[pa.Table]) -> frozenset[int]:
    """Return the offsets of the rows that do not count, because another row of the same event does."""
    if not keys:
        return frozenset()
    table = pa.concat_tables(keys).combine_chunks()
    columns = [_codes(table[name]) for name in KEY]
    offsets, is_foreign = table["offset"].to_numpy(), table["is_foreign"].to_numpy()
    order = np.lexsort((offsets, is_foreign, *columns))
    is_repeat = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        ordered = column[order]
        is_repeat &= ordered[1:] == ordered[:-1]
    return frozenset(offsets[order[1:][is_repeat]].tolist())


def _codes(column: pa.ChunkedArray) -> Array:
    """Return a number for each value of a column: equal ones for equal values."""
    numbers = column if pa.types.is_integer(column.type) else column.combine_chunks().dictionary_encode().indices
    codes: Array = numbers.to_numpy().astype(np.int64)
    return codes
