// RankProcess: one rank of a TestJob in a process of its own, for tests in which a rank dies or is stopped.
//
// The process is this test program once more, started by exec. A plain fork would not do: the test has threads (the
// store's), and a lock that one of them holds at that moment, be it the allocator's, stays locked in the child for
// ever.
//
// Threads: one. The destructor kills the process; the process also ends with the test program, whatever ends that.
#pragma once

#include <sys/types.h>

#include <string>

namespace ciranda {

// What a rank does once it has joined and said so to rank 0 by one byte (the last two do not come so far).
enum class Life {
  kLooksOn,        // polls its mesh until it is killed
  kWaits,          // until it is killed
  kSendsData,      // sends a byte of data to rank 0, and looks on
  kAnswersOnce,    // sends one byte from rank 0 back, and waits
  kForksAndWaits,  // has a child that holds copies of all its descriptors; sends the child's id to rank 0 and waits
  kNeverConnects,  // tells the store its address, then ends before anybody can connect
  kMeetsRank0,     // connects to rank 0 alone, then ends; for the highest rank, to which nobody connects
};

enum class Memory {
  kNotShared,
  kShared,
  kSharedWithSockets,  // as on a system without descriptors of processes, as this process then seems to be
};

struct RankPlan {
  int rank = 1;
  int size = 2;
  std::string store;  // "addr:port"
  Memory memory = Memory::kShared;
  Life life = Life::kWaits;
};

class RankProcess {
 public:
  explicit RankProcess(const RankPlan& plan);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send_signal(int signal) const;
  void wait();

 private:
  pid_t pid_ = -1;
};

}  // namespace ciranda
