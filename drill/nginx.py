"""deploy/nginx.conf as a process, in front of instances of the platform on this machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from socket import create_connection

import psutil

from bench.home import ROOT
from bench.servers import free_port
from drill.cluster import NotThere, wait_until

# Daemons are where an ordinary user's PATH does not lead.
PLACES = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin"

OUTER = """
daemon off;
pid nginx.pid;
error_log nginx.log;
events { worker_connections 2048; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""
INSTANCE = "    server 127.0.0.1:8000 max_fails=0;\n"


class Nginx:
    """The deployed configuration in front of instances at these ports. Raises NotThere."""

    def __init__(self, folder: Path, *upstreams: int) -> None:
        program = shutil.which("nginx", path=PLACES)
        if program is None:
            raise NotThere("nginx is missing (Debian: apt install nginx).")
        self.folder, self.upstreams, self.port = folder, upstreams, free_port()
        self.log = folder / "access.log"
        (folder / "nginx.conf").write_text(OUTER)
        self._configure()
        # Its workers run as another user, who must reach the directory for the bodies.
        for reached in (folder, folder.parent, folder.parent.parent):
            reached.chmod(0o755)
        command = [program, "-p", str(folder), "-c", "nginx.conf", "-e", "nginx.log"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            wait_until(60, lambda: listens(self.port), "nginx does not listen")
        except BaseException:
            self.end()
            raise

    def _configure(self, down: int | None = None) -> None:
        site = (ROOT / "deploy" / "nginx.conf").read_text()
        instances = [
            INSTANCE.replace("8000", str(port)).replace(";", " down;" if port == down else ";")
            for port in self.upstreams
        ]
        for deployed, here in (
            (INSTANCE, "".join(instances)),
            ("listen 80;", f"listen 127.0.0.1:{self.port};"),
            ("/var/log/nginx/access.log", str(self.log)),
        ):
            assert site.count(deployed) == 1
            site = site.replace(deployed, here)
        (self.folder / "site.conf").write_text(site)

    def reload(self, *, down: int | None = None) -> None:
        """Take an instance out, or all back in, as `nginx -s reload` does; return when the workers before have ended."""
        workers = psutil.Process(self.process.pid).children()
        self._configure(down)
        self.process.send_signal(signal.SIGHUP)
        wait_until(60, lambda: not any(worker.is_running() for worker in workers), "nginx did not reload")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def listens(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
