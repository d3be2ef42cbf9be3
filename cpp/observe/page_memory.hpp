// PageMemory: the memory of a rank's CounterPage: the file that the agent has made for it, which the agent reads, or
// memory of this process alone.
//
// Called by Counters, which owns it; one thread at a time.
// Failure: none. A file that cannot be opened, is no page of this version, or has another writer is not used.
#pragma once

#include <string>

#include "base/unique_fd.hpp"
#include "observe/counter_page.hpp"

namespace ciranda {

class PageMemory {
 public:
  // `path`: of the file; empty if there is none. A new file is as large as a CounterPage, and all its bytes are 0.
  explicit PageMemory(const std::string& path);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  CounterPage& page() const { return *page_; }
  // Whether another process can read it.
  bool is_shared() const { return file_.valid(); }

 private:
  UniqueFd file_;  // its lock says that it has a writer
  CounterPage* page_;
};

}  // namespace ciranda
