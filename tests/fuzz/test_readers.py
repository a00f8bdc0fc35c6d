"""Whatever is in a file or a body: our readers return a value or their own error."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tests.fuzz.profile import effort, spoilt
from twisted_router.config.model import SESSION_SOURCES
from twisted_router.config.reading import parse_fleet
from twisted_router.core.records import FleetRecord, PinRecord
from twisted_router.core.sessions import usable_id
from twisted_router.errors import ConfigError, StateFileError
from twisted_router.proxy.head import SessionFinder
from twisted_router.services.statefile import StateFile

_DEEP = b'{"session_id":' + b"[" * 100_000
_LONG = b'{"session_id": "s", "n": ' + b"9" * 5000 + b"}"

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from((10**400, -(10**400), float("inf"), float("nan"), 1e308))
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("stop-unconfirmed", "\ud800", "a" * 300))
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def _text(document: object) -> bytes:
    return json.dumps(document).encode()


_SLOT = {
    "slot": "here-d0",
    "instance": "1",
    "devices": [0],
    "address": "127.0.0.1",
    "port": 8001,
    "handle": {"slot": "here-d0", "instance": "1", "pid": 1, "started": "1", "log_path": "/l"},
    "reason": None,
    "why": "",
    "age": 1.0,
}
_FILE: dict[str, object] = {
    "version": 1,
    "program": "pypto-router",
    "saved": 0.0,
    "slots": [_SLOT],
    "launch_times": [{"host": "here", "model": "m", "seconds": 1.0}],
}


@st.composite
def state_files(draw: st.DrawFn) -> bytes:
    """A state file with some values replaced by others."""
    document = json.loads(json.dumps(_FILE))
    places = (document, document["slots"][0], document["slots"][0]["handle"], document["launch_times"][0])
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from(places))
        place[draw(st.sampled_from(sorted(place)))] = draw(_JSON)
    return _text(document)


@st.composite
def pin_files(draw: st.DrawFn) -> bytes:
    """A file of pins, its lines being what they should be or other JSON."""
    header = {key: _FILE[key] for key in ("version", "program", "saved")}
    lines = draw(st.lists(st.lists(st.tuples(_SCALARS, _SCALARS, _SCALARS), max_size=2) | _JSON, max_size=3))
    return b"".join(_text(line) + b"\n" for line in (header, *lines, *draw(st.sampled_from(([[]], [])))))


class StateFileFuzz(SynchronousTestCase):
    """The file a restart depends on."""

    def setUp(self) -> None:
        self.path = FilePath(self.mktemp())
        self.file = StateFile(self.path.path)

    @effort(400)
    @given(spoilt(state_files()) | st.binary(max_size=40))
    @example(_text(_FILE))
    @example(_text({**_FILE, "saved": 10**400}))
    @example(_text({**_FILE, "slots": [{**_SLOT, "age": 10**400}]}))
    @example(b"[" * 100_000)
    def test_fleet(self, content: bytes) -> None:
        """Any bytes are a record or a StateFileError, never anything else; what was read can be written."""
        self.path.setContent(content)
        try:
            record = self.file.load()
        except StateFileError:
            return
        self.assertIsInstance(record, FleetRecord)
        self.file.save(record)
        self.assertEqual(len(self.file.load().slots), len(record.slots))

    @effort(300)
    @given(spoilt(pin_files()) | st.binary(max_size=40))
    @example(
        _text({key: _FILE[key] for key in ("version", "program", "saved")}) + b'\n[["s", "h", 1e400]]\n[]\n'
    )
    def test_pins(self, content: bytes) -> None:
        """Any bytes are pins or none; the start does not depend on them."""
        FilePath(self.path.path + ".pins").setContent(content)
        for pin in StateFile(self.path.path).load_pins():
            self.assertIsInstance(pin, PinRecord)
            self.assertTrue(abs(pin.idle) < float("inf"), content)


class SessionFuzz(SynchronousTestCase):
    """The id of a conversation in bodies and headers nobody has checked."""

    finder = SessionFinder(SESSION_SOURCES)

    @effort(400)
    @given(
        spoilt(st.dictionaries(st.sampled_from(("session_id", "session_params", "x")), _JSON).map(_text))
        | st.binary(max_size=60),
        st.none() | st.binary(max_size=40),
    )
    @example(_DEEP, None)
    @example(_LONG, None)
    @example(b'{"session_id": "\\ud800"}', None)
    def test_never_raises(self, body: bytes, header: bytes | None) -> None:
        """An id that is safe to log and to send, the same each time, or none."""
        headers = Headers({b"content-type": [b"application/json"]})
        if header is not None:
            headers.addRawHeader(b"x-session-id", header.translate(None, b"\r\n\0"))
        found = self.finder.find(headers, body)
        if found is not None:
            self.assertRegex(found, r"\A[A-Za-z0-9._:\-]{1,128}\Z")
            self.assertEqual(self.finder.find(headers, body), found)
            self.assertEqual(usable_id(found.encode()), found)


class ConfigurationFuzz(SynchronousTestCase):
    """The file a person writes."""

    @effort(100)
    @given(
        st.dictionaries(st.sampled_from(("replicas", "hosts", "x")), st.lists(_JSON, max_size=3) | _JSON).map(
            lambda document: _text(document).decode()
        )
        | st.text(max_size=60),
        st.sampled_from(("fleet.json", "fleet.yaml")),
    )
    @example("[" * 100_000, "fleet.json")
    @example("{a: &a [*a]}", "fleet.yaml")
    @example("[" * 2_000, "fleet.yaml")
    def test_read_or_refused(self, text: str, name: str) -> None:
        """Any text is a fleet or a ConfigError that says where."""
        try:
            parse_fleet(text, name)
        except ConfigError as refused:
            self.assertTrue(all(problem.startswith(name) for problem in refused.problems), refused)
