"""A back end that keeps the key of a payment service in the registry. README.md says how to start it."""

import os
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from starlette.middleware.trustedhost import TrustedHostMiddleware
from vault import Payments

from identity_sdk import ClientCredentials, IdentityError

FOLDER = Path(__file__).parent
PORT = int(os.environ.get("PORT", "8004"))
ADDRESS = os.environ.get("ADDRESS", f"http://127.0.0.1:{PORT}")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}
events: deque[tuple[str, str]] = deque(maxlen=50)


def tell(event: str) -> None:
    events.append((f"{datetime.now(UTC):%H:%M:%S}", event))


credentials = ClientCredentials(
    os.environ["IDENTITY_URL"],
    os.environ["CLIENT_ID"],
    os.environ["CLIENT_SECRET"],
    scope="services:read services:write services:credentials",
)
payments = Payments(os.environ["IDENTITY_URL"], credentials, tell)
# One rotation at a time.
turn = threading.Lock()
pages = Jinja2Templates(FOLDER / "templates")
app = FastAPI(openapi_url=None)
app.mount("/static", StaticFiles(directory=FOLDER / "static"))


@app.middleware("http")
async def protect(request: Request, call_next: Any) -> Response:
    """Reject forms of other sites (CSRF), and add the headers that every page has."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # Browsers send the first one; old ones, and pages without TLS, only the second.
    is_own = site == "same-origin" if site else origin == ADDRESS
    if request.method not in ("GET", "HEAD") and not is_own:
        return Response("The form is from another site.", 403, HEADERS)
    response: Response = await call_next(request)
    response.headers.update(HEADERS)
    return response


app.add_middleware(TrustedHostMiddleware, allowed_hosts=[urlsplit(ADDRESS).hostname or ""])


@app.get("/")
def home(request: Request) -> Response:
    """Show what has happened. Where this runs for real, the page belongs behind a sign-in."""
    return pages.TemplateResponse(request, "home.html", {"events": list(events)})


@app.post("/{action}")
def act(action: str) -> Response:
    """Charge a card, or rotate the key."""
    actions = {"charge": payments.charge, "rotate": payments.rotate}
    if action not in actions:
        return Response(status_code=404)
    with turn:
        try:
            actions[action]()
        except (IdentityError, httpx2.HTTPError) as error:
            # Neither contains a secret.
            tell(f"Failed: {error}")
    return RedirectResponse("/", 303)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False)
