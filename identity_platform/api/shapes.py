"""Response fields by the serializer that documents them."""

from rest_framework.serializers import Serializer


def fields_of(shape: type[Serializer[object]], row: object, **stated: object) -> dict[str, object]:
    """Return the fields that `shape` declares: those in `stated`, else the row's attributes of the same names.

    The renderer formats the values. The serializer's own `data` would do that here, field by field, at many times the cost.
    """
    return {name: stated[name] if name in stated else getattr(row, name) for name in shape._declared_fields}
