"""Options of the sources, checked; an error names the option at fault (SPEC T-02)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import msgspec

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.runtime.segment_files import end_of_log, log_directory

ROWS_PER_PARTITION: Final = 50_000
"""Records that one task reads, unless ``rowsPerPartition`` says otherwise."""

_SHARED: Final = ("startingOffset", "maxRowsPerTrigger", "rowsPerPartition", "mode")
_MODES: Final = ("permissive", "failfast")


class ColumnError(WanderbusError):
    """A schema asks for a column that the source does not have."""


class OptionError(WanderbusError):
    """An option of a source is missing, unknown or has no usable value."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that all sources have."""

    starting_offset: int | str = "earliest"
    rows_max: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    is_failfast: bool = False
    """True if a record that cannot be read stops the query, instead of being a row with an error."""


class LogOptions(ReadOptions, frozen=True, kw_only=True):
    """Options of the source that reads a log's directory."""

    path: Path
    bytes_max: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], name: str) -> Self:
        """Return the checked options of the source ``name``."""
        given = _known(options, ("path", *_SHARED, "maxBytesPerTrigger"), name)
        if not given.get("path"):
            raise OptionError(f"the source {name!r} needs the option path: the data directory of a server")
        shared = _shared(given)
        bytes_max = _positive(given, "maxBytesPerTrigger")
        if shared.rows_max and bytes_max:
            raise OptionError("maxRowsPerTrigger and maxBytesPerTrigger exclude each other; give one")
        return cls(path=_directory(given["path"]), bytes_max=bytes_max, **msgspec.structs.asdict(shared))


class StreamOptions(ReadOptions, frozen=True, kw_only=True):
    """Options of the source that reads a stream of NATS JetStream."""

    url: str
    stream: str

    @classmethod
    def parse(cls, options: Mapping[str, str], name: str) -> Self:
        """Return the checked options of the source ``name``."""
        given = _known(options, ("url", "stream", *_SHARED), name)
        for each, meaning in (("url", "the address of the NATS server, nats://HOST:PORT"), ("stream", "its name")):
            if not given.get(each):
                raise OptionError(f"the source {name!r} needs the option {each}: {meaning}")
        return cls(url=given["url"], stream=given["stream"], **msgspec.structs.asdict(_shared(given)))


def _known(options: Mapping[str, str], names: tuple[str, ...], source: str) -> dict[str, str]:
    """Return the options by names in lower case: Spark ignores case."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - {name.lower() for name in names})
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; the source {source!r} knows {', '.join(names)}")
    return given


def _shared(given: Mapping[str, str]) -> ReadOptions:
    mode = given.get("mode", "permissive").lower()
    if mode not in _MODES:
        raise OptionError(f"mode must be {' or '.join(_MODES)}, not {given['mode']!r}")
    return ReadOptions(
        starting_offset=_starting_offset(given.get("startingoffset", "earliest")),
        rows_max=_positive(given, "maxRowsPerTrigger"),
        rows_per_partition=_positive(given, "rowsPerPartition") or ROWS_PER_PARTITION,
        is_failfast=mode == "failfast",
    )


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise OptionError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)


def _directory(text: str) -> Path:
    """Return the log that a path or an address names; ``OptionError`` if there is none."""
    address = urlsplit(text) if text.startswith("file:") else None
    path = Path(text if address is None else unquote(address.path))
    if not path.is_dir():
        raise OptionError(f"path {text!r} is not a directory; give the data directory of a server")
    log = log_directory(path)
    try:
        end_of_log(log)
    except StorageError as error:
        raise OptionError(f"path {text!r}: {error}") from None
    return log


def _starting_offset(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"startingOffset must be earliest, latest or a whole number, not {text!r}")
    return int(text)
