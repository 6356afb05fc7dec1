"""Responses as four products write them: prefixes, order, name spaces, what is signed, what is encrypted."""

from tests.federation.saml.identity_provider import (
    ACS,
    BEARER,
    IDP,
    REQUEST,
    SAML,
    SAMLP,
    SP,
    SUBJECT,
    SUCCESS,
    Style,
    at,
    encrypted_text,
    rsa_signer,
    sign,
)

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
XS, XSI = "http://www.w3.org/2001/XMLSchema", "http://www.w3.org/2001/XMLSchema-instance"
ENTITY = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"


def okta() -> bytes:
    """Both signed, the prefix `xs` in the list of inclusive prefixes, a declaration."""
    issuer = f'<saml2:Issuer xmlns:saml2="{SAML}" Format="{ENTITY}">{IDP}</saml2:Issuer>'
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><saml2p:Response Destination="{ACS}" ID="id1093" '
        f'InResponseTo="{REQUEST}" IssueInstant="{at()}" Version="2.0" xmlns:saml2p="{SAMLP}" xmlns:xs="{XS}">'
        f"{issuer}@response@"
        f'<saml2p:Status xmlns:saml2p="{SAMLP}"><saml2p:StatusCode Value="{SUCCESS}"/></saml2p:Status>'
        f'<saml2:Assertion ID="id2094" IssueInstant="{at()}" Version="2.0" xmlns:saml2="{SAML}" xmlns:xs="{XS}">'
        f'{issuer}@assertion@<saml2:Subject xmlns:saml2="{SAML}"><saml2:NameID '
        f'Format="urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress">{SUBJECT}</saml2:NameID>'
        f'<saml2:SubjectConfirmation Method="{BEARER}"><saml2:SubjectConfirmationData InResponseTo="{REQUEST}" '
        f'NotOnOrAfter="{at(minutes=5)}" Recipient="{ACS}"/></saml2:SubjectConfirmation></saml2:Subject>'
        f'<saml2:Conditions NotBefore="{at(minutes=-5)}" NotOnOrAfter="{at(minutes=5)}" xmlns:saml2="{SAML}">'
        f"<saml2:AudienceRestriction><saml2:Audience>{SP}</saml2:Audience></saml2:AudienceRestriction></saml2:Conditions>"
        f'<saml2:AuthnStatement AuthnInstant="{at()}" SessionIndex="{REQUEST}" xmlns:saml2="{SAML}"><saml2:AuthnContext>'
        f"<saml2:AuthnContextClassRef>{PASSWORD}</saml2:AuthnContextClassRef></saml2:AuthnContext></saml2:AuthnStatement>"
        f'<saml2:AttributeStatement xmlns:saml2="{SAML}"><saml2:Attribute Name="email" '
        'NameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:unspecified">'
        f'<saml2:AttributeValue xmlns:xs="{XS}" xmlns:xsi="{XSI}" xsi:type="xs:string">{SUBJECT}</saml2:AttributeValue>'
        "</saml2:Attribute></saml2:AttributeStatement></saml2:Assertion></saml2p:Response>"
    )
    style = Style(prefix_list="xs")
    text = sign(text, "assertion", "id2094", rsa_signer(), style)
    return sign(text, "response", "id1093", rsa_signer(), style).encode()


def entra() -> bytes:
    """The assertion signed, default name spaces everywhere, milliseconds, names that are URLs."""
    text = (
        f'<samlp:Response ID="_0f0d9d4c-7a3f" Version="2.0" IssueInstant="{at()}" Destination="{ACS}" '
        f'InResponseTo="{REQUEST}" xmlns:samlp="{SAMLP}"><Issuer xmlns="{SAML}">{IDP}</Issuer>'
        f'<samlp:Status><samlp:StatusCode Value="{SUCCESS}"/></samlp:Status>'
        f'<Assertion ID="_b8b8e0d1-1700" IssueInstant="{at()}" Version="2.0" xmlns="{SAML}"><Issuer>{IDP}</Issuer>'
        "@assertion@<Subject>"
        f'<NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">{SUBJECT}</NameID>'
        f'<SubjectConfirmation Method="{BEARER}"><SubjectConfirmationData InResponseTo="{REQUEST}" '
        f'NotOnOrAfter="{at(minutes=60)}" Recipient="{ACS}"/></SubjectConfirmation></Subject>'
        f'<Conditions NotBefore="{at(minutes=-5)}" NotOnOrAfter="{at(minutes=60)}"><AudienceRestriction>'
        f"<Audience>{SP}</Audience></AudienceRestriction></Conditions><AttributeStatement>"
        '<Attribute Name="http://schemas.microsoft.com/identity/claims/tenantid"><AttributeValue>9c1a</AttributeValue>'
        '</Attribute><Attribute Name="http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress">'
        f"<AttributeValue>{SUBJECT}</AttributeValue></Attribute></AttributeStatement>"
        f'<AuthnStatement AuthnInstant="{at(hours=-2)}" SessionIndex="_b8b8e0d1-1700"><AuthnContext>'
        f"<AuthnContextClassRef>{PASSWORD}</AuthnContextClassRef></AuthnContext></AuthnStatement></Assertion>"
        "</samlp:Response>"
    )
    return sign(text, "assertion", "_b8b8e0d1-1700", rsa_signer(), Style(prefix="")).encode()


