"""The shape of the code: who may import whom, how long things get, what the package ships."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "twisted_router"

#: What each room may import of ours, besides itself. A room is a module or package right under
#: ``twisted_router``, but for the two halves of ``config``: values, and how they are read.
_BELOW_MIDDLE = {"errors", "config.model", "core", "interfaces"}
_MIDDLE = {"proxy", "launch", "services", "telemetry"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config.model": set(),
    "config": {"errors", "config.model", "disk"},
    "core": {"errors", "config.model"},
    "interfaces": {"core"},
    **dict.fromkeys(_MIDDLE, _BELOW_MIDDLE),
    "services": _BELOW_MIDDLE | {"zeromq"},
    "launch": _BELOW_MIDDLE | {"disk"},
    "web": _BELOW_MIDDLE | _MIDDLE,
    "assembly": _BELOW_MIDDLE | _MIDDLE | {"config", "web"},
    "tap": _BELOW_MIDDLE | _MIDDLE | {"config", "web", "assembly", "complaint", "output"},
    "complaint": set(),
    "output": set(),
    "disk": set(),
    "zeromq": set(),
    "cli": {"errors", "config", "config.model", "complaint", "output", "disk"},
    "sim": {"errors", "zeromq"},
    "lab": {"errors", "config.model", "core"},
}

#: ``interfaces`` speaks of Deferreds and of nothing else that Twisted has.
INTERFACES_MAY_USE = {"twisted.internet.defer"}

#: The programs: each runs the reactor, everybody else is handed one.
MAY_USE_REACTOR = {"tap", "sim.replica", "cli.main"}

#: Distributions whose packages are called differently.
PACKAGES_OF = {
    "pyyaml": "yaml",
    "attrs": "attr attrs",
    "service-identity": "service_identity",
    "pyzmq": "zmq",
}
#: What only an extra brings, and the modules that need it: nobody imports them before somebody asks for it.
OPTIONAL = {"zmq", "msgpack"}
OPTIONAL_MODULES = {"zeromq", "services.kvevents", "sim.publishing"}
#: Packages of other distributions that a dependency is built on and lets through: Twisted's, klein's.
LENT = {"zope", "werkzeug"}

MODULE_LINES = 400
FUNCTION_LINES = 40

#: "module:qualified.name" of a function that is longer, and why it stays so.
LONG_FUNCTIONS: dict[str, str] = {}


def module_name(path: Path) -> str:
    """``twisted_router/core/fleet.py`` -> ``core.fleet``; a package is named without ``__init__``."""
    parts = path.with_suffix("").parts[1:]
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str) -> str:
    """Name the room a module of ours belongs to; the package itself is the empty one."""
    return module if module == "config.model" else module.partition(".")[0]


class Source:
    """One parsed module of ours."""

    def __init__(self, path: Path, text: str) -> None:
        self.module = module_name(path)
        self.room = room_of(self.module)
        self.lines = text.count("\n")
        self.tree = ast.parse(text)
        self._package = [PACKAGE, *self.module.split(".")] if self.module else [PACKAGE]
        if path.name != "__init__.py":
            self._package.pop()

    def imports(self) -> Iterator[str]:
        """Yield every name imported anywhere in the module, as deep as the statement says."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = self._package[: len(self._package) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                yield from (f"{source}.{alias.name}" for alias in node.names)

    def eager_imports(self) -> Iterator[str]:
        """Yield the modules imported as soon as this one is, functions and types left out."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = self._package[: len(self._package) - node.level + 1] if node.level else []
                yield ".".join([*above, *([node.module] if node.module else [])])

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield ``module:qualified.name`` and length in lines of each function."""
        yield from self._functions(self.tree, "")

    def _functions(self, node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if not isinstance(child, ast.ClassDef):
                    yield f"{self.module}:{name}", (child.end_lineno or 0) - child.lineno + 1
            yield from self._functions(child, name)


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def wrong_edges(source: Source, modules: set[str]) -> list[str]:
    """Imports between rooms that no arrow allows. The package's own version is everybody's."""
    found = []
    allowed = MAY_IMPORT.get(source.room)
    for name in source.imports():
        if not _within(name, PACKAGE) or name == f"{PACKAGE}.__version__":
            continue
        target = name.removeprefix(PACKAGE).removeprefix(".")
        if target not in modules:
            target = target.rpartition(".")[0]
        room = room_of(target)
        if room != source.room and (allowed is None or room not in allowed):
            found.append(f"{source.module or PACKAGE} imports {name}")
    return found


def wrong_twisted(source: Source) -> list[str]:
    """Uses of Twisted where there should be none, and of the global reactor outside the programs."""
    found = []
    for name in source.imports():
        if not _within(name, "twisted"):
            continue
        free = source.room not in {"core", "errors", "config.model", "interfaces", ""}
        seam = source.room == "interfaces" and any(_within(name, use) for use in INTERFACES_MAY_USE)
        if not (free or seam):
            found.append(f"{source.module or PACKAGE} imports {name}")
        elif _within(name, "twisted.internet.reactor") and source.module not in MAY_USE_REACTOR:
            found.append(f"{source.module} imports the global reactor")
    return found


def too_long(source: Source) -> list[str]:
    """The module, and its functions that are not excused, beyond the limits."""
    found = [f"{source.module}: {source.lines} lines"] if source.lines > MODULE_LINES else []
    return found + [
        f"{name}: {length} lines"
        for name, length in source.functions()
        if length > FUNCTION_LINES and name not in LONG_FUNCTIONS
    ]


def beyond_service_makers(text: str) -> list[str]:
    """Statements of a plugin file that do more than import ServiceMaker and call it."""
    found = []
    for node in ast.parse(text).body:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.ImportFrom(module="twisted.application.service", names=[ast.alias(name="ServiceMaker")]):
                continue
            case ast.Assign(value=ast.Call(func=ast.Name(id="ServiceMaker"))):
                continue
        found.append(ast.unparse(node))
    return found


def sources() -> list[Source]:
    """Parse every module of the package."""
    return [
        Source(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
    ]


class CodeTests(SynchronousTestCase):
    """Every module of the package keeps the rules."""

    def setUp(self) -> None:
        self.sources = sources()

    def test_imports_go_one_way(self) -> None:
        """A room imports only the rooms its arrow points to."""
        modules = {source.module for source in self.sources}
        self.assertIn("core.fleet", modules)
        self.assertEqual([edge for source in self.sources for edge in wrong_edges(source, modules)], [])

    def test_twisted_stays_out_of_the_core(self) -> None:
        """The core decides without Twisted, and only programs import the global reactor."""
        self.assertEqual([use for source in self.sources for use in wrong_twisted(source)], [])

    def test_nothing_grows_too_long(self) -> None:
        """A module stays within 400 lines, a function within 40."""
        self.assertEqual([long for source in self.sources for long in too_long(source)], [])

    def test_excuses_are_needed(self) -> None:
        """A function on the list of excuses exists and is still too long."""
        lengths = {name: length for source in self.sources for name, length in source.functions()}
        stale = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= FUNCTION_LINES]
        self.assertEqual(stale, [])


class LayoutTests(SynchronousTestCase):
    """The tree is laid out so that twistd finds the plugin and pip ships what belongs to it."""

    def test_plugin_directories_are_no_packages(self) -> None:
        """An ``__init__.py`` beside the plugin would hide Twisted's own package."""
        self.assertEqual([str(path) for path in (ROOT / "twisted").rglob("__init__.py")], [])

    def test_plugin_declares_only(self) -> None:
        """Every ``twistd --help`` imports the plugin file, so it holds ServiceMaker statements only."""
        plugins = sorted((ROOT / "twisted" / "plugins").glob("*.py"))
        self.assertEqual([path.name for path in plugins], ["pypto_router_plugin.py"])
        self.assertEqual(beyond_service_makers(plugins[0].read_text(encoding="utf-8")), [])

    def test_packages_are_listed(self) -> None:
        """The packages named in setup.cfg are those that exist, and twisted.plugins."""
        metadata = configparser.ConfigParser()
        metadata.read(ROOT / "setup.cfg", encoding="utf-8")
        listed = metadata["options"]["packages"].split()
        present = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / PACKAGE).rglob("*.py")}
        self.assertEqual(sorted(listed), sorted(present | {"twisted.plugins"}))

    def test_every_package_has_an_init(self) -> None:
        """A directory of modules is a package, or mypy and pip would see two different trees."""
        bare = {path.parent for path in (ROOT / PACKAGE).rglob("*.py")}
        self.assertEqual([str(path) for path in bare if not (path / "__init__.py").exists()], [])

    def test_dependencies_are_declared(self) -> None:
        """Whatever is imported from elsewhere is a declared dependency or comes with one or with Python."""
        metadata = configparser.ConfigParser()
        metadata.read(ROOT / "setup.cfg", encoding="utf-8")
        listed = metadata["options"]["install_requires"]
        names = [name.lower() for name in re.findall(r"(?m)^([\w-]+)", listed)]
        packages = {package for name in names for package in PACKAGES_OF.get(name, name).split()}
        imported = {name.partition(".")[0] for source in sources() for name in source.imports()}
        ours = {PACKAGE, "__future__", *sys.stdlib_module_names}
        self.assertEqual(imported - packages - ours - LENT - OPTIONAL, set())

    def test_extras_are_declared(self) -> None:
        """What an extra brings is declared, and nothing imports it before somebody asks for it."""
        metadata = configparser.ConfigParser(interpolation=None)
        metadata.read(ROOT / "setup.cfg", encoding="utf-8")
        listed = re.findall(r"(?m)^([\w-]+)", metadata["options.extras_require"]["kv-events"])
        self.assertEqual({PACKAGES_OF.get(name, name) for name in listed}, OPTIONAL)
        late = {f"{PACKAGE}.{module}" for module in OPTIONAL_MODULES}
        eager = {
            source.module
            for source in sources()
            for name in source.eager_imports()
            if name in late or name.partition(".")[0] in OPTIONAL
        }
        self.assertEqual(eager, OPTIONAL_MODULES)


