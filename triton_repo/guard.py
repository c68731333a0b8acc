"""Runs a server and ends it when its caller ends, however that happens. Started as a program of its own.

    python guard.py SHM_PREFIX SCRATCH GRACE_SECONDS COMMAND...

The caller holds the other end of stdin; when that closes, or on SIGTERM, the server gets SIGTERM, after the grace its
whole process group SIGKILL, and its shared memory and scratch folder are removed. A
killed guard takes the server along.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108 - where Triton keeps its regions
POLL_S = 0.1
GROUP_S = 2.0
_PR_SET_PDEATHSIG = 1


def remove_shm(prefix: str) -> None:
    """Remove the shared memory of a server that is gone; a killed one leaves it behind."""
    for region in SHM.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def end(child: subprocess.Popen[bytes], grace_s: float) -> int:
    """Stop the server: it drains until the grace is over. Returns its exit code."""
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:  # it waits for open streams, exit time-out or not
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def end_group(leader: int) -> None:
    """Kill what a server that ended left running: its stubs live on for a moment and hold its shared memory."""
    given_up = time.monotonic() + GROUP_S
    with contextlib.suppress(ProcessLookupError):  # nobody is left
        while time.monotonic() < given_up:
            os.killpg(leader, signal.SIGKILL)
            time.sleep(POLL_S / 10)


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the caller is gone; the exit code is the command's."""
    prefix, scratch, grace, *command = arguments
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # this process has one thread
    )
    try:
        while child.poll() is None:
            readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
            if readable and not os.read(sys.stdin.fileno(), 1):
                break
    except KeyboardInterrupt:
        pass
    try:
        code = end(child, float(grace)) if child.poll() is None else child.returncode
    finally:
        end_group(child.pid)
        remove_shm(prefix)
        shutil.rmtree(scratch, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
