"""The manual keeps up with the program: keys, flags, defaults, samples and links are all compared."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

from twisted_router import errors
from twisted_router.config.model import SESSION_SOURCES, HostConfig, ReplicaConfig, Settings
from twisted_router.config.reading import parse_fleet
from twisted_router.core.places import State
from twisted_router.core.policies.registry import POLICIES
from twisted_router.core.records import Reservation
from twisted_router.core.slots import cut_slots
from twisted_router.core.snapshot import CapacityView, FleetView
from twisted_router.launch.command import build
from twisted_router.tap import Options
from twisted_router.telemetry.metrics import Metrics
from twisted_router.web.app import RouterApp

ROOT = Path(__file__).resolve().parent.parent
PAGES = (*sorted((ROOT / "docs").glob("*.rst")), ROOT / "README.rst", ROOT / "CONTRIBUTING.rst")
CONFIGURATION = (ROOT / "docs" / "configuration.rst").read_text(encoding="utf-8")

_SPEC = importlib.util.spec_from_file_location("slots", ROOT / "docs" / "slots.py")
assert _SPEC is not None and _SPEC.loader is not None
SLOTS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(SLOTS)

_BLOCK = re.compile(r"^\.\. code-block:: (json|yaml)\n(?: +:.*\n)*\n((?:(?: +.*)?\n)+)", re.MULTILINE)


def rows(text: str) -> dict[str, str]:
    """Read what the tables of a page say: first cell (without its quotes) to second cell."""
    found = re.findall(r"^``([^`]+)`` {2,}(\S.*?)(?: {2,}|$)", text, re.MULTILINE)
    return {name: cell.strip("`") for name, cell in found}


def section(title: str) -> str:
    """Cut the part of the configuration page from one label to the next."""
    return CONFIGURATION.partition(f".. _{title}:")[2].partition("\n.. _")[0]


def configurations() -> Iterator[tuple[str, str]]:
    """Yield page and text of each code block that is a whole configuration."""
    for page in PAGES:
        for language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            text = textwrap.dedent(block)
            if re.match(r'\{?\s*"?(replicas|hosts)"?:', text):
                yield f"{page.name}.{language}", text


class ConfigurationTests(SynchronousTestCase):
    """The page of keys and flags."""

    def test_replica_keys(self) -> None:
        """Every key of a replica is documented, and no other."""
        self.assertEqual(set(rows(section("replicas"))), set(attrs.fields_dict(ReplicaConfig)))

    def test_host_keys(self) -> None:
        """Every key of a host is documented, and no other."""
        self.assertEqual(set(rows(section("hosts"))), set(attrs.fields_dict(HostConfig)))

    def test_placeholders(self) -> None:
        """Every placeholder on the page expands in a command, and no other does."""
        named = tuple(word.strip("`") for word in rows(section("placeholders")))
        host = HostConfig("h", (3,), model="m", command=(*named, "{other}"))
        (slot,) = cut_slots((host,))
        *expanded, other = build(host, slot, "i", "/l", "/home/u").argv
        self.assertEqual(expanded, ["3", "3", "8004", "m", "m", "h-d3", "127.0.0.1"])
        self.assertEqual(other, "{other}")

    def test_flags(self) -> None:
        """Every flag is documented, and no other."""
        flags = {f"--{row[0]}" for row in (*Options.optParameters, *Options.optFlags)}
        self.assertEqual(set(rows(section("flags"))), flags)

    def test_defaults(self) -> None:
        """A number that the page gives as a default is the default, and every such default is given."""
        defaults = {f"--{row[0]}": row[2] for row in Options.optParameters if isinstance(row[2], int | float)}
        units = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}
        told = {}
        for flag, cell in rows(section("flags")).items():
            if number := re.fullmatch(r"(\d+(?:\.\d+)?) ?(|MiB|GiB)", cell):
                told[flag] = float(number[1]) * units[number[2]]
        self.assertEqual(told, defaults)

    def test_session_sources(self) -> None:
        """The order in which session ids are looked for is the one on the page."""
        listed = CONFIGURATION.partition("The order of sources is")[2].partition(": a name")[0]
        self.assertEqual(tuple(re.findall(r"``(.+?)``", listed)), SESSION_SOURCES)


class PoliciesTests(SynchronousTestCase):
    """The page about routing policies."""

    def test_policies(self) -> None:
        """Every policy is documented, with what it reads, and no other."""
        page = (ROOT / "docs" / "policies.rst").read_text(encoding="utf-8")
        told = {name: reads for name, reads in rows(page).items() if name != "Policy"}
        self.assertEqual(told, {entry.name: entry.reads for entry in POLICIES.values()})


class OperationsTests(SynchronousTestCase):
    """The page for whoever runs the router."""

    def test_metrics(self) -> None:
        """Every metric of ours is documented by the name it is scraped by, and no other."""
        idle = FleetView(replicas=(), sessions=0, routed=0, affinity_hits=0, rejected=0)
        _, exposition = Metrics(lambda: idle).render("text/plain")
        types = re.findall(r"(?m)^# TYPE (pypto_router_\w+) (\w+)", exposition.decode())
        named = rows((ROOT / "docs" / "operations.rst").read_text(encoding="utf-8"))
        documented = {name for name in named if name.startswith("pypto_router_")}
        self.assertEqual(documented, {name for name, _ in types if not name.endswith("_created")})

    def test_errors(self) -> None:
        """A status and code that the page names together belong to one exception of ours."""
        page = (ROOT / "docs" / "operations.rst").read_text(encoding="utf-8")
        named = {(int(status), code) for status, code in re.findall(r"\b(\d{3}), ``(\w+)``", page)}
        ours = {
            (kind.status, kind.code)
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, errors.RouterError)
        }
        self.assertGreaterEqual(len(named), 5)
        self.assertEqual(named - ours, set())

    def test_reservations(self) -> None:
        """Every reason for which a slot is reserved is explained, and no other."""
        page = (ROOT / "docs" / "operations.rst").read_text(encoding="utf-8")
        table = page.partition(".. _reserved:")[2].partition("On the slot's machine")[0]
        self.assertEqual(
            set(rows(table)) - {"capacity.unconfirmed"}, {reason.value for reason in Reservation}
        )

    def test_calls(self) -> None:
        """Every path of the router's own is named on some page."""
        pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        paths = [rule.rule.replace("<", "{").replace(">", "}") for rule in RouterApp.app.url_map.iter_rules()]
        named = [path.replace("{session}", "{id}").partition("{path:")[0] for path in paths]
        self.assertGreater(len(named), 10)
        self.assertEqual([path for path in named if path not in pages], [])

    def test_capacity(self) -> None:
        """Everything under ``capacity`` is explained."""
        page = (ROOT / "docs" / "operations.rst").read_text(encoding="utf-8")
        table = page.partition("Under ``capacity``:")[2].partition("Launching\n~~~")[0]
        self.assertEqual(set(rows(table)), set(attrs.fields_dict(CapacityView)))


