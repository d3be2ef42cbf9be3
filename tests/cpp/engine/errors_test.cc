// Mistakes of the script: every rank gets the same error, which names what is wrong, and the engine goes on.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <latch>
#include <limits>

#include "agree/process_sets.hpp"
#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "engine/worlds_test.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::request;
using testing::Watchdog;
using testing::World;

// Tensors large enough for every request of these tests.
struct Tensors {
  std::array<std::array<double, 16>, 3> tensors{};

  Request one(Collective collective, const std::string& name) {
    Request r = request(collective, name, DataType::kFloat32, {2, 3}, tensors[0].data());
    if (info(collective).has_root) r.signature.root = 0;
    if (!info(collective).has_tensors) {
      r.signature.tensors.clear();
      r.memory.clear();
    }
    return r;
  }
  Request group(const std::string& name) {
    Request r = one(Collective::kAllreduce, name);
    r.signature.tensors = {{DataType::kFloat32, {2}}, {DataType::kInt64, {3}}, {DataType::kFloat32, {4}}};
    r.memory.clear();
    for (auto& tensor : tensors) {
      auto* bytes = reinterpret_cast<std::byte*>(tensor.data());
      r.memory.push_back({bytes, bytes});
    }
    return r;
  }
};

struct Mismatch {
  std::string label;
  std::function<Request(Tensors&)> common;
  std::function<void(Request&)> change;  // what the odd rank does otherwise
  std::vector<std::string> property;     // all of these, the values included, must be in the text
};

Request allreduce(Tensors& memory) { return memory.one(Collective::kAllreduce, "tensor"); }

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> table{
      {"Dtype",
       allreduce,
       [](Request& r) { r.signature.tensors[0].dtype = DataType::kFloat64; },
       {"dtype", "float32", "float64"}},
      {"Shape",
       allreduce,
       [](Request& r) {
         r.signature.tensors[0].shape = {3, 2};
       },
       {"shape", "[2, 3]", "[3, 2]"}},
      {"Dimensions", allreduce, [](Request& r) { r.signature.tensors[0].shape = {6}; }, {"shape", "[2, 3]", "[6]"}},
      {"Op", allreduce, [](Request& r) { r.signature.op = ReduceOp::kAverage; }, {"reduce op", "sum", "average"}},
      {"Prescale", allreduce, [](Request& r) { r.signature.prescale = 0.5; }, {"prescale_factor", "(1", "(0.5"}},
      {"Postscale", allreduce, [](Request& r) { r.signature.postscale = 2.5; }, {"postscale_factor", "2.5)", "1"}},
      {"TinyFactors",
       [](Tensors& memory) {
         Request r = allreduce(memory);
         r.signature.prescale = 1e-9;
         return r;
       },
       [](Request& r) { r.signature.prescale = 3e-9; },
       {"prescale_factor", "1e-09", "3e-09"}},
      {"Collective",
       allreduce,
       [](Request& r) { r.signature.collective = Collective::kAllgather; },
       {"collective", "allreduce", "allgather"}},
      {"BarrierForAllreduce",
       allreduce,
       [](Request& r) {
         r.signature = {};
         r.signature.collective = Collective::kBarrier;
         r.memory.clear();
       },
       {"collective", "allreduce", "barrier"}},
      {"Root",
       [](Tensors& memory) { return memory.one(Collective::kBroadcast, "tensor"); },
       [](Request& r) { r.signature.root = 1; },
       {"root_rank", "0 on", "1 on"}},
      {"BroadcastShape",
       [](Tensors& memory) { return memory.one(Collective::kBroadcast, "tensor"); },
       [](Request& r) { r.signature.tensors[0].shape = {2}; },
       {"shape", "[2, 3]", "[2]"}},
      {"GatherSecondDimension",
       [](Tensors& memory) { return memory.one(Collective::kAllgather, "tensor"); },
       [](Request& r) {
         r.signature.tensors[0].shape = {2, 4};
       },
       {"shape", "[2, 3]", "[2, 4]", "first dimension"}},
      {"NumberOfTensors",
       [](Tensors& memory) { return memory.group("tensor"); },
       [](Request& r) {
         r.signature.tensors.pop_back();
         r.memory.pop_back();
       },
       {"number of tensors", "3 on", "2 on"}},
      {"DtypeInGroup",
       [](Tensors& memory) { return memory.group("tensor"); },
       [](Request& r) { r.signature.tensors[1].dtype = DataType::kUInt64; },
       {"dtype", "tensor 1", "int64", "uint64"}},
      {"ShapeInGroup",
       [](Tensors& memory) { return memory.group("tensor"); },
       [](Request& r) { r.signature.tensors[2].shape = {5}; },
       {"shape", "tensor 2", "[4]", "[5]"}},
  };
  return table;
}

