"""Identity providers of others: `samlify` and `saml-idp` from npm, unchanged, each in a process of its own.

`saml-idp` demands the library `samlp` from a branch on GitHub. The package file overrides that with `samlp` as its authors
publish it in npm, so that everything is installed from the registry, with hashes.
"""

import base64
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import lxml.html
import requests
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509 import load_der_x509_certificate
from lxml import etree

from federation.saml.requests import AuthnRequest
from tests.federation.saml.identity_provider import DS, Signer
from tests.machine.conftest import free_port, within
from tests.openid.node_client import node_programs

FOLDER: Final = Path(__file__).parent / "node"
SECONDS: Final = 60
METADATA: Final = "urn:oasis:names:tc:SAML:2.0:metadata"


class ProviderError(Exception):
    """The identity provider rejects a call. The text is its own."""


class User(NamedTuple):
    """What a provider says about the user. Both can say these names."""

    subject: str
    email: str
    groups: tuple[str, ...]


class ReadRequest(NamedTuple):
    """What a provider has read in a request."""

    id: str
    issuer: str
    acs_url: str
    destination: str


class Provider(Protocol):
    """An identity provider with an entity id. `signer` is its key and its certificate, for each call."""

    entity_id: str
    location: str

    def metadata(self, signer: Signer) -> bytes: ...

    def read_request(self, form_value: str, *, service_provider: bytes) -> ReadRequest:
        """Return what the request says. Raises ProviderError unless the key in the metadata has signed it."""

    def respond(
        self,
        request: AuthnRequest,
        user: User,
        *,
        service_provider: bytes,
        signer: Signer,
        signed: str = "assertion",
        encryption: str = "",
        **options: Any,
    ) -> bytes:
        """Return the response; `signed` says what is, `encryption` is the algorithm if the assertion is encrypted."""


def pem_of_key(signer: Signer) -> str:
    return signer.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


def pem_of_certificate(signer: Signer) -> str:
    return signer.certificate.public_bytes(Encoding.PEM).decode()


# --- samlify -----------------------------------------------------------------------------------------------------------------


class Samlify:
    """An identity provider made with the library, which reads the metadata of service providers."""

    entity_id = "https://idp.customer.example/samlify"
    location = "https://idp.customer.example/samlify/sso"

    def __init__(self, process: "subprocess.Popen[str]", signer: Signer) -> None:
        self._process, self._signer = process, signer

    def metadata(self, signer: Signer) -> bytes:
        return str(self._call("metadata", signer)["metadata"]).encode()

    def read_request(self, form_value: str, *, service_provider: bytes) -> ReadRequest:
        parameters = {"samlRequest": form_value, "serviceProvider": service_provider.decode()}
        read = self._call("readRequest", self._signer, **parameters)["request"]
        request = read["request"]
        return ReadRequest(
            request["id"], read["issuer"], request["assertionConsumerServiceUrl"], request["destination"]
        )

    def respond(
        self,
        request: AuthnRequest,
        user: User,
        *,
        service_provider: bytes,
        signer: Signer,
        signed: str = "assertion",
        encryption: str = "",
        **options: Any,
    ) -> bytes:
        """Return the response. Our metadata demands signed assertions, so the library always signs them."""
        attributes = [("email", user.email), *(("groups", group) for group in user.groups)]
        response = self._call(
            "respond",
            signer,
            **{
                "serviceProvider": service_provider.decode(),
                "samlRequest": request.form_value(),
                "user": {"subject": user.subject, "attributes": attributes},
                "signResponse": signed == "both",
                "encryption": encryption,
                "encryptThenSign": True,
                **options,
            },
        )
        return base64.b64decode(response["samlResponse"])

    def _call(self, function: str, signer: Signer, **parameters: Any) -> dict[str, Any]:
        settings = {
            "entityId": self.entity_id,
            "location": self.location,
            "key": pem_of_key(signer),
            "certificate": pem_of_certificate(signer),
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"call": function, **settings, **parameters}) + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in result:
            raise ProviderError(result["error"])
        return result


@contextlib.contextmanager
def run_samlify(signer: Signer) -> Iterator[Samlify]:
    with node_process("samlify.mjs", stdout=subprocess.PIPE) as process:
        yield Samlify(process, signer)


# --- saml-idp ----------------------------------------------------------------------------------------------------------------


