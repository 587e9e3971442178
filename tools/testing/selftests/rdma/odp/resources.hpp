/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many objects the kernel keeps for our device, by rdma(8) of iproute2:
 * what must be back at its old value when everything is closed.
 */
#ifndef ODP_RESOURCES_HPP
#define ODP_RESOURCES_HPP

#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "test.hpp"

namespace odp {

using Resources = std::map<std::string, long>;

inline Resources resources()
{
	static const char *const kinds[] = { "pd", "cq", "qp", "mr", "ctx" };
	Resources out;
	FILE *f = popen("rdma resource show 2>/dev/null", "r");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		std::istringstream words(line);
		std::string word;

		words >> word >> word;
		if (word != options().device + ":")
			continue;
		while (words >> word)
			for (const char *kind : kinds)
				if (word == kind)
					words >> out[kind];
	}
	if (f)
		pclose(f);
	if (out.empty())
		skip("'rdma resource show' of iproute2 says nothing of %s", options().device.c_str());
	return out;
}

/* Objects of a dead process go some time after it */
inline void expect_resources(const Resources &want)
{
	Deadline end(10000);

	for (;;) {
		Resources have = resources();

		if (have == want)
			return;
		if (end.passed()) {
			std::string text;

			for (const auto &r : have)
				text += format(" %s %ld (was %ld)", r.first.c_str(), r.second,
					       want.count(r.first) ? want.at(r.first) : 0);
			fail("resources left behind:%s", text.c_str());
		}
		sleep_ms(50);
	}
}

} /* namespace odp */

#endif
