# SPDX-License-Identifier: GPL-2.0
"""One boot: start QEMU, carry the guest's output, find out how it ended."""
import ctypes
import fcntl
import json
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import vm_qemu

# fcntl.F_SETPIPE_SZ, which came with Python 3.10
F_SETPIPE_SZ = 1031
# A serial line loses what its other end does not take at once.
CONSOLE_BUFFER = 1 << 20
PORTS = ("out", "err", "ctl", "qmp")
# sysrq keys that say where a guest hangs: CPUs, blocked tasks, locks, all tasks.
HANG_KEYS = b"lwdt"


class Outcome:
    """How the guest ended: 'exit', 'panic', 'hang', 'setup' or 'qemu'."""

    def __init__(self, kind, status=None, text=""):
        self.kind = kind
        self.status = status
        self.text = text


class Clock:
    """Seconds that the guest had to itself. On a loaded host a vCPU waits for a
    processor most of the time, and what is starved does not hang."""

    # However starved: more than this many times the bound is no bound.
    PATIENCE = 6

    def __init__(self, pid):
        self.tasks = "/proc/%d/task" % pid
        self.start = time.monotonic()
        self.waited = 0.0

    def passed(self):
        """Wall time less what its threads have waited for a processor."""
        wall = time.monotonic() - self.start
        try:
            waited = 0.0
            for task in os.listdir(self.tasks):
                with open("%s/%s/schedstat" % (self.tasks, task)) as file:
                    waited += int(file.read().split()[1]) / 1e9
            self.waited = max(self.waited, waited)
        except (OSError, IndexError, ValueError):
            pass
        return max(wall - self.waited, wall / self.PATIENCE)


