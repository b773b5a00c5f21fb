"""Write docs/metrics.md from the catalogue of metrics and the alerts of examples/monitoring; with --check only say
whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from wanderbus.metrics import PREFIX, Metric
from wanderbus.metrics.catalogue import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "metrics.md"

HEAD = """# Metrics, health and alerts

Written by `./do fmt` from the catalogue of metrics (`src/wanderbus/metrics/catalogue.py`) and from
`examples/monitoring/alerts.yml`; a test compares the two.

    wanderbus up --users users.txt --http 127.0.0.1:8080

serves three pages. `wanderbus proxy` has the same option, and a relay in a server's process is part of its pages. They
need the extra `web`.

| page | answer |
|---|---|
| `/metrics` | the metrics below, in the text format of Prometheus |
| `/healthz` | 200 while the process works, 503 with the reason once it is about to end |
| `/readyz` | 200 if new sessions are welcome; 503 with the reasons during a start or a drain, or if the disk is full |

On loopback everybody may read the pages. On any other address they are served over TLS, with the certificate of
`tls_certificate`, and `/metrics` wants name and password of a user with the role of operator (HTTP Basic); wrong
passwords have to wait as those of SIP have. Put an address on loopback behind a proxy only if that proxy asks for one.

No label has the name of a user, a device or a subject: how many values a label has does not depend on what others do.
`wanderbus top`, `sessions`, `queues` and `limits` show who is behind a number. Counters count from the start of the
process. The samples are gathered at most once a second, in a time linear in the sessions, however often somebody asks.

`examples/monitoring/` has a configuration of Prometheus, alert rules, and a dashboard for Grafana. A test runs each of
their queries with a real Prometheus that scrapes a domain.

Operators read the same metrics with `Operator.metrics()`, without HTTP.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, metrics in SECTIONS.items():
        parts += [f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        parts += [*map(_row, metrics), ""]
    parts += ["## Alerts", "", "| alert | condition | what to do |", "|---|---|---|", *_alerts(), ""]
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{each}`" for each in metric.labels)
    return f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def _alerts() -> Iterator[str]:
    rules = yaml.safe_load((ROOT / "examples" / "monitoring" / "alerts.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            condition = rule["expr"].replace("|", "\\|")
            lasting = f" for {rule['for']}" if "for" in rule else ""
            yield f"| {rule['alert']} | `{condition}`{lasting} | {rule['annotations']['action']} |"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/metrics.md is not what the catalogue says now: run ./do fmt", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
