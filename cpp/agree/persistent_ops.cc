#include "agree/persistent_ops.hpp"

#include <array>
#include <cassert>
#include <string>
#include <utility>

namespace ciranda {
namespace {

using State = PersistentOp::State;

// When a call is over, the name becomes idle, or stays reported while its duplicates are pending.
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

PersistentOps::~PersistentOps() {
  for (const auto& [key, op] : ops_) op->take();
}

PersistentOp* PersistentOps::take(LaneId lane, std::string_view name, OpHandle* handle) {
  if (is_kept(handle, lane, name) && handle->op->take()) return handle->op.get();
  const std::lock_guard lock(mutex_);
  return take(made(lane, name), handle);
}

PersistentOp* PersistentOps::take_known(LaneId lane, std::string_view name, OpHandle* handle) {
  if (is_kept(handle, lane, name) && handle->op->take()) return handle->op.get();
  const std::lock_guard lock(mutex_);
  const auto found = look_up(lane, name);
  return found == ops_.end() ? nullptr : take(found->second, handle);
}

PersistentOp* PersistentOps::take(const std::shared_ptr<PersistentOp>& op, OpHandle* handle) {
  if (handle != nullptr) handle->op = op;
  return op->take() ? op.get() : nullptr;
}

PersistentOp* PersistentOps::find(LaneId lane, std::string_view name, const OpHandle* handle) const {
  if (is_kept(handle, lane, name)) return handle->op.get();
  if (last_found_ != nullptr && last_found_->is(*this, lane, name)) return last_found_;
  const std::lock_guard lock(mutex_);
  const auto found = look_up(lane, name);
  last_found_ = found == ops_.end() ? nullptr : found->second.get();
  return last_found_;
}

PersistentOp& PersistentOps::find_or_make(LaneId lane, std::string_view name) {
  const std::lock_guard lock(mutex_);
  return *made(lane, name);
}

const std::shared_ptr<PersistentOp>& PersistentOps::made(LaneId lane, std::string_view name) {
  const auto found = look_up(lane, name);
  if (found != ops_.end()) return found->second;
  auto op = std::make_shared<PersistentOp>(*this, lane, std::string(name));
  const Key key{lane, op->name()};
  return ops_.emplace(key, std::move(op)).first->second;
}

void PersistentOps::release(PersistentOp& op) {
  if (!op.is_blank()) return op.release();
  const std::lock_guard lock(op.ops_->mutex_);
  op.ops_->erase(op);
}

void PersistentOps::remove_if_unused(PersistentOp& op) {
  if (!op.is_blank()) return;
  const std::lock_guard lock(op.ops_->mutex_);
  if (op.take()) op.ops_->erase(op);
}

void PersistentOps::erase(PersistentOp& op) {
  last_found_ = nullptr;
  ops_.erase({op.lane(), op.name()});
}

void PersistentOps::remove_lane(LaneId lane) {
  const std::lock_guard lock(mutex_);
  last_found_ = nullptr;
  std::erase_if(ops_, [lane](const auto& each) {
    PersistentOp& op = *each.second;
    if (op.lane() != lane) return false;
    op.calls = {};
    op.knowledge = {};
    op.rounds = {};
    return op.take();
  });
}

void PersistentOps::for_each(LaneId lane, const std::function<void(PersistentOp&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, op] : ops_) {
    if (key.lane == lane) visit(*op);
  }
}

}  // namespace ciranda
