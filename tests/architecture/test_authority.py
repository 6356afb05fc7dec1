"""Each entry point that changes something asks who may: `require_assurance` or `require_reach`, or its reason stands here.

The operations, pages, commands and tasks are those that are registered. What they ask is read from the code that they call
(`tests.architecture.call_graph`), so a new one that asks nothing fails until it asks, or until its reason is written down.
"""

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

import pytest
from django.contrib import admin
from django.core.management import get_commands, load_command_class
from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

import openid.domain_urls  # noqa: F401  # its pages are those of `openid.urls`
from console.frame.confirm import ConfirmView
from console.jobs import actions as jobs
from console.tenants import changes as tenant_pages
from console.tenants.changes import JobView
from identity_platform.api.views import ApiViewSet, endpoint
from identity_platform.audit import writer
from identity_platform.task_queue import app as task_queue
from openid.pages.page import Page
from tests.architecture.call_graph import action_names, mentions, reachable, takes_forms
from tests.architecture.test_house_rules import endpoints
from userflow.accounts.models import EndUser
from userflow.accounts.rank import Reach, must_outrank, require_reach
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.permissions import Anyone, NoCaller, SignedIn, needs

AUTHORITY: Final = {require_assurance, require_reach}
RECORDS: Final = {value for name, value in vars(writer).items() if name.startswith("record_")}

# --- reasons -----------------------------------------------------------------------------------------------------------

_SIGN_IN = "a door: it checks the password, factor, ticket, code or assertion in the request"
_LINK = "a door: the token of a mail in the request decides"
_OWN_TOKEN = "a door: the token in the request decides about itself"
_READ = "reads, by POST because of its body"
# Operations, by their ids, that callers without an account use.
PUBLIC: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "login",
            "loginAdmin",
            "verifyTotp",
            "verifyTotpLogin",
            "verifyAdminTotpLogin",
            "requestSmsCode",
            "verifySmsCode",
            "beginPasskeyAuthentication",
            "finishPasskeyAuthentication",
            "beginAdminPasskeyAuthentication",
            "finishAdminPasskeyAuthentication",
            "requestToken",
            "requestOpenidToken",
            "pushAuthorizationRequest",
            "beginDeviceAuthorization",
        ),
        _SIGN_IN,
    ),
    **dict.fromkeys(
        ("resetAdminPassword", "resetPassword", "verifyEmail", "undoEmailChange"),
        _LINK,
    ),
    **dict.fromkeys(
        ("revokeToken", "revokeOpenidToken", "introspectToken", "introspectOpenidToken", "getUserinfoByPost"),
        _OWN_TOKEN,
    ),
    "registerEndUser": "a door: registration, if the tenant and the client are open for it",
    "requestPasswordReset": "a door: it mails the address and responds the same to everyone",
    "requestAdminPasswordReset": "a door: it mails the address and responds the same to everyone",
    "resendEmailVerification": "a door: it mails the address and responds the same to everyone",
}
# Operations of a signed-in caller about nothing but the caller's own session.
OWN: Final[Mapping[str, str]] = {
    "stepUp": "is the proof that the others ask for",
    "beginPasskeyStepUp": "is the proof that the others ask for",
    "logout": "ends the caller's own session",
    "renamePasskey": "a name decides nothing",
    "checkPermissions": _READ,
}
_SECRET = (
    "the permission services:credentials reads and writes secrets, which machines do too; nothing else follows from it"
)
# Operations whose permission is enough.
PERMISSION: Final[Mapping[str, str]] = {
    "createService": "a new service has no secret yet",
    "deleteService": "deletes no active secret: the service must have none",
    "createServiceCredential": _SECRET,
    "updateServiceCredential": _SECRET,
    "deleteServiceCredential": _SECRET,
    "listEndUsersWithBody": _READ,
    "listEndUsersOfProject": _READ,
    "cancelInvitation": "takes back what no one holds yet",
    "testDirectory": "reads the directory with its stored secret, from its stored server",
    "testWebhookEndpoint": "sends an event without data to the stored address",
}
# Hosted pages with forms, by the names of their classes.
PAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("SignInPage", "PasswordPage", "SecondStepPage", "PasskeyOptions", "StepUpPage", "RegisterPage", "ForgotPage"),
        _SIGN_IN,
    ),
    **dict.fromkeys(("ResetPage", "VerifyEmailPage", "EmailUndoPage"), _LINK),
    "Authorize": "starts a sign-in; the consent page and the session decide",
    "LogoutPage": "ends the sign-in of the browser's cookie, or the sessions of an ID token's",
    "SelectAccountPage": "chooses among the sign-ins of the browser's cookie",
    "ConsentPage": "the user's own consent, in the session of the browser",
    "DevicePage": "the user's own consent, after the hosted sign-in",
    "ApplicationsPage": "takes the user's own consent back",
    "RenamePasskeyPage": "a name decides nothing",
    "SignOutPage": "ends the user's own sign-in",
}
_MACHINE_READS = "shows, measures, checks or writes files for the operator of the machine; changes no account"
# Commands and periodic tasks act as the machine: no proof, but they write audit events. These do not.
UNRECORDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("list_tenants", "check_backup", "extract_global_backup", "collect_figures", "doctor"), _MACHINE_READS
    ),
    **dict.fromkeys(("index_end_users", "index_text_search"), "derived data only"),
    "serve_sample": "a sample application, for development",
    "demo": "creates a tenant by the API of a running server, for development",
    "tenant_worker": "runs the tasks below",
    "deliver_events": "sends stored messages to stored addresses; each attempt is in the message's log",
    "rotate_signing_keys": "recorded by the keys themselves",
    "changepassword": "recorded by the realm",
}
TASKS: Final[Mapping[str, str]] = {
    "run_console_job": "its page has asked, in test_pages_that_start_jobs_ask",
    "recover_abandoned_tasks": "queues interrupted tasks again, with their own arguments",
    "refill_warm_pool": "creates empty databases",
    "seal_audit_trails": "seals the chain of events",
    "purge_expired_rows": "deletes what is past its time",
    "check_database_servers": "measures",
    "deliver_noted_rows": "writes what was revoked to the journal, and who exists to the index",
    "apply_records": "writes what the global database has of tenants and clients into their databases",
    "synchronize_directories": "runs the stored configuration, whose change has asked",
    "check_domains": "looks DNS up; takes lost domains away after a week",
    "index_text_search": "derived data only",
    "index_end_users": "derived data only",
    "collect_figures": "measures",
}


