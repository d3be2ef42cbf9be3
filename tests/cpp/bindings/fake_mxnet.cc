#include "bindings/fake_mxnet.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <new>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ciranda::mxnet::fake {

namespace {

std::atomic<std::int64_t> n_memories{0};
std::atomic<std::int64_t> n_handles{0};
thread_local bool is_thread_of_engine = false;

// What the engine knows of an array's memory.
struct Variable {
  std::atomic<std::size_t> version{0};
};

// Where the binding looks for it.
struct Chunk {
  std::byte storage[kVariableAt]{};
  Variable* variable = nullptr;
};

// What an operation has failed with, for all that it writes, until it is raised.
using Error = std::shared_ptr<std::string>;

bool is_failure(const Error& error) { return error && !error->empty(); }

struct Memory : Chunk {
  explicit Memory(std::vector<float> given, DlManagedTensor* from = nullptr) : values(std::move(given)), lent(from) {
    variable = &own_variable;
    ++n_memories;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (lent != nullptr) lent->give_back(lent);
    --n_memories;
  }

  void* data() { return lent != nullptr ? lent->data : values.data(); }

  std::vector<float> values;
  DlManagedTensor* lent;  // whose data is used instead
  Error error;            // of what wrote it last
  Variable own_variable;
  bool is_negated = false;

  void negate() {
    for (float& value : values) value = -value;
    is_negated = !is_negated;
  }
};

// Begins with its memory, as MXNet's does.
struct FakeArray {
  explicit FakeArray(std::shared_ptr<Memory> its) : memory(std::move(its)), length(n_values()) { ++n_handles; }
  FakeArray(const FakeArray& other) : FakeArray(other.memory) {}
  FakeArray& operator=(const FakeArray&) = delete;
  ~FakeArray() { --n_handles; }

  std::int64_t n_values() const { return static_cast<std::int64_t>(memory->values.size()); }

  std::shared_ptr<Memory> memory;
  std::int64_t length;
};

FakeArray& array_of(void* handle) { return *static_cast<FakeArray*>(handle); }

struct Operation {
  void (*run)(void*, void*, void*);
  void* argument;
  void (*discard)(void*);
  std::vector<std::shared_ptr<Memory>> read;
  std::vector<std::shared_ptr<Memory>> written;
  bool has_begun = false;

  bool uses(const std::shared_ptr<Memory>& memory) const { return has(read, memory) || writes(memory); }
  bool writes(const std::shared_ptr<Memory>& memory) const { return has(written, memory); }
  bool must_follow(const Operation& earlier) const {
    return std::any_of(written.begin(), written.end(), [&](const auto& each) { return earlier.uses(each); }) ||
           std::any_of(read.begin(), read.end(), [&](const auto& each) { return earlier.writes(each); });
  }

 private:
  static bool has(const std::vector<std::shared_ptr<Memory>>& all, const std::shared_ptr<Memory>& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
};

class Engine {
 public:
  Engine() {
    for (std::thread& each : threads_) each = std::thread([this] { work(); });
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() {
    {
      const std::lock_guard guard(lock_);
      is_over_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
  }

  void push(Operation operation) {
    const std::lock_guard guard(lock_);
    operations_.push_back(std::move(operation));
    changed_.notify_all();
  }

  template <typename Predicate>
  void wait_until(Predicate is_so) {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [&] { return is_so(operations_); });
  }

  // Also what is done after an operation's end.
  void wait_until_idle() {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [&] { return operations_.empty() && n_beginning_ == 0; });
  }

  static void complete(void* engine, void* operation, const void* error) {
    const auto* const failed = static_cast<const std::runtime_error*>(error);
    if (failed != nullptr && !is_thread_of_engine) ++n_failed_elsewhere();
    static_cast<Engine*>(engine)->end(static_cast<Operation*>(operation),
                                      failed == nullptr ? nullptr : std::make_shared<std::string>(failed->what()));
  }

