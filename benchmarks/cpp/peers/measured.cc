#include "measured.hpp"

#include <algorithm>
#include <ostream>

namespace peers {
namespace {

void write_times(const Measured& one, const std::vector<double>& times_us, std::ostream& out) {
  out << '"' << one.name << "\": {\"median_us\": " << quantile(times_us, 0.5)
      << ", \"low_us\": " << quantile(times_us, 0.25) << ", \"high_us\": " << quantile(times_us, 0.75)
      << ", \"min_us\": " << quantile(times_us, 0) << ", \"n_wrong\": " << one.n_wrong
      << ", \"iterations\": " << times_us.size() << '}';
}

template <typename TimesOf>
void write_row(const std::string& collective, std::size_t n_bytes, Distance distance,
               const std::vector<Measured>& found, TimesOf times_of, double floor_us, std::ostream& out) {
  out << "{\"collective\": \"" << collective << "\", \"n_bytes\": " << n_bytes << ", \"distance\": \""
      << name_of(distance) << "\", \"systems\": {";
  const char* separator = "";
  for (const Measured& one : found) {
    out << separator;
    write_times(one, times_of(one), out);
    separator = ", ";
  }
  out << "}, \"floor_us\": " << floor_us << '}';
}

}  // namespace

std::vector<double> Measured::times_at(Distance distance) const {
  std::vector<double> times;
  for (std::size_t i = 0; i < times_us.size(); ++i) {
    if (distances[i] == distance) times.push_back(times_us[i]);
  }
  return times;
}

void write_rows(const std::string& collective, std::size_t n_bytes, const std::vector<Measured>& found, double floor_us,
                std::ostream& out) {
  const char* separator = "";
  for (const Distance distance : {Distance::kNear, Distance::kFar}) {
    const auto at = [distance](const Measured& one) { return one.times_at(distance); };
    if (std::ranges::any_of(found, [&](const Measured& one) { return at(one).empty(); })) continue;
    out << separator;
    write_row(collective, n_bytes, distance, found, at, floor_us, out);
    separator = ", ";
  }
  if (*separator != '\0') return;
  const auto all = [](const Measured& one) { return one.times_us; };
  write_row(collective, n_bytes, Distance::kUnknown, found, all, floor_us, out);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

}  // namespace peers
