"""Places of addresses, from a real file in MaxMind's format."""

import os
from pathlib import Path

import pytest
from django.utils.translation import override
from pytest_django.fixtures import Settings

from identity_platform.places import place_of
from tests.city_file import write_city_file

MUNICH = {"en": "Munich", "de": "München"}
GERMANY = {"en": "Germany", "de": "Deutschland", "fr": "Allemagne"}


@pytest.fixture
def cities(tmp_path: Path, settings: Settings) -> Path:
    file = tmp_path / "cities.mmdb"
    write_city_file(file, "203.0.113.0/24", MUNICH, GERMANY)
    settings.GEOIP_DATABASE = str(file)
    return file


@pytest.mark.parametrize(
    ("language", "place"), [("en", "Munich, Germany"), ("de", "München, Deutschland"), ("fr", "Munich, Allemagne")]
)
def test_place_has_the_names_of_the_language(cities: Path, language: str, place: str) -> None:
    with override(language):
        assert place_of("203.0.113.7") == place


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "", "no address"])
def test_unknown_address_has_no_place(cities: Path, address: str) -> None:
    assert place_of(address) == ""


def test_without_file_no_address_has_a_place(settings: Settings) -> None:
    settings.GEOIP_DATABASE = None
    assert place_of("203.0.113.7") == ""


def test_new_file_is_read_without_restart(cities: Path, tmp_path: Path) -> None:
    assert place_of("203.0.113.7") == "Munich, Germany"
    write_city_file(tmp_path / "new", "203.0.113.0/24", {"en": "Hamburg"}, GERMANY)
    os.utime(tmp_path / "new", (1, 1))
    (tmp_path / "new").replace(cities)
    assert place_of("203.0.113.7") == "Hamburg, Germany"


def test_file_without_city_gives_the_country(cities: Path) -> None:
    write_city_file(cities, "198.51.100.0/24", {}, GERMANY)
    os.utime(cities, (1, 1))
    assert place_of("198.51.100.1") == "Germany"


def test_broken_file_is_logged_and_fails_no_page(cities: Path, caplog: pytest.LogCaptureFixture) -> None:
    cities.write_bytes(b"nothing of the kind")
    os.utime(cities, (1, 1))
    assert place_of("203.0.113.7") == ""
    assert "GEOIP_DATABASE cannot be read" in caplog.text
