"""Every public name says what it is (SPEC Q-04)."""

from __future__ import annotations

import inspect

import pytest

import wanderbus


def undocumented(name: str, thing: object) -> list[str]:
    """Return the names without a docstring: of the public name itself, its public methods and properties."""
    found = [] if inspect.getdoc(thing) else [name]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                found.append(f"{name}.{member}")
    return found


@pytest.mark.parametrize("name", wanderbus.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert undocumented(name, getattr(wanderbus, name)) == []


def test_the_checker_sees_what_is_missing() -> None:
    class Thing:
        """Documented."""

        def method(self) -> None: ...

        @property
        def value(self) -> int:
            return 1

        @classmethod
        def make(cls) -> None: ...

    assert undocumented("Thing", Thing) == ["Thing.method", "Thing.value", "Thing.make"]
