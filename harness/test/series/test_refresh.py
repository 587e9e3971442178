# SPDX-License-Identifier: GPL-2.0
"""refresh: what was done on the branch comes back, and nothing else changes."""
import unittest

from fixture import Case, LINES, git, snapshot

FIX = "series/0001-mm-Keep-line-five-apart.patch"
DRIVER = "series/0002-drivers-new-Add-the-driver.patch"
SECOND = "series/0003-drivers-new-Serve-the-second-kind.patch"


class Refresh(Case):
    assembled = True

    def setUp(self):
        super().setUp()
        self.before = snapshot(self.root)

    def changed(self):
        """Runs refresh; returns the names of files that it changed, and sees that it is stable."""
        out = self.series("refresh")
        after = snapshot(self.root)
        self.series("assemble")
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")
        self.assertIn("nothing changed", self.series("refresh"))
        self.assertEqual(snapshot(self.root), after)
        names = sorted(n for n in set(after) | set(self.before)
                       if after.get(n) != self.before.get(n))
        for name in names:
            self.assertIn(name, out)
        return names

    def test_identity(self):
        self.assertIn("nothing changed", self.series("refresh"))
        self.assertEqual(snapshot(self.root), self.before)
        self.series("check")

    def test_edit_of_own_file(self):
        self.edit("drivers/new/tool.sh", "/bin/sh", "/bin/dash", self.linux)
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), ["drivers/new/tool.sh"])
        self.assertEqual(self.read("drivers/new/tool.sh"), "#!/bin/dash\n")

    def test_edit_of_an_earlier_state(self):
        self.edit("drivers/new/driver.c", "last", "final", self.linux)
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/driver.c", SECOND])
        self.assertIn("-last();\n+final();\n", self.read(SECOND))
        self.assertEqual(git(self.linux, "show", "series~1:drivers/new/driver.c"),
                         "/* driver */\nfirst();\nlast();\n")

    def test_new_edit_of_upstream_file(self):
        self.edit("drivers/gamma.c", "gamma\n" * 30, "gamma\n" * 15 + "delta\n" + "gamma\n" * 15,
                  self.linux)
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), [DRIVER])
        self.assertIn("--- a/drivers/gamma.c\n+++ b/drivers/gamma.c\n@@ -13,6 +13,7 @@",
                      self.read(DRIVER))
        self.assertIn("v2: a note for reviewers\n", self.read(DRIVER))
        self.assertFalse((self.root / "drivers/gamma.c").exists())

    def test_new_file(self):
        (self.linux / "drivers/new/third.h").write_text("third\n")
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), ["drivers/new/third.h", DRIVER])
        self.assertIn("Adds: drivers/new/driver.c drivers/new/tool.sh drivers/new/third.h\n",
                      self.read(DRIVER))

    def test_new_commit(self):
        (self.linux / "drivers/new/third.h").write_text("third\n")
        self.edit("mm/lines.c", "line 39\n", "line thirty-nine\n", self.linux)
        self.commit("drivers/new: Serve the third kind\n\nIt is wanted.\n\n"
                    "Signed-off-by: Fixture <fixture@example.org>\n")
        new = "series/0004-drivers-new-Serve-the-third-kind.patch"
        self.assertEqual(self.changed(), ["drivers/new/third.h", new, "series/topics"])
        self.assertTrue(self.read(new).startswith(
            "Subject: [PATCH] drivers/new: Serve the third kind\n\nIt is wanted.\n\n---\n"
            "Adds: drivers/new/third.h\ndiff --git a/mm/lines.c b/mm/lines.c\n--- a"))
        self.assertTrue(self.read("series/topics").endswith(
            "Serve-the-second-kind.patch\n0004-drivers-new-Serve-the-third-kind.patch\n"))

    def test_foreign_author(self):
        (self.linux / "drivers/new/third.h").write_text("third\n")
        self.commit("drivers/new: Serve the third kind\n\nIt is wanted.\n",
                    "--author=Other <other@example.org>")
        self.changed()
        text = self.read("series/0004-drivers-new-Serve-the-third-kind.patch")
        self.assertTrue(text.startswith("From: Other <other@example.org>\nSubject: "), text)
        self.assertEqual(git(self.linux, "log", "-1", "--format=%an %cn").strip(), "Other Fixture")

    def test_new_commit_in_front(self):
        self.edit("mm/lines.c", "line 39\n", "line thirty-nine\n", self.linux)
        self.commit("mm: Spell line 39\n\nIt is wanted.\n")
        git(self.linux, "rebase", "-q", "--onto", "base", "series~1", "series")
        git(self.linux, "cherry-pick", *git(self.linux, "rev-list", "--reverse",
                                            "base..ORIG_HEAD~1").split())
        names = self.changed()
        self.assertIn("series/0001-mm-Spell-line-39.patch", names)
        self.assertIn("series/0002-mm-Keep-line-five-apart.patch", names)
        self.assertIn(FIX, names)
        self.assertIn("[fixes]\n0001-mm-Spell-line-39.patch\n0002-mm-Keep",
                      self.read("series/topics"))

    def test_dropped_commit(self):
        git(self.linux, "reset", "-q", "--hard", "series~1")
        self.assertEqual(self.changed(), ["drivers/new/driver.c", "drivers/new/second.h", SECOND,
                                          "series/topics"])
        self.assertFalse((self.root / "drivers/new/second.h").exists())

    def test_reworded(self):
        git(self.linux, "commit", "-q", "--amend", "-m",
            "drivers/new: Serve both kinds\n\nThere are two.\n")
        new = "series/0003-drivers-new-Serve-both-kinds.patch"
        self.assertEqual(self.changed(), [new, SECOND, "series/topics"])
        self.assertIn("Subject: [PATCH] drivers/new: Serve both kinds\n\nThere are two.\n\n---\n"
                      "Adds: drivers/new/second.h\ndiff", self.read(new))

    def test_rename_of_own_file(self):
        git(self.linux, "mv", "drivers/new/tool.sh", "drivers/new/helper.sh")
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), ["drivers/new/helper.sh", "drivers/new/tool.sh", DRIVER])
        self.assertFalse((self.root / "drivers/new/tool.sh").exists())
        self.assertTrue((self.root / "drivers/new/helper.sh").stat().st_mode & 0o100)

    def test_rename_of_own_file_later(self):
        git(self.linux, "mv", "drivers/new/tool.sh", "drivers/new/helper.sh")
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/helper.sh", "drivers/new/tool.sh", SECOND])
        self.assertIn("rename from drivers/new/tool.sh\nrename to drivers/new/helper.sh\n",
                      self.read(SECOND))
        self.assertIn("drivers/new/tool.sh", self.read(DRIVER))

    def test_own_file_removed_later(self):
        git(self.linux, "rm", "-q", "drivers/new/tool.sh")
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/tool.sh", SECOND])
        self.assertIn("deleted file mode 100755", self.read(SECOND))

    def test_rename_of_upstream_file(self):
        git(self.linux, "mv", "drivers/gamma.c", "drivers/delta.c")
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), [DRIVER])
        self.assertIn("rename from drivers/gamma.c\nrename to drivers/delta.c\n",
                      self.read(DRIVER))
        self.assertFalse((self.root / "drivers/delta.c").exists())

    def test_upstream_file_removed(self):
        git(self.linux, "rm", "-q", "drivers/omega.c")
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), [DRIVER])

    def test_mode(self):
        (self.linux / "drivers/new/second.h").chmod(0o755)
        (self.linux / "drivers/omega.c").chmod(0o755)
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/second.h", SECOND])
        self.assertIn("old mode 100644\nnew mode 100755\n", self.read(SECOND))

    def test_binary_and_bytes(self):
        (self.linux / "drivers/new/blob").write_bytes(bytes(range(256)))
        (self.linux / "drivers/omega.c").write_bytes(b"\xe9\xff latin\r\n\0")
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/blob", SECOND])
        self.assertEqual((self.root / "drivers/new/blob").read_bytes(), bytes(range(256)))

    def test_no_newline_at_end(self):
        (self.linux / "mm/lines.c").write_text(LINES.rstrip("\n"))
        (self.linux / "drivers/new/second.h").write_text("second")
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["drivers/new/second.h", SECOND])
        self.assertIn("\\ No newline at end of file", self.read(SECOND))

    def test_maintainers(self):
        self.edit("MAINTAINERS", "F:\tdrivers/new/\n", "F:\tdrivers/new/\nF:\tlib/new.c\n",
                  self.linux)
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), ["MAINTAINERS"])
        self.assertNotIn("M:", self.read("MAINTAINERS"))

    def test_new_maintainers_section(self):
        self.edit("MAINTAINERS", "GAMMA\n", "BETA, SECOND KIND\nL:\tsecond@example.org\n"
                  "S:\tMaintained\nF:\tdrivers/new/second.h\n\nGAMMA\n", self.linux)
        self.fixup("drivers/new: Serve")
        self.assertEqual(self.changed(), ["MAINTAINERS", SECOND])
        self.assertIn("Maintainers: BETA, SECOND KIND\n", self.read(SECOND))

    def test_upstream_maintainers_section(self):
        self.edit("MAINTAINERS", "F:\tmm/\n", "F:\tmm/\nF:\tlib/\n", self.linux)
        self.fixup("drivers/new: Add")
        self.assertEqual(self.changed(), [DRIVER])
        self.assertIn("+F:\tlib/\n", self.read(DRIVER))
        self.assertNotIn("+BETA", self.read(DRIVER))


