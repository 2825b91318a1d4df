"""`kernelscope view`: the page on loopback, for who knows its token.

Everything is below /TOKEN/. A request must name this server as its host, so that a page of another origin
whose name was made to resolve to this machine is refused; only GET is answered, and no file is served.
"""

from __future__ import annotations

import hmac
import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kernelscope.errors import RunError
from kernelscope.store.run_db.codec import storable

from .answers import Answers, UnknownRequest
from .page_text import page

LOOPBACK = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page brings the rest of it along
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Answers until it is shut down."""

    daemon_threads = True

    def __init__(self, answers: Answers, title: str, port: int = 0) -> None:
        self.answers = answers
        self.token = secrets.token_urlsafe(24)
        self.text = page(title, answers.opening(), connects=True).encode()
        super().__init__((LOOPBACK, port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect during an answer."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "kernelscope", ""
    timeout = 60

    def do_GET(self) -> None:
        if not self._is_for_us():
            return self._refuse(HTTPStatus.FORBIDDEN, "this server answers on its own address only")
        found = urlsplit(self.path)
        token, _, path = found.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._refuse(
                HTTPStatus.FORBIDDEN, "wrong token: use the address that kernelscope view printed"
            )
        if path == "":
            return self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.text)
        return self._answer(path, dict(parse_qsl(found.query)))

    def _is_for_us(self) -> bool:
        hosts = {f"{name}:{self.server.port}" for name in (LOOPBACK, "localhost")}
        if self.headers.get_all("Host", []) not in [[host] for host in hosts]:
            return False
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        return (origin is None or origin in {f"http://{host}" for host in hosts}) and site in (
            "none", "same-origin"
        )  # fmt: skip

    def _answer(self, path: str, asked: dict[str, str]) -> None:
        try:
            asked_for = path.removeprefix("api/") if path.startswith("api/") else ""
            answer = self.server.answers.answer(asked_for, asked)
            body = json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
        except UnknownRequest:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        except RunError as error:
            return self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except Exception as error:  # otherwise the page would report a lost connection
            why = f"cannot read this ({type(error).__name__}: {error!s:.200}): is the run damaged?"
            return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, why)
        return self._send(HTTPStatus.OK, "application/json", body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, "application/json", json.dumps({"error": storable(why)}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests to the terminal."""
