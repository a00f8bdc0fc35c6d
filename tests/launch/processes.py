"""What every launcher promises of real processes; run on this machine and over both ssh clients."""

from __future__ import annotations

import os
import stat
import sys

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Handle
from twisted_router.errors import LaunchFailed, StopUnconfirmed
from twisted_router.launch import proc

from .contract import GRACE, Contract
from .places import REPLICA, RealPlace

#: Words that a careless shell would take apart.
AWKWARD = (
    "two words",
    'it\'s "quoted"',
    "$HOME `id` $(id) ${PATH}",
    "line one\nline two",
    "größe 模型 🚀",
    "",
    "back\\slash",
    "*?[a-z]!~ ; & | > < # %",
    "{device} {port} {other}",
    "-leading",
)


class ProcessContract(Contract):
    """Promises about argv, environment, families of processes, and whom a signal may reach."""

    place: RealPlace

    async def test_arguments_arrive_as_they_are(self) -> None:
        """serve_args and env reach the replica byte for byte, whatever is in them."""
        host = self.place.configured(
            *(word for word in AWKWARD if "{" not in word), env=(("AWKWARD", AWKWARD[3]),)
        )
        launcher = self.place.launcher_of(host)
        await launcher.launch(self.place.slot, self.one)
        about = (await self.place.caller()).about
        self.assertEqual(about["argv"][4:], [word for word in AWKWARD if "{" not in word])
        self.assertEqual(about["env"]["AWKWARD"], AWKWARD[3])

    async def test_serve_args_are_not_expanded(self) -> None:
        """The default command passes serve_args on verbatim, braces included."""
        script = os.path.join(self.place.directory, "python with spaces")
        with open(script, "w", encoding="utf-8") as file:
            file.write(
                f'#!/bin/sh\nexec {sys.executable} {REPLICA} --home {self.place.home.port} --deaf "$@"\n'
            )
        os.chmod(script, 0o755)
        host = self.place.configured(command=(), python=script, model="/models/m", serve_args=AWKWARD)
        launcher = self.place.launcher_of(host)
        await launcher.launch(self.place.slot, self.one)
        argv = (await self.place.caller()).about["argv"][3:]
        self.assertEqual(argv[:6], ["-m", "pypto_serving.cli", "--model", "/models/m", "--devices", "4"])
        self.assertEqual(tuple(argv[-len(AWKWARD) :]), AWKWARD)

    async def test_a_replica_is_on_its_own(self) -> None:
        """Own session, stdin null, markers in its environment, the workdir it was given, few descriptors."""
        launcher = self.place.launcher_of(self.place.configured(workdir=self.place.directory))
        handle = await launcher.launch(self.place.slot, self.one)
        about = (await self.place.caller()).about
        self.assertEqual((about["pid"], about["session"]), (handle.pid, handle.pid))
        self.assertEqual(about["stdin"], "/dev/null")
        self.assertEqual(about["env"]["PYPTO_ROUTER_INSTANCE"], self.one)
        self.assertEqual(about["env"]["PYPTO_ROUTER_SLOT"], self.place.slot.name)
        self.assertEqual(os.path.realpath(about["cwd"]), os.path.realpath(self.place.directory))
        self.assertLessEqual(
            len(about["fds"]), 6, about["fds"]
        )  # 0 1 2, the lock, the call home, /proc itself

    async def test_a_family_that_ignores_sigterm_is_killed(self) -> None:
        """Parent and forked child that ignore SIGTERM are both gone after the grace period."""
        launcher = self.place.launcher("--fork", "--ignore-term")
        handle = await launcher.launch(self.place.slot, self.one)
        family = [await self.place.caller(), await self.place.caller()]
        await launcher.stop(self.place.slot, self.one, handle, 0.0)
        for member in family:
            await member.ended
        self.assertFalse(await launcher.is_held(self.place.slot))

    async def test_a_grandchild_in_another_session_is_stopped(self) -> None:
        """The marker finds what left the session; that it keeps stdout open disturbs nobody."""
        launcher = self.place.launcher("--fork", "--new-session", "--leave")
        handle = await launcher.launch(self.place.slot, self.one)
        orphan = await self.place.caller()
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await orphan.ended

    async def test_a_child_without_the_marker_is_stopped_with_its_leader(self) -> None:
        """A child that scrubbed its environment is found by the leader's group."""
        launcher = self.place.launcher("--fork", "--scrub")
        handle = await launcher.launch(self.place.slot, self.one)
        family = [await self.place.caller(), await self.place.caller()]
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        for member in family:
            await member.ended

    async def test_a_reused_pid_is_never_signalled(self) -> None:
        """A pid whose start time is another's belongs to a stranger, and so does its group."""
        launcher, handle = await self.started()
        assert handle.started is not None
        stale = Handle(handle.slot, self.two, handle.pid, f"1{handle.started}", handle.log_path)
        self.assertFalse(await launcher.is_running(self.place.slot, self.two, stale))
        # The lock is the other one's, so this stop cannot be proved; what counts is who survives it.
        await self.assertFailure(launcher.stop(self.place.slot, self.two, stale, 0.0), StopUnconfirmed)
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_a_missing_program_is_named(self) -> None:
        """A serving binary that does not exist fails the launch with its name."""
        host = self.place.configured(command=("no-such-program",))
        await self.refused(host, "no-such-program is not")

    async def test_a_program_that_may_not_run_is_named(self) -> None:
        """A file that is not executable fails the launch with its name."""
        plain = os.path.join(self.place.directory, "plain")
        with open(plain, "w", encoding="utf-8") as file:
            file.write("text")
        await self.refused(self.place.configured(command=(plain,)), f"{plain} is not")

    async def test_a_missing_workdir_is_named(self) -> None:
        """A workdir that does not exist fails the launch with its name."""
        await self.refused(self.place.configured(workdir="/no/such/dir"), "workdir /no/such/dir")

    async def test_a_log_that_cannot_be_written_is_named(self) -> None:
        """A log directory that cannot be made fails the launch, and says so."""
        blocked = os.path.join(self.place.directory, "file")
        with open(blocked, "w", encoding="utf-8") as file:
            file.write("in the way")
        await self.refused(self.place.configured(log_dir=f"{blocked}/logs"), "log cannot be written")

    async def test_logs_are_for_the_owner(self) -> None:
        """Output may hold what users wrote: nobody else may read it."""
        await self.started()
        self.assertEqual(stat.S_IMODE(os.stat(self.place.log).st_mode), 0o600)

    async def test_a_wrapper_gets_the_command_as_one_argument(self) -> None:
        """The command reaches the wrapper shell-quoted, as one word, after the wrapper's expanded own."""
        wrapper = ("/bin/sh", "-c", 'test "$1" = 4 && test $# = 2 && eval "exec $2"', "sh", "{device}")
        host = self.place.configured(*AWKWARD[:3], launch_wrapper=wrapper)
        launcher = self.place.launcher_of(host)
        await launcher.launch(self.place.slot, self.one)
        about = (await self.place.caller()).about
        self.assertEqual(tuple(about["argv"][4:]), AWKWARD[:3])

    async def test_what_a_wrapper_started_elsewhere_is_stopped_by_its_marker(self) -> None:
        """A broker ends well at once; its charge, in another session, is found and stopped."""
        wrapper = ("/bin/sh", "-c", 'setsid sh -c "$1" & exit 0', "sh")
        launcher = self.place.launcher_of(self.place.configured(launch_wrapper=wrapper))
        handle = await launcher.launch(self.place.slot, self.one)
        charge = await self.place.caller()
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await charge.ended

    async def test_the_stop_command_replaces_the_signal(self) -> None:
        """It runs with its placeholders expanded, and the same proof follows."""
        told = os.path.join(self.place.directory, "told")
        stop = ("/bin/sh", "-c", f'echo "$@" > {told}', "sh", "{device}", "{port}")
        launcher = self.place.launcher_of(self.place.configured("--ignore-term", stop_command=stop))
        handle = await launcher.launch(self.place.slot, self.one)
        replica = await self.place.caller()
        await launcher.stop(self.place.slot, self.one, handle, 0.0)
        await replica.ended
        with open(told, encoding="utf-8") as file:
            self.assertEqual(file.read(), f"4 {self.place.slot.port}\n")

    async def test_a_stop_command_that_fails_proves_nothing(self) -> None:
        """Its exit code and what it said are told, and the replica is left alone."""
        stop = ("/bin/sh", "-c", "echo the broker is away; exit 7")
        launcher = self.place.launcher_of(self.place.configured(stop_command=stop))
        handle = await launcher.launch(self.place.slot, self.one)
        await self.place.up()
        error = await self.assertFailure(
            launcher.stop(self.place.slot, self.one, handle, 0.0), StopUnconfirmed
        )
        self.assertIn("exited with code 7", str(error))
        self.assertIn("the broker is away", str(error))
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_a_handle_holds_from_one_launcher_to_the_next(self) -> None:
        """Pid and start time are the kernel's, so that any later look agrees with them."""
        _, handle = await self.started()
        assert handle.pid is not None and handle.started is not None
        self.assertTrue(proc.is_alive(proc.Process(handle.pid, handle.started)))

    async def refused(self, host: HostConfig, sentence: str) -> None:
        """Launch and see one sentence, nothing running and nothing locked."""
        launcher = self.place.launcher_of(host)
        error = await self.assertFailure(launcher.launch(self.place.slot, self.one), LaunchFailed)
        self.assertIn(sentence, str(error).splitlines()[0])
        self.assertFalse(await launcher.is_running(self.place.slot, self.one, None))