class ArchitectureTests(SynchronousTestCase):
    """The page on how it is built."""

    def test_rooms(self) -> None:
        """Every room has its line, and no line is left from an old one."""
        page = (ROOT / "docs" / "architecture.rst").read_text(encoding="utf-8")
        table = set(rows(page.partition("\nRooms\n")[2].partition("Imports go")[0]))
        names = {path.stem for path in (ROOT / "twisted_router").iterdir() if path.suffix in ("", ".py")}
        rooms = {name for name in names if not name.startswith("__") and name != "py"}
        self.assertEqual(table - {"core.policies"}, rooms)

    def test_slot_machine(self) -> None:
        """The table that the manual draws has every state, and a way into each but where it begins."""
        moves = SLOTS.moves()
        self.assertEqual(list(moves), [state.value for state in State])
        entered = {to for state, following in moves.items() for to in following if to != state}
        self.assertEqual(entered, set(moves))
        self.assertEqual(moves["waiting"], {"free": ["retire"], "launching": ["due"]})

    def test_picture(self) -> None:
        """Where there is a program that draws, it is given every move, and its picture is taken as it is."""
        drawer = Path(self.mktemp())
        drawer.write_text("#!/bin/sh\necho preamble\necho '<svg>'\ncat\n")
        drawer.chmod(0o755)
        drawn = SLOTS.picture(str(drawer.resolve()))
        self.assertTrue(drawn.startswith("<svg>"))
        self.assertIn('"stopping" -> "reserved" [label="stop unconfirmed"', drawn)


class DecisionsTests(SynchronousTestCase):
    """The page of decisions."""

    def test_dependencies(self) -> None:
        """Every dependency has a row that says who uses it and why, and no row is left from an old one."""
        metadata = configparser.ConfigParser()
        metadata.read(ROOT / "setup.cfg", encoding="utf-8")
        listed = metadata["options"]["install_requires"] + metadata["options.extras_require"]["kv-events"]
        page = (ROOT / "docs" / "decisions.rst").read_text(encoding="utf-8")
        table = page.partition("\nPackage ")[2].partition("\n\n")[0]
        self.assertEqual(
            set(re.findall(r"(?m)^([A-Za-z][\w-]*)", table)), set(re.findall(r"(?m)^([\w-]+)", listed))
        )


class SampleTests(SynchronousTestCase):
    """What a reader copies works."""

    def test_configurations(self) -> None:
        """Every configuration in the manual and the README is read without a problem."""
        found = list(configurations())
        self.assertGreaterEqual(len(found), 5)
        for name, text in found:
            fleet = parse_fleet(text, name)
            self.assertTrue(fleet.replicas or fleet.hosts, name)

    def test_files_named(self) -> None:
        """Every file of ours that a page names exists."""
        named = {
            (page.name, name)
            for page in PAGES
            for name in re.findall(
                r"``((?:docs|etc|tests)/[\w./-]+\.\w+|[A-Z]+\.rst|\.[\w-]+\.yaml)``",
                page.read_text(encoding="utf-8"),
            )
        }
        self.assertGreater(len(named), 5)
        self.assertEqual([item for item in sorted(named) if not (ROOT / item[1]).exists()], [])

    def test_samples_named(self) -> None:
        """Every file in ``etc/`` is named on some page."""
        pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        unnamed = [path.name for path in (ROOT / "etc").iterdir() if f"``etc/{path.name}``" not in pages]
        self.assertEqual(unnamed, [])

    def test_targets_named(self) -> None:
        """Every ``make`` target that a page names exists."""
        made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        named = {
            target
            for page in PAGES
            for target in re.findall(r"(?:``|    )make ([a-z]+)", page.read_text(encoding="utf-8"))
        }
        self.assertLessEqual({"demo", "test"}, named)
        self.assertEqual(named - made, set())

    def test_unit(self) -> None:
        """The systemd unit starts the manual's command with documented flags and leaves replicas alive."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign] - keys keep their case
        unit.read(ROOT / "etc" / "pypto-router.service", encoding="utf-8")
        program, *arguments = shlex.split(unit["Service"]["ExecStart"])
        self.assertEqual(Path(program).name, "pypto-serving-router")
        flags = {argument for argument in arguments if argument.startswith("--")}
        self.assertEqual(flags - set(rows(section("flags"))), set())
        self.assertEqual(unit["Service"]["KillMode"], "process")
        waits = Settings().drain_timeout + Settings().stop_grace
        self.assertGreater(float(unit["Service"]["TimeoutStopSec"]), waits)
