"""The `shoal` script: the command line, or what to install where its packages are missing."""

import sys


def main() -> None:
    """Run the command line. Exits with 2 where shoal was installed as a library alone."""
    try:
        from shoal_service.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("shoal"):
            raise
        sys.stderr.write(
            f"error: the package {error.name!r} is missing: shoal was installed as a library alone; "
            "for the command line and the service say: pip install 'shoal[service]'\n"
        )
        raise SystemExit(2) from None
    run()
