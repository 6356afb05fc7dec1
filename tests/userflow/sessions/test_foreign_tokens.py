"""ID tokens of identity providers: each attack is rejected for its own reason."""

import base64
import hashlib
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.userflow.clients.keys import PrivateKey, key_set, new_key, public_jwk
from tests.userflow.sessions.foreign import (
    CLIENT,
    ISSUER,
    KEY,
    KID,
    MOMENT,
    NONCE,
    REMOVED,
    hmac_token,
    id_claims,
    keys_of,
    logout_claims,
    segment,
    token,
)
from userflow.sessions.client_keys import ClientKey, read_key_set
from userflow.sessions.foreign_tokens import (
    LONGEST,
    Expected,
    ForeignKeyUnknown,
    ForeignTokenInvalid,
    TokenProblem,
    issuer_matches,
    verify_id_token,
)

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
MICROSOFT = "https://login.microsoftonline.com/{tenantid}/v2.0"


def read(
    encoded: str, *, issuer: str = ISSUER, keys: tuple[ClientKey, ...] | None = None, **more: Any
) -> dict[str, Any]:
    expected = Expected(issuer, CLIENT, **more.pop("allowed", {}))
    keys = keys_of() if keys is None else keys
    return verify_id_token(encoded, keys=keys, expected=expected, nonce=NONCE, moment=MOMENT, **more)


def rejection(encoded: str, **more: Any) -> TokenProblem:
    with pytest.raises(ForeignTokenInvalid) as caught:
        read(encoded, **more)
    return caught.value.problem


# --- what is accepted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "alg"),
    [
        (new_key(), "ES256"),
        (new_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (rsa.generate_private_key(65537, 2048), "PS256"),
    ],
    ids=["ES256", "ES384", "EdDSA", "RS256", "PS256"],
)
def test_id_token_of_each_algorithm_is_accepted(key: PrivateKey, alg: str) -> None:
    hashes = {"ES384": hashlib.sha384, "EdDSA": hashlib.sha512}
    digest = hashes.get(alg, hashlib.sha256)(b"access").digest()
    at_hash = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
    encoded = token(id_claims(at_hash=at_hash), key=key, alg=alg)
    assert read(encoded, keys=keys_of(key), access_token="access")["sub"] == "248289761001"


def test_id_token_without_kid_is_accepted() -> None:
    encoded = jwt.PyJWS().encode(json.dumps(id_claims()).encode(), KEY, algorithm="ES256")
    assert read(encoded, keys=(*keys_of(new_key(), "other"), *keys_of()))["iss"] == ISSUER


def test_key_without_kid_verifies_token_with_kid() -> None:
    assert read(token(id_claims()), keys=keys_of(kid=None))["iss"] == ISSUER


def test_addresses_of_keys_in_the_header_are_ignored() -> None:
    header = {"jku": "https://attacker.example/jwks", "x5u": "https://attacker.example/cert", "x5c": ["MIIB"]}
    assert read(token(id_claims(), header=header))["iss"] == ISSUER
    assert rejection(token(id_claims(), key=new_key(), header=header)) == TokenProblem.SIGNATURE


def test_audience_may_be_a_list_with_authorized_party() -> None:
    assert read(token(id_claims(aud=[CLIENT])))["aud"] == [CLIENT]
    assert read(token(id_claims(aud=[CLIENT, "api"], azp=CLIENT)))["azp"] == CLIENT


def test_issuer_of_any_microsoft_tenant_is_compared_with_tid() -> None:
    issuer = MICROSOFT.replace("{tenantid}", TENANT)
    assert read(token(id_claims(iss=issuer, tid=TENANT)), issuer=MICROSOFT)["tid"] == TENANT


# --- form, header and signature --------------------------------------------------------------------------------------


def test_jws_in_json_form_is_rejected() -> None:
    header, payload, signature = token(id_claims()).split(".")
    flattened = json.dumps({"protected": header, "payload": payload, "signature": signature})
    general = json.dumps({"payload": payload, "signatures": [{"protected": header, "signature": signature}]})
    assert rejection(flattened) == rejection(general) == TokenProblem.FORMAT


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d.e",
        "€.€.€",
        "e30.e30.",
        "W10.e30.",
        "a.b.c\n",
        "bnVsbA.e30.AA",
        "A" * (LONGEST + 1),
    ],
)
def test_text_that_is_no_token_is_rejected(encoded: str) -> None:
    assert rejection(encoded) in (TokenProblem.FORMAT, TokenProblem.ALGORITHM)


def test_signed_token_that_is_too_long_is_rejected() -> None:
    encoded = token(id_claims(groups=["g" * LONGEST]))
    assert rejection(encoded) == TokenProblem.FORMAT


@pytest.mark.parametrize("payload", [b"[]", b'"text"', b"{", b'{"iss": NaN}', b'{"iss": "\\ud800"}', b"[" * 3000])
def test_payload_that_is_no_strict_json_object_is_rejected(payload: bytes) -> None:
    encoded = jwt.PyJWS().encode(payload, KEY, algorithm="ES256", headers={"kid": KID})
    assert rejection(encoded) == TokenProblem.FORMAT


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE"])
def test_unsigned_id_token_is_rejected(alg: str) -> None:
    unsigned = f"{segment({'alg': alg, 'kid': KID})}.{segment(id_claims())}."
    assert rejection(unsigned) == TokenProblem.ALGORITHM
    assert rejection(unsigned, allowed={"algorithms": frozenset({alg})}) == TokenProblem.ALGORITHM


