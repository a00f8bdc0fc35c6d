"""What the demo shows a person, and tells them to type."""

from __future__ import annotations

import json
import shlex
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.render import arrival, curl, news, welcome

AT = "2026-11-30T20:46:17+0000"
SLOTS = {"sim-d0": "http://h:2", "sim-d1": "http://h:3", "sim-d2": "http://h:4"}


class NewsTests(SynchronousTestCase):
    """What of the router's log a person sees."""

    def test_requests(self) -> None:
        """A line of the access log is shown with its time."""
        self.assertEqual(news(f"{AT} [twisted_router.access#info] POST /v1"), "20:46:17 POST /v1")

    def test_slots(self) -> None:
        """A change of a slot is shown."""
        line = f"{AT} [twisted_router.services.keeper.Keeper#info] slot sim-d0: launching"
        self.assertEqual(news(line), "20:46:17 slot sim-d0: launching")

    def test_warnings(self) -> None:
        """A warning is shown with its level, wherever it comes from."""
        self.assertEqual(news(f"{AT} [x#warn] v"), "20:46:17 warn: v")

    def test_advice(self) -> None:
        """A warning about the configuration, which the demo wrote itself, is not shown."""
        self.assertIsNone(news(f"{AT} [twisted_router.assembly#warn] no --admin-token"))

    def test_the_rest(self) -> None:
        """Other news is not shown, whether it has a level or not."""
        self.assertEqual([news(f"{AT} [{x}] v") for x in ("twisted.web#info", "-")], [None, None])

    def test_complaints(self) -> None:
        """A line that is none of the log is shown as it is, an empty one is not."""
        self.assertEqual(
            [news("pypto-router serve: error: w"), news("")], ["pypto-router serve: error: w", None]
        )


class ArrivalTests(SynchronousTestCase):
    """Which replicas are there."""

    def test_ready_or_adopted(self) -> None:
        """A slot has arrived when its replica is ready or was adopted, and not before."""
        notes = ("launching", "launched", "ready", "adopted", "lost: it was ready")
        found = [arrival(f"{AT} [k#info] slot sim-d1: {note}") for note in notes]
        self.assertEqual(found, [None, None, "sim-d1", "sim-d1", None])


class CurlTests(SynchronousTestCase):
    """Command lines that a shell understands."""

    def test_quoting(self) -> None:
        """The body survives the shell, quotes included."""
        words = shlex.split(curl("http://h/", {"a": 'it\'s "so" $HOME'}, "-i"))
        self.assertEqual(words[:3], ["curl", "-i", "http://h/"])
        self.assertEqual(json.loads(words[-1]), {"a": 'it\'s "so" $HOME'})


class WelcomeTests(SynchronousTestCase):
    """The lines to try."""

    def test_second_turn_extends_the_first(self) -> None:
        """The second command repeats the first one's messages and adds the id."""
        text = welcome("http://h:1", "m", SLOTS, "/d")
        turns = [
            shlex.split(line) for line in text.splitlines() if line.startswith("  curl ") and "-d" in line
        ]
        first, second = (json.loads(words[-1])["messages"] for words in turns[:2])
        self.assertEqual(second[: len(first)], first)
        self.assertIn("X-Session-Id: $ID", turns[1])
        self.assertTrue(json.loads(turns[2][-1])["stream"])

    def test_spare(self) -> None:
        """What is grown into and shrunk again is the slot that nothing runs on."""
        text = welcome("http://h:1", "m", SLOTS, "/d")
        self.assertIn("\nsim-d2     free, to grow into\n", text)
        self.assertIn("  curl -s -X DELETE http://h:1/replicas/sim-d2\n", text)

    def test_pid_of_a_replica(self) -> None:
        """The replica's line finds the process id in what the replica shows."""
        line = next(
            line
            for line in welcome("http://h:1", "m", SLOTS, "/d").splitlines()
            if "http://h:2/sim |" in line
        )
        command = line.partition("| ")[2].removesuffix(")")
        shown = json.dumps({"requests": 3, "pid": 4711, "x": 5}, separators=(",", ":"))
        done = subprocess.run(["sh", "-c", command], input=shown, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "4711")
