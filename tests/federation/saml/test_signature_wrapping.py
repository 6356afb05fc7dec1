"""Signature wrapping (XSW) in its eight classes: the signed element stays valid, and another one is to be read.

The classes are those of Somorovsky and others, "On Breaking SAML" (USENIX Security 2012), as tools number them.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import signxml
from lxml import etree

from federation.saml.rejections import Reason
from tests.federation.saml.identity_provider import DS, SAML, SAMLP, respond, rsa_signer
from tests.federation.saml.rejected import problem

ATTACKER = "admin@customer.example"
SIGNATURE, ASSERTION, NAME_ID = f"{{{DS}}}Signature", f"{{{SAML}}}Assertion", f"{{{SAML}}}NameID"


def parsed(signed: str) -> Any:
    return etree.fromstring(respond(signed=signed))


def unsigned_copy(element: Any) -> Any:
    """A copy without its own signature, which the signature is still valid for."""
    clone = copy.deepcopy(element)
    clone.remove(clone.find(SIGNATURE))
    return clone


def forge(element: Any, new_id: str = "_evil") -> Any:
    """Give an element another id and its assertion the subject of the attacker."""
    element.set("ID", new_id)
    for name_id in element.iter(NAME_ID):
        name_id.text = ATTACKER
    for assertion in element.iterchildren(ASSERTION):
        assertion.set("ID", "_evil_assertion")
    return element


def within_object(signature: Any, element: Any) -> None:
    etree.SubElement(signature, f"{{{DS}}}Object").append(element)


def wrapping_1() -> Any:
    """The signed Response is inside the Signature of a forged Response."""
    root = parsed("response")
    original = unsigned_copy(root)
    within_object(forge(root).find(SIGNATURE), original)
    return root


def wrapping_2() -> Any:
    """The signed Response is beside its Signature, in a forged Response."""
    root = parsed("response")
    original = unsigned_copy(root)
    forge(root).find(SIGNATURE).addprevious(original)
    return root


def wrapping_3() -> Any:
    """A forged Assertion stands before the signed one."""
    root = parsed("assertion")
    original = root.find(ASSERTION)
    original.addprevious(forge(unsigned_copy(original)))
    return root


def wrapping_4() -> Any:
    """The signed Assertion is inside a forged one."""
    root = parsed("assertion")
    original = root.find(ASSERTION)
    forged = forge(unsigned_copy(original))
    root.replace(original, forged)
    forged.append(original)
    return root


def wrapping_5() -> Any:
    """A forged Assertion has the Signature, and the signed one is at the end."""
    root = parsed("assertion")
    assertion = root.find(ASSERTION)
    original = unsigned_copy(assertion)
    forge(assertion)
    root.append(original)
    return root


def wrapping_6() -> Any:
    """A forged Assertion has the Signature, and the signed Assertion is directly inside that."""
    root = parsed("assertion")
    assertion = root.find(ASSERTION)
    original = unsigned_copy(assertion)
    forge(assertion).find(SIGNATURE).append(original)
    return root


def wrapping_7() -> Any:
    """A forged Assertion is inside Extensions, before the signed one."""
    root = parsed("assertion")
    original = root.find(ASSERTION)
    extensions = etree.Element(f"{{{SAMLP}}}Extensions")
    extensions.append(forge(unsigned_copy(original)))
    original.addprevious(extensions)
    return root


def wrapping_8() -> Any:
    """A forged Assertion has the Signature, and the signed Assertion is in an Object inside that."""
    root = parsed("assertion")
    assertion = root.find(ASSERTION)
    original = unsigned_copy(assertion)
    within_object(forge(assertion).find(SIGNATURE), original)
    return root


CLASSES = [wrapping_1, wrapping_2, wrapping_3, wrapping_4, wrapping_5, wrapping_6, wrapping_7, wrapping_8]


def rejected(attack: Callable[[], Any]) -> str:
    reason, received = problem(etree.tostring(attack()))
    assert reason is Reason.MALFORMED
    return received


def test_wrapping_1_is_rejected() -> None:
    assert rejected(wrapping_1) == "The document has 2 assertions."


def test_wrapping_2_is_rejected() -> None:
    assert rejected(wrapping_2) == "The document has 2 assertions."


def test_wrapping_3_is_rejected() -> None:
    assert rejected(wrapping_3) == "The document has 2 assertions."


def test_wrapping_4_is_rejected() -> None:
    assert rejected(wrapping_4) == "The document has 2 assertions."


def test_wrapping_5_is_rejected() -> None:
    assert rejected(wrapping_5) == "The document has 2 assertions."


def test_wrapping_6_is_rejected() -> None:
    assert rejected(wrapping_6) == "The document has 2 assertions."


def test_wrapping_7_is_rejected() -> None:
    assert rejected(wrapping_7) == "The document has 2 assertions."


def test_wrapping_8_is_rejected() -> None:
    assert rejected(wrapping_8) == "The document has 2 assertions."


@pytest.mark.parametrize("attack", CLASSES, ids=lambda attack: attack.__name__)
def test_wrapping_passes_the_library_alone(attack: Callable[[], Any]) -> None:
    """The attacks are real: signxml by itself verifies each document, so that only the profile rejects it."""
    document = etree.tostring(attack())
    result = signxml.XMLVerifier().verify(document, x509_cert=rsa_signer().certificate, validate_schema=False)
    assert not isinstance(result, list)
    assert result.signed_xml is not None
    assert ATTACKER in document.decode()


def test_signed_copy_under_another_name_is_rejected() -> None:
    """The signed Assertion is renamed to what nothing counts, and the forged one refers to it."""
    root = parsed("assertion")
    assertion = root.find(ASSERTION)
    original = unsigned_copy(assertion)
    forge(assertion)
    original.tag = f"{{{SAML}}}Advice"
    root.append(original)
    assert rejected(lambda: root) == "A Reference is not to the parent of its Signature."


def test_foreign_assertion_element_counts() -> None:
    root = parsed("assertion")
    etree.SubElement(root, "{urn:other}Assertion")
    assert rejected(lambda: root) == "The document has 2 assertions."


def test_assertion_below_another_element_is_rejected() -> None:
    root = parsed("assertion")
    etree.SubElement(root, f"{{{SAMLP}}}Extensions").append(root.find(ASSERTION))
    assert rejected(lambda: root) == "The Assertion is not a child of the Response."


def test_root_that_is_no_response_is_rejected() -> None:
    assertion = parsed("assertion").find(ASSERTION)
    assert problem(etree.tostring(assertion, with_tail=False))[0] is Reason.MALFORMED