class MismatchTest : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  const Mismatch& mismatch() const { return mismatches()[std::get<1>(GetParam())]; }

  void expect_error(const std::string& text, int odd) const {
    EXPECT_TRUE(contains(text, "'tensor'")) << text;
    for (const std::string& part : mismatch().property) EXPECT_TRUE(contains(text, part)) << part << " in: " << text;
    int n_ranks_named = 0;
    for (int rank = 0; rank < size(); ++rank)
      n_ranks_named += contains(text, "on rank " + std::to_string(rank)) ? 1 : 0;
    EXPECT_EQ(n_ranks_named, 2) << text;
    EXPECT_TRUE(contains(text, "on rank " + std::to_string(odd))) << text;
  }
};

TEST_P(MismatchTest, IsToldToEveryRankAlikeAndTheEngineGoesOn) {
  const Watchdog watchdog("mismatch " + mismatch().label);
  World world(size());
  // The odd rank is each in turn; the first use of the name, and one after it had been agreed on.
  for (int round = 0; round < 2 * size(); ++round) {
    const int odd = round / 2;
    std::vector<std::string> texts(static_cast<std::size_t>(size()));
    world.run([&](Engine& engine) {
      Tensors memory;
      if (round % 2 == 1) {
        const Status status = engine.wait(submit_request(engine, mismatch().common(memory)));
        ASSERT_TRUE(status.ok()) << status.message();
      }
      memory = {};
      Request wrong = mismatch().common(memory);
      if (engine.rank() == odd) mismatch().change(wrong);
      const Status status = engine.wait(submit_request(engine, std::move(wrong)));
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      texts[static_cast<std::size_t>(engine.rank())] = status.message();
      EXPECT_EQ(memory.tensors, Tensors{}.tensors) << "a tensor was touched though the request failed";
      ASSERT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kBarrier, "barrier"))).ok());
      const Status again = engine.wait(submit_request(engine, mismatch().common(memory)));
      EXPECT_TRUE(again.ok()) << again.message();
    });
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    expect_error(texts[0], odd);
    if (HasFailure()) FAIL() << "odd rank " << odd;
  }
}

INSTANTIATE_TEST_SUITE_P(Properties, MismatchTest,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Range(std::size_t{0}, mismatches().size())),
                         [](const auto& test) {
                           return mismatches()[std::get<1>(test.param)].label +
                                  std::to_string(std::get<0>(test.param)) + "ranks";
                         });

class ErrorsTest : public testing::WorldsTest {};

TEST_P(ErrorsTest, MismatchLeavesOtherNamesAlone) {
  const Watchdog watchdog("mismatch among others");
  World world(size(), options());
  world.run([&](Engine& engine) {
    Tensors memory;
    std::array<float, 3> values{1, 1, 1};
    auto before =
        submit_request(engine, request(Collective::kAllreduce, "before", DataType::kFloat32, {1}, &values[0]));
    Request wrong = memory.one(Collective::kAllreduce, "wrong");
    if (engine.rank() == 1) wrong.signature.tensors[0].shape = {1};
    auto failed = submit_request(engine, std::move(wrong));
    auto after = submit_request(engine, request(Collective::kAllreduce, "after", DataType::kFloat32, {1}, &values[1]));
    EXPECT_TRUE(engine.wait(after).ok());
    EXPECT_TRUE(engine.wait(before).ok());
    EXPECT_EQ(engine.wait(failed).kind(), ErrorKind::kMismatch);
    EXPECT_EQ(values[0], static_cast<float>(size()));
    EXPECT_EQ(values[1], static_cast<float>(size()));
  });
}