@pytest.mark.parametrize("secret", ["public key", "empty", "public key in DER"])
def test_hmac_with_public_key_is_rejected(secret: str) -> None:
    public = KEY.public_key()
    secrets = {
        "public key": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "public key in DER": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "empty": b"",
    }
    forged = hmac_token(id_claims(), secrets[secret])
    assert rejection(forged) == TokenProblem.ALGORITHM
    assert rejection(forged, allowed={"algorithms": frozenset({"HS256"})}) == TokenProblem.ALGORITHM


def test_algorithm_outside_the_list_of_the_connection_is_rejected() -> None:
    only_rsa = {"algorithms": frozenset({"RS256"})}
    assert rejection(token(id_claims()), allowed=only_rsa) == TokenProblem.ALGORITHM


def test_key_of_another_algorithm_does_not_verify() -> None:
    key = rsa.generate_private_key(65537, 2048)
    keys = read_key_set(key_set(public_jwk(key, kid=KID, alg="RS256")))
    assert rejection(token(id_claims(), key=key, alg="PS256"), keys=keys) == TokenProblem.SIGNATURE


def test_key_in_the_header_is_rejected() -> None:
    attacker = new_key()
    encoded = token(id_claims(), key=attacker, header={"jwk": public_jwk(attacker)})
    assert rejection(encoded) == TokenProblem.HEADER


@pytest.mark.parametrize("crit", [["exp"], [], "exp", None, ["b64"]])
def test_critical_header_is_rejected(crit: Any) -> None:
    header = segment({"alg": "ES256", "kid": KID, "crit": crit, "b64": True})
    assert rejection(f"{header}.{segment(id_claims())}.AAAA") == TokenProblem.HEADER


@pytest.mark.parametrize("kid", [1, None, [], {}])
def test_kid_that_is_no_text_is_rejected(kid: Any) -> None:
    encoded = f"{segment({'alg': 'ES256', 'kid': kid})}.{segment(id_claims())}.AAAA"
    assert rejection(encoded) == TokenProblem.HEADER


@pytest.mark.parametrize("alg", [1, None, [], {"a": 1}, "\0", "ES512"])
def test_algorithm_that_is_no_name_is_rejected(alg: Any) -> None:
    problem = rejection(f"{segment({'alg': alg, 'kid': KID})}.{segment(id_claims())}.AAAA")
    assert problem == TokenProblem.ALGORITHM


def test_unknown_kid_raises_an_error_of_its_own() -> None:
    with pytest.raises(ForeignKeyUnknown) as caught:
        read(token(id_claims(), header={"kid": "second"}))
    assert (caught.value.problem, caught.value.expected, caught.value.received) == ("key_unknown", "first", "second")


def test_token_without_kid_may_be_of_an_unknown_key() -> None:
    encoded = jwt.PyJWS().encode(json.dumps(id_claims()).encode(), new_key(), algorithm="ES256")
    with pytest.raises(ForeignKeyUnknown) as caught:
        read(encoded)
    assert caught.value.problem == TokenProblem.SIGNATURE


def test_changed_payload_is_rejected() -> None:
    header, _, signature = token(id_claims()).split(".")
    forged = f"{header}.{segment(id_claims(sub='victim'))}.{signature}"
    with pytest.raises(ForeignTokenInvalid) as caught:
        read(forged)
    assert type(caught.value) is ForeignTokenInvalid
    assert caught.value.problem == TokenProblem.SIGNATURE


@pytest.mark.parametrize("token_type", ["at+jwt", "logout+jwt", "application/dpop+jwt", 1])
def test_token_of_another_type_is_no_id_token(token_type: Any) -> None:
    encoded = token(id_claims(), header={"typ": token_type})
    assert rejection(encoded) == TokenProblem.TYPE


# --- claims ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "issuer",
    [[ISSUER], [ISSUER, "https://attacker.example"], None, REMOVED, "", 1, {"a": 1}, f"{ISSUER}/", ISSUER.upper()],
)
def test_issuer_that_is_not_equal_is_rejected(issuer: Any) -> None:
    assert rejection(token(id_claims(iss=issuer))) == TokenProblem.ISSUER


@pytest.mark.parametrize(
    ("issuer_tenant", "tid"),
    [(TENANT, "9188040d-6c67-4c5b-b112-36a304b66dad"), (TENANT, REMOVED), (TENANT, None), ("evil", "evil"), ("", "")],
)
def test_issuer_of_another_microsoft_tenant_is_rejected(issuer_tenant: str, tid: Any) -> None:
    issuer = MICROSOFT.replace("{tenantid}", issuer_tenant)
    assert rejection(token(id_claims(iss=issuer, tid=tid)), issuer=MICROSOFT) == TokenProblem.ISSUER


