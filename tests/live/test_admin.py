"""The administrative calls of a running router."""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults

from .scene import Answer, LiveCase


class TokenTests(LiveCase):
    """Who may ask."""

    async def asked(self, *headers: tuple[str, str]) -> Answer:
        """Ask for the fleet with these header fields."""
        return await self.call("GET", "/replicas", headers=dict(headers))

    async def accepts_only(self, token: str, *flags: str) -> None:
        """Start the router; this token opens it, nothing else does."""
        self.fleet(self.host())
        await self.serving("--initial-replicas", "0", *flags)
        self.assertEqual((await self.asked(("Authorization", f"Bearer {token}"))).status, 200)
        for headers in ([], [("Authorization", "Bearer wrong")], [("Authorization", "Basic " + token)]):
            refused = await self.asked(*headers)
            self.assertEqual(refused.status, 401)
            self.assertEqual(refused.headers.getRawHeaders("www-authenticate"), ["Bearer"])
        self.assertEqual((await self.call("POST", "/replicas")).status, 401)
        self.assertEqual((await self.call("DELETE", "/replicas/here-d0")).status, 401)
        self.assertNotEqual((await self.call("GET", "/health")).status, 401)

    async def test_flag(self) -> None:
        """``--admin-token``."""
        await self.accepts_only("from the flag", "--admin-token", "from the flag")

    async def test_file(self) -> None:
        """``--admin-token-file``, before the flag."""
        file = self.work / "token"
        file.write_text("from-the-file\n")
        await self.accepts_only("from-the-file", "--admin-token-file", str(file), "--admin-token", "flag")

    async def test_environment(self) -> None:
        """The environment, when neither is given; replicas do not inherit it."""
        self.env["PYPTO_ROUTER_ADMIN_TOKEN"] = "from-outside"
        await self.accepts_only("from-outside")

    async def test_without(self) -> None:
        """Without a token: this machine only, and nothing that a page or a proxy passes on; a warning."""
        self.fleet(self.host())
        router = await self.serving("--initial-replicas", "0")
        self.assertEqual((await self.asked()).status, 200)
        for header in ("Origin", "Forwarded", "X-Forwarded-For"):
            self.assertEqual((await self.asked((header, "http://elsewhere"))).status, 403)
        await router.wrote(b"warn] no --admin-token: ")

    async def test_open(self) -> None:
        """``--admin-open`` takes them from anywhere."""
        self.fleet(self.host())
        await self.serving("--initial-replicas", "0", "--admin-open")
        self.assertEqual((await self.asked(("X-Forwarded-For", "192.0.2.1"))).status, 200)


class StartTests(LiveCase):
    """What is refused before anything runs."""

    async def test_more_than_the_pool(self) -> None:
        """``--initial-replicas`` above the pool ends the start with 1 and one line; nothing is launched."""
        self.fleet(self.host(devices=2))
        router = self.router("--initial-replicas", "3")
        self.assertEqual(await self.ended(router), 1)
        (line,) = router.err.decode().splitlines()
        self.assertIn("initial_replicas=3 exceeds the pool ceiling 2", line)
        self.assertEqual(self.marked(), set())

    async def test_certificate(self) -> None:
        """So does a certificate file that cannot be read."""
        replica = {"host": "127.0.0.1", "port": self.port, "scheme": "https", "ca_file": "/no/such.pem"}
        self.fleet(self.host(), replicas=(replica,))
        router = self.router()
        self.assertEqual(await self.ended(router), 1)
        self.assertNotIn(b"Traceback", router.err)
        self.assertIn("/no/such.pem: No such file or directory", router.err.decode())
        self.assertEqual(self.marked(), set())


