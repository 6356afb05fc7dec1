"""The core names no app: neither in imports (a contract in pyproject.toml) nor in strings, comments and names of its code.

Apps hand over what the core has to know of them, in the attribute `api_part` of their AppConfig.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from identity_platform.api.app_parts import ApiPart, api_part, together
from tests.architecture.test_house_rules import endpoints

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "identity_platform"
APPS = [
    config.name for config in apps.get_app_configs() if config.name in settings.PLATFORM_APPS and "." not in config.name
]
# Files that put the platform together from its apps, and what each of them names.
ROOTS = {
    "settings.py": "INSTALLED_APPS, MIDDLEWARE, the database backend and classes that Django takes by their names",
    "library_settings.py": "classes of the apps by their names, for the libraries; the text above the API document",
    "limit_settings.py": "limits that operators set, each of one feature",
    "urls.py": "the paths of the apps",
}
# Words of Django and the Internet that are no apps here.
OTHER_MEANINGS = {("environment.py", "console"): "the e-mail backend `console:`"}
# Paths of standards, which several apps and the core have.
SHARED = {".well-known", ""}

_names = "|".join(APPS)
MODULE = re.compile(rf"(?<![\w./])({_names})[./]\w")
# `registry` and `tenants` are also words of libraries and of English.
IDENTIFIER = re.compile("userflow|mfa|federation|openid|console|registry_code|registry_problem", re.IGNORECASE)


def app_paths() -> set[str]:
    """The first segments of the paths of views of the apps."""
    return {
        path.partition("/")[0]
        for path, view in endpoints()
        if getattr(view, "cls", getattr(view, "view_class", view)).__module__.partition(".")[0] in APPS
    } - SHARED


PATH = re.compile(rf"(?<![\w.>}}])/({'|'.join(sorted(map(re.escape, app_paths())))})(?![\w-])")


def named_apps(file: str, source: str) -> Iterator[str]:
    """Yield the lines of a module of the core that name an app or its paths."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            names = IDENTIFIER.search(token.string)
        elif token.type in (tokenize.STRING, tokenize.COMMENT) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            word = token.string.strip("'\"")
            names = (word in APPS and (file, word) not in OTHER_MEANINGS) or (
                MODULE.search(token.string) or PATH.search(token.string)
            )
        else:
            continue
        if names:
            yield f"{file}:{token.start[0]}: {token.string.strip()[:80]}"


def test_core_names_no_app() -> None:
    modules = {str(path.relative_to(CORE)): path.read_text() for path in CORE.rglob("*.py")}
    assert modules.keys() >= ROOTS.keys()
    assert [line for file in modules.keys() - ROOTS.keys() for line in named_apps(file, modules[file])] == []


def test_paths_of_all_apps_are_known() -> None:
    assert app_paths() >= {"admin", "authmgr", "clientms", "exsvc", "t", "uflow", "webauthn"}


@pytest.mark.parametrize(
    "line",
    [
        'DASHBOARD = "console.metrics.dashboard"',
        'if path.startswith("/exsvc/"): pass',
        'PROBES = {"/uflow/health"}',
        '"""Read by `tenants.rejections`."""',
        "# As in mfa/sms/sending.py.",
        'AREAS = ("registry",)',
        "CONSOLE = 1",
    ],
)
def test_check_sees_an_app(line: str) -> None:
    assert list(named_apps("any.py", line))


def test_every_app_with_paths_hands_over_a_part() -> None:
    without = [name for name in APPS if not isinstance(getattr(apps.get_app_config(name), "api_part", None), ApiPart)]
    assert without == []


def test_two_apps_cannot_state_the_same_key() -> None:
    with pytest.raises(ImproperlyConfigured, match="theme"):
        together([ApiPart(example_values={"theme": "dark"}), ApiPart(example_values={"theme": "light"})])
    assert together([api_part()]) == api_part()
