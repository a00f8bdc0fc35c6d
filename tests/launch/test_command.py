"""How a replica's command is put together and quoted."""

from __future__ import annotations

import subprocess

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import COMMAND_PLACEHOLDERS, PLACEHOLDERS, HostConfig
from twisted_router.core.slots import Slot
from twisted_router.launch.command import HomePath, assignments, build, inherited, quote, quote_all

from .processes import AWKWARD

HOST = HostConfig(name="node02", devices=(0, 1, 2, 3), devices_per_replica=2, model="/weights/m")
SLOT = Slot("node02-d2", "node02", (2, 3), "127.0.0.1", 8003)
REMOTE = evolve(HOST, ssh="user@node02")


def argv(host: HostConfig, home: str | None = "/home/me") -> tuple[str, ...]:
    return build(host, SLOT, "i1", "/state/logs", home).argv


class ServingCommandTests(SynchronousTestCase):
    """What is started when no ``command`` is configured."""

    def test_the_manuals_program(self) -> None:
        """Without ``python`` it is the program the manual starts by hand, on the loopback address."""
        expected = (
            "pypto-serving --model /weights/m --devices 2,3 --host 127.0.0.1 --port 8003 --show-startup-logs"
        )
        self.assertEqual(argv(HOST), tuple(expected.split()))

    def test_an_interpreter(self) -> None:
        """With ``python`` it is that interpreter's module."""
        self.assertEqual(argv(evolve(HOST, python="/opt/py"))[:3], ("/opt/py", "-m", "pypto_serving.cli"))

    def test_replicas_over_ssh_listen_everywhere(self) -> None:
        """The router is on another machine, so loopback would be out of its reach."""
        words = argv(REMOTE, None)
        self.assertEqual(words[words.index("--host") + 1], "0.0.0.0")

    def test_serve_args_come_last_and_verbatim(self) -> None:
        """After the served name, with braces and all."""
        host = evolve(HOST, served_model_name="qwen", serve_args=("--x", "{port}", "~/y"))
        self.assertEqual(argv(host)[-5:], ("--served-model-name", "qwen", "--x", "{port}", "~/y"))


class PlaceholderTests(SynchronousTestCase):
    """Which braces mean something, and where."""

    def test_a_command_of_ones_own(self) -> None:
        """All seven expand, others stay, and what came out of one is not looked at again."""
        template = "{device} {devices} {port} {model} {served_model_name} {slot} {host} {other} {{port}} {"
        host = evolve(HOST, command=("serve", template), model="{port}")
        self.assertEqual(argv(host)[1], "2 2,3 8003 {port} {port} node02-d2 127.0.0.1 {other} {8003} {")

    def test_all_that_are_named(self) -> None:
        """Whatever is named as a placeholder expands; nobody is warned of those."""
        host = evolve(HOST, command=("serve", *(f"{{{word}}}" for word in COMMAND_PLACEHOLDERS)))
        self.assertFalse([word for word in argv(host) if "{" in word])
        env = tuple((word, f"{{{word}}}") for word in PLACEHOLDERS)
        expanded = build(evolve(HOST, env=env), SLOT, "i1", "/l", "/h").env
        self.assertFalse([value for _, value in expanded if "{" in value])

    def test_the_three_of_the_manual(self) -> None:
        """env, launch_wrapper, stop_command and log_dir know device, devices and port, and no more."""
        word = "{device}/{devices}/{port}/{model}"
        told = "2/2,3/8003/{model}"
        host = evolve(
            HOST,
            env=(("A", word),),
            launch_wrapper=("w", word),
            stop_command=("s", word),
            log_dir=f"/l/{word}",
        )
        command = build(host, SLOT, "i1", "/state/logs", "/home/me")
        self.assertEqual(dict(command.env)["A"], told)
        self.assertEqual(command.argv[:2], ("w", told))
        self.assertEqual(command.stop_argv, ("s", told))
        self.assertEqual(command.log_path, f"/l/{told}/node02-d2.log")

    def test_json_in_the_environment_survives(self) -> None:
        """Braces that are no placeholder are left alone."""
        host = evolve(HOST, env=(("A", '{"devices": {"port": 1}}'),))
        self.assertEqual(dict(build(host, SLOT, "i1", "/l", "/h").env)["A"], '{"devices": {"port": 1}}')


