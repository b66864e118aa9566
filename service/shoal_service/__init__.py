"""The service of shoal: durable streams over HTTP. Importing it is cheap and starts nothing."""

__version__: str
"""Version of the installed distribution; `unknown` when run from a source tree that is not installed."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import shoal

    version: str = shoal.__version__
    return version


__all__ = ["__version__"]
