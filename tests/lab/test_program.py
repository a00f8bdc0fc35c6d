"""What ``pypto-router lab`` prints, and recorded traffic as a row."""

from __future__ import annotations

import json
from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.policies.least_conn import LeastConn
from twisted_router.errors import ConfigError
from twisted_router.lab.engine import EngineModel
from twisted_router.lab.program import Wish, describe, run
from twisted_router.lab.replay import read_trace, replay_row
from twisted_router.lab.rows import ROWS, run_row
from twisted_router.lab.simulation import Simulation
from twisted_router.lab.variants import BY_NAME, VARIANTS
from twisted_router.lab.workloads import Scene


def trace(*records):
    return [json.dumps(record) for record in records]


class Terminal(StringIO):
    def isatty(self):
        return True


class RunTests(SynchronousTestCase):
    def run_lab(self, err=None, **wish):
        out, err = StringIO(), StringIO() if err is None else err
        code = run(Wish(**{"processes": 1, **wish}), out, err)
        return code, out.getvalue(), err.getvalue()

    def test_table(self):
        """The table has a line for each policy and a column for each row, in percent against least_conn."""
        code, out, _ = self.run_lab(policies=("least_conn", "work"), rows=("grpo", "short"), seeds=(1,))
        self.assertEqual(code, 0)
        head, columns, base, work, values = out.splitlines()
        self.assertIn("least_conn", head)
        self.assertEqual(columns.split(), ["policy", "grpo", "short"])
        self.assertEqual(base.split(), ["least_conn", "+0.0*", "+0.0*"])
        self.assertEqual(work.split()[0], "work")
        self.assertTrue(all(word.startswith("-") for word in work.split()[1:]), work)
        self.assertEqual(len(values.split()), 3)

    def test_best(self):
        """The best of the policies by name is marked in each row; the bound and work are no rivals."""
        _, out, _ = self.run_lab(
            policies=("least_conn", "session", "work", "bound"), rows=("short", "steady"), seeds=(1,)
        )
        marked = [line.split()[0] for line in out.splitlines() if line.count("*") == 2]
        self.assertEqual(marked, ["session"])

    def test_progress(self):
        """A terminal sees how far it is; a file is not filled with that."""
        wish = {"policies": ("session",), "rows": ("lead",), "seeds": (1,)}
        self.assertEqual(self.run_lab(**wish)[2], "")
        self.assertIn("2 of 2  lead: session, seed 1", self.run_lab(Terminal(), **wish)[2])

    def test_interrupted(self):
        """An interrupt ends it with the exit code that shells give it, and no table."""

        class Impatient(Terminal):
            def flush(self):
                raise KeyboardInterrupt

        code, out, err = self.run_lab(Impatient(), policies=("session",), rows=("lead",), seeds=(1,))
        self.assertEqual((code, out), (130, ""))
        self.assertIn("interrupted", err)

    def test_processes(self):
        """Several processes print the table that one prints."""
        wish = {"policies": ("session", "work", "consistent_hash"), "rows": ("lead",), "seeds": (1, 2)}
        self.assertEqual(self.run_lab(processes=2, **wish)[1], self.run_lab(**wish)[1])

    def test_same_again(self):
        """The same seeds print the same table."""
        wish = {"policies": ("work",), "rows": ("lead",), "seeds": (1, 2)}
        self.assertEqual(self.run_lab(**wish)[1], self.run_lab(**wish)[1])

    def test_unknown(self):
        """Names that are not there are answered with those that are; nothing is run."""
        code, out, err = self.run_lab(policies=("werk",))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no policy 'werk'; there are session, work", err)
        self.assertIn("no row 'long'; there are tbench", self.run_lab(rows=("long",))[2])

    def test_describe(self):
        """The list names every policy with its parameters and what speaks against it, and every row."""
        out = StringIO()
        self.assertEqual(describe(out), 0)
        for one in (*VARIANTS, *ROWS):
            self.assertIn(f"  {one.name} ", out.getvalue())
        self.assertIn("    slack=8 ", out.getvalue())
        self.assertIn("beware", out.getvalue())

    def test_replay(self):
        """A recorded trace is run like a row."""
        path = self.mktemp()
        records = [
            {"time": 100 + 3 * turn, "session": f"s{name}", "tokens": 4000 + 900 * turn, "output_tokens": 60}
            for turn in range(5)
            for name in range(13)
        ]
        with open(path, "w") as file:
            file.write("\n".join(trace(*records)))
        code, out, _ = self.run_lab(policies=("session",), replay=path, replicas=2)
        self.assertEqual(code, 0)
        self.assertLess(float(out.splitlines()[2].split()[1]), 0.0)

    def test_no_file(self):
        """A trace that cannot be read is said to be so."""
        code, _, err = self.run_lab(replay="/nowhere/trace")
        self.assertEqual(code, 1)
        self.assertIn("/nowhere/trace: cannot be read", err)


