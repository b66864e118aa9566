"""The command `shoal serve`."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_service.blas import pin_blas_by_environment
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.options import name_and_value


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. (default: 127.0.0.1)")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one. (default: 8000)")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of the data, created if needed. (default: ./shoal-data)"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="sqlite, redis, or memory, which keeps nothing after the end. (default: sqlite)"
        ),
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option(
            "--redis-url",
            metavar="URL",
            help="Redis server for --store redis, also redis+sentinel://HOST:PORT/SERVICE. Put a password into "
            "SHOAL_REDIS_URL or the settings file.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="all; or with --store redis: api, learner or refiner. (default: all)"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file with settings. (default: SHOAL_CONFIG)"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow other machines to connect without an access key. They may then do everything."
        ),
    ] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Certificate with its chain, in PEM. Needs --tls-key."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the certificate, in PEM, without password.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Origin of web pages that may read answers, such as https://app.example. Repeatable. (default: none)",
        ),
    ] = None,
    webhook_allow_private: Annotated[
        bool, typer.Option("--webhook-allow-private", help="Allow webhooks to private and loopback addresses.")
    ] = False,
    other: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another setting, such as max_streams=200. Repeatable."),
    ] = None,
    list_settings: Annotated[
        bool, typer.Option("--list-settings", help="Print all settings with their values and meanings, and exit.")
    ] = False,
) -> None:
    """Start a server. It keeps acknowledged points even after kill -9.

    Settings: flags, else SHOAL_* variables (SHOAL_PORT, SHOAL_DATA_DIR, ...),
    else the TOML file.

    Examples:

      shoal serve
      shoal serve --port 9000 --data /var/lib/shoal
      SHOAL_MAX_BODY_BYTES=16MiB shoal serve --set max_streams=200
      shoal serve --config shoal.toml --list-settings
      shoal serve --store redis --redis-url redis://127.0.0.1 --role api
    """
    named: dict[str, object] = {
        "host": host,
        "port": port,
        "data_dir": data,
        "store": store,
        "redis_url": redis_url,
        "role": role,
        "insecure": insecure or None,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "cors_origins": tuple(cors_origin or ()) or None,
        "webhook_allow_private": webhook_allow_private or None,
    }
    flags: dict[str, object] = dict(map(name_and_value, other or ()))
    flags |= {name: value for name, value in named.items() if value is not None}
    from shoal_service.settings import load_settings

    settings = load_settings(config, **flags)
    if list_settings:
        _list(settings)
        return
    pin_blas_by_environment()  # before the application, which loads NumPy
    from shoal_service.app import serve as run

    try:
        run(settings)
    except OSError as error:
        where = f"{settings.host}:{settings.port}" + (f", {settings.data_dir}" if settings.store == "sqlite" else "")
        raise CommandError(f"cannot start the server ({where}): {error}", ExitCode.NOT_STARTED) from error


def _list(settings: object) -> None:
    from shoal_service.settings import Settings

    for name, field in Settings.model_fields.items():
        typer.echo(f"{name} = {getattr(settings, name)}")
        typer.echo(f"    {' '.join((field.description or '').split())}")
