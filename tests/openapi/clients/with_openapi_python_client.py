"""What an application writes with the client of openapi-python-client."""

import json
import sys
from uuid import UUID

from platform_client import AuthenticatedClient, Client
from platform_client.api.end_users import list_end_users
from platform_client.api.sign_in import login, login_admin
from platform_client.models import (
    AdminLoginRequest,
    AdminSignedIn,
    EndUserList,
    EndUserLoginRequest,
    EndUserSignedIn,
    SecondStepRequired,
)

given: dict[str, str] = json.loads(sys.argv[1])
base, password, user = given["base"], given["password"], given["user"]
# `login` accepts a client's secret, so this generator asks for a client with one.
application = AuthenticatedClient(base_url=base, token=given["basic"], prefix="Basic")

body = EndUserLoginRequest(client_id=UUID(given["confidential"]), email=user, password=password)
first = login.sync(client=application, body=body)
assert isinstance(first, SecondStepRequired)
methods: list[str] = first.methods

second = login_admin.sync(
    client=Client(base_url=base), body=AdminLoginRequest(username=given["admin"], password=password)
)
assert isinstance(second, AdminSignedIn)
api = AuthenticatedClient(base_url=base, token=second.access_token)

users = list_end_users.sync(client=api, tenant_id=UUID(given["tenant_id"]), email=user, page=1, limit=5)
assert isinstance(users, EndUserList)
emails: list[str] = [each.email for each in users.users]

body.password = "wrong"
failed = login.sync(client=application, body=body)
assert failed
assert not isinstance(failed, EndUserSignedIn | SecondStepRequired)
rejected: bool = failed.code == "credentials_invalid"

print(json.dumps({"methods": methods, "total": users.total, "emails": emails, "rejected": rejected}))
