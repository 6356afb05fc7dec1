"""Operations have tags named after features, in the order of an integration."""

from identity_platform.api.app_parts import is_oauth
from tests.openapi.document import document, resolved, responses_of


def tags_of(path: str) -> set[str]:
    return {tag for operation in document()["paths"][path].values() for tag in operation["tags"]}


def test_operations_have_one_tag_and_tags_have_operations() -> None:
    stated = [operation["tags"] for path in document()["paths"].values() for operation in path.values()]
    assert {len(tags) for tags in stated} == {1}
    assert {tags[0] for tags in stated} == {tag["name"] for tag in document()["tags"]}


def test_every_body_has_one_media_type() -> None:
    # Generators make one model of a body, and with two media types they send it as the wrong one.
    forms = {
        path: list(operation["requestBody"]["content"])
        for path, operations in document()["paths"].items()
        for operation in operations.values()
        if "requestBody" in operation
    }
    # OAuth, and the access token in the body at userinfo (RFC 6750 section 2.2).
    of_forms = [path for path in forms if is_oauth(path) or path == "/t/{slug}/userinfo"]
    expected = {key: ["application/x-www-form-urlencoded"] for key in of_forms}
    assert {path: kinds for path, kinds in forms.items() if kinds != ["application/json"]} == expected


def test_responses_429_and_503_document_retry_after() -> None:
    responses = [
        response
        for path in document()["paths"].values()
        for operation in path.values()
        for status, response in responses_of(operation).items()
        if status in ("429", "503")
    ]
    assert responses
    headers = [resolved(response["headers"].get("Retry-After", {})) for response in responses]
    assert {header.get("schema", {}).get("type") for header in headers} == {"integer"}


def test_description_documents_the_common_responses() -> None:
    says = document()["info"]["description"]
    assert all(status in says for status in ("404", "405", "413"))
    shapes = set(document()["components"]["schemas"])
    assert shapes >= {name for name in says.replace(",", " ").replace(")", " ").split() if name.endswith("ErrorBody")}


def test_tags_have_names_and_descriptions() -> None:
    assert [tag["name"] for tag in document()["tags"]][:3] == ["Sign-in", "Tokens", "Sessions"]
    assert not [tag for tag in document()["tags"] if "/" in tag["name"] or not tag["description"].endswith(".")]


def test_similar_paths_have_different_tags() -> None:
    assert tags_of("/uflow/admin/users/{user_id}") == {"Admin users"}
    assert tags_of("/uflow/admin/enduser/list") == tags_of("/uflow/user/enduser/list") == {"End users"}
    assert tags_of("/uflow/admin/enduser/import") == {"Import and export"}
    assert tags_of("/webauthn/admin/totp/verifyLogin") == tags_of("/webauthn/totp/verify") == {"TOTP"}
    assert tags_of("/webauthn/finishRegistration") == tags_of("/webauthn/admin/beginRegistration") == {"Passkeys"}


def test_document_states_every_interface_version() -> None:
    interfaces = "registry 1.0, user flow 4.0.0, MFA 2.0, token issuing 1.1.0, client management 0.4.0"
    assert interfaces in document()["info"]["description"]


def test_registry_documents_limit_headers_on_counted_calls() -> None:
    limits = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
    for path, operations in document()["paths"].items():
        for operation in operations.values():
            for status, response in responses_of(operation).items():
                counted = path.startswith("/exsvc/") and status != "401"
                assert limits & set(response["headers"]) == (limits if counted else set()), (path, status)
    assert "429" in document()["paths"]["/exsvc/api/v1/services"]["get"]["responses"]


def test_401_and_403_document_the_challenge() -> None:
    for operations in document()["paths"].values():
        for operation in operations.values():
            stated = {
                status
                for status, response in responses_of(operation).items()
                if "WWW-Authenticate" in response["headers"]
            }
            assert stated == {"401", "403"} & set(operation["responses"])
