"""Calls of passkey tests: begin and finish, for end users and admin users."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tests.mfa.webauthn.authenticator import ES256, UP, UV, Authenticator
from tests.userflow.sessions.aged import strong
from tests.world import PASSWORD, Api, TestTenant, User

ORIGIN = settings.WEBAUTHN_ORIGINS[0]


def new_authenticator(*, alg: int = ES256, flags: int = UP | UV, counting: bool = True) -> Authenticator:
    """An honest authenticator in a browser on the platform's page."""
    return Authenticator(origin=ORIGIN, alg=alg, flags=flags, counting=counting)


@dataclass
class Home:
    """Where a user's passkeys live, and how its calls name a user."""

    prefix: str
    naming: dict[str, str]

    def begin_registration(self, api: Api, person: User) -> Any:
        return api.post(f"{self.prefix}/beginRegistration", {"email": person.email, **self.naming})

    def finish_registration(self, api: Api, person: User, credential: Any) -> Any:
        # The password is the proof of a token that enrolls the first factor.
        body = {"email": person.email, "credential": credential, "current_password": PASSWORD, **self.naming}
        return api.post(f"{self.prefix}/finishRegistration", body)

    def begin_authentication(self, person: User | None = None, api: Api | None = None, **members: Any) -> Any:
        named = {"email": person.email} if person else {}
        return (api or Api()).post(f"{self.prefix}/beginAuthentication", {**named, **self.naming, **members})

    def finish_authentication(self, person: User | None, response: Any, api: Api | None = None, **members: Any) -> Any:
        named = {"email": person.email} if person else {}
        body = {**named, "response": response, **self.naming, **members}
        return (api or Api()).post(f"{self.prefix}/finishAuthentication", body)

    def enrol(self, api: Api, person: User, authenticator: Authenticator | None = None) -> Authenticator:
        """Enrol a passkey with the proof that `api` carries."""
        authenticator = authenticator or new_authenticator()
        options = self.begin_registration(api, person)
        assert options.status_code == 200, options.content
        response = self.finish_registration(api, person, authenticator.create(options.json()))
        assert response.status_code == 200, response.content
        return authenticator

    def options(self, person: User | None = None) -> dict[str, Any]:
        """Request options for one use."""
        response = self.begin_authentication(person)
        assert response.status_code == 200, response.content
        return dict(response.json())


def stepped_up(api: Api) -> Api:
    """The same session after it has proven a second factor."""
    return Api(token=strong(str(api.token)), address=api.address)


def end_users_of(tenant: TestTenant) -> Home:
    """The calls for a tenant's end users."""
    return Home("/webauthn/enduser", {"tenant_id": str(tenant.id)})


ADMIN_USERS = Home("/webauthn/admin", {})


def user_with_passkey(tenant: TestTenant, *, counting: bool = True) -> tuple[User, Authenticator]:
    """A new end user with one passkey."""
    person = tenant.register()
    authenticator = end_users_of(tenant).enrol(tenant.as_user(person), person, new_authenticator(counting=counting))
    return person, authenticator
