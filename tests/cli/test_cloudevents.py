"""CloudEvents in and out of ``wanderbus pub`` and ``wanderbus sub`` (SPEC U-04)."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell, ended, one_line
from wanderbus import EventId

pytestmark = pytest.mark.integration

SOLD = {
    "specversion": "1.0",
    "id": "A1",
    "source": "/shop",
    "type": "sold",
    "time": "2026-11-21T10:00:00Z",
    "shelf": 7,
    "data": {"price": 24.5, "tags": ["new"]},
}


def test_u04_cloudevents_go_in_and_come_out(shell: Shell) -> None:
    shell.up()
    words = [
        "sub",
        "sold",
        "source = '/shop' AND shelf < 9",
        "--language",
        "cesql",
        "--format",
        "cloudevents",
        "--count",
        "2",
    ]
    reader = shell.start(*words, *shell.as_user())
    shell.subscribed()
    publisher = shell.as_user("bob", "hunter2")
    assert shell.run("pub", "sold", json.dumps(SOLD), "--format", "cloudevents", *publisher)[::2] == (0, "")
    lines = "".join(
        json.dumps({**SOLD, "id": identity, "shelf": shelf}) + "\n" for identity, shelf in (("B", 9), ("C", 8))
    )
    assert shell.run("pub", "sold", "-", "--format", "cloudevents", *publisher, input=lines)[::2] == (0, "")
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [SOLD, {**SOLD, "id": "C", "shelf": 8}]


def test_an_event_of_our_own_comes_out_with_its_id(shell: Shell) -> None:
    shell.up()
    reader = shell.start("sub", "Departure", "--format", "cloudevents", "--count", "1", *shell.as_user())
    shell.subscribed()
    status, out, _ = shell.run("pub", "Departure", "Dest=IAH", "--json", *shell.as_user("bob", "hunter2"))
    assert status == 0
    printed = json.loads(ended(reader)[1])
    assert printed["id"] == json.loads(out)["id"]
    assert printed["source"] == f"wanderbus:{EventId.parse(printed['id']).origin}"
    assert (printed["type"], printed["data"]) == ("Departure", {"Dest": "IAH"})


def test_values_that_cloudevents_cannot_express_are_skipped(shell: Shell) -> None:
    shell.up()
    reader = shell.start("sub", "sold", "--format", "cloudevents", "--count", "2", *shell.as_user())
    shell.subscribed()
    publisher = shell.as_user("bob", "hunter2")
    assert shell.run("pub", "sold", "specversion=1.0", 'id="no source"', *publisher)[0] == 0
    assert shell.run("pub", "sold", 'specversion="1.0"', 'id="no source"', *publisher)[0] == 0
    status, out, err = ended(reader)
    assert status == 0
    assert json.loads(out)["data"] == {"specversion": 1.0, "id": "no source"}
    assert "is skipped" in one_line(err)
    assert "needs the attribute 'source'" in err


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        ([], "", "give one event as cloudevents"),
        (["{}", "{}"], "", "give one event as cloudevents"),
        (["{}"], "", "a CloudEvent needs 'specversion'"),
        ([json.dumps({**SOLD, "type": "bought"})], "", "the event has the subject 'bought', not 'sold'"),
        (["-"], json.dumps({**SOLD, "id": None}) + "\n", "standard input, line 1: a CloudEvent needs 'id'"),
    ],
)
def test_malformed_cloudevents_are_not_published(shell: Shell, arguments: list[str], stdin: str, reason: str) -> None:
    if stdin:
        shell.up()
    else:
        shell.port = 5060  # no server is contacted
    status, out, err = shell.run("pub", "sold", *arguments, "--format", "cloudevents", *shell.as_user(), input=stdin)
    assert (status, out) == (2, "")
    assert reason in one_line(err)
