"""What decoders write to the standard error goes nowhere; all else that is written there stays."""

import os
import struct
import threading
import zlib

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.image_messages import grey_from_compressed
from kbf_localization.datasets.silent_threads import silently

PNG = cv2.imencode(".png", np.full((8, 8), 99, np.uint8))[1].tobytes()
FIRST_CHUNK_END = 33


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_libpng_complains_in_vain(capfd: pytest.CaptureFixture[str]) -> None:
    odd = chunk(b"sRGB", b"\x09") + chunk(b"iCCP", b"x\0\0garbage")
    image = grey_from_compressed(PNG[:FIRST_CHUNK_END] + odd + PNG[FIRST_CHUNK_END:])
    assert image is not None and (image == 99).all()
    broken = bytearray(PNG)
    broken[PNG.index(b"IDAT") + 6] ^= 0xFF
    assert grey_from_compressed(bytes(broken)) is None
    assert capfd.readouterr().err == ""


def test_the_other_threads_keep_their_descriptors(capfd: pytest.CaptureFixture[str]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def write() -> None:
        os.write(2, b"unseen")
        inside.set()
        go_on.wait(60.0)

    decoding = threading.Thread(target=silently, args=(write,))
    decoding.start()
    assert inside.wait(60.0)
    os.write(2, b"seen")
    go_on.set()
    decoding.join()
    assert capfd.readouterr().err == "seen"


def test_errors_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        silently(divmod, 1, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_decodes_too() -> None:
    """As those of a data loader: it has none of its parent's threads."""
    assert silently(int) == 0
    child = os.fork()
    if child == 0:
        os._exit(17 if grey_from_compressed(PNG) is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
