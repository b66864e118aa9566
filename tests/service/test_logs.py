"""The log: what its lines must not hold."""

import io

import pytest

from shoal_service.logs import make_log


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_values(form: str) -> None:
    written = io.StringIO()
    log = make_log("info", form, written)

    def connect(password: str) -> None:
        raise OSError(f"no server after {len(password)} characters")

    try:
        connect("hush" + "-hush")
    except OSError:
        log.error("connect_failed", exc_info=True)
    assert "no server after 9 characters" in written.getvalue()
    assert "hush-hush" not in written.getvalue()
