"""What ten thousand failing requests write into the log."""

from __future__ import annotations

from twisted.internet.error import ConnectError, ConnectionRefusedError
from twisted.logger import LogEvent, globalLogPublisher

from tests.web.scene import STREAM, RouterTestCase, post

REQUESTS = 300


class Storms(RouterTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.said: list[LogEvent] = []
        globalLogPublisher.addObserver(self.said.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.said.append)

    def test_replicas(self) -> None:
        """Whatever replicas do wrong, no request by itself is worth a line."""
        for wrong in (
            b"",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
            STREAM + b"zz\r\n",
        ):
            for _ in range(REQUESTS):
                self.router.call(post())
                name = self.router.chosen()
                self.router.replicas[name].line.deliver(wrong) if wrong else None
                self.router.replicas[name].line.reset()
                self.router.clock.advance(0)
        self.assertEqual(len(self.router.notes.outcomes), 4 * REQUESTS)
        self.assertEqual(self.said, [])

    def test_no_replicas(self) -> None:
        """Nor is one for which there is no replica, or no connection to it."""
        for error in (ConnectError(string="no route"), ConnectionRefusedError()):
            for endpoint in self.router.replicas.values():
                endpoint.error = error
            for _ in range(REQUESTS):
                self.router.call(post())
        self.assertEqual(len(self.router.notes.outcomes), 2 * REQUESTS)
        self.assertEqual(self.said, [])

    def test_clients(self) -> None:
        """Nor one that is refused, or whose client leaves."""
        for sent in (
            b"\x16\x03\x01\x02\x00\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            post(b"x" * (2 << 20)),
            post(),
        ):
            for _ in range(REQUESTS):
                self.router.call(sent[:65536]).leave()
        self.assertEqual(self.said, [])
