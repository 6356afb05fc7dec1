"""A project board for companies, each with users and data of its own. README.md says how to start it."""

import logging
import os
import re
import secrets
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx2
import uvicorn
from authlib.integrations.base_client import OAuthError
from companies import Companies, Company
from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from members import Member, Members, SignInNeeded
from sessions import Sessions
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from store import Store

from identity_sdk import ApiError

FOLDER = Path(__file__).parent
PORT = int(os.environ.get("PORT", "8002"))
PLATFORM = os.environ["IDENTITY_URL"]
ADDRESS = os.environ.get("ADDRESS", f"http://127.0.0.1:{PORT}")
HEADERS = {
    # Forms lead to the platform too: signing in and out redirects there.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
    f"form-action 'self' {PLATFORM}",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

store = Store(os.environ["DATABASE"])
companies = Companies(
    store, PLATFORM, ADDRESS, os.environ["OPERATOR_USERNAME"], password=os.environ["OPERATOR_PASSWORD"]
)
members = Members(recheck=float(os.environ.get("RECHECK_SECONDS", "300")))
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


app.add_middleware(Sessions, store=store, secure=ADDRESS.startswith("https:"))
# Outermost: a page of another name that leads to this address (DNS rebinding) gets nothing.
app.add_middleware(TrustedHostMiddleware, allowed_hosts=[urlsplit(ADDRESS).hostname or ""])


def page(request: Request, name: str, *, status: int = 200, **context: Any) -> Response:
    return pages.TemplateResponse(request, f"{name}.html", context, status_code=status)


def to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303)


@app.exception_handler(SignInNeeded)
async def send_to_sign_in(request: Request, error: SignInNeeded) -> Response:
    return to(f"/c/{error.company.slug}/sign-in")


@app.exception_handler(AnyHTTPException)
async def show_error(request: Request, error: AnyHTTPException) -> Response:
    return page(request, "message", status=error.status_code, title=error.detail)


@app.exception_handler(httpx2.HTTPError)
async def show_outage(request: Request, error: httpx2.HTTPError) -> Response:
    return page(request, "message", status=503, title="Signing in and up is not possible at the moment")


@app.exception_handler(RequestValidationError)
async def show_invalid_form(request: Request, error: RequestValidationError) -> Response:
    return page(request, "message", status=400, title="Fill in every field and try again")


def company_of(slug: str) -> Company:
    """Return the company of the address. Raises HTTPException (404)."""
    company = companies.find(slug)
    if company is None:
        raise HTTPException(404, "There is no company at this address")
    return company


Here = Annotated[Company, Depends(company_of)]


async def member_of(request: Request, company: Here) -> Member:
    """Return who is signed in at the company of the address."""
    return await members.member(request, company)


SignedIn = Annotated[Member, Depends(member_of)]
Text = Annotated[str, Form(max_length=200)]


def problem_of(error: ApiError) -> str:
    """Return what a visitor can do about an error of the platform. Raises HTTPException (503) if it is nothing."""
    if error.status not in (400, 409, 429):
        logging.getLogger("uvicorn.error").error("The platform has rejected a call: %s", error)
        raise HTTPException(503, "This is not possible at the moment")
    messages = [message for found in error.details.values() if isinstance(found, list) for message in found]
    return " ".join(messages) or error.message


# --- Sign up, sign in, sign out ---


@app.get("/")
async def home(request: Request) -> Response:
    return page(request, "home")


@app.post("/companies")
def sign_up(request: Request, name: Text, slug: Text, email: Text) -> Response:
    """Open a tenant for the company, and have its first admin invited by mail."""
    given = {"name": name.strip(), "slug": slug.strip().lower(), "email": email.strip()}
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?", given["slug"]):
        problem = "Use letters a-z, digits and dashes in the short name."
        return page(request, "home", status=400, problem=problem, given=given)
    try:
        company = companies.open(**given)
    except ApiError as error:
        problem = "This short name is taken." if error.status == 409 else problem_of(error)
        return page(request, "home", status=400, problem=problem, given=given)
    return page(request, "signed_up", company=company, email=given["email"])


@app.post("/sign-in")
def choose_company(request: Request, slug: Text) -> Response:
    company = companies.find(slug.strip().lower())
    if company is None:
        return page(request, "home", status=404, unknown=slug)
    return to(f"/c/{company.slug}/sign-in")


@app.get("/c/{slug}/sign-in")
async def sign_in(request: Request, company: Here) -> Any:
    """Send the browser to the sign-in page of the company's tenant."""
    return await members.provider(company).authorize_redirect(request, f"{ADDRESS}/c/{company.slug}/callback")


@app.get("/c/{slug}/callback")
async def callback(request: Request, company: Here) -> Response:
    try:
        await members.sign_in(request, company)
    except OAuthError as error:
        text = error.description or error.error
        return page(request, "message", status=400, title="Sign-in failed", text=text, company=company)
    return to(f"/c/{company.slug}")


@app.post("/c/{slug}/sign-out")
async def sign_out(request: Request, company: Here) -> Response:
    return to(await members.sign_out(request, company, f"{ADDRESS}/"))


# --- The company's own pages. Every statement has the company of the session ---


@app.get("/c/{slug}")
def projects(request: Request, member: SignedIn) -> Response:
    return show_projects(request, member)


def show_projects(request: Request, member: Member, **context: Any) -> Response:
    found = store.run("SELECT id, title FROM project WHERE company = ? ORDER BY title", member.company.slug)
    return page(request, "projects", member=member, company=member.company, projects=found, **context)


@app.post("/c/{slug}/projects")
def add_project(member: SignedIn, title: Text, note: Annotated[str, Form(max_length=2000)] = "") -> Response:
    key = secrets.token_urlsafe(9)
    store.run(
        "INSERT INTO project (id, company, title, note, created_by) VALUES (?, ?, ?, ?, ?)",
        *(key, member.company.slug, title, note, member.name),
    )
    return to(f"/c/{member.company.slug}/projects/{key}")


@app.get("/c/{slug}/projects/{key}")
def project(request: Request, member: SignedIn, key: str) -> Response:
    found = store.run("SELECT * FROM project WHERE company = ? AND id = ?", member.company.slug, key)
    if not found:
        raise HTTPException(404, "There is no such project")
    return page(request, "project", member=member, company=member.company, project=found[0])


@app.post("/c/{slug}/invitations")
def invite(request: Request, member: SignedIn, email: Text) -> Response:
    if not member.is_admin:
        raise HTTPException(403, "Only admins of the company can invite colleagues")
    try:
        companies.invite(member.company, email.strip())
    except ApiError as error:
        return show_projects(request, member, problem=problem_of(error), status=400)
    return show_projects(request, member, invited=email, address=ADDRESS)


if __name__ == "__main__":
    # Without a log of requests: the addresses of sign-ins contain codes.
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False)
