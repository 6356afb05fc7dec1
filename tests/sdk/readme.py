"""The examples in the README files of the SDKs, which tests run."""

import re
from pathlib import Path
from typing import Any

SDK = Path(__file__).resolve().parents[2] / "sdk"
URLS = {
    "issuer": "https://id.example/t/acme",
    "base_url": "https://id.example",
    "audience": "https://api.example.com",
}


def example(language: str, heading: str, **values: str) -> str:
    """Return the code below a heading, with values for its placeholders and for `https://id.example/t/acme`."""
    text = (SDK / language / "README.md").read_text()
    section = re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    (code,) = re.findall(r"^```(?:python|ts|js)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for placeholder, value in values.items():
        name = URLS.get(placeholder, placeholder)
        assert name in code, f"{name} is not in the example"
        code = code.replace(name, value)
    return str(code)


def names_of(code: str, **given: Any) -> dict[str, Any]:
    """Run the code of an example with some names given, and return its names."""
    names = {"__name__": "example", **given}
    exec(code, names)
    return names