_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def _end_with_parent():
    """However the runner dies, no guest outlives it."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Machine:
    """A running QEMU and the sockets it was given."""

    def __init__(self, opts, accel, share, console_path):
        self.sockets = {}
        self.console_log = open(console_path, "wb")
        self.selector = selectors.DefaultSelector()
        self.scratch = tempfile.mkdtemp(prefix="odp-vm-")
        self.keyboard = self._console()
        theirs = {}
        for name in PORTS:
            ours, other = socket.socketpair()
            ours.setblocking(False)
            self.sockets[name] = ours
            theirs[name] = other
            self.selector.register(ours, selectors.EVENT_READ, name)
        argv = vm_qemu.command(opts, accel, {n: s.fileno() for n, s in theirs.items()}, share,
                               self.scratch + "/console")
        stdio = None if opts.shell else subprocess.DEVNULL
        self.stderr = open(console_path + ".qemu", "w+b")
        self.process = subprocess.Popen(argv, stdin=stdio, stdout=stdio, stderr=self.stderr,
                                        pass_fds=[s.fileno() for s in theirs.values()],
                                        preexec_fn=_end_with_parent)
        for other in theirs.values():
            other.close()

    def _console(self):
        """Two named pipes, as QEMU opens them; returns the end that types."""
        for suffix in (".in", ".out"):
            os.mkfifo(self.scratch + "/console" + suffix)
        # Read and write: neither side then waits for the other to open.
        keyboard = os.open(self.scratch + "/console.in", os.O_RDWR | os.O_NONBLOCK)
        screen = os.open(self.scratch + "/console.out", os.O_RDWR | os.O_NONBLOCK)
        try:
            fcntl.fcntl(screen, F_SETPIPE_SZ, CONSOLE_BUFFER)
        except OSError:
            pass
        self.screen = screen
        self.selector.register(screen, selectors.EVENT_READ, "console")
        return keyboard

    def read(self, timeout):
        """Chunks that arrived, as (port, bytes); b'' once for a closed port."""
        chunks = []
        for key, _ in self.selector.select(timeout):
            try:
                data = os.read(key.fd, 65536)
            except ConnectionResetError:
                data = b""
            if not data:
                self.selector.unregister(key.fileobj)
            if key.data == "console":
                self.console_log.write(data)
                self.console_log.flush()
            chunks.append((key.data, data))
        return chunks

    def monitor(self, execute, **arguments):
        message = {"execute": execute}
        if arguments:
            message["arguments"] = arguments
        self.sockets["qmp"].sendall(json.dumps(message).encode() + b"\n")

    def sysrq(self, key):
        """The kernel takes a break on its serial console, then a key."""
        self.monitor("chardev-send-break", id="console")
        time.sleep(0.2)
        os.write(self.keyboard, key)

    def drain(self, seconds):
        """Whatever the console still has to say."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.read(max(0, end - time.monotonic())):
                break

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for sock in self.sockets.values():
            sock.close()
        os.close(self.keyboard)
        os.close(self.screen)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.console_log.close()
        self.stderr.close()

    def complaint(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace").strip()


def _write(stream, data):
    try:
        stream.buffer.write(data)
        stream.flush()
    except BrokenPipeError:
        pass


def _ask_where(machine):
    """Let a hung kernel print its tasks and locks into the console log."""
    try:
        for key in HANG_KEYS:
            machine.sysrq(bytes([key]))
            machine.drain(3)
    except OSError:
        pass


def boot(opts, accel, share, console_path, quiet=False):
    """Run to the end. The guest's output goes to ours as it comes."""
    machine = Machine(opts, accel, share, console_path)
    control = b""
    clock = Clock(machine.process.pid)
    panic = False
    console_tail = b""
    try:
        machine.monitor("qmp_capabilities")
        while True:
            if opts.timeout and clock.passed() > opts.timeout:
                if not quiet:
                    _ask_where(machine)
                return Outcome("hang", text="no end after %d s" % opts.timeout)
            chunks = machine.read(0.5)
            for port, data in chunks:
                if port == "out" and not quiet:
                    _write(sys.stdout, data)
                elif port == "err" and not quiet:
                    _write(sys.stderr, data)
                elif port == "console":
                    if opts.verbose:
                        _write(sys.stderr, data)
                    console_tail = (console_tail + data)[-200:]
                    panic = panic or b"Kernel panic - not syncing" in console_tail
                elif port == "ctl":
                    control += data
            lines = control.split(b"\n")
            control = lines.pop()
            for line in lines:
                word, _, rest = line.decode(errors="replace").partition(" ")
                if word == "exit":
                    # Ports are independent: let the others catch up.
                    _finish(machine, quiet)
                    return Outcome("exit", int(rest))
                if word == "fail":
                    machine.drain(0.5)
                    return Outcome("setup", text=rest)
            if machine.process.poll() is not None and not any(data for _, data in chunks):
                break
        if panic:
            return Outcome("panic", text="the kernel panicked")
        if machine.process.returncode == 0:
            return Outcome("panic", text="the machine reset itself")
        return Outcome("qemu", text="QEMU ended with %d: %s" % (
            machine.process.returncode, machine.complaint()))
    finally:
        machine.close()


def _finish(machine, quiet):
    while True:
        chunks = machine.read(0.1)
        if not chunks:
            return
        for port, data in chunks:
            if port in ("out", "err") and not quiet:
                _write(sys.stdout if port == "out" else sys.stderr, data)


def job_file(opts, path, environment):
    """What guest/init reads: shell assignments and functions, everything quoted."""
    def scalar(name, value):
        return "%s=%s" % (name, shlex.quote(str(value)))

    def function(name, *lines):
        return "%s()\n{\n%s\n}" % (name, "\n".join("\t" + line for line in lines or (":",)))

    size = os.get_terminal_size() if opts.shell and sys.stdout.isatty() else None
    lines = [
        function("vm_keep", *["keep " + shlex.quote(place) for place in opts.keep]),
        function("vm_env", *["export " + scalar(*pair) for pair in environment.items()]),
        function("vm_command", "launch " + " ".join(shlex.quote(word) for word in opts.command)),
        scalar("VM_SHELL", opts.command[0] if opts.shell else ""),
        scalar("VM_SETUP", " ".join(opts.setup)),
        scalar("VM_TEARDOWN", " ".join(opts.teardown)),
        scalar("VM_MODULES", opts.modules or ""),
        scalar("VM_PATH", ":".join(opts.path)), scalar("VM_LIBS", ":".join(opts.libs)),
        scalar("VM_CWD", os.getcwd()), scalar("VM_MODE", "shell" if opts.shell else "run"),
        scalar("VM_TERM", os.environ.get("TERM", "dumb") if opts.shell else "dumb"),
        scalar("VM_ROWS", size.lines if size else 24),
        scalar("VM_COLS", size.columns if size else 80),
    ]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
