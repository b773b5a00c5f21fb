"""Last output lines of a program that a run started."""

from __future__ import annotations

import pytest

from wanderbus.evaluation.processes import last_words

COMPLAINTS = {
    "": "no error output",
    "one\ntwo\n": "two",
    '{"error":{"type":"ConfigurationError","message":"no room"}}\n': "no room",
    '{"error":"odd"}': '{"error":"odd"}',
    "{": "{",
}


@pytest.mark.parametrize("complaints", COMPLAINTS)
def test_an_error_in_json_is_told_by_its_message(complaints: str) -> None:
    assert last_words(complaints) == COMPLAINTS[complaints]
