"""The language switch of the hosted pages: links to the same page, and a cookie that keeps the choice for the browser."""

from typing import Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.http import escape_leading_slashes

from openid import browser
from tenants.entering.lookup import TenantContext
from userflow.branding.texts import known_language, named_languages

# The parameter of a link. No protocol has one of this name, so no application sends it by chance.
CHOSEN_LANGUAGE: Final = "chosen_language"
KEPT_SECONDS: Final = 365 * 86_400


def language_links(address: str) -> list[tuple[str, str, str]]:
    """Return the languages with their own names and the addresses that show the page of this address in them."""
    return [(code, name, _address(address, code)) for code, name in named_languages()]


def is_choice_of_language(request: HttpRequest) -> bool:
    """Return whether a request follows a link of the language switch."""
    # Most requests need no parsed query, so it is searched first.
    return CHOSEN_LANGUAGE in request.META.get("QUERY_STRING", "") and CHOSEN_LANGUAGE in request.GET


def choose_language(request: HttpRequest, tenant: TenantContext) -> HttpResponse:
    """Keep the language of the link in a cookie, and redirect to the page itself.

    Any site may send a browser to such a link: it changes the words of the pages and nothing else.
    """
    response = HttpResponse(status=303, headers={"Location": _address(request.get_full_path())})
    if language := known_language(request.GET.getlist(CHOSEN_LANGUAGE)):
        browser.set_cookie(response, browser.LANGUAGE, tenant.tenant_id, language, max_age=KEPT_SECONDS)
    return response


def chosen_language(request: HttpRequest, tenant: TenantContext) -> str:
    """Return the language that was chosen in this browser, or ""."""
    return known_language([request.COOKIES.get(browser.cookie_name(browser.LANGUAGE, tenant.tenant_id), "")])


def forget_language(request: HttpRequest, response: HttpResponse, tenant: TenantContext) -> None:
    """Delete the cookie, after a newer choice of the user."""
    if browser.cookie_name(browser.LANGUAGE, tenant.tenant_id) in request.COOKIES:
        browser.delete_cookie(response, browser.LANGUAGE, tenant.tenant_id)


def _address(address: str, language: str = "") -> str:
    """Return the address of a page, as a choice of this language if one is given."""
    path, _, parameters = address.partition("?")
    query = QueryDict(parameters, mutable=True)
    query.pop(CHOSEN_LANGUAGE, None)
    if language:
        query[CHOSEN_LANGUAGE] = language
    # A path may begin with the two slashes of another host.
    path = escape_leading_slashes(path)
    return f"{path}?{query.urlencode()}" if query else path
