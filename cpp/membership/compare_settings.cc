#include "membership/compare_settings.hpp"

namespace ciranda {

Status compare_settings(const Endpoint& here, const Endpoint& there, const std::string& name) {
  const auto differ_in = [&](const std::string& what, const std::string& mine, const std::string& others) {
    return Status::mismatch(what + " is " + mine + " here but " + others + " on " + name +
                            ": set it to the same value on all ranks");
  };
  const auto differ = [&](const std::string& what, auto mine, auto others) {
    return differ_in(what, std::to_string(mine), std::to_string(others));
  };
  if (there.slot_bytes != here.slot_bytes) {
    return differ("CIRANDA_SLOT_BYTES", here.slot_bytes, there.slot_bytes);
  }
  if (there.n_lanes != here.n_lanes) {
    return differ("CIRANDA_NUM_LANES, or num_lanes of init(),", here.n_lanes, there.n_lanes);
  }
  if (there.n_sockets != here.n_sockets) {
    return differ("CIRANDA_SOCKETS, or the number of interfaces,", here.n_sockets, there.n_sockets);
  }
  if (there.uses_relays != here.uses_relays) {
    return differ("CIRANDA_RELAYS", here.uses_relays ? 1 : 0, there.uses_relays ? 1 : 0);
  }
  if (there.checks_data != here.checks_data) {
    return differ("CIRANDA_CHECK_DATA", here.checks_data ? 1 : 0, there.checks_data ? 1 : 0);
  }
  if (there.algorithm != here.algorithm) {
    return differ_in("CIRANDA_ALGORITHM", "'" + here.algorithm + "'", "'" + there.algorithm + "'");
  }
  if (there.wire_dtype != here.wire_dtype) {
    return differ_in("CIRANDA_WIRE_DTYPE", "'" + here.wire_dtype + "'", "'" + there.wire_dtype + "'");
  }
  if (there.one_shot_bytes != here.one_shot_bytes) {
    return differ("CIRANDA_ONE_SHOT_BYTES", here.one_shot_bytes, there.one_shot_bytes);
  }
  if (there.segment_bytes != here.segment_bytes) {
    return differ("CIRANDA_SEGMENT_BYTES", here.segment_bytes, there.segment_bytes);
  }
  if (there.autotune != here.autotune) {
    return differ("CIRANDA_AUTOTUNE", here.autotune ? 1 : 0, there.autotune ? 1 : 0);
  }
  return Status::ok_status();
}

}  // namespace ciranda
