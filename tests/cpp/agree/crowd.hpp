// Crowd: thousands of participants and one coordinator, the real classes and the real bytes, joined by a simulated
// network: what agreeing on a step costs, by the number of ranks.
//
// In each step every rank uses every name once, in nearly the same order, as a backward pass does: a few in each turn,
// then it waits. The network's time is virtual and seeded, so that messages, bytes and waiting come out the same in
// every run; only what the coordinator and the relays compute is measured. Ranks are spread over hosts; rank 0
// coordinates. Either every rank speaks to it, or through the relay of its host. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/named_participant.hpp"
#include "agree/relay.hpp"
#include "base/relay_tree.hpp"

namespace ciranda::testing {

using Nanoseconds = std::chrono::nanoseconds;

struct CrowdOptions {
  int n_ranks = 64;
  int ranks_per_host = 8;
  int n_tensors = 100;
  std::size_t step_bytes = 0;  // of all tensors together; 0: each has 64 KiB and a little
  int tensors_per_turn = 10;
  int shuffle_window = 4;  // how far a rank's order may stray from the others'
  bool reports_groups = false;
  std::size_t most_groups = 32;
  bool has_relays = false;
  int fan_out = 0;  // of the relays; 0: as RelayTree chooses
  std::uint64_t seed = 1;
  Nanoseconds host_delay{500};         // one way, on the average, as is the next; each message takes half to 3/2 of it
  Nanoseconds network_delay{25'000};   // to another host
  Nanoseconds turn_interval{100'000};  // between a rank's turns
  Nanoseconds skew{1'000'000};         // ranks begin a step at most so far apart
  Nanoseconds coordinator_turn{10'000};  // what arrives in this time is taken in together
  Nanoseconds relay_turn{1'000};
};

// What one step cost. The coordinator's part counts its relay's too.
struct StepCost {
  std::size_t n_messages_in = 0;  // to the coordinator, from other processes
  std::size_t n_bytes_in = 0;
  std::size_t n_messages_out = 0;  // from it: each part of the log to each that it sends it to
  std::size_t n_bytes_out = 0;
  std::size_t n_entries = 0;         // of the log
  std::size_t most_from_a_host = 0;  // messages to other hosts towards the coordinator, of the host that sends most
  std::size_t n_let_go = 0;          // relays that gathered in vain
  // Virtual, on the network alone: from the last report of the last rank until every rank knows the whole log.
  Nanoseconds wait{0};
  // Measured: what the coordinator computed: reading reports, writing the log, making bytes of it for each that
  // it sends it to; and how much of it came after the last report.
  Nanoseconds reading{0};
  Nanoseconds writing{0};
  Nanoseconds sending{0};
  Nanoseconds tail{0};
  Nanoseconds relaying{0};  // measured: of the relay that computed most, the coordinator's not counted
};

class Crowd {
 public:
  explicit Crowd(const CrowdOptions& options);

  StepCost step();

  // What the coordinator computes if it alone does the last step again: it hears the same messages in the same order,
  // and nothing is done in between. REQUIRES: all has been learned, so that steps are alike; no step() comes after.
  Nanoseconds coordinate_again();

  // What was wrong so far: ranks that executed other things than rank 0, or not everything; empty if nothing was.
  const std::string& broken() const { return broken_; }
  int fan_out() const { return tree_.fan_out(); }

 private:
  using Frame = std::vector<std::byte>;
  struct Process {
    explicit Process(int rank) : participant(rank) {}
    NamedParticipant participant;
    std::optional<Relay> relay;
    std::vector<int> below;               // whom its relay passes the log to
    std::vector<std::uint64_t> executed;  // in this step: the tensors' numbers
    std::vector<std::vector<std::size_t>> turns;
    bool is_about_to_decide = false;
    Nanoseconds sent_up{0};      // arrival of the last message that it sent towards the coordinator
    Nanoseconds got_down{0};     // of the last part of the log
    Nanoseconds computed{0};     // as a relay
    std::size_t n_sent_far = 0;  // towards the coordinator, to another host
  };
  struct Event {
    enum class Kind : std::uint8_t { kTurn, kMessage, kDecide };
    Nanoseconds at;
    std::uint64_t order;
    Kind kind;
    int process;
    int from = 0;          // of a message
    std::size_t turn = 0;  // of a rank
    std::shared_ptr<const Frame> frame;
    bool operator>(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
  };

  Process& process(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  void schedule(Event event);
  void begin_step();
  void run();
  void take_turn(int rank, std::size_t turn);
  void report(int rank, const Message& message);
  void send_up(int from, int to, const Message& message);
  void send_down(int from, int to, std::shared_ptr<const Frame> frame);
  void receive(const Event& event);
  void decide_soon(int rank);
  void decide(int rank);
  void hear(int rank, int from, Message message);
  void write();
  std::shared_ptr<Frame> written(int rank, const LogMessage& log);
  void pass_down(int relay, const LogMessage& log);
  void let_go();
  std::vector<std::vector<std::size_t>> turns_of_a_rank();
  int host_of(int rank) const { return rank / options_.ranks_per_host; }
  Nanoseconds delay(int from, int to);
  void apply(int rank, const LogMessage& log);
  void must(const Status& status);
  void check_step();
  // Adds the time since `began` to what the process has computed.
  void charge(int rank, Nanoseconds StepCost::*part, std::chrono::steady_clock::time_point began);

  CrowdOptions options_;
  std::mt19937_64 random_;
  RelayTree tree_;
  Coordinator coordinator_;
  std::deque<Process> processes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t n_events_ = 0;
  Nanoseconds now_{0};
  Nanoseconds last_reported_{0};
  StepCost cost_;
  std::vector<Event> coordinated_;  // of this step: what the coordinator heard, and when it decided
  std::string broken_;
};

}  // namespace ciranda::testing
