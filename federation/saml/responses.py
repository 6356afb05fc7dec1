"""Responses of identity providers: the checks of the Web Browser SSO profile, and the identity that is left.

Sources: SAML 2.0 Core sections 2 and 3, SAML 2.0 Profiles section 4.1.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from federation.saml.documents import (
    ASSERTION,
    LONGEST_RESPONSE,
    PROTOCOL,
    DocumentRejected,
    Element,
    decoded,
    read,
)
from federation.saml.encryption import decrypt
from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.signatures import RESPONSE_TAG, SignedResponse, verify_assertion, verify_response
from federation.saml.times import read_time, write_time

SKEW: Final = timedelta(seconds=60)
SUCCESS: Final = "urn:oasis:names:tc:SAML:2.0:status:Success"
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
ENTITY_FORMAT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"
UNSPECIFIED_FORMAT: Final = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
LONGEST_SUBJECT: Final = 1024
LONGEST_REQUEST_ID: Final = 128  # ours are shorter
_XML_SPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class SamlConnection:
    """A connection to an identity provider: what its responses are compared with, and the keys.

    At most three certificates of the identity provider. `decryption_keys` are ours, the current one and those before it.
    """

    identity_provider: str
    service_provider: str
    acs_url: str
    certificates: tuple[x509.Certificate, ...]
    decryption_keys: tuple[rsa.RSAPrivateKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who signed in, from signed elements only.

    `assertion_id` can be used once: the caller stores it until `valid_until`, after which the assertion is rejected anyway.
    `session_not_on_or_after` ends the session here too. A subject with the format `transient` names no person the next time.
    """

    subject: str
    name_id_format: str
    attributes: Mapping[str, tuple[str, ...]]
    authn_context: str
    authenticated_at: datetime
    session_not_on_or_after: datetime | None
    assertion_id: str
    valid_until: datetime


def decode_form_value(value: str) -> bytes:
    """Return the document in the form field SAMLResponse (Bindings section 3.5.4). Raises AssertionRejected (malformed).

    Compressed documents belong to another binding and are not decompressed.
    """
    try:
        if len(value) > LONGEST_RESPONSE * 3 // 2:
            raise DocumentRejected("The form field is too long.")
        return decoded(value)
    except DocumentRejected as problem:
        raise AssertionRejected(Reason.MALFORMED, received=str(problem)) from problem


def unverified_request_id(document: bytes) -> str:
    """Return the InResponseTo of a response, to look up the attempt that it claims to end; nothing is verified.

    Raises AssertionRejected: unsolicited if the response names no request, malformed.
    """
    request_id = _request_id_of(_read_response(document))
    if len(request_id) > LONGEST_REQUEST_ID:
        raise AssertionRejected(Reason.MALFORMED, expected=f"at most {LONGEST_REQUEST_ID} characters of InResponseTo")
    return request_id


def read_response(document: bytes, *, connection: SamlConnection, request_id: str, now: datetime) -> Identity:
    """Verify a response to our request and return the identity that it proves.

    `now` is an aware time. The caller ensures that `request_id` is that of the browser's own attempt at this connection, and
    that neither the attempt nor the assertion id is used twice. Raises AssertionRejected, and
    ValueError for a connection with more than three certificates.
    """
    _check_status(_read_response(document))
    signed = verify_response(document, connection.certificates)
    assertion = signed.assertion
    if signed.encrypted is not None:
        decrypted = decrypt(
            signed.encrypted,
            connection.decryption_keys,
            namespaces=signed.namespaces,
            response_signed=signed.response_signed,
        )
        assertion = verify_assertion(decrypted, connection.certificates, response_signed=signed.response_signed)
    assert assertion is not None
    _check_envelope(signed, connection, request_id, now)
    _check_message(assertion, now)
    _check_issuer(assertion, connection.identity_provider)
    confirmed_until = _check_confirmation(assertion, connection.acs_url, request_id, now)
    conditions_until = _check_conditions(assertion, connection.service_provider, now)
    name_id = _name_id_of(assertion)
    statement = _only(assertion, f"{ASSERTION}AuthnStatement", Reason.AUTHENTICATION_MISSING)
    return Identity(
        subject=name_id.text,
        name_id_format=name_id.attributes.get("Format", UNSPECIFIED_FORMAT),
        attributes=_attributes_of(assertion),
        authn_context=_authn_context_of(statement),
        authenticated_at=_check_begun(_time(statement, "AuthnInstant", Reason.AUTHENTICATION_MISSING), now),
        session_not_on_or_after=_session_end_of(statement, now),
        assertion_id=assertion.attributes["ID"],
        valid_until=min(confirmed_until, conditions_until) + SKEW,
    )


