"""`shoal serve`."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_service.blas import pin_blas_by_environment
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.options import name_and_value


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. (default: 127.0.0.1)")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one. (default: 8000)")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The store's folder, made if absent. (default: ./shoal-data)"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="sqlite; redis; or memory: gone at the end. (default: sqlite)"),
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option(
            "--redis-url",
            metavar="URL",
            help="The Redis server of --store redis. A password is safer in SHOAL_REDIS_URL, or in the settings file.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="all; or, over redis, api, learner or refiner: any of each. (default: all)"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file of settings. (default: what SHOAL_CONFIG names)"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen beyond this machine, though anyone who reaches the port may do all."),
    ] = False,
    other: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as max_streams=200. Repeatable."),
    ] = None,
    list_settings: Annotated[
        bool, typer.Option("--list-settings", help="Print every setting, its value and what it does; serve nothing.")
    ] = False,
) -> None:
    """Serve streams over HTTP until interrupted; nothing acknowledged is lost, even on kill -9.

    Settings come from flags, over SHOAL_* variables (SHOAL_PORT, SHOAL_DATA_DIR, ...), over the
    TOML file, over the defaults.

    Examples:

      shoal serve
      shoal serve --port 9000 --data /var/lib/shoal
      SHOAL_MAX_BODY_BYTES=16MiB shoal serve --set max_streams=200
      shoal serve --config shoal.toml --list-settings
      shoal serve --store redis --redis-url redis://127.0.0.1:6379/0 --role api
    """
    flags: dict[str, object] = dict(map(name_and_value, other or ()))
    named = {"host": host, "port": port, "data_dir": data, "store": store, "insecure": insecure or None}
    named |= {"redis_url": redis_url, "role": role}
    flags |= {name: value for name, value in named.items() if value is not None}
    from shoal_service.settings import load_settings

    settings = load_settings(config, **flags)
    if list_settings:
        _list(settings)
        return
    pin_blas_by_environment()  # before the application, which brings NumPy along
    from shoal_service.app import serve as run

    try:
        run(settings)
    except OSError as error:
        where = f"{settings.host}:{settings.port}" + (f", {settings.data_dir}" if settings.store == "sqlite" else "")
        raise CommandError(f"cannot serve ({where}): {error}", ExitCode.NOT_STARTED) from error


def _list(settings: object) -> None:
    from shoal_service.settings import Settings

    for name, field in Settings.model_fields.items():
        typer.echo(f"{name} = {getattr(settings, name)}")
        typer.echo(f"    {' '.join((field.description or '').split())}")
