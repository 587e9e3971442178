# SPDX-License-Identifier: GPL-2.0
"""harness/vm: options in, verdict out."""
import argparse
import copy
import json
import os
import shutil
import sys
import tempfile
import time

import vm_qemu
import vm_run
import vm_splat

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.environ.get("ODP_BUILD") or os.path.join(TOP, "build")
# Places of the host that a memory file system of the guest covers.
COVERED = ("/tmp", "/run", "/var/tmp")
KERNELS = {"plain": "kernel", "debug": "kernel-debug", "base": "kernel-base"}
IMAGE = "arch/x86/boot/bzImage"

STATUS = {"splat": 121, "panic": 122, "setup": 123, "hang": 124, "qemu": 125, "allow": 120}

USAGE = """\
A guest that exits gives its own status. Otherwise: 120 a splat that --allow
promised did not come, 121 the kernel reported a fault of its own, 122 it
panicked, 123 the guest could not be set up, 124 it was not done in time,
125 QEMU failed. ACCEL=, SMP= and MEM= in the environment override."""


def parser():
    top = argparse.ArgumentParser(prog="harness/vm", description=__doc__, epilog=USAGE)
    sub = top.add_subparsers(dest="mode", required=True)
    for mode, text in (("run", "run a command and report how it ended"),
                       ("shell", "open a shell, or a command, on the terminal")):
        one = sub.add_parser(mode, help=text, epilog=USAGE)
        one.add_argument("--kernel", default="debug",
                         help="plain, debug or base (as built below build/), or a bzImage")
        one.add_argument("--modules", metavar="DIR",
                         help="INSTALL_MOD_PATH; default: modules/ in the kernel's build folder")
        one.add_argument("--mem", default="2G")
        one.add_argument("--smp", type=int, default=2)
        one.add_argument("--icount", action="store_true",
                         help="one CPU whose clock counts instructions")
        one.add_argument("--acpi", action="store_true",
                         help="with ACPI (slow to boot on a debug kernel)")
        one.add_argument("--timeout", type=int, default=600, metavar="S",
                         help="seconds until the guest counts as hung; 0: never")
        one.add_argument("--env", action="append", default=[], metavar="K=V")
        one.add_argument("--setup", default=None, metavar="LIST",
                         help="of net, odp, rxe, zram; default: net, zram, and odp if built")
        one.add_argument("--teardown", default="", metavar="LIST",
                         help="of odp, rxe: taken down before the verdict")
        one.add_argument("--allow", action="append", default=[], metavar="CLASS[:REGEX]",
                         help="a splat that the command provokes on purpose")
        one.add_argument("--keep", action="append", default=[], metavar="PATH",
                         help="of the host's /tmp, /run or /var/tmp, to be seen by the guest")
        one.add_argument("--out", metavar="DIR",
                         help="where console.log, dmesg, result.json and out/ stay")
        one.add_argument("--append", action="append", default=[], metavar="WORD",
                         help="to the kernel's command line")
        one.add_argument("--qemu", action="append", default=[], metavar="ARG")
        one.add_argument("--verbose", action="store_true", help="the console, on standard error")
        one.add_argument("command", nargs="*", metavar="-- CMD")
    return top


def fail(text, status=125):
    print("vm: " + text, file=sys.stderr)
    return status


def resolve(opts):
    """Fill in what follows from other options; returns a complaint or None."""
    opts.shell = opts.mode == "shell"
    if opts.shell:
        opts.timeout = 0
        opts.command = opts.command or ["/bin/bash", "-i"]
    if not opts.command:
        return "no command given; write it after --"
    objects = None
    if opts.kernel in KERNELS:
        objects = os.path.join(BUILD, KERNELS[opts.kernel])
        opts.kernel = os.path.join(objects, IMAGE)
    elif opts.kernel.endswith("/" + IMAGE):
        objects = opts.kernel[:-len(IMAGE) - 1]
    opts.kernel = os.path.realpath(opts.kernel)
    if not os.path.isfile(opts.kernel):
        return "there is no kernel at %s; 'make kernel' builds it" % opts.kernel
    if opts.modules is None and objects and os.path.isdir(objects + "/modules/lib/modules"):
        opts.modules = objects + "/modules"
    if opts.modules:
        opts.modules = os.path.realpath(opts.modules)
        if not os.path.isdir(opts.modules + "/lib/modules"):
            return "%s has no lib/modules" % opts.modules
    opts.mem = os.environ.get("MEM") or opts.mem
    opts.smp = int(os.environ.get("SMP") or opts.smp)
    if opts.setup is None:
        opts.setup = ["net", "zram"] + (["odp"] if has_module(opts.modules, "odp_hca") else [])
    else:
        opts.setup = [w for w in opts.setup.replace(",", " ").split() if w != "none"]
        if {"odp", "rxe"} & set(opts.setup) and "net" not in opts.setup:
            opts.setup.insert(0, "net")
    opts.teardown = opts.teardown.replace(",", " ").split()
    opts.init = os.path.join(TOP, "harness/guest/init")
    if any(c.isspace() for c in opts.init):
        return "the kernel's command line cannot name %s: it has a space in it" % opts.init
    rdma = os.path.join(BUILD, "rdma-core/build")
    opts.libs = [rdma + "/lib"] if os.path.isdir(rdma + "/lib") else []
    opts.path = [rdma + "/bin"] if os.path.isdir(rdma + "/bin") else []
    opts.keep = keep(opts)
    for pair in opts.env:
        name, equals, _ = pair.partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            return "--env wants NAME=VALUE, not '%s'" % pair
    return None


