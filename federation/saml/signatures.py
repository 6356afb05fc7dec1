"""Signatures of SAML documents, with signxml narrowed to one profile. Only this module imports signxml.

With its defaults signxml takes the first signature anywhere, skips transforms that it does not know, takes an empty URI
for the document, finds ids by their local names and accepts HMAC: five of eight classes of signature wrapping then yield
the values of the attacker. Here the structure of the document is checked first, each signature is verified with its
parent as the whole document, and callers get the bytes that were signed, parsed again, and nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from lxml import etree
from signxml.algorithms import (
    CanonicalizationMethod,
    DigestAlgorithm,
    SignatureConstructionMethod,
    SignatureMethod,
)
from signxml.exceptions import InvalidDigest, InvalidSignature
from signxml.signer import XMLSigner
from signxml.verifier import SignatureConfiguration, XMLVerifier

from federation.saml.certificates import (
    CertificateRejected,
    distinct_keys,
    fingerprint,
    public_key_bytes,
    read_certificate,
)
from federation.saml.documents import (
    ASSERTION,
    PROTOCOL,
    SIGNATURE,
    DocumentRejected,
    Element,
    decoded,
    element_of,
    new_parser,
    node_of,
    parse,
)
from federation.saml.rejections import AssertionRejected, Reason

RESPONSE_TAG: Final = f"{PROTOCOL}Response"
ASSERTION_TAG: Final = f"{ASSERTION}Assertion"
ENCRYPTED_TAG: Final = f"{ASSERTION}EncryptedAssertion"
MOST_CERTIFICATES: Final = 3

_ENVELOPED: Final = SignatureConstructionMethod.enveloped.value
_EXCLUSIVE: Final = CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0.value
_PREFIX_LIST_TAG: Final = "{http://www.w3.org/2001/10/xml-exc-c14n#}InclusiveNamespaces"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SPACES: Final = re.compile(r"[ \t\r\n]+")
_MOST_LISTED_PREFIXES: Final = 32
_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")
_KEY_TYPES: Final[dict[str, type]] = {
    SignatureMethod.RSA_SHA256.value: rsa.RSAPublicKey,
    SignatureMethod.RSA_SHA384.value: rsa.RSAPublicKey,
    SignatureMethod.RSA_SHA512.value: rsa.RSAPublicKey,
    SignatureMethod.ECDSA_SHA256.value: ec.EllipticCurvePublicKey,
    SignatureMethod.ECDSA_SHA384.value: ec.EllipticCurvePublicKey,
}
_DIGESTS: Final = frozenset({DigestAlgorithm.SHA256, DigestAlgorithm.SHA384, DigestAlgorithm.SHA512})
_DIGEST_URIS: Final = frozenset(digest.value for digest in _DIGESTS)
_CONFIGURATION: Final = SignatureConfiguration(
    location="./",
    expect_references=1,
    signature_methods=frozenset(SignatureMethod(method) for method in _KEY_TYPES),
    digest_algorithms=_DIGESTS,
    ignore_ambiguous_key_info=True,
)

SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class SignedResponse(NamedTuple):
    """What the signatures of a response cover.

    `envelope` is the Response without assertions: its values are only compared with expected ones, since nothing but
    `response_signed` says whether they are signed. `assertion` is signed, by itself or with the Response. `encrypted` is
    an EncryptedAssertion that is signed only with `response_signed`. One of the two is None. `namespaces` are those in scope
    at either, by prefix; in a signed Response those that the signature covers.
    """

    envelope: Element
    response_signed: bool
    assertion: Element | None
    encrypted: Element | None
    namespaces: Mapping[str | None, str]


def verify_response(document: bytes, certificates: Sequence[x509.Certificate]) -> SignedResponse:
    """Verify every signature of a Response with the keys of up to three certificates; `KeyInfo` is ignored.

    An unsigned Response is returned only with an EncryptedAssertion; `verify_assertion` then demands a signature of the
    decrypted one. Raises AssertionRejected (malformed, algorithm_not_allowed, signature_missing, signature_invalid,
    certificate_unknown), and ValueError for more than three certificates.
    """
    root = _parsed(document, RESPONSE_TAG)
    (assertion,) = [child for child in root if child.tag in (ASSERTION_TAG, ENCRYPTED_TAG)]
    encrypted = assertion.tag == ENCRYPTED_TAG
    response_signed = _signature_of(root) is not None
    assertion_signed = not encrypted and _signature_of(assertion) is not None
    if not (response_signed or assertion_signed or encrypted):
        raise AssertionRejected(Reason.SIGNATURE_MISSING, expected="signed Response or Assertion")
    signed_assertion = element_of(_verified(assertion, certificates)) if assertion_signed else None
    envelope = _verified(root, certificates) if response_signed else root
    response = element_of(envelope)
    (inner,) = response.all(assertion.tag)
    return SignedResponse(
        envelope=replace(response, children=tuple(each for each in response.children if each is not inner)),
        response_signed=response_signed,
        assertion=None if encrypted else signed_assertion or inner,
        encrypted=inner if encrypted else None,
        # Not those of the document: an attacker can declare prefixes that no name uses, which the canonical form leaves out.
        namespaces=envelope.find(assertion.tag).nsmap,
    )


def verify_assertion(document: bytes, certificates: Sequence[x509.Certificate], *, response_signed: bool) -> Element:
    """Verify a decrypted Assertion and return it as signed. Only within a signed Response it needs no signature.

    Raises AssertionRejected as `verify_response` does.
    """
    root = _parsed(document, ASSERTION_TAG)
    if _signature_of(root) is not None:
        return element_of(_verified(root, certificates))
    if not response_signed:
        raise AssertionRejected(Reason.SIGNATURE_MISSING, expected="signed Assertion inside EncryptedAssertion")
    return element_of(root)


def sign(element: Element, *, key: SigningKey, certificate: x509.Certificate) -> bytes:
    """Return the element as a document with an enveloped signature behind its first child, the Issuer.

    RSA or ECDSA with SHA-256, by the key; the element has an `ID`. Raises ValueError for text that XML cannot express.
    """
    root = node_of(element)
    root.insert(1, etree.Element(f"{SIGNATURE}Signature", {"Id": "placeholder"}, nsmap={"ds": SIGNATURE[1:-1]}))
    method = SignatureMethod.RSA_SHA256 if isinstance(key, rsa.RSAPrivateKey) else SignatureMethod.ECDSA_SHA256
    signer = XMLSigner(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=method,
        digest_algorithm=DigestAlgorithm.SHA256,
        c14n_algorithm=CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0,
    )
    return bytes(etree.tostring(signer.sign(root, key=key, cert=[certificate])))


# --- structure -------------------------------------------------------------------------------------------------------


def _parsed(document: bytes, tag: str) -> Any:
    """Return the root of a document whose structure is that of the profile. Raises AssertionRejected."""
    try:
        root = parse(document)
        element_of(root)  # the depth
    except DocumentRejected as problem:
        raise _malformed(str(problem)) from problem
    if root.tag != tag:
        raise _malformed(f"The root is another element than {_local(tag)}.")
    _check_assertions(root)
    _check_ids(root)
    _check_signatures(root)
    return root


def _check_assertions(root: Any) -> None:
    """Require exactly one assertion: the root, or a child of the Response. Its name counts in every namespace."""
    assertions = [node for node in root.iter() if _local(node.tag) in ("Assertion", "EncryptedAssertion")]
    if len(assertions) != 1:
        raise _malformed(f"The document has {len(assertions)} assertions.")
    (assertion,) = assertions
    at_root = assertion is root and assertion.tag == ASSERTION_TAG
    below = (
        assertion.getparent() is root and root.tag == RESPONSE_TAG and assertion.tag in (ASSERTION_TAG, ENCRYPTED_TAG)
    )
    if not (at_root or below):
        raise _malformed("The Assertion is not a child of the Response.")


def _check_ids(root: Any) -> None:
    """Require that every id is in the document once. Attributes named ID, Id and id all count."""
    ids = set()
    for node in root.iter():
        for name, value in node.attrib.items():
            if _local(name).lower() != "id":
                continue
            if name != _local(name):
                raise _malformed("An ID has a namespace.")
            if value in ids:
                raise _malformed("An ID is there twice.")
            ids.add(value)
    for node in (root, *root.iterchildren(ASSERTION_TAG)):
        if not _ID.fullmatch(node.get("ID", "")):
            raise _malformed(f"The ID of the {_local(node.tag)} is missing or not an ASCII name.")


def _check_signatures(root: Any) -> None:
    """Require at most one signature for the Response and the Assertion each, none elsewhere, and check their structure."""
    signatures = [node for node in root.iter() if _local(node.tag) == "Signature"]
    for signature in signatures:
        parent = signature.getparent()
        if (
            signature.tag != f"{SIGNATURE}Signature"
            or parent is None
            or not (parent is root or parent.tag == ASSERTION_TAG)
        ):
            raise _malformed("A Signature is not a child of the Response or the Assertion.")
        _check_signature(signature, parent.get("ID"))
    parents = [signature.getparent() for signature in signatures]
    if len(set(parents)) != len(parents):
        raise _malformed("An element has two signatures.")


def _check_signature(signature: Any, parent_id: str) -> None:
    """Check a Signature element against the profile: the only input of signxml that an attacker writes."""
    names = [_name_of_part(child) for child in signature]
    if names not in (["SignedInfo", "SignatureValue"], ["SignedInfo", "SignatureValue", "KeyInfo"]):
        raise _malformed("A Signature has other elements than SignedInfo, SignatureValue and KeyInfo.")
    signed_info, value = signature[0], signature[1]
    if [_name_of_part(child) for child in signed_info] != ["CanonicalizationMethod", "SignatureMethod", "Reference"]:
        raise _malformed("SignedInfo does not have exactly one Reference.")
    canonicalization, method, reference = signed_info
    _check_algorithm(canonicalization, lambda uri: uri == _EXCLUSIVE, prefixes=True)
    _check_algorithm(method, _KEY_TYPES.__contains__)
    if reference.get("URI") != f"#{parent_id}":
        raise _malformed("A Reference is not to the parent of its Signature.")
    if [_name_of_part(child) for child in reference] != ["Transforms", "DigestMethod", "DigestValue"]:
        raise _malformed("A Reference has other elements than Transforms, DigestMethod and DigestValue.")
    transforms, digest, digest_value = reference
    if [_name_of_part(child) for child in transforms] != ["Transform", "Transform"]:
        raise _malformed("A Reference does not have two Transforms.")
    _check_algorithm(transforms[0], lambda uri: uri == _ENVELOPED)
    _check_algorithm(transforms[1], lambda uri: uri == _EXCLUSIVE, prefixes=True)
    _check_algorithm(digest, _DIGEST_URIS.__contains__)
    for node in (value, digest_value):
        try:
            filled = len(node) == 0 and decoded(node.text or "")
        except DocumentRejected as problem:
            raise _malformed("A value of a Signature is not base64.") from problem
        if not filled:
            raise _malformed("A value of a Signature is empty or has elements.")


def _check_algorithm(node: Any, allowed: Callable[[str], bool], *, prefixes: bool = False) -> None:
    """Check the algorithm of an element, and that its only parameter is a list of prefixes, where one may be."""
    algorithm = node.get("Algorithm", "")
    if not allowed(algorithm):
        raise AssertionRejected(Reason.ALGORITHM_NOT_ALLOWED, received=f"{_local(node.tag)}: {algorithm}")
    parameters = [child for child in node if not (prefixes and _is_prefix_list(child))]
    if parameters or len(node) > 1:
        raise _malformed("An algorithm of a Signature has parameters.")


def _is_prefix_list(node: Any) -> bool:
    """Whether an element is a list of prefixes. Raises AssertionRejected for `#default`, which lxml ignores."""
    if node.tag != _PREFIX_LIST_TAG:
        return False
    prefixes = _listed_prefixes(node)
    if "#default" in prefixes:
        raise AssertionRejected(Reason.ALGORITHM_NOT_ALLOWED, received=f"{_local(node.tag)}: {' '.join(prefixes)}")
    return len(prefixes) <= _MOST_LISTED_PREFIXES and all(_PREFIX.fullmatch(prefix) for prefix in prefixes)


def _listed_prefixes(node: Any) -> list[str]:
    """Return the prefixes of an InclusiveNamespaces element, whose attribute has the type NMTOKENS."""
    return [prefix for prefix in _SPACES.split(node.get("PrefixList", "")) if prefix]


def _name_of_part(node: Any) -> str:
    """Return the local name of an element of XML Signature, and the empty string for every other one."""
    return _local(node.tag) if node.tag.startswith(SIGNATURE) else ""


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _malformed(problem: str) -> AssertionRejected:
    return AssertionRejected(Reason.MALFORMED, received=problem)


# --- verification ----------------------------------------------------------------------------------------------------


class _Verifier(XMLVerifier):
    """XMLVerifier with other lists of prefixes.

    It splits at single spaces, and lxml takes the empty prefixes between two of them for the default namespace, if any
    document of the process has had `xmlns=""`.
    """

    def _get_inclusive_ns_prefixes(self, transform_node: Any) -> list[str] | None:
        node = transform_node.find(_PREFIX_LIST_TAG)
        return None if node is None else _listed_prefixes(node)


def _signature_of(node: Any) -> Any:
    return node.find(f"{SIGNATURE}Signature")


def _verified(node: Any, certificates: Sequence[x509.Certificate]) -> Any:
    """Verify the signature of an element with one of the keys and return what was signed as an lxml element."""
    if len(certificates) > MOST_CERTIFICATES:
        raise ValueError(f"A connection has at most {MOST_CERTIFICATES} certificates.")
    # The element alone, so that signxml finds no other signature and no other id.
    try:
        alone = etree.fromstring(etree.tostring(node, with_tail=False), new_parser())
    except etree.LxmlError as problem:
        raise _malformed("An element cannot be read by itself.") from problem
    signature = _signature_of(alone)
    presented = _presented(signature)
    method = signature[0][1].get("Algorithm")
    document = etree.tostring(alone)
    for certificate in distinct_keys(certificates):
        if not isinstance(certificate.public_key(), _KEY_TYPES[method]):
            continue
        # A time at which the certificate is valid: it counts as a key.
        configuration = replace(_CONFIGURATION, verification_time=certificate.not_valid_before_utc)
        try:
            result = _Verifier().verify(
                document, x509_cert=certificate, id_attribute="ID", parser=new_parser(), expect_config=configuration
            )
        except InvalidDigest as problem:
            raise _signature_invalid("digest") from problem
        except InvalidSignature:
            continue
        # The library and libxml2 reject input with many exceptions: InvalidInput, DocumentInvalid, C14NError ...
        except Exception as problem:
            raise _signature_invalid(type(problem).__name__) from problem
        signed = None if isinstance(result, list) else result.signed_xml
        if (
            signed is None
            or signed.tag != node.tag
            or signed.get("ID") != node.get("ID")
            or _signature_of(signed) is not None
        ):
            raise _signature_invalid("signed element")
        return signed
    raise _unverified(certificates, presented)


def _presented(signature: Any) -> str:
    """Remove the KeyInfo, which an attacker writes, from a Signature, and return its certificate for the log."""
    key_info = signature.find(f"{SIGNATURE}KeyInfo")
    if key_info is None:
        return ""
    signature.remove(key_info)
    return key_info.findtext(f"{SIGNATURE}X509Data/{SIGNATURE}X509Certificate") or ""


def _unverified(certificates: Sequence[x509.Certificate], presented: str) -> AssertionRejected:
    """Return the error for a signature by none of the keys: whether a new certificate or a forgery is the likely cause."""
    expected = ", ".join(fingerprint(certificate) for certificate in certificates)
    try:
        certificate = read_certificate(presented)
    except CertificateRejected:
        return AssertionRejected(Reason.SIGNATURE_INVALID, expected=expected, received="no readable certificate")
    known = {public_key_bytes(each) for each in certificates}
    reason = Reason.SIGNATURE_INVALID if public_key_bytes(certificate) in known else Reason.CERTIFICATE_UNKNOWN
    return AssertionRejected(reason, expected=expected, received=fingerprint(certificate))


def _signature_invalid(problem: str) -> AssertionRejected:
    return AssertionRejected(Reason.SIGNATURE_INVALID, received=problem)
