"""Flask-pyoidc."""

from application import CALLBACK, CLIENT_ID, CLIENT_SECRET, HOME, ISSUER, listen, new_application
from flask import jsonify, redirect, session
from flask_pyoidc import OIDCAuthentication
from flask_pyoidc.provider_configuration import ClientMetadata, ProviderConfiguration
from werkzeug.wrappers import Response

application = new_application()
application.config["OIDC_REDIRECT_URI"] = CALLBACK
client = ClientMetadata(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, post_logout_redirect_uris=[HOME])
provider = ProviderConfiguration(
    issuer=ISSUER,
    client_metadata=client,
    auth_request_params={"scope": ["openid", "email"]},
)
auth = OIDCAuthentication({"identity": provider}, application)


@application.get("/")
def home() -> Response:
    return jsonify(session.get("userinfo", {}))


@application.get("/login")
@auth.oidc_auth("identity")
def login() -> Response:
    return redirect("/")


@application.get("/logout")
@auth.oidc_logout
def logout() -> Response:
    return redirect("/")


listen(application)
