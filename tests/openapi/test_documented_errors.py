"""The API document lists the codes of an operation's errors."""

from tests.openapi.document import document, documented_codes, fields_of
from userflow.errors import PROOF_ERRORS


def test_operations_with_a_proof_list_every_error_of_a_proof() -> None:
    checked = []
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "proof_token" in fields_of(body).get("properties", {}):
                checked.append(path)
                for error in PROOF_ERRORS:
                    assert error.code in (documented_codes(method, path, error.status) or ()), (method, path, error)
    assert {"/authmgr/profile", "/authmgr/profile/password", "/webauthn/factors/{factor_id}"} <= set(checked)


def test_errors_of_operations_list_their_codes() -> None:
    statuses = [
        (method, path, int(status))
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
        if status >= "400" and path != "/uflow/ready"
    ]
    assert [case for case in statuses if not documented_codes(*case)] == []
