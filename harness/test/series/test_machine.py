# SPDX-License-Identifier: GPL-2.0
"""harness/deps and harness/fetch on machines that lack something, played by stubs of programs."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from fixture import HARNESS, write

ALL = subprocess.run([HARNESS / "deps", "--list"], stdout=subprocess.PIPE, text=True,
                     check=True).stdout.split()
# Of alternatives, one is enough: the last.
INSTALLED = "#!/bin/sh\nprintf 'ii %s\\n' " + " ".join(line.split("|")[-1] for line in ALL) + "\n"


class Machine(unittest.TestCase):
    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="series-test."))
        self.addCleanup(shutil.rmtree, self.tmp)
        self.top = self.tmp / "top"
        shutil.copytree(HARNESS / "lib", self.top / "harness/lib",
                        ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("deps", "fetch", "packages"):
            shutil.copy2(HARNESS / name, self.top / "harness" / name)
        write(self.top, {"series/base": "linux 7.3\n", "rdma-core/series/base": "rdma-core 65.0\n"})
        self.env = {k: v for k, v in os.environ.items() if k != "ODP_BUILD"}
        self.env.update(PATH=f"{self.tmp}/bin:{os.environ['PATH']}", LC_ALL="C",
                        XDG_CACHE_HOME=str(self.tmp / "cache"))
        self.stub("apt-get", f"#!/bin/sh\necho \"$*\" >>{self.tmp}/apt-calls\n"
                  "echo \"Err:1 Could not resolve 'mirror'\"\nexit 100\n")
        self.stub("apt-cache", "#!/bin/sh\nexit 0\n")

    def stub(self, name, text):
        path = self.tmp / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run_program(self, name, *args):
        return subprocess.run([self.top / "harness" / name, *args], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)

    def refuse(self, *command, says, lines=1):
        run = self.run_program(*command)
        self.assertNotEqual(run.returncode, 0)
        last = run.stderr.rstrip("\n").split("\n")
        self.assertLessEqual(len(last), lines, run.stderr)
        for part in says:
            self.assertIn(part, last[-1])

    def called(self):
        path = self.tmp / "apt-calls"
        return path.read_text() if path.exists() else ""


class Deps(Machine):
    def setUp(self):
        super().setUp()
        self.stub("dpkg-query", INSTALLED)

    def test_all_there(self):
        self.stub("id", "#!/bin/sh\necho 1000\n")
        run = self.run_program("deps")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
        self.assertEqual(self.called(), "")

    def test_architecture(self):
        self.stub("uname", "#!/bin/sh\necho riscv64\n")
        self.refuse("deps", says=["riscv64", "x86_64"])

    def test_disk(self):
        self.stub("df", "#!/bin/sh\necho h\necho f 1 1 8388608 1 /\n")
        self.refuse("deps", says=["8 GB free", "12 GB", "ODP_BUILD"])
        write(self.top, {"build/kernel/.config": ""})
        self.assertEqual(self.run_program("deps").returncode, 0)

    def test_not_root(self):
        self.stub("dpkg-query", INSTALLED.replace(" quilt", ""))
        self.stub("id", "#!/bin/sh\necho 1000\n")
        self.refuse("deps", says=["not root", "sudo", "quilt"])
        self.assertEqual(self.called(), "")

    def test_not_debian(self):
        self.stub("dpkg-query", "#!/bin/sh\nexit 1\n")
        (self.tmp / "os-release").write_text("ID=fedora\nVERSION_ID=40\n")
        self.env["OS_RELEASE"] = str(self.tmp / "os-release")
        self.refuse("deps", says=["fedora 40", "Debian 12", "quilt"])

    def test_no_network(self):
        self.stub("dpkg-query", INSTALLED.replace(" quilt", ""))
        self.stub("id", "#!/bin/sh\necho 0\n")
        self.refuse("deps", says=["no network"], lines=6)
        calls = self.called().split("\n")
        self.assertIn("install quilt", calls[0])
        self.assertIn("update", calls[1])

    def test_installs_only_what_is_missing(self):
        self.stub("dpkg-query", f"#!/bin/sh\n[ -e {self.tmp}/done ] && exec {self.tmp}/all\n"
                  + INSTALLED.replace(" quilt", "").replace("#!/bin/sh\n", ""))
        (self.tmp / "all").write_text(INSTALLED)
        (self.tmp / "all").chmod(0o755)
        self.stub("id", "#!/bin/sh\necho 0\n")
        self.stub("apt-get", f"#!/bin/sh\necho \"$*\" >>{self.tmp}/apt-calls\n"
                  f"touch {self.tmp}/done\n")
        run = self.run_program("deps")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.called().count("\n"), 1)
        self.assertTrue(self.called().endswith("install quilt\n"), self.called())


class Fetch(Machine):
    """No network: apt-get fails, apt-cache knows nothing."""

    def setUp(self):
        super().setUp()
        self.src = self.tmp / "cache/rdma-odp/src"
        self.src.mkdir(parents=True)
        # The mirror is known; it does not answer.
        self.stub("apt-get", "#!/bin/sh\ncase $* in *indextargets*) . /etc/os-release; "
                  "echo http://mirror.example/debian $VERSION_CODENAME main;; "
                  "*) echo 'Err:1 Could not resolve'; exit 0;; esac\n")

    def kernel(self, release, version):
        """A package as the registry has it, with a kernel of one file."""
        tree = self.tmp / "pack"
        top = f"linux-source-{release}"
        write(tree, {f"{top}/Makefile": f"VERSION = {version}\n",
                     "deb/DEBIAN/control": f"Package: {top}\nVersion: {version}\n"
                     "Architecture: all\nMaintainer: fixture\nDescription: fixture\n"})
        (tree / "deb/usr/src").mkdir(parents=True)
        subprocess.run(["tar", "-cJf", tree / f"deb/usr/src/{top}.tar.xz", "-C", tree, top],
                       check=True)
        subprocess.run(["dpkg-deb", "-b", tree / "deb", self.src / f"{top}_{version}_all.deb"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(tree)

    def makefile(self):
        return (self.top / "build/base/linux/Makefile").read_text()

    def test_newest_from_the_cache(self):
        self.kernel("7.3", "7.3.9-1")
        self.kernel("7.3", "7.3.10-1")
        run = self.run_program("fetch", "kernel")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("7.3.10-1", self.makefile())
        self.assertIn("no network", run.stdout)
        again = self.run_program("fetch", "kernel")
        self.assertEqual((again.returncode, again.stdout, again.stderr), (0, "", ""))

    def test_a_neighbour_is_announced(self):
        for release in ("6.12", "7.2", "7.4", "7.5"):
            self.kernel(release, release + ".1-1")
        run = self.run_program("fetch", "kernel")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("ATTENTION: linux 7.3 is not in reach any more: taking 7.4", run.stdout)
        self.assertIn("7.4.1-1", self.makefile())

    def test_a_neighbour_below(self):
        for release in ("6.12", "7.2"):
            self.kernel(release, release + ".1-1")
        self.run_program("fetch", "kernel")
        self.assertIn("7.2.1-1", self.makefile())

    def test_nothing_in_reach(self):
        for what in ("kernel", "rdma-core", "sparse"):
            self.refuse("fetch", what, says=["to be had", "connect this machine"])
        self.assertEqual(list((self.top / "build/base").iterdir()), [])

    def test_damaged_package(self):
        (self.src / "linux-source-7.3_7.3.9-1_all.deb").write_text("no package")
        run = self.run_program("fetch", "kernel")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("cannot be unpacked", run.stderr)
        self.assertFalse((self.top / "build/base/linux").exists())

    def test_usage(self):
        self.refuse("fetch", "everything", says=["usage"])
        self.refuse("fetch", says=["usage"])

    def test_base(self):
        (self.top / "series/base").write_text("linux\n")
        self.refuse("fetch", "kernel", says=["series/base", "names no version"])

    def test_sources_name_no_host(self):
        """The mirror is the system's own: none is written into the program."""
        text = (HARNESS / "fetch").read_text()
        self.assertNotRegex(text, r"https?://|\.debian\.org")


if __name__ == "__main__":
    unittest.main()
