import base64, secrets
from pathlib import Path
import pytest
from datetime import timedelta
from django.utils.timezone import now
from selenium import webdriver
from tests.userflow.test_pages import browser as browser
from tests.userflow.tokens.test_oauth_libraries import place as place
from tests.console.staff import *
from registry.actions import *
OUT = Path("/tmp/shots4"); OUT.mkdir(exist_ok=True)

def test_shots(place, browser, new_house):
    house = new_house()
    staff = new_operator().sign_in().choose(house)
    ids = {}
    for n, (name, kind) in enumerate([("Payments", "payment"), ("Mail delivery", "mail"), ("Geocoder with a rather long name for a list", "maps")]):
        s = create_service(tenant_id=house.id, name=name, type=kind, base_url=f"https://{kind}.example.com/v1", description="What applications call.", metadata={"team": "till"}, status="inactive" if n==2 else "active")
        ids.setdefault("service", s.pk)
    c1 = create_credential(tenant_id=house.id, service_id=ids["service"], name="production", secret="sk_live_4242", expires_at=now()+timedelta(days=90))
    create_credential(tenant_id=house.id, service_id=ids["service"], name="test", secret="x", type="oauth2")
    update_credential(tenant_id=house.id, service_id=ids["service"], credential_id=c1.pk, changes={"metadata": {}})
    ids["credential"] = c1.pk
    other = new_tenant_admin(house)
    other.sign_in()
    pages = {
        "services": "/admin/registry/service/",
        "service": f"/admin/registry/service/{ids['service']}/change/",
        "service_add": "/admin/registry/service/add/",
        "credential_add": f"/admin/registry/service/{ids['service']}/credentials/add/",
        "reveal": f"/admin/registry/service/{ids['service']}/credentials/{c1.pk}/reveal/",
        "clients": "/admin/userflow/client/",
        "client": f"/admin/userflow/client/{house.client_id}/change/",
        "admins": "/admin/userflow/adminuser/",
        "admin": f"/admin/userflow/adminuser/{other.id}/change/",
        "admin_edit": f"/admin/userflow/adminuser/{other.id}/edit/",
        "admin_add": f"/admin/userflow/adminuser/add/",
        "invitations": "/admin/userflow/admininvitation/",
        "roles": "/admin/userflow/adminrole/",
        "role": "/admin/userflow/adminrole/2/change/",
        "signing": "/admin/platform/signing-keys/",
        "encryption": "/admin/platform/encryption-keys/",
        "servers": "/admin/platform/servers/",
        "server": "/admin/platform/servers/1/",
        "trail": "/admin/platform/audit/",
        "export": "/admin/platform/audit/export/",
        "missing": "/admin/registry/service/nonsense/change/",
        "webhooks": "/admin/platform/webhooks/",
        "directories": "/admin/platform/directories/",
    }
    import os
    only = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else list(pages)
    browser.get(place + "/admin/login/")
    browser.add_cookie({"name": "sessionid", "value": staff.browser.cookies["sessionid"].value, "path": "/"})
    for theme in os.environ.get("THEMES", "light,dark").split(","):
        browser.execute_script(f"localStorage.setItem('adminTheme', JSON.stringify('{theme}')); localStorage.setItem('_x_adminTheme', JSON.stringify('{theme}'))")
        for width, height in ((1280, 900), (390, 844)):
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
            for name in only:
                browser.get(place + pages[name])
                import time; time.sleep(0.5)
                png = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
                (OUT / f"{name}-{width}-{theme}.png").write_bytes(base64.b64decode(png["data"]))
                over = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
                if over > 0: print("OVERFLOW", name, width, over)
                logs = [l for l in browser.get_log("browser") if l["level"] == "SEVERE"]
                if logs: print("LOG", name, logs[:2])