 private:
  void work() {
    is_thread_of_engine = true;
    std::unique_lock guard(lock_);
    while (!is_over_) {
      const auto ready = std::find_if(operations_.begin(), operations_.end(), [&](const Operation& operation) {
        const auto precedes = [&](const Operation& each) { return &each != &operation && operation.must_follow(each); };
        const auto before = std::find_if(operations_.begin(), operations_.end(),
                                         [&](const Operation& each) { return &each == &operation || precedes(each); });
        return !operation.has_begun && &*before == &operation;
      });
      if (ready == operations_.end()) {
        changed_.wait(guard);
        continue;
      }
      ready->has_begun = true;
      Operation* const operation = &*ready;
      const Error error = error_of(*operation);
      ++n_beginning_;
      guard.unlock();
      begin(operation, error);
      guard.lock();
      --n_beginning_;
      changed_.notify_all();
    }
  }

  void begin(Operation* operation, const Error& error) {
    void (*const discard)(void*) = operation->discard;
    void* const argument = operation->argument;
    if (!is_failure(error)) {
      OnComplete done{&Engine::complete, this, operation};
      operation->run(nullptr, &done, argument);  // may have ended when this returns
      done = {};
    } else {
      end(operation, error);
    }
    discard(argument);
  }

  static Error error_of(const Operation& operation) {
    for (const auto* const all : {&operation.read, &operation.written}) {
      for (const auto& each : *all) {
        if (is_failure(each->error)) return each->error;
      }
    }
    return nullptr;
  }

