// MPI over the world, as jaxlib calls it: every element type and operator, communicators, messages, and how calls
// fail. Ranks are processes, as the world is one of the process; threads of one rank are for the sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "bindings/fake_python.hpp"
#include "bindings/mpi/handles.hpp"
#include "bindings/mpi_functions.hpp"
#include "bindings/rank_processes.hpp"
#include "ciranda/table.h"

namespace ciranda::mpi {
namespace {

using capi::in_processes;
using capi::Settings;

constexpr int kCount = 5;

// Runs it on each rank of a world that MPI_Init has joined.
void with_mpi(int n_ranks, const std::function<void(int rank)>& on_rank) {
  in_processes(n_ranks, [&](int rank, const Settings& settings) {
    ciranda_context* world = nullptr;
    fake_python::on_join([&]() -> fake_python::Answer {
      world = capi::join(settings);
      return ciranda_get_table();
    });
    int provided = 0;
    ok(MPIABI_Init_thread(nullptr, nullptr, kThreadMultiple, &provided));
    EXPECT_EQ(provided, kThreadMultiple);
    on_rank(rank);
    ok(MPIABI_Finalize());
    ciranda_shutdown(world);
    EXPECT_EQ(fake_python::references_left(), 0);
    EXPECT_EQ(fake_python::locks_held(), 0);
    EXPECT_FALSE(fake_python::is_raised());
  });
}

// --- every element type and operator

template <typename T>
T value_of(int rank, int i) {
  const int value = 1 + (3 * rank + 5 * i) % 4;
  if constexpr (std::is_same_v<T, bool>) {
    return value % 2 == 0;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<typename T::value_type>(value), -1);
  }
}

template <typename T>
struct Reduction {
  Op op;
  std::function<T(T, T)> of_two;
};

template <typename T>
std::vector<Reduction<T>> arithmetic() {
  return {{kSUM, [](T a, T b) { return static_cast<T>(a + b); }},
          {kPROD, [](T a, T b) { return static_cast<T>(a * b); }}};
}

template <typename T>
std::vector<Reduction<T>> extremes() {
  return {{kMIN, [](T a, T b) { return std::min(a, b); }}, {kMAX, [](T a, T b) { return std::max(a, b); }}};
}

template <typename T>
std::vector<Reduction<T>> bits() {
  return {{kBAND, [](T a, T b) { return static_cast<T>(a & b); }},
          {kBOR, [](T a, T b) { return static_cast<T>(a | b); }},
          {kBXOR, [](T a, T b) { return static_cast<T>(a ^ b); }}};
}

// What T can be reduced by; the rest is refused.
template <typename T>
std::vector<Reduction<T>> reductions() {
  std::vector<Reduction<T>> all;
  const auto add = [&](const std::vector<Reduction<T>>& some) { all.insert(all.end(), some.begin(), some.end()); };
  if constexpr (std::is_same_v<T, bool>) {
    add(extremes<T>());
    add({{kLAND, std::logical_and<>()}, {kLOR, std::logical_or<>()}, {kLXOR, std::not_equal_to<>()}});
  } else {
    add(arithmetic<T>());
    if constexpr (std::is_arithmetic_v<T>) add(extremes<T>());
    if constexpr (std::is_integral_v<T>) add(bits<T>());
  }
  return all;
}

template <typename T>
void allreduces(Datatype datatype, int rank, int n_ranks) {
  SCOPED_TRACE(datatype);
  int n_bytes = 0;
  ok(MPIABI_Type_size(datatype, &n_bytes));
  EXPECT_EQ(n_bytes, sizeof(T));
  const std::vector<Reduction<T>> all = reductions<T>();
  for (Op op = kBeforeOps + 1; op <= kLXOR; ++op) {
    SCOPED_TRACE(op);
    std::array<T, kCount> mine{};
    std::array<T, kCount> result{};
    for (int i = 0; i < kCount; ++i) mine[static_cast<std::size_t>(i)] = value_of<T>(rank, i);
    const int error = MPIABI_Allreduce(mine.data(), result.data(), kCount, datatype, op, kCommWorld);
    const auto found = std::ranges::find(all, op, &Reduction<T>::op);
    if (found == all.end()) {
      fails(error, "MPI_Allreduce: ciranda does not combine elements of ");
      continue;
    }
    ok(error);
    for (int i = 0; i < kCount; ++i) {
      T wanted = value_of<T>(0, i);
      for (int r = 1; r < n_ranks; ++r) wanted = found->of_two(wanted, value_of<T>(r, i));
      EXPECT_EQ(result[static_cast<std::size_t>(i)], wanted) << i;
    }
  }
}

// The type that each of the engine's is in C++.
template <ciranda_dtype>
struct InCpp;
#define CIRANDA_IN_CPP(ours, theirs) \
  template <>                        \
  struct InCpp<CIRANDA_##ours> {     \
    using type = theirs;             \
  };
