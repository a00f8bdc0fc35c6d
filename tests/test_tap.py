from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys

import twisted.internet
from twisted.application.service import IService, IServiceMaker
from twisted.internet.testing import MemoryReactorClock
from twisted.plugin import getPlugins
from twisted.python import usage
from twisted.python.filepath import FilePath
from twisted.scripts.twistd import ServerOptions
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_router import __version__, tap
from twisted_router.config.model import SESSION_SOURCES, Settings
from twisted_router.output import LossyLines
from twisted_router.tap import BadValue, Options

#: The manual's Tuning table, with what "declared pool", "none" and "1 with hosts, else 0" are before a file
#: is known. The slack of 8 is the default policy's.
TUNING: dict[str, object] = {
    "session-ttl": 600,
    "affinity-slack": None,
    "health-interval": 5,
    "request-timeout": 3600,
    "connect-timeout": 5,
    "initial-replicas": None,
    "max-replicas": None,
    "launch-timeout": 600,
    "drain-timeout": 300,
    "state-file": None,
    "admin-token": None,
}
#: What the manual says elsewhere, and what is ours.
FURTHER: dict[str, object] = {
    "port": 8000,
    "host": "0.0.0.0",
    "replace-after": 30,
    "stop-grace": 30,
    "policy": None,
    "max-outstanding": None,
    "queue-size": 0,
    "queue-timeout": 60,
    "max-hold": 60,
    "gate": 0,
    "kv-events": 0,
    "max-connections": None,
    "no-receipts": 0,
    "record-trace": None,
    "max-body": 64 << 20,
    "max-body-total": 1 << 30,
    "admin-token-file": None,
    "no-traffic-veto": 0,
    "access-log": 0,
    "admin-open": 0,
    "detach-on-exit": 0,
}

SECONDS = (
    "session-ttl",
    "health-interval",
    "request-timeout",
    "connect-timeout",
    "launch-timeout",
    "drain-timeout",
    "replace-after",
    "stop-grace",
    "queue-timeout",
    "max-hold",
)
WHOLE = (
    "port",
    "affinity-slack",
    "initial-replicas",
    "max-replicas",
    "queue-size",
    "max-outstanding",
    "max-connections",
)
SIZES = ("max-body", "max-body-total")


class TapTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(tap.os, "environ", {})
        self.file = self.write(json.dumps({"replicas": [{"host": "127.0.0.1", "port": 8001}]}))

    def write(self, text: str, suffix: str = "") -> str:
        path = FilePath(self.mktemp() + suffix)
        path.setContent(text.encode())
        return str(path.path)

    def parse(self, *flags: str) -> Settings:
        options = Options()
        options.parseOptions(["--replicas", self.file, *flags])
        return options.settings

    def refusal(self, *flags: str) -> usage.UsageError:
        with self.assertRaises(usage.UsageError) as caught:
            self.parse(*flags)
        return caught.exception


class Policies(TapTestCase):
    """Which policy is taken."""

    def test_order(self) -> None:
        """The flag before the file, the file before the default."""
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(
                '{"replicas": [{"host": "h", "port": 1}], "policy": {"name": "work", "session_ttl": 9}}'
            )
        self.assertEqual(self.parse().policy, "work:session_ttl=9")
        self.assertEqual(self.parse("--policy", "kv").policy, "kv")

    def test_default(self) -> None:
        """Without a word it is the manual's rule."""
        self.assertEqual(self.parse().policy, "session")

    def test_refused(self) -> None:
        """A policy or parameter that is not there is a bad value, and the text names what there is."""
        for given, told in (("wrok", "there are session, work"), ("work:x=1", "'x'"), ("kv:x", "key=value")):
            error = self.refusal("--policy", given)
            self.assertIsInstance(error, BadValue)
            self.assertIn(told, str(error))

    def test_refused_in_the_file(self) -> None:
        """A policy of the file that cannot be made is a problem of the file, and told as one."""
        with open(self.file, "w", encoding="utf-8") as file:
            file.write('{"replicas": [{"host": "h", "port": 1}], "policy": "wrok"}')
        error = self.refusal()
        self.assertIsInstance(error, BadValue)
        self.assertTrue(str(error).startswith(self.file), error)
        self.assertIn("policy", str(error))

    def test_gate(self) -> None:
        """A gate needs a policy that tells conversations apart."""
        self.assertIn("a gate needs", str(self.refusal("--gate")))
        self.assertTrue(self.parse("--gate", "--policy", "work").gate)