class ReplayTests(SynchronousTestCase):
    def test_read(self):
        """Times begin at 0 and are put in order; bytes are turned into tokens; empty lines are skipped."""
        records = read_trace(
            [
                *trace({"time": 12.5, "session": "b", "bytes": 3700, "output_tokens": 7, "final": True}),
                "",
                *trace({"time": 10, "session": None, "tokens": 50, "output_tokens": 3, "chain": [1, 2]}),
            ],
            "t",
        )
        self.assertEqual([record.at for record in records], [0.0, 2.5])
        self.assertEqual([record.tokens for record in records], [50, 1000])
        self.assertEqual((records[0].chain, records[1].final), ((1, 2), True))

    def test_problems(self):
        """Every line that cannot be used is named with its number."""
        error = self.assertRaises(
            ConfigError,
            read_trace,
            [
                "{",
                "[]",
                *trace(
                    {"time": -1, "tokens": 5, "output_tokens": 1},
                    {"time": 1, "tokens": 5},
                    {"time": 1, "tokens": True, "output_tokens": 1},
                    {"time": 1, "tokens": 5, "output_tokens": 1, "session": 7},
                    {"time": 1, "tokens": 5, "output_tokens": 1, "chain": ["x"]},
                ),
            ],
            "t",
        )
        self.assertEqual([problem.split(":")[1] for problem in error.problems], list("1234567"))
        self.assertIn("output_tokens: expected a number of at least 0, got None", error.problems[3])

    def test_empty(self):
        """A trace without requests is no trace."""
        self.assertIn("no requests", str(self.assertRaises(ConfigError, read_trace, [], "t")))

    def test_chains_share(self):
        """Requests without ids share what their recorded fingerprints share."""
        chain = list(range(100, 120))
        records = read_trace(
            trace(
                *(
                    {"time": 5 * turn, "tokens": 11_500, "output_tokens": 5, "chain": [*chain, turn]}
                    for turn in range(10)
                )
            ),
            "t",
        )
        row = replay_row("t", records, 4, EngineModel())
        self.assertGreater(run_row(row, BY_NAME["work-no-ids"], 1).cached, 0.75)

    def replayed(self, *records):
        simulation = Simulation(LeastConn(), EngineModel(), 1)
        row = replay_row("t", read_trace(trace(*records), "t"), 1, EngineModel())
        row.fill(Scene(simulation, 1))
        simulation.run()
        return simulation

    def test_at_its_time(self):
        """A turn does not come before its time."""
        simulation = self.replayed(
            {"time": 0, "session": "s", "tokens": 1000, "output_tokens": 10},
            {"time": 50, "session": "s", "tokens": 1500, "output_tokens": 10},
        )
        self.assertEqual([int(at // 50) for at in simulation.turns], [0, 1])

    def test_shortened(self):
        """A conversation whose text got shorter begins another text."""
        simulation = self.replayed(
            {"time": 0, "session": "s", "tokens": 9000, "output_tokens": 10},
            {"time": 50, "session": "s", "tokens": 4000, "output_tokens": 10},
        )
        self.assertEqual((simulation.prompted, simulation.cached), (13_000, 0))

    def test_turns_wait(self):
        """A turn recorded before the one before is answered comes right after it."""
        records = read_trace(
            trace(
                {"time": 0, "session": "s", "tokens": 1000, "output_tokens": 1000},
                {"time": 1, "session": "s", "tokens": 1500, "output_tokens": 10},
            ),
            "t",
        )
        result = run_row(replay_row("t", records, 2, EngineModel()), BY_NAME["session"], 1)
        self.assertGreater(result.cached, 0.3)
        self.assertEqual(sorted(result.served), [0, 2])
