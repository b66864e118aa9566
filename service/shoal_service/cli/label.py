"""The command `shoal label`."""

from typing import Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.output import print_json


def label(
    component: Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the component.")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Its label, up to 200 characters.", show_default=False)
    ] = None,
    *,
    server: options.Server,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="More about it, up to 4 KiB.", show_default=False)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the label and the note.")] = False,
    as_json: options.Json = False,
) -> None:
    """Say in words what a component is. Its successors get the label.

    What is not given stays as it is.

    Examples:

      shoal label 7 "idle hosts" --stream hosts
      shoal label 7 --note "since the nightly backup"
      shoal label 7 --remove
    """
    if remove and (text is not None or note is not None):
        raise CommandError("--remove takes label and note away; give it without TEXT and --note")
    changes: dict[str, Any] = {name: value for name, value in (("label", text), ("note", note)) if value is not None}
    if remove:
        changes = {"label": None, "note": None}
    if not changes:
        raise CommandError("there is nothing to do; give TEXT, --note TEXT or --remove")
    with server.connect() as client:
        found = client.label(component, **changes)
    if as_json:
        print_json({"id": found.id, "label": found.label, "note": found.note})
    else:
        typer.echo(f"component {found.id}: {found.label or 'no label'}{f' ({found.note})' if found.note else ''}")
