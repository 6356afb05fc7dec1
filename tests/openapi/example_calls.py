"""Send the request examples of the document as they are, with the ids, addresses and secrets of a test tenant."""

import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.openapi.test_optional_fields import document
from tests.userflow.sessions.clients import FORM
from tests.world import PASSWORD as TEST_PASSWORD
from tests.world import Api, TestTenant, User
from userflow.api_part.example_values import (
    ADMIN_EMAIL,
    ADMIN_ID,
    CLIENT_ID,
    EMAIL,
    PASSWORD,
    TENANT_ID,
    USER_ID,
    VALUES,
)


def operations_with_body() -> dict[str, tuple[str, str, str, Any]]:
    """Method, path, media type and example of each operation with a body, by its id."""
    return {
        operation["operationId"]: (method, path, media_type, media["example"])
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        for media_type, media in operation.get("requestBody", {}).get("content", {}).items()
    }


OPERATIONS = operations_with_body()


@dataclass
class ExampleCalls:
    """The tenant, what stands for each value of an example, and the operations whose example was accepted."""

    tenant: TestTenant
    # What an example has and what is sent instead. Values can be objects, so this is no dict.
    real: list[tuple[Any, Any]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        mark = secrets.token_hex(4)
        self.stands_for(TENANT_ID, str(self.tenant.id))
        self.stands_for(CLIENT_ID, str(self.tenant.client_id))
        self.stands_for(PASSWORD, TEST_PASSWORD)
        self.stands_for(ADMIN_EMAIL, f"lena-{mark}@example.com")
        self.stands_for(VALUES["username"], f"lena-{mark}")
        self.ids.update(tenant_id=str(self.tenant.id), slug=self.tenant.slug, client_id=str(self.tenant.client_id))

    def stands_for(self, example: Any, real: Any) -> None:
        """Send `real` from now on where an example has `example`."""
        self.real.insert(0, (example, real))

    def is_user(self, user_id: object, email: str) -> None:
        """Let this user stand for the user of the examples."""
        self.stands_for(EMAIL, email)
        self.stands_for(USER_ID, str(user_id))
        self.ids["user_id"] = str(user_id)

    def is_admin(self, user_id: str) -> None:
        """Let this user stand for the admin user of the examples."""
        self.stands_for(ADMIN_ID, user_id)
        self.ids["user_id"] = user_id

    def new_user(self) -> User:
        """Register a user, who stands for the user of the examples."""
        user = self.tenant.register()
        self.is_user(user.id, user.email)
        return user

    def real_of(self, example: Any) -> Any:
        """Return the value with all of its parts replaced."""
        for stated, real in self.real:
            if stated == example:
                return real
        if isinstance(example, dict):
            return {name: self.real_of(value) for name, value in example.items()}
        return [self.real_of(value) for value in example] if isinstance(example, list) else example

    def accept(self, operation_id: str, caller: Api | None = None, **options: Any) -> dict[str, Any]:
        """Send the example of an operation, require 2xx and return the body of the response."""
        method, path, media_type, example = OPERATIONS[operation_id]
        body = self.real_of(example)
        if media_type == FORM:
            options |= {"raw": urlencode(body).encode(), "content_type": FORM}
        response = (caller or Api()).call(method, path.format(**self.ids), body, **options)
        assert 200 <= response.status_code < 300, (operation_id, body, response.status_code, response.content)
        self.accepted.add(operation_id)
        return dict(response.json())
