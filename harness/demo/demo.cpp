// SPDX-License-Identifier: GPL-2.0
/*
 * What demand paging gives an RDMA program, shown on a device that has it.
 *
 * Every line is checked: the exit status is 0 only where all of them hold.
 */
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <getopt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "demo.hpp"
#include "sysinfo.hpp"

namespace {

int usage(const char *program)
{
	fprintf(stderr, "usage: %s [--device NAME] [--mib N] [--percent N]\n"
		"  --device   an RDMA device with on-demand paging; default: the first\n"
		"  --mib      size of the first registration; default: 1024, or what fits\n"
		"  --percent  of RAM to register in the end; default: 150, more than 100\n", program);
	return 2;
}

/* @text as a number in [@min, @max], or 0 */
unsigned long number(const char *text, unsigned long min, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	return *text >= '0' && *text <= '9' && !*end && n >= min && n <= max ? n : 0;
}

/* 1 GiB, where pinning it leaves enough to go on */
size_t default_registration()
{
	size_t most = meminfo("MemAvailable") / 4 * 3 / MIB * MIB;

	return std::min(1024 * MIB, most);
}

void head(Report &report, const odp::Context &ctx)
{
	utsname name;

	uname(&name);
	report.text(odp::format("RDMA with demand paging: device %s, Linux %s, %ld CPUs",
				ctx.name(), name.release, sysconf(_SC_NPROCESSORS_ONLN)));
	report.text("RAM " + mib(meminfo("MemTotal")) + ", swap " + mib(meminfo("SwapTotal")) +
		    (swap_is_zram() ? " (zram)" : ""));
	report.text("");
}

void tail(Report &report, const std::string &device, int gid_index, uint64_t start)
{
	report.text("");
	report.text(odp::format("%d of %d claims hold, %.0f s", report.claims() - report.failed(),
				report.claims(), (odp::now_ns() - start) / 1e9));
	report.text("Next, in `make shell`:");
	report.text(odp::format("    ibv_rc_pingpong -d %s -g %d -o -c &  "
				"ibv_rc_pingpong -d %s -g %d -o -c localhost",
				device.c_str(), gid_index, device.c_str(), gid_index));
	report.text("    rdma statistic show link " + device + "/1");
}

} /* namespace */

int main(int argc, char **argv)
{
	static const option longopts[] = {
		{ "device", required_argument, nullptr, 'd' },
		{ "mib", required_argument, nullptr, 'm' },
		{ "percent", required_argument, nullptr, 'p' },
		{},
	};
	Sizes sizes = { default_registration(), 150 };
	std::string device, why;
	int opt;

	while ((opt = getopt_long(argc, argv, "d:m:p:", longopts, nullptr)) != -1) {
		switch (opt) {
		case 'd':
			device = optarg;
			break;
		case 'm':
			/* Less would leave no room for what step 2 writes */
			sizes.registration = number(optarg, 128, 1ul << 20) * MIB;
			break;
		case 'p':
			sizes.percent = number(optarg, 101, 1000);
			break;
		default:
			return usage(argv[0]);
		}
	}
	if (optind != argc || !sizes.registration || !sizes.percent)
		return usage(argv[0]);
	if (!odp::pick_device(device, why)) {
		fprintf(stderr, "demo: %s\n", why.c_str());
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);

	Report report;
	uint64_t start = odp::now_ns();
	int gid_index;

	try {
		{
			odp::Context ctx(device);
			odp::Pd pd(ctx);

			gid_index = ctx.gid_index();
			ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
			head(report, ctx);
			show_registration(report, pd, sizes);
			show_faults(report, pd, sizes);
			show_remap(report, pd);
			show_fork(report, pd);
		}
		show_overcommit(report, device, sizes);
	} catch (const odp::Failure &f) {
		fflush(stdout);
		fprintf(stderr, "demo: %s\n", f.text.c_str());
		return 1;
	}
	tail(report, device, gid_index, start);
	return report.failed() || soft_failure_count() ? 1 : 0;
}