# --- the API -----------------------------------------------------------------------------------------------------------


def operations() -> Iterator[tuple[str, type[ApiViewSet], str]]:
    """Yield method, class and action of every operation that can change something."""
    seen = set()
    for _path, callback in endpoints():
        views = getattr(callback, "cls", None)
        if isinstance(views, type) and issubclass(views, ApiViewSet):
            for method, name in getattr(callback, "actions", {}).items():
                if method not in ("get", "head") and (views, name) not in seen:
                    seen.add((views, name))
                    yield method, views, name


def asks(entry: Callable[..., Any], owner: type | None = None) -> bool:
    return bool(AUTHORITY & reachable(entry, owner))


def permission_classes(views: type[ApiViewSet], name: str) -> list[type]:
    view = views()
    view.action = name
    return [type(permission) for permission in view.get_permissions()]


def problem_of_operation(views: type[ApiViewSet], name: str) -> str:
    """Return why the operation is open, or an empty text."""
    action = getattr(views, name)
    operation = action.contract.id
    classes = permission_classes(views, name)
    if not classes or set(classes) & {AllowAny}:
        return "has no permission class of the platform"
    if asks(action, views):
        return ""
    if operation in PUBLIC:
        return "" if Anyone in classes else "has a permission, and is listed as public"
    if operation in OWN:
        return "" if Anyone not in classes else "is public, and is listed as of signed-in callers"
    if operation in PERMISSION:
        needed = [getattr(each, "access", "") for each in classes if each not in (Anyone, NoCaller, SignedIn)]
        return "" if any(text.startswith("Requires `") for text in needed) else "needs no permission"
    return "asks neither require_assurance nor require_reach, and no reason is given"


def test_every_operation_that_changes_something_asks() -> None:
    found = {getattr(views, name).contract.id: problem_of_operation(views, name) for _, views, name in operations()}
    assert len(found) > 90
    assert {operation: problem for operation, problem in found.items() if problem} == {}


def test_reasons_are_of_operations_that_do_not_ask() -> None:
    silent = {
        getattr(views, name).contract.id for _, views, name in operations() if not asks(getattr(views, name), views)
    }
    assert ({*PUBLIC, *OWN, *PERMISSION} - silent, len(PUBLIC) + len(OWN) + len(PERMISSION)) == (set(), len(silent))