class KvEvents(TapTestCase):
    """``--kv-events`` is refused where it could do nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.file = self.write(
            '{"replicas": [{"host": "h", "port": 1, "kv_events": "tcp://h:5557"}], "policy": "work"}'
        )

    def test_taken(self) -> None:
        """With a policy that keeps fingerprints and an endpoint it is taken; off unless asked for."""
        self.assertTrue(self.parse("--kv-events").kv_events)
        self.assertFalse(self.parse().kv_events)

    def test_policy(self) -> None:
        """A policy without fingerprints has nothing to correct."""
        self.assertIn(
            "only these policies keep: work", str(self.refusal("--kv-events", "--policy", "session"))
        )

    def test_endpoint(self) -> None:
        """Some replica has to publish."""
        self.file = self.write('{"replicas": [{"host": "h", "port": 1}]}')
        error = self.refusal("--kv-events", "--policy", "work")
        self.assertIn("no replica in the file has a kv_events endpoint", str(error))

    def test_missing(self) -> None:
        """Without the packages the way to them is named."""
        for name in ("zmq", "msgpack"):
            self.patch(sys, "modules", {**sys.modules, name: None})
        error = self.refusal("--kv-events")
        self.assertIsInstance(error, BadValue)
        self.assertIn("zmq and msgpack: pip install 'pypto-router[kv-events]'", str(error))

    def test_not_imported(self) -> None:
        """Without the flag nothing of ZeroMQ is imported, whatever the file says."""
        code = (
            "import sys\n"
            "from twisted.internet import reactor\n"
            "from twisted_router.tap import Options\n"
            "from twisted_router.assembly import assemble\n"
            "options = Options()\n"
            f"options.parseOptions(['--replicas', {self.file!r}, '--port', '0', *sys.argv[1:]])\n"
            "assemble(options.fleet, options.settings, reactor)\n"
            "print(*sorted({'zmq', 'msgpack'} & set(sys.modules)))\n"
        )
        for flags, imported in (((), b"\n"), (("--kv-events",), b"msgpack zmq\n")):
            self.assertEqual(subprocess.check_output([sys.executable, "-c", code, *flags]), imported)


class Defaults(TapTestCase):
    def test_tuning_table(self) -> None:
        """Every flag of the manual's Tuning table exists, with the manual's default."""
        options = Options()
        self.assertEqual({flag: options[flag] for flag in TUNING}, TUNING)

    def test_further(self) -> None:
        """The other flags have their documented defaults."""
        options = Options()
        self.assertEqual({flag: options[flag] for flag in FURTHER}, FURTHER)

    def test_no_more(self) -> None:
        """There is no flag that these tables do not know."""
        known = {*TUNING, *FURTHER, "replicas", "session-sources", "help", "version"}
        self.assertEqual(set(Options().longOpt) - {f"{flag}=" for flag in known} - known, set())

    def test_settings(self) -> None:
        """A bare command line gives the settings' own defaults."""
        self.assertEqual(self.parse(), Settings())

    def test_help(self) -> None:
        """Each flag explains itself, durations with their unit."""
        text = re.sub(r"\s+", " ", str(Options()))
        for flag in (*TUNING, *FURTHER):
            self.assertRegex(text, rf"--{flag}=? [A-Z]", flag)
        for row in Options.optParameters:
            if row[0] in SECONDS:
                self.assertIn("econds", str(row[3]), row[0])


