# SPDX-License-Identifier: GPL-2.0
"""The machine: its QEMU command line, and which accelerator to trust."""
import os
import time

BIN = "qemu-system-x86_64"
VERDICT_AGE = 24 * 3600
PROBE_SECONDS = 30


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "rdma-odp")


def kernel_command_line(init, acpi, extra):
    words = [
        "console=ttyS0", "root=/dev/root", "rootfstype=9p", "ro",
        "rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose",
        "init=" + init, "loglevel=7", "panic=-1", "oops=panic",
        # A host under load is no stall of the guest.
        "rcupdate.rcu_cpu_stall_timeout=90", "watchdog_thresh=60",
        "sysrq_always_enabled", "printk.time=1",
        # A host under load delivers the ticks of that check too late.
        "no_timer_check",
    ]
    if not acpi:
        # The processors are in the MP table; the clock to calibrate others by
        # has to be named. All processors read the host's one counter.
        words += ["acpi=off", "pmtmr=0x608", "tsc=reliable"]
    return " ".join(words + extra)


# While a CPU is being identified its features read as absent for a moment: with
# five levels of page tables KASAN then takes any interrupt for a wild access.
TCG_CPU = "max,la57=off"


def command(opts, accel, fds, share, console):
    """fds: descriptors of the ports and the monitor, inherited; console: a pair of pipes."""
    if opts.icount:
        machine = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
                   "-rtc", "clock=vm", "-cpu", TCG_CPU]
    elif accel == "kvm":
        machine = ["-accel", "kvm", "-cpu", "host"]
    else:
        machine = ["-accel", "tcg,thread=multi", "-cpu", TCG_CPU]
    argv = [BIN, "-machine", "pc", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-m", opts.mem, "-smp", "1" if opts.icount else "%d,sockets=%d" % (opts.smp, opts.smp)]
    argv += machine
    argv += ["-kernel", opts.kernel, "-append",
             kernel_command_line(opts.init, opts.acpi, opts.append)]
    argv += ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
             "-device", "virtio-9p-pci,fsdev=root,mount_tag=/dev/root",
             "-fsdev", "local,id=job,path=%s,security_model=none" % share.replace(",", ",,"),
             "-device", "virtio-9p-pci,fsdev=job,mount_tag=job"]
    for name, fd in fds.items():
        argv += ["-chardev", "socket,id=%s,fd=%d" % (name, fd)]
    argv += ["-chardev", "pipe,id=console,path=" + console]
    argv += ["-serial", "chardev:console", "-mon", "chardev=qmp,mode=control",
             "-device", "virtio-serial-pci,max_ports=4"]
    if opts.shell:
        argv += ["-chardev", "stdio,id=shell,signal=off",
                 "-device", "virtconsole,chardev=shell,nr=0"]
    for number, name in enumerate(("out", "err", "ctl"), 1):
        argv += ["-device", "virtserialport,chardev=%s,nr=%d,name=odp.%s" % (name, number, name)]
    return argv + opts.qemu


def pick_accel(opts, probe):
    """'kvm' or 'tcg'. On some hosts /dev/kvm opens and no guest gets past its
    firmware, so KVM counts only once `probe` has booted something with it."""
    wish = os.environ.get("ACCEL", "")
    if wish and wish not in ("kvm", "tcg"):
        raise ValueError("ACCEL is '%s'; it can be kvm or tcg" % wish)
    if opts.icount:
        return "tcg"
    if wish:
        return wish
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    path = os.path.join(cache_dir(), "kvm-verdict")
    try:
        if time.time() - os.stat(path).st_mtime < VERDICT_AGE:
            with open(path) as file:
                verdict = file.read().strip()
            if verdict in ("kvm", "tcg"):
                return verdict
    except OSError:
        pass
    verdict = "kvm" if probe(PROBE_SECONDS) else "tcg"
    os.makedirs(cache_dir(), exist_ok=True)
    with open(path, "w") as file:
        file.write(verdict + "\n")
    return verdict