class Adopt(Case):
    def test_files_came_and_went(self):
        (self.root / "drivers/new/third.h").write_text("third\n")
        (self.root / "drivers/new/tool.sh").unlink()
        out = self.series("adopt")
        self.assertIn(f"{DRIVER}: Adds: drivers/new/third.h\n", out)
        self.assertIn(f"{DRIVER}: no longer Adds: drivers/new/tool.sh\n", out)
        self.assertIn("Adds: drivers/new/driver.c drivers/new/third.h\n", self.read(DRIVER))
        self.series("assemble")
        self.assertEqual(self.series("adopt"), "")

    def test_file_that_belongs_nowhere(self):
        (self.root / "stray.c").write_text("stray\n")
        self.refuse("adopt", says=["stray.c", "Adds:"])


class RefreshRefuses(Case):
    assembled = True

    def test_uncommitted(self):
        self.edit("mm/lines.c", "line 39", "line x", self.linux)
        self.refuse("refresh", says=["build/linux/mm/lines.c", "not committed"])

    def test_forgotten_file(self):
        """The packaged kernel's .gitignore hides every new file from git status."""
        (self.linux / "drivers/new/third.h").write_text("third\n")
        self.assertEqual(git(self.linux, "status", "--porcelain"), "")
        self.refuse("refresh", says=["drivers/new/third.h", "git add -f"])

    def test_fixup_left(self):
        self.edit("mm/lines.c", "line 39", "line x", self.linux)
        self.commit("fixup! mm: Keep line five apart")
        self.refuse("refresh", says=["fixup!", "--autosquash"])

    def test_repository_moved_on(self):
        self.edit("mm/lines.c", "line 39", "line x", self.linux)
        self.commit("mm: Spell\n\nWanted.\n")
        self.edit("drivers/new/second.h", "second", "other")
        self.refuse("refresh", says=["changed since the branch was assembled"])
        self.series("refresh", "--force")
        self.assertEqual(self.read("drivers/new/second.h"), "second\n")

    def test_merge(self):
        git(self.linux, "checkout", "-q", "-b", "side", "base")
        self.edit("drivers/gamma.c", "gamma\n" * 30, "gamma\n" * 31, self.linux)
        self.commit("side")
        git(self.linux, "checkout", "-q", "series")
        git(self.linux, "merge", "-q", "-m", "merge", "side")
        self.refuse("refresh", says=["merge"])

    def test_symlink(self):
        (self.linux / "drivers/new/link").symlink_to("/etc/passwd")
        self.fixup("drivers/new: Add")
        self.refuse("refresh", says=["drivers/new/link", "regular files"])

    def test_names_of_ours(self):
        for name in ("harness/series", "series/0001-x.patch", "README.md", "build/x"):
            with self.subTest(name=name):
                (self.linux / name).parent.mkdir(exist_ok=True)
                (self.linux / name).write_text("hostile\n")
                self.commit(f"drivers: Add {name}\n\nWanted.\n")
                self.refuse("refresh", says=[name, "keeps for itself"])
                git(self.linux, "reset", "-q", "--hard", "series~1")

    def test_link_in_the_way(self):
        """A folder of the repository that became a link is not written through."""
        outside = self.tmp / "outside"
        (self.root / "drivers/new").rename(outside)
        (self.root / "drivers/new").symlink_to(outside)
        (self.linux / "drivers/new/second.h").write_text("hostile\n")
        self.fixup("drivers/new: Serve")
        self.run_series("refresh", "--force")
        self.assertEqual((outside / "second.h").read_text(), "second\n")

    def test_topics_mixed(self):
        order = git(self.linux, "rev-list", "--reverse", "base..series").split()
        git(self.linux, "reset", "-q", "--hard", "base")
        git(self.linux, "cherry-pick", order[1], order[0], order[2])
        self.refuse("refresh", says=["topics"])

    def test_section_changed_later(self):
        self.edit("MAINTAINERS", "drivers/new/", "drivers/", self.linux)
        self.fixup("drivers/new: Serve")
        self.refuse("refresh", says=["BETA", "fold"])

    def test_empty(self):
        git(self.linux, "reset", "-q", "--hard", "base")
        self.refuse("refresh", says=["no commits"])


if __name__ == "__main__":
    unittest.main()
