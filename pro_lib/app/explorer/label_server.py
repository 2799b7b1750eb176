"""The page of `pro label`, which a server on this computer sends to the browser.

The server listens on 127.0.0.1 only. Every request must contain a random token, so that neither
other users of the computer nor other web pages can read or write labels.
"""

from __future__ import annotations

import json
import secrets
import string
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pro_lib.app.explorer.javascript import read_javascript
from pro_lib.app.explorer.labelling import LabelSession
from pro_lib.app.explorer.page import STYLES

_LONGEST_MESSAGE = 10_000  # bytes
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


class _Handler(BaseHTTPRequestHandler):
    server: LabelServer

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
        length = int(self.headers.get("Content-Length") or 0)
        if not self._is_allowed(self.headers.get("X-Token", "")) or length > _LONGEST_MESSAGE:
            self._refuse()
            return
        reply = self._reply(self.rfile.read(length))
        self._send(json.dumps(reply, ensure_ascii=False, allow_nan=False), "application/json")

    def _reply(self, content: bytes) -> dict[str, Any]:
        """Return the reply to a message. An error becomes a sentence for the page."""
        try:
            message = json.loads(content)
            return self.server.session.reply(
                message["action"], message["n_given"], message["correct"], message["labels_file"]
            )
        except Exception as error:
            is_sentence = isinstance(error, ValueError)
            text = str(error) if is_sentence else f"{type(error).__name__}: {error}"
            return {"kind": "error", "of": "label", "status": text}

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
