"""Pages for people: the links at /, and the API's documentation at /docs, which loads nothing from anywhere else."""

from html import escape
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

STATIC = Path(__file__).parent.parent / "static"
ONLY_OURS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The browser itself then refuses to load anything from another host."""

PLACE_OF_ADDRESS = "http://127.0.0.1:8000"
"""What index.html has in its place, so that the file can be looked at by itself."""

router = APIRouter(include_in_schema=False)


@router.get("/")
async def index(request: Request) -> Response:
    """Links, and a first command with the address under which the reader came."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    address = escape(str(request.base_url).rstrip("/"))
    return HTMLResponse(page.replace(PLACE_OF_ADDRESS, address), headers=ONLY_OURS)


@router.get("/docs")
async def documentation(request: Request) -> Response:
    """Swagger UI over /openapi.json."""
    return _page("docs.html")


def _page(name: str) -> Response:
    return FileResponse(STATIC / name, media_type="text/html; charset=utf-8", headers=ONLY_OURS)
