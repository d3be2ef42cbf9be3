#include "base/own_thread.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace ciranda {
namespace {

// Not in the header: Python's extension is a library of its own, and would have a list of its own.
std::mutex mutex;
std::vector<pid_t> ids;

}  // namespace

OwnThread::OwnThread() {
  const std::lock_guard lock(mutex);
  ids.push_back(gettid());
}

OwnThread::~OwnThread() {
  const std::lock_guard lock(mutex);
  ids.erase(std::find(ids.begin(), ids.end(), gettid()));
}

std::vector<pid_t> OwnThread::all() {
  const std::lock_guard lock(mutex);
  return ids;
}

}  // namespace ciranda
