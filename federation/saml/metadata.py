"""Metadata of identity providers (SAML 2.0 Metadata): the entity id, where requests go, and the certificates.

Its signature is not verified: the tenant's admin, or the URL, is the source of trust. So comments, which files of
some products contain, are accepted between elements. All other limits of documents hold.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from cryptography import x509

from federation.saml.certificates import CertificateRejected, distinct_keys, read_certificate
from federation.saml.documents import METADATA, SIGNATURE, DocumentRejected, Element, read
from federation.saml.requests import POST_BINDING, PROTOCOL_NAME
from federation.saml.times import read_time
from federation.web_addresses import is_web_address

REDIRECT_BINDING: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
LONGEST_METADATA: Final = 1024 * 1024
MOST_METADATA_ELEMENTS: Final = 50_000  # federations put many entities into one document
LONGEST_ENTITY_ID: Final = 1024  # Metadata section 2.2.1
_ENTITY_TAG: Final = f"{METADATA}EntityDescriptor"
_GROUP_TAG: Final = f"{METADATA}EntitiesDescriptor"
# Identity providers of developers and tests.
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class MetadataRejected(Exception):
    """The metadata describes no identity provider that can be used. The text says why and what to do."""


class IdentityProviderMetadata(NamedTuple):
    """An identity provider, as its metadata describes it.

    Locations are empty if the binding is not offered. `certificates` have distinct keys; a connection takes three.
    """

    entity_id: str
    post_location: str
    redirect_location: str
    certificates: tuple[x509.Certificate, ...]
    wants_signed_requests: bool
    valid_until: datetime | None


def read_metadata(document: bytes, *, now: datetime, entity_id: str | None = None) -> IdentityProviderMetadata:
    """Return the identity provider that a metadata document describes.

    `entity_id` is the expected one: at a refresh, or to choose one of several. Raises MetadataRejected: no XML as documents
    have it, none or several identity providers, expired, no usable certificate, no location.
    """
    try:
        root = read(document, longest=LONGEST_METADATA, most_elements=MOST_METADATA_ELEMENTS, comments=True)
    except DocumentRejected as problem:
        raise MetadataRejected(str(problem)) from problem
    *groups, entity, role = _identity_provider_of(root, entity_id)
    name = entity.attributes.get("entityID", "")
    if not name or len(name) > LONGEST_ENTITY_ID:
        raise MetadataRejected(f"The entity id is empty or longer than {LONGEST_ENTITY_ID} characters.")
    ends = [end for end in (_end_of(element, now) for element in (*groups, entity, role)) if end is not None]
    post, redirect = _location_of(role, POST_BINDING), _location_of(role, REDIRECT_BINDING)
    if not (post or redirect):
        raise MetadataRejected(
            "The identity provider has no SingleSignOnService with the binding HTTP-POST or HTTP-Redirect."
        )
    return IdentityProviderMetadata(
        entity_id=name,
        post_location=post,
        redirect_location=redirect,
        certificates=_certificates_of(role),
        wants_signed_requests=role.attributes.get("WantAuthnRequestsSigned") in ("true", "1"),
        valid_until=min(ends, default=None),
    )


def _identity_provider_of(root: Element, entity_id: str | None) -> tuple[Element, ...]:
    """Return the groups, the EntityDescriptor and the IDPSSODescriptor: the only one, or the one with the entity id."""
    if root.tag not in (_ENTITY_TAG, _GROUP_TAG):
        raise MetadataRejected(
            "This is not SAML metadata: the root is neither EntityDescriptor nor EntitiesDescriptor."
        )
    candidates = [
        (*path, role)
        for path in _paths_to_entities(root)
        if entity_id in (None, path[-1].attributes.get("entityID"))
        for role in path[-1].all(f"{METADATA}IDPSSODescriptor")
        if PROTOCOL_NAME in role.attributes.get("protocolSupportEnumeration", "").split()
    ]
    if len(candidates) != 1:
        which = (
            "an identity provider with SAML 2.0" if entity_id is None else "the identity provider of this connection"
        )
        raise MetadataRejected(
            f"The metadata describes {which} {len(candidates)} times. Give metadata with exactly one."
        )
    return candidates[0]


def _paths_to_entities(element: Element, groups: tuple[Element, ...] = ()) -> Iterator[tuple[Element, ...]]:
    """Yield each EntityDescriptor after the groups around it: an entity in any other element is not one."""
    path = (*groups, element)
    if element.tag == _ENTITY_TAG:
        yield path
    elif element.tag == _GROUP_TAG:
        for child in element.children:
            yield from _paths_to_entities(child, path)


def _end_of(element: Element, now: datetime) -> datetime | None:
    """Return the end of an element's validity, None without one. Raises MetadataRejected if it has passed."""
    text = element.attributes.get("validUntil")
    if text is None:
        return None
    end = read_time(text)
    if end is None:
        raise MetadataRejected("validUntil is not a time in UTC.")
    if end <= now:
        raise MetadataRejected("The metadata has expired (validUntil). Download it again.")
    return end


def _location_of(role: Element, binding: str) -> str:
    """Return the location of the first SingleSignOnService with the binding, the empty string without one."""
    for service in role.all(f"{METADATA}SingleSignOnService"):
        if service.attributes.get("Binding") == binding:
            location = service.attributes.get("Location", "")
            if not is_web_address(location, takes_plain_http=_LOOPBACK.__contains__):
                raise MetadataRejected("The Location of a SingleSignOnService is not an https URL.")
            return location
    return ""


def _certificates_of(role: Element) -> tuple[x509.Certificate, ...]:
    """Return the certificates for signatures: those of keys with this use, or without any. Unusable ones are left out."""
    certificates, problems = [], []
    for descriptor in role.all(f"{METADATA}KeyDescriptor"):
        if descriptor.attributes.get("use", "signing") != "signing":
            continue
        for encoded in descriptor.descendants(f"{SIGNATURE}X509Certificate"):
            try:
                certificates.append(read_certificate(encoded.text))
            except CertificateRejected as problem:
                problems.append(str(problem))
    if not certificates:
        raise MetadataRejected(f"The identity provider has no usable certificate. {' '.join(problems[:1])}".rstrip())
    return tuple(distinct_keys(certificates))
