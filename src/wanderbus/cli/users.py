"""``wanderbus users``: who may register at a server. Its file then holds digests, and no password."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, say, say_json
from wanderbus.errors import ConfigurationError, UnknownUser, WanderbusError
from wanderbus.runtime.files.users_file import change_user, read_users

app = typer.Typer(help="Add, change, list and remove the users of a server.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the user, without the domain.", show_default=False)]
File = Annotated[Path, typer.Option("--users", help="File of users; a running server notices that it has changed.")]
Domain = Annotated[str, typer.Option("--domain", help="SIP domain of the server: digests hold for one domain.")]

_FILE = Path("users.txt")


@app.callback()
def _options() -> None:
    """Add, change, list and remove the users of a server."""
    log_to_stderr(verbose=False)


@app.command()
def add(name: Name, users: File = _FILE, domain: Domain = "localhost", json: AsJson = False) -> None:
    """Add a user; the password is asked for twice, or is the first line of standard input.

    Example: wanderbus users add alice --users users.txt --domain example.org
    """
    if name in _known(users):
        raise WanderbusError(f"{users} has a user {name} already; 'wanderbus users passwd {name}' gives a new password")
    change_user(users, name, domain, _password(name))
    _report(json, name, "added")


@app.command()
def passwd(name: Name, users: File = _FILE, domain: Domain = "localhost", json: AsJson = False) -> None:
    """Give a user a new password, asked for as by 'add'.

    Example: wanderbus users passwd alice --users users.txt --domain example.org
    """
    _check_known(name, users)
    change_user(users, name, domain, _password(name))
    _report(json, name, "changed")


@app.command()
def remove(name: Name, users: File = _FILE, json: AsJson = False) -> None:
    """Remove a user: connections that are open last until they have to prove themselves again.

    Example: wanderbus users remove alice --users users.txt
    """
    _check_known(name, users)
    change_user(users, name, "", None)
    _report(json, name, "removed")


@app.command("list")
def list_users(users: File = _FILE, json: AsJson = False) -> None:
    """List the users, and how each is stored: as digests or as a password.

    Example: wanderbus users list --users users.txt
    """
    for name, secret in read_users(users, taken=None).items():
        stored = "password" if isinstance(secret, str) else "digests"
        if json:
            say_json({"user": name, "stored": stored})
        else:
            say(f"{name} ({stored})")


def _known(users: Path) -> set[str]:
    return set(read_users(users, taken=None)) if users.exists() else set()


def _check_known(name: str, users: Path) -> None:
    if name not in read_users(users, taken=None):
        raise UnknownUser(f"{users} has no user {name}; 'wanderbus users list' shows who is there")


def _password(name: str) -> str:
    """Return the password from the terminal, given twice there, or from standard input."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if password != getpass.getpass("the same again: "):
            raise WanderbusError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigurationError("no password given; type one, or write it to standard input")
    return password


def _report(json: bool, name: str, done: str) -> None:
    if json:
        say_json({"user": name, "status": done})
    else:
        say(f"{name} {done}")
