"""5,000 ceremonies with one change each, over HTTP: none is accepted, none causes a 500. For each change of the code 1,000."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.mfa.webauthn.authenticator import b64, unb64
from tests.mfa.webauthn.passkeys import Home, new_authenticator, user_with_passkey
from tests.world import Api, TestTenant

# Ten parts, so that several workers can share them; each has its own seed.
PARTS, IN_EACH = 10, 250
parts = pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.nightly] if part > 1 else []) for part in range(PARTS)]
)
# Fields that no rule looks at.
ADVISORY = {"authenticatorAttachment", "clientExtensionResults", "transports"}
JUNK: list[Any] = [None, True, 0, -1, 1.5, "", "a", "====", "\x00", "é", [], [1], {}, {"a": 1}, "A" * 5000, 2**63 - 1]

Json = dict[str, Any]
Change = Callable[[random.Random, Json], None]


def _places(found: Json, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    places = []
    for name, value in found.items():
        if name not in ADVISORY:
            places.append((*path, name))
            if isinstance(value, dict):
                places += _places(value, (*path, name))
    return places


def _holder(found: Json, path: tuple[str, ...]) -> Json:
    for step in path[:-1]:
        found = found[step]
    return found


def _bytes_of(chance: random.Random, found: Json) -> tuple[Json, str, bytearray]:
    name = chance.choice([n for n, v in found["response"].items() if isinstance(v, str)])
    return found["response"], name, bytearray(unb64(found["response"][name]))


def drop(chance: random.Random, found: Json) -> None:
    path = chance.choice(_places(found))
    del _holder(found, path)[path[-1]]


def replace(chance: random.Random, found: Json) -> None:
    path = chance.choice(_places(found))
    _holder(found, path)[path[-1]] = chance.choice(JUNK)


def swap(chance: random.Random, found: Json) -> None:
    names = [name for name, value in found["response"].items() if isinstance(value, str)]
    one, two = chance.sample(names, 2)
    inner = found["response"]
    inner[one], inner[two] = inner[two], inner[one]


def spell(chance: random.Random, found: Json) -> None:
    """Another spelling of base64url: what a lenient decoder would read as the same bytes, or as nearly the same."""
    path = chance.choice([p for p in _places(found) if isinstance(_holder(found, p)[p[-1]], str) and p != ("type",)])
    text = _holder(found, path)[path[-1]]
    at = chance.randrange(len(text) + 1)
    _holder(found, path)[path[-1]] = chance.choice(
        [
            text + "===",
            text + "A===",
            text[:at] + "\n" + text[at:],
            text[:at] + " " + text[at:],
            text[:at] + "!" + text[at:],
            text[:at] + text[at:].swapcase(),
            text[:-1] + chance.choice("ABCDEFGH"),
            text + "A",
            text.replace("-", "+").replace("_", "/"),
            text[: max(0, at - 1)],
        ]
    )


def flip(chance: random.Random, found: Json) -> None:
    inner, name, raw = _bytes_of(chance, found)
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    inner[name] = b64(bytes(raw))


def cut(chance: random.Random, found: Json) -> None:
    inner, name, raw = _bytes_of(chance, found)
    start = chance.randrange(len(raw))
    del raw[start : start + chance.choice([1, 2, 16, len(raw)])]
    inner[name] = b64(bytes(raw))


def insert(chance: random.Random, found: Json) -> None:
    inner, name, raw = _bytes_of(chance, found)
    at = chance.randrange(len(raw) + 1)
    raw[at:at] = chance.randbytes(chance.choice([1, 2, 8, 64, 2000]))
    inner[name] = b64(bytes(raw))


def nest(chance: random.Random, found: Json) -> None:
    """CBOR and JSON nested as deep as fits."""
    inner, name, _ = _bytes_of(chance, found)
    depth = chance.choice([10, 500, 20_000])
    inner[name] = b64(b"\x81" * depth + b"\x01") if name != "clientDataJSON" else b64(b"[" * depth + b"]" * depth)


def say(chance: random.Random, found: Json) -> None:
    """Client data that parses and says something else."""
    said = json.loads(unb64(found["response"]["clientDataJSON"]))
    name = chance.choice([*said, "topOrigin", "tokenBinding"])
    said[name] = chance.choice([*JUNK, True, "https://evil.example", said.get("origin", "") + "/", b64(bytes(32))])
    text = json.dumps(said)
    if chance.random() < 0.2:
        text = text[:-1] + ', "origin": "https://evil.example"}'
    found["response"]["clientDataJSON"] = b64(text.encode())


def rename(chance: random.Random, found: Json) -> None:
    """Another credential id, in both members alike."""
    found["id"] = found["rawId"] = b64(chance.randbytes(chance.choice([1, 16, 32, 1023, 1024, 4000])))


CHANGES: list[Change] = [drop, replace, swap, spell, flip, flip, flip, cut, insert, nest, say, rename]


def changed(chance: random.Random, honest: Json) -> Json:
    """The response with one thing changed that matters."""
    while True:
        found = copy.deepcopy(honest)
        chance.choice(CHANGES)(chance, found)
        if found != honest:
            return found


@parts
def test_registrations(home: Home, tenant: TestTenant, part: int) -> None:
    chance, person = random.Random(f"registration {part}"), tenant.register()
    api = tenant.as_user(person)
    for number in range(IN_EACH):
        honest = new_authenticator().create(home.begin_registration(api, person).json())
        wrong = changed(chance, honest)
        response = home.finish_registration(api, person, wrong)
        assert response.status_code == 400, (number, response.status_code, wrong)
    assert api.get("/webauthn/factors").json()["factors"] == []
    home.enrol(api, person)


@parts
def test_sign_ins(home: Home, tenant: TestTenant, part: int) -> None:
    chance = random.Random(f"sign-in {part}")
    _person, authenticator = user_with_passkey(tenant, counting=False)
    for number in range(IN_EACH):
        wrong = changed(chance, authenticator.get(home.options()))
        response = home.finish_authentication(None, wrong, api=Api())
        assert response.status_code in (400, 401), (number, response.status_code, wrong)
        assert "access_token" not in response.json()
    assert home.finish_authentication(None, authenticator.get(home.options())).status_code == 200
