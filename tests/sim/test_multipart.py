"""Form uploads."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.sim.multipart import MultipartError, Part, parts

FORM = b'multipart/form-data; boundary="b1"'


class PartsTests(SynchronousTestCase):
    """``multipart.parts``."""

    def test_fields_byte_for_byte(self) -> None:
        """Binary content keeps every byte, line ends and dashes included."""
        content = b"\x00\r\n--b\r\n\n\xff--"
        body = (
            b'--b1\r\nContent-Disposition: form-data; name="file"; filename="a b.wav"\r\n'
            b"Content-Type: audio/wav\r\n\r\n" + content + b"\r\n"
            b'--b1\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b1--\r\n'
        )
        self.assertEqual(parts(body, FORM), {"file": Part("a b.wav", content), "model": Part(None, b"m")})

    def test_refused(self) -> None:
        """Another content type, a form without its end, a part without a name."""
        for body, kind in (
            (b"{}", b"application/json"),
            (b"--b1\r\n\r\nx", FORM),
            (b"--b1\r\nContent-Type: text/plain\r\n\r\nx\r\n--b1--", FORM),
        ):
            self.assertRaises(MultipartError, parts, body, kind)