CIRANDA_IN_CPP(BOOL, bool)
CIRANDA_IN_CPP(INT8, std::int8_t)
CIRANDA_IN_CPP(INT16, std::int16_t)
CIRANDA_IN_CPP(INT32, std::int32_t)
CIRANDA_IN_CPP(INT64, std::int64_t)
CIRANDA_IN_CPP(UINT8, std::uint8_t)
CIRANDA_IN_CPP(UINT16, std::uint16_t)
CIRANDA_IN_CPP(UINT32, std::uint32_t)
CIRANDA_IN_CPP(UINT64, std::uint64_t)
CIRANDA_IN_CPP(FLOAT32, float)
CIRANDA_IN_CPP(FLOAT64, double)
CIRANDA_IN_CPP(COMPLEX64, std::complex<float>)
CIRANDA_IN_CPP(COMPLEX128, std::complex<double>)
#undef CIRANDA_IN_CPP

TEST(Mpi, EveryTypeIsReducedByEveryOperatorThatItHas) {
  with_mpi(3, [](int rank) {
#define CIRANDA_ALLREDUCES(name, ours) allreduces<InCpp<CIRANDA_##ours>::type>(k##name, rank, 3);
    CIRANDA_MPI_DATATYPES(CIRANDA_ALLREDUCES)
#undef CIRANDA_ALLREDUCES
  });
}

TEST(Mpi, WhatIsNotThereIsRefusedByName) {
  with_mpi(1, [](int) {
    float value = 1;
    const auto maxloc = static_cast<Op>(MPIABI_MAXLOC);
    fails(MPIABI_Allreduce(&value, &value, 1, kFLOAT, maxloc, kCommWorld), "no operator MPI_MAXLOC");
    fails(MPIABI_Allreduce(&value, &value, 1, kFLOAT, 77, kCommWorld), "no operator of handle 77");
    const auto long_double = static_cast<Datatype>(MPIABI_LONG_DOUBLE);
    fails(MPIABI_Bcast(&value, 1, long_double, 0, kCommWorld), "no element type MPI_LONG_DOUBLE");
    fails(MPIABI_Allreduce(&value, &value, 1, kFLOAT, kLAND, kCommWorld), "elements of float32 by logical_and");
    fails(MPIABI_Win_create(), "MPI_Win_create is not offered by ciranda");
    fails(MPIABI_Allreduce(&value, &value, -1, kFLOAT, kSUM, kCommWorld), "a count of -1");
    fails(MPIABI_Bcast(&value, 1, kFLOAT, 1, kCommWorld), "there is no rank 1");
    fails(MPIABI_Barrier(999), "no such communicator");
    EXPECT_EQ(text_of_error(123456789), "unknown error 123456789");
    ok(MPIABI_Allreduce(&value, &value, 1, kFLOAT, kSUM, kCommWorld));
    EXPECT_EQ(value, 1.0F);
  });
}

// --- communicators

