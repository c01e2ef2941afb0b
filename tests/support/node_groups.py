"""A kubelet's control groups as plain files, of either version and driver, for tests of the node agent.

Values are as the kernel shows them; a file keeps what is written into it, as the kernel's does.
"""

from __future__ import annotations

from pathlib import Path

PERIOD = 100_000


class NodeGroups:
    """Makes the groups of pods, and lets cpu time pass in them."""

    def __init__(self, mount: Path, kind: str) -> None:
        self.mount, self.first, self.systemd = mount, kind == "version 1", kind.endswith("systemd")
        self.used = 0.0
        mount.mkdir()
        if not self.first:
            (mount / "cgroup.controllers").write_text("cpu memory\n")
        self._make("")
        self.kubepods = "kubepods.slice" if self.systemd else "kubepods"
        self._make(self.kubepods)
        for tier in ("besteffort", "burstable"):
            self._make(self._tier(tier))

    def add(self, uid: str, tier: str = "besteffort", quota: int | None = None, containers: int = 0) -> str:
        """Make a pod's group and return its path; ``quota`` in microseconds, of the pod and of each container."""
        name = f"pod{uid}"
        if self.systemd:
            name = f"kubepods-{tier + '-' if tier else ''}pod{uid.replace('-', '_')}.slice"
        path = f"{self._tier(tier)}/{name}"
        self._make(path, quota)
        for number in range(containers):
            self._make(f"{path}/c{number}", quota)
        return path

    def remove(self, path: str) -> None:
        """End a pod: its folders go."""
        for root in self._roots():
            for file in sorted((root / path).rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            (root / path).rmdir()

    def use(self, path: str, seconds: float) -> None:
        """Let a pod use cpu, which counts in all groups above it, too."""
        for above in [path, self.kubepods, ""] if path else [""]:
            file = self.mount / "cpuacct" / above / "cpuacct.usage" if self.first else self._cpu(above) / "cpu.stat"
            if self.first:
                file.write_text(f"{int(file.read_text()) + round(seconds * 1e9)}\n")
            else:
                lines = file.read_text().splitlines()
                usage = int(lines[0].split()[1]) + round(seconds * 1e6)
                file.write_text("\n".join([f"usage_usec {usage}", *lines[1:]]) + "\n")

    def throttle(self, path: str, periods: int) -> None:
        """Say that a pod's own quota held it back."""
        file = self._cpu(path) / "cpu.stat"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("nr_throttled")]
        file.write_text("\n".join([*lines, f"nr_throttled {periods}"]) + "\n")

    def confine(self, cpus: str) -> None:
        """Hold all pods to some cpus, named as the kernel lists them."""
        folder = self.mount / "cpuset" / self.kubepods if self.first else self.mount / self.kubepods
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("cpuset.effective_cpus" if self.first else "cpuset.cpus.effective")).write_text(f"{cpus}\n")

    def quota_cpus(self, path: str) -> float | None:
        """What a group's quota lets it use; None without one."""
        if self.first:
            quota = (self._cpu(path) / "cpu.cfs_quota_us").read_text().strip()
            return None if quota == "-1" else int(quota) / PERIOD
        quota, period = (self._cpu(path) / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)

    def limit(self, path: str, quota: int) -> None:
        """Set a pod's quota in microseconds, as a kubelet that resizes it does."""
        file, text = ("cpu.cfs_quota_us", f"{quota}\n") if self.first else ("cpu.max", f"{quota} {PERIOD}\n")
        (self._cpu(path) / file).write_text(text)

    def weight(self, path: str) -> int:
        """The group's weight, in the version's own words."""
        return int((self._cpu(path) / ("cpu.shares" if self.first else "cpu.weight")).read_text())

    def memory(self, path: str) -> str:
        """From where memory is taken back."""
        file = self.mount / "memory" / path / "memory.soft_limit_in_bytes"
        return (file if self.first else self.mount / path / "memory.high").read_text().strip()

    def texts(self) -> dict[str, str]:
        """Everything that can be written, as it is."""
        names = ("cpu.cfs_quota_us", "cpu.max", "cpu.shares", "cpu.weight", "memory.high", "memory.soft_limit_in_bytes")
        return {str(file): file.read_text().strip() for name in names for file in self.mount.rglob(name)}

    def _tier(self, tier: str) -> str:
        if not tier:
            return self.kubepods
        return f"{self.kubepods}/kubepods-{tier}.slice" if self.systemd else f"{self.kubepods}/{tier}"

    def _cpu(self, path: str) -> Path:
        return self.mount / "cpu" / path if self.first else self.mount / path

    def _roots(self) -> list[Path]:
        return [self.mount / one for one in ("cpu", "cpuacct", "memory")] if self.first else [self.mount]

    def _make(self, path: str, quota: int | None = None) -> None:
        for root in self._roots():
            (root / path).mkdir(parents=True, exist_ok=True)
        cpu = self._cpu(path)
        if self.first:
            (self.mount / "cpuacct" / path / "cpuacct.usage").write_text("0\n")
            (cpu / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
            (cpu / "cpu.cfs_quota_us").write_text(f"{-1 if quota is None else quota}\n")
            (cpu / "cpu.cfs_period_us").write_text(f"{PERIOD}\n")
            (cpu / "cpu.shares").write_text("1024\n")
            (cpu / "tasks").write_text("")
            (self.mount / "memory" / path / "memory.soft_limit_in_bytes").write_text("9223372036854771712\n")
        else:
            (cpu / "cpu.stat").write_text("usage_usec 0\nnr_throttled 0\n")
            (cpu / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD}\n")
            (cpu / "cpu.weight").write_text("100\n")
            (cpu / "cgroup.threads").write_text("")
            (cpu / "memory.high").write_text("max\n")
