"""Data contract of the lake in the Open Data Contract Standard, version 3.0, made of the specifications."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from wanderbus.pipeline.tables.specification import Check, Column, TableSpecification, Type

API_VERSION: Final = "v3.0.2"

_LOGICAL: Final[dict[Type, str]] = {
    "string": "string",
    "bigint": "integer",
    "double": "number",
    "boolean": "boolean",
    "timestamp": "date",
    "date": "date",
    "binary": "string",
    "variant": "object",
    "array<string>": "array",
}
_SEVERITY: Final = {"warn": "info", "drop": "warning", "fail": "error"}


def contract(tables: Iterable[TableSpecification], *, identifier: str, version: str) -> dict[str, Any]:
    """Return the contract as plain data; written as JSON it is also YAML, the standard's own form."""
    return {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": identifier,
        "name": "wanderbus lake",
        "version": version,
        "status": "active",
        "description": {"purpose": "History of the events, notifications and subscriptions of a wanderbus server."},
        "schema": [_object(table) for table in tables],
    }


def _object(table: TableSpecification) -> dict[str, Any]:
    return {
        "name": table.name,
        "physicalName": table.directory,
        "logicalType": "object",
        "physicalType": "table",
        "description": table.meaning,
        "properties": [_property(column, table) for column in table.columns],
        "quality": [_quality(check) for check in table.checks],
    }


def _property(column: Column, table: TableSpecification) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": column.name,
        "logicalType": _LOGICAL[column.type],
        "physicalType": column.type,
        "description": column.meaning,
        "required": not column.nullable,
        "partitioned": column.name in table.partitioned_by,
    }
    if column.name in table.partitioned_by:
        fields["partitionKeyPosition"] = table.partitioned_by.index(column.name) + 1
    if column.type == "array<string>":
        fields["items"] = {"logicalType": "string", "physicalType": "string"}
    if column.unit:
        fields["customProperties"] = [{"property": "unit", "value": column.unit}]
    return fields


def _quality(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "type": "sql",
        "description": check.meaning,
        "query": f"SELECT count(*) FROM ${{object}} WHERE coalesce(not ({check.condition}), true)",
        "mustBe": 0,
        "severity": _SEVERITY[check.action],
        "customProperties": [{"property": "action", "value": check.action}],
    }
