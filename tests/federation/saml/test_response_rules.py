"""The rules of the Web Browser SSO profile, each broken by an identity provider that signs correctly."""

from datetime import timedelta
from typing import Any

import pytest

from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.responses import read_response, unverified_request_id
from tests.federation.saml.identity_provider import (
    ACS,
    BEARER,
    IDP,
    NOW,
    REQUEST,
    SP,
    SUBJECT,
    SUCCESS,
    Claims,
    Style,
    at,
    connection,
    encrypted_text,
    read,
    respond,
    response_text,
    rsa_signer,
    sign,
    signed_assertion,
)
from tests.federation.saml.rejected import problem, reason, rejection

OTHER = "https://other.example/metadata"


def why(**claims: Any) -> Reason:
    """Return the reason for which a response with these claims, signed as a whole, is rejected."""
    return reason(respond(Claims(**claims), signed="both"))


# --- status --------------------------------------------------------------------------------------------------------------


def test_status_of_failure_is_rejected() -> None:
    failed = (
        '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Responder">'
        '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:AuthnFailed"/></samlp:StatusCode>'
    )
    document = respond(Claims(status=failed), assertion="", signed="none")
    codes = "urn:oasis:names:tc:SAML:2.0:status:Responder urn:oasis:names:tc:SAML:2.0:status:AuthnFailed"
    assert problem(document) == (Reason.STATUS_NOT_SUCCESS, codes)


def test_assertion_with_status_of_failure_is_rejected() -> None:
    assert (
        why(status='<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Requester"/>')
        is Reason.STATUS_NOT_SUCCESS
    )


def test_success_inside_failure_is_rejected() -> None:
    status = f'<samlp:StatusCode Value="urn:x"><samlp:StatusCode Value="{SUCCESS}"/></samlp:StatusCode>'
    assert why(status=status) is Reason.STATUS_NOT_SUCCESS


def test_missing_status_is_rejected() -> None:
    assert why(status="") is Reason.STATUS_NOT_SUCCESS


# --- who says it to whom -------------------------------------------------------------------------------------------------


def test_other_issuer_of_assertion_is_rejected() -> None:
    error = rejection(respond(Claims(issuer=OTHER, response_issuer=IDP), signed="both"))
    assert (error.reason, error.expected, error.received) == (Reason.ISSUER_MISMATCH, IDP, OTHER)


def test_other_issuer_of_response_is_rejected() -> None:
    assert why(response_issuer=OTHER) is Reason.ISSUER_MISMATCH


@pytest.mark.parametrize("issuer", ["", f"{IDP}/", IDP.upper(), f"{IDP} {OTHER}", f"<saml:x/>{IDP}"])
def test_issuer_is_compared_exactly(issuer: str) -> None:
    assert why(issuer=issuer) is Reason.ISSUER_MISMATCH


def test_issuer_of_another_format_is_rejected() -> None:
    document = respond(signed="none").replace(b"<saml:Issuer>", b'<saml:Issuer Format="urn:x">')
    text = document.decode()
    assert reason(respond(Claims(), assertion=_assertion_of(text), signed="response")) is Reason.ISSUER_MISMATCH


def _assertion_of(text: str) -> str:
    return text[text.index("<saml:Assertion") : text.index("</samlp:Response>")]


def test_other_destination_is_rejected() -> None:
    error = rejection(respond(Claims(destination="https://other.example/acs"), signed="both"))
    assert (error.reason, error.expected) == (Reason.DESTINATION_MISMATCH, ACS)
    assert error.received == "https://other.example/acs"


def test_missing_destination_of_signed_response_is_rejected() -> None:
    assert why(destination=None) is Reason.DESTINATION_MISMATCH
    assert why(destination="") is Reason.DESTINATION_MISMATCH


def test_missing_destination_of_unsigned_response_is_accepted() -> None:
    """Only a signed message must have one (Bindings section 3.5.5.2)."""
    assert read(respond(Claims(destination=None))).subject == SUBJECT


@pytest.mark.parametrize("destination", ["", "https://other.example/acs"])
def test_other_destination_of_unsigned_response_is_rejected(destination: str) -> None:
    assert reason(respond(Claims(destination=destination))) is Reason.DESTINATION_MISMATCH