def keycloak_style() -> Style:
    """The key also by name and value."""
    numbers = (
        "<dsig:RSAKeyValue><dsig:Modulus>AQAB</dsig:Modulus><dsig:Exponent>AQAB</dsig:Exponent></dsig:RSAKeyValue>"
    )
    key_info = (
        "<dsig:KeyInfo><dsig:KeyName>kXkfSj_Vyv</dsig:KeyName><dsig:X509Data><dsig:X509Certificate>"
        f"{rsa_signer().base64}</dsig:X509Certificate></dsig:X509Data><dsig:KeyValue>{numbers}</dsig:KeyValue></dsig:KeyInfo>"
    )
    return Style(prefix="dsig", key_info=key_info)


def keycloak_text() -> str:
    """One attribute a role, the end of the session, the prefix of the assertion declared by the Response."""
    roles = "".join(
        '<saml:Attribute FriendlyName="Role" Name="Role" NameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:basic">'
        f'<saml:AttributeValue xmlns:xs="{XS}" xmlns:xsi="{XSI}" xsi:type="xs:string">{role}</saml:AttributeValue>'
        "</saml:Attribute>"
        for role in ("offline_access", "uma_authorization")
    )
    return (
        f'<samlp:Response xmlns:samlp="{SAMLP}" xmlns:saml="{SAML}" Destination="{ACS}" ID="ID_3ac2" '
        f'InResponseTo="{REQUEST}" IssueInstant="{at()}" Version="2.0"><saml:Issuer>{IDP}</saml:Issuer>@response@'
        f'<samlp:Status><samlp:StatusCode Value="{SUCCESS}"/></samlp:Status>'
        f'<saml:Assertion xmlns="{SAML}" ID="ID_5577" IssueInstant="{at()}" Version="2.0"><saml:Issuer>{IDP}</saml:Issuer>'
        '@assertion@<saml:Subject><saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">'
        f'{SUBJECT}</saml:NameID><saml:SubjectConfirmation Method="{BEARER}"><saml:SubjectConfirmationData '
        f'InResponseTo="{REQUEST}" NotOnOrAfter="{at(minutes=5)}" Recipient="{ACS}"/></saml:SubjectConfirmation>'
        f'</saml:Subject><saml:Conditions NotBefore="{at(seconds=-2)}" NotOnOrAfter="{at(minutes=1)}">'
        f"<saml:AudienceRestriction><saml:Audience>{SP}</saml:Audience></saml:AudienceRestriction></saml:Conditions>"
        f'<saml:AuthnStatement AuthnInstant="{at()}" SessionIndex="1f::2b" SessionNotOnOrAfter="{at(hours=10)}">'
        "<saml:AuthnContext><saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified"
        f"</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement>{roles}"
        "</saml:AttributeStatement></saml:Assertion></samlp:Response>"
    )


def keycloak() -> bytes:
    """The Response signed."""
    text = keycloak_text().replace("@assertion@", "")
    return sign(text, "response", "ID_3ac2", rsa_signer(), keycloak_style()).encode()


def keycloak_encrypted(signed: str = "response") -> bytes:
    """The assertion encrypted as it stands in the Response; `signed` names what is: `response` or `assertion`."""
    text = keycloak_text()
    if signed == "assertion":
        text = sign(text, "assertion", "ID_5577", rsa_signer(), keycloak_style())
    text = text.replace("@assertion@", "")
    assertion = text[text.index("<saml:Assertion ") : text.index("</samlp:Response>")]
    text = text.replace(assertion, encrypted_text(assertion.encode()))
    if signed == "response":
        text = sign(text, "response", "ID_3ac2", rsa_signer(), keycloak_style())
    return text.replace("@response@", "").encode()


def google() -> bytes:
    """The Response signed, line breaks in the values of the signature, an attribute without values."""
    issuer = f'<saml2:Issuer xmlns:saml2="{SAML}">{IDP}</saml2:Issuer>'
    text = (
        f'<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n<saml2p:Response xmlns:saml2p="{SAMLP}" '
        f'Destination="{ACS}" ID="_8e8dc5f69a" InResponseTo="{REQUEST}" IssueInstant="{at()}" Version="2.0">{issuer}'
        f'@response@<saml2p:Status><saml2p:StatusCode Value="{SUCCESS}"/></saml2p:Status>'
        f'<saml2:Assertion xmlns:saml2="{SAML}" ID="_d71a3a8e9f" IssueInstant="{at()}" Version="2.0">'
        f"<saml2:Issuer>{IDP}</saml2:Issuer><saml2:Subject>"
        f'<saml2:NameID Format="urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified">{SUBJECT}</saml2:NameID>'
        f'<saml2:SubjectConfirmation Method="{BEARER}"><saml2:SubjectConfirmationData InResponseTo="{REQUEST}" '
        f'NotOnOrAfter="{at(minutes=5)}" Recipient="{ACS}"/></saml2:SubjectConfirmation></saml2:Subject>'
        f'<saml2:Conditions NotBefore="{at(minutes=-5)}" NotOnOrAfter="{at(minutes=5)}"><saml2:AudienceRestriction>'
        f"<saml2:Audience>{SP}</saml2:Audience></saml2:AudienceRestriction></saml2:Conditions><saml2:AttributeStatement>"
        '<saml2:Attribute Name="department"/></saml2:AttributeStatement>'
        f'<saml2:AuthnStatement AuthnInstant="{at(minutes=-9)}" SessionIndex="_d71a3a8e9f"><saml2:AuthnContext>'
        "<saml2:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified</saml2:AuthnContextClassRef>"
        "</saml2:AuthnContext></saml2:AuthnStatement></saml2:Assertion></saml2p:Response>"
    )
    return sign(text, "response", "_8e8dc5f69a", rsa_signer(), Style(inner_space="\n")).encode()
