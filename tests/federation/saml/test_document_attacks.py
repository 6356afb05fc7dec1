"""Attacks on parsers: documents that two parsers read differently, and documents that take long to read."""

import base64
import gzip
import zlib

import pytest

from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.responses import decode_form_value, unverified_request_id
from tests.federation.saml.identity_provider import (
    SUBJECT,
    Claims,
    assertion_text,
    read,
    respond,
    response_text,
    rsa_signer,
    sign,
)
from tests.federation.saml.identity_provider import Style as SignatureStyle
from tests.federation.saml.rejected import problem, reason

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'


def signed_response() -> str:
    return respond().decode()


def malformed(text: str | bytes) -> str:
    """Return why a document is malformed."""
    reason, received = problem(text.encode() if isinstance(text, str) else text)
    assert reason is Reason.MALFORMED
    return received


# --- what two parsers read differently ---------------------------------------------------------------------------------


def test_comment_in_name_id_is_rejected() -> None:
    """Canonicalization drops the comment, so the signature stays valid, and many readers stop at it (CVE-2017-11427)."""
    signed = respond(Claims(subject="admin@customer.example.attacker.example")).decode()
    assert malformed(signed.replace(".attacker", "<!---->.attacker")) == "The document has a comment."


def test_signed_comment_in_name_id_is_rejected() -> None:
    name_id = "<saml:NameID>admin@customer.example<!---->.attacker.example</saml:NameID>"
    assert malformed(respond(Claims(name_id=name_id))) == "The document has a comment."


def test_processing_instruction_is_rejected() -> None:
    assert (
        malformed(signed_response().replace(SUBJECT, f"<?x?>{SUBJECT}")) == "The document has a processing instruction."
    )


def test_document_type_is_rejected() -> None:
    assert malformed(f"<!DOCTYPE Response>{signed_response()}") == "The document has a document type."


def test_entity_is_rejected() -> None:
    entity = '<!DOCTYPE r [<!ENTITY who "admin@customer.example">]>'
    assert malformed(entity + signed_response().replace(SUBJECT, "&who;")) == "The document has a document type."


def test_external_entity_is_rejected() -> None:
    entity = '<!DOCTYPE r [<!ENTITY file SYSTEM "file:///etc/hostname">]>'
    assert malformed(entity + signed_response().replace(SUBJECT, "&file;")) == "The document has a document type."


def test_default_attribute_of_document_type_is_rejected() -> None:
    """One parser adds the attribute, another one does not ("The Fragile Lock", 2025)."""
    declared = '<!DOCTYPE r [<!ATTLIST saml:Assertion ID CDATA "_evil">]>'
    assert malformed(f"{DECLARATION}{declared}{signed_response()}") == "The document has a document type."


def test_undeclared_entity_is_rejected() -> None:
    assert malformed(signed_response().replace(SUBJECT, "&who;")) == "This is not well-formed XML."


def test_markup_in_text_section_is_text() -> None:
    """A CDATA section is text for every parser, and the value is read from the canonical form."""
    claims = Claims(name_id="<saml:NameID><![CDATA[<b>alice</b>]]></saml:NameID>")
    assert read(respond(claims)).subject == "<b>alice</b>"


@pytest.mark.parametrize("name", ["samlp:ID", "saml:ID", "xml:id", "saml:id", "samlp:Id"])
def test_id_with_namespace_is_rejected(name: str) -> None:
    assert (
        malformed(signed_response().replace("<saml:Subject>", f'<saml:Subject {name}="_a1">'))
        == "An ID has a namespace."
    )


@pytest.mark.parametrize("name", ["ID", "Id", "id", "iD"])
def test_duplicate_id_is_rejected(name: str) -> None:
    assert (
        malformed(signed_response().replace("<saml:Subject>", f'<saml:Subject {name}="_a1">'))
        == "An ID is there twice."
    )


def test_response_with_id_of_the_assertion_is_rejected() -> None:
    assert malformed(respond(Claims(response_id="_a1"), signed="none")) == "An ID is there twice."


@pytest.mark.parametrize("identifier", ["", "1a", "#a", "a b", "é", "a" * 300])
def test_id_that_is_no_name_is_rejected(identifier: str) -> None:
    document = respond(Claims(response_id=identifier), signed="assertion")
    assert malformed(document) == "The ID of the Response is missing or not an ASCII name."


def test_second_assertion_is_rejected() -> None:
    claims = Claims()
    other = assertion_text(Claims(assertion_id="_a2", subject="admin@customer.example"))
    text = response_text(claims, assertion_text(claims) + other.replace("@assertion@", ""))
    text = sign(text, "assertion", "_a1", rsa_signer(), SignatureStyle()).replace("@response@", "")
    assert malformed(text) == "The document has 2 assertions."


def test_two_signed_assertions_are_rejected() -> None:
    claims = Claims()
    other = assertion_text(Claims(assertion_id="_a2")).replace("@assertion@", "@other@")
    text = response_text(claims, assertion_text(claims) + other)
    text = sign(text, "assertion", "_a1", rsa_signer(), SignatureStyle())
    text = sign(text, "other", "_a2", rsa_signer(), SignatureStyle()).replace("@response@", "")
    assert malformed(text) == "The document has 2 assertions."


@pytest.mark.parametrize(
    ("honest", "changed"),
    [
        ("</saml:Assertion>", '<é xmlns="urn:x"/></saml:Assertion>'),
        ("<saml:Subject>", '<saml:Subject é="x">'),
        ("<saml:Subject>", '<saml:Subject xmlns:é="urn:x">'),
        ("<samlp:Response ", '<samlp:Response xmlns:é="urn:x" '),
        ("<samlp:Status>", '<é:x xmlns:é="urn:x"/><samlp:Status>'),
        ("<samlp:Status>", '<x xmlns:x="urn:x" x:é=""/><samlp:Status>'),
    ],
)
@pytest.mark.parametrize("signed", ["assertion", "response"])
def test_name_that_is_not_ascii_is_rejected(honest: str, changed: str, signed: str) -> None:
    text = respond(signed=signed).decode().replace(honest, changed, 1)
    assert malformed(text) == "A name of the document is not ASCII."