def without_issuer(assertion: str | None = None, *, signed: str = "none") -> bytes:
    """A response whose Response has no Issuer."""
    text = response_text(Claims(), assertion or signed_assertion().decode())
    text = text.replace(f"<saml:Issuer>{IDP}</saml:Issuer>@response@", "@response@", 1)
    if signed == "response":
        text = sign(text, "response", "_r1", rsa_signer(), Style())
    return text.replace("@response@", "").encode()


def test_missing_issuer_of_unsigned_response_is_accepted() -> None:
    assert read(without_issuer()).subject == SUBJECT


def test_missing_issuer_of_signed_response_is_rejected() -> None:
    assert reason(without_issuer(signed="response")) is Reason.ISSUER_MISMATCH


def test_missing_issuer_around_encryption_is_rejected() -> None:
    assert reason(without_issuer(encrypted_text(signed_assertion()))) is Reason.ISSUER_MISMATCH


@pytest.mark.parametrize("issuer", ["", OTHER, f"{IDP}</saml:Issuer><saml:Issuer>{IDP}"])
def test_other_issuer_of_unsigned_response_is_rejected(issuer: str) -> None:
    assert reason(respond(Claims(response_issuer=issuer))) is Reason.ISSUER_MISMATCH


@pytest.mark.parametrize("recipient", ["", "https://other.example/acs", f"{ACS}/", f"{ACS}?x"])
def test_other_recipient_is_rejected(recipient: str) -> None:
    assert why(recipient=recipient) is Reason.RECIPIENT_MISMATCH


def test_response_for_another_connection_is_rejected() -> None:
    """Two connections with one identity provider differ in address and audience."""
    assert why(audiences=audience(f"{SP}-2")) is Reason.AUDIENCE_MISMATCH
    assert why(recipient=ACS.replace("/customer/", "/customer-2/")) is Reason.RECIPIENT_MISMATCH


# --- to which request ----------------------------------------------------------------------------------------------------


def test_other_request_is_rejected() -> None:
    error = rejection(respond(Claims(request_id="_other", confirmed_request_id="_other"), signed="both"))
    assert (error.reason, error.expected, error.received) == (Reason.REQUEST_MISMATCH, REQUEST, "_other")


def test_other_request_in_signed_assertion_is_rejected() -> None:
    """The Response is not signed, so that its InResponseTo can be replaced."""
    assert reason(respond(Claims(confirmed_request_id="_other"), signed="assertion")) is Reason.REQUEST_MISMATCH


def test_unsolicited_response_is_rejected() -> None:
    assert why(request_id=None, confirmed_request_id=None) is Reason.UNSOLICITED
    with pytest.raises(AssertionRejected) as caught:
        unverified_request_id(respond(Claims(request_id=None, confirmed_request_id=None)))
    assert caught.value.reason is Reason.UNSOLICITED


def test_unsolicited_assertion_in_a_solicited_response_is_rejected() -> None:
    assert reason(respond(Claims(confirmed_request_id=None), signed="assertion")) is Reason.REQUEST_MISMATCH


def test_unsolicited_response_does_not_match_an_empty_request() -> None:
    document = respond(Claims(request_id="", confirmed_request_id=""), signed="both")
    with pytest.raises(AssertionRejected) as caught:
        read_response(document, connection=connection(), request_id="", now=NOW)
    assert caught.value.reason is Reason.UNSOLICITED


def test_replayed_assertion_reports_the_same_id() -> None:
    """The caller stores the id until the assertion is over, so that the second use is noticed."""
    document = respond(Claims(assertion_id="_once"))
    first, second = read(document), read(document, now=NOW + timedelta(minutes=5))
    assert first.assertion_id == second.assertion_id == "_once"
    assert reason(document, now=first.valid_until) is Reason.CLOCK_SKEW


def test_long_request_id_is_not_looked_up() -> None:
    with pytest.raises(AssertionRejected) as caught:
        unverified_request_id(respond(Claims(request_id="a" * 129)))
    assert caught.value.reason is Reason.MALFORMED


# --- confirmation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["holder-of-key", "sender-vouches"])
def test_other_confirmations_than_bearer_are_rejected(method: str) -> None:
    uri = f"urn:oasis:names:tc:SAML:2.0:cm:{method}"
    assert problem(respond(Claims(method=uri), signed="both")) == (Reason.SUBJECT_CONFIRMATION, uri)


