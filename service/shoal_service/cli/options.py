"""Options that several commands share, and the client that they describe."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from shoal_service.cli.readers import Categories, ReadOptions
    from shoal_service.client import Client, StreamInfo
    from shoal_service.wire import RecordColumns

SERVER = "Server"
FILE = "File"
RECORDS = "Records"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address of the server. (default: SHOAL_URL, or 127.0.0.1 with the port below)",
        rich_help_panel=SERVER,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", help="Port of a server on this machine, instead of --url. (default: 8000)", rich_help_panel=SERVER
    ),
]
Stream = Annotated[
    str | None,
    typer.Option(
        "--stream",
        "-s",
        envvar="SHOAL_STREAM",
        metavar="NAME",
        help="Name of the stream. (default: `default`, which the first ingest creates)",
        rich_help_panel=SERVER,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Access key. Other users of this machine may see it here, so better use SHOAL_API_KEY.",
        show_default=False,
        rich_help_panel=SERVER,
    ),
]
Deadline = Annotated[
    float,
    typer.Option(
        "--deadline",
        metavar="SECONDS",
        min=0.0,
        help="Longest time for a request, including retries.",
        rich_help_panel=SERVER,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_POINTS = "npy, npz, csv, ndjson (also .gz), Parquet or Arrow file"
Points = Annotated[str, typer.Argument(metavar="FILE", help=f"{_POINTS}; `-` reads stdin.")]
StoredPoints = Annotated[str, typer.Argument(metavar="FILE", help=f"{_POINTS}. It is read twice, so stdin cannot be.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="npy, npz, csv, ndjson, parquet or arrow. (default: from the file name, or the first bytes)",
        rich_help_panel=FILE,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="LIST",
        help="Columns to use, by name (x,y) or by number from 0 (0,2-5). (default: all)",
        rich_help_panel=FILE,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="NAME", help="Name of the array in an npz. (default: its only table)", rich_help_panel=FILE
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether a csv begins with names. (default: if a cell of its first line is not a number)",
        show_default=False,
        rich_help_panel=FILE,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help="Character between the columns of a csv, `tab` or `space`. (default: from its first line)",
        rich_help_panel=FILE,
    ),
]


Features = Annotated[
    int | None,
    typer.Option(
        "--features",
        min=1,
        metavar="N",
        help="Number of features of sparse rows in ndjson. (default: that of the stream)",
        rich_help_panel=FILE,
    ),
]


KeyColumn = Annotated[
    str | None,
    typer.Option(
        "--key-column",
        metavar="COLUMN",
        help="Column or field of the keys, by name, or by number from 0 if there are no names.",
        rich_help_panel=RECORDS,
    ),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time-column",
        metavar="COLUMN",
        help="Column of the times: RFC 3339, seconds since 1970, or timestamps.",
        rich_help_panel=RECORDS,
    ),
]
PayloadColumns = Annotated[
    str | None,
    typer.Option(
        "--payload-columns",
        metavar="LIST",
        help="Columns that make up the payload of each point, with commas: host,level.",
        rich_help_panel=RECORDS,
    ),
]
WeightColumn = Annotated[
    str | None,
    typer.Option("--weight-column", metavar="COLUMN", help="Column of the weights.", rich_help_panel=RECORDS),
]


class FieldColumns(NamedTuple):
    """Options that name columns of a file which hold fields of records and are no features."""

    key_column: KeyColumn = None
    time_column: TimeColumn = None
    payload_columns: PayloadColumns = None
    weight_column: WeightColumn = None

    def columns(self) -> "RecordColumns | None":
        """The same for the readers. None where none is named."""
        from shoal_service.wire import record_columns

        return record_columns(self.key_column, self.time_column, self.payload_columns, self.weight_column)


class Address(NamedTuple):
    """Options of every command that talks to a server about no stream."""

    url: Url = None
    port: Port = None
    api_key: ApiKey = None
    deadline_s: Deadline = 120.0

    def connect(self) -> "Client":
        """Make a client for these options. The caller closes it."""
        return Server(self.url, self.port, None, self.api_key, self.deadline_s).connect()


class Server(NamedTuple):
    """Options of every command that talks to a server about a stream."""

    url: Url = None
    port: Port = None
    stream: Stream = None
    api_key: ApiKey = None
    deadline_s: Deadline = 120.0

    def connect(self, *, retries: int = 10) -> "Client":
        """Make a client for these options. The caller closes it."""
        from shoal_service.cli.advising_client import AdvisingClient

        url = server_url(self.url, self.port)
        return AdvisingClient(url, self.stream, retries=retries, deadline_s=self.deadline_s, api_key=self.api_key)

    def offset_to_await(self, client: "Client", min_offset: int | None) -> int | None:
        """The given offset, or the end of the log, so that a file that was just sent is visible."""
        if min_offset is not None:
            return min_offset
        known = self._info(client)
        return None if known is None else known.log_offset

    def expect_stream(self, client: "Client") -> None:
        """Raise the client's error if a stream was named that does not exist. The first points make `default`."""
        if self.stream not in (None, "default"):
            client.stream_info(self.stream)

    def takes_holes(self, client: "Client") -> bool:
        """Whether the stream takes points with missing values; not if it does not exist, or may not be read."""
        from shoal_service.client import ShoalClientError

        try:
            known = self._info(client)
        except ShoalClientError:
            return False
        return known is not None and known.settings.get("missing") == "marginal"

    def categories(self, client: "Client", created_with: Mapping[str, Any] = MappingProxyType({})) -> "Categories":
        """The columns of categories of the stream, or of the settings that it is created with; none if neither is
        known."""
        from shoal_service.cli.readers import Categories
        from shoal_service.client import ShoalClientError

        try:
            known = self._info(client)
        except ShoalClientError:
            known = None
        return Categories.of(created_with if known is None else known.settings)

    def n_features(self, client: "Client") -> int | None:
        """Number of features of the stream; None if it does not exist."""
        known = self._info(client)
        return None if known is None else known.settings.get("n_features")

    def _info(self, client: "Client") -> "StreamInfo | None":
        """The stream on the server; None if it does not exist."""
        name = self.stream or "default"
        return next((one for one in client.streams(name) if one.stream == name), None)


