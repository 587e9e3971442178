/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs that are kept busy while something happens to what they use.
 */
#ifndef ODP_TRAFFIC_HPP
#define ODP_TRAFFIC_HPP

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "link.hpp"

namespace odp {

/* One request to repeat; @slot is the queue pair's number */
struct Job {
	ibv_wr_opcode opcode;
	ibv_sge sge;
	uint64_t raddr;
	uint32_t rkey;
};

/*
 * @n queue pairs, each connected to itself, with @depth copies of its job
 * outstanding until stop() or until it fails.
 */
class Traffic {
public:
	Traffic(Pd &pd, unsigned int n, unsigned int depth, const QpConfig &config = {})
		: cq_(pd.context(), n * depth + 16), depth_(depth)
	{
		for (unsigned int i = 0; i < n; i++) {
			qps_.push_back(std::make_unique<Qp>(pd, cq_, cq_, config));
			qps_.back()->connect(*qps_.back());
		}
	}
	~Traffic() { stop(); }

	size_t size() const { return qps_.size(); }
	Qp &qp(size_t i) { return *qps_[i]; }

	void start(std::vector<Job> jobs)
	{
		jobs_ = std::move(jobs);
		stop_ = false;
		completions_ = 0;
		bad_.assign(qps_.size(), IBV_WC_SUCCESS);
		alive_ = qps_.size();
		outstanding_.assign(qps_.size(), 0);
		thread_ = std::thread([this] { loop(); });
	}

	/* No more requests; those outstanding complete, or time passes */
	void stop()
	{
		stop_ = true;
		if (thread_.joinable())
			thread_.join();
	}

	unsigned long completions() const { return completions_; }
	/* Queue pairs that have not failed */
	int alive() const { return alive_; }
	bool wait_completions(unsigned long n, int ms = 30000) const
	{
		for (Deadline end(ms); !end.passed(); sleep_ms(1))
			if (completions_ >= n)
				return true;
		return false;
	}
	bool wait_all_failed(int ms = 30000) const
	{
		for (Deadline end(ms); !end.passed(); sleep_ms(1))
			if (!alive_)
				return true;
		return false;
	}
	/* The first bad status of queue pair @i; after stop() */
	ibv_wc_status first_bad(size_t i) const { return bad_[i]; }

	/* After stop(): back to a working connection, the CQ empty */
	void reconnect()
	{
		for (auto &qp : qps_)
			qp->to_reset();
		while (cq_.poll(0))
			;
		for (auto &qp : qps_)
			qp->connect(*qp);
	}

private:
	bool post(size_t i)
	{
		const Job &j = jobs_[i];

		if (qps_[i]->post(j.opcode, { j.sge }, j.raddr, j.rkey, IBV_SEND_SIGNALED, i))
			return false;
		outstanding_[i]++;
		return true;
	}

	void loop()
	{
		unsigned int total = 0;

		for (size_t i = 0; i < qps_.size(); i++)
			for (unsigned int k = 0; k < depth_; k++)
				total += post(i);
		Deadline drain(20000);
		bool draining = false;

		while (total) {
			ibv_wc wc;

			if (stop_ && !draining) {
				drain = Deadline(20000);
				draining = true;
			}
			if (draining && drain.passed()) {
				soft_fail("%u requests never completed", total);
				return;
			}
			if (ibv_poll_cq(cq_.get(), 1, &wc) != 1) {
				std::this_thread::yield();
				continue;
			}
			total--;
			size_t i = wc.wr_id;

			if (i >= qps_.size()) {
				soft_fail("completion of an unknown request");
				return;
			}
			outstanding_[i]--;
			if (wc.status != IBV_WC_SUCCESS) {
				if (bad_[i] == IBV_WC_SUCCESS) {
					bad_[i] = wc.status;
					alive_--;
				}
				continue;
			}
			if (bad_[i] != IBV_WC_SUCCESS)
				soft_fail("success after status %d on the same QP", bad_[i]);
			completions_++;
			if (!stop_)
				total += post(i);
		}
	}

	Cq cq_;
	unsigned int depth_;
	std::vector<std::unique_ptr<Qp>> qps_;
	std::vector<Job> jobs_;
	std::vector<ibv_wc_status> bad_;
	std::vector<unsigned int> outstanding_;
	std::atomic<bool> stop_{ false };
	std::atomic<unsigned long> completions_{ 0 };
	std::atomic<int> alive_{ 0 };
	std::thread thread_;
};

} /* namespace odp */

#endif
