# SPDX-License-Identifier: GPL-2.0
"""Boots that run test programs, until each program has had its turn."""
import json
import os
import re
import subprocess
import sys

import ktap
import vm_splat
from steps import BUILD, TOP

# Device: the VM's set-up, the name of the device there
DEVICES = {"odp_hca": ("net,zram,odp,odp1", "odp0"), "rxe": ("net,zram,rxe", "rxe0")}
# A case with this tag corrupts a kernel whose rxe has the fault: it gets a
# kernel of its own.
ISOLATE = {"rxe": "splats-on-rxe"}
TIMEOUT = 2400
ISOLATED_TIMEOUT = 300
# On an emulated KASAN kernel, where programs are an order of magnitude slower
TIME_SCALE = "4"

_OWNER = re.compile(r"odp-selftest: (\S+)")


class Runner:
    def __init__(self, device, kernel, programs, options):
        self.device = device
        self.kernel = kernel
        self.programs = programs
        self.options = options
        self.boots = 0

    def run(self):
        tag = ISOLATE.get(self.device)
        if tag is None or self.options:
            return self._rounds(self.programs, self.options)
        results = self._rounds(self.programs, ["--no-tag", tag])
        for program, case in self._tagged(tag):
            results += self._isolated(program, case)
        return results

    def _rounds(self, programs, options):
        """Boot again after a program that took the kernel down with it."""
        results = []
        left = list(programs)
        while left:
            text, share, status = self._boot(left, options, TIMEOUT)
            part = ktap.parse(_body(text))
            finished = _finished(text)
            results += [r for r in part if not r.name.startswith("(plan)")]
            results += self._splats(share)
            done = len(finished)
            if done == len(left):
                if status not in (0, 121):
                    results.append(ktap.Result("(vm)", ktap.FAIL, self._ending(share, status)))
                return results
            name = os.path.basename(left[done])
            results.append(ktap.Result(name + ".(kernel)", ktap.FAIL, self._ending(share, status)))
            left = left[done + 1:]
        return results

    def _isolated(self, program, case):
        """One case, one kernel: whatever that kernel says is the case's result."""
        name = os.path.basename(program)
        text, share, status = self._boot([program], ["--filter", case], ISOLATED_TIMEOUT)
        results = [r for r in ktap.parse(_body(text)) if r.name == "%s.%s" % (name, case)]
        splats = self._splats(share)
        if splats or status != 0:
            reason = splats[0].reason if splats else self._ending(share, status)
            return [ktap.Result("%s.%s" % (name, case), ktap.FAIL, reason,
                                splats[0].output if splats else [])]
        return results or [ktap.Result("%s.%s" % (name, case), ktap.FAIL, "no result")]

    def _tagged(self, tag):
        """Cases with this tag, from --list: a line is a name, then its tags."""
        found = []
        for program in self.programs:
            text = subprocess.run([program, "--list", "--tag", tag], check=True,
                                  stdout=subprocess.PIPE, universal_newlines=True).stdout
            for line in text.splitlines():
                words = line.split()
                if words:
                    found.append((program, words[0]))
        return found

    def _boot(self, programs, options, timeout):
        setup, name = DEVICES[self.device]
        self.boots += 1
        share = os.path.join(BUILD, "log", "vm-selftests-%s-%d" % (self.device, self.boots))
        argv = [os.path.join(TOP, "harness/vm"), "run", "--kernel", self.kernel, "--out", share,
                "--setup", setup, "--timeout", str(timeout), "--mem", "2G",
                "--env", "ODP_TIME_SCALE=" + TIME_SCALE, "--env", "ODP_MAY_POISON=1", "--",
                os.path.join(TOP, "harness/guest/selftests"), name] + programs + ["--"] + options
        print("# boot %d: %s" % (self.boots, " ".join(os.path.basename(p) for p in programs)),
              flush=True)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=sys.stderr,
                                   stdin=subprocess.DEVNULL)
        text = ""
        for raw in process.stdout:
            line = raw.decode(errors="replace")
            text += line
            # Live, yet no result: those follow once the lists have been asked.
            sys.stderr.write("| " + line)
            sys.stderr.flush()
        process.wait()
        return text, share, process.returncode

    @staticmethod
    def _splats(share):
        """Each splat is a failed test of the program that ran at the time."""
        with open(os.path.join(share, "console.log"), errors="replace") as file:
            log = file.read().replace("\r", "")
        owners = [(number, match.group(1)) for number, line in enumerate(log.splitlines(), 1)
                  for match in [_OWNER.search(line)] if match]
        results = []
        for splat in vm_splat.scan(log):
            owner = ([name for number, name in owners if number < splat.number] or ["(boot)"])[-1]
            results.append(ktap.Result("%s.(%s)" % (owner, splat.name), ktap.FAIL,
                                       splat.lines[0].strip(), splat.lines))
        return results

    @staticmethod
    def _ending(share, status):
        try:
            with open(os.path.join(share, "result.json")) as file:
                kind = json.load(file)["kind"]
        except (OSError, ValueError):
            kind = "?"
        return "the VM ended with %d (%s), see %s/console.log" % (status, kind, share)


def _body(text):
    """Without the outermost plan: several boots make up one run."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("1.."))


def _finished(text):
    return [line for line in text.splitlines() if re.match(r"(not )?ok \d", line)]
