"""Push devices and push authentication requests.

Push itself is not offered. The tables exist because the specification requires a hard delete to name and remove such records.
"""

import uuid
from typing import ClassVar

from django.db import models

from identity_platform.restoring import AfterRestore, Journaled, Revocation
from tenants.models import TenantModel
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import ClosedByRestore, Expiring


class PushDevice(TenantModel):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="push_devices")
    platform = models.CharField(max_length=16)
    address_sealed = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("push device"),))


class PushAuthenticationRequest(Expiring, ClosedByRestore, TenantModel):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="push_authentication_requests")
    device = models.ForeignKey(PushDevice, on_delete=models.CASCADE, related_name="requests")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
