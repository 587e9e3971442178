# SPDX-License-Identifier: GPL-2.0
"""export: what is sent gives the same tree at the other end."""
import subprocess
import unittest

from fixture import Case, git, write


class Export(Case):
    assembled = True

    def setUp(self):
        super().setUp()
        self.out = self.root / "build/series/linux"

    def mails(self, topic):
        return sorted(p.name for p in (self.out / "mails" / topic).iterdir())

    def pristine(self):
        where = self.clone("pristine")
        (where / "link").symlink_to("Makefile")
        git(where, "add", "-f", "-A")
        git(where, "commit", "-q", "--amend", "-C", "HEAD")
        return where

    def tree(self, where, rev="HEAD"):
        return git(where, "rev-parse", f"{rev}^{{tree}}").strip()

    def test_git_am_gives_the_same_tree(self):
        self.series("export")
        where = self.pristine()
        self.assertEqual(self.tree(where), self.tree(self.linux, "base"))
        for topic in ("fixes", "new"):
            mails = [p for p in sorted((self.out / "mails" / topic).iterdir())
                     if not p.name.startswith("0000-")]
            git(where, "am", "-q", *mails)
        self.assertEqual(self.tree(where), self.tree(self.linux, "series"))
        self.assertEqual(git(where, "log", "-3", "--format=%B"),
                         git(self.linux, "log", "-3", "--format=%B", "series"))

    def test_quilt_gives_the_same_tree(self):
        self.series("export")
        where = self.pristine()
        quilt = self.out / "quilt"
        for name in (quilt / "series").read_text().split():
            subprocess.run(["patch", "-s", "-p1", "-i", quilt / name], cwd=where, check=True)
        git(where, "add", "-f", "-A")
        (where / "drivers/new/tool.sh").chmod(0o755)
        git(where, "add", "-f", "-A")
        git(where, "commit", "-q", "-m", "all")
        self.assertEqual(self.tree(where), self.tree(self.linux, "series"))

    def test_bundle(self):
        self.series("export")
        git(self.linux, "bundle", "verify", self.out / "series.bundle")
        tip = git(self.linux, "rev-parse", "series").strip()
        where = self.tmp / "fetched"
        git(self.tmp, "clone", "-q", "-b", "base", self.linux, where)
        git(where, "fetch", "-q", self.out / "series.bundle", "series:got")
        self.assertEqual(git(where, "rev-parse", "got").strip(), tip)

    def test_threads(self):
        self.series("export")
        self.assertEqual(self.mails("fixes"), ["0001-mm-Keep-line-five-apart.patch"])
        self.assertEqual(self.mails("new"), ["0000-cover-letter.patch",
                                             "0001-drivers-new-Add-the-driver.patch",
                                             "0002-drivers-new-Serve-the-second-kind.patch"])
        cover = (self.out / "mails/new/0000-cover-letter.patch").read_text()
        for part in ("[PATCH 0/2] A new driver\n", "What the driver is for.\n", "Fixture (2):\n",
                     "drivers/new/driver.c", "Applies to linux 7.3, after:\n"
                     "  mm: Keep line five apart\n", "base-commit: "):
            self.assertIn(part, cover)
        self.assertNotIn("***", cover)
        second = (self.out / "mails/new/0002-drivers-new-Serve-the-second-kind.patch").read_text()
        self.assertIn("In-Reply-To: <cover", second)
        self.assertIn("/dev/null\n+++ b/drivers/new/second.h\n", second)
        everything = (self.out / "0000-cover-letter").read_text()
        self.assertIn("What all of it is for.", everything)
        self.assertIn("drivers/new/second.h", everything)

    def test_notes_are_below_the_dashes(self):
        self.series("export")
        text = (self.out / "mails/new/0001-drivers-new-Add-the-driver.patch").read_text()
        self.assertIn("Signed-off-by: Fixture <fixture@example.org>\n---\nv2: a note for reviewers\n",
                      text)
        self.assertNotIn("Adds:", text)

    def test_recipients(self):
        self.series("export")
        fix = (self.out / "mails/fixes/0001-mm-Keep-line-five-apart.patch").read_text()
        self.assertIn('To: "Alpha (List)" <alpha@example.org>\nCc: all@example.org\n', fix)
        self.assertIn("Cc: stable@vger.kernel.org\n", fix)
        new = (self.out / "mails/new/0001-drivers-new-Add-the-driver.patch").read_text()
        self.assertIn("Cc: gamma@example.org,\n    all@example.org\n", new)
        self.assertNotIn("alpha@", new.split("\n\n")[0])

    def test_one_topic(self):
        self.series("export", "--topic", "new")
        self.assertFalse((self.out / "mails/fixes").exists())
        self.assertTrue((self.out / "mails/new").exists())
        self.refuse("export", "--topic", "old", says=["'old'", "fixes, new"])

    def test_version(self):
        self.series("export", "--reroll", "3", "--rfc")
        cover = (self.out / "mails/new/v3-0000-cover-letter.patch").read_text()
        self.assertIn("[RFC PATCH v3 0/2] A new driver", cover)

    def test_no_cover_letter(self):
        (self.root / "series/0000-cover-letter").unlink()
        (self.root / "series/cover/new").write_text("A new driver\n")
        self.refuse("export", says=["series/cover/new", "Subject:"])
        (self.root / "series/cover/new").unlink()
        self.refuse("export", says=["no cover letter for new"])