class PathTests(SynchronousTestCase):
    """Where output and locks go."""

    def test_the_default(self) -> None:
        """Log and lock are named after the slot."""
        command = build(HOST, SLOT, "i1", "/state/logs", "/home/me")
        self.assertEqual(
            (command.log_path, command.lock_path), ("/state/logs/node02-d2.log", "/state/logs/node02-d2.lock")
        )

    def test_a_slot_cannot_leave_the_directory(self) -> None:
        """A slash in a host's name does not become a path."""
        command = build(HOST, evolve(SLOT, name="../x-d0"), "i1", "/state/logs", "/home/me")
        self.assertEqual(command.log_path, "/state/logs/..%2Fx-d0.log")

    def test_home_here(self) -> None:
        """A leading ~ is our home directory."""
        command = build(evolve(HOST, log_dir="~/l", workdir="~", model="~/m"), SLOT, "i1", "/l", "/home/me")
        self.assertEqual(
            (command.log_dir, command.workdir, command.argv[2]), ("/home/me/l", "/home/me", "/home/me/m")
        )

    def test_home_over_there(self) -> None:
        """On another machine it is left to the shell there, and everything else stays quoted."""
        command = build(evolve(REMOTE, log_dir="~/a b", model="~/m"), SLOT, "i1", "/l", None)
        self.assertEqual(quote(command.log_path), "\"$HOME\"'/a b/node02-d2.log'")
        self.assertEqual(quote(command.argv[2]), '"$HOME"/m')
        self.assertEqual(quote(HomePath("~")), '"$HOME"')


class QuotingTests(SynchronousTestCase):
    """What a shell makes of what we quote."""

    def shell(self, text: str) -> tuple[str, ...]:
        """Have sh take words apart and give them back."""
        printed = subprocess.run(
            ["/bin/sh", "-c", f"printf '%s\\0' {text}"], check=True, capture_output=True, env={"HOME": "/h"}
        )
        return tuple(printed.stdout.decode().split("\0")[:-1])

    def test_awkward_words(self) -> None:
        """They come back as they were."""
        self.assertEqual(self.shell(quote_all(AWKWARD)), AWKWARD)

    def test_home(self) -> None:
        """A path at home comes back as one word."""
        self.assertEqual(self.shell(quote(HomePath("~/it's $HOME"))), ("/h/it's $HOME",))

    def test_assignments(self) -> None:
        """Names and values are one word each."""
        env = tuple((f"K {index}", word) for index, word in enumerate(AWKWARD))
        self.assertEqual(self.shell(assignments(env)), tuple(f"{key}={value}" for key, value in env))


class WrapperTests(SynchronousTestCase):
    """What a broker is handed."""

    def test_one_argument(self) -> None:
        """The command is the last word, and carries the environment, which a broker may lose."""
        host = evolve(
            HOST,
            launch_wrapper=("task-submit", "--run"),
            command=("my serve", "it's"),
            env=(("B", "2 2"), ("A", "1")),
        )
        words = argv(host)
        self.assertEqual(words[:2], ("task-submit", "--run"))
        self.assertEqual(
            words[2:],
            ("env A=1 B='2 2' PYPTO_ROUTER_SLOT=node02-d2 PYPTO_ROUTER_INSTANCE=i1 'my serve' 'it'\"'\"'s'",),
        )


class InheritedTests(SynchronousTestCase):
    """What of the router's environment a replica sees."""

    def test_secrets_and_systemd(self) -> None:
        """Our own variables and systemd's word to us stay with us, the rest goes along."""
        ours = dict.fromkeys(
            (
                "PYPTO_ROUTER_ADMIN_TOKEN",
                "NOTIFY_SOCKET",
                "LISTEN_FDS",
                "WATCHDOG_USEC",
                "PYPTO_ROUTER_INSTANCE",
            ),
            "x",
        )
        kept = {"PATH": "/bin", "PYPTO_PROG_BUILD_DIR": "/b", "MY_LISTEN_FDS": "1", "LISTEN_FDS_MAX": "2"}
        self.assertEqual(inherited({**ours, **kept}), kept)
