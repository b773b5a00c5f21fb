"""``wanderbus users``: management of a server's file of users, which stores digests instead of passwords."""

from __future__ import annotations

import asyncio
import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_error, print_json, print_line
from wanderbus.errors import ConfigurationError, UnknownUser, WanderbusError
from wanderbus.runtime.files.users_file import change_user, names_in, read_users, stored_users, why_no_login
from wanderbus.runtime.files.users_reports import ServerReport, server_reports, version_of

app = typer.Typer(help="Add, change, list and remove the users of a server.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the user, without the domain.", show_default=False)]
File = Annotated[Path, typer.Option("--users", help="File of users; a running server notices changes.")]
Domain = Annotated[
    str, typer.Option("--domain", help="SIP domain of the server; the digests are valid for this domain only.")
]

_FILE = Path("users.txt")


@app.callback()
def _options() -> None:
    """Add, change, list and remove the users of a server."""
    log_to_stderr(verbose=False)


@app.command()
def add(name: Name, users: File = _FILE, domain: Domain = "localhost", json: AsJson = False) -> None:
    """Add a user; prompts twice for the password, or reads it from the first line of standard input.

    The servers that follow the file are asked whether they use it: exit status 1 if one does not, and says why.

    Example: wanderbus users add alice --users users.txt --domain example.org
    """
    if name in _known(users):
        raise WanderbusError(f"{users} already has a user {name}; 'wanderbus users passwd {name}' changes the password")
    if reason := why_no_login(name):
        raise ConfigurationError(f"{name!r} cannot be the name of a user: {reason}")
    change_user(users, name, domain, _password(name))
    _finish(users, json, name, "added")


@app.command()
def passwd(name: Name, users: File = _FILE, domain: Domain = "localhost", json: AsJson = False) -> None:
    """Change a user's password, which is read in the same way as by 'add'.

    Example: wanderbus users passwd alice --users users.txt --domain example.org
    """
    _check_known(name, users)
    change_user(users, name, domain, _password(name))
    _finish(users, json, name, "changed")


@app.command()
def remove(name: Name, users: File = _FILE, json: AsJson = False) -> None:
    """Remove a user; open connections last until their next authentication.

    A server that cannot use the file because of another line removes the user, too. The servers that follow the file
    are asked: exit status 1 if one does not answer.

    Example: wanderbus users remove alice --users users.txt
    """
    _check_known(name, users)
    change_user(users, name, "", None)
    _finish(users, json, name, "removed")


@app.command("list")
def list_users(users: File = _FILE, json: AsJson = False) -> None:
    """List the users, each with the form of the stored secret, digests or password, and the domain of digests.

    Example: wanderbus users list --users users.txt
    """
    for name, user in stored_users(users).items():
        stored = "password" if user.domain is None else "digests"
        if json:
            print_json({"user": name, "stored": stored, "domain": user.domain})
        else:
            print_line(f"{name} ({stored})" if user.domain is None else f"{name} ({stored} for {user.domain})")


def _known(users: Path) -> set[str]:
    return set(read_users(users, taken=None)) if users.exists() else set()


def _check_known(name: str, users: Path) -> None:
    if name not in names_in(users):
        raise UnknownUser(f"{users} has no user {name}; 'wanderbus users list' lists the users")


def _password(name: str) -> str:
    """Return the password: typed twice on a terminal, else the first line of standard input."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if password != getpass.getpass("repeat the password: "):
            raise WanderbusError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigurationError("no password given; type one, or write it to standard input")
    return password


def _finish(users: Path, json: bool, name: str, done: str) -> None:
    """Report the change, and what the servers that follow the file say about it; exit status 1 if one lacks it."""
    if json:
        print_json({"user": name, "status": done})
    else:
        print_line(f"{name} {done}")
    version = version_of(users)
    lacking = False
    for report in asyncio.run(server_reports(users)):
        if report.version != version:
            lacking = True
            print_error(f"{report} has not read {users} since then; see its log")
        elif report.refused is not None:
            lacking |= done != "removed"
            print_error(_refusal(report, done))
    if lacking:
        raise typer.Exit(1)


def _refusal(report: ServerReport, done: str) -> str:
    used = "removed the user, but uses no other change" if done == "removed" else "does not use this change"
    return f"{report} {used}: {report.refused}"
