"""Signals by which a layer notifies the layers and apps above it, which it cannot import."""

from typing import Final

from django.dispatch import Signal

# An admin has activated or deactivated an end user. Sent with `user`, in the transaction that has locked the user.
end_user_activity_set: Final = Signal()

# An end user's sessions end, all but one. Sent with `user_id`, in the tenant, in the same transaction. The receiver deletes
# what would still open one from the session that stays.
other_sessions_ended: Final = Signal()

# A client was deactivated, is about to be activated again, or has got a security profile. Sent with `client_id`, in the tenant,
# after the sessions of its users have ended. The receiver deletes what would still open one.
client_sessions_ended: Final = Signal()

# A client is first-party no longer. Sent with `client_id`, in the tenant, in a transaction. The receiver ends the sessions that
# its users have not consented to.
client_needs_consent: Final = Signal()

# The tenant has lost its sign-in domain. Sent with `domain` in the tenant's transaction.
sign_in_domain_lost: Final = Signal()

# A mail was queued and its transaction is committed. Sent with `tenant_id`, None for the global database. The receiver sends
# it behind the response and raises nothing.
mail_queued: Final = Signal()
