# SPDX-License-Identifier: GPL-2.0
"""The stages of `make check`, in the order in which they run."""
import os

from steps import BUILD, Step, TOP

HARNESS = os.path.join(TOP, "harness")
MODULES = os.path.join(BUILD, "kernel-debug/modules")


class Stage(Step):
    """A step that is one test, or prints KTAP. `needs` names the stages without
    which it cannot say anything."""

    def __init__(self, name, title, argv, needs=(), ktap=False):
        super().__init__("check-" + name, title, argv)
        self.name = name
        self.needs = needs
        self.ktap = ktap


def program(*words):
    return [os.path.join(HARNESS, words[0])] + list(words[1:])


def guest(script, *arguments, options=()):
    """A script of harness/test in the debug kernel's VM."""
    name = script.replace("/", "-")
    return program("vm", "run", "--kernel", "debug", "--timeout", "1500",
                   "--out", os.path.join(BUILD, "log", "vm-" + name), *options, "--",
                   os.path.join(HARNESS, script), *arguments)


# Left out of `make check`, which says so; harness/check NAME runs one. kunit-py
# builds a third kernel, for what the stage kunit runs on the debug kernel.
APART = ("kunit-py",)


def stages():
    built = ("assemble", "kernel-debug", "rdma-core")
    return [
        Stage("harness", "the harness's own parts", program("test/unit"), ktap=True),
        Stage("series", "the series tools, on fixtures", program("test/series/run")),
        Stage("assemble", "assemble the series on the base", program("assemble")),
        Stage("kernel-debug", "build the KASAN and lockdep kernel",
              program("kernel", "build", "debug"), ("assemble",)),
        Stage("kernel-plain", "build the plain kernel",
              program("kernel", "build", "plain"), ("assemble",)),
        Stage("rdma-core", "build rdma-core with the provider",
              program("rdma-core", "build"), ("assemble",)),
        Stage("selftests-build", "build the selftests",
              program("selftests", "build"), ("assemble", "rdma-core")),
        Stage("static", "static checks of the mails and of the whole",
              program("static", "series", "layout", "include-rule", "shell", "python",
                      "checkpatch", "kernel-doc", "uapi"), ("assemble",), ktap=True),
        Stage("static-builds", "every patch builds; sparse, Coccinelle",
              program("static", "patch", "sparse", "coccinelle"), ("assemble",), ktap=True),
        Stage("vm", "the VM runner notices what goes wrong",
              program("test/vm"), ("kernel-debug",), ktap=True),
        Stage("kunit", "KUnit of the device model",
              guest("test/kunit", options=("--setup", "net,odp")), built, ktap=True),
        Stage("kunit-py", "the same by kunit.py, with a kernel of its own",
              program("kunit"), ("assemble",), ktap=True),
        Stage("lifecycle", "devices come and go",
              guest("test/lifecycle", MODULES, options=(
                  "--setup", "net", "--append", "kmemleak=on")), built, ktap=True),
        Stage("provider", "ibv_devinfo and ibv_rc_pingpong on odp_hca",
              guest("test/provider", "odp0"), built, ktap=True),
        Stage("rings", "the rings of the provider", program("test/rings/run"), built, ktap=True),
        Stage("selftests-odp_hca", "selftests on odp_hca",
              program("selftests", "run", "odp_hca"), built + ("selftests-build",), ktap=True),
        Stage("selftests-rxe", "selftests on rxe",
              program("selftests", "run", "rxe"), built + ("selftests-build",), ktap=True),
        Stage("kselftest", "kselftest packaging: O=, install, run_kselftest.sh",
              program("test/kselftest"), built, ktap=True),
        Stage("demo", "the demonstration", program("demo/run"),
              ("assemble", "kernel-plain", "rdma-core")),
        Stage("cost", "cost in instructions, against the limits", program("bench/run"),
              ("assemble", "kernel-plain", "rdma-core"), ktap=True),
        Stage("gates", "the limits fail where they have to",
              program("bench/test", os.path.join(BUILD, "bench/cost")), ("cost",), ktap=True),
        Stage("gates-reclaim", "the same of the reclaim benchmark",
              program("bench/test-reclaim"), ktap=True),
    ]
