// What was measured of one system on one case: a time for each call, and how far apart the cores were during it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "distance.hpp"
#include "system.hpp"

namespace peers {

struct Measured {
  std::string name;
  std::int64_t n_wrong = 0;
  std::int64_t n_calls = 0;    // to make in a round of turns
  double least_seconds = 1e9;  // of a call that warmed up
  Call call;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  std::vector<Distance> distances;
  std::vector<double> times_us;  // the same on all ranks

  std::vector<double> times_at(Distance distance) const;
};

// A row of JSON for each distance that all systems were measured at; or one of all times, where that is none.
void write_rows(const std::string& collective, std::size_t n_bytes, const std::vector<Measured>& found, double floor_us,
                std::ostream& out);

double quantile(std::vector<double> values, double share);

}  // namespace peers
