# SPDX-License-Identifier: GPL-2.0
"""Run a list of programs one after another and show how far they are."""
import os
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.environ.get("ODP_BUILD") or os.path.join(TOP, "build")
TAIL_LINES = 25
HEARTBEAT_SECONDS = 60


def with_ccache(argv):
    """The same program, in the environment that lib/common.sh gives to compilers."""
    return ["bash", "-c", '. "$0"; exec "$@"', os.path.join(TOP, "harness/lib/common.sh")] + argv


class Step:
    """A program, and the log it writes. `show` puts its output on the screen
    as well, for what is meant to be read."""

    def __init__(self, name, title, argv, show=False):
        self.name = name
        self.title = title
        self.argv = argv
        self.show = show
        self.log = os.path.join(BUILD, "log", name + ".log")
        self.status = None
        self.seconds = 0.0

    def output(self):
        try:
            with open(self.log, errors="replace") as file:
                return file.read()
        except OSError:
            return ""


def duration(seconds):
    seconds = int(seconds)
    return "%d:%02d" % (seconds // 60, seconds % 60)


def relative(path):
    short = os.path.relpath(path)
    return path if short.startswith("../..") else short


class Screen:
    """A line that is rewritten on a terminal; lines now and then in a file."""

    def __init__(self, stream=sys.stdout):
        self.stream = stream
        self.live = stream.isatty()
        self.last = time.monotonic()

    def line(self, text):
        if self.live:
            self.stream.write("\r\033[K")
        self.stream.write(text + "\n")
        self.stream.flush()
        self.last = time.monotonic()

    def status(self, text):
        now = time.monotonic()
        if self.live:
            width = os.get_terminal_size(self.stream.fileno()).columns
            self.stream.write("\r\033[K" + text[:max(20, width - 1)])
            self.stream.flush()
        elif now - self.last >= HEARTBEAT_SECONDS:
            self.line(text)


def last_line(path):
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 400))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    lines = [line.strip() for line in lines if line.strip()]
    return lines[-1] if lines else ""


def run(step, number, total, screen):
    """Returns the exit status; the caller decides what a failure means."""
    os.makedirs(os.path.dirname(step.log), exist_ok=True)
    head = "[%d/%d] %s" % (number, total, step.title)
    screen.line("%s (log: %s)" % (head, relative(step.log)))
    start = time.monotonic()
    with open(step.log, "wb") as log:
        log.write(("$ %s\n" % " ".join(step.argv)).encode())
        log.flush()
        try:
            process = subprocess.Popen(step.argv, cwd=TOP, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE if step.show else log,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            log.write(("%s\n" % error).encode())
            step.status = 127
            return step.status
        try:
            if step.show:
                _copy(process, log, screen)
            else:
                _wait(process, step, head, start, screen)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    step.status = process.returncode
    step.seconds = time.monotonic() - start
    return step.status


def _wait(process, step, head, start, screen):
    while True:
        try:
            process.wait(1)
            return
        except subprocess.TimeoutExpired:
            screen.status("%s  %s  %s" % (head, duration(time.monotonic() - start),
                                          last_line(step.log)))


def _copy(process, log, screen):
    for raw in process.stdout:
        log.write(raw)
        log.flush()
        screen.line("  " + raw.decode(errors="replace").rstrip("\n"))
    process.wait()


def tail(step, screen):
    """The end of a failed step's log, and where the rest is."""
    lines = step.output().rstrip("\n").split("\n")
    for line in lines[-TAIL_LINES:]:
        screen.line("    | " + line)
    screen.line("    the whole log: %s" % relative(step.log))