def test_declared_assurance_is_what_the_code_asks() -> None:
    wrong = {}
    for _, views, name in operations():
        action = getattr(views, name)
        declared = action.contract.assurance
        declared = {declared} if isinstance(declared, str) else set(declared)
        if not declared <= (checked := action_names(action, views, Action)):
            wrong[action.contract.id] = declared - checked
    assert wrong == {}


# --- pages -------------------------------------------------------------------------------------------------------------


def test_every_hosted_page_with_a_form_asks() -> None:
    pages = {
        callback.view_class for _, callback in endpoints() if issubclass(getattr(callback, "view_class", object), Page)
    }
    forms = {page.__name__: page for page in pages if hasattr(page, "post")}
    assert len(forms) > 20
    silent = {name for name, page in forms.items() if not asks(page.post, page)}  # type: ignore[attr-defined]  # checked
    assert (silent - PAGES.keys(), PAGES.keys() - silent) == (set(), set())


def console_views() -> set[type[ConfirmView]]:
    """Return the pages of the console that change something: of its URLs and in the place of Django's forms."""
    callbacks = [callback for path, callback in endpoints() if path.startswith("admin/")]
    for model_admin in admin.site._registry.values():
        callbacks += [getattr(model_admin, name, None) for name in ("add", "show", "delete")]
    found = {getattr(callback, "view_class", object) for callback in callbacks}
    # A function that chooses between two pages.
    for callback in callbacks:
        if isinstance(callback, FunctionType):
            found |= {value for value in mentions(callback) if isinstance(value, type)}
    return {view for view in found if issubclass(view, ConfirmView)}


# Console pages, by the names of their classes and modules, whose permission is enough.
CONSOLE: Final[Mapping[str, str]] = {
    "audit_logs.pages.Export": _READ,
    "audit_logs.pages.TenantExport": _READ,
    "people.transfer.ExportEndUsers": _READ,
    "people.end_user.Register": "a new user without roles, who verifies the address",
    "people.groups_and_roles.RemoveHolder": "calls unbind_users by its kind, which asks",
    "people.groups_and_roles.RemoveMember": "calls remove_members by its kind, which asks",
    "people.invitations.Cancel": PERMISSION["cancelInvitation"],
    "platform.invitations.Cancel": PERMISSION["cancelInvitation"],
    "platform.clients.RetryLogouts": "sends stored tokens to the stored address",
    "platform.directories.TestDirectory": PERMISSION["testDirectory"],
    "platform.servers.ChangeServer": "capacity, region and labels for tenants to come; no address",
    "platform.webhooks.SendTest": PERMISSION["testWebhookEndpoint"],
    "registry.pages.CreateService": PERMISSION["createService"],
    "registry.pages.DeleteService": PERMISSION["deleteService"],
    **dict.fromkeys(
        (
            "registry.pages.Activate",
            "registry.pages.AddCredential",
            "registry.pages.DeleteCredential",
            "registry.pages.Expiry",
            "registry.pages.Revoke",
            "registry.pages.Rotate",
        ),
        _SECRET,
    ),
    "jobs.admin.RunAgain": "takes the row of the job's kind when it is loaded",
    "tenants.changes.BackUp": "writes a file on the server",
    "tenants.changes.Finish": "continues a creation that has asked",
    "tenants.changes.Migrate": "brings the schema to the release",
}
# Pages of the console that are functions and take forms, by their paths.
CONSOLE_FORMS: Final[Mapping[str, str]] = {
    "admin/second-step/": _SIGN_IN,
    "admin/forgotten/": "a door: it mails the address and responds the same to everyone",
    "admin/passkey-options/": _SIGN_IN,
    "admin/reauthenticate/": "is the proof that the others ask for",
    "admin/my-sign-in/sessions/end-others/": "ends the user's own other sessions",
    "admin/inside/": "chooses the open tenant of an operator",
}


def name_of(view: type) -> str:
    return f"{view.__module__.removeprefix('console.')}.{view.__name__}"


def view_asks(view: type[ConfirmView]) -> bool:
    """Return whether the page has a row of the action table, or its action asks."""
    return view.action is not None or asks(view.act, view) or asks(view.load, view)


def test_every_page_of_the_console_asks() -> None:
    views = {name_of(view): view for view in console_views()}
    assert len(views) > 80
    silent = {name for name, view in views.items() if not view_asks(view)}
    assert (silent - CONSOLE.keys(), CONSOLE.keys() - silent) == (set(), set())
    open_pages = {name for name, view in views.items() if name in CONSOLE and not view.permissions}
    assert open_pages == set()