class Values(TapTestCase):
    def test_taken(self) -> None:
        """Each flag reaches its setting."""
        flags = {
            "host": "::1",
            "port": 0,
            "session-ttl": 1.5,
            "affinity-slack": 0,
            "health-interval": 0.25,
            "request-timeout": 60.0,
            "connect-timeout": 2.0,
            "initial-replicas": 0,
            "max-replicas": 3,
            "launch-timeout": 1200.0,
            "drain-timeout": 0.0,
            "replace-after": 0.0,
            "stop-grace": 0.0,
            "state-file": "/var/lib/x.json",
            "admin-token": "t",
            "max-body": 0,
            "max-body-total": 1 << 31,
        }
        settings = self.parse(*(word for flag, value in flags.items() for word in (f"--{flag}", str(value))))
        self.assertEqual({flag: getattr(settings, flag.replace("-", "_")) for flag in flags}, flags)

    def test_switches(self) -> None:
        """Switches switch."""
        settings = self.parse(
            "--no-traffic-veto", "--access-log", "--admin-open", "--detach-on-exit", "--no-receipts"
        )
        self.assertEqual(
            (
                settings.receipts,
                settings.traffic_veto,
                settings.access_log,
                settings.admin_open,
                settings.detach_on_exit,
            ),
            (False, False, True, True, True),
        )

    def test_sizes(self) -> None:
        """Sizes may have a unit; all units are powers of two."""
        for text, size in (
            ("1048576", 1 << 20),
            ("1024k", 1 << 20),
            ("1M", 1 << 20),
            ("1MB", 1 << 20),
            ("1MiB", 1 << 20),
            (" 1 m", 1 << 20),
            ("1g", 1 << 30),
            ("0", 0),
        ):
            self.assertEqual(self.parse("--max-body", text).max_body, size, text)

    def test_sources(self) -> None:
        """Session sources are a list in order, in lower case, blanks aside."""
        self.assertEqual(self.parse().session_sources, SESSION_SOURCES)
        self.assertEqual(
            self.parse("--session-sources", "X-Thread, body.a.b_c ,").session_sources,
            ("x-thread", "body.a.b_c"),
        )


