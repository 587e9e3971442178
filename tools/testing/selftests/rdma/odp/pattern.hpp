/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Test data in which every byte depends on a seed and on its own offset.
 *
 * A copy that lands one byte or one page beside its place, or that repeats a
 * page, is then seen as what it is; a constant fill would hide it.
 */
#ifndef ODP_PATTERN_HPP
#define ODP_PATTERN_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace odp {

/* Eight bytes of the stream @seed, for the offsets 8 * @word .. 8 * @word + 7 */
inline uint64_t pattern_word(uint64_t seed, uint64_t word)
{
	uint64_t x = (word + 1) * 0x9e3779b97f4a7c15ull ^ (seed * 0xd6e8feb86659fd93ull);

	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 29;
	return x;
}

inline uint8_t pattern_byte(uint64_t seed, uint64_t offset)
{
	return pattern_word(seed, offset / 8) >> (offset % 8 * 8);
}

/* Write @len bytes of the stream @seed, the first being that of @offset */
inline void pattern_fill(void *to, size_t len, uint64_t seed, uint64_t offset = 0)
{
	uint8_t *p = static_cast<uint8_t *>(to);

	while (len) {
		uint64_t word = pattern_word(seed, offset / 8) >> (offset % 8 * 8);
		size_t n = std::min<size_t>(len, 8 - offset % 8);

		for (size_t i = 0; i < n; i++, word >>= 8)
			p[i] = word;
		p += n;
		offset += n;
		len -= n;
	}
}

struct Mismatch {
	size_t first = 0;	/* offset into the checked range */
	size_t count = 0;
	size_t length = 0;
	uint8_t expected = 0;
	uint8_t got = 0;

	explicit operator bool() const { return count != 0; }

	std::string text() const
	{
		char buf[160];

		if (!count)
			return "no difference";
		snprintf(buf, sizeof(buf),
			 "%zu of %zu bytes wrong, first at offset %zu: expected 0x%02x, got 0x%02x",
			 count, length, first, expected, got);
		return buf;
	}

	void add(size_t at, uint8_t want, uint8_t have)
	{
		if (!count++) {
			first = at;
			expected = want;
			got = have;
		}
	}
};

inline Mismatch pattern_check(const void *from, size_t len, uint64_t seed, uint64_t offset = 0)
{
	const uint8_t *p = static_cast<const uint8_t *>(from);
	Mismatch bad;
	size_t done = 0;

	bad.length = len;
	while (done < len) {
		uint64_t at = offset + done;
		uint64_t word = pattern_word(seed, at / 8) >> (at % 8 * 8);
		size_t n = std::min<size_t>(len - done, 8 - at % 8);
		uint64_t have = 0;

		memcpy(&have, p + done, n);
		if (n == 8 && have == word) {
			done += 8;
			continue;
		}
		for (size_t i = 0; i < n; i++, word >>= 8)
			if (p[done + i] != static_cast<uint8_t>(word))
				bad.add(done + i, word, p[done + i]);
		done += n;
	}
	return bad;
}

inline Mismatch zero_check(const void *from, size_t len)
{
	const uint8_t *p = static_cast<const uint8_t *>(from);
	Mismatch bad;

	bad.length = len;
	for (size_t i = 0; i < len; i++)
		if (p[i])
			bad.add(i, 0, p[i]);
	return bad;
}

/*
 * The seed of bytes that must not change: what surrounds a destination, and
 * what a destination holds before a transfer.
 */
constexpr uint64_t guard_seed(uint64_t seed)
{
	return ~seed * 0x2545f4914f6cdd1dull;
}

} /* namespace odp */

#endif