def test_every_function_of_the_console_that_takes_forms_asks() -> None:
    pages = {
        path: callback
        for path, callback in endpoints()
        if path.startswith("admin/") and isinstance(callback, FunctionType) and not hasattr(callback, "view_class")
    }
    silent = {path for path, page in pages.items() if takes_forms(page) and not asks(page)}
    assert (silent - CONSOLE_FORMS.keys(), CONSOLE_FORMS.keys() - silent) == (set(), set())


# --- commands, jobs and tasks ------------------------------------------------------------------------------------------


def commands() -> dict[str, type]:
    loaded = {name: load_command_class(of, name) if isinstance(of, str) else of for name, of in get_commands().items()}
    own = ("userflow", "tenants", "registry", "console", "federation", "openid", "mfa", "identity_platform")
    return {name: type(each) for name, each in loaded.items() if type(each).__module__.partition(".")[0] in own}


def test_every_command_is_recorded() -> None:
    found = commands()
    assert len(found) > 30
    unrecorded = {name for name, each in found.items() if not RECORDS & reachable(each.handle, each)}  # type: ignore[attr-defined]  # a command
    assert (unrecorded - UNRECORDED.keys(), UNRECORDED.keys() - unrecorded) == (set(), set())


def test_pages_that_start_jobs_ask() -> None:
    pages = [view for view in vars(tenant_pages).values() if isinstance(view, type)]
    views = {view for view in pages if issubclass(view, JobView) and hasattr(view, "kind")}
    started = {view.kind: view for view in views}
    assert started.keys() == jobs._kinds.keys()
    silent = {kind for kind, view in started.items() if not view_asks(view)}
    # Each finishes, migrates or copies what is there; the permission tenants:write is enough.
    assert silent == {"finish", "migrate", "back_up"}
    assert {view.permissions for view in views} == {("tenants:write",)}


def test_every_task_has_its_reason() -> None:
    own = {name for name in task_queue.tasks if "builtin" not in name}
    assert own == TASKS.keys()


# --- what the test would find ------------------------------------------------------------------------------------------


def _rename_all(name: str) -> None:
    EndUser.objects.update(name=name)


def _rename_after_asking(name: str, by: Any) -> None:
    require_reach(by, Reach(frozenset({"endusers:write"})))
    _rename_all(name)


class SilentViewSet(ApiViewSet):
    permission_classes = [needs("endusers:write")]

    @endpoint(id="renameEveryone")
    def create(self, request: Request) -> Response:
        _rename_all("x")
        return Response()

    @endpoint(id="renameEveryoneAsked")
    def update(self, request: Request) -> Response:
        _rename_after_asking("x", request.user)
        return Response()

    def _outrank(self) -> None:
        must_outrank(self.request.user, EndUser())

    @endpoint(id="renameOne")
    def partial_update(self, request: Request) -> Response:
        self._outrank()
        return Response()


class OpenViewSet(SilentViewSet):
    permission_classes = [AllowAny]


class SilentPage(Page):
    def post(self, request: HttpRequest) -> HttpResponse:
        _rename_all("x")
        return HttpResponse()


class SilentConfirmView(ConfirmView):
    permissions = ("endusers:write",)
    call = staticmethod(_rename_all)


class AskingConfirmView(SilentConfirmView):
    call = staticmethod(_rename_after_asking)


def test_new_operation_that_asks_nothing_is_found() -> None:
    assert "no reason is given" in problem_of_operation(SilentViewSet, "create")
    assert problem_of_operation(SilentViewSet, "update") == ""
    assert problem_of_operation(SilentViewSet, "partial_update") == ""
    assert "no permission class" in problem_of_operation(OpenViewSet, "update")


def silent_function(request: HttpRequest) -> HttpResponse:
    _rename_all(request.POST["name"])
    return HttpResponse()


def test_new_page_that_asks_nothing_is_found() -> None:
    assert takes_forms(silent_function)
    assert not asks(silent_function)
    assert not asks(SilentPage.post, SilentPage)
    assert not view_asks(SilentConfirmView)
    assert view_asks(AskingConfirmView)


def test_reason_of_an_operation_must_fit_its_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLIC, "renameEveryone", "so")  # type: ignore[misc]  # a dict
    assert "listed as public" in problem_of_operation(SilentViewSet, "create")
