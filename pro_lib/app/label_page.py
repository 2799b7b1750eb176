"""The page of `pro label`, which a server on this computer sends to the browser.

The server listens on 127.0.0.1 only. Every request must contain a random token, so that neither
other users of the computer nor other web pages can read or write labels.
"""

from __future__ import annotations

import json
import re
import secrets
import string
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pro_lib.app.explorer.page_parts import STYLES, error_reply, read_javascript
from pro_lib.labels.session import LabelSession

_LONGEST_MESSAGE = 9_999  # bytes
_SECONDS = 30  # that a browser may wait in the middle of a message
# The browser opens this file, so that its command line, which other users can read, has no token.
_REDIRECT = string.Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=$address">
<title>Label answers</title></head>
<body><p>This page opens <a href="$address">the page of pro label</a>.</p></body></html>
""")
_PAGE = string.Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; connect-src 'self';
 img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>Label answers</title>
<style>:root { color-scheme: light dark; }
$styles</style></head>
<body><div id="label"></div>
<script type="module">
$javascript
showLabelPage(document.getElementById("label"), "$token");
</script></body></html>
""")


class LabelServer(ThreadingHTTPServer):
    """A server of one labelling session on a free port of 127.0.0.1.

    Example:
        >>> with LabelServer(session) as server:  # doctest: +SKIP
        ...     webbrowser.open(server.address)
        ...     server.serve_forever()
    """

    daemon_threads = True

    def __init__(self, session: LabelSession) -> None:
        """Bind a free port.

        Args:
            session: what is labelled.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.session = session
        self.token = secrets.token_urlsafe(24)

    @property
    def host(self) -> str:
        """Return the host and port of the page."""
        return f"127.0.0.1:{self.server_port}"

    @property
    def address(self) -> str:
        """Return the address of the page, with the token."""
        return f"http://{self.host}/?token={self.token}"

    @contextmanager
    def redirect_file(self) -> Iterator[Path]:
        """Write a page that leads to `address` and that only the user can read, for a while."""
        with tempfile.TemporaryDirectory(prefix="pro-label-") as folder:
            path = Path(folder, "open.html")
            path.touch(mode=0o600)
            path.write_text(_REDIRECT.substitute(address=self.address), encoding="utf-8")
            yield path

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless the browser has closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LabelServer
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Send the page."""
        address = urlsplit(self.path)
        tokens = parse_qs(address.query).get("token", [""])
        if address.path != "/" or not self._is_allowed(tokens[0]):
            self._refuse()
            return
        page = _PAGE.substitute(
            styles=STYLES.read_text(encoding="utf-8"),
            javascript=read_javascript(),
            token=self.server.token,
        )
        self._send(page, "text/html")

    def do_POST(self) -> None:
        """Reply to a message of the page."""
        if not self._is_allowed(self.headers.get("X-Token", "")):
            self._refuse()
            return
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,4}", length):
            problem = f"Content-Length must be a whole number up to {_LONGEST_MESSAGE}"
            self.send_error(HTTPStatus.BAD_REQUEST, problem)
            return
        reply = self._reply(self.rfile.read(int(length)))
        self._send(json.dumps(reply, ensure_ascii=False, allow_nan=False), "application/json")

    def _reply(self, content: bytes) -> dict[str, Any]:
        """Return the reply to a message. An error becomes a sentence for the page."""
        try:
            message = json.loads(content)
            message.pop("kind", None)
            return self.server.session.reply(**message)
        except Exception as error:
            return error_reply("label", error)

    def _is_allowed(self, token: str) -> bool:
        """Return whether a request has the token and was sent to this address.

        Another web page whose name leads to 127.0.0.1 sends another host.
        """
        has_token = secrets.compare_digest(token.encode(), self.server.token.encode())
        return has_token and self.headers.get("Host") == self.server.host

    def _refuse(self) -> None:
        self.send_error(HTTPStatus.FORBIDDEN, "The address does not have the right token")

    def _send(self, text: str, content_type: str) -> None:
        content = text.encode("utf-8")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the address of a request contains the token."""
