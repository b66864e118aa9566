"""Web pages: the dashboard at /, and the documentation of the API at /docs. They load nothing from other hosts."""

from html import escape
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from shoal_service.access import OPEN
from shoal_service.routes.endpoints import Endpoints

STATIC = Path(__file__).parent.parent / "static"
ONLY_OURS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that make the browser load nothing from other hosts."""
STRICTER = ONLY_OURS | {
    "Content-Security-Policy": ONLY_OURS["Content-Security-Policy"].replace(" 'unsafe-inline'", "")
    + "; object-src 'none'"
}
"""Of the dashboard: no style in its markup either. Swagger UI needs some."""


class PageFiles(StaticFiles):
    """The files of the pages. A browser asks each time whether they have changed, so that an upgrade of the service
    never mixes two versions of them.
    """

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Answer with a file, or 304."""
        response = super().file_response(*args, **kwargs)
        response.headers.update({"Cache-Control": "no-cache", **ONLY_OURS})
        return response


PLACE_OF_ADDRESS = "http://127.0.0.1:8000"
"""Address in index.html that is replaced by the real one."""

endpoints = Endpoints("pages", any_query=True)


@endpoints.get("/", OPEN, include_in_schema=False)
async def index(request: Request) -> Response:
    """Show the dashboard; without JavaScript, a first command with the address that the browser used."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    address = escape(str(request.base_url).rstrip("/"))
    return HTMLResponse(page.replace(PLACE_OF_ADDRESS, address), headers=STRICTER)


@endpoints.get("/docs", OPEN, include_in_schema=False)
async def documentation(request: Request) -> Response:
    """Show /openapi.json in Swagger UI."""
    return _page("docs.html")


def _page(name: str) -> Response:
    return FileResponse(STATIC / name, media_type="text/html; charset=utf-8", headers=ONLY_OURS)
