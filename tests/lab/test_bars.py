"""What is expected of ``work``, and how a miss is said."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.lab.bars import BARS, judge
from twisted_router.lab.rows import BY_NAME as ROWS
from twisted_router.lab.table import Cell
from twisted_router.lab.variants import BY_NAME as VARIANTS


def cells(row, others, **changes):
    """A whole column: ``others`` everywhere but where a change is given."""
    return {
        (name, row): Cell(changes.get(name.replace("-", "_"), others), 0.0, 1.0, 0.0) for name in VARIANTS
    }


class JudgeTests(SynchronousTestCase):
    def test_within(self):
        """A point behind the best policy by name is allowed, more is a miss with its figure."""
        self.assertIn("ok", judge(cells("tbench", 0.0, session=-9.0, work=-8.0))[1])
        said = judge(cells("tbench", 0.0, session=-9.0, work=-7.5))[1]
        self.assertEqual(said.split()[:7], ["missed", "by", "0.5", "tbench", "work", "-7.5", "session"])

    def test_more_is_better(self):
        """Where more is better, more is what is expected."""
        self.assertIn("ok", judge(cells("steady", 0.0, session=9.0, work=8.5))[1])
        self.assertIn("missed by 7.0", judge(cells("steady", 9.0, session=-9.0, work=1.0))[1])

    def test_mean(self):
        """Agents beside bulk count by the mean of both: one policy has to be good at both."""
        both = cells("mixed", 0.0, session=-8.0, kv=0.0, work=-3.0)
        both.update(cells("bulk", 0.0, session=0.0, kv=-8.0, work=-3.0))
        self.assertIn("ok", judge(both)[1])
        both.update(cells("bulk", 0.0, session=-8.0, work=-3.0))
        self.assertIn("missed by 4.0", judge(both)[1])

    def test_not_slower(self):
        """Sampling must not be slower than least_conn at all."""
        self.assertIn("ok", judge(cells("grpo", -5.0, least_conn=0.0, work=0.0))[1])
        self.assertIn("missed by 0.1", judge(cells("grpo", -5.0, least_conn=0.0, work=0.1))[1])

    def test_bound(self):
        """Few-shot questions are held against the bound, whatever other policies reach."""
        self.assertIn("missed by 1.0", judge(cells("fewshot", 9.0, bound=-3.0, work=-1.0))[1])

    def test_with_and_without_ids(self):
        """Each is asked of work with session ids and without."""
        lines = judge(cells("tbench", 0.0, work_no_ids=5.0))
        self.assertIn(" work ", lines[1])
        self.assertIn("missed by 4.0", lines[2])
        self.assertIn(" work-no-ids ", lines[2])

    def test_gated(self):
        """Under memory pressure the lines with the gate are asked."""
        lines = judge(cells("pressure", 0.0, work=99.0))
        self.assertEqual(len([line for line in lines if " work-gate" in line and " ok" in line]), 2)

    def test_nothing_to_say(self):
        """Nothing is said of rows for which figures are missing."""
        some = cells("tbench", 0.0)
        del some["session", "tbench"]
        self.assertEqual(judge(some), [])

    def test_names(self):
        """Bars speak of rows and lines that are there."""
        for bar in BARS:
            for name, row in bar.needs:
                self.assertIn(name, VARIANTS)
                self.assertIn(row, ROWS)
