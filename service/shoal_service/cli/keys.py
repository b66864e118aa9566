"""The commands `shoal keys create`, `list` and `revoke`, over HTTP or on a store at rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import for_people, print_json, print_line
from shoal_service.cli.tables import print_table

if TYPE_CHECKING:
    from shoal_service.access import AccessControl

SCOPES = ("read", "write", "admin")
_WHOLE_LIMITS = ("bytes_in_flight", "streams")
_LIMITS = ("requests_per_s", "points_per_s", *_WHOLE_LIMITS)
_COLUMNS = ("id", "name", "scope", "streams", "created_at", "expires_at", "last_used_at", "limits")

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke access keys.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of a SQLite store that no server uses now. (default: ask the server)",
    ),
]


@app.command("create")
@grouped
def create(
    server: options.Address,
    name: Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name of the key, for people.")],
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="read, write (and read) or admin (all).")],
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            "-s",
            metavar="PATTERN",
            help="Streams that the key covers, such as 'sensors-*'. Repeatable. (default: all)",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="30d, 12h, or 2027-01-31T12:00:00Z. (default: never)"),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=N",
            help="requests_per_s, points_per_s, bytes_in_flight or streams. Repeatable. (default: none)",
        ),
    ] = None,
    data: Data = None,
    as_json: options.Json = False,
) -> None:
    """Create an access key, and print it. It cannot be shown again.

    With --data, the store is opened directly: this makes the first key, before
    the server starts. Otherwise the server creates it, which needs a key of scope
    admin in SHOAL_API_KEY.

    Examples:

      shoal keys create --name admin --scope admin --data shoal-data > admin.key
      shoal keys create --name gauge --scope write --stream 'sea-*' --expires 365d
    """
    if scope not in SCOPES:
        from shoal.errors import did_you_mean

        raise CommandError(
            f"--scope {scope} is not a scope; {did_you_mean(scope, SCOPES)}use one of {', '.join(SCOPES)}"
        )
    patterns, bounds = tuple(streams or ()), dict(map(_limit, limits or ()))
    if data is not None:
        _check_one_store(server)
        shown = _create_at_rest(data, name, scope, patterns, expires, bounds)
    else:
        with server.connect() as client:
            made = client.create_access_key(name, scope, streams=patterns, expires=expires, limits=bounds)
        shown = {**made.info.raw, "key": made.key}
    if as_json:
        print_json(shown)
    else:
        typer.echo(shown["key"])


@app.command("list")
@grouped
def list_all(server: options.Address, data: Data = None, as_json: options.Json = False) -> None:
    """List the access keys. Their secrets cannot be shown again.

    In a terminal: a table. In a pipe: tab-separated lines with a header.
    """
    if data is not None:
        _check_one_store(server)
        with _at_rest(data) as access:
            found = [record.as_plain() for record in access.all_keys()]
    else:
        with server.connect() as client:
            found = [key.raw for key in client.access_keys()]
    if as_json:
        print_json({"keys": found})
    elif for_people():
        _print_table(found)
    else:
        print_line(*_COLUMNS)
        for key in found:
            print_line(*(_cell(key[column]) for column in _COLUMNS))


@app.command("revoke")
@grouped
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key, or its name if no other key has it.")],
    server: options.Address,
    data: Data = None,
    as_json: options.Json = False,
) -> None:
    """Revoke an access key. It opens nothing any more, within a second everywhere."""
    if data is not None:
        _check_one_store(server)
        with _at_rest(data) as access:
            found = _id_of(key, [record.as_plain() for record in access.all_keys()])
            access.revoke(found)
    else:
        with server.connect() as client:
            found = _id_of(key, [known.raw for known in client.access_keys()])
            client.revoke_access_key(found)
    if as_json:
        print_json({"id": found, "revoked": True})


def _check_one_store(server: options.Address) -> None:
    if server.url is not None or server.port is not None:
        raise CommandError("both --data and a server were given; remove --data to ask the server")


def _id_of(key: str, known: list[dict[str, Any]]) -> str:
    """Id of the key with this id or name."""
    if any(one["id"] == key for one in known):
        return key
    named = [one["id"] for one in known if one["name"] == key]
    if len(named) > 1:
        raise CommandError(f"{len(named)} keys have the name {key!r}; give the id of one of them: {', '.join(named)}")
    if not named:
        raise CommandError(f"no key has the id or the name {key!r}; see `shoal keys list`", ExitCode.REFUSED)
    return str(named[0])


def _limit(text: str) -> tuple[str, float]:
    """Split `--limit NAME=N`."""
    name, _, value = text.partition("=")
    try:
        number = int(value) if name in _WHOLE_LIMITS else float(value)
    except ValueError:
        number = 0
    if name not in _LIMITS or not 0 < number < float("inf"):
        raise CommandError(f"--limit {text} is not a limit; give one of {', '.join(_LIMITS)}, such as streams=5")
    return name, number


def _create_at_rest(
    data: Path, name: str, scope: str, streams: tuple[str, ...], expires: str | None, limits: dict[str, Any]
) -> dict[str, Any]:
    import time

    from shoal_service.access import Grant, Limits, Scope, parse_expiry

    expires_at = None if expires is None else parse_expiry(expires, time.time())
    grant = Grant(Scope(scope), streams, expires_at, Limits(**limits)).checked()
    with _at_rest(data, create=True) as access:
        made = access.create(name, grant)
    return {**made.record.as_plain(), "key": made.secret}


@contextmanager
def _at_rest(data: Path, *, create: bool = False) -> "Iterator[AccessControl]":
    """Open the keys of a store that no server uses."""
    from shoal_service.access import AccessControl
    from shoal_service.errors import StoreInUseError
    from shoal_service.store import SqliteStore

    if not create and not data.is_dir():
        raise CommandError(f"the folder {data} does not exist; give the data folder of a server")
    try:
        store = SqliteStore(data)
    except StoreInUseError as error:
        raise CommandError(
            f"{error}. Or leave out --data to ask the server, with a key of scope admin", ExitCode.NOT_STARTED
        ) from error
    try:
        access = AccessControl(store)
        access.load()
        yield access
    finally:
        store.close()


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={bound:.15g}" for name, bound in value.items() if bound is not None)
    return ",".join(value) if isinstance(value, list) else "" if value is None else str(value)


def _print_table(found: list[dict[str, Any]]) -> None:
    if not found:
        typer.echo("there are no access keys; create one with `shoal keys create --name admin --scope admin`")
        return
    shown = [
        {**key, "streams": key["streams"] or "all", "last_used_at": key["last_used_at"] or "never"} for key in found
    ]
    columns = _COLUMNS if any(_cell(key["limits"]) for key in found) else _COLUMNS[:-1]
    rows = ([_cell(key[column]) for column in columns] for key in shown)
    print_table([column.replace("_", " ") for column in columns], rows)
