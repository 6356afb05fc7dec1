"""Paths of the second factors, in the order of the specification."""

from django.conf import settings
from django.urls import include, path

from mfa.closing.views import AccountClosingViewSet
from mfa.demo.views import page
from mfa.sms.views import SmsViewSet
from mfa.stepup.views import StepUpViewSet
from mfa.totp.views import AdminTotpViewSet, TotpViewSet
from mfa.views import AdminFactorRecoveryViewSet, FactorListViewSet, FactorRecoveryViewSet
from mfa.webauthn.views import AdminPasskeyViewSet, EndUserPasskeyViewSet, PasskeySignUpViewSet, RelatedOriginsViewSet

_webauthn = [
    # TOTP
    path("totp/beginSetup", TotpViewSet.as_view({"post": "begin"})),
    path("totp/confirmSetup", TotpViewSet.as_view({"post": "confirm"})),
    path("totp/verify", TotpViewSet.as_view({"post": "verify"})),
    path("totp/verifyLogin", TotpViewSet.as_view({"post": "verify_login"})),
    path("totp/disable", TotpViewSet.as_view({"post": "disable"})),
    path("totp/regenerateBackupCodes", TotpViewSet.as_view({"post": "regenerate"})),
    path("admin/totp/beginSetup", AdminTotpViewSet.as_view({"post": "begin"})),
    path("admin/totp/confirmSetup", AdminTotpViewSet.as_view({"post": "confirm"})),
    path("admin/totp/verifyLogin", AdminTotpViewSet.as_view({"post": "verify_login"})),
    path("admin/totp/disable", AdminTotpViewSet.as_view({"post": "disable"})),
    path("admin/totp/regenerateBackupCodes", AdminTotpViewSet.as_view({"post": "regenerate"})),
    # SMS
    path("sms/beginSetup", SmsViewSet.as_view({"post": "begin"})),
    path("sms/confirmSetup", SmsViewSet.as_view({"post": "confirm"})),
    path("sms/requestCode", SmsViewSet.as_view({"post": "request_code"})),
    path("sms/verify", SmsViewSet.as_view({"post": "verify"})),
    # WebAuthn
    path("admin/beginRegistration", AdminPasskeyViewSet.as_view({"post": "begin_registration"})),
    path("admin/finishRegistration", AdminPasskeyViewSet.as_view({"post": "finish_registration"})),
    path("admin/beginAuthentication", AdminPasskeyViewSet.as_view({"post": "begin_authentication"})),
    path("admin/finishAuthentication", AdminPasskeyViewSet.as_view({"post": "finish_authentication"})),
    path("enduser/beginRegistration", EndUserPasskeyViewSet.as_view({"post": "begin_registration"})),
    path("enduser/finishRegistration", EndUserPasskeyViewSet.as_view({"post": "finish_registration"})),
    path("enduser/beginAuthentication", EndUserPasskeyViewSet.as_view({"post": "begin_authentication"})),
    path("enduser/finishAuthentication", EndUserPasskeyViewSet.as_view({"post": "finish_authentication"})),
    path("finishRegistration", PasskeySignUpViewSet.as_view({"post": "finish_registration"})),
    # Factors of every kind
    path("factors", FactorListViewSet.as_view({"get": "list"})),
    path("factors/reset", FactorRecoveryViewSet.as_view({"post": "reset"})),
    path("admin/factors/reset", AdminFactorRecoveryViewSet.as_view({"post": "reset"})),
    path("enrollment-passes", FactorRecoveryViewSet.as_view({"post": "create"})),
    path("admin/enrollment-passes", AdminFactorRecoveryViewSet.as_view({"post": "create"})),
    path("factors/<str:factor_id>", FactorListViewSet.as_view({"delete": "destroy", "patch": "rename"})),
]
# The prefix keeps the resolver from trying these paths for every other request.
urlpatterns = [
    path("webauthn/", include(_webauthn)),
    path("authmgr/step-up", StepUpViewSet.as_view({"post": "create"})),
    path("authmgr/step-up/options", StepUpViewSet.as_view({"post": "options_for_passkey"})),
    path("authmgr/profile/delete", AccountClosingViewSet.as_view({"post": "create"})),
    path(".well-known/webauthn", RelatedOriginsViewSet.as_view({"get": "retrieve"})),
]

if settings.EMBEDDED:
    # The demo registers users and shows secrets: for development only.
    urlpatterns.append(path("demo/", page))
