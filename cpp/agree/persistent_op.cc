#include "agree/persistent_op.hpp"

#include <array>
#include <cassert>

namespace ciranda {
namespace {

using State = PersistentOp::State;

// A call that is over leaves the name idle, or reported where its duplicates still are.
constexpr std::array<std::array<bool, PersistentOp::kStates>, PersistentOp::kStates> kMayFollow{{
    // to idle, held, reported, in memory, by messages
    {true, true, true, true, true},      // from idle
    {false, false, true, false, false},  // from held
    {true, false, true, false, false},   // from reported
    {true, false, true, false, false},   // from in memory
    {true, false, true, false, false},   // from by messages
}};

}  // namespace

bool PersistentOp::may_follow(State from, State to) {
  return kMayFollow[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

void PersistentOp::become(State to) {
  assert(may_follow(state_, to));
  state_ = to;
}

}  // namespace ciranda
