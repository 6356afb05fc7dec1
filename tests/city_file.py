"""A file of cities in MaxMind's format, as operators get it from a vendor."""

from pathlib import Path

from mmdb_writer import MMDBWriter
from netaddr import IPSet


def write_city_file(path: Path, network: str, city: dict[str, str], country: dict[str, str]) -> None:
    """Write a file that knows one network; names are by language."""
    writer = MMDBWriter(ip_version=6, ipv4_compatible=True, database_type="GeoLite2-City", languages=list(country))
    writer.insert_network(IPSet([network]), {"city": {"names": city}, "country": {"names": country}})
    writer.to_db_file(str(path))
