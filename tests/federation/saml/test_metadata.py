"""Metadata of identity providers: what is read, and what is rejected."""

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from federation.saml.metadata import IdentityProviderMetadata, MetadataRejected, read_metadata
from federation.saml.requests import service_provider_metadata
from tests.federation.saml.identity_provider import (
    DS,
    IDP,
    NOW,
    SUBJECT,
    Signer,
    at,
    foreign_signer,
    new_curve_signer,
    new_signer,
    read,
    respond,
    rsa_signer,
)

MD = "urn:oasis:names:tc:SAML:2.0:metadata"
PROTOCOL = "urn:oasis:names:tc:SAML:2.0:protocol"
BINDINGS = "urn:oasis:names:tc:SAML:2.0:bindings"
SSO = "https://idp.customer.example/sso"


def key_text(signer: Signer, use: str = ' use="signing"') -> str:
    return (
        f'<md:KeyDescriptor{use}><ds:KeyInfo xmlns:ds="{DS}"><ds:X509Data><ds:X509Certificate>\n{signer.base64}\n'
        "</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>"
    )


def service_text(location: str = SSO, binding: str = "HTTP-POST") -> str:
    return f'<md:SingleSignOnService Binding="{BINDINGS}:{binding}" Location="{location}"/>'


def metadata_text(
    *,
    keys: str | None = None,
    services: str | None = None,
    entity_id: str = IDP,
    entity: str = "",
    role: str = "",
    protocol: str = PROTOCOL,
) -> str:
    keys = key_text(rsa_signer()) if keys is None else keys
    services = service_text() + service_text(f"{SSO}/redirect", "HTTP-Redirect") if services is None else services
    return (
        f'<md:EntityDescriptor xmlns:md="{MD}" entityID="{entity_id}"{entity}><md:IDPSSODescriptor{role} '
        f'protocolSupportEnumeration="{protocol}">{keys}{services}</md:IDPSSODescriptor></md:EntityDescriptor>'
    )


def read_text(text: str, entity_id: str | None = None) -> IdentityProviderMetadata:
    return read_metadata(text.encode(), now=NOW, entity_id=entity_id)


def rejection(text: str, entity_id: str | None = None) -> str:
    with pytest.raises(MetadataRejected) as caught:
        read_text(text, entity_id)
    return str(caught.value)


def test_metadata_is_read() -> None:
    metadata = read_text(metadata_text(role=' WantAuthnRequestsSigned="true"'))
    assert metadata.entity_id == IDP
    assert metadata.post_location == SSO
    assert metadata.redirect_location == f"{SSO}/redirect"
    assert metadata.certificates == (rsa_signer().certificate,)
    assert metadata.wants_signed_requests
    assert metadata.valid_until is None


def test_certificates_of_metadata_verify_responses() -> None:
    metadata = read_text(metadata_text())
    (certificate,) = metadata.certificates
    assert read(respond(), Signer(rsa_signer().key, certificate)).subject == SUBJECT


def test_several_certificates_are_read_in_order() -> None:
    curve = new_curve_signer()
    renewed = new_signer(rsa_signer().key, not_after=NOW + timedelta(days=900))
    keys = (
        key_text(rsa_signer())
        + key_text(curve, "")
        + key_text(renewed)
        + key_text(foreign_signer(), ' use="encryption"')
    )
    assert read_text(metadata_text(keys=keys)).certificates == (rsa_signer().certificate, curve.certificate)


def test_expired_certificate_is_read() -> None:
    expired = new_signer(rsa_signer().key, not_after=NOW - timedelta(days=1))
    assert read_text(metadata_text(keys=key_text(expired))).certificates == (expired.certificate,)


def test_unusable_certificate_beside_a_usable_one_is_left_out() -> None:
    weak = new_signer(rsa.generate_private_key(65537, 1024))
    metadata = read_text(metadata_text(keys=key_text(weak) + key_text(rsa_signer())))
    assert metadata.certificates == (rsa_signer().certificate,)
    assert rejection(metadata_text(keys=key_text(weak))).endswith("RSA keys have 2048 to 8192 bits.")


def test_missing_certificate_is_rejected() -> None:
    assert rejection(metadata_text(keys="")) == "The identity provider has no usable certificate."
    assert "no usable certificate" in rejection(metadata_text(keys=key_text(rsa_signer(), ' use="encryption"')))


