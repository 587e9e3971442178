# SPDX-License-Identifier: GPL-2.0
"""The repository's own rules, and its programs that are not the kernel's."""
import os
import re
import shutil
import subprocess
import sys

from steps import TOP

MODEL = "drivers/infiniband/hw/odp_hca/model"
# The device knows no process, no memory map and no verbs object.
FORBIDDEN = re.compile(r'^\s*#\s*include\s*[<"](rdma/|linux/hmm|linux/mmu_notifier\.h'
                       r'|linux/sched/mm\.h|linux/mm_types\.h)')
LONG = 900
LONG_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".py", ".sh")
KERNEL_DIRS = ("Documentation", "drivers", "include", "lib", "mm", "tools")
ROOT = {"Makefile", "README.md", "MAINTAINERS", "LICENSES", "COPYING", ".ci", ".git", ".gitignore",
        "series", "rdma-core", "harness", "build", "AGENTS.md", "CLAUDE.md"} | set(KERNEL_DIRS)
SPDX_FREE = (".md", ".patch", ".config", "/base", "/topics", "/MAINTAINERS", "-cover-letter",
             "/settings", "/config", ".kunitconfig", "/.gitignore", ".json", ".png", ".svg", ".txt", "/COPYING")


def files():
    """Paths that are, or can become, part of the repository."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          cwd=TOP, stdout=subprocess.PIPE, check=True)
    found = [path for path in done.stdout.decode().split("\0") if path]
    return sorted({path for path in found if os.path.isfile(os.path.join(TOP, path))
                   and not path.startswith("LICENSES/")})


def read(path):
    with open(os.path.join(TOP, path), errors="replace") as file:
        return file.read()


def series(report):
    for project in ("linux", "rdma-core"):
        done = subprocess.run([os.path.join(TOP, "harness/series"), "check", "--project", project],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, check=False)
        print("\n".join("# " + line for line in done.stdout.splitlines()))
        report.point("series", project, done.stdout.splitlines() if done.returncode else [])


def layout(report):
    strangers = sorted({path.split("/")[0] for path in files()} - ROOT)
    report.point("layout", "root folder", ["%s has no place in the root" % s for s in strangers])
    every = files()
    long = ["%s: %d lines" % (path, n) for path in every if path.endswith(LONG_SUFFIXES)
            for n in [read(path).count("\n")] if n > LONG]
    report.point("layout", "no file beyond %d lines" % LONG, long)
    bare = [path for path in every if not path.endswith(SPDX_FREE) and "/" in path
            and not path.startswith(("series/", "rdma-core/series/"))
            and "SPDX-License-Identifier:" not in "\n".join(read(path).splitlines()[:4])]
    report.point("layout", "SPDX lines", ["%s: no SPDX line" % path for path in bare])
    here = [path for path in every if TOP + "/" in read(path) or os.path.expanduser("~/") in read(path)
            and os.path.expanduser("~") != "/"]
    report.point("layout", "no path of a machine", here)


def include_rule(report):
    place = os.path.join(TOP, MODEL)
    if not os.path.isdir(place):
        raise ValueError("%s does not exist" % MODEL)
    wrong = []
    for name in sorted(os.listdir(place)):
        for number, line in enumerate(read(os.path.join(MODEL, name)).splitlines(), 1):
            if FORBIDDEN.match(line):
                wrong.append("%s/%s:%d: %s" % (MODEL, name, number, line.strip()))
    report.point("include-rule", MODEL, wrong)


def _by_interpreter(word, suffix):
    for path in files():
        first = read(path).split("\n", 1)[0]
        if path.endswith(suffix) or first.startswith("#!") and re.search(r"\b%s3?\b" % word, first):
            yield path
        elif word == "bash" and "shellcheck shell=" in "\n".join(read(path).splitlines()[:5]):
            yield path


def shell(report):
    paths = sorted(set(list(_by_interpreter("bash", ".sh")) + list(_by_interpreter("sh", ".sh"))))
    if not paths:
        raise ValueError("no shell program was found")
    wrong = []
    for path in paths:
        done = subprocess.run(["bash", "-n", path], cwd=TOP, stderr=subprocess.PIPE,
                              universal_newlines=True, check=False)
        wrong += done.stderr.splitlines()
    report.point("shell", "%d programs parse" % len(paths), wrong)
    if shutil.which("shellcheck") is None:
        report.point("shell", "shellcheck", ["shellcheck is not installed; 'make deps' installs it"])
        return
    done = subprocess.run(["shellcheck", "-x", "-S", "warning", "-e", "SC1007,SC1090,SC1091", "-f", "gcc"]
                          + paths, cwd=TOP, stdout=subprocess.PIPE, universal_newlines=True,
                          check=False)
    report.point("shell", "shellcheck", done.stdout.splitlines())


def python(report):
    paths = sorted(set(_by_interpreter("python", ".py")))
    if not paths:
        raise ValueError("no Python program was found")
    wrong = []
    for path in paths:
        try:
            compile(read(path), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            wrong.append("%s:%s: %s" % (path, error.lineno, error.msg))
    report.point("python", "%d programs parse (Python %d.%d)" % (
        len(paths), sys.version_info[0], sys.version_info[1]), wrong)
