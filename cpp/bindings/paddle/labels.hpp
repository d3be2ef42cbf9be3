// Labels: converts the labels of all ranks' samples to positions in this rank's shard of the classes.
//
// Each rank contributes its numbers of samples and labels, and the labels; all ranks check all of them, in rank order.
// Threads: any. Failure: an exception of Paddle's, on all ranks, which names the rank at fault.
//
// Called by ops.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/paddle/calls.hpp"

namespace ciranda::paddle_ops {

// The classes [first, end) of n_classes, as one of n_shards shards.
struct Shard {
  std::int64_t first;
  std::int64_t end;
  std::int64_t n_classes;
  int n_shards;
};

struct Labels {
  std::vector<std::int64_t> places;   // for each sample its number, and its class in the shard (0 if not in it)
  std::vector<std::int64_t> is_here;  // 1 if the sample's class is in the shard
  std::vector<std::int64_t> is_mine;  // 1 if the sample is this rank's
  std::vector<std::int64_t> own;      // the numbers of this rank's samples
  std::vector<std::int64_t> counts;   // the number of samples of this rank, and of all ranks; at least 1
};

inline constexpr std::size_t kTold = 2;  // the numbers that precede a rank's labels

inline std::vector<std::int64_t> tell_labels(std::int64_t n_samples, const std::vector<std::int64_t>& labels) {
  std::vector<std::int64_t> told{n_samples, static_cast<std::int64_t>(labels.size())};
  told.insert(told.end(), labels.begin(), labels.end());
  return told;
}

inline void add_sample(Labels& labels, std::int64_t label, bool is_mine, const Shard& shard) {
  const auto sample = static_cast<std::int64_t>(labels.is_here.size());
  const bool is_here = label >= shard.first && label < shard.end;
  labels.places.push_back(sample);
  labels.places.push_back(is_here ? label - shard.first : 0);
  labels.is_here.push_back(is_here ? 1 : 0);
  labels.is_mine.push_back(is_mine ? 1 : 0);
  if (is_mine) labels.own.push_back(sample);
}

inline Labels place_labels(const std::vector<std::int64_t>& told, int rank, const Shard& shard,
                           const std::string& name) {
  Labels labels;
  int n_ranks = 0;
  for (std::size_t at = 0; at < told.size(); ++n_ranks) {
    const std::int64_t n_samples = told[at];
    const std::int64_t n_labels = told[at + 1];
    const std::string who = name + ": rank " + std::to_string(n_ranks) + " gives ";
    if (n_labels != n_samples) {
      refuse(who + std::to_string(n_labels) + " labels for " + std::to_string(n_samples) + " samples");
    }
    at += kTold;
    for (std::int64_t sample = 0; sample < n_samples; ++sample, ++at) {
      if (told[at] < 0 || told[at] >= shard.n_classes) {
        refuse(who + "label " + std::to_string(told[at]) + " for its sample " + std::to_string(sample) +
               ", but the layer's classes are 0 to " + std::to_string(shard.n_classes - 1));
      }
      add_sample(labels, told[at], n_ranks == rank, shard);
    }
  }
  if (n_ranks != shard.n_shards) {
    refuse(name + ": " + std::to_string(n_ranks) + " ranks take part in a sharded layer that was made for " +
           std::to_string(shard.n_shards) + ": create it again after the number of ranks has changed");
  }
  const auto n_mine = static_cast<std::int64_t>(labels.own.size());
  const auto n_all = static_cast<std::int64_t>(labels.is_here.size());
  labels.counts = {std::max<std::int64_t>(n_mine, 1), std::max<std::int64_t>(n_all, 1)};
  return labels;
}

}  // namespace ciranda::paddle_ops
