"""The command `shoal refine`."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.output import count, print_json, stderr_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal_service.client import Client, Refinement

POLL_S = 0.3


def refine(
    server: options.Server,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", metavar="NAME", help="vdp, fast-vdp, ctsb, o-ctsb, cfsd, ... (default: vdp)"),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            "--window", min=1, metavar="POINTS", help="Number of newest points to use. (default: the whole window)"
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result, or return at once.")] = True,
    as_json: options.Json = False,
) -> None:
    """Improve the mixture now, by batch inference over the newest points of the stream.

    The server also does this by itself from time to time. A refinement that
    is not adopted is not an error: it could not improve the mixture.

    Examples:

      shoal refine --stream sensors
      shoal refine --method fast-vdp --no-wait
      shoal refine --json | jq .bound_after
    """
    with server.connect() as client:
        found = client.refine(method=method, window=window)
        if wait:
            found = _awaited(client, found)
    if as_json:
        print_json(found.raw)
    else:
        typer.echo(_words(found))
    if found.state == "failed":
        raise CommandError(f"the refinement failed: {found.reason}", ExitCode.BUSY)


def _awaited(client: "Client", found: "Refinement") -> "Refinement":
    with _status() as show:
        while not found.done:
            show(found)
            found = client.refinement(found.id, wait=True, timeout_s=POLL_S)
    return found


@contextmanager
def _status() -> "Iterator[Callable[[Refinement], None]]":
    """Show the progress on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda found: None
        return
    with stderr_console().status("refining") as status:
        yield lambda found: status.update(_progress(found))


def _progress(found: "Refinement") -> str:
    at: dict[str, Any] = found.progress or {}
    if found.state == "queued" or not at:
        return f"refining: {found.state}"
    return (
        f"refining: {at.get('message', '')}, round {at.get('round', 0):,}, "
        f"{count(int(at.get('n_components', 0)), 'component')}, {at.get('elbo', 0.0):,.1f} nats"
    )


def _words(found: "Refinement") -> str:
    if not found.done:
        return f"refinement {found.id} of stream {found.stream}: {found.state}"
    parts = [f"refinement {found.id}: {found.state.replace('-', ' ')}"]
    if found.bound_before is not None and found.bound_after is not None:
        parts.append(
            f"{found.components_before} components to {found.components_after}, bound {found.bound_before:,.1f} to "
            f"{found.bound_after:,.1f} nats over {count(int(found.raw.get('window_rows') or 0), 'point')}"
        )
        if (copies := found.raw.get("copies") or 1) > 1:
            parts.append(f"a typical point is there {copies:,} times, and copies are no evidence")
    if found.seconds is not None:
        parts.append(f"{found.seconds:.1f} s")
    if found.reason and found.state != "failed":
        parts.append(found.reason)
    return "; ".join(parts)
