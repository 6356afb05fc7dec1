"""The hosted pages of a tenant, below its issuer."""

from django.urls import path

from openid.account import pages as account
from openid.account.data import DataPage
from openid.device.pages import DevicePage
from openid.pages import consent, enrollment, logo, registration, second_step, sign_in, step_up

urlpatterns = [
    path("logo", logo.LogoFile.as_view()),
    path("signin", sign_in.SignInPage.as_view()),
    path("signin/password", sign_in.PasswordPage.as_view()),
    path("signin/verify", second_step.SecondStepPage.as_view()),
    path("passkey-options", sign_in.PasskeyOptions.as_view()),
    path("step-up", step_up.StepUpPage.as_view()),
    path("enroll", enrollment.ChooseFactorPage.as_view()),
    path("enroll/app", enrollment.NewAppPage.as_view()),
    path("enroll/passkey", enrollment.NewPasskeyPage.as_view()),
    path("enroll/passkey-options", enrollment.CreationOptions.as_view()),
    path("enroll/phone", enrollment.NewPhonePage.as_view()),
    path("continue", consent.ContinuePage.as_view()),
    path("select-account", consent.SelectAccountPage.as_view()),
    path("consent", consent.ConsentPage.as_view()),
    path("device", DevicePage.as_view()),
    path("register", registration.RegisterPage.as_view()),
    path("forgot", registration.ForgotPage.as_view()),
    path("reset", registration.ResetPage.as_view()),
    path("verify-email", registration.VerifyEmailPage.as_view()),
    path("invitation", registration.InvitationPage.as_view()),
    path("account", account.ProfilePage.as_view()),
    path("account/email", account.EmailPage.as_view()),
    path("account/security", account.SecurityPage.as_view()),
    path(".well-known/change-password", account.ChangePasswordAddress.as_view()),
    path("account/password", account.PasswordChangePage.as_view()),
    path("account/remove/<uuid:factor_id>", account.RemoveFactorPage.as_view()),
    path("account/rename/<uuid:factor_id>", account.RenamePasskeyPage.as_view()),
    path("account/backup-codes", account.BackupCodesPage.as_view()),
    path("account/devices", account.DevicesPage.as_view()),
    path("account/applications", account.ApplicationsPage.as_view()),
    path("account/data", DataPage.as_view()),
    path("account/delete", account.DeletePage.as_view()),
    path("signout", account.SignOutPage.as_view()),
]
