/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Data for memory that is to be compressed: 64-byte lines that begin with a
 * number of their own, the other 56 bytes being those of the page. It shrinks
 * to about a fifth, and yet no line, page or generation can stand for another.
 */
#ifndef PAGES_HPP
#define PAGES_HPP

#include <cstddef>
#include <cstdint>

#include "pattern.hpp"

class Pages {
public:
	static constexpr size_t SIZE = 4096;

	explicit Pages(uint64_t generation) : generation_(generation) {}

	/* Fills @count pages at @to as those from page number @first on */
	void fill(void *to, uint64_t first, size_t count) const
	{
		uint64_t *word = static_cast<uint64_t *>(to);

		each(first, count, [&](size_t i, uint64_t value) { word[i] = value; });
	}

	/* How many 8-byte words of @count pages at @from are not those */
	uint64_t wrong(const void *from, uint64_t first, size_t count) const
	{
		const uint64_t *word = static_cast<const uint64_t *>(from);
		uint64_t bad = 0;

		each(first, count, [&](size_t i, uint64_t value) { bad += word[i] != value; });
		return bad;
	}

private:
	template <typename F>
	void each(uint64_t first, size_t count, F &&f) const
	{
		size_t i = 0;

		for (uint64_t page = first; page < first + count; page++) {
			uint64_t key = odp::pattern_word(generation_, page);

			for (size_t line = 0; line < SIZE / 64; line++) {
				f(i++, key + line * 0x9e3779b97f4a7c15ull);
				for (int j = 1; j < 8; j++)
					f(i++, key << 8 * j | key >> (64 - 8 * j));
			}
		}
	}

	uint64_t generation_;
};

#endif /* PAGES_HPP */