class CapacityTests(LiveCase):
    """Growing and shrinking."""

    async def test_grow_and_shrink(self) -> None:
        """202 until the pool is full, then 409; DELETE gives the slot back, and 404 for what is not there."""
        self.fleet(self.host(devices=3))
        await self.serving("--max-replicas", "2", ready=1)
        capacity = await self.capacity()
        self.assertEqual((capacity["owned"], capacity["ceiling"]), (1, 2))
        self.assertEqual(capacity["free_slots"], ["here-d1", "here-d2"])
        grown = await self.call("POST", "/replicas", {"slot": "here-d2"})
        self.assertEqual((grown.status, grown.document["name"]), (202, "here-d2"))
        self.assertFalse(grown.document["ready"])
        await self.served(2)
        full = await self.call("POST", "/replicas")
        self.assertEqual((full.status, full.document["capacity"]["owned"]), (409, 2))
        gone = await self.call("DELETE", "/replicas/here-d2")
        self.assertEqual(gone.status, 200)
        self.assertEqual(gone.document["capacity"]["free_slots"], ["here-d1", "here-d2"])
        self.assertEqual((await self.call("DELETE", "/replicas/here-d2")).status, 404)

    async def test_reuse_with_old_requests(self) -> None:
        """A slot's next replica owes nothing to requests of the last one, and gets its sessions."""
        self.fleet(self.host())
        await self.serving("--drain-timeout", "0", ready=1)
        before = (await self.turn("s"))["pid"]
        rest = await self.hold("s")
        self.assertEqual((await self.replica())["outstanding"], 1)
        self.assertEqual((await self.call("DELETE", "/replicas/here-d0")).status, 200)
        self.assertEqual((await self.call("POST", "/replicas")).status, 202)
        await self.served(1)
        replica = await self.replica()
        self.assertEqual((replica["outstanding"], replica["routed"]), (0, 0))
        self.assertNotEqual((await self.turn("s"))["pid"], before)
        await self.assertFailure(rest, Exception)
        self.assertEqual((await self.replica())["outstanding"], 0)


class RaceTests(LiveCase):
    """Calls and signals that cross each other."""

    async def test_delete_during_launch(self) -> None:
        """A replica that still loads is stopped at once, and its slot is free."""
        self.fleet(self.host("--load", "60"))
        await self.serving("--initial-replicas", "0")
        self.assertEqual((await self.call("POST", "/replicas")).status, 202)
        loading = self.pid_of()
        gone = await self.call("DELETE", "/replicas/here-d0")
        self.assertEqual((gone.status, gone.document["capacity"]["free_slots"]), (200, ["here-d0"]))
        self.assertNotIn(loading, self.marked())

    async def test_two_deletes(self) -> None:
        """Two that retire one replica share its retirement and get the same answer."""
        self.fleet(self.host())
        router = await self.serving(ready=1)
        rest = await self.hold("s")
        both = [Deferred.fromCoroutine(self.call("DELETE", "/replicas/here-d0")) for _ in range(2)]
        await router.wrote(b"slot here-d0: draining")
        self.assertEqual((await self.replica())["phase"], "draining")
        self.assertFalse([answer for answer in both if answer.called])
        await self.call("POST", f"http://127.0.0.1:{self.base}/", {"release": True})
        self.assertTrue((await rest).endswith(b"end"))
        answers = await gatherResults(both)
        self.assertEqual([answer.status for answer in answers], [200, 200])
        self.assertEqual(answers[0].document, answers[1].document)
        self.assertEqual(router.err.count(b"slot here-d0: stopping"), 1)

    async def test_post_during_shutdown(self) -> None:
        """A router that ends launches nothing, takes no work, says so, and lets what is under way finish."""
        self.fleet(self.host(devices=2))
        router = await self.serving(ready=1)
        rest = await self.hold("s")
        router.signal("TERM")
        await router.wrote(b"waiting for requests under way")
        for method, path in (("POST", "/replicas"), ("POST", "/v1/completions"), ("GET", "/readiness")):
            self.assertEqual((await self.call(method, path)).status, 503, path)
        await self.call("POST", f"http://127.0.0.1:{self.base}/", {"release": True})
        self.assertTrue((await rest).endswith(b"end"))
        self.assertEqual(await self.ended(router), 0)
        self.assertEqual(self.marked(), set())
        self.assertFalse((self.work / "logs" / "here-d1.log").exists(), "a replica was launched")

    async def test_sigterm_during_launch(self) -> None:
        """A router that is told to end while a replica loads stops it and leaves nothing on record."""
        self.fleet(self.host("--load", "60"))
        router = await self.serving()
        await router.wrote(b"slot here-d0: launched")
        router.signal("TERM")
        self.assertEqual(await self.ended(router), 0)
        self.assertEqual(self.marked(), set())
        self.assertEqual(self.state_file.read_text().count('"slot"'), 0)
