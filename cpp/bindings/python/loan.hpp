// Loan: a value that is kept so that its memory can be reused, lent to one user at a time. A nested request for it gets
// an empty one.
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