def test_metadata_with_redirect_only_is_read() -> None:
    metadata = read_text(metadata_text(services=service_text(binding="HTTP-Redirect")))
    assert (metadata.post_location, metadata.redirect_location) == ("", SSO)


def test_missing_location_is_rejected() -> None:
    assert "no SingleSignOnService" in rejection(metadata_text(services=""))
    assert "no SingleSignOnService" in rejection(metadata_text(services=service_text(binding="SOAP")))


@pytest.mark.parametrize(
    "location",
    [
        "",
        "javascript:alert(1)",
        "data:text/html,x",
        "http://idp.customer.example/sso",
        "https://",
        "//idp.customer.example/sso",
        "https://user:secret@idp.customer.example/",
        "https://idp.customer.example/a b",
        "https://idp.customer.example\\@attacker.example/",
        "https://[::1/",
        "https://idp.customer.example:port/",
        "https://idp.customer.example/&#10;x",
        "https://идп.example/",
        "https://a;script-src/",
        "https://*.example/",
        "https://*/",
        "https://a'b/",
        "https://a&quot;b/",
        "https://a,b/",
        "https://a_b.example/",
        "https://-a.example/",
        "https://a-.example/",
        "https://a..example/",
        "https://.example/",
        "https://idp.example./",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 126}example/",
        "https://127.1/",
        "https://0x7f.0x1/",
        "https://1.2.3.4.5/",
        "https://2130706433/",
        "https://256.1.1.1/",
        "https://[v1.a]/",
        "https://[192.0.2.1]/",
        "https://[fe80::1%25eth0]/",
        "https://[2001:db8::1]x/",
        "https://x[2001:db8::1]/",
        "https://2001:db8::1/",
        "https://idp.customer.example:/",
        "https://idp.customer.example:0/",
        "https://idp.customer.example:0443/",
        "https://idp.customer.example:65536/",
        "https://idp.customer.example:+443/",
        "https://@idp.customer.example/",
        "https://idp.customer.example/" + "a" * 2048,
    ],
)
def test_location_that_is_no_https_url_is_rejected(location: str) -> None:
    assert rejection(metadata_text(services=service_text(location))) == (
        "The Location of a SingleSignOnService is not an https URL."
    )


@pytest.mark.parametrize("location", ["http://localhost:7000/sso", "http://127.0.0.1/sso", "http://[::1]:80/sso"])
def test_http_location_on_the_own_machine_is_accepted(location: str) -> None:
    assert read_text(metadata_text(services=service_text(location))).post_location == location


@pytest.mark.parametrize(
    "host",
    [
        "idp",
        "IDP.Customer.example",
        "xn--80ahd1agd.example",
        "a-b.1.example:8443",
        "192.0.2.1:8443",
        "[2001:DB8::1]",
        "[::1]:1",
    ],
)
def test_location_at_name_or_ip_address_is_accepted(host: str) -> None:
    assert (
        read_text(metadata_text(services=service_text(f"https://{host}/sso?a=b"))).post_location
        == f"https://{host}/sso?a=b"
    )


def test_expired_metadata_is_rejected() -> None:
    for text in (metadata_text(entity=f' validUntil="{at(seconds=-1)}"'), metadata_text(role=f' validUntil="{at()}"')):
        assert rejection(text) == "The metadata has expired (validUntil). Download it again."
    assert rejection(metadata_text(entity=' validUntil="soon"')) == "validUntil is not a time in UTC."


def test_earliest_end_of_metadata_is_returned() -> None:
    text = metadata_text(entity=f' validUntil="{at(days=2)}"', role=f' validUntil="{at(days=1)}"')
    assert read_text(text).valid_until == NOW + timedelta(days=1)


def test_one_of_several_entities_is_chosen_by_its_id() -> None:
    both = metadata_text() + metadata_text(entity_id="https://other.example")
    text = f'<md:EntitiesDescriptor xmlns:md="{MD}" validUntil="{at(days=1)}">{both}</md:EntitiesDescriptor>'
    assert read_text(text, IDP).entity_id == IDP
    assert read_text(text, IDP).valid_until == NOW + timedelta(days=1)
    assert rejection(text) == (
        "The metadata describes an identity provider with SAML 2.0 2 times. Give metadata with exactly one."
    )


