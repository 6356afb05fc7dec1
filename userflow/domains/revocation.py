"""End what the next owner of a given-up domain would receive: tokens in links of mails, and cookies of browsers."""

from django.db.models import BinaryField, F, Func
from django.utils.timezone import now

from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.credentials.models import EmailProof
from userflow.credentials.tickets import OF_ADDRESS, REMEMBERED
from userflow.invitations.models import EndUserInvitation


def revoke_links() -> None:
    """End the links of mails to the tenant's end users, and the sign-ins under way. Call it in the tenant's transaction.

    The links may lead to a domain that the tenant gives up: its next owner could read their tokens from the address.
    Users ask for another mail. The code in a mail about an address still works, because it is typed by hand. Invitations can
    be sent again. Accepted race: a mail that is written at the same moment.
    """
    END_USERS.tickets._default_manager.filter(purpose__in=OF_ADDRESS).delete()
    EmailProof.objects.update(token_digest=_of_no_token("token_digest"))
    EndUserInvitation.close_all(now())


def revoke_browsers() -> None:
    """Sign the tenant's end users out of the hosted pages; their applications stay signed in. Call it as `revoke_links`.

    A cookie belongs to a domain by its name. When a tenant has a domain again, its last owner may have received old cookies.
    """
    sessions = EndUserSession._default_manager.exclude(browser_digest=None)
    sessions.update(browser_digest=_of_no_token("browser_digest"))
    END_USERS.tickets._default_manager.filter(purpose=REMEMBERED).delete()


def _of_no_token(column: str) -> Func:
    """Return a digest, different in each row, that no value is known for."""
    template = "sha256(%(expressions)s || uuid_send(gen_random_uuid()))"
    return Func(F(column), template=template, output_field=BinaryField())
