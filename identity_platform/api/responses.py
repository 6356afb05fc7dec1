"""Responses that operations of several apps have in common. They have no docstrings, as the API document would show them."""

from rest_framework import serializers

NO_STORE = {"Cache-Control": "no-store"}


class MessageOut(serializers.Serializer[object]):
    message = serializers.CharField()


class DeletedRecordOut(MessageOut):
    id = serializers.UUIDField()
