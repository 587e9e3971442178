# SPDX-License-Identifier: GPL-2.0
"""Each patch by itself: checkpatch, and a W=1 build of what it touches."""
import os
import re
import subprocess

import tree_walk
from steps import TOP, with_ccache

WARNING = re.compile(r"^[^ ]+:\d+(:\d+)?: (warning|error):|^(ERROR|WARNING|error|warning): |: error: "
                     r"|^make.*\*\*\*|^Warning: ")


def call(argv, cwd=None, text=""):
    """(status, lines) of a program, output and errors together."""
    done = subprocess.run(with_ccache(argv), cwd=cwd, stdout=subprocess.PIPE, check=False,
                          stderr=subprocess.STDOUT, input=text.encode())
    return done.returncode, done.stdout.decode(errors="replace").splitlines()


# The commits a Fixes: line names are not in the tree that a tarball gave; who
# signs off is known when the mails are sent.
IGNORE = "MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF,GIT_COMMIT_ID,UNKNOWN_COMMIT_ID"


def checkpatch(report):
    walk = tree_walk.standard("static")
    for commit, subject in walk.commits():
        mail = walk.git("format-patch", "-M", "--stdout", "-1", commit).decode(errors="replace")
        # The committer of a clone may have a name of any length.
        mail = re.sub(r"\nFrom: .*(\n .*)*", "\nFrom: sender <sender@example.org>", mail, count=1)
        status, lines = call(["scripts/checkpatch.pl", "--strict", "--no-color", "--show-types",
                              "--terse", "--showfile", "--ignore", IGNORE, "-"],
                             cwd=walk.repo, text=mail)
        found = [line for line in lines if re.search(r": (ERROR|WARNING|CHECK):", line)]
        if status and not found:
            found = lines[-5:] or ["checkpatch failed with status %d" % status]
        report.point("checkpatch", "'%s'" % subject, ["%s %s" % (subject, f) if f[0] == ":" else f
                                                       for f in found])


def kmake(walk, *targets):
    return call(["make", "-C", walk.tree, "O=" + walk.objects, "CC=ccache gcc",
                 "HOSTCC=ccache gcc", "-j%d" % (os.cpu_count() or 2)] + list(targets))


def configure(walk):
    """The plain guest's configuration, as far as this commit knows its options."""
    fragment = os.path.join(TOP, "harness/config/guest.config")
    for argv in (["make", "-C", walk.tree, "O=" + walk.objects, "-s", "tinyconfig"],
                 [walk.tree + "/scripts/kconfig/merge_config.sh", "-m", "-O", walk.objects,
                  walk.objects + "/.config", fragment],
                 ["make", "-C", walk.tree, "O=" + walk.objects, "-s", "olddefconfig"]):
        status, lines = call(argv, cwd=walk.tree)
        if status:
            raise ValueError("\n".join(lines[-20:]))


def targets_of(walk, touched):
    """Folders whose build files changed, whole; of others, the objects."""
    folders = sorted({os.path.dirname(path) for path in touched
                      if os.path.basename(path) in ("Makefile", "Kconfig")
                      and path.startswith(("drivers/", "mm/", "lib/", "kernel/"))})
    # drivers/infiniband/hw/Makefile would build every driver: only what is new in it counts
    new = sorted({os.path.dirname(path) for path, status in touched.items()
                  if status == "A" and path.endswith(".c") and path.startswith(("drivers/", "lib/"))
                  and os.path.exists(os.path.join(walk.tree, os.path.dirname(path), "Makefile"))})
    folders = [f for f in folders if any(p.startswith(f + "/") and p.endswith(".c") for p in touched)]
    targets = {folder + "/" for folder in folders + new}
    for path in touched:
        whole = any((path.startswith(folder)) for folder in targets)
        if path.endswith(".c") and path.startswith(("drivers/", "mm/", "lib/", "kernel/")) and not whole:
            targets.add(path[:-2] + ".o")
        elif path.endswith(".h") and path.startswith("drivers/") and not whole:
            folder = os.path.dirname(path)
            if os.path.exists(os.path.join(walk.tree, folder, "Makefile")):
                targets.add(folder + "/")
    return sorted(targets)


def build_each(report):
    walk = tree_walk.standard("static")
    walk.start()
    configure(walk)
    status, lines = kmake(walk, "-s", "prepare", "modules_prepare")
    if status:
        raise ValueError("\n".join(lines[-20:]))
    for commit, subject in walk.commits():
        walk.step(commit)
        touched = walk.touched(commit)
        if any(os.path.basename(path) == "Kconfig" for path in touched):
            configure(walk)
        targets = targets_of(walk, {p: s for p, s in touched.items() if s != "D"})
        found = []
        if targets:
            for target in targets:
                if target.endswith(".o") and os.path.exists(os.path.join(walk.objects, target)):
                    os.unlink(os.path.join(walk.objects, target))
            status, lines = kmake(walk, "W=1", *targets)
            found = [line for line in lines if WARNING.search(line)]
            if status and not found:
                found = lines[-20:]
        report.point("patch", "'%s': %s" % (subject, ", ".join(targets) or "nothing to compile"), found)
