"""A missing or too old Java gives a one-line error, before Spark starts (DESIGN 8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus.pipeline.session import JavaMissing, check_java, spark_session

ADVICE = "; install it with: apt-get install openjdk-17-jre-headless"


def fake_java(home: Path, says: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def test_no_java_on_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        spark_session()
    assert str(caught.value) == f"Spark needs Java 17 and there is no java on the search path{ADVICE}"


def test_java_home_that_holds_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=rf"no java in JAVA_HOME \({tmp_path}\)"):
        check_java()


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_392"', "is Java 8"),
        ("not a java at all", "does not report its version"),
    ],
)
def test_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str) -> None:
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        check_java()
    assert str(caught.value) == f"Spark needs Java 17 and {tmp_path}/bin/java {found}{ADVICE}"


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_java_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