# --- Response --------------------------------------------------------------------------------------------------------


def _read_response(document: bytes) -> Element:
    try:
        response = read(document)
    except DocumentRejected as problem:
        raise AssertionRejected(Reason.MALFORMED, received=str(problem)) from problem
    if response.tag != RESPONSE_TAG:
        raise AssertionRejected(Reason.MALFORMED, expected="Response")
    return response


def _request_id_of(response: Element) -> str:
    request_id = response.attributes.get("InResponseTo", "")
    if not request_id:
        raise AssertionRejected(Reason.UNSOLICITED)
    return request_id


def _check_status(response: Element) -> None:
    """Reject every status but success (Core section 3.2.2.2); the codes, not the message, go to the log."""
    status = _only(response, f"{PROTOCOL}Status", Reason.STATUS_NOT_SUCCESS)
    code = _only(status, f"{PROTOCOL}StatusCode", Reason.STATUS_NOT_SUCCESS)
    codes = [code.attributes.get("Value", ""), *(each.attributes.get("Value", "") for each in code.children)]
    if codes[0] != SUCCESS:
        raise AssertionRejected(Reason.STATUS_NOT_SUCCESS, expected=SUCCESS, received=" ".join(codes))


def _check_envelope(signed: SignedResponse, connection: SamlConnection, request_id: str, now: datetime) -> None:
    """Check the Response around the assertion.

    Its Issuer may be missing if it is neither signed nor has an encrypted assertion (Profiles section 4.1.4.2), its
    Destination if it is not signed (Bindings section 3.5.5.2).
    """
    response = signed.envelope
    _check_status(response)
    _check_message(response, now)
    if signed.response_signed or signed.encrypted is not None or response.all(f"{ASSERTION}Issuer"):
        _check_issuer(response, connection.identity_provider)
    if signed.response_signed or "Destination" in response.attributes:
        destination = response.attributes.get("Destination", "")
        if destination != connection.acs_url:
            raise AssertionRejected(Reason.DESTINATION_MISMATCH, expected=connection.acs_url, received=destination)
    _check_request_id(_request_id_of(response), request_id)


def _check_message(element: Element, now: datetime) -> None:
    """Check what Response and Assertion have in common: version and time of issue."""
    if element.attributes.get("Version") != "2.0":
        raise AssertionRejected(Reason.MALFORMED, expected="2.0", received=element.attributes.get("Version", ""))
    _check_begun(_time(element, "IssueInstant", Reason.MALFORMED), now)


def _check_issuer(element: Element, identity_provider: str) -> None:
    issuer = _only(element, f"{ASSERTION}Issuer", Reason.ISSUER_MISMATCH)
    name = issuer.text.strip(_XML_SPACE)
    if name != identity_provider or issuer.attributes.get("Format", ENTITY_FORMAT) != ENTITY_FORMAT:
        raise AssertionRejected(Reason.ISSUER_MISMATCH, expected=identity_provider, received=name)


def _check_request_id(received: str, request_id: str) -> None:
    if received != request_id:
        raise AssertionRejected(Reason.REQUEST_MISMATCH, expected=request_id, received=received)


# --- Assertion -------------------------------------------------------------------------------------------------------


def _check_confirmation(assertion: Element, acs_url: str, request_id: str, now: datetime) -> datetime:
    """Check the one SubjectConfirmation (Profiles section 4.1.4.2) and return its end.

    Any other method than `bearer` demands a proof that a browser cannot give.
    """
    subject = _only(assertion, f"{ASSERTION}Subject", Reason.SUBJECT_EMPTY)
    confirmation = _only(subject, f"{ASSERTION}SubjectConfirmation", Reason.SUBJECT_CONFIRMATION)
    method = confirmation.attributes.get("Method", "")
    if method != BEARER:
        raise AssertionRejected(Reason.SUBJECT_CONFIRMATION, expected=BEARER, received=method)
    particulars = _only(confirmation, f"{ASSERTION}SubjectConfirmationData", Reason.SUBJECT_CONFIRMATION)
    recipient = particulars.attributes.get("Recipient", "")
    if recipient != acs_url:
        raise AssertionRejected(Reason.RECIPIENT_MISMATCH, expected=acs_url, received=recipient)
    _check_request_id(particulars.attributes.get("InResponseTo", ""), request_id)
    if "NotBefore" in particulars.attributes:
        _check_begun(_time(particulars, "NotBefore", Reason.SUBJECT_CONFIRMATION), now)
    return _check_not_over(_time(particulars, "NotOnOrAfter", Reason.SUBJECT_CONFIRMATION), now)