// The rest of what jaxlib calls, in a communicator whose rank r is the world's rank `ranks[r]`.
void exchanges(Comm comm, const std::vector<int>& ranks) {
  const int n = static_cast<int>(ranks.size());
  const int here = rank_in(comm);
  const std::int32_t mine = ranks[static_cast<std::size_t>(here)];
  std::vector<std::int32_t> gathered(ranks.size());
  ok(MPIABI_Allgather(&mine, 1, kINT, gathered.data(), 1, kINT, comm));
  EXPECT_EQ(gathered, ranks);

  std::vector<std::int32_t> dealt(ranks.size());
  std::vector<std::int32_t> received(ranks.size());
  for (int r = 0; r < n; ++r) dealt[static_cast<std::size_t>(r)] = 100 * here + r;
  ok(MPIABI_Alltoall(dealt.data(), 1, kINT, received.data(), 1, kINT, comm));
  for (int r = 0; r < n; ++r) EXPECT_EQ(received[static_cast<std::size_t>(r)], 100 * r + here);

  std::int32_t sum = 0;
  const std::vector<int> counts(ranks.size(), 1);
  ok(MPIABI_Reduce_scatter(dealt.data(), &sum, counts.data(), kINT, kSUM, comm));
  EXPECT_EQ(sum, 100 * n * (n - 1) / 2 + n * here);

  std::int32_t of_last = mine;
  ok(MPIABI_Bcast(&of_last, 1, kINT, n - 1, comm));
  EXPECT_EQ(of_last, ranks.back());

  if (n > 1) {  // around in a ring, as lax.ppermute does
    std::array<RequestHandle, 2> requests{};
    std::array<Status, 2> statuses{};
    std::int32_t from_left = -1;
    ok(MPIABI_Irecv(&from_left, 1, kINT, (here + n - 1) % n, 5, comm, requests.data()));
    ok(MPIABI_Isend(&mine, 1, kINT, (here + 1) % n, 5, comm, &requests[1]));
    ok(MPIABI_Waitall(2, requests.data(), statuses.data()));
    EXPECT_EQ(from_left, ranks[static_cast<std::size_t>((here + n - 1) % n)]);
    EXPECT_EQ(statuses[0].source, (here + n - 1) % n);
    EXPECT_EQ(statuses[0].tag, 5);
  }
  ok(MPIABI_Barrier(comm));
}

void compare(Comm one, Comm other, int wanted) {
  int found = -1;
  ok(MPIABI_Comm_compare(one, other, &found));
  EXPECT_EQ(found, wanted);
}

TEST(Mpi, SplitCommunicatorsHaveAnOrderOfTheirOwn) {
  with_mpi(3, [](int rank) {
    exchanges(kCommWorld, {0, 1, 2});
    Comm backwards = split(kCommWorld, 0, 2 - rank);
    exchanges(backwards, {2, 1, 0});
    Comm again = kCommNull;
    ok(MPIABI_Comm_dup(backwards, &again));
    exchanges(again, {2, 1, 0});
    compare(again, backwards, kCongruent);
    compare(again, again, kIdent);
    compare(again, kCommWorld, kSimilar);

    const Comm some = split(kCommWorld, rank == 1 ? static_cast<int>(kUndefined) : 7, rank / 2);
    EXPECT_EQ(some == kCommNull, rank == 1);
    if (rank != 1) exchanges(some, {0, 2});
    if (rank != 1) compare(some, kCommWorld, kUnequal);
    const Comm alone = split(again, rank, 0);
    exchanges(alone, {rank});

    ok(MPIABI_Comm_free(&backwards));
    EXPECT_EQ(backwards, kCommNull);
    exchanges(again, {2, 1, 0});
    const Comm freed = again;
    ok(MPIABI_Comm_free(&again));
    fails(MPIABI_Barrier(freed), "no such communicator (it was freed, or never made)");
    exchanges(kCommWorld, {0, 1, 2});
  });
}

TEST(Mpi, ManyCommunicatorsComeAndGo) {
  with_mpi(2, [](int rank) {
    for (int i = 0; i < 100; ++i) {
      Comm comm = split(kCommWorld, i % 3 == 0 ? rank : 0, i % 3 == 0 ? 0 : rank);
      std::int32_t sum = 1;
      ok(MPIABI_Allreduce(reinterpret_cast<const void*>(kInPlace), &sum, 1, kINT, kSUM, comm));
      EXPECT_EQ(sum, i % 3 == 0 ? 1 : 2);
      ok(MPIABI_Comm_free(&comm));
    }
  });
}

