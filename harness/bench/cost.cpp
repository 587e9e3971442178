// SPDX-License-Identifier: GPL-2.0
/*
 * What verbs cost, on several devices side by side, in instructions.
 *
 * For a guest under -icount with one instruction per nanosecond: its clock
 * counts instructions, whatever the host and its load. Elsewhere the numbers
 * are nanoseconds, and the limits do not hold.
 */
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gates.hpp"
#include "measure.hpp"
#include "rows.hpp"
#include "standalone.hpp"

namespace {

/* Guest seconds, that is 1e9 instructions each, for one device */
constexpr int DEVICE_SECONDS = 240;
/* The column of what is measured without a device */
const char CPU[] = "cpu";

struct column {
	std::string name;
	results values;
	std::set<std::string> wrong;	/* metrics whose data did not arrive */
	bool complete = false;
};

/* Runs @measure, and writes "metric value wrong" lines to @fd. */
int child(int fd, const std::string &name, const std::function<void(const sink &)> &measure)
{
	auto out = [fd](const char *metric, double value, bool wrong) {
		dprintf(fd, "%s %.3f %d\n", metric, value, wrong);
	};

	alarm(DEVICE_SECONDS);
	try {
		measure(out);
	} catch (const odp::Failure &f) {
		fprintf(stderr, "cost: %s: %s\n", name.c_str(), f.text.c_str());
		return 1;
	} catch (const std::exception &e) {
		fprintf(stderr, "cost: %s: %s\n", name.c_str(), e.what());
		return 1;
	}
	return soft_failure_count() ? 1 : 0;
}

/*
 * A process for each column: an address space that never had an ODP memory
 * region, and one device's fault is not the end of the table.
 */
column measure(const std::string &name, const std::function<void(const sink &)> &measure)
{
	column c{ name, {}, {}, false };
	int fds[2];

	if (pipe(fds))
		throw std::runtime_error("pipe failed");
	fflush(nullptr);

	pid_t pid = fork();
	if (pid < 0)
		throw std::runtime_error("fork failed");
	if (!pid) {
		close(fds[0]);
		_exit(child(fds[1], name, measure));
	}
	close(fds[1]);

	FILE *in = fdopen(fds[0], "r");
	char metric[64];
	double value;
	int wrong, status = -1;

	while (in && fscanf(in, "%63s %lf %d", metric, &value, &wrong) == 3) {
		c.values[metric] = value;
		if (wrong)
			c.wrong.insert(metric);
	}
	if (in)
		fclose(in);
	waitpid(pid, &status, 0);
	c.complete = WIFEXITED(status) && !WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		fprintf(stderr, "cost: %s: killed by signal %d%s\n", name.c_str(), WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? ", it took too long" : "");
	return c;
}

std::string cell(double v)
{
	char digits[32];
	std::string s;

	if (std::abs(v) < 100) {
		snprintf(digits, sizeof(digits), "%.1f", v);
		return digits;
	}
	snprintf(digits, sizeof(digits), "%.0f", std::abs(v));
	s = digits;
	for (int i = static_cast<int>(s.size()) - 3; i > 0; i -= 3)
		s.insert(i, ",");
	return v < 0 ? "-" + s : s;
}

std::string cell(const column &c, const char *metric)
{
	auto it = metric ? c.values.find(metric) : c.values.end();

	if (it == c.values.end())
		return "-";
	return cell(it->second) + (c.wrong.count(metric) ? "!" : " ");
}

void print_table(const std::vector<column> &columns)
{
	std::vector<column> devices;
	column cpu;
	bool wrong = false;

	for (const column &c : columns) {
		if (c.name == CPU)
			cpu = c;
		else
			devices.push_back(c);
	}

	printf("Instructions per operation, medians, one CPU under -icount\n\n%-46s", "");
	for (const column &c : devices)
		printf("%14s ", c.name.c_str());
	printf("%14s\n", "CPU alone");
	for (const row &r : rows) {
		printf("%-46s", r.label);
		for (const column &c : devices) {
			printf("%15s", cell(c, r.metric).c_str());
			wrong |= c.wrong.count(r.metric);
		}
		printf("%15s\n", cell(cpu, r.floor).c_str());
	}
	printf("\nCPU alone: rep movsb of as many bytes; first touch by MADV_POPULATE_WRITE; "
	       "MADV_DONTNEED\nwithout an MR. Instructions see no caches and no parallelism: "
	       "they are not time.\n");
	if (wrong)
		printf("!: the operation reported success and its data did not arrive.\n");
}

bool write_tsv(const std::string &path, const std::vector<column> &columns)
{
	std::ofstream out(path);

	out << "metric\tdevice\tinstructions\tdata\n";
	for (const column &c : columns)
		for (const auto &[metric, value] : c.values)
			out << metric << '\t' << c.name << '\t' << std::llround(value) << '\t'
			    << (c.wrong.count(metric) ? "wrong" : "ok") << '\n';
	out.close();
	if (!out)
		fprintf(stderr, "cost: %s: cannot be written\n", path.c_str());
	return static_cast<bool>(out);
}

/* The columns that write_tsv() wrote to @path; throws on anything else */
std::vector<column> read_tsv(const std::string &path)
{
	std::ifstream in(path);
	std::vector<column> columns;
	std::string line, metric, device, data;
	double value;

	std::getline(in, line);
	while (std::getline(in, line)) {
		std::istringstream words(line);

		if (!(words >> metric >> device >> value >> data) ||
		    (data != "ok" && data != "wrong"))
			throw std::runtime_error(path + ": not a result: " + line);
		if (columns.empty() || columns.back().name != device)
			columns.push_back({ device, {}, {}, true });
		columns.back().values[metric] = value;
		if (data == "wrong")
			columns.back().wrong.insert(metric);
	}
	if (columns.empty())
		throw std::runtime_error(path + ": holds no results");
	return columns;
}

/* Results whose data arrived: no other holds a limit. */
results trusted(const column &c)
{
	results r = c.values;

	for (const std::string &metric : c.wrong)
		r.erase(metric);
	return r;
}

int usage(const char *program)
{
	fprintf(stderr, "usage: %s --device NAME [--device NAME ...] [--limits FILE] [--tsv FILE]\n"
		"       %s --from TSV [--limits FILE]\n", program, program);
	return 2;
}

} /* namespace */

