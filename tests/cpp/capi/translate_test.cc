// translate: structs of other versions, and values that no enum has.
#include "capi/translate.hpp"

#include <gtest/gtest.h>

#include <iterator>

extern "C" ciranda_request request_initialised_in_c(void);

namespace ciranda::capi {
namespace {

struct LargerRequest {
  ciranda_request known = CIRANDA_REQUEST_INIT;
  std::uint64_t of_a_later_version = 0;
};

ciranda_tensor vector_of(float* values, const std::int64_t* shape) {
  return {values, values, shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
}

// The request of the call that it means.
Result<Request> translated(const ciranda_request& request) {
  TranslatedCall to;
  if (Status status = translate(request, to); !status.ok()) return status;
  return make_request(to.call);
}

void expect_invalid(const ciranda_request& request, const char* part) {
  const auto result = translated(request);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

TEST(Translate, InitialisedInCMeansTheSame) {
  const auto result = translated(request_initialised_in_c());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().signature, Signature{});
  EXPECT_TRUE(result.value().name.empty());
  EXPECT_FALSE(result.value().is_cacheable);
  EXPECT_FALSE(result.value().is_deferrable);
}

TEST(Translate, CarriesEveryField) {
  float values[6] = {};
  const std::int64_t shape[] = {2, 3};
  const ciranda_tensor tensors[] = {{values, values + 1, shape, 2, CIRANDA_INT16, nullptr, 0, 0, 0, nullptr},
                                    {values, nullptr, nullptr, 0, CIRANDA_BOOL, nullptr, 0, 0, 0, nullptr}};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.op = CIRANDA_AVERAGE;
  request.prescale = 0.5;
  request.postscale = 3;
  request.process_set = 7;
  request.flags = CIRANDA_REQUEST_DEFERRABLE | CIRANDA_REQUEST_AWAITED;
  request.name = "gradient";
  request.tensors = tensors;
  request.tensors_count = 2;
  const auto result = translated(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Request& to = result.value();
  EXPECT_EQ(to.name, "gradient");
  EXPECT_TRUE(to.is_cacheable);
  EXPECT_TRUE(to.is_deferrable);
  EXPECT_TRUE(to.is_awaited);
  EXPECT_EQ(to.signature, (Signature{{Collective::kAllreduce, ReduceOp::kAverage, -1, 0.5, 3},
                                     {{DataType::kInt16, {2, 3}}, {DataType::kBool, {}}},
                                     {}}));
  EXPECT_EQ(to.process_set, 7U);
  EXPECT_EQ(to.memory[0].input, reinterpret_cast<std::byte*>(values));
  EXPECT_EQ(to.memory[0].output, reinterpret_cast<std::byte*>(values + 1));
  EXPECT_EQ(to.memory[1].output, nullptr);
}

// Without the flag an allgather's output is not looked at.
TEST(Translate, ToACallWhoseResultIsAllocated) {
  float values[6] = {};
  const std::int64_t shape = 6;
  const ciranda_tensor tensor{values, values + 1, &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = "x";
  request.tensors = &tensor;
  request.tensors_count = 1;
  const auto output = [&] { return translated(request).value().memory.front().output; };
  request.collective = CIRANDA_ALLGATHER;
  EXPECT_EQ(output(), nullptr);
  EXPECT_FALSE(translated(request).value().has_room_for_all);
  request.flags = CIRANDA_REQUEST_HAS_ROOM;
  EXPECT_EQ(output(), reinterpret_cast<std::byte*>(values + 1));
  EXPECT_TRUE(translated(request).value().has_room_for_all);
  request.collective = CIRANDA_REDUCESCATTER;
  EXPECT_EQ(output(), reinterpret_cast<std::byte*>(values + 1));
  EXPECT_FALSE(translated(request).value().has_room_for_all);
}

TEST(Translate, AnOmittedInputIsTheOutput) {
  float values[6] = {};
  const std::int64_t shape = 6;
  const ciranda_tensor tensor{nullptr, values, &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = "x";
  request.tensors = &tensor;
  request.tensors_count = 1;
  for (const ciranda_collective collective : {CIRANDA_ALLREDUCE, CIRANDA_BROADCAST}) {
    request.collective = collective;
    EXPECT_EQ(translated(request).value().memory.front().input, reinterpret_cast<std::byte*>(values));
  }
}

// What is refused, or has more than a repeated call may have, is not repeated.
TEST(Translate, ToACallThatCanBeRepeated) {
  float values[6] = {};
  const std::int64_t shape[] = {2, 3};
  static constexpr double kWeight = 1;
  static constexpr std::int64_t kNumber = 1;
  using Change = void (*)(ciranda_request&, ciranda_tensor&);
  const Change changes[] = {
      [](auto& r, auto&) { r.collective = CIRANDA_GATHER; },
      [](auto& r, auto&) { r.collective = CIRANDA_ALLTOALL; },
      [](auto& r, auto& t) { r.collective = CIRANDA_ALLGATHER, t.ndim = 0; },
      [](auto& r, auto& t) { r.collective = CIRANDA_REDUCESCATTER, t.input = nullptr; },
      [](auto& r, auto&) { r.collective = 99; },
      [](auto& r, auto&) { r.op = 99; },
      [](auto& r, auto&) { r.flags = CIRANDA_REQUEST_NEEDS_ALL; },
      [](auto& r, auto&) { r.flags = 1U << 31U; },
      [](auto& r, auto&) { r.name = ""; },
      [](auto& r, auto&) { r.tensors = nullptr; },
      [](auto& r, auto&) { r.weight = &kWeight; },
      [](auto& r, auto&) { r.arguments = &kNumber, r.arguments_count = 1; },
      [](auto&, auto& t) { t.output = nullptr; },
      [](auto&, auto& t) { t.shape = nullptr; },
      [](auto&, auto& t) { t.ndim = -1; },
      [](auto&, auto& t) { t.ndim = 65; },
      [](auto&, auto& t) { t.dtype = 99; },
      [](auto&, auto& t) { t.splits = &kNumber, t.splits_count = 1; },
  };
  for (std::size_t i = 0; i <= std::size(changes); ++i) {
    ciranda_tensor tensor{values, values, shape, 2, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.name = "x";
    request.tensors = &tensor;
    request.tensors_count = 1;
    if (i < std::size(changes)) changes[i](request, tensor);
    TranslatedCall to;
    const bool is_repeated = translate(request, to).ok() && can_be_repeated(to.call);
    EXPECT_EQ(is_repeated, i == std::size(changes)) << "change " << i;
  }
}

TEST(Translate, ToTheHintsOfItsFlags) {
  constexpr std::uint32_t kFlags[] = {0, CIRANDA_REQUEST_DEFERRABLE, CIRANDA_REQUEST_AWAITED,
                                      CIRANDA_REQUEST_DIRECT_CALLBACK};
  float value = 1;
  ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = "x";
  request.tensors = &tensor;
  request.tensors_count = 1;
  for (const std::uint32_t flags : kFlags) {
    request.flags = flags;
    const Hints hints = translated(request).value();
    EXPECT_EQ(hints.is_deferrable, flags == CIRANDA_REQUEST_DEFERRABLE);
    EXPECT_EQ(hints.is_awaited, flags == CIRANDA_REQUEST_AWAITED);
    EXPECT_EQ(hints.calls_back_directly, flags == CIRANDA_REQUEST_DIRECT_CALLBACK);
    EXPECT_FALSE(hints.is_early);
  }
}

TEST(Translate, KeepsTheDivisorAndTheWeightOfAnAverage) {
  const double weight = 2.5;
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.op = CIRANDA_AVERAGE;
  request.flags = CIRANDA_REQUEST_DIVIDE_BY_ALL;
  EXPECT_TRUE(translated(request).value().signature.divides_by_all);
  EXPECT_FALSE(translated(request).value().signature.is_weighted);
  request.flags = 0;
  request.weight = &weight;
  const auto weighted = translated(request);
  EXPECT_FALSE(weighted.value().signature.divides_by_all);
  EXPECT_TRUE(weighted.value().signature.is_weighted);
  EXPECT_EQ(weighted.value().weight, 2.5);
}

TEST(Translate, IgnoresWhatACollectiveDoesNotUse) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = CIRANDA_BARRIER;
  request.op = CIRANDA_MAX;
  request.root = 5;
  request.prescale = 9;
  const auto result = translated(request);
  ASSERT_TRUE(result.ok());
  Signature expected;
  expected.collective = Collective::kBarrier;
  EXPECT_EQ(result.value().signature, expected);
}

TEST(Translate, AcceptsALargerStructWhoseRestIsZero) {
  LargerRequest request;
  request.known.struct_size = sizeof(request);
  EXPECT_TRUE(translated(request.known).ok());
  request.of_a_later_version = 1;
  expect_invalid(request.known, "newer version");
}

TEST(Translate, StepsOverLargerTensors) {
  struct LargerTensor {
    ciranda_tensor known;
    std::uint64_t of_a_later_version = 0;
  };
  float values[2] = {};
  const std::int64_t shapes[] = {1, 2};
  LargerTensor tensors[] = {{vector_of(values, &shapes[0])}, {vector_of(values, &shapes[1])}};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.tensor_struct_size = sizeof(LargerTensor);
  request.tensors = &tensors[0].known;
  request.tensors_count = 2;
  const auto result = translated(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().signature.tensors[1].shape, (Shape{2}));
}

TEST(Translate, TakesARequestOfVersion1) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = CIRANDA_BARRIER;
  request.lane = 5;
  request.arguments_count = 3;
  request.struct_size = offsetof(ciranda_request, lane);  // what follows is not the struct's
  const auto result = translated(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().lane, 0U);
  EXPECT_TRUE(result.value().signature.arguments.empty());
}

TEST(Translate, TakesARequestOfVersion2) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = CIRANDA_BARRIER;
  request.priority = 7;
  EXPECT_EQ(translated(request).value().priority, 7);
  request.struct_size = offsetof(ciranda_request, priority);
  EXPECT_EQ(translated(request).value().priority, 0);
}

TEST(Translate, CarriesSplits) {
  float values[6] = {};
  const std::int64_t shape[] = {3, 2};
  const std::int64_t splits[] = {2, 0, 1};
  ciranda_tensor tensors[] = {{values, nullptr, shape, 2, CIRANDA_FLOAT32, splits, 3, 0, 0, nullptr},
                              {values, nullptr, shape, 2, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr}};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = CIRANDA_ALLTOALL;
  request.tensors = tensors;
  request.tensors_count = 2;
  const auto result = translated(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().splits, (std::vector<std::vector<std::int64_t>>{{2, 0, 1}, {}}));
}

// As programs have them that were built before tensors had splits.
TEST(Translate, AcceptsTensorsOfTheFirstVersion) {
  struct FirstTensor {
    const void* input;
    void* output;
    const std::int64_t* shape;
    std::int32_t ndim;
    ciranda_dtype dtype;
  };
  float values[2] = {};
  const std::int64_t shapes[] = {1, 2};
  FirstTensor tensors[] = {{values, values, &shapes[0], 1, CIRANDA_FLOAT32},
                           {values, values, &shapes[1], 1, CIRANDA_FLOAT32}};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.tensor_struct_size = sizeof(FirstTensor);
  request.tensors = reinterpret_cast<const ciranda_tensor*>(tensors);
  request.tensors_count = 2;
  const auto result = translated(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().signature.tensors[1].shape, (Shape{2}));
  EXPECT_TRUE(result.value().splits.empty());
  request.tensor_struct_size = sizeof(FirstTensor) - 1;
  expect_invalid(request, "ciranda_tensor");
}

TEST(Translate, RefusesAShorterStruct) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.struct_size = offsetof(ciranda_request, lane) - 1;
  expect_invalid(request, "less than");
  request.struct_size = 0;
  expect_invalid(request, "ciranda_request");
}

TEST(Translate, RefusesValuesOutOfTheirEnum) {
  for (const std::int32_t value : {-1, static_cast<std::int32_t>(kNumCollectives), 255, 256, 1 << 20}) {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = value;
    expect_invalid(request, "collective");
  }
  for (const std::int32_t value : {-1, 12, 256}) {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.op = value;
    expect_invalid(request, "op");
  }
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.flags = 1U << 30U;
  expect_invalid(request, "flags has a bit that this library does not know");
  request.flags = 0;
  request.collective = CIRANDA_ADD_PROCESS_SET;
  request.arguments_count = 1;
  expect_invalid(request, "arguments is NULL, or there are too many");
}

TEST(Translate, RefusesTensorsThatCannotBeRead) {
  float value = 0;
  const std::int64_t shape = 1;
  ciranda_tensor tensor = vector_of(&value, &shape);
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.tensors_count = 1;
  expect_invalid(request, "tensors is NULL");
  request.tensors = &tensor;
  tensor.dtype = 15;
  expect_invalid(request, "dtype");
  tensor.dtype = CIRANDA_FLOAT32;
  tensor.ndim = -1;
  expect_invalid(request, "ndim");
  tensor.ndim = 65;
  expect_invalid(request, "ndim");
  tensor.ndim = 1;
  tensor.shape = nullptr;
  expect_invalid(request, "shape is NULL");
  request.tensors_count = kMaxTensorsPerRequest + 1;
  expect_invalid(request, "tensors, more than");
}

TEST(Translate, Options) {
  EXPECT_EQ(translate(nullptr).value().epoch, CIRANDA_EPOCH_AUTO);
  const ciranda_setting rows[] = {{"CIRANDA_HOST", "a b"}};
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = rows;
  options.settings_count = 1;
  options.epoch = 3;
  const auto result = translate(&options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().epoch, 3u);
  EXPECT_EQ(result.value().settings.at(0), (std::pair<std::string, std::string>("CIRANDA_HOST", "a b")));
  options.settings = nullptr;
  EXPECT_EQ(translate(&options).status().message(), "ciranda_options: settings is NULL");
  const ciranda_setting nameless{nullptr, "1"};
  options.settings = &nameless;
  EXPECT_EQ(translate(&options).status().message(), "ciranda_options: a setting's name or value is NULL");
  options.struct_size = 4;
  EXPECT_NE(translate(&options).status().message().find("ciranda_options: "), std::string::npos);
}

}  // namespace
}  // namespace ciranda::capi
