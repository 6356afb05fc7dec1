"""Parts of the API document: the operations of one group of tags, and the components that they use."""

from typing import Any

from identity_platform.api.component_names import objects_in

Document = dict[str, Any]


def part_of(document: Document, group: str) -> Document:
    """Return the part of the document for one of its `x-tagGroups`."""
    groups = [each for each in document["x-tagGroups"] if each["name"] == group]
    tags = [tag for tag in document["tags"] if tag["name"] in groups[0]["tags"]]
    names = {tag["name"] for tag in tags}
    paths = {
        path: chosen
        for path, operations in document["paths"].items()
        if (chosen := {method: each for method, each in operations.items() if names.issuperset(each["tags"])})
    }
    info = {**document["info"], "title": f"{document['info']['title']}: {group.lower()}"}
    components = used_components(document["components"], paths)
    return {**document, "info": info, "tags": tags, "x-tagGroups": groups, "paths": paths, "components": components}


def used_components(components: Document, paths: Document) -> Document:
    """Return the security schemes of the operations, and the components that the paths refer to, directly or through others."""
    used = {
        ("securitySchemes", name)
        for operations in paths.values()
        for operation in operations.values()
        for requirement in operation["security"]
        for name in requirement
    }
    unread = _references(paths)
    while unread:
        used |= unread
        unread = {target for kind, name in unread for target in _references(components[kind][name])} - used
    return {
        kind: {name: content for name, content in components_of_kind.items() if (kind, name) in used}
        for kind, components_of_kind in components.items()
    }


def _references(content: Any) -> set[tuple[str, str]]:
    """Return kind and name of each component that a part of the document refers to."""
    targets = [target for part in objects_in(content) if isinstance(target := part.get("$ref"), str)]
    return {(kind, name) for _, kind, name in (target.rsplit("/", 2) for target in targets)}