class RdmaCore(Case):
    """The same program for the other tree, which has no script that names recipients."""

    def setUp(self):
        super().setUp()
        base = self.root / "build/base/rdma-core"
        write(base, {"CMakeLists.txt": 'set(PACKAGE_VERSION "65.0")\n' + "line\n" * 4,
                     "MAINTAINERS": "List\n\n* OVERALL PACKAGE\nM:\tAll <all@example.org>\n\n"
                     "ALPHA PROVIDER\nM:\tAlpha List <alpha@example.org>\nF:\tproviders/alpha/\n\n"
                     "GAMMA PROVIDER\nS:\tOrphan\nF:\tproviders/gamma/\n",
                     "providers/alpha/alpha.c": "alpha\n"})
        write(self.root / "rdma-core", {
            "series/base": "rdma-core 65.0\n",
            "MAINTAINERS": "BETA PROVIDER\nS:\tMaintained\nF:\tproviders/beta/\n",
            "providers/beta/beta.c": "beta\n",
            "series/0001-beta.patch":
            "Subject: [PATCH] providers/beta: Add the provider\n\nThe kernel has a driver for it "
            "and applications have had no way to use it.\n\n---\nAdds: providers/beta/beta.c\n"
            "Maintainers: BETA PROVIDER\ndiff --git a/CMakeLists.txt b/CMakeLists.txt\n"
            "--- a/CMakeLists.txt\n+++ b/CMakeLists.txt\n@@ -1,4 +1,5 @@\n"
            ' set(PACKAGE_VERSION "65.0")\n+add(beta)\n line\n line\n line\n'})

    def test_all(self):
        self.series("assemble", "--project", "rdma-core")
        repo = self.root / "build/rdma-core/src"
        self.assertEqual((repo / "providers/beta/beta.c").read_text(), "beta\n")
        self.assertIn("BETA PROVIDER\nM:\tFixture <fixture@example.org>\nS:\tMaintained\n",
                      (repo / "MAINTAINERS").read_text())
        self.series("check", "--project", "rdma-core")
        self.assertIn("nothing changed", self.series("refresh", "--project", "rdma-core"))
        self.series("export", "--project", "rdma-core")
        mail = self.root / ("build/series/rdma-core/mails/rdma-core/"
                            "0001-providers-beta-Add-the-provider.patch")
        self.assertIn("To: All <all@example.org>\n", mail.read_text())
        # The kernel's series knows nothing of these files.
        self.series("assemble")


if __name__ == "__main__":
    unittest.main()
