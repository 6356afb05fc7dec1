"""Signals by which changes of tenants reach the apps above, which this app cannot import.

Send them with `send`, not `send_robust`: an error of a receiver rolls the change back.
"""

from typing import Final

from django.dispatch import Signal

# A tenant is about to become active. Sent with `tenant`, in the transaction that activates it.
tenant_created: Final = Signal()

# A suspended tenant is about to be resumed. Sent with `tenant_id`, before its state changes.
tenant_resuming: Final = Signal()

# The rows of a tenant in the global database are being deleted. Sent with `tenant_id`, in the transaction that deletes them.
tenant_forgotten: Final = Signal()

# The database of a tenant was restored from a backup. Sent with `tenant_id`, after the restored database is in use: a receiver
# raises nothing.
tenant_restored: Final = Signal()

# The settings of a tenant are about to change. Sent with `tenant_id`, `before` and `after`, in the transaction that stores
# them. A receiver raises an ApiError to reject the change.
tenant_settings_changing: Final = Signal()

# An admin is about to change the sign-in domain of a tenant. Sent with `tenant_id`, its `tenant_settings`, the domain (or None)
# `before` and `after`, and `disable_passkeys`, in the transaction that changes it. Unless `disable_passkeys`, a receiver can
# raise an ApiError to reject the change. Not sent for a domain that is deleted or withdrawn, which is gone in any case.
sign_in_domain_changing: Final = Signal()

# The database of a tenant was upgraded to this code's schema. Sent with `tenant_id`, once the tenant can be used again: a
# receiver raises nothing.
tenant_migrated: Final = Signal()

# Transactions of this thread have noted rows for the global database in a tenant, which has been left. Sent with `tenant_id`. A
# receiver raises nothing.
rows_noted: Final = Signal()

# A request is about to read the copies in a tenant's database, which still have rights that were taken away while it was away.
# Sent with `tenant_id`. A receiver writes the copies, or raises an error: then the request is not served.
copies_needed: Final = Signal()
