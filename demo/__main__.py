"""``python -m demo``: see ``--help`` and the package.

Exit status: 0 good; 1 something was lost, repeated, out of order or unexpected; 2 it could not run, and one line on
standard error gives the reason; 130 and 143 when interrupted or terminated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from demo import SPARK_SUBJECTS, sip_and_relay
from demo.display import Display, RunState, latency_table, result_table, summary
from demo.html_report import write_report
from demo.run import Evidence, Options, ServersKind, run_demo
from demo.verdict import verdict
from wanderbus.testbed import CannotRunError

REPORT = "wanderbus-demo.html"


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    arguments = argparse.ArgumentParser(
        prog="python -m demo", description="Eight travellers follow events as they roam."
    )
    add = arguments.add_argument
    add("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    add(
        "--report",
        type=Path,
        metavar="FILE",
        default=Path(REPORT),
        help=f"write the HTML report to this file ({REPORT}), and that of the server beside it, as NAME-server.html",
    )
    add(
        "--engine",
        choices=tuple(SPARK_SUBJECTS),
        default="both",
        help="what matches: both, where the server matches departures and Spark arrivals; or spark, which matches all "
        "and is killed once (%(default)s)",
    )
    add("--rows", type=int, default=3_000, metavar="N", help="flights whose events are published (%(default)s)")
    add("--rate", type=float, default=200.0, metavar="R", help="events per second (%(default)s)")
    add("--first-row", type=int, default=0, metavar="N", help="first row of the file to publish (%(default)s)")
    add("--seed", type=int, default=2013, metavar="N", help="seed of the plan of moves (%(default)s)")
    add(
        "--address-mode",
        choices=("auto", "netns", "nat", "loopback"),
        default="auto",
        help="how addresses change: netns uses network namespaces, nat moves between NATs in them, loopback uses "
        "127.0.0.0/8; auto uses network namespaces if possible",
    )
    add(
        "--nat",
        action="store_const",
        const="nat",
        dest="address_mode",
        help="the same as --address-mode nat: all but the server are behind NATs, and each move is to another NAT",
    )
    add("--sip", choices=sip_and_relay.SIP, default=sip_and_relay.SIP[0], help="registrar and proxy (%(default)s)")
    add(
        "--relay",
        choices=sip_and_relay.RELAYS,
        help="media relay for all data channels (none, with --nat ours); ours runs in the server, or beside Kamailio",
    )
    add(
        "--domain",
        action="store_true",
        help="five servers in place of one: travellers at three access servers, channels at two resolution servers; "
        "sessions follow the travellers from server to server, one server drains, one channel group moves, and one "
        "server of each kind is killed; without Spark",
    )
    add(
        "--domains",
        action="store_true",
        help="the domains of three airlines in place of one server: travellers fly, take their sessions to other "
        "domains and home, and follow the events of all three while one of the domains is cut off for ten seconds; "
        "without Spark",
    )
    add("--keep", type=Path, metavar="DIR", help="keep logs, event log, lake and evidence in this empty directory")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit status."""
    given = parser().parse_args(argv)
    if given.rate <= 0:
        parser().error("--rate must be above 0")
    if given.domain and given.domains:
        parser().error("--domain and --domains are two demonstrations: give one of them")
    servers = _servers(given)
    if servers != "server" and (given.address_mode == "nat" or given.relay or given.sip != sip_and_relay.SIP[0]):
        parser().error(f"--{servers} has its own servers: leave out --nat, --sip and --relay")
    if servers != "server" and given.engine != "both":
        parser().error(f"--{servers} runs without Spark: leave out --engine")
    with ExitStack() as stack:
        try:
            work = _work_directory(given.keep, stack)
            options = Options(
                given.rows,
                given.rate,
                given.first_row,
                given.seed,
                given.address_mode,
                work,
                server_page(given.report),
                given.sip,
                given.relay or ("wanderbus" if given.address_mode == "nat" else "none"),
                given.engine,
                servers,
            )
            display = Display(RunState())
            with display.showing():
                result, evidence = asyncio.run(_conduct(options, display))
            _print_result(display, given, result, evidence)
        except (CannotRunError, OSError) as error:
            print(f"demo: cannot run: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("demo: interrupted", file=sys.stderr)
            return 130
        except asyncio.CancelledError:
            return 143
    return 0 if result["good"] else 1


def _servers(given: argparse.Namespace) -> ServersKind:
    return "domains" if given.domains else "domain" if given.domain else "server"


async def _conduct(options: Options, display: Display) -> tuple[dict[str, Any], Evidence]:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await run_demo(options, display)
    except* CannotRunError as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[CannotRunError]) -> CannotRunError:
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, CannotRunError)
    return leaf


def server_page(report: Path) -> Path:
    """Return the file of the server's report, which is beside that of the run."""
    return report.with_name(f"{report.stem}-server{report.suffix}").absolute()


def _work_directory(keep: Path | None, stack: ExitStack) -> Path:
    """Return an absolute, empty directory: the one to keep, or a temporary one."""
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wanderbus-demo-")))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise CannotRunError(f"{keep} is not empty; --keep needs a directory of its own")
    return keep.resolve()


def _print_result(display: Display, given: argparse.Namespace, result: dict[str, Any], evidence: Evidence) -> None:
    """Print the result and write it to the requested files."""
    result["seconds"] = round(display.state.elapsed_s, 1)
    print_ = display.console.print
    print_()
    print_(summary(result))
    print_()
    print_(result_table(result))
    print_()
    print_(latency_table(result))
    print_()
    print_(f"published {result['published']}; addresses: {result['address_mode']}; {result['seconds']} s in all")
    if (given.sip, given.relay) != (sip_and_relay.SIP[0], sip_and_relay.RELAYS[0]):
        print_(f"SIP server: {result['sip']}, relay: {result['relay']}{_passed(result['relayed_datagrams'])}")
    write_report(given.report, result, evidence, "" if _servers(given) != "server" else server_page(given.report).name)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    print_(f"report with plots and every traveller: {given.report}", soft_wrap=True)
    if _servers(given) == "server":
        print_(f"report of the server, as of 'wanderbus report': {server_page(given.report)}", soft_wrap=True)
    print_(verdict(result), soft_wrap=True)


def _passed(datagrams: int | None) -> str:
    return "" if datagrams is None else f", which passed on {datagrams} datagrams"


if __name__ == "__main__":
    sys.exit(main())