def test_issuer_with_the_placeholder_itself_is_rejected() -> None:
    assert rejection(token(id_claims(iss=MICROSOFT, tid="{tenantid}")), issuer=MICROSOFT) == TokenProblem.ISSUER


@pytest.mark.parametrize(
    "audience", ["client-2", ["client-2"], [], [[CLIENT]], [CLIENT, 1], None, REMOVED, {CLIENT: 1}, ""]
)
def test_audience_of_another_client_is_rejected(audience: Any) -> None:
    assert rejection(token(id_claims(aud=audience, azp=CLIENT))) == TokenProblem.AUDIENCE


@pytest.mark.parametrize(
    "changes", [{"azp": "client-2"}, {"azp": None}, {"azp": [CLIENT]}, {"aud": [CLIENT, "client-2"]}]
)
def test_authorized_party_that_is_another_client_is_rejected(changes: dict[str, Any]) -> None:
    assert rejection(token(id_claims(**changes))) == TokenProblem.AUTHORIZED_PARTY


@pytest.mark.parametrize("nonce", [REMOVED, None, "", "another", 1, [NONCE], {"nonce": NONCE}, f"{NONCE} "])
def test_nonce_that_is_not_equal_is_rejected(nonce: Any) -> None:
    assert rejection(token(id_claims(nonce=nonce))) == TokenProblem.NONCE


@pytest.mark.parametrize("subject", [REMOVED, None, "", " ", "\t"])
def test_empty_subject_is_rejected(subject: Any) -> None:
    assert rejection(token(id_claims(sub=subject))) == TokenProblem.SUBJECT_EMPTY


@pytest.mark.parametrize("subject", [0, 248289761001, True, ["a"], {"a": 1}, "a\0b", "a\n", "a" * 256])
def test_subject_that_is_no_text_is_rejected(subject: Any) -> None:
    assert rejection(token(id_claims(sub=subject))) == TokenProblem.SUBJECT_INVALID


@pytest.mark.parametrize("changes", [{"exp": MOMENT - 50}, {"iat": MOMENT + 50}, {"nbf": MOMENT + 50}])
def test_clocks_50_seconds_apart_are_accepted(changes: dict[str, Any]) -> None:
    assert read(token(id_claims(**changes)))["sub"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"exp": MOMENT - 70}, TokenProblem.EXPIRED),
        ({"iat": MOMENT + 70}, TokenProblem.CLOCK_SKEW),
        ({"nbf": MOMENT + 70}, TokenProblem.CLOCK_SKEW),
    ],
)
def test_clocks_70_seconds_apart_are_rejected(changes: dict[str, Any], problem: TokenProblem) -> None:
    assert rejection(token(id_claims(**changes))) == problem


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", [None, "1700000000", True, -1, 1e300, []])
def test_date_that_is_no_number_is_rejected(name: str, value: Any) -> None:
    assert rejection(token(id_claims(**{name: value}))) == TokenProblem.CLAIM_MISSING


@pytest.mark.parametrize("name", ["exp", "iat"])
def test_date_that_is_missing_is_rejected(name: str) -> None:
    assert rejection(token(id_claims(**{name: REMOVED}))) == TokenProblem.CLAIM_MISSING


@pytest.mark.parametrize("at_hash", ["", "wrong", None, 1, ["a"]])
def test_hash_of_another_access_token_is_rejected(at_hash: Any) -> None:
    encoded = token(id_claims(at_hash=at_hash))
    assert rejection(encoded, access_token="access") == TokenProblem.ACCESS_TOKEN_HASH


def test_authentication_older_than_max_age_is_rejected() -> None:
    assert read(token(id_claims(auth_time=MOMENT - 340)), max_age=300)["sub"]
    assert rejection(token(id_claims(auth_time=MOMENT - 370)), max_age=300) == TokenProblem.AUTHENTICATION_TOO_OLD
    assert rejection(token(id_claims()), max_age=300) == TokenProblem.CLAIM_MISSING


def test_error_contains_no_value_of_nonce_and_subject() -> None:
    for changes in ({"nonce": "a-secret-nonce"}, {"sub": ["a-secret-subject"]}):
        with pytest.raises(ForeignTokenInvalid) as caught:
            read(token(id_claims(**changes)))
        text = f"{caught.value} {caught.value.expected} {caught.value.received}"
        assert "secret" not in text
        assert NONCE not in text


def test_issuer_template_matches_any_tenant_only() -> None:
    assert issuer_matches(MICROSOFT, MICROSOFT.replace("{tenantid}", TENANT))
    assert not issuer_matches(MICROSOFT, MICROSOFT)
    assert not issuer_matches(MICROSOFT, MICROSOFT.replace("{tenantid}", f"{TENANT}/x"))
    assert issuer_matches(ISSUER, ISSUER)
    assert not issuer_matches(ISSUER, f"{ISSUER}\n")


def test_logout_token_is_no_id_token() -> None:
    assert rejection(token(logout_claims())) == TokenProblem.NONCE
    assert rejection(token(logout_claims(nonce=NONCE), header={"typ": "logout+jwt"})) == TokenProblem.TYPE
