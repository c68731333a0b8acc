"""Memory of the machine and of control groups, read from a made-up root."""

from pathlib import Path

import pytest

from specbuild.builder import machine
from specbuild.builder.machine import Machine

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n")
    return tmp_path


def test_this_machine():
    now = machine.read()
    assert 0 < now.available <= now.total


def test_without_control_groups(root):
    assert machine.read(root) == Machine(16 * GIB, 8 * GIB, "machine")


def test_the_tightest_group_above_the_process_counts(root):
    write(root / "proc/self/cgroup", "0::/kube/pod/box\n")
    write(root / "sys/fs/cgroup/kube/pod/box/memory.max", "max\n")
    write(root / "sys/fs/cgroup/kube/pod/memory.max", f"{4 * GIB}\n")
    write(root / "sys/fs/cgroup/kube/pod/memory.current", f"{1 * GIB}\n")
    write(root / "sys/fs/cgroup/kube/memory.max", f"{6 * GIB}\n")
    write(root / "sys/fs/cgroup/kube/memory.current", f"{5 * GIB}\n")
    assert machine.read(root) == Machine(4 * GIB, 1 * GIB, "container")


def test_version_1_groups_and_their_no_limit(root):
    write(root / "proc/self/cgroup", "9:cpu:/x\n4:memory,hugetlb:/docker/abc\n")
    write(root / "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(root / "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", f"{GIB}\n")
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.read(root) == Machine(2 * GIB, GIB, "container")
