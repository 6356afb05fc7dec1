"""Imports the rooms' models so that Django finds them."""

# ruff: noqa: F401  # Django reads the models from here

from userflow.accounts import models as accounts
from userflow.accounts import session_models
from userflow.branding import models as branding
from userflow.clients import models as clients
from userflow.credentials import models as credentials
from userflow.directory import models as directory
from userflow.domains import models as domains
from userflow.events import models as events
from userflow.invitations import models as invitations
from userflow.mail import models as mail
from userflow.sessions import models as sessions
from userflow.transfer import models as transfer
from userflow.user_index import models as user_index