TEST_P(ErrorsTest, ADuplicateFailsAtOnceHereAndOnAllOthers) {
  const Watchdog watchdog("duplicate");
  World world(size(), options());
  for (int culprit = 0; culprit < size(); ++culprit) {
    for (const bool culprit_is_first : {true, false}) {
      std::latch culprit_has_failed(1);
      std::latch others_have_submitted(size() > 2 ? size() - 2 : 0);
      const int last = culprit == 0 ? 1 : 0;  // keeps the name pending until the culprit has used it twice
      world.run([&](Engine& engine) {
        Tensors memory;
        const auto submit = [&] { return submit_request(engine, memory.one(Collective::kAllreduce, "twice")); };
        Status status;
        if (engine.rank() == culprit) {
          if (!culprit_is_first) others_have_submitted.wait();
          auto first = submit();
          auto second = submit();
          EXPECT_TRUE(second->is_done());
          const Status refused = engine.wait(second);
          EXPECT_EQ(refused.kind(), ErrorKind::kInvalidArgument);
          EXPECT_TRUE(contains(refused.message(), "'twice'")) << refused.message();
          EXPECT_TRUE(contains(refused.message(), "rank " + std::to_string(culprit))) << refused.message();
          status = engine.wait(first);  // answered by the coordinator: so it knows before `last` submits
          culprit_has_failed.count_down();
        } else {
          if (engine.rank() == last || culprit_is_first) culprit_has_failed.wait();
          auto operation = submit();
          if (engine.rank() != last) others_have_submitted.count_down();
          status = engine.wait(operation);
        }
        EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument) << status.message();
        EXPECT_TRUE(contains(status.message(), "'twice'")) << status.message();
        EXPECT_TRUE(contains(status.message(), "rank " + std::to_string(culprit))) << status.message();
        EXPECT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kBroadcast, "other name"))).ok());
        ASSERT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kBarrier, "barrier"))).ok());
        const Status again = engine.wait(submit());
        EXPECT_TRUE(again.ok()) << again.message();
      });
      if (HasFailure()) FAIL() << "culprit " << culprit << (culprit_is_first ? " first" : " not first");
    }
  }
}

TEST_P(ErrorsTest, ADuplicateOnEveryRankFailsOnEveryRank) {
  const Watchdog watchdog("duplicates everywhere");
  World world(size(), options());
  std::latch all_but_first(size() - 1);
  world.run([&](Engine& engine) {
    Tensors memory;
    // Nothing can succeed before rank 0 submits, and it does so when all others have been refused.
    if (engine.rank() == 0) all_but_first.wait();
    auto first = submit_request(engine, memory.one(Collective::kAllreduce, "twice"));
    auto second = submit_request(engine, memory.one(Collective::kAllreduce, "twice"));
    EXPECT_EQ(engine.wait(first).kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(engine.wait(second).kind(), ErrorKind::kInvalidArgument);
    if (engine.rank() != 0) all_but_first.count_down();
    ASSERT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kBarrier, "barrier"))).ok());
    ASSERT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kBarrier, "again"))).ok());
  });
}

