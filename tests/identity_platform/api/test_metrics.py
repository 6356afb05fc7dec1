"""Metrics for Prometheus: only with the token."""

import secrets
from typing import Any

from tests.world import Api


def test_metrics_without_token_is_404(api: Api, settings: Any) -> None:
    assert api.get("/metrics").status_code == 404
    settings.METRICS_TOKEN = "only-for-this-test"
    assert api.get("/metrics").status_code == 404
    assert api.get("/metrics", token="wrong").status_code == 404
    assert api.get("/metrics", token="only-for-this-test").status_code == 200


def test_metrics_count_responses_by_route_not_path(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    api.get("/uflow/admin/users/some-user-id")
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="GET",route="uflow/admin/users/<str:user_id>",status="401"}' in shown
    assert "some-user-id" not in shown
    assert "identity_ratelimit_fallback_total" in shown


def test_metrics_count_unknown_methods_as_one(api: Api, settings: Any) -> None:
    settings.METRICS_TOKEN = "only-for-this-test"
    unknown_method = f"M{secrets.token_hex(4)}".upper()
    assert api.call(unknown_method, "/uflow/live").status_code == 405
    shown = api.get("/metrics", token="only-for-this-test").content.decode()
    assert 'identity_requests_total{method="other",route="uflow/live",status="405"}' in shown
    assert unknown_method not in shown
