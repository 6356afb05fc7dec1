"""flask-oidc: sign-in, and an API that asks the provider about access tokens."""

from application import CLIENT_ID, CLIENT_SECRET, ISSUER, listen, new_application
from flask import jsonify, session
from flask_oidc import OpenIDConnect
from werkzeug.wrappers import Response

application = new_application()
application.config["OIDC_CLIENT_SECRETS"] = {
    "web": {"issuer": ISSUER, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
}
oidc = OpenIDConnect(application)


@application.get("/")
def home() -> Response:
    return jsonify(session.get("oidc_auth_profile", {}))


listen(application)