def has_module(modules, name):
    if not modules:
        return False
    return any(name + ".ko" in files for _, _, files in os.walk(modules + "/lib/modules"))


def keep(opts):
    """Paths in covered places that the job names, in one way or another."""
    named = [TOP, BUILD, os.getcwd(), opts.modules or ""] + opts.libs
    named += [os.path.abspath(path) for path in opts.keep]
    for word in opts.command:
        if os.path.isabs(word) and os.path.exists(word):
            named.append(word)
            named.append(os.path.realpath(word))
    found = []
    for path in sorted(set(named)):
        covered = any(path.startswith(place + "/") for place in COVERED)
        if covered and not any(path.startswith(other + "/") for other in found):
            found.append(path)
    return found


def probe_kvm(opts, share):
    """Whether KVM boots this kernel, within a bound."""
    trial = copy.copy(opts)
    trial.command, trial.setup, trial.teardown = ["/bin/true"], [], []
    trial.shell = trial.verbose = False

    def probe(seconds):
        trial.timeout = seconds
        vm_run.job_file(trial, os.path.join(share, "job.env"), {})
        end = vm_run.boot(trial, "kvm", share, os.path.join(share, "probe.log"), quiet=True)
        return end.kind == "exit" and end.status == 0
    return probe


def report(end, splats, unused, share):
    """Say what went wrong, where, and give the exit status."""
    for splat in splats:
        print("vm: the kernel reported a fault (%s), %s/console.log:%d" % (
            splat.name, share, splat.number), file=sys.stderr)
    if splats:
        print(str(splats[0]), file=sys.stderr)
    if end.kind != "exit":
        fail("%s: %s; see %s/console.log" % (end.kind, end.text, share))
        return STATUS[end.kind]
    if splats:
        return STATUS["splat"]
    if unused and end.status == 0:
        return fail("no splat came that matches --allow %s" % unused[0].text, STATUS["allow"])
    return end.status


def execute(opts, share):
    start = time.monotonic()
    os.makedirs(os.path.join(share, "out"), exist_ok=True)
    for stale in ("dmesg", "result.json"):
        if os.path.exists(os.path.join(share, stale)):
            os.unlink(os.path.join(share, stale))
    allowances = [vm_splat.Allowance(text) for text in opts.allow]
    accel = vm_qemu.pick_accel(opts, probe_kvm(opts, share))
    environment = dict(pair.split("=", 1) for pair in opts.env)
    vm_run.job_file(opts, os.path.join(share, "job.env"), environment)
    console = os.path.join(share, "console.log")
    end = vm_run.boot(opts, accel, share, console)
    with open(console, errors="replace") as file:
        splats, unused = vm_splat.judge(file.read().replace("\r", ""), allowances)
    panicked = [a for a in allowances if a.name == "panic" and a.used]
    if end.kind == "panic" and panicked and not splats:
        end = vm_run.Outcome("exit", 0)
    status = report(end, splats, unused, share)
    with open(os.path.join(share, "result.json"), "w") as file:
        json.dump({"kind": end.kind, "guest_status": end.status, "status": status,
                   "accel": accel, "seconds": round(time.monotonic() - start, 1),
                   "splats": [s.lines[0] for s in splats]}, file, indent=1)
        file.write("\n")
    return status


def main(argv):
    opts = parser().parse_args(argv)
    complaint = resolve(opts)
    if complaint:
        return fail(complaint)
    if shutil.which(vm_qemu.BIN) is None:
        return fail("%s is not installed; 'make deps' installs it" % vm_qemu.BIN)
    if opts.out:
        share = os.path.realpath(opts.out)
        os.makedirs(share, exist_ok=True)
    else:
        os.makedirs(os.path.join(BUILD, "vm"), exist_ok=True)
        share = tempfile.mkdtemp(prefix="run-", dir=os.path.join(BUILD, "vm"))
    try:
        status = execute(opts, share)
    except ValueError as error:
        status = fail(str(error))
    except KeyboardInterrupt:
        status = fail("interrupted", 130)
    if not opts.out and status == 0:
        shutil.rmtree(share, ignore_errors=True)
    return status
