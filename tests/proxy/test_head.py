from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tests.fuzz.profile import effort
from twisted_router.config.model import SESSION_SOURCES
from twisted_router.core.sessions import usable_id
from twisted_router.proxy.head import SessionFinder, asks_for_stream

FINDER = SessionFinder(SESSION_SOURCES)


def find(body: object = b"", finder: SessionFinder = FINDER, **headers: bytes) -> str | None:
    fields = Headers()
    for name, value in headers.items():
        fields.addRawHeader(name.replace("_", "-").encode(), value)
    return finder.find(fields, body if isinstance(body, bytes) else json.dumps(body).encode())


class Order(SynchronousTestCase):
    def test_each_source(self) -> None:
        """Every source alone is enough."""
        self.assertEqual(find(x_session_id=b"s"), "s")
        self.assertEqual(find({"session_id": "s"}), "s")
        self.assertEqual(find(X_Dynamo_Session_ID=b"s"), "s")
        self.assertEqual(find({"session_params": {"session_id": "s"}}), "s")
        for header in (
            "X-Claude-Code-Agent-Id",
            "X-Claude-Code-Session-Id",
            "Session-Id",
            "X-Session-Affinity",
        ):
            self.assertEqual(find(**{header: b"s"}), "s", header)

    def test_order(self) -> None:
        """Of several sources the earlier one in the list wins, for every pair of neighbours."""
        for first in range(len(SESSION_SOURCES)):
            body: dict[str, object] = {}
            headers: dict[str, bytes] = {}
            for place, source in enumerate(SESSION_SOURCES[first:], first):
                if source == "body.session_id":
                    body["session_id"] = f"s{place}"
                elif source == "body.session_params.session_id":
                    body["session_params"] = {"session_id": f"s{place}"}
                else:
                    headers[source] = b"s%d" % place
            self.assertEqual(find(body, **headers), f"s{first}")

    def test_configured(self) -> None:
        """The list decides: a source that is not in it is none, and its order is the order."""
        finder = SessionFinder(("body.conversation.id", "x-thread"))
        self.assertIsNone(find({"session_id": "s"}, finder, x_session_id=b"s"))
        self.assertEqual(find({"conversation": {"id": "b"}}, finder, x_thread=b"h"), "b")

    def test_never_a_source(self) -> None:
        """Request ids, users and messages name no conversation."""
        self.assertIsNone(
            find({"user": "u", "messages": [], "metadata": {"session_id": "m"}}, x_request_id=b"r")
        )

    def test_first_of_two(self) -> None:
        """Of two headers the first counts."""
        headers = Headers({b"x-session-id": [b"one", b"two"]})
        self.assertEqual(FINDER.find(headers, b""), "one")

    def test_last_of_two_keys(self) -> None:
        """Of two keys the last counts, as for every JSON reader the replica could be."""
        self.assertEqual(find(b'{"session_id": "one", "session_id": "two"}'), "two")


class Ids(SynchronousTestCase):
    def test_blank(self) -> None:
        """An empty or blank id counts as absent: the next source is looked at."""
        for blank in (b"", b" ", b"\t \t"):
            self.assertEqual(find({"session_id": "body"}, x_session_id=blank), "body")
            self.assertEqual(find({"session_id": blank.decode()}, session_id=b"later"), "later")
            self.assertIsNone(find({"session_id": blank.decode()}, x_session_id=blank))

    def test_safe(self) -> None:
        """Ids of safe characters, up to 128 of them, stay as they are, surrounding blanks apart."""
        for safe in ("a", "A-Z.0_9:x", "x" * 128):
            self.assertEqual(find(x_session_id=safe.encode()), safe)
            self.assertEqual(find({"session_id": safe}), safe)
        self.assertEqual(find(x_session_id=b"  a\t"), "a")

    def test_odd(self) -> None:
        """Any other id becomes a digest of itself, the same from header and body, in the safe alphabet."""
        seen = set()
        for odd in (
            "x" * 129,
            "a b",
            "a/b",
            "caf\xe9",
            "\u6f22\u5b57",
            "a\x00b",
            "a, b",
            "'; drop",
        ):
            found = find(x_session_id=odd.encode())
            self.assertEqual(found, find({"session_id": odd}), odd)
            self.assertEqual(found, find(x_session_id=odd.encode()))
            assert found is not None
            self.assertRegex(found, r"\A[0-9a-f]{32}\Z")
            seen.add(found)
        self.assertEqual(len(seen), 8)

    def test_line_ends(self) -> None:
        """A body's id cannot bring a line end into a header."""
        self.assertRegex(find({"session_id": "a\r\nX-Evil: 1"}) or "", r"\A[0-9a-f]{32}\Z")

    def test_not_a_string(self) -> None:
        """An id that is no string is absent."""
        for value in (1, 1.5, None, True, [], ["s"], {}, {"id": "s"}):
            self.assertIsNone(find({"session_id": value}), value)
            self.assertEqual(find({"session_id": value}, session_id=b"later"), "later")

    def test_lone_surrogate(self) -> None:
        """A string that is no Unicode text is an odd id, not an error."""
        found = find(b'{"session_id": "\\ud800"}')
        self.assertEqual(found, usable_id(b"\xed\xa0\x80"))