class Refusals(TapTestCase):
    def test_no_file(self) -> None:
        """Without a file there is nothing to route to; that is a usage error."""
        with self.assertRaises(usage.UsageError) as caught:
            Options().parseOptions([])
        self.assertNotIsInstance(caught.exception, BadValue)
        self.assertIn("--replicas FILE is required", str(caught.exception))

    def test_unknown(self) -> None:
        """An unknown flag and a stray word are usage errors."""
        for flags in (("--nothing",), ("word",), ("--replicas",)):
            self.assertNotIsInstance(self.refusal(*flags), BadValue)

    def test_unparsable(self) -> None:
        """A value of the wrong kind is a usage error that names the flag and the value."""
        for kind, values in (
            (SECONDS, ("x", "", "5s", "nan", "NaN", "1,5")),
            (WHOLE, ("x", "", "1.5", "1e3", "0x10", "nan")),
            (SIZES, ("x", "", "1.5m", "1t", "MiB", "1 2")),
        ):
            for flag in kind:
                for value in values:
                    error = self.refusal(f"--{flag}", value)
                    self.assertNotIsInstance(error, BadValue)
                    self.assertIn(f"--{flag} takes", str(error))
                    self.assertIn(repr(value), str(error))

    def test_out_of_range(self) -> None:
        """A value that parses and makes no sense is refused with its flag, its bound and itself."""
        positive = (
            "queue-timeout",
            "max-hold",
            "session-ttl",
            "health-interval",
            "request-timeout",
            "connect-timeout",
            "launch-timeout",
        )
        table: list[tuple[str, str, str]] = []
        for flag in positive:
            for value in ("0", "-1", "inf", "-inf"):
                table.append((flag, value, f"--{flag} must be a positive number of seconds, got {value}"))
        for flag in ("drain-timeout", "replace-after", "stop-grace"):
            for value in ("-1", "inf"):
                table.append(
                    (flag, value, f"--{flag} must be 0 or a positive number of seconds, got {value}")
                )
        table += [
            ("affinity-slack", "-1", "--affinity-slack must be at least 0, got -1"),
            ("initial-replicas", "-1", "--initial-replicas must be at least 0, got -1"),
            ("max-replicas", "0", "--max-replicas must be at least 1, got 0"),
            ("max-connections", "0", "--max-connections must be at least 1, got 0"),
            ("max-outstanding", "0", "--max-outstanding must be at least 1, got 0"),
            ("queue-size", "-1", "--queue-size must be at least 0, got -1"),
            ("max-body", "-1", "--max-body must be at least 0, got -1"),
            ("port", "-1", "--port must be between 0 and 65535, got -1"),
            ("port", "65536", "--port must be between 0 and 65535, got 65536"),
            (
                "max-body-total",
                "-1",
                "--max-body-total must be at least 0, got -1\n"
                "--max-body-total must not be less than --max-body",
            ),
            ("max-body-total", "1", "--max-body-total must not be less than --max-body"),
            ("max-body", "2g", "--max-body-total must not be less than --max-body"),
            ("session-sources", "", "--session-sources must name at least one source"),
            ("session-sources", "x y", "--session-sources must name headers, or body.KEY, not 'x y'"),
            ("session-sources", "body.", "--session-sources must name headers, or body.KEY, not 'body.'"),
            ("session-sources", "x:y", "--session-sources must name headers, or body.KEY, not 'x:y'"),
        ]
        for flag, value, words in table:
            error = self.refusal(f"--{flag}={value}")
            self.assertIsInstance(error, BadValue, (flag, value))
            self.assertEqual(str(error), words)

    def test_policy(self) -> None:
        """A policy that does not exist is a value that cannot be used."""
        error = self.refusal("--policy", "fastest")
        self.assertIsInstance(error, BadValue)
        self.assertTrue(str(error).startswith("--policy: "), str(error))

    def test_all_at_once(self) -> None:
        """All problems, of flags and of the file, are told at once, a line each."""
        self.file = self.write('{"replicas": [{"host": 7, "port": "x"}], "hots": []}')
        error = self.refusal("--session-ttl", "0", "--port", "70000", "--max-replicas", "0")
        self.assertIsInstance(error, BadValue)
        lines = str(error).splitlines()
        self.assertEqual(
            [line.split(" ")[0] for line in lines[:3]], ["--port", "--session-ttl", "--max-replicas"]
        )
        for part in ("$.replicas[0].host", "$.replicas[0].port", "hots"):
            self.assertTrue(any(part in line for line in lines[3:]), part)
        for line in lines[3:]:
            self.assertTrue(line.startswith(self.file), line)

    def test_pool(self) -> None:
        """More replicas at the start than there is room for are a value that cannot be used."""
        self.file = self.write('{"hosts": [{"model": "/m", "devices": [0, 1]}]}')
        self.assertEqual(self.parse("--initial-replicas", "2").initial_replicas, 2)
        for flags in (("--initial-replicas", "3"), ("--initial-replicas", "2", "--max-replicas", "1")):
            error = self.refusal(*flags)
            self.assertIsInstance(error, BadValue)
            self.assertIn("exceeds the pool ceiling", str(error))

    def test_unreadable_file(self) -> None:
        """A file that cannot be read is a value that cannot be used."""
        self.file = "/no/such/file.json"
        error = self.refusal()
        self.assertIsInstance(error, BadValue)
        self.assertIn("/no/such/file.json", str(error))

    def test_trace(self) -> None:
        """A trace that could not be written is refused at the start, not noticed when it is wanted."""
        error = self.refusal("--record-trace", self.mktemp() + "/missing/trace")
        self.assertIsInstance(error, BadValue)
        self.assertIn("No such file or directory", str(error))
        path = self.mktemp()
        self.assertEqual(self.parse("--record-trace", path).record_trace, path)


class Token(TapTestCase):
    def token(self, *flags: str, environ: str | None = None) -> str | None:
        if environ is not None:
            self.patch(tap.os, "environ", {"PYPTO_ROUTER_ADMIN_TOKEN": environ})
        return self.parse(*flags).admin_token

    def test_precedence(self) -> None:
        """A file wins over the flag, the flag over the environment; without any there is no token."""
        file = self.write("from-file\n")
        both = ("--admin-token", "from-flag", "--admin-token-file", file)
        self.assertIsNone(self.token())
        self.assertEqual(self.token(environ="from-environ"), "from-environ")
        self.assertEqual(self.token("--admin-token", "from-flag", environ="from-environ"), "from-flag")
        self.assertEqual(self.token(*both, environ="from-environ"), "from-file")

    def test_empty_environment(self) -> None:
        """An empty variable is none."""
        self.assertIsNone(self.token(environ=""))

    def test_empty_flag(self) -> None:
        """An empty token, of a script whose variable is not set, is refused; it never means "no token"."""
        error = self.refusal("--admin-token", "")
        self.assertIsInstance(error, BadValue)
        self.assertEqual(str(error), "--admin-token is empty; leave it out to have no token")

    def test_file(self) -> None:
        """Blanks around the token are not part of it; any UTF-8 is."""
        self.assertEqual(self.token("--admin-token-file", self.write("  s\u00e9same \n\n")), "s\u00e9same")

    def test_unusable_file(self) -> None:
        """A token file that is missing, empty or no text is refused; it never means "no token"."""
        binary = FilePath(self.mktemp())
        binary.setContent(b"\xff\xfe")
        for path, words in (
            ("/no/such/token", "No such file"),
            (self.write(" \n"), "is empty"),
            (str(binary.path), "utf-8"),
            ("/dev/zero", "is no token"),
        ):
            error = self.refusal("--admin-token-file", path)
            self.assertIsInstance(error, BadValue)
            self.assertIn(f"--admin-token-file {path}", str(error))
            self.assertIn(words, str(error))

    def test_not_in_messages(self) -> None:
        """No refusal repeats a token."""
        error = self.refusal("--admin-token", "sesame", "--port", "70000")
        self.assertNotIn("sesame", str(error))


