// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is not anonymous: files, memfd, hugetlb, secret memory, and
 * regions larger than memory.
 */
#include "rig.hpp"

#include <memory>

using namespace odp;

namespace {

constexpr size_t PAGES = 8;

size_t len_of(size_t pages = PAGES)
{
	return pages * page_size();
}

std::vector<uint8_t> file_bytes(const Fd &fd, size_t offset, size_t len)
{
	std::vector<uint8_t> bytes(len);
	ssize_t got = pread(fd.get(), bytes.data(), len, offset);

	if (got != static_cast<ssize_t>(len))
		fail("pread of %zu bytes: %zd, %s", len, got, errno_text().c_str());
	return bytes;
}

void file_expect(const Fd &fd, size_t offset, size_t len, uint64_t seed, const char *what)
{
	std::vector<uint8_t> bytes = file_bytes(fd, offset, len);

	if (Mismatch bad = pattern_check(bytes.data(), len, seed, offset))
		fail("%s: the file holds: %s", what, bad.text().c_str());
}

void file_fill(const Fd &fd, size_t len, uint64_t seed)
{
	std::vector<uint8_t> bytes(len);

	pattern_fill(bytes.data(), len, seed);
	if (pwrite(fd.get(), bytes.data(), len, 0) != static_cast<ssize_t>(len))
		fail("pwrite of %zu bytes: %s", len, errno_text().c_str());
}

void shared_file(Role role, Fd file)
{
	Rig rig(role);

	file_fill(file, len_of(), seed_for(1));

	Mapping mem = Mapping::shared(file, len_of());
	Mr mr = rig.reg(mem);

	rig.get_ok(mr, 0, mem.size(), seed_for(1), "the file's data");
	/* Read-mapped page cache that the device is about to write */
	rig.put_ok(mr, 0, mem.size(), seed_for(2), "through the mapping");
	cpu_expect(mem.get(), mem.size(), seed_for(2), 0, "through the mapping");
	CHECK_SYS(msync(mem.get(), mem.size(), MS_SYNC));
	file_expect(file, 0, mem.size(), seed_for(2), "after msync");
	/* The write-back made the pages clean: this must dirty them again */
	rig.put_ok(mr, 0, mem.size(), seed_for(3), "after write-back");
	mem.advise(MADV_DONTNEED);
	cpu_expect(mem.get(), mem.size(), seed_for(3), 0, "mapped anew");
	file_expect(file, 0, mem.size(), seed_for(3), "after write-back");
	/* write() goes to the same pages */
	file_fill(file, mem.size(), seed_for(4));
	rig.get_ok(mr, 0, mem.size(), seed_for(4), "written by write()");
	/* Pages that were reclaimed come back with what the device wrote last */
	rig.put_ok(mr, 0, mem.size(), seed_for(5), "before reclaim");
	mem.advise(MADV_PAGEOUT);
	posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
	rig.get_ok(mr, 0, mem.size(), seed_for(5), "after reclaim");
	mem.unmap();
	file_expect(file, 0, len_of(), seed_for(5), "after munmap");
	rig.get_fails(mr, 0, "read after munmap of a file");
}

void shared_tmp(Role role)
{
	shared_file(role, temp_file(len_of()));
}

void shared_memfd(Role role)
{
	shared_file(role, memfd(len_of()));
}

void private_file(Role role)
{
	Rig rig(role);
	Fd file = temp_file(len_of());
	size_t half = len_of() / 2;

	file_fill(file, len_of(), seed_for(1));

	Mapping mem(len_of(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get());
	Mr mr = rig.reg(mem);

	rig.get_ok(mr, 0, mem.size(), seed_for(1), "the file's data");
	/* The device's write is a copy of its own and never reaches the file */
	rig.put_ok(mr, 0, half, seed_for(2), "private write");
	cpu_expect(mem.get(), half, seed_for(2), 0, "private write");
	cpu_expect(mem.at(half), half, seed_for(1), half, "not written");
	file_expect(file, 0, mem.size(), seed_for(1), "private write");
	rig.get_ok(mr, 0, half, seed_for(2), "private write");
	rig.get_ok(mr, half, half, seed_for(1), "not written");
	/* Dropping the copies brings the file back */
	mem.advise(MADV_DONTNEED);
	rig.get_ok(mr, 0, mem.size(), seed_for(1), "copies dropped");
}

/*
 * Program text: the page cache must not be written, and an MR without write
 * access must be able to read it.
 */
void file_text(Role role)
{
	Rig rig(role);
	Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	size_t len = len_of(4);

	if (!file)
		skip("/proc/self/exe: %s", errno_text().c_str());

	std::vector<uint8_t> want = file_bytes(file, 0, len);
	Mapping mem(len, PROT_READ, MAP_PRIVATE, file.get());
	Mr mr = rig.reg(mem, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);

	for (size_t at = 0; at < len; at += page_size()) {
		expect_ok(rig.get(mr, at), "read of program text");
		if (memcmp(rig.scratch(), &want[at], page_size()))
			fail("the device read other bytes than pread() at %zu", at);
	}
	rig.put_fails(mr, 0, "write to program text");
	if (file_bytes(file, 0, len) != want)
		fail("program text was changed");
}

/* A region registered for writing over memory that only can be read */
void read_only_in_writable(Role role)
{
	Rig rig(role);
	Fd file = memfd(len_of());
	int error;

	file_fill(file, len_of(), seed_for(1));

	Mapping mem(len_of(), PROT_READ, MAP_SHARED, file.get());
	std::optional<Mr> mr = Mr::try_reg(rig.lo.pd, mem.get(), mem.size(), ACCESS_ODP, error);

	if (!mr) {
		if (error != EFAULT && error != EPERM && error != EACCES)
			fail("refused with %s", errno_text(error).c_str());
		return;
	}
	rig.get_ok(*mr, 0, mem.size(), seed_for(1), "read-only mapping");
	rig.put_fails(*mr, 0, "write through a read-only mapping");
	file_expect(file, 0, len_of(), seed_for(1), "read-only mapping");
}

void hole_punch(Role role)
{
	Rig rig(role);
	Fd file = memfd(len_of());
	Mapping mem = Mapping::shared(file, len_of());
	Mr mr = rig.reg(mem);

	rig.put_ok(mr, 0, mem.size(), seed_for(1), "before");
	CHECK_SYS(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, len_of(2),
			    len_of(3)));
	rig.get_zero(mr, len_of(2), len_of(3), "the hole");
	rig.get_ok(mr, 0, len_of(2), seed_for(1), "below the hole");
	rig.get_ok(mr, len_of(5), len_of(PAGES - 5), seed_for(1), "above the hole");

	CHECK_SYS(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, len_of()));
	rig.put_ok(mr, len_of(1), len_of(2), seed_for(2), "into the hole");
	file_expect(file, len_of(1), len_of(2), seed_for(2), "into the hole");
	cpu_expect(mem.page(1), len_of(2), seed_for(2), len_of(1), "into the hole");
	rig.get_zero(mr, len_of(3), len_of(2), "the rest of the hole");
}