TEST(Mpi, EachThreadHasACommunicator) {
  with_mpi(2, [](int rank) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      const Comm comm = split(kCommWorld, 0, thread % 2 == 0 ? rank : 1 - rank);
      threads.emplace_back([comm, thread] {
        for (int i = 0; i < 20; ++i) {
          exchanges(comm, thread % 2 == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
          fails(MPIABI_Barrier(static_cast<Comm>(1000 + thread)), "no such communicator");
          Comm own = kCommNull;
          ok(MPIABI_Comm_dup(comm, &own));
          ok(MPIABI_Barrier(own));
          ok(MPIABI_Comm_free(&own));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// --- failures

TEST(Mpi, RanksThatDifferAreToldAndGoOn) {
  with_mpi(2, [](int rank) {
    std::array<float, 4> values{1, 1, 1, 1};
    const auto sum = [&](int count) {
      return MPIABI_Allreduce(reinterpret_cast<const void*>(kInPlace), values.data(), count, kFLOAT, kSUM, kCommWorld);
    };
    fails(sum(3 + rank), "MPI_Allreduce: jax.lax: ");
    ok(sum(4));
    EXPECT_EQ(values[3], 2.0F);
    const Comm comm = split(kCommWorld, 0, rank);
    Comm strange = kCommNull;
    fails(MPIABI_Comm_split(comm, 0, 5 + rank, &strange), "do not agree on who is in it");
    fails(MPIABI_Barrier(strange), "do not agree on who is in it");  // jaxlib does not look at what the split returns
    ok(MPIABI_Barrier(comm));
  });
}

TEST(Mpi, WhoeverIsLeftIsTold) {
  with_mpi(2, [](int rank) {
    ok(MPIABI_Barrier(kCommWorld));
    if (rank == 1) _exit(0);  // the other shuts down without it
    float value = 1;
    RequestHandle request = 0;
    ok(MPIABI_Irecv(&value, 1, kFLOAT, 1, 0, kCommWorld, &request));
    fails(MPIABI_Allreduce(&value, &value, 1, kFLOAT, kSUM, kCommWorld), "rank 1");
    int is_done = 0;
    int error = 0;
    while (error == 0 && is_done == 0) error = MPIABI_Test(&request, &is_done, nullptr);
    fails(error, "rank 1");
    EXPECT_EQ(request, kRequestNull);
  });
}

TEST(Mpi, AllMessagesOfAWaitAreOverWhenOneHasFailed) {
  with_mpi(2, [](int rank) {
    ok(MPIABI_Barrier(kCommWorld));
    if (rank == 1) _exit(0);
    std::array<float, 2> values{};
    std::array<RequestHandle, 2> requests{};
    for (std::size_t i = 0; i < 2; ++i) {
      ok(MPIABI_Irecv(&values[i], 1, kFLOAT, 1, static_cast<int>(i), kCommWorld, &requests[i]));
    }
    fails(MPIABI_Waitall(2, requests.data(), nullptr), "rank 1");
    EXPECT_EQ(requests[0], kRequestNull);
    EXPECT_EQ(requests[1], kRequestNull);
  });
}

TEST(Mpi, WithoutAWorldEveryCallSaysWhy) {
  in_processes(1, [](int, const Settings& settings) {
    fails(MPIABI_Barrier(kCommWorld), "MPI_Init has not been called");
    testing::internal::CaptureStderr();
    fake_python::on_join([]() -> fake_python::Answer { return std::string("this is process 1 of 2 for JAX"); });
    fails(MPIABI_Init_thread(nullptr, nullptr, 0, nullptr), "MPI_Init: this is process 1 of 2 for JAX");
    fails(MPIABI_Barrier(kCommWorld), "this is process 1 of 2 for JAX");
    fake_python::on_join([]() -> fake_python::Answer { return fake_python::Raises{}; });
    fails(MPIABI_Init_thread(nullptr, nullptr, 0, nullptr), "the module ciranda cannot be used");
    ciranda_table old = *ciranda_get_table();
    old.abi_version = 0;
    fake_python::on_join([&]() -> fake_python::Answer { return &old; });
    fails(MPIABI_Init_thread(nullptr, nullptr, 0, nullptr), "compiled with version");
    fake_python::on_join([]() -> fake_python::Answer { return ciranda_get_table(); });
    fails(MPIABI_Init_thread(nullptr, nullptr, 0, nullptr), "Ciranda has not been initialized");
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("ciranda: MPI_Init: this is process 1 of 2"), std::string::npos) << told;
    EXPECT_NE(told.find("what Python prints"), std::string::npos) << told;

    ciranda_context* const world = capi::join(settings);
    ok(MPIABI_Init_thread(nullptr, nullptr, 0, nullptr));
    ok(MPIABI_Barrier(kCommWorld));
    ciranda_shutdown(world);
    fails(MPIABI_Barrier(kCommWorld), "Ciranda has not been initialized");
    EXPECT_EQ(fake_python::references_left(), 0);
    EXPECT_FALSE(fake_python::is_raised());
  });
}

}  // namespace
}  // namespace ciranda::mpi
