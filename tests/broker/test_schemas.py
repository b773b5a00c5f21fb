"""Schemas of subjects at the broker: versions, permissions, listings, recovery (SPEC T-03)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from tests.broker.office import ADAM, OLGA, Office, answers, listed, refusal
from wanderbus import records
from wanderbus.broker import admin
from wanderbus.broker.listings import ROWS_MAX
from wanderbus.event import DeclaredAttribute
from wanderbus.protocol import DeclareSchema, Listing, ListSchemas, RequestRefused, SchemaRequest
from wanderbus.subject_schemas import next_attributes

PRICE, COUNT = DeclaredAttribute("Price", "Double", "EUR", "of one share"), DeclaredAttribute("N", "Integer")
_requests = itertools.count(1)


@pytest.fixture
def office() -> Office:
    return Office()


def declared(office: Office, link: int, *attributes: DeclaredAttribute, subject: str = SUBJECT) -> Mapping[str, Any]:
    rows, after = listed(office, link, DeclareSchema(next(_requests), subject, attributes))
    assert (len(rows), after) == (1, None)
    return rows[0]


def shown(office: Office, link: int, subject: str | None = None, *, every_version: bool = False) -> list[Any]:
    """Subject and version of every row, requested page by page."""
    rows: list[Mapping[str, Any]] = []
    after = None
    while True:
        page, after = listed(office, link, ListSchemas(next(_requests), subject, every_version, after))
        rows += page
        if after is None:
            return [(row["subject"], row["version"]) for row in rows]


def test_t03_a_schema_is_a_record_with_its_version_and_user(office: Office) -> None:
    adam = office.attach(ADAM)
    offset = len(office.log)
    row = declared(office, adam, PRICE)
    assert (row["subject"], row["version"], row["by"], row["offset"]) == (SUBJECT, 1, ADAM, offset)
    assert row["attributes"] == [{"name": "Price", "type": "Double", "unit": "EUR", "meaning": "of one share"}]
    (record,) = office.written(records.SchemaDeclared)
    assert (record.subject, record.version, record.attributes, record.by) == (SUBJECT, 1, (PRICE,), ADAM)
    assert declared(office, adam, DeclaredAttribute("Price", "Double"), COUNT)["version"] == 2
    assert [each.version for each in office.written(records.SchemaDeclared)] == [1, 2]


def test_a_repeated_declaration_adds_no_version(office: Office) -> None:
    adam = office.attach(ADAM)
    first = declared(office, adam, COUNT)
    length = len(office.log)
    assert declared(office, adam, COUNT) == first
    assert len(office.log) == length


REQUESTS: list[SchemaRequest] = [DeclareSchema(1, SUBJECT, (COUNT,)), ListSchemas(1), ListSchemas(1, SUBJECT, True)]


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("asker", [ALICE, BOB, OLGA, ADAM])
def test_t03_schemas_need_a_role(office: Office, asker: str, request_: SchemaRequest) -> None:
    link = office.attach(asker)
    changes = isinstance(request_, DeclareSchema)
    if asker == ADAM or (asker == OLGA and not changes):
        listed(office, link, request_)
        return
    before = len(office.log)
    reason = refusal(office, link, request_)
    assert ("'administrator'" in reason, "'operator'" in reason) == (True, not changes)
    assert len(office.log) == before


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (DeclareSchema(1, SUBJECT, ()), "the attribute 'N' is left out"),
        (
            DeclareSchema(1, SUBJECT, (DeclaredAttribute("N", "String"),)),
            f"the schema of {SUBJECT!r} cannot be declared: the",
        ),
        (DeclareSchema(1, "Other", ()), "no attributes; declare at least one"),
        (DeclareSchema(1, "", (COUNT,)), "a subject has 1 to 256 characters, not 0"),
        (DeclareSchema(1, "x" * 257, (COUNT,)), "a subject has 1 to 256 characters, not 257"),
        (ListSchemas(1, limit=0), "limit is 0"),
        (ListSchemas(1, after="1.2.3"), "begin again"),
    ],
)
def test_invalid_requests_change_nothing(office: Office, request_: SchemaRequest, complaint: str) -> None:
    adam = office.attach(ADAM)
    declared(office, adam, COUNT)
    length = len(office.log)
    reason = refusal(office, adam, request_)
    assert complaint in reason
    assert "\n" not in reason
    assert len(office.log) == length


def test_listings_have_the_newest_versions_or_all(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    adam, olga = office.attach(ADAM), office.attach(OLGA)
    assert shown(office, olga) == []
    declared(office, adam, COUNT, subject="a")
    declared(office, adam, COUNT, subject="a/1")
    declared(office, adam, COUNT, PRICE, subject="a")
    declared(office, adam, COUNT, subject="b")
    for most in (ROWS_MAX, 1):
        monkeypatch.setattr(admin, "ROWS_MAX", most)
        assert shown(office, olga) == [("a/1", 1), ("a", 2), ("b", 1)]
        assert shown(office, olga, "a") == [("a", 2)]
        assert shown(office, olga, "nothing") == []
        assert shown(office, olga, every_version=True) == [("a", 1), ("a/1", 1), ("a", 2), ("b", 1)]
        assert shown(office, olga, "a", every_version=True) == [("a", 1), ("a", 2)]


def test_the_largest_schema_fits_an_answer(office: Office) -> None:
    adam = office.attach(ADAM)
    attributes = [DeclaredAttribute(f"{n:0256}", "Integer", None, "m" * 700) for n in range(32)]
    row = declared(office, adam, *attributes, subject="\U0001f600" * 256)
    assert len(row["attributes"]) == 32
    assert "cut" not in row


def test_events_that_do_not_fit_are_accepted(office: Office) -> None:
    adam = office.attach(ADAM)
    declared(office, adam, DeclaredAttribute("N", "String"))
    office.publish(adam, 7)
    assert office.accepted(adam) == [1]


def test_a_declaration_is_answered_after_it_is_durable(office: Office) -> None:
    adam = office.attach(ADAM)
    office.held = True
    assert answers(office, adam, DeclareSchema(1, SUBJECT, (COUNT,))) == []
    office.sync()
    assert isinstance(office.out[adam][-1], Listing)


@pytest.mark.parametrize("with_rows", [True, False])
def test_t03_every_version_survives_a_restart(office: Office, with_rows: bool) -> None:
    adam = office.attach(ADAM)
    for number in range(1, 13):
        declared(office, adam, *(DeclaredAttribute(str(each), "Integer") for each in range(number)))
    declared(office, adam, COUNT, subject=f"{SUBJECT}/1")
    before = list(office.broker.state.schemas.versions())
    office.save()
    office.restart(with_rows=with_rows)
    assert list(office.broker.state.schemas.versions()) == before
    assert [schema.version for schema in before] == [*range(1, 13), 1]


class SchemasAgainstModel(RuleBasedStateMachine):
    """The broker against a dict of lists, through crashes with and without the state file."""

    @initialize()
    def begin(self) -> None:
        self.office = Office()
        self.versions: dict[str, list[tuple[DeclaredAttribute, ...]]] = {}
        self.adam = self.office.attach(ADAM)

    @rule(
        subject=st.sampled_from(("a", "a/1", "b")),
        attributes=st.lists(
            st.builds(DeclaredAttribute, st.sampled_from("xyz"), st.sampled_from(("Integer", "Double", "String"))),
            max_size=4,
        ),
    )
    def declare(self, subject: str, attributes: list[DeclaredAttribute]) -> None:
        versions = self.versions.get(subject, [])
        (answer,) = answers(self.office, self.adam, DeclareSchema(1, subject, tuple(attributes)))
        try:
            following = next_attributes(versions[-1] if versions else (), attributes)
        except ValueError:
            assert isinstance(answer, RequestRefused)
            return
        if versions[-1:] != [following]:
            self.versions[subject] = [*versions, following]
        assert answer.rows[0]["version"] == len(self.versions[subject])

    @rule()
    def save(self) -> None:
        self.office.save()

    @rule(with_rows=st.booleans())
    def crash(self, with_rows: bool) -> None:
        self.office.restart(with_rows=with_rows)
        self.adam = self.office.attach(ADAM)

    @invariant()
    def every_version_is_kept(self) -> None:
        schemas = self.office.broker.state.schemas
        for subject, versions in self.versions.items():
            assert [each.attributes for each in schemas.versions(subject)] == versions
            assert [each.version for each in schemas.versions(subject)] == list(range(1, len(versions) + 1))
        log = [(each.subject, each.version) for each in self.office.written(records.SchemaDeclared)]
        assert shown(self.office, self.adam, every_version=True) == log
        assert rows_of(self.office.recovered(from_log_alone=True)) == rows_of(self.office.broker.state)


SchemasAgainstModel.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestSchemasAgainstModel = SchemasAgainstModel.TestCase
