"""Calls of passkey tests: begin and finish, for end users and admin users."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tests.mfa.webauthn.authenticator import ES256, UP, UV, Authenticator
from tests.userflow.sessions.aged import proof_token, strong
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

    def finish_registration(self, api: Api, person: User, credential: Any, **proof: Any) -> Any:
        """Finish; the proof of a token is the password, which is enough for the first factor."""
        proof = proof or {"current_password": PASSWORD}
        body = {"email": person.email, "credential": credential, **proof, **self.naming}
        return api.post(f"{self.prefix}/finishRegistration", body)

    def begin_authentication(self, person: User | None = None, api: Api | None = None, **members: Any) -> Any:
        named = {"email": person.email} if person else {}
        return (api or Api()).post(f"{self.prefix}/beginAuthentication", {**named, **self.naming, **members})

    def finish_authentication(self, person: User | None, response: Any, api: Api | None = None, **members: Any) -> Any:
        named = {"email": person.email} if person else {}
        body = {**named, "response": response, **self.naming, **members}
        return (api or Api()).post(f"{self.prefix}/finishAuthentication", body)

    def enrol(self, api: Api, person: User, authenticator: Authenticator | None = None, **proof: Any) -> Authenticator:
        """Enrol a passkey with the token that `api` carries, and a proof in the request."""
        authenticator = authenticator or new_authenticator()
        options = self.begin_registration(api, person)
        assert options.status_code == 200, options.content
        response = self.finish_registration(api, person, authenticator.create(options.json()), **proof)
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


def by_factor(api: Api) -> dict[str, str]:
    """The proof in the request of a user who has a factor."""
    return {"proof_token": proof_token(str(api.token))}


def end_users_of(tenant: TestTenant) -> Home:
    """The calls for a tenant's end users."""
    return Home("/webauthn/enduser", {"tenant_id": str(tenant.id)})


ADMIN_USERS = Home("/webauthn/admin", {})


def user_with_passkey(tenant: TestTenant, *, counting: bool = True) -> tuple[User, Authenticator]:
    """A new end user with one passkey."""
    person = tenant.register()
    authenticator = end_users_of(tenant).enrol(tenant.as_user(person), person, new_authenticator(counting=counting))
    return person, authenticator
