"""``wanderbus users``: management of a server's file of users, which stores digests instead of passwords."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_json, print_line
from wanderbus.errors import ConfigurationError, UnknownUser, WanderbusError
from wanderbus.runtime.files.users_file import change_user, read_users

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

    Example: wanderbus users add alice --users users.txt --domain example.org
    """
    if name in _known(users):
        raise WanderbusError(f"{users} already has a user {name}; 'wanderbus users passwd {name}' changes the password")
    change_user(users, name, domain, _password(name))
    _report(json, name, "added")


@app.command()
def passwd(name: Name, users: File = _FILE, domain: Domain = "localhost", json: AsJson = False) -> None:
    """Change a user's password, which is read in the same way as by 'add'.

    Example: wanderbus users passwd alice --users users.txt --domain example.org
    """
    _check_known(name, users)
    change_user(users, name, domain, _password(name))
    _report(json, name, "changed")


@app.command()
def remove(name: Name, users: File = _FILE, json: AsJson = False) -> None:
    """Remove a user; open connections last until their next authentication.

    Example: wanderbus users remove alice --users users.txt
    """
    _check_known(name, users)
    change_user(users, name, "", None)
    _report(json, name, "removed")


@app.command("list")
def list_users(users: File = _FILE, json: AsJson = False) -> None:
    """List the users, each with the form of the stored secret: digests or password.

    Example: wanderbus users list --users users.txt
    """
    for name, secret in read_users(users, taken=None).items():
        stored = "password" if isinstance(secret, str) else "digests"
        if json:
            print_json({"user": name, "stored": stored})
        else:
            print_line(f"{name} ({stored})")


def _known(users: Path) -> set[str]:
    return set(read_users(users, taken=None)) if users.exists() else set()


def _check_known(name: str, users: Path) -> None:
    if name not in read_users(users, taken=None):
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


def _report(json: bool, name: str, done: str) -> None:
    if json:
        print_json({"user": name, "status": done})
    else:
        print_line(f"{name} {done}")
