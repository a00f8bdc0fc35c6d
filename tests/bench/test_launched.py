"""What the benches over launched replicas make of what they see."""

from __future__ import annotations

import contextlib
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from twisted.trial.unittest import SynchronousTestCase

from bench import launched
from bench.processes import Unavailable


class VerdictTests(SynchronousTestCase):
    """``verdict``."""

    def judged(self, value: float, bar: float | None) -> tuple[bool, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            held = launched.verdict([("seconds until then", value, bar)])
        return held, out.getvalue()

    def test_held(self) -> None:
        """A figure at its bar holds, and one without a bar always does."""
        self.assertTrue(self.judged(1.0, 1)[0])
        self.assertTrue(self.judged(99.0, None)[0])

    def test_missed(self) -> None:
        """One above it does not, and the line says so."""
        held, line = self.judged(1.25, 1)
        self.assertFalse(held)
        self.assertRegex(line, r"seconds until then +1\.25 +MISSED, at most 1\n")


class UntilTests(SynchronousTestCase):
    """``until``."""

    def test_in_vain(self) -> None:
        """What never happens cannot be measured, and the message names it."""
        problem = self.assertRaises(Unavailable, launched.until, lambda: False, "a wonder", 0.0)
        self.assertIn("a wonder", str(problem))


class Scripted(BaseHTTPRequestHandler):
    """Answers each POST with the next of ``answers``."""

    answers: list[tuple[int, bytes]]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        """Answer."""
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class ConversationTests(SynchronousTestCase):
    """Whom a turn is put down to."""

    def talk(self, *answers: tuple[int, bytes]) -> launched.Conversation:
        """Have one turn for each answer."""
        handler = type("Handler", (Scripted,), {"answers": list(answers)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        talk = launched.Conversation(server.server_address[1], "s")
        try:
            for _ in answers:
                talk.turns.append(talk.turn())
        finally:
            server.shutdown()
            server.server_close()
        return talk

    def test_answered(self) -> None:
        """To the replica that says its device, which is the home from then on."""
        talk = self.talk((200, b"... on device 1 ..."))
        self.assertEqual((talk.home, talk.turns[0].failure), ("sim-d1", None))

    def test_failed(self) -> None:
        """To the replica that the error names, not to the one that answered last."""
        talk = self.talk((200, b"on device 1"), (502, b'{"error": {"message": "replica sim-d0: cut"}}'))
        self.assertEqual((talk.turns[1].slot, talk.turns[1].failure), ("sim-d0", "502: replica sim-d0: cut"))
        self.assertEqual(talk.home, "sim-d1")

    def test_nameless(self) -> None:
        """A failure that names nobody, to the home."""
        talk = self.talk((200, b"on device 1"), (503, b"busy"))
        self.assertEqual((talk.turns[1].slot, talk.turns[1].failure), ("sim-d1", "503: busy"))
