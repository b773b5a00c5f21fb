"""A real Prometheus that scrapes a busy domain: every query of dashboard and alerts (SPEC U-08)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ports import free_port
from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, publish, run
from wanderbus.metrics import PREFIX
from wanderbus.metrics.catalogue import CATALOGUE
from wanderbus.parameters.broker import BrokerConfig

pytestmark = pytest.mark.integration

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"

ABSENT = ("domain_", "engine_", "log_reader_lag", "dropped", "limit_applied")
"""Parts of names that no sample of this domain has: other domains, an engine, readers of the log, drops, limits."""


def queries() -> list[str]:
    """Every query of the dashboard and of the alerts."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    alerts = re.findall(r"^ +expr: (.*)$", (MONITORING / "alerts.yml").read_text(), re.MULTILINE)
    return [each.replace("$__rate_interval", "5s") for each in [*shown, *alerts]]


@contextlib.contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[str]:
    """Run Prometheus on a free port, which scrapes ``targets`` each half second; yield its URL."""
    place = f"127.0.0.1:{free_port()}"
    text = (MONITORING / "prometheus.yml").read_text()
    text = text.replace("15s", "500ms").replace('["127.0.0.1:8080"]', json.dumps(targets))
    (directory / "prometheus.yml").write_text(text)
    shutil.copy(MONITORING / "alerts.yml", directory)
    command = ["prometheus", f"--config.file={directory / 'prometheus.yml'}", f"--web.listen-address={place}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--storage.tsdb.path={directory / 'tsdb'}"], stdout=log, stderr=log)
        try:
            yield f"http://{place}"
        finally:
            process.kill()
            process.wait()


def asked(url: str, query: str) -> list[dict[str, Any]]:
    """The series of an instant query; none while Prometheus starts."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.parse.quote(query)}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except (ConnectionError, urllib.error.URLError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code != 503:
            pytest.fail(f"{query}: {error.read().decode()}")
        return []


def reasons(url: str) -> list[str]:
    """The reasons why a server wants no new sessions."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    found: list[str] = json.loads(body)["reasons"]
    return found


def test_u08_every_metric_of_dashboard_and_alerts_exists() -> None:
    named = {name for query in queries() for name in re.findall(rf"{PREFIX}(\w+)", query)}
    assert named
    assert {re.sub(r"_bucket$", "", name) for name in named} <= set(CATALOGUE)


def test_u08_rules_and_configuration_are_valid() -> None:
    for kind, file in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        command = ["promtool", "check", kind, str(MONITORING / file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_u08_a_prometheus_answers_every_query_about_a_busy_domain(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", 2)

    async def story() -> None:
        await domain.started_once()
        config = BrokerConfig(roles={"bob": "administrator"})
        async with (
            domain.servers(http="127.0.0.1:0", broker=config) as servers,
            domain.agent("s1") as alice,
            domain.agent("s2", "bob") as bob,
            alice.subscribe(SUBJECT) as departures,
        ):
            urls = [str(each.http_url) for each in servers.values()]
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{urls[0]}/metrics", timeout=5).read())
            checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
            assert (checked.returncode, checked.stderr) == (0, b""), checked.stderr
            with prometheus(tmp_path, [each.removeprefix("http://") for each in urls]) as url:
                rate = f"rate({PREFIX}acknowledgement_seconds_count[5s]) > 0"
                async with asyncio.timeout(60):
                    number = 0
                    while not await asyncio.to_thread(asked, url, rate):
                        number += 1
                        await publish(bob, number)
                        await anext(departures)
                        departures.ack()
                        await asyncio.sleep(0.1)
                for query in queries():
                    found = await asyncio.to_thread(asked, url, query)
                    is_alert = any(sign in query for sign in ("==", ">", "<"))
                    is_absent = any(each in query for each in ABSENT)
                    assert bool(found) is not (is_alert or is_absent), query
            assert (await bob.operator.drain(on=True)).is_draining
            async with asyncio.timeout(10):
                while not (waiting := await asyncio.to_thread(reasons, urls[1])):
                    await asyncio.sleep(0.1)
            assert waiting == ["the server drains"]
            assert await asyncio.to_thread(reasons, urls[0]) == []

    run(story())