class SamlIdp:
    """The program behind HTTP: its administrator sets it up by a form, and its user signs in by another.

    It reads no metadata and verifies no request; its administrator copies the values. The library `samlp`, with which it
    responds, verifies requests.
    """

    entity_id = "https://idp.customer.example/saml-idp"

    def __init__(self, address: str) -> None:
        self._address = address
        self.location = f"{address}/saml/sso"
        self._session = requests.Session()

    def metadata(self, signer: Signer) -> bytes:
        self._set_up(key=pem_of_key(signer), cert=pem_of_certificate(signer))
        response = self._session.get(f"{self._address}/metadata", timeout=SECONDS)
        response.raise_for_status()
        return response.content

    def read_request(self, form_value: str, *, service_provider: bytes) -> ReadRequest:
        (certificate,) = _certificates(service_provider, "signing")
        call = {"samlRequest": form_value, "certificate": certificate}
        node, _ = node_programs()
        done = subprocess.run(
            [node, FOLDER / "samlp.mjs"],
            input=json.dumps(call),
            capture_output=True,
            check=True,
            env=_environment(),
            text=True,
            timeout=SECONDS,
        )
        result = json.loads(done.stdout)
        if "error" in result:
            raise ProviderError(result["error"])
        read = result["request"]
        return ReadRequest(read["id"], read["issuer"], read["assertionConsumerServiceURL"], read["destination"])

    def respond(
        self,
        request: AuthnRequest,
        user: User,
        *,
        service_provider: bytes,
        signer: Signer,
        signed: str = "assertion",
        encryption: str = "",
        **options: Any,
    ) -> bytes:
        """Set the program up for a service provider, send the request as a browser and sign in."""
        root = etree.fromstring(service_provider)
        acs_url = root.find(f".//{{{METADATA}}}AssertionConsumerService").get("Location")
        self._set_up(
            key=pem_of_key(signer),
            cert=pem_of_certificate(signer),
            audience=root.get("entityID"),
            acsUrl=acs_url,
            recipient=acs_url,
            destination=acs_url,
            # As metadata of the service provider: the request decides nothing.
            allowRequestAcsUrl="no",
            lifetimeInSeconds="300",
            signResponse="no" if signed == "assertion" else "yes",
            signAssertion="no" if signed == "response" else "yes",
            encryptAssertion="yes" if encryption else "no",
            encryptionAlgorithm=encryption,
            # The program is set up for AES-CBC, which this version of its library must be told to allow.
            disallowEncryptionWithInsecureAlgorithm="no",
            **_encryption_settings(service_provider),
            **options,
        )
        page = self._session.post(self.location, data={"SAMLRequest": request.form_value()}, timeout=SECONDS)
        (sign_in,) = [form for form in lxml.html.fromstring(page.text).forms if form.action == "/signin"]
        fields = {"userName": user.subject, "email": user.email, "groups": ",".join(user.groups)}
        fields = {**dict(sign_in.form_values()), **fields}
        page = self._session.post(f"{self._address}{sign_in.action}", data=fields, timeout=SECONDS)
        page.raise_for_status()
        (form,) = lxml.html.fromstring(page.text).forms
        return base64.b64decode(form.fields["SAMLResponse"])

    def _set_up(self, **settings: Any) -> None:
        self._session.post(f"{self._address}/settings", data=settings, timeout=SECONDS).raise_for_status()


@contextlib.contextmanager
def run_saml_idp(signer: Signer) -> Iterator[SamlIdp]:
    """Run the program, whose settings each response changes."""
    port = free_port()
    settings = {
        "host": "127.0.0.1",
        "port": port,
        "issuer": SamlIdp.entity_id,
        "key": pem_of_key(signer),
        "cert": pem_of_certificate(signer),
        "acsUrl": "https://unused.example/acs",
        "audience": "https://unused.example",
    }
    with node_process("saml_idp.mjs", stdout=subprocess.DEVNULL) as process:
        assert process.stdin
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        assert within(SECONDS, lambda: _listens(port) or process.poll() is not None)
        assert process.poll() is None
        yield SamlIdp(f"http://127.0.0.1:{port}")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
    except OSError:
        return False
    return True


def _certificates(service_provider: bytes, use: str) -> list[str]:
    """Return the certificates in metadata, in base64."""
    path = f'.//{{{METADATA}}}KeyDescriptor[@use="{use}"]//{{{DS}}}X509Certificate'
    return [str(node.text) for node in etree.fromstring(service_provider).iterfind(path)]


def _encryption_settings(service_provider: bytes) -> dict[str, str]:
    """Return the settings for the key that the metadata names for encryption."""
    (encoded,) = _certificates(service_provider, "encryption")
    certificate = load_der_x509_certificate(base64.b64decode(encoded))
    key = certificate.public_key()
    return {
        "encryptionCert": certificate.public_bytes(Encoding.PEM).decode(),
        "encryptionPublicKey": key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
    }


# --- processes ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def node_process(program: str, *, stdout: int) -> "Iterator[subprocess.Popen[str]]":
    """Run a program of the folder. What it writes to standard error is shown with a test that fails."""
    node, _ = node_programs()
    with subprocess.Popen(
        [node, FOLDER / program],
        stdin=subprocess.PIPE,
        stdout=stdout,
        env=_environment(),
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "NODE_NO_WARNINGS": "1"}