class Bodies(SynchronousTestCase):
    def test_near_misses(self) -> None:
        """Only the key itself at its place counts: not nested, not longer, not in a string, not in a list."""
        for body in (
            {"a": {"session_id": "s"}},
            {"session_ids": "s"},
            {"Session_Id": "s"},
            {"session_id ": "s"},
            {"text": '"session_id": "s"'},
            [{"session_id": "s"}],
            {"session_params": {"session_params": {"session_id": "s"}}},
            {"session_params": [{"session_id": "s"}]},
            {"session_params": "session_id"},
            "session_id",
        ):
            self.assertIsNone(find(body), body)

    def test_multipart(self) -> None:
        """An upload of parts is not JSON, whatever it holds."""
        body = b'--x\r\n\r\n{"session_id": "s"}\r\n--x--'
        self.assertIsNone(find(body, content_type=b"multipart/form-data; boundary=x"))
        self.assertIsNone(find({"session_id": "s"}, content_type=b"Multipart/mixed"))

    def test_any_content_type(self) -> None:
        """JSON is recognised by itself: clients name it wrongly."""
        for kind in (b"application/json", b"text/plain", b"application/x-www-form-urlencoded", b""):
            self.assertEqual(find({"session_id": "s"}, content_type=kind), "s")

    def test_header_spares_the_body(self) -> None:
        """With an id in a header before it, the body is not looked at."""
        self.assertEqual(find(b'{"session_id": ' + b"[" * 100_000, x_session_id=b"s"), "s")

    def test_hostile(self) -> None:
        """A body that no parser gets through names no session and raises nothing."""
        key = b'"session_id"'
        table = {
            "empty": b"",
            "deep lists": b'{"session_id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "deep objects": b'{"session_id":' * 100_000 + b"1" + b"}" * 100_000,
            "long integer": b'{"session_id": ' + b"9" * 10_000 + b"}",
            "not closed": b'{"session_id": "s"',
            "two documents": b'{"session_id": "s"}{}',
            "latin-1": b'{"session_id": "caf\xe9"}',
            "null bytes": b'{"session_id": "a\x00b"}',
            "only the key": key,
            "many keys": key * 50_000,
            "not JSON": b"session_id=s&" + key,
            "single quotes": b"{'session_id': 's', " + key + b"}",
            "truncated UTF-16": json.dumps({"session_id": "s"}).encode("utf-16")[:-1] + key,
        }
        for name, body in table.items():
            self.assertIsNone(find(body), name)

    def test_odd_numbers_beside(self) -> None:
        """NaN and its kind, which Python writes and reads, do not hide the id."""
        self.assertEqual(find(b'{"t": NaN, "u": -Infinity, "v": 1e999, "session_id": "s"}'), "s")

    def test_other_encodings(self) -> None:
        """UTF-16 has the key's bytes nowhere, so that body has none; a byte order mark is no obstacle."""
        text = '{"session_id": "s"}'
        self.assertIsNone(find(text.encode("utf-16")))
        self.assertIsNone(find(text.encode("utf-32-le")))
        self.assertEqual(find(b"\xef\xbb\xbf" + text.encode()), "s")

    @given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=40))
    @effort(100)
    def test_anything(self, before: bytes, after: bytes, header: bytes) -> None:
        """Any bytes around the key, and in a header, give an id in the safe alphabet or none."""
        for body in (before + b'"session_id"' + after, b'{"session_id": "' + before + b'"}', before):
            for found in (find(body), find(body, x_session_id=header)):
                if found is not None:
                    self.assertRegex(found, r"\A[A-Za-z0-9._:-]{1,128}\Z")

    @given(st.text(st.characters(exclude_characters="\r\n"), min_size=1, max_size=140))
    @effort(100)
    def test_any_text(self, text: str) -> None:
        """Any text is the same session from a header and, escaped or not, from a body."""
        raw = text.encode("utf-8", "surrogatepass")
        expected = usable_id(raw)
        self.assertEqual(find(x_session_id=raw), expected)
        self.assertEqual(find({"session_id": text}), expected)
        if raw == text.encode("utf-8", "ignore"):
            self.assertEqual(find(json.dumps({"session_id": text}, ensure_ascii=False).encode()), expected)


class StreamTests(SynchronousTestCase):
    """``asks_for_stream``."""

    def test_anywhere(self) -> None:
        """The wish is seen before and behind the messages, also where tools behind it use the word."""
        tools = [{"parameters": {"stream": {"type": "boolean"}}}]
        for body in (
            {"stream": True, "messages": []},
            {"messages": [], "stream": True},
            {"messages": [], "stream": True, "tools": tools},
        ):
            self.assertTrue(asks_for_stream(json.dumps(body).encode()), body)
        self.assertTrue(asks_for_stream(b'{"stream" :\n true}'))

    def test_nowhere(self) -> None:
        """Neither its opposite nor a word in a message is taken for it."""
        said = [{"role": "user", "content": 'say "stream": true'}]
        for body in ({"stream": False}, {"messages": said}, {"messages": said, "stream": False}, {}):
            self.assertFalse(asks_for_stream(json.dumps(body).encode()), body)
