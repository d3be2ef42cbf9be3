// Allgather, reducescatter and alltoall whose result goes to where the input lies, as far as ciranda.h allows that:
// small and large, by rounds and otherwise, by calls and by requests.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::patient;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;
using Ints = std::vector<std::int32_t>;

constexpr int kSteps = 6;
constexpr int kManyRows = 300'000;  // rows: too many to meet with

enum class HowMade : std::uint8_t { kCalls, kRequests, kMixed };

// Where input and output are.
enum class InputPlace : std::uint8_t { kEqual, kOwnRows };

struct Kind {
  Collective collective;
  InputPlace given;
};
constexpr std::array kKinds{
    Kind{Collective::kAllgather, InputPlace::kEqual}, Kind{Collective::kAllgather, InputPlace::kOwnRows},
    Kind{Collective::kAlltoall, InputPlace::kEqual}, Kind{Collective::kReducescatter, InputPlace::kOwnRows}};

struct Member {
  int rank;
  int n_ranks;
};

std::int32_t row_value_at(int rank, int step, std::int64_t row) {
  return static_cast<std::int32_t>(10'000'000 * step + 1'000'000 * rank + row);
}

// In place: one block of memory for input and output.
class InPlace {
 public:
  // `n_rows` of each rank, of which each gets as many.
  InPlace(Kind kind, Member self, int step, std::int64_t n_rows)
      : kind_(kind), self_(self), step_(step), n_rows_(n_rows), shape_(is_gather() ? n_rows : n_rows * self.n_ranks) {
    values_.assign(static_cast<std::size_t>(n_rows * self.n_ranks), -1);
    const auto input = values_.begin() + (is_gather() && kind.given == InputPlace::kOwnRows ? own() : 0);
    for (std::int64_t row = 0; row < shape_; ++row) input[row] = row_value_at(self.rank, step, row);
    call_.collective = kind.collective;
    call_.tensor.dtype = DataType::kInt32;
    call_.tensor.shape = {&shape_, 1};
    auto* output = &values_[kind.collective == Collective::kReducescatter ? static_cast<std::size_t>(own()) : 0];
    call_.tensor.memory = {reinterpret_cast<const std::byte*>(&*input), reinterpret_cast<std::byte*>(output)};
  }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  const Call& call() const { return call_; }

  // Of the result.
  std::int64_t n_wrong() const {
    const bool is_scattered = kind_.collective == Collective::kReducescatter;
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < (is_scattered ? n_rows_ : n_rows_ * self_.n_ranks); ++i) {
      const std::int64_t at = is_scattered ? own() + i : i;
      n += values_[static_cast<std::size_t>(at)] == expected(at) ? 0 : 1;
    }
    return n;
  }

 private:
  bool is_gather() const { return kind_.collective == Collective::kAllgather; }
  std::int64_t own() const { return self_.rank * n_rows_; }

  std::int32_t expected(std::int64_t at) const {
    const auto from = static_cast<int>(at / n_rows_);
    if (is_gather()) return row_value_at(from, step_, at % n_rows_);
    if (kind_.collective == Collective::kAlltoall) return row_value_at(from, step_, own() + at % n_rows_);
    std::int32_t sum = 0;
    for (int rank = 0; rank < self_.n_ranks; ++rank) sum += row_value_at(rank, step_, at);
    return sum;
  }

  Kind kind_;
  Member self_;
  int step_;
  std::int64_t n_rows_;
  std::int64_t shape_;
  Ints values_;
  std::string name_ = "x";
  testing::CallOfOne call_{{}, name_};
};

void perform_in_place(Engine& engine, const Call& call, bool by_request) {
  std::optional<Engine::OperationPtr> operation;
  if (!by_request) operation = repeat(engine, call);
  if (!operation) {
    Request request = make_request(call);
    request.is_awaited = true;
    operation = submit_request(engine, std::move(request));
  }
  if (*operation != nullptr) {
    EXPECT_TRUE(engine.wait(*operation).ok()) << (*operation)->status().message();
  }
}

// A few steps; or more, until ranks have met. A step goes by the log where another thread has an engine for a moment.
void run(World& world, Kind kind, HowMade way, std::int64_t n_rows, bool until_met = false) {
  constexpr int kMostSteps = 50;
  world.run([&](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()) + 7);
    const int n_steps = n_rows == kManyRows ? 2 : kSteps;
    for (int step = 0; step < n_steps || (until_met && engine.n_direct() == 0 && step < kMostSteps); ++step) {
      InPlace x(kind, {engine.rank(), world.size()}, step, n_rows);
      perform_in_place(engine, x.call(), way == HowMade::kRequests || (way == HowMade::kMixed && random() % 2 == 0));
      EXPECT_EQ(x.n_wrong(), 0) << to_string(kind.collective)
                                << (kind.given == InputPlace::kEqual ? ", equal" : ", own rows") << ", way "
                                << static_cast<int>(way) << ", " << n_rows << " rows, rank " << engine.rank() << " of "
                                << world.size() << ", step " << step;
    }
  });
}

// 40'000 rows of two ranks go through the ring, and so do 5'000.
TEST(RowsInPlace, OfRanksThatMeet) {
  for (const int n_ranks : {2, 3, 4}) {
    for (const Kind kind : kKinds) {
      for (const HowMade way : {HowMade::kCalls, HowMade::kRequests, HowMade::kMixed}) {
        for (const std::int64_t n_rows : {4, 5'000, 40'000, kManyRows}) {
          const Watchdog watchdog("rows in place");
          World world(n_ranks, patient());
          const bool can_meet = n_rows == 4 || (n_ranks == 2 && n_rows < kManyRows);
          run(world, kind, way, n_rows, can_meet);
          if (can_meet) {
            EXPECT_GT(world.engine(0).n_direct(), 0U);
          }
        }
      }
    }
  }
}

TEST(RowsInPlace, OfRanksThatDoNot) {
  for (const Layout layout : kLayouts) {
    for (const int n_ranks : {2, 3, 4}) {
      for (const Kind kind : kKinds) {
        for (const std::int64_t n_rows : {4, 5'000, kManyRows}) {
          const Watchdog watchdog("rows in place");
          WorldOptions options = testing::options_for(layout, n_ranks);
          options.config.direct_rounds = false;
          World world(n_ranks, options);
          run(world, kind, HowMade::kRequests, n_rows);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ciranda