def _check_conditions(assertion: Element, service_provider: str, now: datetime) -> datetime:
    """Check the Conditions (Core section 2.5) and return their end.

    Both times and an audience are required. A condition that is not understood makes the assertion invalid (section
    2.5.1.1); ProxyRestriction is for identity providers. OneTimeUse always holds here.
    """
    conditions = _only(assertion, f"{ASSERTION}Conditions", Reason.CONDITIONS_MISSING)
    _check_begun(_time(conditions, "NotBefore", Reason.CONDITIONS_MISSING), now)
    end = _check_not_over(_time(conditions, "NotOnOrAfter", Reason.CONDITIONS_MISSING), now)
    known = (f"{ASSERTION}AudienceRestriction", f"{ASSERTION}OneTimeUse")
    unknown = [condition.tag for condition in conditions.children if condition.tag not in known]
    if unknown:
        raise AssertionRejected(Reason.CONDITION_UNKNOWN, received=" ".join(unknown))
    restrictions = conditions.all(f"{ASSERTION}AudienceRestriction")
    if not restrictions:
        raise AssertionRejected(Reason.AUDIENCE_MISMATCH, expected=service_provider)
    for restriction in restrictions:
        audiences = [audience.text.strip(_XML_SPACE) for audience in restriction.all(f"{ASSERTION}Audience")]
        if service_provider not in audiences:
            received = " ".join(audiences)
            raise AssertionRejected(Reason.AUDIENCE_MISMATCH, expected=service_provider, received=received)
    return end


def _name_id_of(assertion: Element) -> Element:
    """Return the NameID: text, not empty, exactly as it was signed. White space distinguishes users of some directories."""
    subject = _only(assertion, f"{ASSERTION}Subject", Reason.SUBJECT_EMPTY)
    name_id = _only(subject, f"{ASSERTION}NameID", Reason.SUBJECT_EMPTY)
    if not name_id.text.strip():
        raise AssertionRejected(Reason.SUBJECT_EMPTY)
    if len(name_id.text) > LONGEST_SUBJECT:
        raise AssertionRejected(Reason.MALFORMED, expected=f"at most {LONGEST_SUBJECT} characters of NameID")
    return name_id


def _attributes_of(assertion: Element) -> dict[str, tuple[str, ...]]:
    """Return the attributes with text values, those of repeated names joined. Values with elements are no text."""
    attributes: dict[str, tuple[str, ...]] = {}
    for statement in assertion.all(f"{ASSERTION}AttributeStatement"):
        for attribute in statement.all(f"{ASSERTION}Attribute"):
            name = attribute.attributes.get("Name", "")
            values = [value.text for value in attribute.all(f"{ASSERTION}AttributeValue") if not value.children]
            if name:
                attributes[name] = (*attributes.get(name, ()), *values)
    return attributes


def _authn_context_of(statement: Element) -> str:
    """Return the class of the authentication, or the empty string: it counts as one factor then."""
    references = [
        reference.text.strip(_XML_SPACE)
        for context in statement.all(f"{ASSERTION}AuthnContext")
        for reference in context.all(f"{ASSERTION}AuthnContextClassRef")
    ]
    return references[0] if len(references) == 1 else ""


def _session_end_of(statement: Element, now: datetime) -> datetime | None:
    if "SessionNotOnOrAfter" not in statement.attributes:
        return None
    return _check_not_over(_time(statement, "SessionNotOnOrAfter", Reason.AUTHENTICATION_MISSING), now)


# --- elements and times ----------------------------------------------------------------------------------------------


def _only(element: Element, tag: str, reason: Reason) -> Element:
    """Return the one child with this name."""
    children = element.all(tag)
    if len(children) != 1:
        raise AssertionRejected(reason, expected=tag.rpartition("}")[2], received=f"{len(children)} elements")
    return children[0]


def _time(element: Element, name: str, reason: Reason) -> datetime:
    """Return the time in an attribute; `reason` if it is missing or has another form."""
    text = element.attributes.get(name, "")
    moment = read_time(text)
    if moment is None:
        raise AssertionRejected(reason, expected=f"{name} in UTC", received=text)
    return moment


def _check_begun(moment: datetime, now: datetime) -> datetime:
    if moment > now + SKEW:
        raise AssertionRejected(
            Reason.CLOCK_SKEW, expected=f"not after {write_time(now + SKEW)}", received=write_time(moment)
        )
    return moment


def _check_not_over(moment: datetime, now: datetime) -> datetime:
    if moment <= now - SKEW:
        raise AssertionRejected(
            Reason.CLOCK_SKEW, expected=f"after {write_time(now - SKEW)}", received=write_time(moment)
        )
    return moment
