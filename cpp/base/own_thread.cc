#include "base/own_thread.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace ciranda {
namespace {

struct Registered {
  std::mutex mutex;
  std::vector<pid_t> ids;
};

// Not in the header: Python's extension is a library of its own, and would have a list of its own. It is never
// destroyed: a thread may run on while the process exits.
Registered& registered() {
  static Registered& registered = *new Registered;
  return registered;
}

}  // namespace

OwnThread::OwnThread() {
  const std::lock_guard lock(registered().mutex);
  registered().ids.push_back(gettid());
}

OwnThread::~OwnThread() {
  const std::lock_guard lock(registered().mutex);
  std::vector<pid_t>& ids = registered().ids;
  ids.erase(std::find(ids.begin(), ids.end(), gettid()));
}

std::vector<pid_t> OwnThread::all() {
  const std::lock_guard lock(registered().mutex);
  return registered().ids;
}

}  // namespace ciranda
