// Loan: lends a kept value, whose memory is reused, to one user at a time. A nested loan of the same value is empty.
// Called by EngineHandle, with the GIL.
#pragma once

#include <utility>

namespace ciranda::python {

template <typename Value>
class Loan {
 public:
  // REQUIRES: `kept` outlives the loan.
  explicit Loan(Value& kept) : kept_(kept), value_(std::exchange(kept, Value{})) {}
  ~Loan() { kept_ = std::move(value_); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  Value& operator*() { return value_; }
  Value* operator->() { return &value_; }

 private:
  Value& kept_;
  Value value_;
};

}  // namespace ciranda::python
