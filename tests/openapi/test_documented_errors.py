"""The API document names the errors of a proof in a request body."""

from tests.openapi.test_optional_fields import document
from userflow.errors import PROOF_ERRORS


def test_operations_with_a_proof_name_every_error_of_a_proof() -> None:
    shapes = document()["components"]["schemas"]
    checked = []
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            shape = shapes[body["$ref"].rpartition("/")[2]] if "$ref" in body else body
            if "proof_token" in shape.get("properties", {}):
                checked.append(path)
                for error in PROOF_ERRORS:
                    description = operation["responses"].get(str(error.status), {}).get("description", "")
                    assert error.message in description, (method, path, error)
    assert {"/authmgr/profile", "/authmgr/profile/password", "/webauthn/factors/{factor_id}"} <= set(checked)
