"""Render an OpenAPI 3.1 document as Markdown pages: one per tag, and one with all schemas."""

import json
import re
from collections.abc import Iterator
from typing import Any

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
SCHEMAS = "schemas.md"
# Bounds of a value and how a page states them.
BOUNDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "from {}",
    "maximum": "to {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def cell(text: str) -> str:
    """Return text for a table: on one line, without a pipe that would end the cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([cell(column) for column in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(value: object) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)}`"


class ApiReference:
    """The pages of one document. References are followed within the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.schemas: dict[str, Any] = document.get("components", {}).get("schemas", {})

    def pages(self) -> dict[str, str]:
        """Return the Markdown of every page by file name, in the order of the tags."""
        described = {tag["name"]: tag.get("description", "") for tag in self.document.get("tags", [])}
        by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {name: [] for name in described}
        for path, method, operation in self._operations():
            for tag in operation.get("tags") or ["Other"]:
                by_tag.setdefault(tag, []).append((path, method, operation))
        pages = {
            f"{slug(tag)}.md": self._tag_page(tag, described.get(tag, ""), operations)
            for tag, operations in by_tag.items()
            if operations
        }
        return pages | {SCHEMAS: self._schemas_page()}

    def resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return what a `$ref` leads to; fields beside it win, as OpenAPI 3.1 allows for descriptions."""
        beside: dict[str, Any] = {}
        while "$ref" in node:
            beside = {key: value for key, value in node.items() if key != "$ref"} | beside
            target: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            node = target
        return node | beside

    def _operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, item in self.document.get("paths", {}).items():
            shared = item.get("parameters", [])
            for method in METHODS:
                if method in item:
                    operation = self.resolve(item[method])
                    yield path, method, operation | {"parameters": [*shared, *operation.get("parameters", [])]}

    # --- pages ---------------------------------------------------------------------------------------------------------

    def _tag_page(self, tag: str, description: str, operations: list[tuple[str, str, dict[str, Any]]]) -> str:
        titles = [self._title(path, method, operation) for path, method, operation in operations]
        overview = [
            [
                f"[{title}](#{operation['operationId']})" if "operationId" in operation else title,
                f"`{method.upper()} {path}`",
            ]
            for title, (path, method, operation) in zip(titles, operations, strict=True)
        ]
        parts = [f"# {tag}", description, table(["operation", "request"], overview)]
        for title, (path, method, operation) in zip(titles, operations, strict=True):
            parts += self._operation(title, path, method, operation)
        return "\n\n".join(part.strip() for part in parts if part) + "\n"

    @staticmethod
    def _title(path: str, method: str, operation: dict[str, Any]) -> str:
        # A heading is the first sentence: longer ones fill the contents beside the page.
        summary = operation.get("summary", "").split(". ")[0].rstrip(".")
        return summary or f"{method.upper()} {path}"

    def _operation(self, title: str, path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
        if "operationId" in operation:
            yield f"({operation['operationId']})="
        yield f"## {title}"
        yield f"```text\n{method.upper()} {path}\n```"
        if operation.get("deprecated"):
            yield "**Deprecated.**"
        if ". " in operation.get("summary", ""):
            yield operation["summary"]
        yield operation.get("description", "")
        yield f"Authentication: {self._security(operation)}"
        parameters = [self.resolve(parameter) for parameter in operation["parameters"]]
        if parameters:
            rows = [
                [
                    code(one["name"]),
                    one["in"],
                    self._type(one.get("schema", {})),
                    f"{'**Required.** ' if one.get('required') else ''}{self._description(one, one.get('schema', {}))}",
                ]
                for one in parameters
            ]
            yield "**Parameters**"
            yield table(["name", "in", "type", "meaning"], rows)
        if "requestBody" in operation:
            body = self.resolve(operation["requestBody"])
            yield "**Request body**" + ("" if body.get("required") else " (optional)")
            yield from self._contents(body)
        yield "**Responses**"
        responses = {status: self.resolve(response) for status, response in operation.get("responses", {}).items()}
        headers = [set(response.get("headers", {})) for response in responses.values()]
        common = set.intersection(*headers) if headers else set()
        yield table(
            ["status", "meaning", "body"],
            [[f"`{status}`", self._meaning(one, common), self._bodies(one)] for status, one in responses.items()],
        )
        if common:
            yield f"Every response has {', '.join(code(name) for name in sorted(common))}."
        for status, response in responses.items():
            if status.startswith("2") and response.get("content"):
                yield f"Body of `{status}`:"
                yield from self._contents(response)

    def _schemas_page(self) -> str:
        parts = ["# Schemas", "The bodies of requests and responses, by name."]
        for name, schema in self.schemas.items():
            parts += [f"## {name}", schema.get("description", ""), *self._shape(schema)]
        return "\n\n".join(part.strip() for part in parts if part) + "\n"

    # --- parts of an operation -----------------------------------------------------------------------------------------

    def _security(self, operation: dict[str, Any]) -> str:
        schemes = self.document.get("components", {}).get("securitySchemes", {})
        alternatives = operation.get("security", self.document.get("security", []))
        if not [one for one in alternatives if one]:
            return "none."
        named = [
            " and ".join(self._scheme(name, schemes.get(name, {}), scopes) for name, scopes in one.items())
            for one in alternatives
        ]
        return f"{', or '.join(name or 'none' for name in named)}."

    @staticmethod
    def _scheme(name: str, scheme: dict[str, Any], scopes: list[str]) -> str:
        kind = {"bearer": "bearer token", "basic": "HTTP Basic"}.get(scheme.get("scheme", ""), name)
        return f"{kind} ({', '.join(f'`{scope}`' for scope in scopes)})" if scopes else kind

    def _meaning(self, response: dict[str, Any], common: set[str]) -> str:
        codes: set[str] = set().union(
            *(self._codes(one.get("schema", {})) for one in response.get("content", {}).values())
        )
        lists = {"Headers": set(response.get("headers", {})) - common, "Codes": codes}
        sentences = [f"{response['description'].rstrip('.')}."] if response.get("description") else []
        sentences += [
            f"{word}: {', '.join(code(name) for name in sorted(names))}." for word, names in lists.items() if names
        ]
        return " ".join(sentences)

    def _codes(self, schema: dict[str, Any]) -> set[str]:
        """Return the values of the field `code` of an error, which the registry has inside of `error`."""
        schema = self.resolve(schema)
        properties = schema.get("properties", {})
        field = self.resolve(properties.get("code", {}))
        codes = {*field.get("enum", []), *([field["const"]] if "const" in field else [])}
        for keyword in ("oneOf", "anyOf"):
            for one in schema.get(keyword, []):
                codes |= self._codes(one)
        for one in schema.get("allOf", []):
            narrower = self._codes(one)
            codes = codes & narrower or codes | narrower
        return codes or (self._codes(properties["error"]) if "error" in properties else set())

    def _bodies(self, response: dict[str, Any]) -> str:
        return (
            ", ".join(self._type(media.get("schema", {})) for media in response.get("content", {}).values()) or "none"
        )

    def _contents(self, holder: dict[str, Any]) -> Iterator[str]:
        """Yield a body's media types, fields and examples. Media types with the same schema are shown once."""
        by_schema: dict[str, list[str]] = {}
        for media_type, media in holder.get("content", {}).items():
            by_schema.setdefault(json.dumps(media.get("schema", {})), []).append(media_type)
        for schema, media_types in by_schema.items():
            yield f"{', '.join(f'`{name}`' for name in media_types)}: {self._type(json.loads(schema))}"
            yield from self._shape(json.loads(schema))
        for media in holder.get("content", {}).values():
            yield from self._examples(media)

    def _examples(self, media: dict[str, Any]) -> Iterator[str]:
        named = {name: self.resolve(example) for name, example in media.get("examples", {}).items()}
        if "example" in media:
            named = {"": {"value": media["example"]}}
        elif not named and "example" in (schema := self.resolve(media.get("schema", {}))):
            named = {"": {"value": schema["example"]}}
        for name, example in named.items():
            if "value" in example:
                title = example.get("summary") or name
                yield f"Example ({title}):" if title else "Example:"
                yield f"```json\n{json.dumps(example['value'], indent=2, ensure_ascii=False)}\n```"

    # --- schemas -------------------------------------------------------------------------------------------------------

    def _shape(self, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the alternatives of a schema and the table of its fields."""
        schema = self.resolve(schema)
        for keyword, text in (("oneOf", "One of"), ("anyOf", "Any of"), ("allOf", "All of")):
            if alternatives := schema.get(keyword):
                yield f"{text}: {', '.join(dict.fromkeys(self._type(one) for one in alternatives))}."
                for one in alternatives:
                    if "$ref" not in one and "properties" in one:
                        yield from self._shape(one)
        properties = schema.get("properties", {})
        if properties:
            required = schema.get("required", [])
            rows = [
                [
                    code(name),
                    self._type(one),
                    f"{'**Required.** ' if name in required else ''}{self._description(one, one)}",
                ]
                for name, one in properties.items()
            ]
            yield table(["field", "type", "meaning"], rows)
        elif not any(keyword in schema for keyword in ("oneOf", "anyOf", "allOf")):
            if schema.get("type") == "array":
                yield from self._shape(schema.get("items", {}))
            elif bounds := self._bounds(schema):
                yield f"{self._type(schema)}: {bounds}"

    def _type(self, schema: dict[str, Any]) -> str:
        """Return the type of a value, as a link if it has a name."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f"[{name}]({SCHEMAS}#{slug(name)})" if name in self.schemas else name
        for keyword, word in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
            if keyword in schema:
                # What only narrows a named schema needs no name.
                named = [one for one in schema[keyword] if "$ref" in one] if keyword == "allOf" else []
                return word.join(dict.fromkeys(self._type(one) for one in named or schema[keyword]))
        kind = schema.get("type", "object" if "properties" in schema else "any")
        kinds = [kind] if isinstance(kind, str) else kind
        return " or ".join(self._plain_type(one, schema) for one in kinds)

    def _plain_type(self, kind: str, schema: dict[str, Any]) -> str:
        if kind == "array":
            return f"array of {self._type(schema.get('items', {}))}"
        values = schema.get("additionalProperties")
        if kind == "object" and isinstance(values, dict) and values:
            return f"object of {self._type(values)}"
        return f"{kind} ({schema['format']})" if kind == "string" and "format" in schema else kind

    def _description(self, described: dict[str, Any], schema: dict[str, Any]) -> str:
        text = described.get("description") or self.resolve(schema).get("description", "")
        example = described.get("example", schema.get("example"))
        return f"{text} {self._bounds(schema)} {'' if example is None else f'Example: {code(example)}.'}"

    def _bounds(self, schema: dict[str, Any]) -> str:
        # A long list of values is on the page of the schema, if it has a name.
        schema = schema if "$ref" in schema else self.resolve(schema)
        schema = schema.get("items", schema) if "enum" in schema.get("items", {}) else schema
        parts = [text.format(schema[key]) for key, text in BOUNDS.items() if key in schema and schema[key] != 1]
        if schema.get("minLength") == 1 or schema.get("minItems") == 1:
            parts.insert(0, "not empty")
        sentences = [", ".join(parts).capitalize() + "."] if parts else []
        if "enum" in schema:
            sentences.append(f"One of {', '.join(code(value) for value in schema['enum'])}.")
        if "const" in schema:
            sentences.append(f"Always {code(schema['const'])}.")
        if "default" in schema:
            sentences.append(f"Default: {code(schema['default'])}.")
        return " ".join(sentences)
