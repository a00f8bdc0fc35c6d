"""The parts of ``bench live`` that need no sockets."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from bench.live.candidates import CANDIDATES
from bench.live.clock import SteadyReactor, faster
from bench.live.judge import bars, cells, change, table
from bench.live.play import Places
from bench.live.rows import ROWS
from bench.live.stage import Stage
from bench.live.talk import Answer, Talk, read, unchunked
from bench.live.texts import WrittenText, WrittenTexts
from twisted_router.lab.rows import BY_NAME
from twisted_router.lab.simulation import Actor, Together, Turn, Wait
from twisted_router.lab.text import Text
from twisted_router.sim import prompt

STREAM = (
    b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":5,"total_tokens":95,'
    b'"prompt_tokens_details":{"cached_tokens":64}}}\n\ndata: [DONE]\n\n'
)


def rendered(text: WrittenText) -> bytes:
    """What a simulated replica makes of a request with this text."""
    return prompt.chat(json.loads(text.body(8, None)))


class TextTests(SynchronousTestCase):
    """``WrittenText``."""

    def test_tokens(self) -> None:
        """A replica counts within 1 % as many tokens as the laboratory."""
        text = WrittenTexts("seed").empty().grow(3000).grow(1200).grow(900, messages=2).grow(150, messages=0)
        self.assertEqual(text.tokens, 5250)
        self.assertLess(abs(prompt.count(rendered(text)) - 5250), 52)

    def test_growth_keeps_what_was(self) -> None:
        """What a replica has cached of a turn is the beginning of the next, in the same message or not."""
        text = WrittenTexts("seed").empty().grow(500)
        for messages in (0, 1, 2):
            before = len(rendered(text)) - len("<|im_end|>\n<|im_start|>assistant\n")
            start = rendered(text)[:before]
            text.grow(100, messages)
            self.assertTrue(rendered(text).startswith(start))

    def test_fork(self) -> None:
        """A fork is equal so far, and what both then get is not."""
        text = WrittenTexts("seed").empty().grow(500)
        twin = text.fork()
        self.assertEqual(rendered(twin), rendered(text))
        self.assertNotEqual(rendered(twin.grow(50)), rendered(text.grow(50)))

    def test_body(self) -> None:
        """The messages come last; an id is named in the body, and none where there is none."""
        text = WrittenTexts("seed").empty().grow(50)
        body = json.loads(text.body(7, "abc"))
        self.assertEqual(list(body)[-1], "messages")
        self.assertEqual((body["max_tokens"], body["session_params"]), (7, {"session_id": "abc"}))
        self.assertNotIn("session_params", json.loads(text.body(7, None)))


class StageTests(SynchronousTestCase):
    """``Stage``, at ten simulated seconds a second."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[tuple[Turn, Any]] = []
        self.ends: list[float] = []
        self.stage = Stage(
            self.clock,
            10.0,
            lambda turn, done: self.asked.append((turn, done)),
            lambda: self.ends.append(self.stage.now),
        )
        self.turn = Turn(cast(Text, None), 1, None)

    def test_waiting(self) -> None:
        """Waits are shortened by the scale."""

        def actor() -> Actor:
            yield Wait(20.0)

        self.stage.at(10.0, actor())
        self.clock.advance(1.0)
        self.clock.advance(1.9)
        self.assertEqual(self.ends, [])
        self.clock.advance(0.1)
        self.assertEqual(self.ends, [30.0])

    def test_turns(self) -> None:
        """An actor goes on when its answer is there, and the turn is counted then."""

        def actor() -> Actor:
            yield self.turn
            yield self.turn

        self.stage.spawn(actor())
        self.clock.advance(0.0)
        self.clock.advance(0.5)
        self.asked.pop()[1]()
        self.assertEqual((self.stage.turns, self.ends, len(self.asked)), ([5.0], [], 1))

    def test_together(self) -> None:
        """Who starts others goes on when the last of them is done; all are over only then."""

        def child() -> Actor:
            yield self.turn

        def parent() -> Actor:
            yield Together((child(), child()))
            yield Wait(1.0)

        self.stage.spawn(parent())
        self.clock.advance(0.0)
        first, second = self.asked
        first[1]()
        self.clock.advance(1.0)
        self.assertEqual(self.ends, [])
        second[1]()
        self.assertEqual(self.ends, [])
        self.clock.advance(0.1)
        self.assertEqual(self.ends, [11.0])

    def test_lateness(self) -> None:
        """Timers that fire late are noted."""

        def actor() -> Actor:
            yield Wait(1.0)

        self.stage.at(0.0, actor())
        self.clock.advance(0.0)
        self.clock.advance(0.3)
        self.assertEqual((round(self.stage.late, 6), self.stage.timers), (2.0, 2))


