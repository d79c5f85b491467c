"""What a control plane says while it waits for its turn to lead: to every request, that it waits, and for whom."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from clearway.server.problems import MEDIA_TYPE, make_problem
from clearway.server.serving import bind_socket
from clearway.wire.api import BODY_BYTES_MAX
from clearway.wire.api_rows import encode_row

RETRY_AFTER_S: Final = "5"

SILENCE_S: Final = 10.0
"""A connection that says nothing so long is closed: each has a thread."""

PART_BYTES: Final = 1 << 16


class Standby:
    """Answers at an address from `start` to `stop`. leader: who leads, as far as it is known."""

    def __init__(self, host: str, port: int) -> None:
        self.leader = ""
        self._socket = bind_socket(host, port)
        self._server = ThreadingHTTPServer((host, port), self._make_handler(), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = self._socket
        self._server.daemon_threads = True
        self._socket.listen()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="standby", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End, and give the address back."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        standby = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            timeout = SILENCE_S

            def answer(self) -> None:
                """The only answer there is."""
                self._read_body()
                who = standby.leader or "another one"
                detail = f"expected the control plane that leads, found one that waits; {who} leads"
                body = json.dumps(encode_row(make_problem(503, detail))).encode()
                self.send_response(503)
                self.send_header("Content-Type", MEDIA_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Retry-After", RETRY_AFTER_S)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def _read_body(self) -> None:
                """What was sent is read, else the connection is reset before the answer is."""
                said = self.headers.get("Content-Length", "")
                left = min(int(said), BODY_BYTES_MAX) if said.isdecimal() else 0
                while left > 0 and (part := self.rfile.read(min(left, PART_BYTES))):
                    left -= len(part)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is logged."""

        return Handler
