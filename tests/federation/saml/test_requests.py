"""What we send to identity providers: signed requests and our metadata."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import signxml
from lxml import etree

from federation.saml.requests import AuthnRequest, create_authn_request, service_provider_metadata
from tests.federation.saml.identity_provider import ACS, DS, NOW, SAML, SAMLP, SP, Signer, new_curve_signer, rsa_signer

MD = "{urn:oasis:names:tc:SAML:2.0:metadata}"
SSO = "https://idp.customer.example/sso?a=1&b=2"
REFEDS = "https://refeds.org/profile/mfa"


def request(signer: Signer | None = None, **options: Any) -> AuthnRequest:
    signer = signer or rsa_signer()
    return create_authn_request(
        service_provider=SP,
        acs_url=ACS,
        destination=SSO,
        key=signer.key,
        certificate=signer.certificate,
        now=NOW,
        **options,
    )


@pytest.mark.parametrize("kind", ["RSA", "curve"])
def test_request_is_signed(kind: str) -> None:
    signer = rsa_signer() if kind == "RSA" else new_curve_signer()
    created = request(signer)
    result = signxml.XMLVerifier().verify(created.document, x509_cert=signer.certificate, id_attribute="ID")
    assert not isinstance(result, list)
    signed = result.signed_xml
    assert signed is not None
    assert signed.tag == f"{{{SAMLP}}}AuthnRequest"
    assert signed.get("ID") == created.id


def test_request_says_where_the_response_goes() -> None:
    root = etree.fromstring(request().document)
    assert root.get("Destination") == SSO
    assert root.get("AssertionConsumerServiceURL") == ACS
    assert root.get("ProtocolBinding") == "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
    assert root.get("IssueInstant") == "2026-03-02T09:30:00Z"
    assert root.get("Version") == "2.0"
    assert root.get("ForceAuthn") is None
    # The order of the schema.
    assert [child.tag for child in root] == [f"{{{SAML}}}Issuer", f"{{{DS}}}Signature", f"{{{SAMLP}}}NameIDPolicy"]
    assert root[0].text == SP


def test_request_can_demand_authentication() -> None:
    root = etree.fromstring(request(force_authn=True, authn_contexts=[REFEDS]).document)
    assert root.get("ForceAuthn") == "true"
    demanded = root.find(f"{{{SAMLP}}}RequestedAuthnContext")
    assert (demanded.get("Comparison"), [child.text for child in demanded]) == ("exact", [REFEDS])


def test_time_of_request_is_utc() -> None:
    later = NOW.astimezone(UTC) + timedelta(seconds=0.9)
    created = create_authn_request(
        service_provider=SP, acs_url=ACS, destination=SSO, key=rsa_signer().key, certificate=rsa_signer().certificate,
        now=datetime.fromisoformat("2026-03-02T11:30:00.900+02:00"),
    )  # fmt: skip
    assert etree.fromstring(created.document).get("IssueInstant") == later.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_each_request_has_an_id_of_its_own() -> None:
    ids = {request().id for _ in range(5)}
    assert len(ids) == 5
    assert all(len(identifier) == 41 and identifier.startswith("_") for identifier in ids)


def test_form_value_is_the_document_in_base64() -> None:
    created = request()
    assert base64.b64decode(created.form_value(), validate=True) == created.document


def test_text_in_request_is_escaped() -> None:
    created = create_authn_request(
        service_provider='"><x>&', acs_url='https://a.example/"<', destination=SSO, key=rsa_signer().key,
        certificate=rsa_signer().certificate, now=NOW,
    )  # fmt: skip
    root = etree.fromstring(created.document)
    assert root[0].text == '"><x>&'
    assert root.get("AssertionConsumerServiceURL") == 'https://a.example/"<'


def test_text_that_xml_cannot_express_is_an_error() -> None:
    with pytest.raises(ValueError, match="XML"):
        service_provider_metadata(service_provider="a\0b", acs_url=ACS, signing_certificates=[])


def test_metadata_describes_the_connection() -> None:
    curve = new_curve_signer()
    document = service_provider_metadata(
        service_provider=SP,
        acs_url=ACS,
        signing_certificates=[rsa_signer().certificate, curve.certificate],
        encryption_certificates=[rsa_signer().certificate],
    )
    root = etree.fromstring(document)
    role = root.find(f"{MD}SPSSODescriptor")
    assert (root.tag, root.get("entityID")) == (f"{MD}EntityDescriptor", SP)
    assert role.get("AuthnRequestsSigned") == role.get("WantAssertionsSigned") == "true"
    keys = [(key.get("use"), key.findtext(f".//{{{DS}}}X509Certificate")) for key in role.findall(f"{MD}KeyDescriptor")]
    assert keys == [("signing", rsa_signer().base64), ("signing", curve.base64), ("encryption", rsa_signer().base64)]
    (acs,) = role.findall(f"{MD}AssertionConsumerService")
    assert (acs.get("Location"), acs.get("index")) == (ACS, "0")
    methods = [method.get("Algorithm") for method in role.iter(f"{MD}EncryptionMethod")]
    assert methods[0] == "http://www.w3.org/2009/xmlenc11#aes256-gcm"
    assert not [method for method in methods if "cbc" in method or "rsa-1_5" in method]


def test_encryption_certificate_without_rsa_is_an_error() -> None:
    curve = new_curve_signer().certificate
    with pytest.raises(ValueError, match="RSA"):
        service_provider_metadata(
            service_provider=SP, acs_url=ACS, signing_certificates=[curve], encryption_certificates=[curve]
        )
