"""Types of declared attributes, and the versions of a schema (SPEC T-03)."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus import limits
from wanderbus.event import TYPE_NAMES, DeclaredAttribute, TypeName
from wanderbus.literals import type_name
from wanderbus.subject_schemas import TypedValue, common_type, next_attributes, typed, widens

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
scalars = st.one_of(
    st.text(max_size=5),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=zones),
)
types = st.sampled_from(TYPE_NAMES)
attributes = st.builds(
    DeclaredAttribute,
    st.sampled_from("abcde"),
    types,
    st.sampled_from((None, "m", "s")),
    st.sampled_from((None, "a length", "a time")),
)
declarations = st.lists(attributes, min_size=1, max_size=5, unique_by=lambda each: each.name)


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("1", "String", TypedValue("1")),
        ("1", "Integer", None),
        (1, "String", None),
        (True, "Boolean", TypedValue(True)),
        (True, "Integer", None),
        (True, "Double", None),
        (1, "Boolean", None),
        (2**63 - 1, "Integer", TypedValue(2**63 - 1)),
        (2**63, "Integer", None),
        (2**63, "Double", None),
        (1.0, "Integer", None),
        (float("inf"), "Double", TypedValue(float("inf"))),
        (2**53, "Double", TypedValue(float(2**53), is_exact=False)),
        (2**53 + 1, "Double", TypedValue(float(2**53), is_exact=False)),
        (NOON, "Date", TypedValue(NOON)),
        (NOON, "String", None),
        (NOON.replace(tzinfo=None), "Date", None),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "Date", None),
        ("2026-11-23T12:00:00Z", "Date", None),
        ([1], "Integer", None),
        (None, "String", None),
    ],
)
def test_t03_a_value_fits_a_type_or_not(value: object, type_: TypeName, expected: TypedValue | None) -> None:
    found = typed(value, type_)
    assert found == expected
    if found is not None:
        assert type_name(found.value) == type_


def test_a_date_is_in_utc() -> None:
    found = typed(NOON.astimezone(timezone(timedelta(hours=-3))), "Date")
    assert found is not None
    assert isinstance(found.value, datetime)
    assert found.value.utcoffset() == timedelta(0)


@given(scalars, types, types)
def test_t03_a_wider_type_never_loses_a_value_that_fitted(value: object, narrow: TypeName, wide: TypeName) -> None:
    before = typed(value, narrow)
    if before is None or not widens(narrow, wide):
        return
    after = typed(value, wide)
    assert after is not None
    assert after.is_exact == (type(after.value) is type(value))
    converted = typed(before.value, wide)
    assert converted is not None
    assert converted.value == after.value, "values stored before the widening convert to the same"


@given(scalars)
def test_a_value_that_fits_is_the_published_one_unless_it_says_so(value: object) -> None:
    for type_ in TYPE_NAMES:
        found = typed(value, type_)
        assert found is None or found.is_exact == (type(found.value) is type(value))
        assert found is None or not found.is_exact or found.value == value


def test_widening_is_an_order_with_at_most_one_common_type() -> None:
    assert {(a, b) for a, b in itertools.product(TYPE_NAMES, TYPE_NAMES) if a != b and widens(a, b)} == {
        ("Integer", "Double")
    }
    for one, other in itertools.product(TYPE_NAMES, TYPE_NAMES):
        common = common_type(one, other)
        assert common == common_type(other, one)
        wider = {each for each in TYPE_NAMES if widens(one, each) and widens(other, each)}
        assert (common is not None and common in wider) or not wider
        assert all(common is not None and widens(common, each) for each in wider)


DECLARED = (DeclaredAttribute("n", "Integer"), DeclaredAttribute("d", "Double", "m", "length"))


@pytest.mark.parametrize(
    ("wanted", "following"),
    [
        (DECLARED, DECLARED),
        (DECLARED[::-1], DECLARED),
        ((DeclaredAttribute("n", "Integer"), DeclaredAttribute("d", "Double")), DECLARED),
        (
            (DeclaredAttribute("n", "Double"), DeclaredAttribute("d", "Double")),
            (DeclaredAttribute("n", "Double"), DECLARED[1]),
        ),
        ((DeclaredAttribute("n", "Integer", "s"), DECLARED[1]), (DeclaredAttribute("n", "Integer", "s"), DECLARED[1])),
        ((DeclaredAttribute("x", "Date"), *DECLARED), (*DECLARED, DeclaredAttribute("x", "Date"))),
        (
            (DECLARED[0], DeclaredAttribute("d", "Double", "m", "height")),
            (DECLARED[0], DeclaredAttribute("d", "Double", "m", "height")),
        ),
    ],
)
def test_t03_a_version_may_add_and_widen(
    wanted: tuple[DeclaredAttribute, ...], following: tuple[DeclaredAttribute, ...]
) -> None:
    assert next_attributes(DECLARED, wanted) == following


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ((DECLARED[0],), "the attribute 'd' is left out; attributes cannot be removed, declare it as Double"),
        ((DECLARED[0], DeclaredAttribute("d", "Integer")), "the attribute 'd' is Double and cannot become Integer"),
        (
            (DeclaredAttribute("n", "String"), DECLARED[1]),
            "the attribute 'n' is Integer and cannot become String; only Double is wider",
        ),
        (
            (DECLARED[0], DeclaredAttribute("d", "Double", "ft")),
            "the unit of 'd' is 'm' and cannot become 'ft'; declare another attribute",
        ),
        ((*DECLARED, DECLARED[0]), "the attribute 'n' is declared twice; declare it once"),
        (
            (*DECLARED, DeclaredAttribute("", "Date")),
            "the name of an attribute has 0 characters; it must have 1 to 256",
        ),
        ((*DECLARED, DeclaredAttribute("x" * 257, "Date")), "has 257 characters"),
        (
            (*DECLARED, DeclaredAttribute("x", "Date", "u" * 65)),
            "the unit of 'x' has 65 characters; it must have 1 to 64",
        ),
        ((*DECLARED, DeclaredAttribute("x", "Date", None, "")), "the meaning of 'x' has 0 characters"),
    ],
)
def test_t03_removal_and_narrowing_are_refused(wanted: tuple[DeclaredAttribute, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)) as refused:
        next_attributes(DECLARED, wanted)
    assert "\n" not in str(refused.value)


def test_a_declaration_is_bounded() -> None:
    many = [DeclaredAttribute(str(n), "Integer") for n in range(limits.EVENT_ATTRIBUTES_MAX)]
    assert next_attributes((), many) == tuple(many)
    with pytest.raises(ValueError, match="257 attributes; the limit is 256"):
        next_attributes((), [*many, DeclaredAttribute("x", "Integer")])
    with pytest.raises(ValueError, match="bytes; the limit is 32768; shorten the meanings"):
        next_attributes((), [DeclaredAttribute(str(n), "Integer", None, "m" * 1_000) for n in range(40)])
    with pytest.raises(ValueError, match="declare at least one"):
        next_attributes((), [])


@given(declarations, declarations, scalars)
def test_t03_no_version_loses_a_value_of_the_one_before(
    first: list[DeclaredAttribute], second: list[DeclaredAttribute], value: object
) -> None:
    declared = next_attributes((), first)
    assert next_attributes(declared, declared) == declared
    try:
        following = {each.name: each for each in next_attributes(declared, second)}
    except ValueError:
        return
    for old in declared:
        new = following[old.name]
        assert old.unit in (None, new.unit)
        assert typed(value, old.type) is None or typed(value, new.type) is not None
