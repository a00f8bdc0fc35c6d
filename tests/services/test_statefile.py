from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator

import attrs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_router.core.records import FleetRecord, LaunchTime, PinRecord, Reservation, SlotRecord
from twisted_router.core.slots import Handle
from twisted_router.errors import StateFileBusy, StateFileError
from twisted_router.interfaces import IStateStore
from twisted_router.services.statefile import NoStateFile, StateFile

RECORD = FleetRecord(
    slots=(
        SlotRecord(
            slot="node01-d4",
            instance="node01-d4/1f",
            devices=(4, 5),
            address="127.0.0.1",
            port=8005,
            handle=Handle("node01-d4", "node01-d4/1f", 4711, "98765", "/var/log/node01-d4.log"),
            reason=Reservation.STOP_UNCONFIRMED,
            why="the address still answers",
            age=12.5,
        ),
        SlotRecord("node02-d1", "node02-d1/2e", (1,), "10.0.0.2", 8002),
    ),
    launch_times=(LaunchTime("node01", "/models/Qwen3-14B", 131.5),),
)
PINS = (PinRecord("s1", "node0", 0.0), PinRecord("s2", "node01-d4/1f", 59.5))


class StateFileTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.wall = 1_000_000.0
        self.path = os.path.join(self.mktemp(), "state", "fleet.json")
        self.store = self.open()

    def open(self) -> StateFile:
        store = StateFile(self.path, lambda: self.wall)
        self.addCleanup(store.close)
        return store

    def write(self, content: bytes) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "wb") as file:
            file.write(content)

    def read(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def locked(self) -> StateFile:
        self.store.lock()
        return self.store


class Remembering(StateFileTestCase):
    def test_interface(self) -> None:
        """Both stores keep the whole contract."""
        for store in (self.store, NoStateFile()):
            self.assertTrue(verifyObject(IStateStore, store))

    def test_first_start(self) -> None:
        """Where nothing was saved yet, there is nothing to take back; the directory is made."""
        store = self.locked()
        self.assertEqual((store.load(), store.load_pins()), (FleetRecord(), ()))

    def test_round_trip(self) -> None:
        """Every field of a record comes back as it was."""
        for field in attrs.fields(SlotRecord):
            self.assertNotEqual(getattr(RECORD.slots[0], field.name), field.default, field.name)
        self.locked().save(RECORD)
        self.assertEqual(self.open().load(), RECORD)

    def test_time_on_disk(self) -> None:
        """Ages and idle times go on while nobody runs."""
        self.locked().save(RECORD)
        self.store.save_pins(PINS)
        self.wall += 100
        self.assertEqual([slot.age for slot in self.open().load().slots], [112.5, 100.0])
        self.assertEqual([pin.idle for pin in self.open().load_pins()], [100.0, 159.5])

    def test_wall_clock_stepped_back(self) -> None:
        """A wall clock that stepped back makes nothing younger than it was."""
        self.locked().save(RECORD)
        self.wall -= 3600
        self.assertEqual(self.open().load(), RECORD)

    def test_private(self) -> None:
        """Session ids and addresses are nobody else's business."""
        self.locked().save(RECORD)
        self.store.save_pins(PINS)
        for path in (self.path, self.store.pins_path, self.store.lock_path):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_symbolic_link(self) -> None:
        """A state file behind a link is replaced where it lies; the link stays."""
        self.locked().save(FleetRecord())
        link = self.path + ".link"
        os.symlink(os.path.basename(self.path), link)
        StateFile(link, lambda: self.wall).save(RECORD)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(self.open().load(), RECORD)

    def test_without_a_file(self) -> None:
        """Without a state file nothing is remembered and nothing fails."""
        store = NoStateFile()
        store.lock()
        store.save(RECORD)
        store.save_pins(PINS)
        self.assertEqual((store.load(), store.load_pins()), (FleetRecord(), ()))
        store.close()


class Refusing(StateFileTestCase):
    def check(self, content: bytes, why: str) -> None:
        self.write(content)
        error = self.assertRaises(StateFileError, self.store.load)
        self.assertIn(why, str(error))
        self.assertIn(self.store.path, str(error))
        self.assertIn("move the file away", str(error))
        self.assertEqual(self.read(), content)

    def saved(self, **changes: object) -> bytes:
        self.locked().save(RECORD)
        document = json.loads(self.read())
        return json.dumps(document | changes).encode()

    def test_damaged(self) -> None:
        """A damaged file is refused with its name, what is wrong and the way out, and is left as it was."""
        whole = self.saved()
        self.check(b"", "empty")
        self.check(b"\x00" * 512, "NULs")
        self.check(whole[: len(whole) // 2], "cut off")
        self.check(whole[:100] + b"\x00" * 100, "not JSON")
        self.check(b"\xff\xfe\xfa{", "not JSON")
        self.check(b"[" * 100_000, "not JSON")

    def test_foreign(self) -> None:
        """JSON that this router did not write is refused."""
        for content in (b"[]", b"null", b"{}", b'{"replicas": []}', b'{"version": 1}'):
            self.check(content, "not written by this router")

    def test_newer(self) -> None:
        """A newer router's file is refused by both version numbers."""
        self.check(self.saved(version=2), "newer router (version 2, this one reads 1)")

    def test_odd_version(self) -> None:
        """A version that never was is refused."""
        self.check(self.saved(version=0), "unknown version 0")
        self.check(self.saved(version=True), "'version'")

    def test_wrong_fields(self) -> None:
        """A field that is missing or of the wrong kind is named, wherever it is."""
        slot = json.loads(self.saved())["slots"][0]
        for key in slot:
            self.check(self.saved(slots=[slot | {key: {"odd": 1}}]), "is missing")
            wanting = {name: value for name, value in slot.items() if name != key}
            if slot[key] is not None and key not in ("handle", "reason"):
                self.check(self.saved(slots=[wanting]), f"{key!r} is missing")
        self.check(self.saved(slots=[slot | {"devices": ["4"]}]), "not numbers")
        self.check(self.saved(slots=[slot | {"reason": "because"}]), "'because' is unknown")
        self.check(self.saved(slots=[slot | {"age": float("nan")}]), "'age'")
        self.check(self.saved(slots=["node01"]), "'devices' is missing")
        for key in ("slot", "instance", "address"):
            self.check(self.saved(slots=[slot | {key: ""}]), f"{key!r} is empty")
        for key in ("slot", "instance"):
            self.check(self.saved(slots=[slot | {"handle": slot["handle"] | {key: ""}}]), f"{key!r} is empty")
        for port in (-1, 0, 65536, 10**400):
            self.check(self.saved(slots=[slot | {"port": port}]), "'port' is not from 1 to 65535")
        for pid in (-1, 0, 2**31):
            self.check(
                self.saved(slots=[slot | {"handle": slot["handle"] | {"pid": pid}}]), "'pid' is not from 1"
            )
        self.check(self.saved(launch_times=None), "'launch_times'")

    def test_one_instance_twice(self) -> None:
        """An instance is one launch, which cannot be on two slots."""
        slot = json.loads(self.saved())["slots"][0]
        self.check(self.saved(slots=[slot, slot | {"slot": "node01-d9"}]), "have one 'instance'")

    def test_unreadable(self) -> None:
        """A file that cannot be read is not a file that is not there."""
        os.makedirs(self.path)
        error = self.assertRaises(StateFileError, self.store.load)
        self.assertIn("cannot be read: Is a directory", str(error))


class Writing(StateFileTestCase):
    def test_full_disk(self) -> None:
        """When the disk is full the save fails, says so, and the old file stays whole and alone."""
        self.locked().save(RECORD)
        os.symlink("/dev/full", self.path + ".new")
        error = self.assertRaises(StateFileError, self.store.save, FleetRecord())
        self.assertIn("No space left on device", str(error))
        self.assertIn(self.store.path, str(error))
        self.assertEqual(self.open().load(), RECORD)
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["fleet.json", "fleet.json.lock"])

    def test_room_again(self) -> None:
        """A save after a failed one is a save like any other."""
        self.locked().save(RECORD)
        os.symlink("/dev/full", self.path + ".new")
        self.assertRaises(StateFileError, self.store.save, FleetRecord())
        self.store.save(FleetRecord())
        self.assertEqual(self.open().load(), FleetRecord())

    def test_crash_before_the_rename(self) -> None:
        """A sibling left by a crash is neither read nor in the way."""
        self.locked().save(RECORD)
        with open(self.path + ".new", "wb") as file:
            file.write(b'{"version": 1, "pro' * 1000)
        self.assertEqual(self.open().load(), RECORD)
        self.store.save(FleetRecord())
        self.assertEqual(self.open().load(), FleetRecord())

    def test_order_of_system_calls(self) -> None:
        """The sibling is on the disk before it is renamed, and the rename before save returns."""
        self.locked()
        calls: list[str] = []
        for name in ("fsync", "rename"):
            real = getattr(os, name)
            self.patch(os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1])
        self.store.save(RECORD)
        self.assertEqual(calls, ["fsync", "rename", "fsync"])


class Locking(StateFileTestCase):
    def test_second_router(self) -> None:
        """A second router is kept out and told the file and the other's pid."""
        self.locked()
        error = self.assertRaises(StateFileBusy, self.open().lock)
        self.assertIn(self.store.path, str(error))
        self.assertIn(f"pid {os.getpid()}", str(error))

    def test_unknown_pid(self) -> None:
        """Where the other's pid is not to be had, the file is named all the same."""
        self.locked()
        os.truncate(self.store.lock_path, 0)
        error = self.assertRaises(StateFileBusy, self.open().lock)
        self.assertIn("in use by another router. Stop", str(error))

    def test_again(self) -> None:
        """The holder may lock again, as a daemon does after its forks, to tell its new pid."""
        self.locked()
        os.truncate(self.store.lock_path, 0)
        self.store.lock()
        with open(self.store.lock_path) as file:
            self.assertEqual(file.read(), f"{os.getpid()}\n")

    def test_given_back(self) -> None:
        """After ``close`` the next router gets in, a stale pid or not."""
        self.locked().close()
        self.open().lock()

    def test_no_directory(self) -> None:
        """A directory that cannot be made is said before anything is started."""
        blocked = StateFile(os.path.join("/dev/null", "state", "x.json"))
        error = self.assertRaises(StateFileError, blocked.lock)
        self.assertIn("/dev/null/state/x.json cannot be locked", str(error))

    def test_not_inherited(self) -> None:
        """A launched replica does not inherit the lock."""
        self.locked()
        assert self.store._locked is not None
        self.assertFalse(os.get_inheritable(self.store._locked))


class Sessions(StateFileTestCase):
    def many(self, count: int) -> Iterator[PinRecord]:
        return (PinRecord(f"s{number}", "node0", float(number)) for number in range(count))

    def test_round_trip(self) -> None:
        """Pins come back in their order, whatever their number."""
        for count in (0, 1, 500, 501, 1000):
            self.locked().save_pins(self.many(count))
            self.assertEqual(self.open().load_pins(), tuple(self.many(count)))

    def test_apart(self) -> None:
        """Pins lie in a file of their own; saving them does not touch the slots' file."""
        self.locked().save_pins(PINS)
        self.assertEqual(os.path.exists(self.path), False)
        self.assertEqual(self.store.load(), FleetRecord())

    def test_damaged(self) -> None:
        """Damaged pins cost affinity, not the start; they are named and never overwritten."""
        self.locked().save_pins(self.many(1200))
        with open(self.store.pins_path, "rb") as file:
            whole = file.read()
        damaged = (
            b"",
            b"[]",
            b"\x00" * 99,
            whole[: len(whole) // 2],
            whole[:-3],
            whole.replace(b'"s7"', b'"s7'),
            whole.replace(b'["s7", "node0", 7.0]', b"7"),
            whole.replace(b'"version": 1', b'"version": 9'),
        )
        for content in damaged:
            with open(self.store.pins_path, "wb") as file:
                file.write(content)
            store = self.open()
            self.assertEqual(store.load_pins(), (), content[:40])
            store.save_pins(PINS)
            with open(self.store.pins_path, "rb") as file:
                self.assertEqual(file.read(), content)

    def test_full_disk(self) -> None:
        """Pins that find no room leave the old ones valid."""
        self.locked().save_pins(PINS)
        os.symlink("/dev/full", self.store.pins_path + ".new")
        self.assertRaises(StateFileError, self.store.save_pins, ())
        self.assertEqual(self.open().load_pins(), PINS)