class Reading(NamedTuple):
    """Options of every command that reads a file of points."""

    format_: Format = None
    columns: Columns = None
    key: Key = None
    header: Header = None
    delimiter: Delimiter = None
    features: Features = None

    def options(
        self,
        chunk_rows: int = 1000,
        stream_features: Callable[[], int | None] = lambda: None,
        records: "RecordColumns | None" = None,
    ) -> "ReadOptions":
        """The same for the readers. `stream_features`: number of features of sparse rows without --features."""
        from shoal_service.cli.readers import ReadOptions

        return ReadOptions(
            self.format_,
            self.key,
            self.columns,
            self.header,
            self.delimiter,
            chunk_rows,
            lambda: self.features or stream_features(),
            records,
        )


def server_url(url: str | None, port: int | None) -> str:
    """Address of the server: --url or --port; SHOAL_URL; SHOAL_HOST and SHOAL_PORT; SHOAL_CONFIG; 127.0.0.1:8000."""
    if url is not None and port is not None:
        raise CommandError("both --url and --port were given; put the port into the URL and remove --port")
    if port is None:
        url = url or os.environ.get("SHOAL_URL")
    if url:
        return url if "://" in url else f"http://{url}"
    known = _config_file() | {name: os.environ[key] for name, key in _FROM_ENV.items() if os.environ.get(key)}
    host = str(known.get("host", "127.0.0.1"))
    if port is not None or host in ("0.0.0.0", "::", ""):  # a wildcard to listen on is not an address to connect to
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port or known.get('port', 8000)}"


MinOffset = Annotated[
    int | None,
    typer.Option(
        "--min-offset",
        min=0,
        metavar="OFFSET",
        help="Wait until this many points of the log are learnt; 0: do not wait. (default: all points in it now)",
    ),
]


def name_and_value(text: str, example: str = "max_streams=200") -> tuple[str, str]:
    """Split `NAME=VALUE` of a setting."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise CommandError(f"{text!r} is not a setting NAME=VALUE; write it like {example}")
    return name, value


def setting(text: str) -> tuple[str, Any]:
    """Split `NAME=VALUE` of a stream. The value is read as JSON if possible, otherwise as text."""
    name, value = name_and_value(text, "half_life=50000")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


_FROM_ENV = {"host": "SHOAL_HOST", "port": "SHOAL_PORT"}


def _config_file() -> dict[str, Any]:
    path = os.environ.get("SHOAL_CONFIG")
    if not path:
        return {}
    import tomllib

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"the settings file {path} (SHOAL_CONFIG) cannot be read: {error}") from error
