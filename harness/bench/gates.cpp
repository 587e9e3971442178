// SPDX-License-Identifier: GPL-2.0
#include "gates.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <fnmatch.h>

namespace {

/* What a gate comes to on one device. */
struct verdict {
	bool pass;
	std::string text;
};

std::string number(double v)
{
	char buf[32];

	snprintf(buf, sizeof(buf), std::abs(v) < 100 ? "%.3g" : "%.0f", v);
	return buf;
}

std::optional<double> lookup(const results &r, const std::string &metric)
{
	auto it = r.find(metric);

	if (it == r.end() || std::isnan(it->second))
		return std::nullopt;
	return it->second;
}

verdict judge(const gate &g, const results &r)
{
	auto value = lookup(r, g.metric);
	double limit = g.limit;
	std::string how;

	if (!value)
		return { false, "not measured" };

	if (g.kind != gate_kind::absolute) {
		auto base = lookup(r, g.base);

		if (!base)
			return { false, "base " + g.base + " not measured" };
		if (g.kind == gate_kind::ratio) {
			/* A base of nothing would make a ratio of nothing pass. */
			if (*base <= 0)
				return { false, "base " + g.base + " is " + number(*base) };
			limit = g.limit * *base;
			how = " (" + number(g.limit) + " x " + g.base + ")";
		} else {
			limit = g.limit + *base;
			how = " (" + g.base + " + " + number(g.limit) + ")";
		}
	}
	if (*value <= 0)
		return { false, "measured " + number(*value) + ", which cannot be" };
	return { *value <= limit, number(*value) + " <= " + number(limit) + how };
}

} /* namespace */

std::vector<gate> read_gates(const std::string &path)
{
	std::ifstream in(path);
	std::vector<gate> gates;
	std::string line;
	int lineno = 0;

	if (!in)
		throw std::runtime_error(path + ": cannot be read");

	while (std::getline(in, line)) {
		std::string kind, rest;
		gate g;

		lineno++;
		line.erase(std::min(line.find('#'), line.size()));
		std::istringstream words(line);
		if (!(words >> g.metric))
			continue;

		auto bad = [&](const std::string &why) {
			return std::runtime_error(path + ":" + std::to_string(lineno) +
						  ": " + why);
		};
		if (!(words >> g.device >> kind >> g.limit) || !std::isfinite(g.limit))
			throw bad("expected: metric device kind limit [base]");
		if (kind == "absolute")
			g.kind = gate_kind::absolute;
		else if (kind == "ratio")
			g.kind = gate_kind::ratio;
		else if (kind == "over")
			g.kind = gate_kind::over;
		else
			throw bad("unknown kind " + kind);
		if (g.kind != gate_kind::absolute && !(words >> g.base))
			throw bad(kind + " needs a base metric");
		if (words >> rest)
			throw bad("trailing " + rest);
		gates.push_back(g);
	}
	if (gates.empty())
		throw std::runtime_error(path + ": holds no gate");
	return gates;
}

int check_gates(const std::vector<gate> &gates,
		const std::vector<std::pair<std::string, results>> &devices)
{
	std::vector<std::string> lines;
	int failed = 0;

	for (const gate &g : gates) {
		bool matched = false;

		for (const auto &[device, r] : devices) {
			if (fnmatch(g.device.c_str(), device.c_str(), 0))
				continue;
			matched = true;
			verdict v = judge(g, r);
			failed += !v.pass;
			lines.push_back((v.pass ? "ok " : "not ok ") +
					std::to_string(lines.size() + 1) + " " + device +
					" " + g.metric + ": " + v.text);
		}
		if (!matched)
			lines.push_back("ok " + std::to_string(lines.size() + 1) + " " +
					g.metric + " # SKIP no device matches " + g.device);
	}

	printf("KTAP version 1\n1..%zu\n", lines.size());
	for (const std::string &line : lines)
		printf("%s\n", line.c_str());
	return failed;
}
