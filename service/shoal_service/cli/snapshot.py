"""The commands `shoal snapshot save`, `shoal snapshot restore` and `shoal snapshot convert`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import print_json

app = typer.Typer(
    no_args_is_help=True,
    help="Save the state of a stream to a file, restore it, or convert it for other programs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("save")
@grouped
def save(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, for example sensors.shoal.")],
    server: options.Server,
    min_offset: Annotated[
        int | None,
        typer.Option(
            "--min-offset", min=0, metavar="OFFSET", help="Wait until this many points of the log are learnt."
        ),
    ] = None,
    window: Annotated[
        bool,
        typer.Option("--window/--no-window", help="Also save the points of the window, which a refinement needs."),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: options.Json = False,
) -> None:
    """Save the state of the stream to a file, completely or not at all.

    The library can also read the file: StreamingDPMixture.load(FILE).

    Example:  shoal snapshot save sensors.shoal --stream sensors
    """
    if file.exists() and not force:
        raise CommandError(f"{file} already exists; choose another name, or add --force to replace it")
    if not file.absolute().parent.is_dir():
        raise CommandError(f"cannot write {file}: the folder {file.absolute().parent} does not exist")
    with server.connect() as client:
        size = client.snapshot_save(file, min_offset=min_offset, window=window)
    if as_json:
        print_json({"file": str(file), "bytes": size})
    else:
        typer.echo(f"saved to {file}: {size:,} bytes")


@app.command("restore")
@grouped
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file from `shoal snapshot save`.")],
    server: options.Server,
    as_json: options.Json = False,
) -> None:
    """Restore a stream to a saved state. The offsets of its log never decrease.

    Example:  shoal snapshot restore sensors.shoal --stream sensors
    """
    if not file.is_file():
        raise CommandError(f"the file {file} does not exist")
    with server.connect() as client:
        answer = client.snapshot_restore(file)
    if as_json:
        print_json(dataclasses.asdict(answer))
    else:
        typer.echo(f"stream {answer.stream} restored from {file}, log offset {answer.log_offset:,}")


@app.command("convert")
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file from `shoal snapshot save`.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File to write; its ending is .json or .onnx.")],
    force: Annotated[bool, typer.Option("--force", help="Replace TARGET if it exists.")] = False,
    as_json: options.Json = False,
) -> None:
    """Convert a saved mixture for other programs: JSON that any language reads, or a model for ONNX runtimes.

    Example:  shoal snapshot convert sensors.shoal sensors.onnx
    """
    if target.suffix not in (".json", ".onnx"):
        raise CommandError(f"cannot convert to {target.name!r}; end the name with .json or .onnx")
    if not file.is_file():
        raise CommandError(f"the file {file} does not exist")
    if target.exists() and not force:
        raise CommandError(f"{target} already exists; choose another name, or add --force to replace it")
    from shoal import StreamingDPMixture
    from shoal.export import to_json, to_onnx
    from shoal.runtime.files import write_whole

    model = StreamingDPMixture.load(file)
    content = to_json(model).encode() if target.suffix == ".json" else to_onnx(model).SerializeToString()
    write_whole(target, content)
    if as_json:
        print_json({"file": str(target), "bytes": len(content)})
    else:
        typer.echo(f"wrote {target}: {len(content):,} bytes")