void truncate(Role role)
{
	Rig rig(role);
	Fd file = memfd(len_of());
	Mapping mem = Mapping::shared(file, len_of());
	Mr mr = rig.reg(mem);
	size_t half = len_of() / 2;

	rig.put_ok(mr, 0, mem.size(), seed_for(1), "before");
	CHECK_SYS(ftruncate(file.get(), half));
	rig.get_fails(mr, half, "read behind the end of a file");
	rig.put_fails(mr, len_of(PAGES - 1), "write behind the end of a file");
	rig.get_ok(mr, 0, half, seed_for(1), "before the end");
	rig.put_ok(mr, 0, half, seed_for(2), "before the end");
	file_expect(file, 0, half, seed_for(2), "before the end");
	CHECK_SYS(ftruncate(file.get(), len_of()));
	rig.get_zero(mr, half, half, "extended again");
	rig.put_ok(mr, half, half, seed_for(3), "extended again");
	file_expect(file, half, half, seed_for(3), "extended again");
}

/*
 * Secret memory is not in the kernel's direct map: no device may get at it. A
 * transfer that succeeds has leaked it, and a software device that tries to
 * copy it takes the kernel down.
 */
void secret_memory_as(Role role)
{
	Rig rig(role);
	Fd file(syscall(SYS_memfd_secret, O_CLOEXEC));
	int error;

	if (!file)
		skip("memfd_secret: %s", errno_text().c_str());
	CHECK_SYS(ftruncate(file.get(), len_of(2)));

	Mapping mem = Mapping::shared(file, len_of(2));

	pattern_fill(mem.get(), mem.size(), seed_for(1));

	std::optional<Mr> mr = Mr::try_reg(rig.lo.pd, mem.get(), mem.size(), ACCESS_ODP, error);

	if (!mr) {
		note("registration refused: %s", errno_text(error).c_str());
		return;
	}
	rig.get_fails(*mr, 0, "read of secret memory");
	rig.put_fails(*mr, page_size(), "write to secret memory");
	cpu_expect(mem.get(), mem.size(), seed_for(1), 0, "secret memory");

	int rc = advise(rig.lo.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
			{ mr->sge(0, mem.size()) });
	if (!rc)
		fail("secret memory was prefetched");
}

/* Both roles in one case, for each costs a boot where it takes the kernel down */
void secret_memory()
{
	secret_memory_as(Role::remote);
	secret_memory_as(Role::local);
}