class Making(TapTestCase):
    """The service made of the options."""

    def setUp(self) -> None:
        super().setUp()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.patch(sys, "stdout", sys.stdout)
        self.patch(twisted.internet, "reactor", MemoryReactorClock())

    def made(self, *own: str) -> Options:
        options = ServerOptions()
        options.parseOptions([*own, "pypto-router", "--replicas", self.file])
        ours: Options = options.subOptions
        self.service = tap.makeService(ours)
        return ours

    def test_background(self) -> None:
        """It is the router; what goes into the background keeps its standard output to itself."""
        before = sys.stdout
        self.made()
        self.assertTrue(verifyObject(IService, self.service))
        self.assertIs(sys.stdout, before)

    def test_foreground(self) -> None:
        """In the foreground twistd logs to where a reader that goes away stops nobody."""
        self.made("-n")
        self.assertIsInstance(sys.stdout, LossyLines)

    def test_unusable_certificate(self) -> None:
        """A file that the configuration names and that cannot be used ends the program with a line."""
        replica = '{"host": "127.0.0.1", "port": 1, "scheme": "https", "ca_file": "/no/such.pem"}'
        self.file = self.write(f'{{"replicas": [{replica}]}}')
        ended = self.assertRaises(SystemExit, self.made)
        self.assertEqual(ended.code, "replica 127.0.0.1:1: /no/such.pem: No such file or directory")

    def test_version(self) -> None:
        """``--version`` names ours, not Twisted's, and ends well."""
        out = io.StringIO()
        self.patch(sys, "stdout", out)
        ended = self.assertRaises(SystemExit, Options().parseOptions, ["--version"])
        self.assertEqual((ended.code, out.getvalue()), (0, f"pypto-router {__version__}\n"))


class Plugin(SynchronousTestCase):
    def test_named(self) -> None:
        """twistd finds the router by its name, with these options."""
        (maker,) = [plugin for plugin in getPlugins(IServiceMaker) if plugin.tapname == "pypto-router"]
        self.assertIs(maker.options, Options)
        self.assertIs(maker.makeService, tap.makeService)

    def test_one_line(self) -> None:
        """Below twistd a command line that cannot be used ends it with the complaint alone."""
        file = self.mktemp()
        with open(file, "w") as open_file:
            open_file.write('{"replicas": [{"host": 7, "port": "x"}]}')
        for flags, lines in (
            (["--prot", "1"], ["option --prot not recognized; did you mean --port?"]),
            (["--port", "x"], ["--port takes a whole number, not 'x'"]),
            ([], ["--replicas FILE is required"]),
            (["--replicas", file], [f"{file}:1:", f"{file}:1:"]),
        ):
            options = ServerOptions()
            ended = self.assertRaises(SystemExit, options.parseOptions, ["-n", "pypto-router", *flags])
            said = str(ended.code).splitlines()
            self.assertEqual(len(said), len(lines), said)
            for line, begin in zip(said, lines, strict=True):
                self.assertTrue(line.startswith(f"twistd pypto-router: error: {begin}"), line)

    def test_light(self) -> None:
        """Reading the command line imports nothing heavy: twistd does it to print anybody's help."""
        heavy = ("klein", "treq", "twisted.internet.reactor", "prometheus_client", "yaml")
        script = f"import twisted_router.tap, sys; print([name for name in {heavy} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")
