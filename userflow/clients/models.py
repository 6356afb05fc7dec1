"""Changes of clients that the sessions of their users have still to follow."""

import uuid

from django.db import models

from tenants.models import Tenant


class PendingClientChange(models.Model):
    """A change of a client, stored with it, until the tenant's own database has followed (`clients.session_changes`)."""

    # No foreign key: the client may be deleted.
    client_id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="pending_client_changes")
    # The sessions of the client's users end; else they only follow its logout address.
    ends_sessions = models.BooleanField(default=False)
    # The client is first-party no longer: sessions that its users have not consented to end. Null is no.
    ends_unconsented = models.BooleanField(null=True)
    # The client may not sign users in by JSON any more: the sessions that it has opened so end. Null is no.
    ends_direct = models.BooleanField(null=True)
    # The client has a security profile from now on: all that it got before ends. Null is no.
    ends_before_profile = models.BooleanField(null=True)
    backchannel_logout_uri = models.CharField(max_length=2048, blank=True, default="")
    signed_response_alg = models.CharField(max_length=16, blank=True, default="")
    noted_at = models.DateTimeField(auto_now=True)