def test_second_confirmation_is_rejected() -> None:
    more = f'<saml:SubjectConfirmation Method="{BEARER}"/>'
    assert why(name_id=f"<saml:NameID>{SUBJECT}</saml:NameID>{more}") is Reason.SUBJECT_CONFIRMATION


def test_missing_confirmation_is_rejected() -> None:
    text = respond(signed="none").decode()
    start, end = text.index("<saml:SubjectConfirmation "), text.index("</saml:Subject>")
    assert (
        reason(respond(assertion=_assertion_of(text[:start] + text[end:]), signed="response"))
        is Reason.SUBJECT_CONFIRMATION
    )


@pytest.mark.parametrize(
    "end", ["", "tomorrow", "2026-03-02T09:35:00", "2026-03-02T09:35:00+00:00", "9999-12-31T23:59:59Z"]
)
def test_confirmation_without_end_is_rejected(end: str) -> None:
    assert why(confirmed_until=end) is Reason.SUBJECT_CONFIRMATION


# --- conditions ----------------------------------------------------------------------------------------------------------


def audience(name: str) -> str:
    return f"<saml:AudienceRestriction><saml:Audience>{name}</saml:Audience></saml:AudienceRestriction>"


def test_missing_conditions_are_rejected() -> None:
    assert why(conditions="") is Reason.CONDITIONS_MISSING


def test_second_conditions_are_rejected() -> None:
    times = f'NotBefore="{at(minutes=-5)}" NotOnOrAfter="{at(minutes=5)}"'
    both = f"<saml:Conditions {times}>{audience(SP)}</saml:Conditions>" * 2
    assert why(conditions=both) is Reason.CONDITIONS_MISSING


@pytest.mark.parametrize("missing", ["not_before", "not_on_or_after"])
def test_conditions_without_time_are_rejected(missing: str) -> None:
    assert why(**{missing: ""}) is Reason.CONDITIONS_MISSING


def test_missing_audience_is_rejected() -> None:
    assert why(audiences="") is Reason.AUDIENCE_MISMATCH
    assert why(audiences="<saml:AudienceRestriction/>") is Reason.AUDIENCE_MISMATCH


def test_other_audience_is_rejected() -> None:
    error = rejection(respond(Claims(audiences=audience(OTHER)), signed="both"))
    assert (error.reason, error.expected, error.received) == (Reason.AUDIENCE_MISMATCH, SP, OTHER)


def test_every_audience_restriction_must_name_us() -> None:
    assert why(audiences=audience(SP) + audience(OTHER)) is Reason.AUDIENCE_MISMATCH
    several = audience(f"{OTHER}</saml:Audience><saml:Audience>{SP}")
    assert read(respond(Claims(audiences=several))).subject == SUBJECT


def test_proxy_restriction_is_rejected() -> None:
    assert why(more_conditions='<saml:ProxyRestriction Count="1"/>') is Reason.CONDITION_UNKNOWN


def test_unknown_condition_is_rejected() -> None:
    assert why(more_conditions='<x:Condition xmlns:x="urn:x"/>') is Reason.CONDITION_UNKNOWN
    assert why(more_conditions="<saml:Condition/>") is Reason.CONDITION_UNKNOWN


# --- time ----------------------------------------------------------------------------------------------------------------


def test_clocks_50_seconds_apart_are_accepted() -> None:
    authenticated = f'<saml:AuthnStatement AuthnInstant="{at(seconds=50)}"/>'
    ahead = Claims(issued_at=at(seconds=50), not_before=at(seconds=50), statements=authenticated)
    behind = Claims(not_on_or_after=at(seconds=-50), confirmed_until=at(seconds=-50), session_end=at(seconds=-50))
    assert read(respond(ahead)).subject == SUBJECT
    assert read(respond(behind)).subject == SUBJECT


