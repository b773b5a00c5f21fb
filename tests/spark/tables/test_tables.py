"""A table is specified once; its schemas, its page and its contract follow."""

from __future__ import annotations

import json

import pytest

from wanderbus.pipeline.tables import ALL_TABLES, named
from wanderbus.pipeline.tables.catalogue import UnknownTable
from wanderbus.pipeline.tables.contract import contract
from wanderbus.pipeline.tables.declared import Declared, attribute_of, column_of, columns_of, events_table
from wanderbus.pipeline.tables.schemas import columns_in, delta_schema, spark_schema
from wanderbus.pipeline.tables.silver import EVENTS


def test_names_of_tables_and_columns_are_unique_in_any_case() -> None:
    assert len({table.name for table in ALL_TABLES}) == len(ALL_TABLES)
    for table in ALL_TABLES:
        assert len({column.name.lower() for column in table.columns}) == len(table.columns)
        assert set(table.partitioned_by) <= {column.name for column in table.columns}


def test_the_schema_in_delta_has_the_columns_of_that_in_spark() -> None:
    for table in ALL_TABLES:
        columns = columns_in(delta_schema(table))
        assert [(each.name, each.type, each.nullable) for each in columns] == [
            (each.name, each.type, each.nullable) for each in table.columns
        ]
        assert spark_schema(table).names == [each.name for each in table.columns]


def test_required_columns_and_checks_are_in_the_contract() -> None:
    found = json.loads(json.dumps(contract(ALL_TABLES, identifier="wb", version="1")))
    assert (found["apiVersion"], found["kind"]) == ("v3.0.2", "DataContract")
    assert [each["name"] for each in found["schema"]] == [table.name for table in ALL_TABLES]
    for each, table in zip(found["schema"], ALL_TABLES, strict=True):
        assert [(p["name"], p["required"]) for p in each["properties"]] == [
            (column.name, not column.nullable) for column in table.columns
        ]
        assert [quality["name"] for quality in each["quality"]] == [check.name for check in table.checks]


def test_a_required_column_implies_a_check_that_drops() -> None:
    implied = {check.name for check in EVENTS.all_checks if check.action == "drop"}
    assert {"offset_present", "subject_present"} <= implied
    assert "published_us_present" not in implied


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UnknownTable, match="no table 'event'; it has records, events"):
        named("event")


def test_an_attribute_with_the_name_of_a_column_gets_an_underscore() -> None:
    assert [column_of(name) for name in ("Dest", "Date", "number", "a b", "a.b", "", "_x", "a`")] == [
        *("Dest", "Date_", "number_"),
        *(None, None, None, None, None),
    ]


def test_attributes_that_differ_have_columns_that_differ() -> None:
    stems = [*(column.name for column in EVENTS.columns), "Date", "plain", "user_x"]
    names = [f"{stem}{'_' * number}" for stem in stems for number in range(4)]
    columns = [column_of(name) for name in names]
    assert len(set(columns)) == len(names)
    assert [attribute_of(str(column)) for column in columns] == names
    assert not {column.name for column in EVENTS.columns} & set(columns)
    assert {attribute_of(column.name) for column in EVENTS.columns} == {None}
    table = events_table({"S": {"user": "String", "user_": "Integer"}})
    assert [(each.name, each.type) for each in table.columns[-2:]] == [("user_", "string"), ("user__", "bigint")]


def test_types_are_widened_over_subjects_and_others_stay_in_the_variant() -> None:
    declared: Declared = {
        "A": {"x": "Integer", "y": "String", "z": "Date"},
        "B": {"x": "Double", "y": "Integer", "Z": "Date"},
    }
    table = events_table(declared)
    assert [(column.name, column.type) for column in table.columns[len(EVENTS.columns) :]] == [
        ("x", "double"),
        ("y", "string"),
        ("z", "timestamp"),
    ]
    assert list(columns_of("A", declared, table)) == ["x", "y", "z"]
    assert list(columns_of("B", declared, table)) == ["x"]


def test_a_column_that_exists_is_widened_and_otherwise_keeps_its_type() -> None:
    first = events_table({"A": {"x": "Integer", "y": "Double", "z": "Date"}})
    existing = columns_in(delta_schema(first))[len(EVENTS.columns) :]
    declared: Declared = {"A": {"x": "Double", "y": "Integer", "z": "String", "w": "Boolean"}}
    second = events_table(declared, existing)
    assert [(column.name, column.type) for column in second.columns[len(EVENTS.columns) :]] == [
        ("x", "double"),
        ("y", "double"),
        ("z", "timestamp"),
        ("w", "boolean"),
    ]
    assert list(columns_of("A", declared, second)) == ["x", "y", "w"]