/* Raises the number of free huge pages for the life of the case */
class HugePages {
public:
	explicit HugePages(size_t want)
	{
		long have = read_knob();

		was_ = have;
		if (have < 0)
			skip("no hugetlb");
		if (proc_kb("/proc/meminfo", "HugePages_Free:") >= static_cast<long>(want))
			return;
		write_knob(have + want);
		if (proc_kb("/proc/meminfo", "HugePages_Free:") < static_cast<long>(want))
			skip("cannot get %zu free huge pages", want);
	}
	~HugePages() { write_knob(was_); }
	size_t size() const { return proc_kb("/proc/meminfo", "Hugepagesize:") * 1024; }

private:
	static long read_knob()
	{
		std::ifstream in("/proc/sys/vm/nr_hugepages");
		long n = -1;

		in >> n;
		return n;
	}
	static void write_knob(long n) { std::ofstream("/proc/sys/vm/nr_hugepages") << n; }

	long was_;
};

/* @access may ask for page-table entries of the huge page's size */
void hugetlb(Role role, int access)
{
	HugePages pool(3);
	Rig rig(role);
	size_t huge = pool.size(), len = 3 * huge;
	Mapping mem(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
	int error;
	std::optional<Mr> mr = Mr::try_reg(rig.lo.pd, mem.get(), len, access, error);
	size_t probes[] = { 0,	  huge - page_size(),	  huge,
			    huge + 17 * page_size(), 2 * huge - page_size(), 2 * huge,
			    len - page_size() };

	if (!mr && (access & IBV_ACCESS_HUGETLB))
		skip("no huge entries: %s", errno_text(error).c_str());
	if (!mr)
		fail("registration: %s", errno_text(error).c_str());
	pattern_fill(mem.get(), len, seed_for(1));
	for (size_t at : probes)
		rig.get_ok(*mr, at, page_size(), seed_for(1), "huge pages");
	for (size_t at : probes)
		rig.put_ok(*mr, at, page_size(), seed_for(2), "huge pages");
	for (size_t at : probes)
		cpu_expect(mem.at(at), page_size(), seed_for(2), at, "huge pages");

	/* The page in the middle goes; the entries of the others must stay, its own must not */
	mem.advise(huge, huge, MADV_DONTNEED);
	for (size_t at : probes) {
		if (at >= huge && at < 2 * huge)
			rig.get_zero(*mr, at, page_size(), "dropped huge page");
		else
			rig.get_ok(*mr, at, page_size(), seed_for(2), "kept huge page");
	}
	pattern_fill(mem.at(huge), huge, seed_for(3), huge);
	rig.get_ok(*mr, huge, page_size(), seed_for(3), "new huge page");
	rig.get_ok(*mr, 2 * huge - page_size(), page_size(), seed_for(3), "new huge page");
}

void hugetlb_small_entries(Role role)
{
	hugetlb(role, ACCESS_ODP);
}

void hugetlb_huge_entries()
{
	for (Role role : { Role::remote, Role::local })
		hugetlb(role, ACCESS_ODP | IBV_ACCESS_HUGETLB);
}

/* Regions larger than what an int, or 32 bits, can say */
void large_region(uint64_t len)
{
	Rig rig;
	Mapping mem(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	std::vector<uint64_t> probes = { 0, 1ull << 30, len / 2, len - page_size() };

	for (uint64_t edge : { 1ull << 31, 1ull << 32 }) {
		if (edge >= len)
			continue;
		probes.push_back(edge - page_size());
		probes.push_back(edge);
	}
	mem.advise(MADV_NOHUGEPAGE);

	Mr mr = rig.reg(mem);

	for (uint64_t at : probes)
		rig.put_ok(mr, at, page_size(), seed_for(1), "sparse write");
	for (uint64_t at : probes) {
		cpu_expect(mem.at(at), page_size(), seed_for(1), at, "sparse write");
		rig.get_ok(mr, at, page_size(), seed_for(1), "sparse write");
	}
	CHECK(mr.dereg() == 0);
}

} /* namespace */

int main(int argc, char **argv)
{
	std::vector<Case> cases;

	add_both_roles(cases, "shared.file", shared_tmp);
	add_both_roles(cases, "shared.memfd", shared_memfd);
	add_both_roles(cases, "private.file", private_file);
	add_both_roles(cases, "private.text", file_text);
	add_both_roles(cases, "shared.read_only", read_only_in_writable);
	add_both_roles(cases, "memfd.hole_punch", hole_punch);
	add_both_roles(cases, "memfd.truncate", truncate);
	cases.push_back({ "secretmem", secret_memory, "splats-on-rxe" });
	add_both_roles(cases, "hugetlb.small_entries", hugetlb_small_entries);
	cases.push_back({ "hugetlb.huge_entries", hugetlb_huge_entries, "splats-on-rxe" });
	for (uint64_t gib : { 3, 4, 5 })
		cases.push_back({ format("large.%llu_gib", static_cast<unsigned long long>(gib)),
				  [gib] { large_region(gib << 30); } });

	return run(argc, argv, "odp_file", cases);
}