# --- encodings -----------------------------------------------------------------------------------------------------------


def test_byte_order_mark_and_declaration_are_accepted() -> None:
    assert read(b"\xef\xbb\xbf" + DECLARATION.encode() + respond()).subject == SUBJECT


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_rejected(encoding: str) -> None:
    text = signed_response()
    assert reason(text.encode(encoding)) is Reason.MALFORMED
    assert reason((DECLARATION.replace("UTF-8", encoding) + text).encode(encoding)) is Reason.MALFORMED


@pytest.mark.parametrize("encoding", ["UTF-7", "UTF-16", "ISO-8859-1", "cp037", "utf-8-sig", ""])
def test_declared_encoding_is_utf_8(encoding: str) -> None:
    assert (
        malformed(DECLARATION.replace("UTF-8", encoding) + signed_response()) == "The document is not XML 1.0 in UTF-8."
    )


def test_other_version_of_xml_is_rejected() -> None:
    assert malformed(DECLARATION.replace("1.0", "1.1") + signed_response()) == "The document is not XML 1.0 in UTF-8."


@pytest.mark.parametrize("part", [b"\0", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80"])
def test_invalid_characters_are_rejected(part: bytes) -> None:
    assert reason(respond().replace(b"alice", b"al" + part + b"ice")) is Reason.MALFORMED


def test_nul_is_rejected() -> None:
    """UTF-16 without a byte order mark is UTF-8 with NULs."""
    assert malformed(signed_response().encode("utf-16-le")) == "The document contains a NUL."


@pytest.mark.parametrize("document", [b"", b" ", b"<", b"<a>", b"<a/><b/>", b"text", b"\xef\xbb\xbf", b"{}"])
def test_what_is_no_xml_is_rejected(document: bytes) -> None:
    assert reason(document) is Reason.MALFORMED


# --- what takes long -----------------------------------------------------------------------------------------------------


def test_long_document_is_rejected() -> None:
    padded = signed_response().replace("<samlp:Status>", " " * (256 * 1024) + "<samlp:Status>")
    assert malformed(padded) == "The document is longer than 262144 bytes."


def test_entity_bomb_is_rejected() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE r [<!ENTITY e0 "lol">{entities}]>' + signed_response().replace(SUBJECT, "&e9;")
    assert malformed(bomb) == "The document has a document type."


def test_compressed_bomb_is_not_decompressed() -> None:
    """DEFLATE belongs to the redirect binding; here compressed bytes are no XML."""
    bomb = b"<a>" + b" " * 5_000_000 + b"</a>"
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    for compressed in (deflate.compress(bomb) + deflate.flush(), zlib.compress(bomb), gzip.compress(bomb)):
        document = decode_form_value(base64.b64encode(compressed).decode())
        assert document == compressed
        assert reason(document) is Reason.MALFORMED


@pytest.mark.parametrize("depth", [40, 200, 20_000])
def test_deep_document_is_rejected(depth: int) -> None:
    nested = signed_response().replace("<samlp:Status>", "<x>" * depth + "</x>" * depth + "<samlp:Status>")
    assert malformed(nested) in ("The document has more than 32 levels.", "This is not well-formed XML.")


def test_many_elements_are_rejected() -> None:
    many = signed_response().replace("<samlp:Status>", "<x/>" * 5000 + "<samlp:Status>")
    assert malformed(many) == "The document has more than 5000 elements."


def test_many_elements_are_not_parsed_to_the_end() -> None:
    """The end of the document, which is not well-formed, is not reached."""
    assert malformed("<a>" + "<x/>" * 20_000 + "</b>") == "The document has more than 5000 elements."


def test_assertion_with_thousands_of_groups_is_accepted() -> None:
    values = "<saml:AttributeValue>g</saml:AttributeValue>" * 4900
    statement = (
        f'<saml:AttributeStatement><saml:Attribute Name="groups">{values}</saml:Attribute></saml:AttributeStatement>'
    )
    assert len(read(respond(Claims(more=statement))).attributes["groups"]) == 4900


def test_many_attributes_are_rejected() -> None:
    attributes = " ".join(f'a{n}=""' for n in range(65))
    assert malformed(signed_response().replace("<saml:Subject>", f"<saml:Subject {attributes}>")) == (
        "An element has more than 64 attributes."
    )


def test_many_prefixes_are_rejected() -> None:
    prefixes = " ".join(f'xmlns:a{n}="urn:a"' for n in range(65))
    assert malformed(signed_response().replace("<saml:Subject>", f"<saml:Subject {prefixes}>")) == (
        "The document has more than 64 namespace prefixes."
    )


# --- the form field --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a", "abcd=", "<xml/>", "YQ==YQ==", "YQ=\0", "\u00a0YQ==", "Y-_Q", "A" * 400_000])
def test_form_field_that_is_not_base64_is_rejected(value: str) -> None:
    with pytest.raises(AssertionRejected) as caught:
        decode_form_value(value)
    assert caught.value.reason is Reason.MALFORMED


def test_reading_the_request_id_rejects_the_same_documents() -> None:
    for document in (b"<a/>", b"<!DOCTYPE a><a/>", b"\xff"):
        with pytest.raises(AssertionRejected) as caught:
            unverified_request_id(document)
        assert caught.value.reason is Reason.MALFORMED
