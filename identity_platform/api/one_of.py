"""Responses of one of several shapes, which a field with a fixed value tells apart."""

from typing import Any, ClassVar

from rest_framework import serializers

from identity_platform.api.fields import StrictField
from identity_platform.api.views import Shape


class OneOf(serializers.Serializer[object]):
    """A response of one of the shapes. The API document states them; the action builds the response itself."""

    choices: ClassVar[tuple[Shape, ...]]


class Fixed(StrictField, serializers.BooleanField):
    """A field of a response whose value tells its shape from the others.

    A discriminator of OpenAPI needs strings, and this value is a boolean: generators tell shapes apart by `const`.
    """

    def __init__(self, value: bool, **options: Any) -> None:
        self.value = value
        super().__init__(**options)

    def openapi(self) -> dict[str, object]:
        return {"const": self.value}