class RulesTests(SynchronousTestCase):
    """The rules above see what they are there to see."""

    def _source(self, path: str, text: str) -> Source:
        return Source(Path(PACKAGE, path), text)

    def _edges(self, path: str, text: str) -> list[str]:
        return wrong_edges(
            self._source(path, text),
            {"", "errors", "config", "config.model", "config.reading", "core", "core.fleet", "proxy.wire"},
        )

    def test_relative_import_against_the_arrow(self) -> None:
        """``from ..proxy`` in core is an edge."""
        self.assertEqual(
            self._edges("core/fleet.py", "from ..proxy.wire import Wire"),
            ["core.fleet imports twisted_router.proxy.wire.Wire"],
        )

    def test_import_inside_a_function(self) -> None:
        """An import hidden in a function is an edge like any other."""
        self.assertEqual(
            self._edges("proxy/pool.py", "def f():\n    import twisted_router.services.prober\n"),
            ["proxy.pool imports twisted_router.services.prober"],
        )

    def test_module_imported_by_name(self) -> None:
        """``from ..config import reading`` reaches reading, not only the package."""
        self.assertEqual(
            self._edges("core/__init__.py", "from ..config import reading"),
            ["core imports twisted_router.config.reading"],
        )

    def test_edges_along_the_arrows(self) -> None:
        """Errors, the configuration's values and the own room may be imported."""
        text = "from ..errors import Conflict\nfrom ..config.model import X\nfrom ..config import model\n"
        self.assertEqual(self._edges("core/slots.py", text + "from . import fleet"), [])

    def test_unknown_room(self) -> None:
        """A new room imports nothing of ours until an arrow is drawn for it."""
        self.assertEqual(
            self._edges("lounge.py", "from .errors import Conflict"),
            ["lounge imports twisted_router.errors.Conflict"],
        )

    def test_twisted_in_core(self) -> None:
        """Even a Deferred is too much for the core."""
        text = "from twisted.internet.defer import Deferred"
        self.assertEqual(len(wrong_twisted(self._source("core/fleet.py", text))), 1)
        self.assertEqual(wrong_twisted(self._source("interfaces.py", text)), [])
        self.assertEqual(len(wrong_twisted(self._source("interfaces.py", "import twisted.web"))), 1)

    def test_reactor_import(self) -> None:
        """Both spellings of the reactor import are seen; the programs may use it."""
        for text in ("from twisted.internet import reactor", "import twisted.internet.reactor as r"):
            self.assertEqual(len(wrong_twisted(self._source("proxy/pool.py", text))), 1)
            self.assertEqual(wrong_twisted(self._source("sim/replica.py", text)), [])

    def test_lengths(self) -> None:
        """The 401st line of a module and the 41st of a method are too many."""
        method = "class A:\n    def f(self):\n" + "        x = 1\n" * 40
        self.assertEqual(too_long(self._source("web/app.py", method)), ["web.app:A.f: 41 lines"])
        self.assertEqual(too_long(self._source("web/app.py", "x = 1\n" * 401)), ["web.app: 401 lines"])
        self.assertEqual(too_long(self._source("web/app.py", "x = 1\n" * 400)), [])

    def test_busy_plugin(self) -> None:
        """An import of ours in the plugin file is seen."""
        self.assertEqual(
            beyond_service_makers('"""Doc."""\nimport twisted_router\n'), ["import twisted_router"]
        )
