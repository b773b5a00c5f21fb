"""``wanderbus pub`` with a name that comes more than once (SPEC A-16, X4)."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell, ended, one_line

pytestmark = pytest.mark.integration


def test_a16_a_repeated_name_makes_a_list(shell: Shell) -> None:
    shell.up()
    reader = shell.start("sub", "Exam", "all Score > 5", "--json", "--count", "2", *shell.as_user())
    shell.subscribed()
    for words in (["Score=6", "Name=Ann", "Score=9.5"], ["Score=6", "Score=1"], ["Score=[6, 7]", "Score=8"]):
        assert shell.run("pub", "Exam", *words, *shell.as_user("bob", "hunter2"))[0] == 0
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    assert [json.loads(line)["attributes"] for line in out.splitlines()] == [
        {"Score": [6, 9.5], "Name": "Ann"},
        {"Score": [6, 7, 8]},
    ]


@pytest.mark.parametrize("options", [(), ("--format", "cloudevents")])
def test_a_repeated_member_of_json_is_refused_rather_than_dropped(shell: Shell, options: tuple[str, ...]) -> None:
    shell.up()
    line = '{"specversion": "1.0", "id": "1", "source": "s", "type": "Exam", "data": {"n": 1, "n": 2}, "n": 3}'
    status, out, err = shell.run("pub", "Exam", "-", *options, *shell.as_user(), input=line)
    assert (status, out) == (2, "")
    assert "the member 'n' occurs more than once; write its values as a list" in one_line(err)
