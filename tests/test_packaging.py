"""What pip installs, plain and editable: twistd finds the plugin, types are shipped, tests are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("setup.cfg", "pyproject.toml", "README.rst", "LICENSE", "twisted", "twisted_router", "tests")
PLUGIN = "twisted/plugins/pypto_router_plugin.py"
LISTED = r"(?m)^ +pypto-router +Route "
RUN_TWISTD = "from twisted.scripts.twistd import run; run()"
FIND_PLUGIN = (
    "import twisted.plugins, importlib\n"
    "plugin = importlib.import_module('twisted.plugins.pypto_router_plugin')\n"
    "import twisted_router\n"
    "print(plugin.__file__, twisted_router.__file__, sep='\\n')"
)


def run(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command to its end and return its output; fail with that output when it fails."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    if done.returncode:
        raise AssertionError(f"{argv} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


@cache
def plain_install() -> tuple[Path, Path]:
    """``pip install .`` from a copy of the sources, once; return the wheel and the directory it went to."""
    work = Path(tempfile.mkdtemp(prefix="install-", dir=Path.cwd()))
    tree = work / "tree"
    tree.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(work), str(tree))
    run(*pip, *build, cwd=work)
    (wheel,) = work.glob("*.whl")
    target = work / "target"
    run(*pip, "install", "--no-deps", "--target", str(target), str(wheel), cwd=work)
    return wheel, target


class PlainInstallTests(SynchronousTestCase):
    """A plain ``pip install .`` is complete and holds nothing else."""

    def setUp(self) -> None:
        wheel, self.target = plain_install()
        with zipfile.ZipFile(wheel) as archive:
            self.names = {name for name in archive.namelist() if ".dist-info/" not in name}

    def _python(self, code: str, *argv: str) -> str:
        """Run code with the target and our dependencies, but without any editable install."""
        path = os.pathsep.join(
            [str(self.target), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        )
        return run(sys.executable, "-S", "-c", code, *argv, cwd=self.target.parent, env={"PYTHONPATH": path})

    def test_twistd_lists_it(self) -> None:
        """Twistd finds the plugin of a plain install."""
        self.assertRegex(self._python(RUN_TWISTD, "--help"), LISTED)

    def test_plugin_beside_twisted(self) -> None:
        """``twisted.plugins`` reaches the installed plugin though Twisted itself lies elsewhere."""
        found = [Path(line) for line in self._python(FIND_PLUGIN).splitlines()]
        self.assertEqual(found, [self.target / PLUGIN, self.target / "twisted_router" / "__init__.py"])

    def test_contents(self) -> None:
        """Every file of the package and the plugin are shipped; tests are not."""
        files = [path for path in (ROOT / "twisted_router").rglob("*") if path.is_file()]
        ours = {str(path.relative_to(ROOT)) for path in files if path.parent.name != "__pycache__"}
        self.assertIn("twisted_router/py.typed", ours)
        self.assertEqual((ours | {PLUGIN}) - self.names, set())
        self.assertEqual({name.partition("/")[0] for name in self.names}, {"twisted", "twisted_router"})

    def test_commands(self) -> None:
        """Both commands are installed."""
        commands = {path.name for path in (self.target / "bin").iterdir()}
        self.assertLessEqual({"pypto-router", "pypto-serving-router"}, commands)


class EditableInstallTests(SynchronousTestCase):
    """The install that ``make`` does, seen from a directory that is not the checkout."""

    def setUp(self) -> None:
        self.elsewhere = Path(self.mktemp()).resolve()
        self.elsewhere.mkdir(parents=True)

    def test_twistd_lists_it(self) -> None:
        """The editable install does not hide the plugin from twistd."""
        twistd = Path(sysconfig.get_path("scripts"), "twistd")
        listing = run(str(twistd), "--help", cwd=self.elsewhere, env={"PYTHONPATH": ""})
        self.assertRegex(listing, LISTED)

    def test_plugin_is_the_checkout(self) -> None:
        """What is imported is the checkout itself, not a copy of some earlier day."""
        found = run(sys.executable, "-c", FIND_PLUGIN, cwd=self.elsewhere, env={"PYTHONPATH": ""})
        self.assertEqual(
            [Path(line) for line in found.splitlines()],
            [
                ROOT / "twisted" / "plugins" / "pypto_router_plugin.py",
                ROOT / "twisted_router" / "__init__.py",
            ],
        )
