"""The way to a page: the entry of the sidebar that it belongs to, and the row that it is about.

The paths say it: the pages of a row begin with the path of their list, apart from those named in `ELSEWHERE`.
"""

from typing import Final

from django.http import HttpRequest
from django.urls import reverse

from console.frame import navigation
from console.frame.records import Text
from console.frame.scope import console_path

# Text and path of each step.
Crumbs = list[tuple[Text, str]]
# The beginnings of paths whose list lies elsewhere.
ELSEWHERE: Final = {
    "/admin/inside/people/": "userflow_enduser_changelist",
    "/admin/inside/groups/": "userflow_group_changelist",
    "/admin/inside/roles/": "userflow_role_changelist",
}


def crumbs_of(request: HttpRequest) -> Crumbs:
    """Return the entry of the sidebar above this page: nothing on the page of an entry and on those of no entry."""
    if not console_path(request, request.path):
        return []
    pages = {reverse(f"admin:{page}"): name for name, _icon, page, _needed in navigation.ENTRIES}
    if request.path in pages:
        return []
    for beginning, page in ELSEWHERE.items():
        if request.path.startswith(beginning):
            path = reverse(f"admin:{page}")
            return [(pages[path], path)]
    above = [path for path in pages if request.path.startswith(path) and path != reverse("admin:index")]
    return [(pages[longest], longest)] if (longest := max(above, key=len, default="")) else []