int main(int argc, char **argv)
{
	static const option longopts[] = {
		{ "device", required_argument, nullptr, 'd' },
		{ "limits", required_argument, nullptr, 'l' },
		{ "tsv", required_argument, nullptr, 't' },
		{ "from", required_argument, nullptr, 'f' },
		{},
	};
	std::vector<std::string> names;
	std::string limits, tsv, from;
	int opt;

	while ((opt = getopt_long(argc, argv, "d:l:t:f:", longopts, nullptr)) != -1) {
		switch (opt) {
		case 'd':
			names.push_back(optarg);
			break;
		case 'l':
			limits = optarg;
			break;
		case 't':
			tsv = optarg;
			break;
		case 'f':
			from = optarg;
			break;
		default:
			return usage(argv[0]);
		}
	}
	if (names.empty() == from.empty() || optind != argc)
		return usage(argv[0]);

	try {
		std::vector<gate> gates;
		std::vector<column> columns;
		std::vector<std::pair<std::string, results>> measured;
		bool good = true;

		/* Before the long part, so that a bad file is known at once */
		if (!limits.empty())
			gates = read_gates(limits);

		if (!from.empty())
			columns = read_tsv(from);
		for (const std::string &name : names)
			columns.push_back(measure(name, [&](const sink &out) {
				measure_device(name, out);
			}));
		if (from.empty())
			columns.push_back(measure(CPU, measure_cpu));

		for (const column &c : columns) {
			good &= c.complete;
			if (c.name != CPU)
				measured.emplace_back(c.name, trusted(c));
		}
		print_table(columns);
		if (!tsv.empty())
			good &= write_tsv(tsv, columns);
		if (!gates.empty()) {
			printf("\n");
			good &= !check_gates(gates, measured);
		}
		return good ? 0 : 1;
	} catch (const std::exception &e) {
		fprintf(stderr, "cost: %s\n", e.what());
		return 1;
	}
}
