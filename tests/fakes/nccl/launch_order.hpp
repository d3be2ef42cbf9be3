// LaunchOrder: in which order each GPU has been given the kernels of communicators. A kernel may keep those that come
// later on its GPU from running, and spins until the others' kernels have come. So a kernel waits for those before it
// on each GPU, and kernels that wait for each other in a circle may hang, even if they happened not to.
//
// It knows the GPUs of this process. Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/nccl_api.hpp"

namespace ciranda::fakes {

class LaunchOrder {
 public:
  // What kernels of several GPUs do together: a collective, or a transfer from one rank to another.
  struct Meeting {
    std::string name;
    int n_ranks;
  };

  // The GPU is given a kernel that does these. Whether the order is good.
  bool add(const cuda::CUuuid& gpu, const std::vector<Meeting>& meetings);

 private:
  struct Node {
    int n_to_come;                      // GPUs that have not been given it yet
    std::set<std::string> before = {};  // it waits for these
  };
  bool reaches(const std::string& from, const std::string& to) const;
  void forget();

  std::mutex mutex_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::vector<Meeting>> last_;  // by GPU
};

}  // namespace ciranda::fakes