  void end(Operation* operation, const Error& error) {
    std::list<Operation> ended;
    const std::lock_guard guard(lock_);
    const auto found =
        std::find_if(operations_.begin(), operations_.end(), [&](const Operation& each) { return &each == operation; });
    for (const auto& each : found->written) {
      each->error = error;
      ++each->variable->version;
    }
    ended.splice(ended.begin(), operations_, found);
    changed_.notify_all();
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::list<Operation> operations_;
  int n_beginning_ = 0;
  bool is_over_ = false;
  std::thread threads_[3];
};

Engine& engine() {
  static Engine it;
  return it;
}

std::vector<std::shared_ptr<Memory>> memories_of(void** handles, int count) {
  std::vector<std::shared_ptr<Memory>> found;
  for (void* const each : std::span(handles, static_cast<std::size_t>(count))) found.push_back(array_of(each).memory);
  return found;
}

struct Sum {
  std::shared_ptr<Memory> memory;
  float summand;
};

}  // namespace

Array make(const std::vector<float>& values) { return Array(new FakeArray(std::make_shared<Memory>(values))); }

Read read(const Array& array) {
  const std::shared_ptr<Memory> memory = array_of(array.get()).memory;
  engine().wait_until([&](const std::list<Operation>& operations) {
    return std::none_of(operations.begin(), operations.end(), [&](const auto& each) { return each.writes(memory); });
  });
  return {memory->values, is_failure(memory->error) ? *memory->error : ""};
}

std::string raise(const Array& array) {
  const std::string error = read(array).error;
  if (!error.empty()) array_of(array.get()).memory->error->clear();
  return error;
}

void push_add(const Array& array, float summand) {
  const std::shared_ptr<Memory> memory = array_of(array.get()).memory;
  const auto run = [](void*, void* done, void* argument) {
    const Sum& sum = *static_cast<Sum*>(argument);
    for (float& value : sum.memory->values) value += sum.summand;
    const OnComplete copy = *static_cast<OnComplete*>(done);
    copy.callback(copy.engine, copy.operation, nullptr);
  };
  engine().push(
      {run, new Sum{memory, summand}, [](void* argument) { delete static_cast<Sum*>(argument); }, {}, {memory}});
}

void fail(const Array& array, const std::string& error) {
  const auto run = [](void*, void* done, void* argument) {
    const std::runtime_error failure(*static_cast<std::string*>(argument));
    const OnComplete copy = *static_cast<OnComplete*>(done);
    copy.callback(copy.engine, copy.operation, &failure);
  };
  engine().push({run,
                 new std::string(error),
                 [](void* argument) { delete static_cast<std::string*>(argument); },
                 {},
                 {array_of(array.get()).memory}});
}

void lay_out_otherwise(const Array& array) { array_of(array.get()).memory->negate(); }

std::atomic<int>& n_reordered() {
  static std::atomic<int> count{0};
  return count;
}

std::atomic<int>& n_failed_elsewhere() {
  static std::atomic<int> count{0};
  return count;
}

void wait_for_all() { engine().wait_until_idle(); }

std::int64_t live_memories() { return n_memories; }
std::int64_t live_handles() { return n_handles; }

}  // namespace ciranda::mxnet::fake

// As MXNet declares them.
namespace mx_fake = ciranda::mxnet::fake;

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE const char* MXGetLastError() { return "the fake has failed"; }

FAKE int MXEnginePushAsyncND(void (*run)(void*, void*, void*), void* argument, void (*discard)(void*),
                             const void* /*device*/, void** read, int n_read, void** written, int n_written,
                             const void* /*property*/, int /*priority*/, const char* /*name*/, bool /*wait*/) {
  mx_fake::engine().push(
      {run, argument, discard, mx_fake::memories_of(read, n_read), mx_fake::memories_of(written, n_written)});
  return 0;
}

FAKE int MXShallowCopyNDArray(void* array, void** copy) {
  *copy = new mx_fake::FakeArray(mx_fake::array_of(array));
  return 0;
}

FAKE int MXNDArrayFree(void* array) {
  delete &mx_fake::array_of(array);
  return 0;
}

FAKE int MXNDArrayGetData(void* array, void** data) {
  *data = mx_fake::array_of(array).memory->data();
  return 0;
}

FAKE int MXNDArrayGetShapeEx64(void* array, int* ndim, const std::int64_t** shape) {
  *ndim = 1;
  *shape = &mx_fake::array_of(array).length;
  return 0;
}

FAKE int MXNDArrayGetDType(void* /*array*/, int* dtype) {
  *dtype = 0;
  return 0;
}

FAKE int MXNDArrayGetContext(void* /*array*/, int* device_type, int* device_number) {
  *device_type = 1;
  *device_number = 0;
  return 0;
}

FAKE int MXNDArrayGetStorageType(void* /*array*/, int* storage) {
  *storage = ciranda::mxnet::kDense;
  return 0;
}

FAKE int MXNDArrayFromDLPackEx(void* tensor, bool is_transient, void** array) {
  auto* const lent = static_cast<ciranda::mxnet::DlManagedTensor*>(tensor);
  if (is_transient || lent->ndim == 0) return -1;
  *array = new mx_fake::FakeArray(std::make_shared<mx_fake::Memory>(std::vector<float>(), lent));
  return 0;
}

// mxnet::NDArray's, by their mangled names.
FAKE bool _ZNK5mxnet7NDArray5Chunk8IsMKLDNNEv(const void* memory) {
  return static_cast<const mx_fake::Memory*>(memory)->is_negated;
}

FAKE void _ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv(void* memory) {
  ++mx_fake::n_reordered();
  static_cast<mx_fake::Memory*>(memory)->negate();
}

class ByValue {
 public:
  explicit ByValue(const mx_fake::FakeArray& array) {
    auto* const made = new (bytes_) mx_fake::FakeArray(std::make_shared<mx_fake::Memory>(array.memory->values));
    made->memory->negate();
    made->memory->is_negated = false;
  }
  ByValue(const ByValue&) = delete;
  ByValue& operator=(const ByValue&) = delete;
  ~ByValue() {}  // not trivial, so that it is returned where the caller has room for it

 private:
  alignas(mx_fake::FakeArray) std::byte bytes_[sizeof(mx_fake::FakeArray)];
};

// C has no such result, so that the name is given otherwise.
__attribute__((visibility("default"))) ByValue reordered(const void* array) __asm__(
    "_ZNK5mxnet7NDArray15Reorder2DefaultEv");
ByValue reordered(const void* array) {
  ++mx_fake::n_reordered();
  return ByValue(*static_cast<const mx_fake::FakeArray*>(array));
}

FAKE std::size_t _ZN5mxnet6engine11ThreadedVar7versionEv(const void* variable) {
  return static_cast<const mx_fake::Variable*>(variable)->version;
}

FAKE void _ZN5mxnet7NDArrayD1Ev(void* array) { static_cast<mx_fake::FakeArray*>(array)->~FakeArray(); }
