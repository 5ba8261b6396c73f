"""What belongs to no page: the static files, and the way to the first one."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import RedirectResponse

from service.access.guard import open_to_all
from service.dashboard.assets import assets
from service.errors import NotFoundError
from service.prefix import base_of

router = APIRouter(include_in_schema=False)


@router.get("/ui/static/{name:path}", dependencies=[open_to_all()])
async def get_asset(
    name: str, accept_encoding: Annotated[str, Header(max_length=1000)] = ""
) -> Response:
    """A stylesheet, script or icon. Its address changes with its content."""
    asset = assets().get(name)
    if asset is None:
        raise NotFoundError(f"there is no file {name!r}")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "ETag": f'"{asset.version}"',
        "Vary": "Accept-Encoding",
    }
    if "gzip" not in accept_encoding:
        return Response(asset.content, media_type=asset.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed, media_type=asset.media_type, headers=headers)


@router.get("/favicon.ico", dependencies=[open_to_all()])
async def lead_to_icon(request: Request) -> RedirectResponse:
    """Browsers ask here for the icon of what is no page, such as JSON."""
    version = assets()["icon.svg"].version
    return RedirectResponse(f"{base_of(request)}/ui/static/icon.svg?v={version}")


@router.get("/ui", dependencies=[open_to_all()])
@router.get("/ui/", dependencies=[open_to_all()])
@router.get("/ui/studies", dependencies=[open_to_all()])
async def lead_home(request: Request) -> RedirectResponse:
    """The dashboard begins at the root, with the list of studies."""
    return RedirectResponse(f"{base_of(request)}/")