// What travels of a long name tells it from others that begin alike, on all ranks, and is text: no character is cut.
TEST_P(ErrorsTest, NamesMayBeOfAnyLength) {
  World world(size(), options());
  world.run([&](Engine& engine) {
    const std::string beginning(3000, 'x');
    std::string characters;
    for (int i = 0; i < 1000; ++i) characters += "\xc3\xb6";
    std::vector<Engine::OperationPtr> operations;
    std::array<Tensors, 4> memory;
    const std::vector<std::string> names{beginning + "1", beginning + "2", characters, characters + "."};
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        Request r = memory[i].one(Collective::kAllreduce, names[i]);
        r.signature.tensors[0].shape = {static_cast<std::int64_t>(i + 1)};
        operations.push_back(submit_request(engine, std::move(r)));
      }
      for (const auto& operation : std::exchange(operations, {})) ASSERT_TRUE(engine.wait(operation).ok());
    }
    for (const std::size_t n_bytes : {1000U, 1024U, 5000U}) {
      Request shared = memory[0].one(Collective::kAllreduce, std::string(n_bytes, 'n'));
      shared.is_cacheable = false;
      ASSERT_TRUE(engine.wait(submit_request(engine, std::move(shared))).ok());
      if (size() == 1 || engine.rank() > 1) continue;
      Request message = memory[0].one(Collective::kTransfer, std::string(n_bytes, 'm'));
      message.process_set = pair_of(0, 1);
      ASSERT_TRUE(engine.wait(submit_request(engine, std::move(message))).ok());
    }
  });
}

TEST_P(ErrorsTest, AnInvalidCallFailsAtOnceAndIsSeenByNobodyElse) {
  const std::vector<std::pair<std::string, std::function<void(Request&)>>> wrongs{
      {"1 to", [](Request& r) { r.name.clear(); }},
      {"negative", [](Request& r) { r.signature.tensors[0].shape = {-1}; }},
      {"larger than any memory",
       [](Request& r) {
         r.signature.tensors[0].shape = {1LL << 40, 1LL << 40};
       }},
      {"dimensions", [](Request& r) { r.signature.tensors[0].shape.assign(kMaxDimensions + 1, 1); }},
      {"adasum takes",
       [](Request& r) {
         r.signature.tensors[0].dtype = DataType::kInt32;
         r.signature.op = ReduceOp::kAdasum;
       }},
      {"bool", [](Request& r) { r.signature.tensors[0].dtype = DataType::kBool; }},
      {"scaled",
       [](Request& r) {
         r.signature.tensors[0].dtype = DataType::kBool;
         r.signature.op = ReduceOp::kMax;
         r.signature.prescale = 2;
       }},
      {"finite", [](Request& r) { r.signature.postscale = std::numeric_limits<double>::quiet_NaN(); }},
      {"process set 1", [](Request& r) { r.process_set = 1; }},
      {"lane 64", [](Request& r) { r.lane = 64; }},
      {"no tensor",
       [](Request& r) {
         r.signature.tensors.clear();
         r.memory.clear();
       }},
      {"takes no tensor", [](Request& r) { r.signature.collective = Collective::kBarrier; }},
      {"no memory", [](Request& r) { r.memory.front() = {}; }},
      {"root_rank", [](Request& r) { r.signature.collective = Collective::kBroadcast; }},
      {"root_rank",
       [this](Request& r) {
         r.signature.collective = Collective::kBroadcast;
         r.signature.root = size();
       }},
      {"its process set must be the pair of two ranks, here it is set 0, lane 0.",
       [](Request& r) {
         r.signature.collective = Collective::kTransfer;
         r.signature.root = 0;
       }},
      {"scalar",
       [](Request& r) {
         r.signature.collective = Collective::kAllgather;
         r.signature.tensors[0].shape.clear();
       }},
  };
  const Watchdog watchdog("invalid calls");
  World world(size(), options());
  world.run([&](Engine& engine) {
    Tensors memory;
    if (engine.rank() == 0) {
      for (const auto& [part, change] : wrongs) {
        Request r = memory.one(Collective::kAllreduce, "x");
        change(r);
        auto operation = submit_request(engine, std::move(r));
        ASSERT_TRUE(operation->is_done()) << part;
        EXPECT_EQ(operation->status().kind(), ErrorKind::kInvalidArgument) << part;
        EXPECT_TRUE(contains(operation->status().message(), part)) << part << " in: " << operation->status().message();
      }
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, memory.one(Collective::kAllreduce, "x"))).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ErrorsTest,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
