"""What decoders write to the standard error goes nowhere; all else that is written there stays."""

import os
import subprocess
import threading

import pytest

from kbf_localization.child_process import python_command
from kbf_localization.datasets.image_messages import grey_from_compressed
from kbf_localization.datasets.silent_threads import silently
from test.datasets.test_image_messages import PNG, png_with


def test_libpng_complains_in_vain(capfd: pytest.CaptureFixture[str]) -> None:
    odd = png_with((b"sRGB", b"\x09"), (b"iCCP", b"x\0\0garbage"))
    assert grey_from_compressed(odd) is not None
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


SIGNALLED = """
import os, select, signal
from kbf_localization.datasets.silent_threads import silently
heard, told = os.pipe()
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
signal.signal(signal.SIGTERM, lambda *_: None)
silently(int)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)  # which the kernel gives to a thread that takes it, if any
silently(int)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
assert select.select([heard], [], [], 10.0)[0], "the signal was lost"
"""


def test_a_signal_is_not_lost_to_them() -> None:
    """They have no descriptors to pass it on by."""
    command = [*python_command("exec(sys.argv[1])"), SIGNALLED]
    done = subprocess.run(
        command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