def grouped(*attributes: str) -> str:
    """Metadata inside groups with these attributes, the outermost first."""
    opening = "".join(f'<md:EntitiesDescriptor xmlns:md="{MD}"{each}>' for each in attributes)
    return f"{opening}{metadata_text()}{'</md:EntitiesDescriptor>' * len(attributes)}"


def test_end_of_every_group_counts() -> None:
    until = [f' validUntil="{at(days=days)}"' for days in (3, 1, 2)]
    assert read_text(grouped(*until)).valid_until == NOW + timedelta(days=1)
    assert rejection(grouped("", f' validUntil="{at()}"', "")) == (
        "The metadata has expired (validUntil). Download it again."
    )


def test_end_of_another_group_does_not_count() -> None:
    other = f'<md:EntitiesDescriptor validUntil="{at()}"/></md:EntitiesDescriptor>'
    assert read_text(grouped("").replace("</md:EntitiesDescriptor>", other)).valid_until is None


def test_entity_inside_another_element_is_no_entity() -> None:
    text = grouped("").replace("<md:EntityDescriptor", "<md:Extensions><md:EntityDescriptor")
    text = text.replace("</md:EntityDescriptor>", "</md:EntityDescriptor></md:Extensions>")
    assert "0 times" in rejection(text)


def test_other_entity_at_refresh_is_rejected() -> None:
    assert "the identity provider of this connection 0 times" in rejection(metadata_text(), "https://other.example")


def test_metadata_of_a_service_provider_is_rejected() -> None:
    assert "0 times" in rejection(metadata_text().replace("IDPSSODescriptor", "SPSSODescriptor"))


def test_metadata_of_another_protocol_is_rejected() -> None:
    assert "0 times" in rejection(metadata_text(protocol="urn:oasis:names:tc:SAML:1.1:protocol"))
    assert read_text(metadata_text(protocol=f"urn:oasis:names:tc:SAML:1.1:protocol {PROTOCOL}")).entity_id == IDP


@pytest.mark.parametrize("entity_id", ["", "a" * 1025])
def test_entity_id_of_another_length_is_rejected(entity_id: str) -> None:
    assert "entity id" in rejection(metadata_text(entity_id=entity_id))


def test_comments_between_elements_are_accepted() -> None:
    """The metadata of Shibboleth identity providers begins with one."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- An example -->\n{metadata_text()}'
    assert read_text(text.replace("<md:Single", "<!-- The address --><md:Single")).post_location == SSO


def test_comment_in_a_certificate_is_rejected() -> None:
    text = metadata_text().replace("<ds:X509Certificate>", "<ds:X509Certificate>AAAA<!-- -->")
    assert rejection(text) == "A comment divides a text."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "This is not well-formed XML."),
        ("<html/>", "This is not SAML metadata: the root is neither EntityDescriptor nor EntitiesDescriptor."),
        ("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>", "The document has a document type."),
        ("<?xml-stylesheet href='https://x.example/'?><a/>", "The document has a processing instruction."),
        ("<a>" * 40 + "</a>" * 40, "The document has more than 32 levels."),
        (" " * (1024 * 1024 + 1), "The document is longer than 1048576 bytes."),
    ],
)
def test_document_that_is_no_metadata_is_rejected(text: str, problem: str) -> None:
    assert rejection(text) == problem


def test_metadata_with_many_elements_is_rejected() -> None:
    """Its end, which is not well-formed, is not reached."""
    assert rejection("<a>" + "<x/>" * 100_000 + "</b>") == "The document has more than 50000 elements."


def test_metadata_of_a_large_federation_is_read() -> None:
    roles = "<md:RoleDescriptor/>" * 49_000
    assert (
        read_text(f'<md:EntitiesDescriptor xmlns:md="{MD}">{metadata_text()}{roles}</md:EntitiesDescriptor>').entity_id
        == IDP
    )


def test_our_own_metadata_is_not_that_of_an_identity_provider() -> None:
    document = service_provider_metadata(
        service_provider=IDP, acs_url=SSO, signing_certificates=[rsa_signer().certificate]
    )
    assert "0 times" in rejection(document.decode())
