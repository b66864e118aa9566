"""The `shoal` script: runs the command line, or says which packages are missing."""

import sys


def main() -> None:
    """Run the command line. Exits with 2 if shoal was installed as a library only."""
    try:
        from shoal_service.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("shoal"):
            raise
        sys.stderr.write(
            f"error: the package {error.name!r} is missing, because shoal was installed as a library only; "
            "install the command line and the service with: pip install 'shoal[service]'\n"
        )
        raise SystemExit(2) from None
    run()
