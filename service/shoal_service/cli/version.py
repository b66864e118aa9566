"""The command `shoal version`."""

import importlib.metadata
import json
import platform

import typer

import shoal_service
from shoal_service.cli.options import Json

_NAMED = ("numpy", "scipy", "numba", "scikit-learn", "fastapi", "uvicorn", "pydantic", "httpx")


def version(as_json: Json = False) -> None:
    """Print the versions of shoal, Python and important libraries, for bug reports."""
    versions = {
        "shoal": shoal_service.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    versions |= {name: _version_of(name) for name in _NAMED}
    typer.echo(json.dumps(versions) if as_json else "\n".join(f"{name} {value}" for name, value in versions.items()))


def _version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
