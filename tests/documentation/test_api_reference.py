"""The pages of the API reference, from a document that uses references wherever OpenAPI 3.1 allows them."""

from typing import Any

from docs.builder.api_reference import ApiReference

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "security": [{"bearer": []}],
    "tags": [{"name": "Sign-in", "description": "The first step."}, {"name": "Unused"}],
    "paths": {
        "/login": {
            "parameters": [{"$ref": "#/components/parameters/Language"}],
            "post": {
                "operationId": "login",
                "tags": ["Sign-in"],
                "summary": "Sign a user in.",
                "description": "Returns tokens, or a ticket.",
                "security": [],
                "requestBody": {"$ref": "#/components/requestBodies/Login"},
                "responses": {
                    "200": {
                        "description": "Signed in.",
                        "headers": {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}},
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/LoginResult"}}},
                    },
                    "401": {"$ref": "#/components/responses/Unauthorized", "description": "The password is wrong."},
                },
            },
        },
        "/me": {
            "get": {
                "tags": ["Profile"],
                "security": [{"bearer": []}, {"oauth": ["profile:read"]}],
                "responses": {"204": {"description": "No content."}},
            }
        },
    },
    "components": {
        "parameters": {"Language": {"name": "lang", "in": "query", "schema": {"enum": ["en", "de"], "default": "en"}}},
        "headers": {"RequestId": {"schema": {"type": "string"}}},
        "requestBodies": {
            "Login": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/Login"},
                        "examples": {"password": {"$ref": "#/components/examples/Password"}},
                    }
                },
            }
        },
        "examples": {"Password": {"summary": "A password", "value": {"email": "ann@example.com"}}},
        "responses": {
            "Unauthorized": {
                "description": "No.",
                "headers": {"X-Request-ID": {}, "WWW-Authenticate": {}},
                "content": {
                    "application/json": {
                        "schema": {
                            "allOf": [
                                {"$ref": "#/components/schemas/Error"},
                                {"properties": {"code": {"enum": ["credentials_invalid"]}}},
                            ]
                        }
                    }
                },
            }
        },
        "schemas": {
            "Login": {
                "type": "object",
                "required": ["email"],
                "properties": {
                    "email": {"type": "string", "format": "email", "maxLength": 254, "description": "One | address."},
                    "codes": {"type": ["array", "null"], "items": {"type": "string"}},
                    "kind": {"$ref": "#/components/schemas/Kind", "description": "Which kind."},
                },
            },
            "Kind": {"type": "string", "enum": ["admin", "user"]},
            "Tokens": {"type": "object", "properties": {"access_token": {"type": "string"}}},
            "Ticket": {"type": "object", "properties": {"mfa_token": {"type": "string"}}},
            "LoginResult": {
                "oneOf": [{"$ref": "#/components/schemas/Tokens"}, {"$ref": "#/components/schemas/Ticket"}]
            },
            "Error": {"type": "object", "properties": {"code": {"enum": ["credentials_invalid", "not_found"]}}},
        },
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}, "oauth": {"type": "oauth2"}},
    },
}


def test_every_used_tag_has_a_page() -> None:
    assert list(ApiReference(DOCUMENT).pages()) == ["sign-in.md", "profile.md", "schemas.md"]


def test_page_shows_operation_with_its_references_followed() -> None:
    page = ApiReference(DOCUMENT).pages()["sign-in.md"]
    for shown in [
        "| [Sign a user in](#login) | `POST /login` |",
        "(login)=\n\n## Sign a user in",
        "Returns tokens, or a ticket.",
        "Authentication: none.",
        "| `lang` | query | any | One of `en`, `de`. Default: `en`. |",
        "`application/json`: [Login](schemas.md#login)",
        "| `email` | string (email) | **Required.** One \\| address. At most 254 characters. |",
        "| `codes` | array of string or null |",
        "| `kind` | [Kind](schemas.md#kind) | Which kind. |",
        'Example (A password):\n\n```json\n{\n  "email": "ann@example.com"\n}\n```',
        "| `401` | The password is wrong. Headers: `WWW-Authenticate`. Codes: `credentials_invalid`. | [Error](",
        "Every response has `X-Request-ID`.",
        "One of: [Tokens](schemas.md#tokens), [Ticket](schemas.md#ticket).",
    ]:
        assert shown in page


def test_page_names_alternative_authentications() -> None:
    page = ApiReference(DOCUMENT).pages()["profile.md"]
    assert "Authentication: bearer token, or oauth (`profile:read`)." in page
    # Without a summary the path is the title.
    assert "## GET /me" in page


def test_schemas_page_has_values_and_fields() -> None:
    page = ApiReference(DOCUMENT).pages()["schemas.md"]
    assert "## Kind\n\nstring: One of `admin`, `user`." in page
    assert "| `code` | any | One of `credentials_invalid`, `not_found`. |" in page
