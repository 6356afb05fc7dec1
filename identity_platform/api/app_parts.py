"""What the apps state about their paths and their part of the API document, in the attribute `api_part` of their AppConfig.

So the core knows no app. `api_part` is all of it together, collected once.
"""

import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, reduce
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from identity_platform.api.error_formats import COMMON, OAUTH, ErrorFormat
from identity_platform.api.tags import Tag

Prefixes = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class ApiPart:
    """The part of one app. Each field has keys of its own: no two apps state the same one."""

    # Forms of errors, by an expression that the whole path matches. All other paths have the common form.
    error_formats: Mapping[re.Pattern[str], ErrorFormat] = field(default_factory=dict)
    # Paths that accept any Host and are not redirected to HTTPS, for orchestrators, proxies and Prometheus.
    probes: frozenset[str] = frozenset()
    # Prefixes of paths of pages, which have scripts and styles, and of the pages of staff, which read more and send forms.
    pages: Prefixes = frozenset()
    staff_pages: Prefixes = frozenset()
    # The end of the names of its loggers, as in `identity.mail`.
    log_areas: frozenset[str] = frozenset()
    # The API document: tags, and the tag of the paths with a prefix, of which the longest counts.
    tags: Mapping[str, Tag] = field(default_factory=dict)
    tag_of_prefix: Mapping[str, str] = field(default_factory=dict)
    security_schemes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Bases that no body is equal to: by name, a body with these fields, and the fields.
    base_schemas: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    # Values by `field` or `Schema.field`, and by operation what a body has besides its required fields.
    example_values: Mapping[str, Any] = field(default_factory=dict)
    example_bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Descriptions of fields and parameters without a `help_text`.
    field_descriptions: Mapping[str, str] = field(default_factory=dict)
    # Names of responses by their codes, sorted, and of types by the path of one of their uses (`Schema.field`).
    response_names: Mapping[str, str] = field(default_factory=dict)
    type_names: Mapping[str, str] = field(default_factory=dict)


@cache
def api_part() -> ApiPart:
    """Return the parts of the core and of all apps together. Raises ImproperlyConfigured if two state the same key."""
    from identity_platform.api.core_part import CORE_PART

    return together([CORE_PART, *(each.api_part for each in apps.get_app_configs() if hasattr(each, "api_part"))])


def together(parts: Sequence[ApiPart]) -> ApiPart:
    """Return the parts as one. Raises ImproperlyConfigured if two state the same key."""
    return ApiPart(**{each.name: _union([getattr(part, each.name) for part in parts]) for each in fields(ApiPart)})


def error_format_of(path: str) -> ErrorFormat:
    """Return the form of the errors at a path."""
    formats = api_part().error_formats
    return next((format_ for pattern, format_ in formats.items() if pattern.fullmatch(path)), COMMON)


def is_oauth(path: str) -> bool:
    """Return whether errors at this path have the form of RFC 6749 section 5.2."""
    return error_format_of(path) is OAUTH


def _union(contributions: list[Any]) -> Any:
    keys = Counter(key for each in contributions for key in each)
    if repeated := [key for key, count in keys.items() if count > 1]:
        raise ImproperlyConfigured(f"Several apps state {repeated}.")
    return reduce(operator.or_, contributions)
