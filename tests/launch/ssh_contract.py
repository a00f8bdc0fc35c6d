"""What both ssh clients promise of keys, hosts that are not well, and login shells of any kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time

from attrs import evolve
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol

from twisted_router.errors import LaunchFailed, LaunchUncertain, StopUnconfirmed
from twisted_router.launch import remote

from .contract import GRACE, Contract
from .places import REPLICA, RealPlace
from .processes import AWKWARD
from .sshd import Sshd, program

#: Seconds within which an operator is told what is wrong with a host.
SOON = 5.0

#: A login shell that knows one word, as an extreme of what fish and csh understand otherwise than sh.
STRANGE_SHELL = r"""#!/bin/sh
printf 'Welcome to node!\nNo newline at the end of this banner'
echo 'profile: warning' >&2
exec 7>&1 8>&2
case $1 in
    *[!a-z/\ -]*) echo "strange-shell: cannot parse: $1" >&2; exit 2 ;;
    exec\ *) exec ${1#exec } ;;
esac
echo "strange-shell: unknown command: $1" >&2
exit 2
"""


class SshPlace(Contract):
    """A place behind an sshd of its own. A subclass makes launchers in ``ssh_launcher``."""

    place: RealPlace

    async def setUp(self) -> None:
        self.patch(remote, "LOOK_INTERVAL", 0.2)
        self.sshd = Sshd(reactor, self.mktemp())
        self.addCleanup(self.sshd.stop)
        await self.sshd.start()
        self.place = RealPlace(self, reactor, self.ssh_launcher)
        self.place.host = evolve(
            self.place.host,
            ssh=self.sshd.destination,
            identity_file=self.sshd.identity,
            known_hosts=self.sshd.known_hosts,
        )

    async def fails(self, **settings: object) -> str:
        """Launch, see it fail for certain and soon, and give the one line that tells why."""
        launcher = self.place.launcher_of(self.place.configured(**settings))
        began = time.monotonic()
        error = await self.assertFailure(launcher.launch(self.place.slot, self.one), LaunchFailed)
        self.assertNotIsInstance(error, LaunchUncertain)
        self.assertLess(time.monotonic() - began, SOON)
        self.assertNotIn("\n", str(error))
        self.assertIn(self.place.slot.name, str(error))
        return str(error)


class SshContract(SshPlace):
    """Promises about the way to another machine."""

    async def test_a_key_that_is_refused(self) -> None:
        """One line says that the host refuses our key."""
        self.assertIn("refuses our key", await self.fails(identity_file=self.sshd.make_key("other")))

    async def test_a_host_key_that_has_changed(self) -> None:
        """One line says that the host key is not the known one."""
        await self.sshd.stop()
        self.sshd.make_key("host_key")
        await self.sshd.start()
        told = await self.fails()
        self.assertIn("host key is not the known one", told)
        keygen = [program("ssh-keygen", "openssh-client"), "-l", "-f", self.sshd.path("host_key.pub")]
        shown = subprocess.run(keygen, check=True, capture_output=True, text=True).stdout.split()[1]
        self.assertIn(shown, told)

    async def test_a_host_key_that_is_not_known(self) -> None:
        """One line says that the host key is not known; nobody is asked and nothing is written down."""
        empty = self.sshd.write("empty", "")
        self.assertIn("host key is not known", await self.fails(known_hosts=empty))
        self.assertEqual(os.path.getsize(empty), 0)

    async def test_a_host_that_is_down(self) -> None:
        """One line says that it cannot be reached."""
        await self.sshd.stop()
        self.assertIn("cannot be reached: Connection refused", await self.fails())

    async def test_a_host_that_says_nothing(self) -> None:
        """A host that takes the connection and stays silent is told as well, and does not hang us."""
        silent = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(silent.stopListening)
        told = await self.fails(ssh=f"ssh://root@127.0.0.1:{silent.getHost().port}")
        self.assertIn("does not answer", told)

    async def test_an_identity_file_open_to_others(self) -> None:
        """A private key that others can read is not used, and the line says what to do."""
        os.chmod(self.sshd.identity, 0o644)
        self.assertIn("chmod 600", await self.fails())

    async def test_an_identity_file_that_is_missing(self) -> None:
        """A private key that is not there is named."""
        self.assertIn("/no/such/key", await self.fails(identity_file="/no/such/key"))

    async def test_a_server_killed_during_a_launch(self) -> None:
        """Whether the replica runs is not known then, and the launch says so within seconds."""
        await self.sshd.stop()
        self.sshd.force = " ".join(self.endless)
        await self.sshd.start()
        launcher = self.place.launcher_of(self.place.configured())
        launch = launcher.launch(self.place.slot, self.one)
        await self.place.up()
        await self.killed(self.assertFailure(launch, LaunchUncertain))

    async def test_a_server_killed_during_a_stop(self) -> None:
        """A stop whose end was not seen is unconfirmed, and it says so within seconds."""
        launcher = self.place.launcher_of(self.place.configured(stop_command=self.endless))
        handle = await launcher.launch(self.place.slot, self.one)
        await self.place.up()
        stopped = launcher.stop(self.place.slot, self.one, handle, GRACE)
        await self.place.up()
        await self.killed(self.assertFailure(stopped, StopUnconfirmed))

    async def test_a_step_without_an_end(self) -> None:
        """A launch that takes too long is given up, and nobody knows what became of it."""
        await self.sshd.stop()
        self.sshd.force = " ".join(self.endless)
        await self.sshd.start()
        self.patch(remote, "STEP_TIMEOUT", 3.0)
        launcher = self.place.launcher_of(self.place.configured())
        launch = launcher.launch(self.place.slot, self.one)
        await self.place.up()
        error = await self.assertFailure(launch, LaunchUncertain)
        self.assertIn("no end of this step within 3 s", str(error))

    async def test_a_host_that_comes_back_is_used_again(self) -> None:
        """A lost connection is made anew for the next step, and the replica is still known."""
        launcher, handle = await self.started()
        await self.sshd.stop()
        await self.assertFailure(launcher.is_running(self.place.slot, self.one, handle), StopUnconfirmed)
        await self.sshd.start()
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_a_hanging_host_delays_only_itself(self) -> None:
        """While one host says nothing, another one launches."""
        silent = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(silent.stopListening)
        hanging = self.place.launcher_of(
            self.place.configured(ssh=f"ssh://root@127.0.0.1:{silent.getHost().port}")
        )
        stuck = hanging.tail(self.place.slot, 1)
        await self.started()
        self.assertNoResult(stuck)
        stuck.cancel()
        await self.assertFailure(stuck, CancelledError)

    async def test_a_login_shell_of_any_kind(self) -> None:
        """A shell that parses next to nothing, prints banners and leaves descriptors open is no obstacle."""
        shell = self.sshd.write("strange-shell", STRANGE_SHELL)
        os.chmod(shell, 0o755)
        await self.sshd.stop()
        self.sshd.force = f'exec {shell} "$SSH_ORIGINAL_COMMAND"'
        await self.sshd.start()
        awkward = tuple(word for word in AWKWARD if "{" not in word)
        launcher, handle = await self.started(*awkward)
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        self.assertFalse(await launcher.is_held(self.place.slot))

    async def test_a_login_shell_that_lets_nobody_in(self) -> None:
        """An account without a shell fails the launch for certain, with what it said."""
        await self.sshd.stop()
        self.sshd.force = "echo this account is not available; exit 1"
        await self.sshd.start()
        self.assertIn("this account is not available", await self.fails())

    async def test_the_default_log_directory_is_in_the_home_directory(self) -> None:
        """Without log_dir output goes under ~ over there, and the handle has the whole path."""
        home = os.path.join(self.place.directory, "home of it")
        os.makedirs(home)
        await self.sshd.stop()
        self.sshd.force = f"export HOME='{home}'; eval \"$SSH_ORIGINAL_COMMAND\""
        await self.sshd.start()
        launcher = self.place.launcher_of(self.place.configured(log_dir=None))
        handle = await launcher.launch(self.place.slot, self.one)
        await self.place.up()
        self.assertEqual(handle.log_path, f"{home}/.local/state/pypto-router/logs/here-d4.log")
        self.assertEqual(await launcher.tail(self.place.slot, 1), "hello")

    async def test_one_connection_for_many_steps(self) -> None:
        """Steps share a connection, also more of them at once than a server allows sessions."""
        launcher, handle = await self.started()
        steps = [launcher.is_running(self.place.slot, self.one, handle) for _ in range(12)]
        self.assertEqual([await step for step in steps], [True] * 12)
        self.assertEqual(self.sshd.logins, 1)

    async def test_a_known_key_of_any_kind_is_asked_for(self) -> None:
        """A server with several host keys is asked for the one that is known, here written as a hash."""
        await self.sshd.stop()
        for kind in ("ecdsa", "rsa"):
            self.sshd.make_key(f"host_key_{kind}", kind)
        hashing = [program("ssh-keygen", "openssh-client"), "-H", "-f", self.sshd.known_hosts]
        subprocess.run(hashing, check=True, capture_output=True)
        await self.sshd.start()
        await self.started()

    async def test_keys_of_other_kinds(self) -> None:
        """RSA and ECDSA log in as well as Ed25519."""
        for kind in ("rsa", "ecdsa"):
            identity = self.sshd.make_key(f"user_{kind}", kind)
            self.sshd.write("authorized_keys", self.sshd.public(f"user_{kind}") + "\n")
            launcher = self.place.launcher_of(self.place.configured(identity_file=identity))
            self.assertFalse(await launcher.is_held(self.place.slot))

    async def test_the_agent_logs_in(self) -> None:
        """Without an identity file the keys of ssh-agent are offered."""
        socket = os.path.join(tempfile.mkdtemp(prefix="agent-"), "s")
        self.addCleanup(shutil.rmtree, os.path.dirname(socket))
        agent = subprocess.Popen(
            [program("ssh-agent", "openssh-client"), "-D", "-a", socket], stdout=subprocess.PIPE
        )
        self.addCleanup(agent.communicate)
        self.addCleanup(agent.terminate)
        assert agent.stdout is not None
        agent.stdout.readline()
        environ = {**os.environ, "SSH_AUTH_SOCK": socket, "HOME": self.place.directory}
        self.patch(os, "environ", environ)
        add = [program("ssh-add", "openssh-client"), "-q", self.sshd.make_key("user_rsa", "rsa")]
        subprocess.run(add, check=True, env=environ)
        self.sshd.write("authorized_keys", self.sshd.public("user_rsa") + "\n")
        launcher = self.place.launcher_of(self.place.configured(identity_file=None))
        self.assertFalse(await launcher.is_held(self.place.slot))

    @property
    def endless(self) -> tuple[str, ...]:
        """A command that phones home and never ends by itself."""
        return (sys.executable, REPLICA, "--deaf", "--home", str(self.place.home.port))

    async def killed(self, failure: Deferred[object]) -> None:
        """Kill the server and its sessions; what was under way has to fail soon, in one line."""
        began = time.monotonic()
        await self.sshd.stop()
        error = await failure
        self.assertLess(time.monotonic() - began, SOON)
        self.assertIn("connection was lost", str(error))
        self.assertNotIn("\n", str(error))
