"""Paths of the second factors, in the order of the specification."""

from django.conf import settings
from django.urls import path

from mfa.demo.views import page
from mfa.sms.views import SmsViewSet
from mfa.totp.views import AdminTotpViewSet, TotpViewSet
from mfa.views import AdminFactorResetViewSet, FactorListViewSet
from mfa.webauthn.views import (
    AdminPasskeyViewSet,
    EndUserPasskeyViewSet,
    PasskeySignUpViewSet,
    RelatedOriginsViewSet,
)

urlpatterns = [
    # TOTP
    path("webauthn/totp/beginSetup", TotpViewSet.as_view({"post": "begin"})),
    path("webauthn/totp/confirmSetup", TotpViewSet.as_view({"post": "confirm"})),
    path("webauthn/totp/verify", TotpViewSet.as_view({"post": "verify"})),
    path("webauthn/totp/verifyLogin", TotpViewSet.as_view({"post": "verify_login"})),
    path("webauthn/totp/disable", TotpViewSet.as_view({"post": "disable"})),
    path("webauthn/totp/regenerateBackupCodes", TotpViewSet.as_view({"post": "regenerate"})),
    path("webauthn/admin/totp/beginSetup", AdminTotpViewSet.as_view({"post": "begin"})),
    path("webauthn/admin/totp/confirmSetup", AdminTotpViewSet.as_view({"post": "confirm"})),
    path("webauthn/admin/totp/verifyLogin", AdminTotpViewSet.as_view({"post": "verify_login"})),
    path("webauthn/admin/totp/disable", AdminTotpViewSet.as_view({"post": "disable"})),
    path("webauthn/admin/totp/regenerateBackupCodes", AdminTotpViewSet.as_view({"post": "regenerate"})),
    # SMS
    path("webauthn/sms/beginSetup", SmsViewSet.as_view({"post": "begin"})),
    path("webauthn/sms/confirmSetup", SmsViewSet.as_view({"post": "confirm"})),
    path("webauthn/sms/requestCode", SmsViewSet.as_view({"post": "request_code"})),
    path("webauthn/sms/verify", SmsViewSet.as_view({"post": "verify"})),
    # WebAuthn
    path("webauthn/admin/beginRegistration", AdminPasskeyViewSet.as_view({"post": "begin_registration"})),
    path("webauthn/admin/finishRegistration", AdminPasskeyViewSet.as_view({"post": "finish_registration"})),
    path("webauthn/admin/beginAuthentication", AdminPasskeyViewSet.as_view({"post": "begin_authentication"})),
    path("webauthn/admin/finishAuthentication", AdminPasskeyViewSet.as_view({"post": "finish_authentication"})),
    path("webauthn/enduser/beginRegistration", EndUserPasskeyViewSet.as_view({"post": "begin_registration"})),
    path("webauthn/enduser/finishRegistration", EndUserPasskeyViewSet.as_view({"post": "finish_registration"})),
    path("webauthn/enduser/beginAuthentication", EndUserPasskeyViewSet.as_view({"post": "begin_authentication"})),
    path("webauthn/enduser/finishAuthentication", EndUserPasskeyViewSet.as_view({"post": "finish_authentication"})),
    path("webauthn/finishRegistration", PasskeySignUpViewSet.as_view({"post": "finish_registration"})),
    path(".well-known/webauthn", RelatedOriginsViewSet.as_view({"get": "retrieve"})),
    # Factors of every kind
    path("webauthn/factors", FactorListViewSet.as_view({"get": "list"})),
    path("webauthn/factors/reset", FactorListViewSet.as_view({"post": "reset"})),
    path("webauthn/admin/factors/reset", AdminFactorResetViewSet.as_view({"post": "reset"})),
    path("webauthn/factors/<str:factor_id>", FactorListViewSet.as_view({"delete": "destroy"})),
]

if settings.EMBEDDED:
    # Registers users and shows secrets for trying out: nothing for a platform that others rely on.
    urlpatterns.append(path("demo/", page))