class AnswerTests(SynchronousTestCase):
    """What is taken for a whole answer."""

    def test_unchunked(self) -> None:
        """Chunks are joined; a body that lacks anything is none."""
        body = b"3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n".replace(b";x", b"")
        self.assertEqual(unchunked(body), b"abcde")
        for end in range(len(body)):
            self.assertIsNone(unchunked(body[:end]))

    def test_read(self) -> None:
        """Usage and receipt of a good answer; what is wrong with any other."""
        head = b"HTTP/1.1 200 OK\r\nX-Router-Affinity: hit; reason=pinned"
        self.assertEqual(read(head, STREAM, 5), Answer(None, 90, 64, 5, "hit; reason=pinned"))
        self.assertEqual(read(head, STREAM, 6).failure, "wrong length")
        self.assertEqual(read(head, STREAM[:-2], 5).failure, "no end of stream")
        self.assertEqual(read(b"HTTP/1.1 503 No", b"{}", 5).failure, "status 503")

    def _talk(self) -> tuple[Talk, list[Answer], list[Talk]]:
        answers: list[Answer] = []
        idle: list[Talk] = []
        talk = Talk(idle.append)
        transport: Any = StringTransport()
        transport.setTcpNoDelay = lambda _: None
        talk.makeConnection(transport)
        talk.ask(b"POST", 5, answers.append)
        return talk, answers, idle

    def test_pieces(self) -> None:
        """An answer may come in any pieces; the connection is idle again once it is whole."""
        size = len(STREAM)
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, STREAM)
        talk, answers, idle = self._talk()
        for at in range(len(whole)):
            self.assertEqual(answers, [])
            talk.dataReceived(whole[at : at + 1])
        self.assertEqual((answers, idle), ([Answer(None, 90, 64, 5)], [talk]))

    def test_cut(self) -> None:
        """A connection that ends in the middle of an answer is told as a failure, once."""
        talk, answers, idle = self._talk()
        talk.dataReceived(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n")
        talk.connectionLost()
        self.assertEqual((answers, idle), ([Answer("cut")], []))


class PlacesTests(SynchronousTestCase):
    """The client that pins perfectly."""

    def test_conversations(self) -> None:
        """Conversations are bound in turn and stay."""
        places = Places([1, 2, 3, 4])
        homes = [places.take(f"talk-{number}") for number in range(8)]
        self.assertEqual({homes.count(port) for port in (1, 2, 3, 4)}, {2})
        self.assertEqual([places.take(f"talk-{number}") for number in range(8)], homes)

    def test_others(self) -> None:
        """What has no id goes to the fewest in flight, and ties do not favour a place in the list."""
        places = Places([1, 2, 3, 4])
        places.busy.update({1: 1, 3: 1})
        self.assertEqual(sorted([places.take(None), places.take(None)]), [2, 4])
        taken = [places.take(None) for _ in range(4)]
        self.assertEqual(sorted(taken), [1, 2, 3, 4])


def run(row: str, candidate: str, value: float | None, seed: int = 1, **more: Any) -> dict[str, Any]:
    """One run; None for a value is one that was cut short."""
    values = {} if value is None else {row: value, **{other: value for other in ROWS[row].also}}
    whole = {
        "row": row,
        "candidate": candidate,
        "seed": seed,
        "values": values,
        "stopped": value is None,
        "turn": 10.0,
        "failures": {},
        "prompt": 100,
        "cached": 80,
        "load": {"busy": 0.5, "router": 0.1, "replicas": 0.3, "driver": 0.1},
        "late": 0.04,
    }
    return {**whole, **more}


class JudgeTests(SynchronousTestCase):
    """From runs to cells and verdicts."""

    def test_change(self) -> None:
        """Percent against nginx; in time a turn where a run was cut short, and its inverse for a rate."""
        base = run("tbench", "nginx", 200.0)
        self.assertAlmostEqual(change(run("tbench", "pin", 150.0), base, "tbench"), -25.0)
        self.assertAlmostEqual(change(run("tbench", "pin", None, turn=40.0), base, "tbench"), 300.0)
        self.assertAlmostEqual(change(run("steady", "pin", None, turn=20.0), base, "steady"), -50.0)

    def test_median(self) -> None:
        """A cell is the median over the seeds, each against nginx at that seed; others are left out."""
        runs = [run("tbench", "nginx", 100.0, seed) for seed in (1, 2, 3)]
        runs += [run("tbench", "pin", value, seed) for seed, value in enumerate((90.0, 50.0, 80.0, 1.0), 1)]
        cell = cells(runs)["pin", "tbench"]
        self.assertAlmostEqual(cell.change, -20.0)
        self.assertEqual((round(cell.low), round(cell.high), round(cell.hits)), (-50, -10, 80))

    def test_bars(self) -> None:
        """Ours may be 2 points behind the pin, and 2 % behind nginx, no more; others are not judged."""
        runs = [run("tbench", "nginx", 100.0), run("tbench", "pin", 60.0)]
        runs += [
            run("tbench", "us-session", 61.9),
            run("tbench", "us-work", 62.2),
            run("tbench", "vllm-cache", 99),
        ]
        verdicts = bars(cells(runs))
        self.assertEqual([holds for _, holds in verdicts], [True, True, False, True])
        self.assertIn("us-work tbench: +2.2 points behind the perfect pin", verdicts[2][0])

    def test_bars_of_rates(self) -> None:
        """Where more is better, behind means less."""
        runs = [run("steady", "nginx", 100.0), run("steady", "pin", 123.0), run("steady", "us-work", 120.5)]
        self.assertEqual([holds for _, holds in bars(cells(runs))], [False, True])

    def test_bars_of_single_turns(self) -> None:
        """Without conversations nginx is the only yardstick."""
        runs = [run("grpo", "nginx", 100.0), run("grpo", "pin", 50.0), run("grpo", "us-work", 102.1)]
        self.assertEqual([holds for _, holds in bars(cells(runs))], [False])

    def test_failures(self) -> None:
        """A failed request is a missed bar and stands in the table."""
        runs = [run("grpo", "nginx", 100.0), run("grpo", "us-work", 90.0, failures={"cut": 2})]
        found = cells(runs)
        self.assertEqual([holds for _, holds in bars(found)], [True, False])
        self.assertIn("-10.0 (80) 2 failed", table(found, runs))

    def test_table(self) -> None:
        """Rows that one run measures stand side by side; below stands what the machine was doing."""
        runs = [run("mixed", "nginx", 100.0), run("mixed", "us-work", 90.0, late=0.1)]
        lines = table(cells(runs), runs).splitlines()
        self.assertEqual(lines[0].split()[-2:], ["mixed", "bulk"])
        self.assertEqual([line.split()[-1] for line in lines[-3:]], ["0.50-0.50", "0.50-0.50", "0.07-0.10"])


class ClockTests(SynchronousTestCase):
    """The clock our policies see."""

    def test_faster(self) -> None:
        """It begins where the machine's is."""
        clock = Clock()
        clock.advance(100.0)
        seen = faster(clock.seconds, 50.0)
        self.assertEqual(seen(), 100.0)
        clock.advance(2.0)
        self.assertEqual(seen(), 200.0)

    def test_reactor(self) -> None:
        """The reactor keeps the machine's clock, whatever the router sets."""
        self.assertIsInstance(SteadyReactor.seconds, property)


class NamesTests(SynchronousTestCase):
    """What can be asked for."""

    def test_rows(self) -> None:
        """Every row is one of the laboratory's."""
        names = {name for row in ROWS.values() for name in (row.name, *row.also)}
        self.assertEqual(names - set(BY_NAME), set())

    def test_ours(self) -> None:
        """The bars are for three of the candidates."""
        ours = [one.name for one in CANDIDATES.values() if one.is_ours]
        self.assertEqual(ours, ["us-session", "us-work", "us-work-no-ids"])
