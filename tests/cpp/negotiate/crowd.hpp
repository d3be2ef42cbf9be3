// Crowd: thousands of participants and one coordinator, the real classes and the real bytes, joined by a simulated
// network: what agreeing on a step costs, by the number of ranks.
//
// In each step every rank uses every name once, in nearly the same order, as a backward pass does: a few in each turn,
// then it waits. The network's time is virtual and seeded, so that messages, bytes and waiting come out the same in
// every run; only what the coordinator computes is measured. Ranks are spread over hosts; rank 0 coordinates and speaks
// to itself without messages. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "negotiate/coordinator.hpp"
#include "negotiate/participant.hpp"

namespace ciranda::testing {

using Nanoseconds = std::chrono::nanoseconds;

struct CrowdOptions {
  int n_ranks = 64;
  int ranks_per_host = 8;
  int n_tensors = 100;
  int tensors_per_turn = 10;
  int shuffle_window = 4;  // how far a rank's order may stray from the others'
  std::uint64_t seed = 1;
  Nanoseconds host_delay{500};         // one way, on the average, as is the next; each message takes half to 3/2 of it
  Nanoseconds network_delay{25'000};   // to another host
  Nanoseconds turn_interval{100'000};  // between a rank's turns
  Nanoseconds skew{1'000'000};         // ranks begin a step at most so far apart
  Nanoseconds coordinator_turn{10'000};  // what arrives in this time is taken in together
};

// What one step cost.
struct StepCost {
  std::size_t n_messages_in = 0;  // to the coordinator
  std::size_t n_bytes_in = 0;
  std::size_t n_messages_out = 0;  // from it: each part of the log to each rank
  std::size_t n_bytes_out = 0;
  std::size_t n_entries = 0;  // of the log
  // Virtual, on the network alone: from the last announcement of the last rank until every rank knows the whole log.
  Nanoseconds wait{0};
  // Measured: what the coordinator computed: reading announcements, writing the log, making bytes of it for each rank;
  // and how much of it came after the last announcement.
  Nanoseconds reading{0};
  Nanoseconds writing{0};
  Nanoseconds sending{0};
  Nanoseconds tail{0};
};

class Crowd {
 public:
  explicit Crowd(const CrowdOptions& options);

  StepCost step();

  // What was wrong so far: ranks that executed other things than rank 0, or not everything; empty if nothing was.
  const std::string& broken() const { return broken_; }

 private:
  struct Announcement {
    Nanoseconds arrival{0};
    int rank = 0;
    std::vector<std::byte> frame;
  };
  struct Rank {
    explicit Rank(int rank) : participant(rank) {}
    Participant participant;
    std::vector<std::uint64_t> executed;  // in this step: the tensors' numbers
  };

  std::vector<Announcement> announce_all(StepCost& cost);
  void announce(int rank, std::vector<Announcement>& announcements, StepCost& cost);
  std::vector<std::vector<std::size_t>> turns_of_a_rank();
  Nanoseconds delay(int rank);
  void read(const Announcement& announcement);
  Nanoseconds write(StepCost& cost, Nanoseconds now);
  void apply(Rank& rank, const LogMessage& log);
  void must(const Status& status);
  void check_step();

  CrowdOptions options_;
  std::mt19937_64 random_;
  Coordinator coordinator_;
  std::vector<Rank> ranks_;
  std::vector<Nanoseconds> log_arrival_;  // of the last part, by rank
  Nanoseconds last_announced_{0};
  std::string broken_;
};

}  // namespace ciranda::testing
