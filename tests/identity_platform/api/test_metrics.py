"""Figures for Prometheus: there for who has the token, nowhere for others."""

import secrets
from typing import Any

from tests.world import Api


def test_without_a_token_there_is_no_such_path(api: Api, settings: Any) -> None:
    assert api.get("/metrics").status_code == 404
    settings.METRICS_TOKEN = "only-for-this-test"
    assert api.get("/metrics").status_code == 404
    assert api.get("/metrics", token="wrong").status_code == 404
    assert api.get("/metrics", token="only-for-this-test").status_code == 200


def test_answers_are_counted_by_route_and_never_by_path(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    api.get("/uflow/admin/users/some-id-of-somebody")
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="GET",route="uflow/admin/users/<str:user_id>",status="401"}' in shown
    assert "some-id-of-somebody" not in shown
    assert "identity_ratelimit_fallback_total" in shown


def test_methods_that_somebody_makes_up_are_one_figure(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    made_up = f"M{secrets.token_hex(4)}".upper()
    assert api.call(made_up, "/uflow/live").status_code == 405
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="other",route="uflow/live",status="405"}' in shown
    assert made_up not in shown