@pytest.mark.parametrize(
    "claims",
    [
        {"issued_at": at(seconds=70)},
        {"not_before": at(seconds=70)},
        {"confirmed_from": at(seconds=70)},
        {"not_on_or_after": at(seconds=-70)},
        {"confirmed_until": at(seconds=-70)},
        {"session_end": at(seconds=-70)},
        {"statements": f'<saml:AuthnStatement AuthnInstant="{at(seconds=70)}"/>'},
    ],
    ids=lambda claims: next(iter(claims)),
)
def test_clocks_70_seconds_apart_are_rejected(claims: dict[str, Any]) -> None:
    error = rejection(respond(Claims(**claims), signed="both"))
    assert error.reason is Reason.CLOCK_SKEW
    assert error.received in (at(seconds=70).replace(".000", ""), at(seconds=-70).replace(".000", ""))


def test_assertion_is_over_at_the_end_itself() -> None:
    assert why(not_on_or_after=at(seconds=-60)) is Reason.CLOCK_SKEW
    assert read(respond(Claims(not_on_or_after=at(seconds=-59.999)))).subject == SUBJECT


def test_assertion_begins_at_the_beginning_itself() -> None:
    assert read(respond(Claims(not_before=at(seconds=60)))).subject == SUBJECT
    assert why(not_before=at(seconds=60.001)) is Reason.CLOCK_SKEW


@pytest.mark.parametrize(
    "moment",
    [
        "",
        "2026-03-02",
        "2026-13-02T09:30:00Z",
        "2026-03-02T09:30:60Z",
        "２026-03-02T09:30:00Z",
        "0001-01-01T00:00:00Z",
        "2026-03-02T09:30:00Z&#10;",
        "2026-03-02T09:30:00.1234567890123Z",
    ],
)
def test_issue_instant_of_another_form_is_rejected(moment: str) -> None:
    assert why(issued_at=moment) is Reason.MALFORMED


# --- subject and authentication --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["", " ", "\n\t", "\u00a0\u2003"])
def test_empty_subject_is_rejected(subject: str) -> None:
    assert why(subject=subject) is Reason.SUBJECT_EMPTY


@pytest.mark.parametrize(
    "name_id",
    [
        "",
        "<saml:NameID/>",
        "<saml:NameID>alice</saml:NameID><saml:NameID>admin</saml:NameID>",
        "<saml:NameID>alice<saml:x/></saml:NameID>",
        "<saml:BaseID>alice</saml:BaseID>",
        "<saml:EncryptedID>alice</saml:EncryptedID>",
        '<saml:NameID xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>',
    ],
)
def test_subject_that_is_no_text_is_rejected(name_id: str) -> None:
    assert why(name_id=name_id) is Reason.SUBJECT_EMPTY


def test_long_subject_is_rejected() -> None:
    assert why(subject="a" * 1025) is Reason.MALFORMED


def test_missing_authentication_is_rejected() -> None:
    assert why(statements="") is Reason.AUTHENTICATION_MISSING


@pytest.mark.parametrize("statement", ["<saml:AuthnStatement/>", '<saml:AuthnStatement AuthnInstant="now"/>'])
def test_authentication_without_time_is_rejected(statement: str) -> None:
    assert why(statements=statement) is Reason.AUTHENTICATION_MISSING


def test_authentication_without_class_has_no_context() -> None:
    statement = f'<saml:AuthnStatement AuthnInstant="{at()}"/>'
    identity = read(respond(Claims(statements=statement)))
    assert (identity.authn_context, identity.session_not_on_or_after, identity.attributes) == ("", None, {})


def test_attribute_value_with_elements_is_no_text() -> None:
    statement = (
        f'<saml:AuthnStatement AuthnInstant="{at()}"/><saml:AttributeStatement><saml:Attribute Name="id"><saml:AttributeValue>'
        "<saml:NameID>admin</saml:NameID></saml:AttributeValue></saml:Attribute></saml:AttributeStatement>"
    )
    assert read(respond(Claims(statements=statement))).attributes == {"id": ()}


def test_other_version_of_saml_is_rejected() -> None:
    assert why(version="1.1") is Reason.MALFORMED


def test_log_values_are_printable() -> None:
    error = rejection(respond(Claims(audiences=audience("a\u202eb&#13;c\nd")), signed="both"))
    assert error.received == "a?b?c?d"


def test_log_values_are_short_and_without_the_subject() -> None:
    error = rejection(respond(Claims(audiences=audience("https://x.example/" + "a" * 5000)), signed="both"))
    assert len(error.received) == 200
    assert SUBJECT not in error.expected + error.received + str(error)
