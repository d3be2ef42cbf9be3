// Failures: of calls, until they go into the log. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "negotiate/messages.hpp"
#include "negotiate/round.hpp"

namespace ciranda {

class Failures {
 public:
  // For these members, each as often as it stands there. Those of a name keep their order; one that says the same as
  // the name's last is for these members too.
  void add(NamedRounds& name, ErrorKind kind, const std::string& text, const std::vector<std::int32_t>& members);

  std::vector<FailEntry> take();

 private:
  struct Failure {
    std::string name;
    ErrorKind kind;
    std::string text;
    std::vector<std::int32_t> members;  // in any order
  };

  std::vector<Failure> failures_;
};

}  // namespace ciranda
