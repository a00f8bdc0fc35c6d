"""Conversations of one replica, added up."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.policies.conversations import Conversation, Presence


class PresenceTests(SynchronousTestCase):
    """``Presence``."""

    def setUp(self):
        self.presence = Presence(10.0)
        self.conversations = [Conversation(None, 0.0) for _ in range(3)]

    def test_next_to_nothing(self):
        """Those that count next to nothing are there until they are removed, each of them."""
        for conversation in self.conversations:
            self.presence.set(conversation, "r0", 1e-9)
        for conversation in self.conversations:
            self.presence.rest(conversation, 0.0)
        self.presence.expire(10.5)
        self.assertEqual(self.presence.at("r0"), 0.0)
        self.assertEqual(self.presence.share(self.conversations[0], "r0"), 0.0)

    def test_rounding(self):
        """When the last one is gone the sum is nothing, whatever rounding left."""
        for conversation, amount in zip(self.conversations, (0.1, 0.2, 0.3), strict=True):
            self.presence.set(conversation, "r0", amount)
        for conversation in self.conversations:
            self.presence.remove(conversation)
        self.assertEqual(self.presence.at("r0"), 0.0)
        self.assertEqual(self.presence.idle("r0"), [])

    def test_never_below_nothing(self):
        """Rounding never makes a sum negative."""
        for _ in range(1000):
            for conversation, amount in zip(self.conversations, (0.1, 1e-17, 1e9), strict=True):
                self.presence.set(conversation, "r0", amount)
            for conversation in (self.conversations[2], self.conversations[0]):
                self.presence.remove(conversation)
                self.assertGreaterEqual(self.presence.at("r0"), 0.0)
