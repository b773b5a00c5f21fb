"""Reports of the stack go to the module that handles them (SPEC C-10); only the helper uses the stack (C-09)."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import msgspec
import pytest

import wanderbus.api.sip_mobility as package
from wanderbus.api.sip_mobility.message_listener import DISPATCH, Module, SIPMessageListener
from wanderbus.machine import Output
from wanderbus.mobility import messages
from wanderbus.sip.message.sdp import MediaDescription

FOLDER = Path(inspect.getfile(package)).parent
STACK = ("wanderbus.sip.", "wanderbus.runtime.net.driver", "wanderbus.mobility.user_agent")
VALUES = ("wanderbus.sip.message.sdp",)
"""Modules with values, which are no part of the stack: a line of SDP."""

REPORTS = [
    each
    for _, each in inspect.getmembers(messages, inspect.isclass)
    if issubclass(each, Output) and each.__module__ == messages.__name__
]


class Spy:
    def __init__(self) -> None:
        self.got: list[Output] = []

    def report(self, output: Output) -> None:
        self.got.append(output)


def made(kind: type[Output]) -> Output:
    """Some value of ``kind``."""
    samples = {"id": "id", "media": MediaDescription(address="192.0.2.1", port=1), "update": False}
    return kind(*(samples.get(field.name) for field in msgspec.structs.fields(kind)))


def test_c10_the_table_has_every_report() -> None:
    assert set(DISPATCH) == set(REPORTS)


@pytest.mark.parametrize("kind", REPORTS, ids=lambda kind: kind.__name__)
def test_c10_a_report_goes_to_its_module_alone(kind: type[Output]) -> None:
    sessions, registration = Spy(), Spy()
    report = made(kind)
    SIPMessageListener(sessions, registration).report(report)
    about_sessions = "id" in kind.__struct_fields__
    assert (sessions.got, registration.got) == (([report], []) if about_sessions else ([], [report]))
    assert DISPATCH[kind] is (Module.SESSIONS if about_sessions else Module.REGISTRATION)


def test_c10_an_unknown_output_is_dropped() -> None:
    sessions, registration = Spy(), Spy()
    SIPMessageListener(sessions, registration).report(Output())
    assert sessions.got == registration.got == []


def stack_imports(text: str) -> list[str]:
    """Names of the raw stack that a module's text imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in found if name.startswith(STACK) and not name.startswith(VALUES)]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_c09_no_manager_imports_the_raw_stack(file: Path) -> None:
    uses = stack_imports(file.read_text(encoding="utf-8"))
    assert bool(uses) == (file.name in ("helper.py", "ports.py", "servers.py", "stack.py")), uses


def test_c09_the_checker_sees_a_breach() -> None:
    for text in (
        "import wanderbus.sip.transaction.transaction_layer",
        "from wanderbus.sip.transaction.transaction_layer import SendRequest",
    ):
        assert stack_imports(text)
