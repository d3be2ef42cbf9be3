// SpareFd: a descriptor kept back for the moment when the process may open no more: given up, it makes room for one.
// Called by Acceptor and Bells; one thread at a time. Failure: there is none to give up.
#pragma once

#include <fcntl.h>

#include "base/unique_fd.hpp"

namespace ciranda {

class SpareFd {
 public:
  SpareFd() { keep_back(); }

  void give_up() { fd_.reset(); }
  void keep_back() {
    if (!fd_.valid()) fd_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

 private:
  UniqueFd fd_;
};

}  // namespace ciranda
