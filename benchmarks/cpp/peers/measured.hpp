// The measurement of one system on one case: the time of each call, and the distance of the cores during the call.
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
  std::int64_t n_calls = 0;    // the number of calls in all turns of a round
  double least_seconds = 1e9;  // the least time of a warm-up call
  Call call;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  std::vector<Distance> distances;
  std::vector<double> times_us;  // the same on all ranks

  std::vector<double> times_at(Distance distance) const;
};

// Writes a row of JSON for each distance at which all systems were measured. If there is none, writes one row of all
// times.
void write_rows(const std::string& collective, std::size_t n_bytes, const std::vector<Measured>& found, double floor_us,
                std::ostream& out);

double quantile(std::vector<double> values, double share);

}  // namespace peers
